"""A pass that measures a direction, chooses the working set and carries proofs along: each row is read once.

Runs of blocks come in a random order of (seed, pass), in rounds.  All rows of the first round are kept, and show how
long the step will be; from then on each round knows the bands of the rows that are nearest (`working_set`), and
those that were taken in for want of better ones leave as better ones come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bigsvm.compiled.linear.primal import signed_margins
from bigsvm.compiled.shared.visiting import shuffled
from bigsvm.problem.certificate import RowsTerms, no_terms, with_block
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.problem.problem import Problem
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.newton_ws.capacity import Room
from bigsvm.solvers.newton_ws.held_rows import coded
from bigsvm.solvers.newton_ws.working_set import (
    KEPT,
    OUT,
    Bands,
    Fold,
    KeptRows,
    WorkingSet,
    ends_of,
    frozen_alpha,
    merged,
    shares_of_capacity,
)
from bigsvm.solvers.primal.line_search import Pieces, exact_step
from bigsvm.solvers.primal.row_pass import Reads, pass_refs, put_back
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.solvers.weights import inner, squared_norm
from bigsvm.store.blocks import BlockRef, RowBlocks, blocks_of, readonly_view
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import BLOCKS_PER_TASK, over_shares, runs_of

_FIRST_ROUND = 0.05  # of the rows; at most half of the capacity
_SAMPLE_FROM = 0.1  # of the rows are read for the sample
_SAMPLE, _SAMPLE_PER_FEATURE = 0.04, 10  # of the rows, or rows for each feature, what is more: enough of a sample
LONGEST = 2.0  # step that is believed on the word of the first round
_CLEAR = 2.0  # standard errors, for a step that is not believed to be whole
_SPARE = 0.25  # of the capacity, beyond it, for rows of a round that then leave
_TASK_CODED = 0.06  # of the capacity: rows of all tasks at one time, which are coded when a task is done
_SURE = 1.5  # rows that a round may keep over those that it is expected to
_REACH = 1.0  # of what a step moves a row in the mean, which counts for rows that it hardly moved
_RUN_ORDER = 1 << 60  # in place of a first row, in the key of the order of runs


class PassReads(Reads, Protocol):
    """What a pass is lent: a `Context`, or a shard's part of one."""

    @property
    def seed(self) -> int: ...
    @property
    def deferred(self) -> list[DeferredCertificate]: ...


class WorkingShare(NamedTuple):
    """What a task needs.  Row arrays are of the share's rows; tasks in this process write into them.

    d : products with it;  None where rows are only taken in
    s, p : float64, (n_rows, n_models);  cost, codes, place : (n_rows, 1), (n_rows, 1), (n_rows, n_models)
    bands : which rows are kept;  anyway : the share of rows that is, whatever the bands; 0 for those in their bands
    points : (w, alpha of the rows) of the deferred certificates
    codes : rows that are kept are coded
    origin : working row from which the rows that are kept are counted
    """

    data: RowBlocks
    refs: tuple[BlockRef, ...]
    problem: Problem
    d: np.ndarray | None
    s: np.ndarray | None
    rows: tuple[np.ndarray | None, ...]
    bands: Bands
    anyway: float
    points: tuple[tuple[np.ndarray, np.ndarray], ...]
    shape: tuple[int, ...]
    coded: bool
    origin: int


class WorkingRows(NamedTuple):
    """What a task has found.

    parts : rows that are kept;  fold : sums over those that are folded
    sides : int64, (2, n_models)   rows outside and inside the margin
    rows : (p, cost, codes, place) for a caller in another process;  terms : of the proofs
    """

    parts: list[KeptRows]
    fold: Fold
    n_rows: int
    sides: np.ndarray
    rows: tuple[np.ndarray, ...]
    terms: tuple[RowsTerms, ...]
    bytes_read: int


def working_task(share: WorkingShare) -> WorkingRows:
    """Task: measure, sort and prove a run of blocks.  Pure, but for writing into the arrays that it was given."""
    problem, m = share.problem, share.problem.n_models
    n, bias = share.refs[-1].stop - share.refs[0].start, problem.constant_feature
    kinds = ((m, np.float64), (1, np.float64), (1, np.int32), (m, np.uint8))
    p, cost, codes, place = (
        np.empty((n, width), dtype) if given is None else given
        for given, (width, dtype) in zip(share.rows, kinds, strict=True)
    )
    s = np.ones((n, m)) if share.s is None else share.s
    parts, fold, sides = [], Fold.empty(problem, share.shape), np.zeros((2, m), np.int64)
    terms = [no_terms(problem, w) for w, _ in share.points]
    first = bytes_read = 0
    for block in blocks_of(share.data, share.refs):
        X, (block_codes, block_cost) = readonly_view(block.X), problem.y_and_cost(block)
        rows = slice(first, first + block.n_rows)
        cost[rows, 0], codes[rows, 0] = block_cost, block_codes
        if share.d is not None:
            signed_margins(X, block_codes, problem.positive, share.d, bias, 0.0, 1.0, p[rows])
        else:
            p[rows] = 0.0
        lot = share.bands.lots(block.start, block.n_rows)
        if share.anyway:
            z, distance = s[rows].copy(), np.zeros((block.n_rows, m))
            place[rows] = np.where((block_cost > 0.0) & (lot < share.anyway), KEPT, OUT)[:, None]
        else:
            z, distance, place[rows] = share.bands.place(s[rows], p[rows], block_cost, lot)
            ends = ends_of(problem, s[rows], p[rows])
            fold.add(problem, X, block_codes, block_cost, ends, z, (place[rows] != KEPT) & (block_cost[:, None] > 0.0))
            live = block_cost[:, None] > 0.0
            sides += np.array([(live & (z <= 0.0)).sum(axis=0), (live & (z > 0.0)).sum(axis=0)])
        drawn = (lot < share.bands.share) & (block_cost > 0.0)
        kept = np.flatnonzero((place[rows] == KEPT).any(axis=1) | drawn)
        if len(kept):
            parts += KeptRows(
                picked_rows(X, kept), block_codes[kept], block_cost[kept], block.start - share.origin + kept,
                ends_of(problem, s[rows][kept], p[rows][kept]), z[kept], distance[kept],
                place[rows][kept], lot[kept], drawn[kept],
            ).split()  # fmt: skip
        for k, (w, alpha) in enumerate(share.points):
            terms[k] = with_block(terms[k], problem, w, alpha[rows], block)
        first += block.n_rows
        bytes_read += block.nbytes
    parts = merged(parts)
    if share.coded:
        parts = [part._replace(X=coded(part.X)) for part in parts]
    return WorkingRows(parts, fold, n, sides, (p, cost, codes, place), tuple(terms), bytes_read)


class WorkingPass:
    """One reading of all rows.

    rows : where s is, and p, cost and codes go;  place : uint8, (n_samples, n_models)
    d : float64, shape of w, the direction;  w : from where
    room : for rows that are kept;  entry_bytes : that a row's entries are likely to take, 0 for nobody knows
    number : of the pass, for the order of its rows
    part : working rows that are here;  None: all

    Raises PassLeft where the run is to stop: nothing of the pass counts, and it is begun again later.
    """

    def __init__(
        self, ctx: PassReads, problem: Problem, rows: RowState, place: RowVector, shape: tuple[int, ...], room: Room,
        entry_bytes: float, number: int, part: range | None = None,
    ) -> None:  # fmt: skip
        self.ctx, self.problem, self.rows, self.place, self.shape, self.room = ctx, problem, rows, place, shape, room
        self.part = range(ctx.data.n_samples) if part is None else part
        self._done, n = 0, len(self.part)
        capacity, self.certain = room.rows(entry_bytes), room.certain(entry_bytes)
        refs = pass_refs(ctx)
        per_block = max(-(-n // max(len(refs), 1)), 1)
        task_rows = int(capacity * (_TASK_CODED if room.coded else _SPARE)) // ctx.pass_workers
        blocks = min(max(task_rows // per_block, 1), BLOCKS_PER_TASK)
        runs = list(runs_of(refs, blocks))
        self.runs = [runs[k] for k in shuffled(len(runs), ctx.seed, number, _RUN_ORDER)]
        m = problem.n_models
        near, share = shares_of_capacity(capacity, n)
        open_bands = Bands(np.full(m, np.inf), np.full(m, np.inf), np.ones(m), np.ones(m), share, (ctx.seed, number))
        self.found = WorkingSet(problem, n, near, open_bands, Fold.empty(problem, shape))
        self.found.sides, self.found.together = np.zeros((2, m), np.int64), not room.coded
        for proof in ctx.deferred:
            proof.restart()

    def sample(self) -> tuple[WorkingSet, float]:
        """A random sample of the rows, and which share of all it is; no larger than what fits, and than tells.

        It comes from several times as many rows, so that it is one of many places where rows are in some order.
        """
        n, all_rows = len(self.part), self.ctx.data.n_samples
        # A shard's part of a sample is that of its rows.
        per_feature = -(-_SAMPLE_PER_FEATURE * self.shape[0] * n // all_rows)
        enough = min(self.found.capacity, max(per_feature, int(_SAMPLE * n)))
        some = self._next(0, max(int(_SAMPLE_FROM * n), enough))
        rows = sum(map(_rows_of, some))
        share = min(enough / rows, 1.0)
        self._read(some, None, anyway=share)
        return self.found, share * rows / n

    def read(self, w: np.ndarray, d: np.ndarray, ready: np.ndarray) -> WorkingSet:
        """Measure the direction d on all rows, and choose the working set around where it will lead.

        ready : bool, (n_models,)   models that want no rows
        """
        self.begin(d)
        self._look_ahead(w, d)
        return self.rest(d, ready)

    def begin(self, d: np.ndarray) -> None:
        """The first round, of which all rows are kept until it is known how long the step will be."""
        n, capacity = len(self.part), self.found.capacity
        first = self._next(0, int(min(max(_FIRST_ROUND * n, 1), int(capacity * self.certain) // 2)))
        self._read(first, d, anyway=1.0)
        self._done = len(first)

    def rest(self, d: np.ndarray, ready: np.ndarray) -> WorkingSet:
        """All other rows, once `expect` was told how long."""
        self.found.bands.inside[ready] = self.found.bands.outside[ready] = -1.0
        done = self._done
        while done < len(self.runs):
            self._settle(last=False)
            found = self.found
            rate = found.held / max(found.seen, 1)
            most = self.certain * (found.capacity * (1.0 + _SPARE) - found.held) / max(_SURE * rate, 1e-9)
            some = self._next(done, int(min(most, found.seen)))
            self._read(some, d, anyway=0.0)
            done += len(some)
        self._settle(last=True)
        return self.found

    def _next(self, done: int, rows: int) -> Sequence[tuple[BlockRef, ...]]:
        """The next runs, of about so many rows; at least one."""
        stop, come = done, 0
        while stop < len(self.runs) and (stop == done or come + _rows_of(self.runs[stop]) <= rows):
            come += _rows_of(self.runs[stop])
            stop += 1
        return self.runs[done:stop]

    def _read(self, runs: Sequence[tuple[BlockRef, ...]], d: np.ndarray | None, anyway: float) -> None:
        ctx, rows, in_process = self.ctx, self.rows, self.ctx.mapper.in_process
        vectors = (rows.p, rows.cost, rows.y, self.place)

        def share(run: tuple[BlockRef, ...]) -> WorkingShare:
            start, stop = run[0].start, run[-1].stop
            own = tuple(vector.between(start, stop) if in_process else None for vector in vectors)
            points = tuple((proof.w, proof.alpha.between(start, stop)) for proof in ctx.deferred)
            return WorkingShare(
                ctx.data, run, self.problem, d, None if d is None else rows.s.between(start, stop), own,
                self.found.bands, anyway, points if d is not None else (), self.shape, self.room.coded,
                self.part.start,
            )  # fmt: skip

        for run, found in over_shares(
            ctx.mapper, working_task, runs, share, ctx.pass_workers, account=ctx, may_leave=True
        ):
            if not in_process:
                put_back(run, vectors, found.rows)
            self.found.take(found.parts, found.n_rows, found.sides, found.fold)
            for proof, terms in zip(ctx.deferred, found.terms, strict=False):
                proof.take(terms)

    def _look_ahead(self, w: np.ndarray, d: np.ndarray) -> None:
        """How long the step along d will be, by the rows of the first round; and what they are to it."""
        problem, found = self.problem, self.found
        linear, quadratic = inner(problem, w, d), squared_norm(problem, d)
        scale = len(self.part) / max(found.seen, 1)
        ahead = np.ones(problem.n_models)
        for m in range(problem.n_models):
            pieces = self.first_pieces(m, scale)
            slope, error = slope_at_one(problem, m, pieces())
            if not is_whole(linear[m] + quadratic[m], slope, error):
                step = exact_step(
                    pieces, float(problem.C[m]), problem.loss.code, float(linear[m]), float(quadratic[m]), LONGEST
                )
                ahead[m] = step.length
        moved, rows = self.moved()
        self.expect(ahead, moved / max(rows, 1))

    def first_pieces(self, m: int, scale: float = 1.0) -> Pieces:
        """Slacks, products and costs (times `scale`) of the rows that are kept, for searches of model m."""

        def pieces() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for part in self.found.parts:
                yield self.rows.s.values[part.number, m], self.rows.p.values[part.number, m], part.cost * scale

        return pieces

    def moved(self) -> tuple[np.ndarray, int]:
        """The sums of |p| of the rows that are kept, (n_models,), and how many they are."""
        numbers = [part.number for part in self.found.parts]
        moved = (np.abs(self.rows.p.values[rows]).sum(axis=0) for rows in numbers)
        return sum(moved, np.zeros(self.problem.n_models)), sum(map(len, numbers))

    def expect(self, ahead: np.ndarray, mean: np.ndarray) -> None:
        """How long the step of each model will be, and how far it moves rows in the mean, both (n_models,)."""
        found = self.found
        found.bands.ahead[:] = ahead
        found.bands.reach[:] = np.where(mean > 0.0, _REACH * mean, 1.0)
        for k, part in enumerate(found.parts):
            s, p = self.rows.s.values[part.number], self.rows.p.values[part.number]
            z, distance, place = found.bands.place(s, p, part.cost, part.lot)
            found.parts[k] = part._replace(z=z, distance=distance, place=place)
            found.sides += np.array([(z <= 0.0).sum(axis=0), (z > 0.0).sum(axis=0)])

    def _settle(self, last: bool) -> None:
        """Cut the working set to its capacity: fewer rows where their entries take more than was thought."""
        found = self.found
        rows = self.room.rows(found.entry_bytes)
        if found.parts and rows < found.n_samples:
            found.capacity = min(found.capacity, shares_of_capacity(rows, found.n_samples)[0])
        for numbers, place in self.found.cut(last):
            self.place.values[numbers] = place


def is_whole(regular: float, slope: float, error: float) -> bool:
    """Whether one whole step is to be expected: the slope there may be 0, as far as some rows can tell.

    regular : the regulariser's slope there;  slope, error : that of the losses, and its standard error
    """
    return bool(abs(regular + slope) <= _CLEAR * error)


def slope_at_one(
    problem: Problem, m: int, pieces: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[float, float]:
    """The slope of model m's losses after a whole step, as some rows show it, and its standard error."""
    slope = variance = 0.0
    for s, p, cost in pieces:
        after, C = (s - p)[:, None], (cost * problem.C[m])[:, None]
        each = -p * frozen_alpha(problem, np.stack([after, after]), after, C)[0][:, 0]
        slope += float(each.sum())
        variance += float((each * each).sum())
    return slope, math.sqrt(variance)


def _rows_of(run: Sequence[BlockRef]) -> int:
    return run[-1].stop - run[0].start
