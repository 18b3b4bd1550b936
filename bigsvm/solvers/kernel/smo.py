"""`smo`: sequential minimal optimisation with working sets of many rows, and one loop for memory and disk.

    A = a sample of the rows, in memory
    repeat: solve the programme of A (`active_rows.py`) to a part of the violation, the other rows waiting
            one pass over the others: f += K(others, rows that moved) (what they moved by)
            A = free rows, and those that violate against the new bias or nearly do
    until the violation of all rows is small

In memory the pass is a sweep and A is LIBSVM's shrinking; on disk it is what is read (`limits` 9.3, 9.4: 4 to 6 passes
where working sets of 4096 rows alone need 71).  Rules of the textbook, of two rows at a time, are in `textbook.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigsvm.solvers.base import Context, DataShape, Need
from bigsvm.solvers.kernel.active_rows import ActiveRows, BlockSMO
from bigsvm.solvers.kernel.arena import RowArena
from bigsvm.solvers.kernel.base import KernelOptions, KernelSolver
from bigsvm.solvers.kernel.data_rows import DataRows
from bigsvm.solvers.kernel.part import Part, Progress
from bigsvm.solvers.kernel.rows import KernelRows
from bigsvm.solvers.kernel.textbook import Textbook, TextbookWork
from bigsvm.store.vectors import RowVector

_Q = 1024
_SAMPLE = 0.1  # of the rows, for the first active set
_SMALL = 4096  # programmes of so few rows are active as a whole
_SHARE_MEMORY, _SHARE_DISK = 0.1, 0.02  # of the violation, to which an active set is solved
_BAND_MEMORY, _BAND_DISK = 0.05, 0.1  # of the scale of targets: how near to violating a row is active
_SURE = 0.9  # of the violation that is asked for
ACTIVE, NEXT, LAST = np.uint8(1), np.uint8(2), np.uint8(4)
"""Flags of a row: it is in the active set; a candidate for the next; it was in the last working set."""


@dataclass
class SmoWork:
    """Where a model stands between two pauses.

    flags : uint8, sent : float64, beta as all rows' f knows it; both by position in the part
    stage : 'choose' an active set, 'solve' it, or 'pass' over the others;  row : of the data, where the pass goes on
    target : violation to which A is solved;  middle : (b_up + b_low) / 2 of A;  threshold : candidates violate more
    """

    flags: RowVector
    sent: RowVector
    stage: str = "choose"
    row: int = 0
    target: float = 0.0
    middle: float = 0.0
    threshold: float = -np.inf
    violation: float = np.inf
    rounds: int = 0
    stuck: int = 0
    arena: Any = field(default=None, metadata={"derived": True})


@dataclass(frozen=True)
class Smo(KernelSolver):
    """Hyperparameters of `smo`; `--wss` and `--working-set` choose its rule and the rows of a working set.

    sample : float   share of the rows in the first active set
    """

    name: ClassVar[str] = "smo"
    sample: float = _SAMPLE

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """The working set's matrix, in float64 if it must be, and per-row flags."""
        n = shape.n_samples
        if self.by_pairs:
            return [Need("row flags", 8 * n), Need("coefficients sent", 8 * n)]
        return [
            Need("working set", BlockSMO.room_bytes(self._rows_of_set(n), 8)),
            Need("active rows", RowArena.least_bytes(shape)),
            Need("row flags", n, may_spill=True),
            Need("coefficients sent", 8 * n, may_spill=True),
        ]

    def _rows_of_set(self, n: int) -> int:
        return min(self.working_set or _Q, max(n, 2))

    @property
    def by_pairs(self) -> bool:
        """Two rows at a time, as the textbook has it: asked for, or the rule knows no other."""
        return self.working_set == 2 or self.wss in ("keerthi2", "wr", "wr+3")

    @property
    def caches(self) -> bool:
        """Of pairs; the rows of a working set are not kept."""
        return self.by_pairs

    def begin(self, part: Part, rows: KernelRows, options: KernelOptions, ctx: Context) -> Any:
        """Everything is sent: f is that of beta."""
        if self.by_pairs:
            return _TEXTBOOK.begin(part, rows, options, ctx)
        n = ctx.data.n_samples

        def vector(what: str, dtype: type) -> RowVector:
            return RowVector(what, n, 1, dtype, ctx.budget, ctx.workdir, on_disk=what in ctx.spilled)

        work = SmoWork(vector("row flags", np.uint8), vector("coefficients sent", np.float64))
        work.sent.values[: part.n, 0] = part.beta
        return work

    def end(self, work: Any) -> None:
        """Flags and coefficients."""
        if not isinstance(work, SmoWork):
            return
        work.flags.close()
        work.sent.close()

    def advance(self, part: Part, work: Any, rows: KernelRows, options: KernelOptions, ctx: Context) -> Progress:
        """One active set, and one pass over the other rows; of the textbook's rules some steps."""
        if self.by_pairs:
            progress = _TEXTBOOK.advance(part, work, rows, options, ctx)
            stale = not progress.done and isinstance(work, TextbookWork) and work.n_active < part.n
            return progress._replace(stale=stale and not progress.final)
        assert isinstance(rows, DataRows)
        return _Round(self, part, work, rows, ctx).run()


_TEXTBOOK = Textbook()


class _Round:
    """One round of the loop, begun or taken up again."""

    def __init__(self, solver: Smo, part: Part, work: SmoWork, rows: DataRows, ctx: Context) -> None:
        self.solver, self.part, self.work, self.rows, self.ctx = solver, part, work, rows, ctx
        self.flags = work.flags.values[: part.n, 0]
        self.sent = work.sent.values[: part.n, 0]
        self.band = (_BAND_MEMORY if ctx.resident else _BAND_DISK) * self._scale()
        self.visits = self.steps = 0

    def _scale(self) -> float:
        """1 for classes; the spread of targets."""
        if self.part.epsilon == 0.0 and np.all(np.abs(self.part.target) == 1.0):
            return 1.0
        return max(float(np.std(self.part.target)), np.finfo(float).tiny)

    def run(self) -> Progress:
        """The rest of the round."""
        work, part = self.work, self.part
        if work.stage == "choose":
            self._choose()
        if work.arena is None:
            work.arena = RowArena(self.rows.data)
            work.arena.load(self._numbers(np.flatnonzero(self.flags & (ACTIVE | NEXT))))
        if work.stage == "solve" and not self._solve():
            return self._paused()
        if work.stage == "pass" and not self._pass():
            return self._paused()
        violation = part.violation()
        work.rounds += 1
        # The same violation again and again, and nothing that moves: float arithmetic can do no more.
        work.stuck = work.stuck + 1 if violation >= work.violation and self.steps == 0 else 0
        work.violation = violation
        done = violation <= part.eps
        work.stage = "choose"
        return Progress(done, work.stuck > 2, self.steps, self.visits, violation)

    def _paused(self) -> Progress:
        return Progress(False, False, self.steps, self.visits, self.work.violation, paused=True)

    def _numbers(self, positions: np.ndarray) -> np.ndarray:
        """Rows of the data at positions of the part."""
        return positions if self.part.rows is None else self.part.rows[positions]

    def _badness(self, where: np.ndarray, middle: float) -> np.ndarray:
        """By how much rows violate against the bias -middle; below 0 where they do not."""
        return np.maximum(middle - self.part.up(where), self.part.down(where) - middle)

    # -- the active set

    def _choose(self) -> None:
        """The next active set: from f of all rows, whose X is in the arena or among the candidates."""
        work, part, n = self.work, self.part, self.part.n
        room = RowArena.capacity(self.ctx)
        share = _SHARE_MEMORY if self.ctx.resident else _SHARE_DISK
        first = work.arena is None and not self.flags.any()
        if first:
            work.arena = RowArena(self.rows.data)
        violation = part.violation()
        if n <= min(_SMALL, room):
            chosen = np.arange(n)
        elif first and not np.any(part.beta):
            wanted = min(max(int(self.solver.sample * n), min(2 * _Q, n)), room)
            chosen = self._sampled(wanted)
        elif first:  # a warm start, or rows computed anew
            chosen = self._worst(np.arange(n), 0.5 * sum(part.bounds()), room)
        else:
            held = np.flatnonzero(self.flags & (ACTIVE | NEXT))
            chosen = self._worst(held, work.middle, room)
        if first:
            work.arena.load(self._numbers(chosen))
        elif work.arena is not None:
            work.arena.change(self._numbers(chosen))
        self.flags &= LAST
        self.flags[chosen] |= ACTIVE
        work.target = max(share * violation, _SURE * part.eps)
        work.stage, work.threshold = "solve", -np.inf

    def _sampled(self, wanted: int) -> np.ndarray:
        """Some rows at random: of streamed rows, runs of them, so that few blocks are read."""
        n, seed = self.part.n, [self.ctx.seed, 7]
        if self.ctx.resident:
            return np.sort(np.random.default_rng(seed).choice(n, wanted, replace=False))
        runs = max(min(64, wanted // 256), 1)
        length, step = wanted // runs, n // runs
        starts = np.arange(runs) * step + np.random.default_rng(seed).integers(0, max(step - length, 0) + 1, runs)
        return np.unique((starts[:, None] + np.arange(length)[None, :]).ravel())

    def _worst(self, candidates: np.ndarray, middle: float, room: int) -> np.ndarray:
        """Free rows and those that violate or nearly do, the worst first where there are too many; ascending."""
        part = self.part
        badness = self._badness(candidates, middle)
        beta = part.beta[candidates]
        free = (beta > part.lower[candidates]) & (beta < part.upper[candidates]) & (beta != 0.0)
        keep = free | (badness > -self.band)
        chosen, badness, free = candidates[keep], badness[keep], free[keep]
        if len(chosen) > room:
            order = np.lexsort((chosen, -badness, ~free))
            chosen = np.sort(chosen[order[:room]])
        return chosen

    # -- solving it

    def _solve(self) -> bool:
        """Solve the active set; False where the run is to stop before."""
        work, part, rows = self.work, self.part, self.rows
        where = np.flatnonzero(self.flags & ACTIVE)
        numbers = self._numbers(where)
        at = work.arena.at(numbers)
        data = rows.data
        active = ActiveRows(
            X=work.arena.X, at=at, column=data.column(numbers), diag=data.diagonal(work.arena.X, at, numbers),
            beta=part.beta[where], f=part.f[where], lower=part.lower[where], upper=part.upper[where],
            epsilon=part.epsilon,
        )  # fmt: skip
        smo = BlockSMO(rows.gram, self.solver._rows_of_set(len(where)), self.solver.wss != "1")
        last = np.flatnonzero((self.flags[where] & LAST) > 0)
        found, last = smo.solve(active, work.target, last, self.ctx.pause)
        part.beta[where], part.f[where] = active.beta, active.f
        self.flags &= ~LAST
        self.flags[where[last]] |= LAST
        self.visits += found.rounds * len(where)
        self.steps += found.steps
        rows.counts.computed += found.kernel_rows
        rows.counts.values += found.values
        if found.left:
            return False
        ends = found.b_up, found.b_low
        work.middle = 0.5 * sum(ends) if np.all(np.isfinite(ends)) else 0.0
        work.stage, work.row = "pass", 0
        return True

    # -- the pass

    def _pass(self) -> bool:
        """f of the rows outside the active set, and candidates among them; False where the run is to stop before."""
        work, part, rows = self.work, self.part, self.rows
        n, data = part.n, rows.data
        if not np.all(self.flags & ACTIVE):
            moved = np.flatnonzero((self.flags & ACTIVE) * (part.beta != self.sent))
            numbers = self._numbers(moved)
            by = (part.beta[moved] - self.sent[moved])[:, None]
            support = data.support(work.arena.X, work.arena.at(numbers), numbers, rows.gram)
            room = RowArena.capacity(self.ctx) - int(np.count_nonzero(self.flags & ACTIVE))
            for block in data.blocks(work.row):
                mine, all_numbers = rows.of(block)
                others = np.flatnonzero((self.flags[mine] & ACTIVE) == 0) + mine.start
                numbers = all_numbers[others - mine.start]
                if len(others):
                    f = part.f[others][None, :]
                    rows.gram.add(block.X, numbers - block.offset, support, by, f)
                    part.f[others] = f[0]
                    near = self._badness(others, work.middle) > max(-self.band, work.threshold)
                    self.flags[others[near]] |= NEXT
                    work.arena.offer(block, numbers[near])
                    self._thin(room)
                rows.counts.values += len(others) * len(moved)
                work.row = block.stop
                if block.stop < data.n and self.ctx.pause():
                    return False
            rows.counts.computed += len(moved)
            self.visits += n
        self.sent[:] = part.beta
        return True

    def _thin(self, room: int) -> None:
        """Drop the lesser half of the candidates where there are too many."""
        work = self.work
        candidates = np.flatnonzero(self.flags & NEXT)
        if self.ctx.resident or len(candidates) <= max(room, 1):
            return
        badness = self._badness(candidates, work.middle)
        order = np.lexsort((candidates, -badness))
        keep = order[: max(room // 2, 1)]
        work.threshold = float(badness[keep[-1]])
        self.flags[candidates] &= ~NEXT
        kept = np.sort(candidates[keep])
        self.flags[kept] |= NEXT
        work.arena.thin(self._numbers(kept))
