"""Rosen's gradient projection in rounds, many rows released at once (`rosen-block`; `algorithms` 3.7).

A round takes the free rows and the bound rows that violate most, solves the programme on them with K_WW at hand, and
then brings f of all rows up to date: one pass over the data a round, however many steps the round takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.kernels.rosen import STILL, WORK
from bigsvm.solvers.base import Context
from bigsvm.solvers.kernel.base import KernelOptions, KernelSolver
from bigsvm.solvers.kernel.part import Part, Progress
from bigsvm.solvers.kernel.rosen import check
from bigsvm.solvers.kernel.rosen_face import (
    INNER, Descent, FaceWork, Look, Room, bring_up_to_date, look, move, new_work, paper_eps, stands_still,
)  # fmt: skip
from bigsvm.solvers.kernel.rows import KernelRows

_WHILE = 2e8  # multiplications of a call, about
_VALUE = 20  # of a kernel value
_SHARE = 0.1  # of the violation, to which a round solves
_PATIENCE = 100  # rounds


@dataclass(frozen=True)
class RosenBlock(KernelSolver):
    """Hyperparameters of `rosen-block`.

    q : int         bound rows a round, at most; half of them that may rise, half that may fall
    max_set : int   rows a round at most (K_WW has the square of it); `KernelOptions.working_set` goes before
    theta, inner : as in `rosen`
    """

    name: ClassVar[str] = "rosen-block"
    keep_sums: ClassVar[bool] = True

    q: int = 1000
    max_set: int = 4000
    theta: float = 0.5
    inner: str = "cg"

    def __post_init__(self) -> None:
        check(self.theta, self.inner)
        if not (self.q >= 2 and self.max_set >= 2):
            raise ValueError("q and max_set must be at least 2")

    @property
    def caches(self) -> bool:
        """Of the rows that move: much the same ones from one update of f to the next."""
        return True

    def begin(self, part: Part, rows: KernelRows, options: KernelOptions, ctx: Context) -> FaceWork:
        """Nothing is computed."""
        return new_work(part.n)

    def advance(self, part: Part, work: FaceWork, rows: KernelRows, options: KernelOptions, ctx: Context) -> Progress:
        """Rounds until b_low - b_up <= part.eps, or for a while; `iterations` are rounds, that is updates of f."""
        most = max(options.working_set or self.max_set, 2)
        room, spent, visits, rounds = Room(), 0.0, 0, work.updates
        now, largest = look(part), float(rows.diag.max(initial=0.0))
        exhausted = False
        while now.violation > part.eps and spent < _WHILE and not exhausted:
            values, multiplications, before = rows.counts.asked, int(work.counts[WORK]), part.beta.copy()
            W = working_set(part, now, self.q, most)
            K = np.ascontiguousarray(rows.block(W, W))
            work.memory[:] = 0.0
            reason = move(part, work, W, K, largest, room, self._how(part, now, len(W)))
            del K
            changed = bring_up_to_date(part, before, work, rows)
            visits += part.n * (changed > 0)
            now = look(part)
            exhausted = stands_still(part, work, rows, now.violation, reason != STILL or changed > 0, _PATIENCE)
            if work.stale == 0:
                now = look(part)
            spent += _VALUE * (rows.counts.asked - values) + int(work.counts[WORK]) - multiplications
            spent += float(part.n) * changed
        done = now.violation <= part.eps
        return Progress(done, exhausted and not done, work.updates - rounds, visits, now.violation)

    def _how(self, part: Part, now: Look, m: int) -> Descent:
        eps = paper_eps(part)
        stop = max(_SHARE * now.violation, eps)
        most = 20 * m + 1000
        return Descent(
            INNER[self.inner], stop=stop, small=0.25 * stop, theta=self.theta, level=0.0, releases=most, most=most
        )


def working_set(part: Part, now: Look, q: int, most: int) -> np.ndarray:
    """The rows of a round, int64, ascending: J, q/2 bound rows on each side by their violation of the centre, and
    the most violating pair; of more than `most` those with the largest violations, the pair always among them.
    """
    bound = np.ones(part.n, bool)
    bound[now.free] = False
    rising, falling = now.centre - now.up, now.down - now.centre
    chosen = ~bound
    for violations in (rising, falling):
        candidates = np.flatnonzero(bound & (violations > 0.0))
        chosen[candidates[_largest(violations[candidates], q // 2)]] = True
    pair = [now.i_up, now.i_low]
    chosen[pair] = True
    W = np.flatnonzero(chosen)
    if len(W) > most:
        violations = np.maximum(rising[W], falling[W])
        violations[np.isin(W, pair)] = np.inf
        W = np.sort(W[_largest(violations, most)])
    return W


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the largest values, the lowest first among equals."""
    return np.argsort(-values, kind="stable")[:count]
