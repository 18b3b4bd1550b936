"""How fast a fit comes nearer to its end, by counters alone: whether it will ever be there.

What is to become small (the gap of each model, a violation) is looked at again and again.  Its least value now, and its
least value when from a quarter to a half of the work was done, give the rate of the larger part of the run.  A straight
line at that rate is more hopeful than any convergence, which slows down.  So a fit that would not arrive along that
line within the limit is hopeless, and the limit itself ends those that only crawl.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bigsvm.units import GIB


class Limits(NamedTuple):
    """most : work that a fit may take at all;  patience : work after which it may be called hopeless."""

    most: float
    patience: float

    def at_least(self, most: float) -> Limits:
        """These, or so much work where they grant less."""
        return Limits(max(self.most, most), max(self.patience, most))


IN_MEMORY = Limits(most=100_000, patience=1000)
"""Epochs over rows in memory."""
STREAMED = Limits(most=2000, patience=200)
"""Passes over rows that stream."""
IN_MEMORY_IF_OTHERS_WAIT, STREAMED_IF_OTHERS_WAIT = Limits(most=1000, patience=250), Limits(most=200, patience=50)
"""The same for the models of a search, which other solvers train if `dcd` does not arrive within these limits."""
SCANNED, SCANNED_BYTES = 3_000, 64 * GIB
"""Likewise, passes or bytes, whichever allow more, of solvers with a kernel whose rules of two variables read all rows
at each step.  What a cache spares them counts, too: the limit must not depend on one."""


def kernel_limits(n: int) -> Limits:
    """For a model of n rows with a kernel, in passes: n^2 kernel values that its solver asked for are one.

    A quarter of a million rows of kernel values are granted to the smallest problem.
    """
    most = max(2000.0, 2.5e5 / max(n, 1))
    return Limits(most, 0.1 * most)


@dataclass
class Pace:
    """Least values so far, and what they were before; float64, (n,).  Counts are of the work done.

    older, newer : what `least` was at the first two of `counts`;  the third count is that of the last look
    """

    least: np.ndarray
    older: np.ndarray
    newer: np.ndarray
    counts: np.ndarray = field(default_factory=lambda: np.zeros(3))

    @classmethod
    def of(cls, n: int) -> Pace:
        """Nothing seen yet."""
        return cls(*(np.full(n, np.inf) for _ in range(3)))

    def see(self, count: float, values: np.ndarray) -> None:
        """Take in `values`, float64 (n,), after so much work; nan: not known."""
        np.fmin(self.least, values, out=self.least)
        self.counts[2] = count
        if count >= 2.0 * self.counts[1]:
            self.older[:], self.newer[:] = self.newer, self.least
            self.counts[0], self.counts[1] = self.counts[1], count

    def still_to_come(self, targets: np.ndarray) -> np.ndarray:
        """Work that each value still needs to come down to its target, float64 (n,).

        0 where nothing is known yet, inf where it does not fall.
        """
        known = np.isfinite(self.older) & np.isfinite(self.least)
        since, least = self.counts[2] - self.counts[0], np.where(known, self.least, 0.0)
        left = np.maximum(least - targets, 0.0)
        fallen = np.where(known, self.older, np.inf) - least
        needed = np.full(len(left), np.inf)
        np.divide(left * since, fallen, out=needed, where=fallen > 0.0)
        needed[~known | (left == 0.0)] = 0.0
        return needed

    def by_ratio(self, targets: np.ndarray) -> np.ndarray:
        """As `still_to_come`, where each value goes on shrinking by the same factor in as much work: no solver of first
        order does better for long, so this is what to hold against the work of another solver."""
        since, tiny = self.counts[2] - self.counts[0], np.finfo(float).tiny
        known = np.isfinite(self.older) & np.isfinite(self.least)
        older, least = (np.maximum(np.where(known, values, 1.0), tiny) for values in (self.older, self.least))
        fallen, still = np.log(older / least), np.log(least / np.maximum(targets, tiny))
        needed = np.full(len(still), np.inf)
        np.divide(still * since, fallen, out=needed, where=fallen > 0.0)
        needed[~known | (still <= 0.0)] = 0.0
        return needed

    def hopeless(self, targets: np.ndarray, limits: Limits, by_ratio: bool = False) -> np.ndarray:
        """Which values will not come down to their targets within the limits, bool (n,).

        by_ratio : by the forecast of `by_ratio`, if another solver can go on; else by the more hopeful straight line
        """
        if self.counts[2] < limits.patience:
            return np.zeros(len(self.least), bool)
        return (self.by_ratio if by_ratio else self.still_to_come)(targets) > limits.most
