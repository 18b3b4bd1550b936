"""The row buffer: rows that violate stay in memory and are swept while others stream (dual cached loops).

StreamSVM (Matsushima, Vishwanathan, Smola, KDD 2012) keeps the rows whose dual variables still move.  Here the schedule
of sweeps is a function of counters, so the result does not depend on the speed of the disk.  Values are rounded to 16
bits (`compiled/shared/packed.py`), so that twice as many rows fit.  The rounded values only decide the steps of alpha;
the error that they leave in w is removed when a certificate rebuilds w from alpha.  For very small tolerances rows are
kept exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.linear import active_row_buffer as kernel
from bigsvm.compiled.linear.active_row_buffer import Slots
from bigsvm.compiled.linear.dual_cd import EXACT, BlockRows, Stiffness, dual_cd_visit
from bigsvm.compiled.shared.packed import PackedCSR, PackedDense
from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.shared.visiting import AS_GIVEN, MIXED_BYTES, RUN_ROWS, VisitingOrder, part_of_order
from bigsvm.errors import DataError
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.admission import Admission
from bigsvm.store.blocks import RowBlocks, bytes_per_row, readonly_view
from bigsvm.store.state.held_rows import HeldRows, held_bytes
from bigsvm.store.state.vectors import RowVector
from bigsvm.units import MIB

_KEEP = 0.9  # part of a full row buffer that stays; the rows that violate least are evicted
_KEEP_FIRST = 0.75  # the same in the first pass: nearly every row violates then, and fewer evictions cost less time
_SLOT_BYTES = 40  # bytes of a slot beside the packed entries (`Slots`, ptr, hot, scale)
_SCORE_BYTES = 4
_CACHED_BYTES = 32 * MIB  # alpha on disk of up to this size stays in the page cache, even under a hard limit of memory
_ENTRY_BYTES = 4.5  # mean of a packed entry: two bytes of value, two or four of feature number
_PLACE = 1 << 61  # keys of random orders have this plus the number of a sweep, where those of blocks have a first row


@dataclass
class ActiveRowBuffer:
    """The rows in memory, one in each slot.

    rows : PackedCSR or PackedDense; CSR or a dense array if 16 bits are too coarse
    slots : row number, label, weight, norm and score of each slot
    n : int             slots in use
    threshold : float   score (violation) that a row must exceed to be admitted
    full : bool         it has overflowed in this pass
    keep : float        part of the rows that stays when it overflows
    admission : a further threshold if the loss is smooth, else None
    held : alpha of the rows in the slots, within a block of `holding`; else None
    """

    rows: Any
    slots: Slots
    n: int = 0
    threshold: float = 0.0
    full: bool = False
    keep: float = _KEEP_FIRST
    admission: Admission | None = None
    held: HeldRows | None = None

    @contextmanager
    def holding(self, alpha: Sequence[RowVector]) -> Iterator[None]:
        """Hold alpha of the rows in the slots during the block; it is written back at its end.

        alpha : of each group of models.  Outside such a block, `sweep` reads and writes it row by row.
        """
        self.held = HeldRows(alpha, len(self.slots.row))
        self.held.take(self.slots.row[: self.n])
        yield  # after an error alpha is of no use, and the fit ends
        self.held.put(self.slots.row[: self.n])
        self.held = None

    def begin_pass(self) -> None:
        """Reset the threshold: every row that violates may be admitted, subject to `admission`."""
        self.threshold, self.full, self.keep = 0.0, False, _KEEP
        if self.admission is not None:
            self.admission.begin_pass(self.n)

    def dump(self) -> dict[str, Any]:
        """The slots in use, for a checkpoint."""
        n, rows = self.n, self.rows
        if isinstance(rows, PackedCSR):
            used = [rows.pool[: rows.ptr[n]], rows.ptr[: n + 1], rows.hot[:n], rows.scale[:n]]
        elif isinstance(rows, CSR):
            used = [rows.data[: rows.indptr[n]], rows.indices[: rows.indptr[n]], rows.indptr[: n + 1]]
        elif isinstance(rows, PackedDense):
            used = [rows.values[:n], rows.scale[:n]]
        else:
            used = [rows[:n]]
        slots = [array[:n] for array in self.slots]
        numbers = {"n": n, "threshold": self.threshold, "full": self.full, "keep": self.keep}
        admission = None if self.admission is None else self.admission.dump()
        return {"rows": used, "slots": slots, "admission": admission, **numbers}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave.  Raises DataError if it does not fit."""
        rows = self.rows
        arrays = [rows] if isinstance(rows, np.ndarray) else list(rows)
        if isinstance(rows, PackedCSR):
            del arrays[1]  # a view of the pool
        for array, saved in [*zip(arrays, tree["rows"], strict=True), *zip(self.slots, tree["slots"], strict=True)]:
            if len(saved) > len(array):
                what = "the checkpoint is of an earlier version, whose row buffer was larger"
                raise DataError(what, hint="start again: bigsvm fit ... --overwrite")
            array[: len(saved)] = saved
        self.n, self.threshold, self.full, self.keep = tree["n"], tree["threshold"], tree["full"], tree["keep"]
        if self.admission is not None:
            self.admission.load(tree["admission"])

    def offer(self, visited: BlockRows, order: np.ndarray, score: np.ndarray, streams: np.ndarray) -> None:
        """Admit the rows of a block, just visited, that violate enough (`admit`); `admission` counts all of them."""
        least = 0.0
        if self.admission is not None:
            self.admission.see(score, order)
            least = self.admission.least
        self.admit(visited, order, score, streams, least)

    def admit(
        self, visited: BlockRows, order: np.ndarray, score: np.ndarray, streams: np.ndarray, least: float = 0.0
    ) -> None:
        """Copy rows that violate more than `least` into slots; when the slots are full, evict the rows of least score.

        visited, order, score, streams : as `dual_cd_visit` took and filled them; order holds the visited rows only
        """
        begin = 0
        while begin < len(order):
            above, n = max(self.threshold, least), self.n
            self.n, begin = kernel.admit(
                self.rows, self.slots, n, visited, order, len(order), score, above, begin, streams
            )
            if self.held is not None:
                self.held.take(self.slots.row[n : self.n], n)
            if begin < len(order):
                if self.n == 0:
                    return  # this row alone is larger than the row buffer
                self.full = True
                self.threshold = self._least()
                if self.held is not None:
                    stays = self.slots.score[: self.n] > np.float64(self.threshold)
                    self.held.put(self.slots.row[: self.n], ~stays)
                    self.held.close_gaps(stays)
                self.n = kernel.evict(self.rows, self.slots, self.n, self.threshold, streams)

    def order(self, key: tuple[int, int], part: SweepPart) -> np.ndarray:
        """The slots that a part of a sweep visits, in random order, int64.  key : (seed, pass)"""
        # Rows are mixed even without a bias: the same rows are swept again and again, and frequent features couple them
        # as a bias does.  In runs of fixed order 20news, C = 100, takes four times the passes.
        mixed = max(int(MIXED_BYTES * self.n // max(_bytes_used(self.rows, self.n) * RUN_ROWS, 1)), 1)
        runs = -(-len(self.slots.row) // RUN_ROWS)  # of all slots, since slots are filled and freed during a sweep
        first, stop = part.first * runs // part.of, part.stop * runs // part.of
        return part_of_order(self.n, runs, first, stop, mixed, key, _PLACE + part.number)

    def sweep(
        self,
        problem: Problem,
        alpha: np.ndarray,
        W: np.ndarray,
        order: np.ndarray,
        stiffness: Stiffness = EXACT,
        score: np.ndarray | None = None,
        group: int = 0,
    ) -> np.ndarray:
        """Take a step for each slot of `order`; returns the statistics of the visits, float64, shape (n_proofs, 4).

        alpha : of all rows, in working order; not used for rows whose alpha is held
        stiffness : of a shard's local problem
        score : float32, (n,)   receives the violations instead of the slots, which then do not change: several groups
            of models may sweep at one time
        group : the number of the group of models
        """
        slots, n, held = self.slots, self.n, self.held
        stats = np.zeros((problem.n_proofs, 4))
        if len(order) == 0:
            return stats
        weight = slots.sample_weight[:n] if len(slots.sample_weight) else slots.sample_weight
        X = self.rows
        if not isinstance(X, PackedCSR | PackedDense):
            X = readonly_view(X)  # the type of rows that stream, so that one compiled loop serves both
        at = slots.row[:n]
        if held is not None:
            at, alpha, problem = _BY_SLOT, held.values[group], problem.of_slots(slots.row[:n], order)
        rows = BlockRows(X, slots.y[:n], weight, slots.sqnorm[:n], at)
        dual_cd_visit(
            rows, problem.dual_models, alpha, W, _ALL, stiffness, _IN_ORDER, order, stats,
            slots.score[:n] if score is None else score,
        )  # fmt: skip
        return stats

    def take_scores(self, scores: np.ndarray, order: np.ndarray) -> None:
        """Set each slot's score to the largest that any group of models found.  scores : float32, (n_groups, n)"""
        self.slots.score[order] = scores[:, order].max(axis=0)

    def end_sweep(self) -> None:
        """After a whole sweep: set the threshold to the least score that is worth keeping now."""
        if self.full and self.n > 0:
            self.threshold = self._least()

    def _least(self) -> float:
        """The score up to which rows are evicted."""
        scores = self.slots.score[: self.n]
        place = int((1.0 - self.keep) * self.n)
        return float(np.partition(scores, place)[place])


_ALL = np.empty(0, np.uint8)
_BY_SLOT = np.empty(0, np.int64)  # the number of a row is that of its slot
_IN_ORDER = VisitingOrder(AS_GIVEN, 0, 0, 0)


class SweepPart(NamedTuple):
    """A part of a sweep over the row buffer: [first, stop) of `of` equal parts.  The default is all of it.

    number : of the sweep within the pass
    """

    number: int
    first: int = 0
    stop: int = 1
    of: int = 1

    @property
    def ends(self) -> bool:
        """The sweep ends with it."""
        return self.stop == self.of


def parts_due(turn: int, turns: int, sweeps: int) -> Iterator[SweepPart]:
    """The parts of sweeps that are due after one of the `turns` (groups of blocks) of a pass with `sweeps` sweeps.

    Every turn sweeps a part, instead of some turns the whole: the disk reads only a few groups ahead, and would wait.
    """
    first, stop = turn * sweeps, (turn + 1) * sweeps  # in turns-th parts of a sweep
    while first < stop:
        number, inside = divmod(first, turns)
        first = min(stop, (number + 1) * turns)
        yield SweepPart(number, inside, first - number * turns, turns)


def _bytes_used(rows: Any, n: int) -> int:
    if isinstance(rows, PackedCSR):
        return int(rows.ptr[n]) * 2
    if isinstance(rows, CSR):
        return int(rows.indptr[n]) * (rows.data.itemsize + rows.indices.itemsize)
    return (rows.values if isinstance(rows, PackedDense) else rows)[:n].nbytes


def packs(problem: Problem, tol: float) -> bool:
    """Whether 16-bit values are precise enough for a gap of `tol`.

    An error e in the margins costs a gap of order e for the hinge loss, and e^2 for the squared losses.  In regression
    residuals may be smaller than the error of f(x), so values are never packed.
    """
    return not problem.regression and tol >= (2e-5 if problem.loss.diag_factor == 0.0 else 1e-8)


def slots_in(nbytes: int, data: RowBlocks, packed: bool) -> int:
    """Rows of average length that fit in `nbytes`."""
    return int(nbytes // _row_bytes(data, packed))


def whole_row_buffer(data: RowBlocks, packed: bool) -> int:
    """Bytes of a row buffer that holds every row; a larger one is of no use."""
    return int(data.n_samples * _row_bytes(data, packed))


def _row_bytes(data: RowBlocks, packed: bool) -> float:
    per_slot = _slot_bytes(data)
    if data.layout == "dense":
        return per_slot + data.n_features * (2.0 if packed else data.dtype.itemsize)
    return bytes_per_row(data, _ENTRY_BYTES if packed else data.dtype.itemsize + data.index_dtype.itemsize, per_slot)


def _slot_bytes(data: RowBlocks) -> int:
    return _SLOT_BYTES + 8 * data.has_weights + (_y_type(data).itemsize - 4)


def _y_type(data: RowBlocks) -> np.dtype:
    """The type of y in a slot: class codes, or targets."""
    return np.dtype(np.float64 if data.classes is None else np.int32)


def with_beside(nbytes: int, data: RowBlocks, packed: bool, beside: int) -> int:
    """The part of `nbytes` for a row buffer, if each of its rows takes `beside` more bytes elsewhere."""
    each = _row_bytes(data, packed)
    return int(nbytes * each / (each + beside))


def shared_row_buffer(
    problems: Sequence[Problem], ctx: Context, packed: bool | None = None, less: int = 0
) -> ActiveRowBuffer:
    """An empty row buffer for several groups of models, whose scores, and alpha if it is held, are within its bytes.

    problems : that of each group
    packed : values are rounded to 16 bits; None: as the plan says
    less : bytes that are needed for something else
    """
    packed = ctx.row_buffer_packed if packed is None else packed
    beside = _SCORE_BYTES * len(problems) if len(problems) > 1 else 0
    if holds_alpha(problems, ctx):
        beside += held_bytes(_n_models(problems))
    nbytes = with_beside(ctx.row_buffer_bytes - less, ctx.data, packed, beside)
    return make_row_buffer(nbytes, ctx.data, packed, smooth=problems[0].loss.smooth)


def holds_alpha(problems: Sequence[Problem], ctx: Context) -> bool:
    """Whether the row buffer holds alpha of its rows: alpha is on disk, and the page cache may be too small for it."""
    return "alpha" in ctx.spilled and 8 * ctx.data.n_samples * _n_models(problems) > _CACHED_BYTES


def _n_models(problems: Sequence[Problem]) -> int:
    return sum(problem.n_models for problem in problems)


def make_row_buffer(
    nbytes: int, data: RowBlocks, packed: bool, at_least: int = 1, smooth: bool = False
) -> ActiveRowBuffer:
    """An empty row buffer of at most `nbytes`; the system commits its pages only as it fills.

    smooth : limit admission (`admission.py`), as smooth losses need
    """
    n = max(slots_in(nbytes, data, packed), at_least)
    rows: Any
    if data.layout == "csr":
        # Enough slots for rows a quarter shorter than average, so that the entries run out before the slots.
        per_slot = _slot_bytes(data)
        n = max(int(nbytes // (per_slot + 0.75 * (_row_bytes(data, packed) - per_slot))), at_least)
        room = max(int(nbytes - 8 - n * per_slot), 16)
        ptr = np.zeros(n + 1, np.int64)
        if packed:
            pool = np.empty(room // 2, np.uint16)
            rows = PackedCSR(pool, pool.view(np.int16), ptr, np.empty(n, np.int32), np.empty(n, np.float32))
        else:
            entries = room // (data.dtype.itemsize + data.index_dtype.itemsize)
            rows = CSR(np.empty(entries, data.dtype), np.empty(entries, data.index_dtype), ptr)
    elif packed:
        rows = PackedDense(np.empty((n, data.n_features), np.int16), np.empty(n, np.float32))
    else:
        rows = np.empty((n, data.n_features), data.dtype)
    slots = Slots(
        row=np.empty(n, np.int64),
        y=np.empty(n, _y_type(data)),
        sample_weight=np.empty(n if data.has_weights else 0),
        sqnorm=np.empty(n),
        score=np.empty(n, np.float32),
    )
    return ActiveRowBuffer(rows, slots, admission=Admission() if smooth else None)
