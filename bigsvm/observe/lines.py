"""Progress for logs and pipes: one plain line for each certificate, each finished piece of work, and each wait.

Work that takes long has a line every half minute.

The live display for terminals is in `progress.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from bigsvm.errors import one_line
from bigsvm.events import (
    COMPILING,
    WAITING,
    CertificateMade,
    CompileStarted,
    EpochEnd,
    Event,
    Warned,
    WorkAdvanced,
    WorkEnded,
    WorkStarted,
)
from bigsvm.units import show_bytes, show_seconds

LOADING = "loading compiled code"
_WORTH_SAYING_S = 1.0
_SILENT_S, _FIRST_SILENCE_S = 30.0, 5.0
"""Seconds without a line after which one about the work is written; and before the first line of all."""
_AT_ONCE_S = 0.1


def show_count(value: float) -> str:
    """A count as text: 12,345, 6 or 2.5."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def certificate_text(event: CertificateMade) -> str:
    """A certificate as a line."""
    return (
        f"pass {event.passes:.1f}  epoch {event.epochs:.1f}  objective {event.objective:.6g}  "
        f"relative gap {event.relative_gap:.2e}  {show_seconds(event.wall_s)}"
    )


def compile_text(event: CompileStarted) -> str:
    """A line that says why compiling takes a while."""
    unused = f"; the code that came with bigsvm cannot be used: {event.why}" if event.why else ""
    return f"compiling the code for these rows and options, once; it is kept in {event.folder}{unused}"


def told_once(text: str, told: set[str]) -> str | None:
    """The text, unless it was told before: a command compiles in several goes.  told : what was; it grows"""
    if text in told:
        return None
    told.add(text)
    return text


def work_text(what: str, amount: float, unit: str, seconds: float) -> str:
    """A finished piece of work as a line: name, amount, speed."""
    if amount <= 0 or unit not in ("bytes", "rows", "blocks", "chunks"):
        return f"{what}: done in {show_seconds(seconds)}"
    size = _amount(amount, unit)
    if seconds < 0.01:
        return f"{what}: {size} in {show_seconds(seconds)}"
    rate = amount / seconds
    speed = f"{show_bytes(rate)}/s" if unit == "bytes" else f"{show_count(round(rate))} {_of(round(rate), unit)}/s"
    return f"{what}: {size} in {show_seconds(seconds)} ({speed})"


def advanced_text(begun: WorkStarted, done: float, seconds: float, left: float) -> str:
    """Work that goes on as a line: how much of it is done.

    seconds : since the work began;  left : seconds that the rest will take, about
    """
    if begun.total <= 0:
        return f"{begun.what}: {_amount(done, begun.unit)} so far, {show_seconds(seconds)}"
    share = f"{begun.what}: {done / begun.total:.0%} of {_amount(begun.total, begun.unit)}, {show_seconds(seconds)}"
    return f"{share}; about {show_seconds(left)} to go"


def _amount(amount: float, unit: str) -> str:
    return show_bytes(amount) if unit == "bytes" else f"{show_count(amount)} {_of(amount, unit)}"


def _of(amount: float, unit: str) -> str:
    """The unit of an amount: rows, or row of a single one."""
    return unit.removesuffix("s") if amount == 1 else unit


def ended_text(begun: WorkStarted, done: float, seconds: float, compiled: bool, verbose: bool) -> str | None:
    """The line about finished work; None if it is not worth one.

    done : how much was done as far as is known; only a pass may end before all is done
    compiled : whether anything was compiled since the work began
    """
    what = begun.what
    if what == COMPILING and not compiled:
        if seconds < _WORTH_SAYING_S and not verbose:
            return None
        what = LOADING
    # A fit may have hundreds of passes; their certificates are enough.
    if what.startswith("pass"):
        return work_text(what, done, begun.unit, seconds) if verbose else None
    return work_text(what, begun.total, begun.unit, seconds)


class PlainLines:
    """An Emit that writes plain lines to a text stream.

    Parameters
    ----------
    verbose : also a line for each epoch
    clock : the time in seconds
    told : lines about compiling that were written before, by a view of an earlier step of the command; it grows
    """

    def __init__(
        self, stream: TextIO, verbose: bool = False, clock: Callable[[], float] = time.monotonic,
        told: set[str] | None = None,
    ) -> None:  # fmt: skip
        self._stream, self._verbose, self._clock = stream, verbose, clock
        self._told = set() if told is None else told
        self._work: dict[str, WorkStarted] = {}
        self._began: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._first: tuple[float, float] | None = None
        self._wrote_s, self._patience_s = clock(), _FIRST_SILENCE_S
        self._compiles, self._said_s = False, 0.0
        self._compiled = 0.0  # functions, before the child process that now compiles: each counts from 0

    def __call__(self, event: Event) -> None:
        text = self._text(event)
        if text is not None:
            self._stream.write(text + "\n")
            self._stream.flush()
            self._wrote_s, self._patience_s = self._clock(), _SILENT_S

    def _text(self, event: Event) -> str | None:
        if isinstance(event, WorkStarted):
            self._work[event.what], self._compiles, self._compiled = event, False, 0.0
            self._done.pop(event.what, None)
            self._began[event.what], self._first = self._clock(), None
            if event.what.startswith(WAITING):  # nobody knows how long it will last
                return event.what
        elif isinstance(event, WorkAdvanced):
            return self._advanced(event)
        elif isinstance(event, WorkEnded):
            begun, done = self._work.pop(event.what, None), self._done.pop(event.what, 0.0)
            return None if begun is None else ended_text(begun, done, event.seconds, self._compiles, self._verbose)
        elif isinstance(event, CertificateMade):
            self._said_s = event.wall_s
            return certificate_text(event)
        elif isinstance(event, CompileStarted):
            self._compiles, self._compiled = True, self._done.get(COMPILING, 0.0)
            return told_once(compile_text(event), self._told)
        elif isinstance(event, Warned):
            return f"bigsvm: warning: {one_line(event.message)}"
        elif isinstance(event, EpochEnd) and (self._verbose or event.wall_s >= self._said_s + _SILENT_S):
            self._said_s = event.wall_s
            # The gap of a Newton method is nearly 1 until its last steps; the objective falls from the first one.
            objective = "" if event.objective is None else f"objective {event.objective:.6g}  "
            return (
                f"epoch {event.epochs:.1f}  pass {event.passes:.1f}  active {event.active_rows:,}  "
                f"{objective}gap estimate {event.gap_estimate:.2e}  {show_seconds(event.wall_s)}"
            )
        return None

    def _advanced(self, event: WorkAdvanced) -> str | None:
        """The line about work that goes on, if one is due."""
        done = event.done + (self._compiled if event.what == COMPILING else 0.0)
        self._done[event.what] = done
        begun, now = self._work.get(event.what), self._clock()
        if begun is None or begun.unit == "" or done <= 0:
            return None
        if self._first is None or done < self._first[1]:
            began = self._began[event.what]
            # A pass is shown late, so its first event already has a large share.
            self._first = (began, 0.0) if now - began > _AT_ONCE_S else (now, done)
        if now < self._wrote_s + self._patience_s:
            return None
        since, from_ = self._first
        gained = done - from_
        if gained <= 0:
            return None
        left = (now - since) * max(begun.total - done, 0.0) / gained
        return advanced_text(begun, done, now - self._began[event.what], left)
