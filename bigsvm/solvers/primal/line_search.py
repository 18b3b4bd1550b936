"""Exact line search over rows that lie in memory or on disk, in a few readings of two numbers a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from bigsvm.compiled.linear import line_search as kernel

Pieces = Callable[[], Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]]
_SORTED = 1 << 15  # breakpoints that are sorted at the end
MOST_TOLD = 1 << 8  # the same of rows that are elsewhere: no more of them than this is told of
_POLISHED = 3  # readings to take the rounding out of a step, at most


class Step(NamedTuple):
    """length : where phi is least, 0 where it does not fall at all;  on_kink : it is a breakpoint, exactly"""

    length: float
    on_kink: bool


class LineSums(Protocol):
    """Sums over the rows that a line search asks for, wherever the rows are."""

    def at_start(self) -> np.ndarray:
        """Slope and curvature of the rows' part of phi just after 0, (2,)."""

    def histogram(self, prefix: int, shift: int) -> np.ndarray:
        """(BINS, 3), of the breakpoints whose leading bits are `prefix`."""

    def breakpoints(self, prefix: int, shift: int, n: int) -> np.ndarray:
        """(n, 3), those of one bin, in the order of the rows."""

    def at_step(self, t: float) -> np.ndarray:
        """Slope and curvature of the rows' part of phi at t, (2,)."""


class PieceSums:
    """Of pieces of rows that are here.

    C, code : cost factor and loss (`compiled/shared/losses.py`)
    """

    def __init__(self, pieces: Pieces, C: float, code: int) -> None:
        self._pieces, self._C, self._code = pieces, C, code

    def at_start(self) -> np.ndarray:
        """As `LineSums` says."""
        start = np.zeros(2)
        for s, p, cost in self._pieces():
            kernel.at_start(s, p, cost, self._C, self._code, start)
        return start

    def histogram(self, prefix: int, shift: int) -> np.ndarray:
        """As `LineSums` says."""
        one = np.empty(1)
        bits, found = one.view(np.uint64), np.zeros((kernel.BINS, 3))
        for s, p, cost in self._pieces():
            kernel.count_bins(
                s, p, cost, self._C, self._code, np.uint64(prefix), np.uint64(shift), one, bits, found
            )  # fmt: skip
        return found

    def breakpoints(self, prefix: int, shift: int, n: int) -> np.ndarray:
        """As `LineSums` says."""
        one = np.empty(1)
        bits, found, filled = one.view(np.uint64), np.empty((n, 3)), 0
        for s, p, cost in self._pieces():
            filled = kernel.gather_bin(
                s, p, cost, self._C, self._code, np.uint64(prefix), np.uint64(shift), one, bits, found, filled
            )
        return found[:filled]

    def at_step(self, t: float) -> np.ndarray:
        """As `LineSums` says."""
        sums = np.zeros(2)
        for s, p, cost in self._pieces():
            kernel.at_step(s, p, cost, self._C, self._code, t, sums)
        return sums


def exact_step(pieces: Pieces, C: float, code: int, linear: float, quadratic: float, longest: float = np.inf) -> Step:
    """The least t >= 0 of  linear t + quadratic t^2 / 2 + sum_i C cost_i loss(s_i - t p_i).

    Exact for the piecewise quadratic function (docs/mathematics.md 3.1, 3.2), however many rows there are.

    Parameters
    ----------
    pieces : gives (s, p, cost), float64, piece by piece; called a few times
    C, code : cost factor and loss (`compiled/shared/losses.py`)
    linear, quadratic : of the regulariser along the direction, w.d and d.d
    longest : no longer step than this
    """
    return exact_step_of(PieceSums(pieces, C, code), linear, quadratic, longest, _SORTED)


def exact_step_of(
    sums: LineSums, linear: float, quadratic: float, longest: float = np.inf, most_sorted: int = MOST_TOLD
) -> Step:
    """The same, of sums over rows that may be elsewhere.

    most_sorted : breakpoints that are sorted at the end
    """
    start = sums.at_start()
    slope, curvature = linear + start[0], quadratic + start[1]
    if not slope < 0.0:
        return Step(0.0, False)
    prefix, shift = 0, 52
    while True:
        histogram = sums.histogram(prefix, shift)
        k, slope, curvature = kernel.find_bin(histogram, _edges(prefix, shift), slope, curvature)
        if k < 0 or histogram[k, kernel.COUNT] == 0:
            found = Step(-slope / curvature if curvature > 0.0 else 0.0, False)
            break
        prefix = (prefix << 12) | k
        n = int(histogram[k, kernel.COUNT])
        if shift == 4 or n <= most_sorted:
            breakpoints = sums.breakpoints(prefix, shift, n)
            order = np.argsort(breakpoints[:, 0], kind="stable")
            found = Step(*kernel.walk(breakpoints[order], slope, curvature))
            break
        shift -= 12
    if not found.on_kink:
        found = _polished(sums, linear, quadratic, found)
    return found if found.length <= longest else Step(longest, False)


def _polished(sums: LineSums, linear: float, quadratic: float, found: Step) -> Step:
    """A step inside a segment, from sums over the rows that violate there: running sums cancel, these do not."""
    t = found.length
    for _ in range(_POLISHED):
        here = sums.at_step(t)
        slope, curvature = linear + quadratic * t + here[0], quadratic + here[1]
        change = slope / curvature if curvature > 0.0 else 0.0
        if not abs(change) < 0.5 * t:  # another segment's: rounding decides between them, and both will do
            break
        t -= change
        if abs(change) <= 1e-12 * t:
            break
    return Step(t, False)


def _edges(prefix: int, shift: int) -> np.ndarray:
    """The largest number of each bin."""
    with np.errstate(over="ignore"):
        upper = (np.uint64(prefix << 12) + np.arange(1, kernel.BINS + 1, dtype=np.uint64)) << np.uint64(shift)
        edges = (upper - np.uint64(1)).view(np.float64)
    return np.where(np.isfinite(edges), edges, np.finfo(float).max)
