"""The report in a terminal: the same facts, bars and sparklines, without matplotlib; and runs that are not over."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bigsvm.cli.main import run
from bigsvm.process import this_machine, this_process
from bigsvm.report.draw.chart import bar, braille, sparkline
from bigsvm.report.facts import Chart, Curve
from bigsvm.report.runs import read_run
from tests.report.conftest import rows_of_values


def said(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    capsys.readouterr()
    assert run(["report", *map(str, args), "--text"]) == 0
    return capsys.readouterr().out


def test_the_text_of_a_run(fits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, fits / "rbf.run")
    result = json.loads((fits / "rbf.run" / "run.json").read_text())["result"]
    assert f"  relative gap          {result['relative_gap']:.3g}\n".replace(" ", "") in text.replace(" ", "")
    assert f"support vectors {result['n_support']}".replace(" ", "") in text.replace(" ", "")
    assert f"computed {result['kernel_rows']['computed']:,}" in " ".join(text.replace("█", "").split())
    assert "█" in text


def test_figures_of_the_document_are_those_of_the_record(fits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["report", str(fits / "two.run"), "--text", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["result"]
    result = json.loads((fits / "two.run" / "run.json").read_text())["result"]
    assert document["kind"] == "run"
    assert document["figures"]["run:result.objective"] == result["objective"]
    assert document["figures"]["run:result.memory.peak_anon_bytes"] == result["memory"]["peak_anon_bytes"]


@pytest.mark.parametrize(
    ("kind", "options", "metrics"),
    [
        ("two", ["--calibrate", "sigmoid"], ["n_rows", "accuracy", "roc_auc"]),
        ("values", ["--loss", "squared_epsilon_insensitive"], ["n_rows", "mse", "r2"]),
    ],
)
def test_rows_that_were_kept_back_are_told_from_those_of_the_training(
    kind: str, options: list[str], metrics: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All rows of the split were `trained on`, and nothing said that there was a split, nor what it had shown."""
    store = str(rows_of_values(tmp_path / "rows.zarr", kind, 120, 5))
    assert run(["fit", store, "--split", "0.7", "--solver", "newton", *options, "-o", str(tmp_path / "m")]) == 0
    result = json.loads((tmp_path / "m.run" / "run.json").read_text())["result"]
    trained = result.get("n_trained", result["n_samples"])
    for reported in ("m", "m.run"):
        capsys.readouterr()
        assert run(["report", str(tmp_path / reported), "--data", store, "--text", "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)["result"]["figures"]
        for metric in metrics:
            assert figures[f"run:result.held_out.{metric}"] == result["held_out"][metric]
        if "n_trained" in result:
            assert figures["run:result.n_trained"] == trained < result["n_samples"]
        text = said(capsys, tmp_path / reported, "--data", store)
        assert "read as split 0.7" in " ".join(text.split())
        assert "other rows" not in text  # they are those of the training, too
        if reported == "m":
            assert f"trained on rows {trained} " in " ".join(text.split())


def without_end(source: Path, folder: Path, **record: object) -> Path:
    """A copy of a run as it was before its last event."""
    shutil.copytree(source, folder)
    lines = (folder / "events.jsonl").read_text().splitlines()
    (folder / "events.jsonl").write_text("\n".join(line for line in lines if '"FitEnded"' not in line) + "\n")
    was = json.loads((folder / "run.json").read_text())
    was.pop("result")
    (folder / "run.json").write_text(json.dumps({**was, "status": "running", **record}))
    return folder


def test_a_terminal_without_such_letters_gets_question_marks(fits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert run(["report", str(fits / "two.run"), "--text"]) == 0
    said = out.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "??" in said
    assert "relative gap" in said


def sign(folder: Path, pid: int, started: int) -> None:
    who = {"pid": pid, "host": platform.node(), "since": "now", "machine": this_machine(), "started": started}
    (folder / "lock").write_text(json.dumps(who))


def test_a_run_that_died_is_told_from_one_that_goes_on(
    fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = without_end(fits / "two.run", tmp_path / "r")
    assert read_run(folder).status == "died"  # no lock: whoever held it is gone
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    sign(folder, process.pid, 1)
    assert read_run(folder).status == "died"
    text = said(capsys, folder)
    assert "The process of this fit has ended without a model" in text
    assert "The last certificate has a relative gap of" in text
    sign(folder, os.getpid(), this_process().started)
    assert read_run(folder).status == "running"
    assert "The fit is running." in said(capsys, folder)


def test_a_run_that_failed_says_why(fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = without_end(fits / "two.run", tmp_path / "r", status="error", error="rows.zarr: chunk X/3 is damaged")
    assert "The fit failed: rows.zarr: chunk X/3 is damaged." in said(capsys, folder)


def test_what_a_later_process_did_again_is_told_once(fits: Path, tmp_path: Path) -> None:
    """A fit that was killed and went on from a checkpoint has events of the same seconds twice."""
    folder = tmp_path / "r"
    shutil.copytree(fits / "two.run", folder)
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    again = next(json.loads(line) for line in lines if '"CertificateMade"' in line)
    again["wall_s"] /= 2
    path.write_text("".join([*lines[:-1], json.dumps(again) + "\n", lines[-1]]))
    times = [event["wall_s"] for event in read_run(folder).certificates]
    assert times == [again["wall_s"]]
    assert read_run(folder).result == json.loads((folder / "run.json").read_text())["result"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", 65),
        ("[]", 65),
        ('{"result": 5}', 65),
        ('{"job": {"config": 3}}', 65),
        ('{"result": {"models": [1, 2]}}', 65),
        ('{"status": "converged", "result": {"relative_gap": "x"}}', 0),
        ('{"status": "converged"}', 0),
    ],
)
def test_a_record_that_is_none(content: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text(content)
    assert run(["report", str(tmp_path), "--text"]) == code
    assert ("run.json" in capsys.readouterr().err) == (code == 65)


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("{}")
    os.mkfifo(tmp_path / "events.jsonl")
    for command in (["report", "--text"], ["watch"], ["plot"]):
        assert run([command[0], str(tmp_path), *command[1:]]) in (65, 66)
        assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "event",
    [
        {"event": "CertificateMade", "at_s": 1.0},
        {"event": "EpochEnd", "wall_s": "soon"},
        {"event": ["Warned"]},
        {"event": "BudgetReport", "limit_bytes": 3, "holders": [1]},
        {"event": "FitStarted", "plan": [], "config": {}, "versions": {}},
    ],
)
def test_an_event_that_is_none_is_named(
    event: dict[str, object], fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(fits / "two.run", folder)
    n = len((folder / "events.jsonl").read_text().splitlines())
    with open(folder / "events.jsonl", "a") as file:
        file.write(json.dumps(event) + "\n")
    assert run(["report", str(folder), "--text"]) == 65
    assert f"events.jsonl:{n + 1}: " in capsys.readouterr().err


def test_sparklines() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([1e-3, 1e-2, 1e-1, 0.0, float("nan")], log=True) == "▁▅█  "  # of two powers of ten
    assert sparkline([5.0, 5.0]) == "▁▁"
    assert sparkline([]) == sparkline([float("nan")]) == ""
    assert len(sparkline(list(range(1000)), width=40)) == 40


def test_bars() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(0.0, 4) == "    "
    assert bar(2.0, 4) == "████"
    assert bar(1 / 32, 4) == "▏   "


def test_a_chart_of_dots() -> None:
    line = Curve("one", [0.0, 1.0, 2.0, 3.0], [1.0, 0.1, 0.01, 0.001])
    shown = braille(Chart("T", "pass", "gap", [line], log_y=True), width=20, height=4).splitlines()
    assert shown[0] == "T"
    assert shown[1].startswith("    1 ┤⠑")  # falls from the upper left
    assert shown[4].startswith("0.001 ┤")
    assert shown[4].endswith("⠉⠢⢄")  # to the lower right
    assert shown[6].split() == ["0", "3"]
    other = Curve("two", [0.0, 3.0], [0.001, 0.001])
    both = braille(Chart("T", "pass", "gap", [line, other], log_y=True), width=20, height=4)
    assert "a one" in both
    assert "b two" in both
    assert "\x1b" not in both
    assert "\x1b[33m" in braille(Chart("T", "pass", "gap", [line, other]), width=20, height=4, colour=True)
    assert braille(Chart("T", "", "", [Curve("", [1.0], [0.0])], log_y=True)) == "T\n  no points"
