"""The page of a registry: every version with its metrics, who is current, who promoted which and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bigsvm.cli.main import run
from bigsvm.model.versions import promote, rollback
from tests.report.conftest import Page, at


@pytest.fixture(scope="module")
def registry(fits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three promotions, and a return to the second."""
    root = tmp_path_factory.mktemp("registry") / "spam"
    for k, accuracy in enumerate((0.71, 0.74, 0.69)):
        promote(root, fits / "two", f"night {k + 1}", metrics={"accuracy": accuracy, "store_fingerprint": "ab"})
    rollback(root, 2, "<worse> on Monday")
    return root


def test_the_text_of_a_registry(registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(registry), "--text"]) == 0
    said = capsys.readouterr().out
    assert "Version 2 is current. It was made current again on" in said
    assert ": <worse> on Monday." in said
    lines = [line.split() for line in said.splitlines() if line.strip()[:1].isdigit() and "night" in line]
    lines = [line for line in lines if line[0].isdigit()]  # of the versions, not of what happened when
    assert [(line[0], "current" in line, line[-1]) for line in lines] == [
        ("3", False, "-0.05"), ("2", True, "+0.03"), ("1", False, "-"),
    ]  # fmt: skip


def test_every_number_of_the_page_is_the_historys(registry: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert run(["report", str(registry), "-o", str(tmp_path / "p.html"), "--quiet"]) == 0
    page = Page((tmp_path / "p.html").read_text())
    entries = [json.loads(line) for line in (registry / "history.jsonl").read_text().splitlines()]
    known = {"history": entries}
    for version in (1, 2, 3):
        model = json.loads((registry / "versions" / f"{version:06d}" / "model.json").read_text())
        known[f"model of version {version}"] = model
    for source, value, _ in page.numbers:
        document, _, path = source.rpartition(":")
        assert at(known[document], path) == value
    shown = {source for source, _, _ in page.numbers}
    assert {f"history:{k}.metrics.accuracy" for k in range(3)} <= shown
    assert {f"model of version {v}:certificate.relative_gap.0" for v in (1, 2, 3)} <= shown
    assert "<worse> on Monday" in page.text
    assert "svg" in page.tags  # accuracy by version


def test_a_registry_in_trouble(fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "r"
    promote(root, fits / "two")
    assert run(["report", str(root), "--text", "--data", str(fits / "two.zarr")]) == 2
    assert "name one of them for --data" in capsys.readouterr().err
    assert run(["report", str(root), "--text"]) == 0
    assert "without a note" in capsys.readouterr().out
    (root / "current").unlink()
    assert run(["report", str(root), "--text"]) == 0
    assert "Nothing is current." in capsys.readouterr().out
    (root / "history.jsonl").write_text("nonsense\n{}\n")
    assert run(["report", str(root), "--text"]) == 65
    assert "line 1 is not a valid entry of a history" in capsys.readouterr().err
