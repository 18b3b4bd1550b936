"""A live view of the event stream on a terminal: bars with rate and time left, and the falling gap.

Writes to the error stream only: standard output belongs to the result.
"""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from bigsvm.events import CertificateMade, CompileStarted, EpochEnd, Event, Warned, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.observe.lines import certificate_text, compile_text, show_count, work_text
from bigsvm.units import show_bytes


class _Rate(ProgressColumn):
    """Speed in the unit of the task."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        unit = task.fields["unit"]
        return Text(f"{show_bytes(speed)}/s" if unit == "bytes" else f"{show_count(round(speed))} {unit}/s")


class LiveProgress:
    """An Emit that draws on a terminal; a context manager (the drawing thread lives inside it).

    Parameters
    ----------
    stream : where to draw, normally the error stream
    verbose : keep a line for each epoch
    """

    def __init__(self, stream: TextIO, verbose: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(file=stream)
        self._verbose = verbose
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            _Rate(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            transient=True,
            # Standard output may be a file while this is a terminal: it is not ours to move.
            redirect_stdout=False,
            redirect_stderr=False,
            refresh_per_second=8,
        )
        self._tasks: dict[str, TaskID] = {}
        self._work: dict[str, WorkStarted] = {}
        self._note = self._compiling = ""

    def __enter__(self) -> LiveProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkStarted):
            self._forget(event.what)
            self._work[event.what] = event
            self._tasks[event.what] = self._progress.add_task(
                event.what, total=event.total or None, unit=event.unit, note=self._note
            )
        elif isinstance(event, WorkAdvanced):
            if event.what in self._tasks:
                self._progress.update(self._tasks[event.what], completed=event.done)
        elif isinstance(event, WorkEnded):
            begun = self._work.get(event.what)
            self._forget(event.what)
            if begun is not None and (self._verbose or not event.what.startswith("pass")):
                self._say(work_text(event.what, begun.total, begun.unit, event.seconds))
        elif isinstance(event, CompileStarted):
            told, self._compiling = self._compiling, compile_text(event)
            if told != self._compiling:  # a fit compiles in several goes
                self._say(self._compiling)
        elif isinstance(event, CertificateMade):
            self._note = f"gap {event.relative_gap:.1e}"
            self._say(certificate_text(event))
        elif isinstance(event, EpochEnd):
            if event.gap_estimate == event.gap_estimate:  # not NaN
                self._note = f"gap about {event.gap_estimate:.1e}"
            for task in self._tasks.values():
                self._progress.update(task, note=self._note)
            if self._verbose:
                self._say(f"epoch {event.epochs:.1f}  pass {event.passes:.1f}  active {event.active_rows:,}")
        elif isinstance(event, Warned):
            self._say(f"bigsvm: warning: {event.message}")

    def _say(self, text: str) -> None:
        # Text, not a markup string: a path may hold square brackets.
        self.console.print(Text(text), soft_wrap=True, highlight=False)

    def _forget(self, what: str) -> None:
        task = self._tasks.pop(what, None)
        self._work.pop(what, None)
        if task is not None:
            self._progress.remove_task(task)
