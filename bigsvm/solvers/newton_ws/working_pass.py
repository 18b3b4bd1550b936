"""A pass over all rows: it measures a direction, chooses the working set, and computes the deferred proofs.

Runs of blocks are read in rounds, in a random order that is a function of (seed, pass).  All rows of the first round
are kept, and show how long the step will be.  Each later round keeps the rows within the bands of `working_set`, which
become narrower as nearer rows are found; rows that fall outside of them are folded.
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
from bigsvm.store.addresses import cut_to
from bigsvm.store.blocks import BlockRef, RowBlocks, blocks_of, readonly_view
from bigsvm.store.join import parts_for
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import BLOCKS_PER_TASK, over_shares, runs_of

_FIRST_ROUND = 0.05  # share of the rows in the first round; at most half of the capacity
# Share of the rows that is read for the sample if they stream.  In memory all are read: rows of like kinds lie side by
# side in kddcup99, and the solution on a sample from a tenth of them led nowhere for some seeds.
_SAMPLE_FROM = 0.1
_SAMPLE, _SAMPLE_PER_FEATURE = 0.04, 10  # size of the sample: this share of the rows, or rows per feature if more
LONGEST = 2.0  # longest step that the first round may predict
_CLEAR = 2.0  # standard errors by which the slope must differ from 0 for a step that is not whole
_SPARE = 0.25  # share of the capacity that a round may exceed it by, until it is cut
_TASK_BYTES = 4 << 20  # bytes of slacks and distances that a task may always keep, however small the capacity is
_ROW_MODEL_BYTES = 33  # bytes of these for each row and model: `ends`, `z`, `distance` and `place` of `KeptRows`
_TASK_CODED = 0.06  # share of the capacity: rows that all tasks hold at a time before they are coded
_SURE = 1.5  # safety factor on the number of rows that a round is expected to keep
_REACH = 1.0  # factor on the mean |p|, which is added to |p| in the unit of distances
_RUN_ORDER = 1 << 60  # key of the order of runs; far above any row number, which keys other orders


class PassReads(Reads, Protocol):
    """What a pass needs of its caller: a `Context`, or the part of one that a shard has."""

    @property
    def seed(self) -> int: ...
    @property
    def deferred(self) -> list[DeferredCertificate]: ...


class WorkingShare(NamedTuple):
    """The input of a task: a run of blocks, and the values of their rows.

    d : float64, shape of w   direction;  None: rows are only sampled
    s : float64, (n_rows, n_models)   slacks;  None: 1
    rows : arrays that a task in this process writes into, else None each: p (n_rows, n_models), cost and codes
        (n_rows, 1), place (n_rows, n_models)
    bands : rule by which rows are kept
    anyway : share of rows that is kept whatever their distance;  0: keep by the bands
    points : (w, alpha of the rows) of each deferred certificate
    shape : shape of w
    coded : code the rows that are kept
    origin : number of the row that counts as row 0 in `KeptRows.number`
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
    """The result of a task.

    parts : the rows kept;  fold : sums over the rows that are folded
    sides : int64, (2, n_models)   rows outside and inside the margin
    rows : (p, cost, codes, place) for a caller in another process
    terms : terms of each deferred certificate
    """

    parts: list[KeptRows]
    fold: Fold
    n_rows: int
    sides: np.ndarray
    rows: tuple[np.ndarray, ...]
    terms: tuple[RowsTerms, ...]
    bytes_read: int


def working_task(share: WorkingShare) -> WorkingRows:
    """Task: measure the direction on a run of blocks, choose rows, and compute the terms of deferred proofs.

    It is pure, except that it writes into the arrays of `share.rows`.
    """
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
    for block in parts_for(blocks_of(share.data, share.refs), m):
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
    """One pass over all rows, or over those of one shard.

    rows : RowState   has s; receives p, cost and codes;  place : uint8, (n_samples, n_models), written
    shape : shape of w
    room : limits of the working set;  entry_bytes : expected bytes of the entries of a row, 0 if not known
    number : int   number of the pass, on which the order of its rows depends
    part : range   numbers of the rows of a shard;  None: all rows

    Its methods raise PassLeft if the run is to stop.  The pass is then discarded, and begun again by the resumed run.
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
        m = problem.n_models
        most = max(task_rows, _TASK_BYTES // _ROW_MODEL_BYTES // m)
        if per_block > most:  # a block of short rows has more rows than a task may keep
            refs, per_block = cut_to(refs, most), most
        blocks = min(max(task_rows // per_block, 1), BLOCKS_PER_TASK)
        runs = list(runs_of(refs, blocks))
        self.runs = [runs[k] for k in shuffled(len(runs), ctx.seed, number, _RUN_ORDER)]
        near, share = shares_of_capacity(capacity, n)
        open_bands = Bands(np.full(m, np.inf), np.full(m, np.inf), np.ones(m), np.ones(m), share, (ctx.seed, number))
        self.found = WorkingSet(problem, n, near, open_bands, Fold.empty(problem, shape))
        self.found.sides, self.found.together = np.zeros((2, m), np.int64), not room.coded
        for proof in ctx.deferred:
            proof.restart()

    def sample(self) -> tuple[WorkingSet, float]:
        """Read a random sample of the rows; return it, and the share of the rows that it is.

        It is drawn from several times as many rows, so that it comes from many places even if the rows have an order,
        and from all rows if they are in memory.
        """
        n, all_rows = len(self.part), self.ctx.data.n_samples
        # A shard draws in proportion to its rows.
        per_feature = -(-_SAMPLE_PER_FEATURE * self.shape[0] * n // all_rows)
        enough = min(self.found.capacity, max(per_feature, int(_SAMPLE * n)))
        some = self._next(0, n if self.ctx.resident else max(int(_SAMPLE_FROM * n), enough))
        rows = sum(map(_rows_of, some))
        share = min(enough / rows, 1.0)
        self._read(some, None, anyway=share)
        self.found.gather()
        return self.found, share * rows / n

    def read(self, w: np.ndarray, d: np.ndarray, ready: np.ndarray) -> WorkingSet:
        """Measure the direction d on all rows, and choose the working set for the w that the step is expected to reach.

        w, d : float64, `shape`   start and direction of the step
        ready : bool, (n_models,)   models that rest, for which no rows are kept
        """
        self.begin(d)
        self._look_ahead(w, d)
        return self.rest(d, ready)

    def begin(self, d: np.ndarray) -> None:
        """Read the first round.  All of its rows are kept, until `expect` is told the length of the step."""
        n, capacity = len(self.part), self.found.capacity
        first = self._next(0, int(min(max(_FIRST_ROUND * n, 1), int(capacity * self.certain) // 2)))
        self._read(first, d, anyway=1.0)
        self._done = len(first)

    def rest(self, d: np.ndarray, ready: np.ndarray) -> WorkingSet:
        """Read all other rows; `expect` must have been called."""
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
        """The runs after the first `done`, at least one, of at most `rows` rows if there are more."""
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
        """Predict the length of the step along d from the rows of the first round, and set the bands by it."""
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
        """(slacks, products, costs times `scale`) of the rows kept so far, for a line search of model m."""

        def pieces() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for part in self.found.parts:
                yield self.rows.s.values[part.number, m], self.rows.p.values[part.number, m], part.cost * scale

        return pieces

    def moved(self) -> tuple[np.ndarray, int]:
        """The sums of |p| over the rows kept so far, float64, (n_models,), and the number of these rows."""
        numbers = [part.number for part in self.found.parts]
        moved = (np.abs(self.rows.p.values[rows]).sum(axis=0) for rows in numbers)
        return sum(moved, np.zeros(self.problem.n_models)), sum(map(len, numbers))

    def expect(self, ahead: np.ndarray, mean: np.ndarray) -> None:
        """Set the bands by the expected lengths of the step and the mean of |p|, and place the rows kept so far.

        ahead, mean : float64, (n_models,)
        """
        found = self.found
        found.bands.ahead[:] = ahead
        found.bands.reach[:] = np.where(mean > 0.0, _REACH * mean, 1.0)
        for k, part in enumerate(found.parts):
            s, p = self.rows.s.values[part.number], self.rows.p.values[part.number]
            z, distance, place = found.bands.place(s, p, part.cost, part.lot)
            found.parts[k] = part._replace(z=z, distance=distance, place=place)
            found.sides += np.array([(z <= 0.0).sum(axis=0), (z > 0.0).sum(axis=0)])

    def _settle(self, last: bool) -> None:
        """Cut the working set to its capacity, which becomes smaller if entries take more bytes than expected."""
        found = self.found
        rows = self.room.rows(found.entry_bytes)
        if found.parts and rows < found.n_samples:
            found.capacity = min(found.capacity, shares_of_capacity(rows, found.n_samples)[0])
        for numbers, place in self.found.cut(last):
            self.place.values[numbers] = place


def is_whole(regular: float, slope: float, error: float) -> bool:
    """Whether a step of length 1 is expected: the slope of P there does not differ from 0 significantly.

    regular : slope of the regulariser at length 1
    slope, error : slope of the losses there, estimated from some rows, and its standard error
    """
    return bool(abs(regular + slope) <= _CLEAR * error)


def slope_at_one(
    problem: Problem, m: int, pieces: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[float, float]:
    """The slope of the losses of model m at a step of length 1, estimated from some rows, and its standard error."""
    slope = variance = 0.0
    for s, p, cost in pieces:
        after, C = (s - p)[:, None], (cost * problem.C[m])[:, None]
        each = -p * frozen_alpha(problem, np.stack([after, after]), after, C)[0][:, 0]
        slope += float(each.sum())
        variance += float((each * each).sum())
    return slope, math.sqrt(variance)


def _rows_of(run: Sequence[BlockRef]) -> int:
    return run[-1].stop - run[0].start
