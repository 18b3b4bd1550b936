"""Exact line search over rows in memory, on disk or on shards, in a few readings of two numbers for each row.

phi(t) is the objective along the direction.  A *breakpoint* is a t at which a row crosses its hyperplane; between two
of them phi is quadratic.  The search counts breakpoints in bins of their leading bits, and refines the bin in which the
slope changes its sign, until few enough are left to be sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from bigsvm.compiled.linear import line_search as kernel

Pieces = Callable[[], Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]]
_SORTED = 1 << 15  # most breakpoints that are sorted at the end
MOST_TOLD = 1 << 8  # the same for rows on shards, which send no more breakpoints than this
_POLISHED = 3  # most readings that remove rounding from a step


class Step(NamedTuple):
    """The minimum of phi.  length : 0 if phi does not fall;  on_kink : the minimum lies exactly at a breakpoint"""

    length: float
    on_kink: bool


class LineSums(Protocol):
    """The sums over rows, here or on shards, that a line search needs."""

    def at_start(self) -> np.ndarray:
        """Slope and curvature of the losses just after 0, float64, (2,)."""

    def histogram(self, prefix: int, shift: int) -> np.ndarray:
        """float64, (BINS, 3): sums over the breakpoints with the leading bits `prefix`, by their next bits."""

    def breakpoints(self, prefix: int, shift: int, n: int) -> np.ndarray:
        """float64, (n, 3): the breakpoints of one bin, in the order of the rows."""

    def at_step(self, t: float) -> np.ndarray:
        """Slope and curvature of the losses at t, float64, (2,)."""


class PieceSums:
    """`LineSums` over rows in this process, piece by piece.

    C : float   factor on the costs;  code : int   code of the loss (`compiled/shared/losses.py`)
    """

    def __init__(self, pieces: Pieces, C: float, code: int) -> None:
        self._pieces, self._C, self._code = pieces, C, code

    def at_start(self) -> np.ndarray:
        """See `LineSums`."""
        start = np.zeros(2)
        for s, p, cost in self._pieces():
            kernel.at_start(s, p, cost, self._C, self._code, start)
        return start

    def histogram(self, prefix: int, shift: int) -> np.ndarray:
        """See `LineSums`."""
        one = np.empty(1)
        bits, found = one.view(np.uint64), np.zeros((kernel.BINS, 3))
        for s, p, cost in self._pieces():
            kernel.count_bins(
                s, p, cost, self._C, self._code, np.uint64(prefix), np.uint64(shift), one, bits, found
            )  # fmt: skip
        return found

    def breakpoints(self, prefix: int, shift: int, n: int) -> np.ndarray:
        """See `LineSums`."""
        one = np.empty(1)
        bits, found, filled = one.view(np.uint64), np.empty((n, 3)), 0
        for s, p, cost in self._pieces():
            filled = kernel.gather_bin(
                s, p, cost, self._C, self._code, np.uint64(prefix), np.uint64(shift), one, bits, found, filled
            )
        return found[:filled]

    def at_step(self, t: float) -> np.ndarray:
        """See `LineSums`."""
        sums = np.zeros(2)
        for s, p, cost in self._pieces():
            kernel.at_step(s, p, cost, self._C, self._code, t, sums)
        return sums


def exact_step(pieces: Pieces, C: float, code: int, linear: float, quadratic: float, longest: float = np.inf) -> Step:
    """Minimise phi(t) = linear t + quadratic t^2 / 2 + sum_i C cost_i loss(s_i - t p_i) over t >= 0.

    phi is piecewise quadratic, and the minimum is exact (docs/mathematics.md 3.1, 3.2), however many rows there are.

    Parameters
    ----------
    pieces : yields (s, p, cost), float64, piece by piece; called a few times
    C, code : factor on the costs, and code of the loss (`compiled/shared/losses.py`)
    linear, quadratic : w.d and d.d of the regulariser
    longest : upper bound of the step
    """
    return exact_step_of(PieceSums(pieces, C, code), linear, quadratic, longest, _SORTED)


def exact_step_of(
    sums: LineSums, linear: float, quadratic: float, longest: float = np.inf, most_sorted: int = MOST_TOLD
) -> Step:
    """`exact_step` for rows that may lie on shards.

    most_sorted : most breakpoints that are sorted at the end
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
    """Correct a step between two breakpoints by sums over the rows at that t, which are free of cancellation."""
    t = found.length
    for _ in range(_POLISHED):
        here = sums.at_step(t)
        slope, curvature = linear + quadratic * t + here[0], quadratic + here[1]
        change = slope / curvature if curvature > 0.0 else 0.0
        if not abs(change) < 0.5 * t:  # beyond the segment; rounding decides, and both are good enough
            break
        t -= change
        if abs(change) <= 1e-12 * t:
            break
    return Step(t, False)


def _edges(prefix: int, shift: int) -> np.ndarray:
    """The largest number in each bin, float64, (BINS,)."""
    with np.errstate(over="ignore"):
        upper = (np.uint64(prefix << 12) + np.arange(1, kernel.BINS + 1, dtype=np.uint64)) << np.uint64(shift)
        edges = (upper - np.uint64(1)).view(np.float64)
    return np.where(np.isfinite(edges), edges, np.finfo(float).max)
