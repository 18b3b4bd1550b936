"""A live display of the events on a terminal: bars with speed and remaining time, and the falling gap.

It writes to standard error only; standard output is for the result.
"""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from bigsvm.errors import one_line
from bigsvm.events import (
    COMPILING,
    CertificateMade,
    CompileStarted,
    EpochEnd,
    Event,
    FitEnded,
    FitStarted,
    Warned,
    WorkAdvanced,
    WorkEnded,
    WorkStarted,
)
from bigsvm.observe.lines import LOADING, certificate_text, compile_text, ended_text, show_count, told_once
from bigsvm.units import counted, show_bytes, show_seconds

_TRAINING = "training"


class _Rate(ProgressColumn):
    """Speed in the unit of the task."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        unit = task.fields["unit"]
        return Text(f"{show_bytes(speed)}/s" if unit == "bytes" else f"{show_count(round(speed))} {unit}/s")


class _Share(ProgressColumn):
    """The share that is done; if the total is unknown, the elapsed time."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text(show_seconds(task.elapsed or 0.0))
        return Text(f"{task.percentage:>3.0f} %")


class LiveProgress:
    """An Emit that draws on a terminal.  It must be used as a context manager, inside which the drawing thread runs.

    Parameters
    ----------
    stream : where to draw, normally the error stream
    verbose : keep a line for each epoch
    told : as for `PlainLines`
    """

    def __init__(
        self, stream: TextIO, verbose: bool = False, console: Console | None = None, told: set[str] | None = None
    ) -> None:
        self._told = set() if told is None else told
        self.console = console or Console(file=stream)
        self._verbose = verbose
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            _Share(),
            _Rate(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            transient=True,
            # Standard output may be a file while standard error is a terminal, so leave it alone.
            redirect_stdout=False,
            redirect_stderr=False,
            refresh_per_second=8,
        )
        self._tasks: dict[str, TaskID] = {}
        self._work: dict[str, WorkStarted] = {}
        self._done: dict[str, float] = {}
        self._note = ""
        self._compiles = self._streams = False

    def __enter__(self) -> LiveProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkStarted):
            self._forget(event.what)
            self._forget(_TRAINING)  # a bar says more
            self._work[event.what] = event
            self._compiles = False
            what = LOADING if event.what == COMPILING else event.what  # true until something is compiled
            self._tasks[event.what] = self._progress.add_task(
                what, total=event.total or None, unit=event.unit, note=self._note
            )
        elif isinstance(event, WorkAdvanced):
            if event.what in self._tasks:
                self._done[event.what] = event.done
                self._progress.update(self._tasks[event.what], completed=event.done)
        elif isinstance(event, WorkEnded):
            begun, done = self._work.get(event.what), self._done.get(event.what, 0.0)
            self._forget(event.what)
            text = None if begun is None else ended_text(begun, done, event.seconds, self._compiles, self._verbose)
            if text is not None:
                self._say(text)
        elif isinstance(event, FitStarted):
            self._streams = event.plan.get("mode") in ("streamed", "staged")
        elif isinstance(event, FitEnded):
            self._forget(_TRAINING)
        elif isinstance(event, CompileStarted):
            self._compiles = True
            if COMPILING in self._tasks:
                self._progress.update(self._tasks[COMPILING], description=COMPILING)
            text = told_once(compile_text(event), self._told)
            if text is not None:
                self._say(text)
        elif isinstance(event, CertificateMade):
            self._note = f"gap {event.relative_gap:.1e}"
            self._say(certificate_text(event))
        elif isinstance(event, EpochEnd):
            if event.gap_estimate == event.gap_estimate:  # not NaN
                objective = "" if event.objective is None else f"objective {event.objective:.4g}, "
                self._note = f"{objective}gap about {event.gap_estimate:.1e}"
            if not self._tasks:  # rows in memory have no bar, and certificates may be far apart
                self._tasks[_TRAINING] = self._progress.add_task(_TRAINING, total=None, unit="passes", note="")
            if _TRAINING in self._tasks:
                # Rows in memory were read once, and what goes on there are epochs.
                at = f"pass {int(event.passes) + 1}" if self._streams else f"epoch {round(event.epochs)}"
                self._progress.update(
                    self._tasks[_TRAINING], completed=event.epochs,
                    description=f"{_TRAINING}: {at}, {counted(event.active_rows, 'row', commas=True)} active",
                )  # fmt: skip
            for task in self._tasks.values():
                self._progress.update(task, note=self._note)
            if self._verbose:
                self._say(f"epoch {event.epochs:.1f}  pass {event.passes:.1f}  active {event.active_rows:,}")
        elif isinstance(event, Warned):
            self._say(f"bigsvm: warning: {one_line(event.message)}")

    def _say(self, text: str) -> None:
        # Text instead of markup, because a path may contain square brackets.
        self.console.print(Text(text), soft_wrap=True, highlight=False)

    def _forget(self, what: str) -> None:
        task = self._tasks.pop(what, None)
        self._work.pop(what, None)
        self._done.pop(what, None)
        if task is not None:
            self._progress.remove_task(task)
