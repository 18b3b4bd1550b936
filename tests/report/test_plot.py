"""`bigsvm plot`: runs side by side, as a picture or in characters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bigsvm.cli.main import run
from bigsvm.observe.jsonl import read_events
from bigsvm.report.compare import comparison
from bigsvm.report.runs import read_run


def test_the_points_are_the_proofs_of_the_records(fits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", str(fits / "two.run"), str(fits / "three.run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["result"]["runs"]
    assert [entry["name"] for entry in told] == ["two", "three"]
    for entry in told:
        proofs = [e for e in read_events(Path(entry["run"]) / "events.jsonl") if e["event"] == "CertificateMade"]
        assert entry["proofs"] == [
            {name: proof[name] for name in ("passes", "epochs", "wall_s", "relative_gap")} for proof in proofs
        ]
        assert proofs


def test_in_a_terminal(fits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", str(fits / "two.run"), str(fits / "three.run")]) == 0
    said = capsys.readouterr().out
    assert "a two" in said
    assert "b three" in said
    assert "seconds of training" in said
    assert "\x1b" not in said  # not a terminal: no colours


def test_runs_of_one_name_are_told_apart(fits: Path) -> None:
    runs = [read_run(fits / "two.run"), read_run(fits / "two.run")]
    charts = comparison(runs)
    assert [curve.name for curve in charts[0].curves] == [str(fits / "two.run")] * 2
    assert charts[0].level == ("asked for", 1e-4)
    both = comparison([runs[0], read_run(fits / "three.run")])
    assert both[0].level is None  # they asked for different gaps


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_picture(form: str, fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / f"p.{form}"
    assert run(["plot", str(fits / "two.run"), str(fits / "rbf.run"), "-o", str(out)]) == 0
    content = out.read_bytes()
    assert content.startswith(b"<?xml" if form == "svg" else b"\x89PNG")
    assert not re.search(rb"#01fe[01]\d", content)
    assert run(["plot", str(fits / "two.run"), "-o", str(out)]) == 73
    assert run(["plot", str(fits / "two.run"), str(fits / "rbf.run"), "-o", str(out), "--overwrite"]) == 0
    assert out.read_bytes() == content
    assert capsys.readouterr().out.splitlines() == [f"{out}: 2 runs"] * 2


def test_what_cannot_be_drawn(fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot"]) == 2
    assert run(["plot", str(fits / "two")]) == 66
    assert run(["plot", str(fits / "two.run"), "-o", str(tmp_path / "x.jpg")]) == 2
    (tmp_path / "run.json").write_text("{}")
    assert run(["plot", str(tmp_path)]) == 0
    assert "no run has a gap yet" in capsys.readouterr().err
