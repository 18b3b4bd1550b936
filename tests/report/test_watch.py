"""`bigsvm watch`: follows a record that grows, ends with it, tells of a process that is gone, and writes metrics."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from bigsvm.cli.commands.reports import watch
from bigsvm.cli.main import run
from bigsvm.observe.jsonl import read_events
from bigsvm.observe.live_table import LiveTable
from bigsvm.process import this_process
from bigsvm.report.runs import read_run
from bigsvm.report.watch.metrics import GAUGES, STATUSES
from bigsvm.report.watch.snapshot import snapshot
from tests.report.test_text import sign, without_end

SAMPLE = re.compile(r'(bigsvm_fit_\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (\S+)')


class Clock:
    """In the place of the time between looks: what the watched process does meanwhile."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)

    def sleep(self, seconds: float) -> None:
        step = self.steps.pop(0)
        assert callable(step)
        step()


@pytest.fixture
def going(fits: Path, tmp_path: Path) -> Path:
    """A run of this process that has not ended."""
    folder = without_end(fits / "two.run", tmp_path / "r")
    sign(folder, os.getpid(), this_process().started)
    return folder


def test_once(going: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", str(going), "--once", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)["result"]
    proofs = [e for e in read_events(going / "events.jsonl") if e["event"] == "CertificateMade"]
    assert (result["status"], result["relative_gap"]) == ("running", proofs[-1]["relative_gap"])
    assert result["objective"] == proofs[-1]["objective"]
    assert result["passes"] == proofs[-1]["passes"]
    assert err == ""


def test_to_the_end(
    going: Path, fits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (fits / "two.run" / "events.jsonl").read_text().splitlines(keepends=True)
    first = next(k for k, line in enumerate(whole) if "CertificateMade" in line)
    (going / "events.jsonl").write_text("".join(whole[:first]))
    prom = tmp_path / "bigsvm.prom"

    def tears() -> None:
        (going / "events.jsonl").write_text("".join(whole)[:-30])

    def ends() -> None:
        assert "} 1" in next(x for x in prom.read_text().splitlines() if 'status="running"' in x)
        (going / "events.jsonl").write_text("".join(whole))
        shutil.copy(fits / "two.run" / "run.json", going / "run.json")

    monkeypatch.setattr(watch, "time", Clock(tears, ends))
    assert run(["watch", str(going), "--openmetrics", str(prom)]) == 0
    out, err = capsys.readouterr()
    record = json.loads((going / "run.json").read_text())["result"]
    proofs = sum("CertificateMade" in line for line in whole)
    assert err.count("relative gap") == proofs > 0  # each certificate once, as the fit itself says it
    assert f"relative gap {record['relative_gap']:.2e}" in err
    assert "status        converged" in out
    assert 'status="converged"} 1' in prom.read_text()
    assert [path.name for path in tmp_path.glob("*prom*")] == ["bigsvm.prom"]


def test_a_log_of_json_has_the_records_lines(
    going: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in (going / "events.jsonl").read_text().splitlines()]
    monkeypatch.setattr(watch, "time", Clock((going / "lock").unlink))
    assert run(["watch", str(going), "--log-format", "json"]) == 75
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert said[: len(lines)] == lines
    assert "the process of this run is gone" in said[-1]["message"]


def test_exit_codes_are_those_of_the_fit(fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(fits / "two.run", tmp_path / "r")
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    for status, more, code in (
        ("converged", {}, 0),
        ("stopped", {}, 4),
        ("stopped", {"job": {**record["job"], "allow_unconverged": True}}, 0),
        ("interrupted", {"error": "stopped by SIGTERM"}, 75),
        ("error", {"exit_code": 65, "error": "chunk X/3 is damaged"}, 65),
        ("error", {"exit_code": "x"}, 1),
        ("running", {}, 75),
    ):
        (tmp_path / "r" / "run.json").write_text(json.dumps({**record, "status": status, **more}))
        assert run(["watch", str(tmp_path / "r"), "--quiet"]) == code, status
    assert "chunk X/3 is damaged" in capsys.readouterr().out


def test_what_cannot_be_watched(fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", str(tmp_path)]) == 66
    assert run(["watch", str(fits / "two")]) == 66
    assert f"is it {fits / 'two.run'}?" in capsys.readouterr().err
    assert run(["watch", str(fits / "two.run"), "--every", "0s"]) == 2
    assert run(["watch", str(fits / "two.run"), "--openmetrics", str(tmp_path)]) == 73
    assert run(["watch", str(fits / "two.run"), "--openmetrics", str(tmp_path / "no" / "x.prom")]) == 73
    assert run(["watch", str(fits / "two.run"), "--openmetrics", str(tmp_path / "x.txt"), "--quiet"]) == 0


def test_a_fit_that_has_only_just_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sign(tmp_path, os.getpid(), this_process().started)
    assert run(["watch", str(tmp_path), "--once"]) == 0
    assert "starting" in capsys.readouterr().out
    # One that is taken up again says so, not how it was stopped.
    (tmp_path / "run.json").write_text('{"status": "interrupted"}')
    assert run(["watch", str(tmp_path), "--once"]) == 0
    assert "starting" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["two", "rbf", "values", "three"])
def test_metrics_are_well_formed(name: str, fits: Path, tmp_path: Path) -> None:
    folder = tmp_path / 'odd "name"\\\n.run'
    shutil.copytree(fits / f"{name}.run", folder)
    prom = tmp_path / "m.prom"
    assert run(["watch", str(folder), "--openmetrics", str(prom), "--quiet"]) == 0
    *lines, last = prom.read_text().removesuffix("\n").split("\n")
    assert last == "# EOF"
    typed: set[str] = set()
    found: dict[tuple[str, str], float] = {}
    for line in lines:
        if line.startswith("#"):
            kind, metric, rest = line[2:].split(" ", 2)
            if kind == "TYPE":
                assert (rest, metric in typed) == ("gauge", False)
                typed.add(metric)
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] in typed
        assert (match[1], match[2]) not in found
        found[match[1], match[2]] = float(match[3])
    result = json.loads((fits / f"{name}.run" / "run.json").read_text())["result"]
    by_name = {metric: value for (metric, _), value in found.items()}
    assert by_name["bigsvm_fit_relative_gap"] == result["relative_gap"]
    assert by_name["bigsvm_fit_objective"] == result["objective"]
    assert by_name["bigsvm_fit_memory_budget_bytes"] == result["memory"]["budget_bytes"]
    assert sum(value for (metric, _), value in found.items() if metric == "bigsvm_fit_status") == 1
    assert len([1 for metric, _ in found if metric == "bigsvm_fit_status"]) == len(STATUSES)


def test_a_live_table_shows_text_and_not_markup(fits: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, _environ={})
    with LiveTable(out, "[bold]run[/bold]", console) as table:
        table.show([*snapshot(read_run(fits / "two.run")).lines(), ("store", "[red]x")])
    shown = out.getvalue()
    assert "[bold]run[/bold]" in shown
    assert "[red]x" in shown
    assert "converged" in shown


def test_the_page_names_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    named = set(re.findall(r"`bigsvm_fit_(\w+)`", page))
    assert named == {name for name, _, _ in GAUGES} | {"info", "status", "warnings"}
