"""Progress: plain lines in a log, a live view on a terminal, and nothing on standard output."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bigsvm.cli.session import Session
from bigsvm.events import (
    COMPILING,
    CertificateMade,
    CompileStarted,
    EpochEnd,
    Event,
    FitEnded,
    FitStarted,
    Thinned,
    Warned,
    WorkAdvanced,
    WorkEnded,
    WorkStarted,
    fan_out,
)
from bigsvm.observe.lines import PlainLines
from bigsvm.observe.progress import LiveProgress
from bigsvm.units import show_seconds

STREAM: list[Event] = [
    FitStarted({}, {}, "f", {}),
    WorkStarted("staging", 1000, "rows"),
    WorkAdvanced("staging", 500),
    WorkAdvanced("staging", 1000),
    WorkEnded("staging", 2.0),
    WorkStarted("pass 1", 4 << 20, "bytes"),
    WorkAdvanced("pass 1", 4 << 20),
    WorkEnded("pass 1", 0.5),
    EpochEnd(1.0, 1.0, 1000, 0.1, 2.5),
    CertificateMade(1.0, 2.0, 123.0, 100.0, 0.187, 3.0),
    Warned("[bold]odd[/bold] path [x]"),
    FitEnded("converged"),
]


def test_plain_lines() -> None:
    out = io.StringIO()
    lines = PlainLines(out)
    for event in STREAM:
        lines(event)
    assert out.getvalue().splitlines() == [
        "staging: 1,000 rows in 2.00 s (500 rows/s)",
        "pass 2.0  epoch 1.0  objective 123  relative gap 1.87e-01  3.00 s",
        "bigsvm: warning: [bold]odd[/bold] path [x]",
    ]


def test_plain_lines_say_more_when_asked() -> None:
    out = io.StringIO()
    lines = PlainLines(out, verbose=True)
    for event in STREAM:
        lines(event)
    assert "pass 1: 4 MiB in 0.50 s (8 MiB/s)" in out.getvalue()
    assert "active 1,000" in out.getvalue()


@pytest.mark.parametrize("make", [PlainLines, LiveProgress])
@pytest.mark.parametrize("done", [[], [1024], [1024, 3072], [1024, 4096]])
def test_a_pass_that_is_left_tells_what_was_read_of_it(make: Any, done: list[int]) -> None:
    """A stop or an error may leave a pass; other work ends when all is done."""
    for what, shown in {"pass 7": done[-1] >> 10 if done else None, "staging": 4}.items():
        out = io.StringIO()
        emit = make(out, verbose=True)
        for event in (WorkStarted(what, 4096, "bytes"), *(WorkAdvanced(what, n) for n in done), WorkEnded(what, 1.0)):
            emit(event)
        amount = f"{shown} KiB in 1.00 s ({shown} KiB/s)" if shown else "done in 1.00 s"
        assert out.getvalue() == f"{what}: {amount}\n"


@pytest.mark.parametrize("verbose", [False, True])
def test_live_view(capsys: pytest.CaptureFixture[str], verbose: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with LiveProgress(out, verbose=verbose, console=console) as live:
        for event in STREAM:
            live(event)
    shown = out.getvalue()
    assert "staging: 1,000 rows in 2.00 s" in shown
    assert "relative gap 1.87e-01" in shown
    assert "[bold]odd[/bold] path [x]" in shown
    assert ("active 1,000" in shown) is verbose
    assert capsys.readouterr().out == ""


def test_work_of_unknown_length_and_work_nobody_started() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with LiveProgress(out, console=console) as live:
        live(WorkStarted("reading", 0, "rows"))
        live(WorkAdvanced("reading", 7))
        live(WorkStarted("reading", 0, "rows"))  # again, without an end: the first is forgotten
        live(WorkEnded("reading", 0.0))
        live(WorkAdvanced("other", 1))
        live(WorkEnded("other", 1.0))
    assert "reading: done in 0.00 s" in out.getvalue()


def test_a_fit_in_memory_shows_that_it_goes_on_between_proofs() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    with LiveProgress(out, console=console) as live:
        live(FitStarted({}, {}, "f", {}))
        live(EpochEnd(7.0, 0.0, 1234, 0.025, 2.5))
        live._progress.refresh()
        assert "training: epoch 7, 1,234 rows active" in out.getvalue()
        assert "gap about 2.5e-02" in out.getvalue()
        assert "0 %" not in out.getvalue()  # nobody knows of how much
        live(FitEnded("converged"))
        assert live._tasks == {}


@pytest.mark.parametrize("mode", ["streamed", "staged"])
def test_a_fit_that_reads_counts_passes_and_not_visits(mode: str) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    with LiveProgress(out, console=console) as live:
        live(FitStarted({"mode": mode}, {}, "f", {}))
        live(EpochEnd(57.0, 2.0, 1234, 0.025, 2.5))
        live._progress.refresh()
    assert "training: pass 3, 1,234 rows active" in out.getvalue()


def test_a_log_is_silent_for_half_a_minute_at_most() -> None:
    out = io.StringIO()
    lines = PlainLines(out)
    lines(CertificateMade(1.0, 2.0, 123.0, 100.0, 0.187, 10.0))
    for second in range(11, 85):
        lines(EpochEnd(second / 10, 0.0, 50, 0.01, float(second)))
    said = out.getvalue().splitlines()[1:]
    assert [line.rsplit("  ", 1)[1] for line in said] == ["40.0 s", "70.0 s"]


@pytest.mark.parametrize("seen_from", [0, 50])
@pytest.mark.parametrize(("unit", "of"), [("bytes", "97.7 KiB"), ("rows", "100,000 rows")])
@pytest.mark.parametrize("earlier", [False, True])
def test_long_work_is_never_silent_for_long(
    earlier: bool, unit: str, of: str, seen_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass is shown when half of it may be done; the pieces of a copy may come together."""
    monkeypatch.setattr("bigsvm.observe.lines._FIRST_SILENCE_S", 5.0)
    out, now = io.StringIO(), [0.0]
    lines = PlainLines(out, clock=lambda: now[0])
    if earlier:
        lines(Warned("a"))
    lines(WorkStarted("staging", 100_000, unit))
    shares = {second: (seen_from + second * (100 - seen_from) / 100) / 100 for second in range(100)}
    for second in range(0 if seen_from else 2, 100):
        now[0] = float(second)
        for _ in range(2):
            lines(WorkAdvanced("staging", round(100_000 * shares[second])))
        lines(WorkAdvanced("other", 1))
    lines(WorkEnded("staging", 100.0))
    first = [30, 60, 90] if earlier else [5, 35, 65, 95]
    assert out.getvalue().splitlines()[earlier:-1] == [
        f"staging: {shares[second]:.0%} of {of}, {show_seconds(second)}; about {show_seconds(100 - second)} to go"
        for second in first
    ]


@pytest.mark.parametrize(("unit", "text"), [("rows", "reading: 7 rows so far, 40.0 s\n"), ("", "")])
def test_work_of_unknown_length_has_no_share(unit: str, text: str) -> None:
    """Functions that are compiled are counted without a unit: a line has said that it takes a while."""
    out = io.StringIO()
    lines = PlainLines(out, clock=iter([0.0, 0.0, 1.0, 40.0, 40.0]).__next__)
    lines._patience_s = 30.0
    lines(WorkStarted("reading", 0, unit))
    for done in (1, 7):
        lines(WorkAdvanced("reading", done))
    assert out.getvalue() == text


@pytest.mark.parametrize("make", [PlainLines, LiveProgress])
@pytest.mark.parametrize("seconds", [0.2, 3.0])
@pytest.mark.parametrize("compiles", [False, True])
def test_compiling_is_said_where_something_is_compiled(make: Any, seconds: float, compiles: bool) -> None:
    out = io.StringIO()
    emit = make(out)
    events: list[Event] = [WorkStarted(COMPILING, 0, ""), WorkEnded(COMPILING, seconds)]
    if compiles:
        events.insert(1, CompileStarted("folder", ""))
    for event in events:
        emit(event)
    said = [line for line in out.getvalue().splitlines() if "done in" in line]
    expected = "compiling: done in" if compiles else "loading compiled code: done in"
    assert said == ([] if not compiles and seconds < 1 else [f"{expected} {show_seconds(seconds)}"])


def test_compiling_that_takes_long_has_lines() -> None:
    """Every half minute, with all functions so far: a fit compiles in several goes, each of which counts from 0."""
    out, now = io.StringIO(), [0.0]
    lines = PlainLines(out, clock=lambda: now[0])
    lines(CompileStarted("F", ""))  # to read the rows, before the fit
    lines(WorkAdvanced(COMPILING, 90))
    lines(WorkStarted(COMPILING, 0, "functions"))
    events = [(1, CompileStarted("F", "")), (20, WorkAdvanced(COMPILING, 5)), (32, WorkAdvanced(COMPILING, 7))]
    for second, event in [*events, (40, CompileStarted("F", "")), (63, WorkAdvanced(COMPILING, 2))]:
        now[0] = float(second)
        lines(event)
    assert out.getvalue().splitlines()[1:] == [
        "compiling: 7 functions so far, 32.0 s",
        "compiling: 9 functions so far, 63.0 s",
    ]


def test_an_observer_that_fails_is_dropped_and_the_others_go_on() -> None:
    seen: list[Event] = []

    def broken(event: Event) -> None:
        raise OSError("disk full")

    emit = fan_out([broken, seen.append])
    emit(Warned("a"))
    emit(Warned("b"))
    texts = [event.message for event in seen if isinstance(event, Warned)]
    assert texts[-2:] == ["a", "b"] or texts == ["a", texts[1], "b"]
    assert sum("was dropped" in text for text in texts) == 1


@pytest.mark.parametrize("count", [1, 128, 129, 1000, 300_000])
def test_events_that_repeat_are_thinned_by_their_number(count: int) -> None:
    seen: list[Event] = []
    thinned = Thinned(seen.append)
    for k in range(1, count + 1):
        thinned(EpochEnd(float(k), 0.0, 1, 0.5, 0.0))
        thinned(CertificateMade(float(k), 0.0, 1.0, 0.5, 0.5, 0.0))
        if k == 7:
            thinned(Warned("never thinned"))
    thinned(FitEnded("stalled"))
    certificates = [event.epochs for event in seen if isinstance(event, CertificateMade)]
    assert certificates[:128] == [float(k) for k in range(1, min(count, 128) + 1)]
    assert certificates[-1] == count
    assert certificates == sorted(set(certificates))
    assert np.all(np.diff(certificates) <= 1 + count / 30)
    assert len(seen) < 1100
    assert isinstance(seen[-1], FitEnded)
    assert sum(isinstance(event, Warned) for event in seen) == (count >= 7)


def test_what_was_held_back_of_a_stopped_run_is_passed_on() -> None:
    seen: list[Event] = []
    thinned = Thinned(seen.append)
    for k in range(1, 1002):
        thinned(CertificateMade(float(k), 0.0, 1.0, 0.5, 0.5, 0.0))
    assert seen[-1] != CertificateMade(1001.0, 0.0, 1.0, 0.5, 0.5, 0.0)
    thinned.flush()
    thinned.flush()
    assert seen[-1] == CertificateMade(1001.0, 0.0, 1.0, 0.5, 0.5, 0.0)
    assert seen[-2] != seen[-1]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_of_several_steps_says_once_that_it_compiles(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`demo` has a view for each of its steps, and each said "once"."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    session = Session("demo")
    for folder in ("ONE", "ONE", "ONE", "TWO"):
        with session.watching() as emit:
            for event in (WorkStarted(COMPILING, 0, ""), CompileStarted(folder, ""), WorkEnded(COMPILING, 2.0)):
                emit(event)
    said = capsys.readouterr().err
    assert said.count("compiling the code") == 2
    assert (said.count("kept in ONE"), said.count("kept in TWO")) == (1, 1)
    assert said.count("done in 2.00 s") == 4
