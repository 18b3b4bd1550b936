"""The plan: what a fit will hold, read and write, decided before it starts from metadata alone.

Whatever changes the mathematics (block rows, whether all rows are one resident block) is a function of
logical metadata and of options, --memory being one of them; never of clocks, cores or the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.machine import MemoryLimit, memory_limit
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.solvers.arena import packed_bytes, slots_in
from bigsvm.solvers.base import DataShape, Need, Solver
from bigsvm.solvers.registry import choose_solver
from bigsvm.store.blocks import RowBlocks, row_bytes
from bigsvm.store.group_buffers import GroupBuffers
from bigsvm.store.stage import StagedRows
from bigsvm.units import MIB, show_bytes

BLOCK_BYTES = 4 * MIB  # rows worked on together: extents from all over the data, as many as this holds
_SMALLEST_GROUP = MIB // 4
_COPY_BLOCK = MIB // 4  # a block of a working copy; the same for every budget, so that fits share copies
_EXTENTS = 4  # places that a group's rows come from, each read in one piece
_FIXED = 6 * MIB  # events, indices, interpreter objects of a run
READ_DEPTH = 2
_PARALLEL = 2  # certificate tasks counted for, a constant: decisions must not depend on the cores
_WIDE_BESIDE = 32  # bytes a weight beside w: its best copy, v, the parts of two tasks; or saving the model
_SPARE_SHARE = 16  # of streamed fits: per-row vectors of more than this part of the budget go to disk
_SMALLEST_ARENA = MIB // 4
_ARENA_SWEEPS = 20  # a pass; more gain little where features are many
_ARENA_SWEEPS_NARROW = 60  # where the arena holds many more rows than there are features, they pay
_NARROW = 16  # rows a feature, from which that is so
_LOADING = 24 * MIB  # what reading a store into memory takes: chunks of the default size, decoded
_PIECE = MIB  # bytes read from a store at a time where memory is scarce
_PIECE_COPIES = 1.25  # a piece, and its labels, weights and hashes
_UNEVEN = 1.1  # a group's bytes over those of average rows
_ROW_EXTRA = 44  # bytes a row of a block in work: order, cost, code


@dataclass(frozen=True)
class Plan:
    """What was decided, in bytes and rows."""

    solver: Solver
    why: str
    problem: Problem
    shape: DataShape
    budget_bytes: int
    mode: Literal["resident", "staged", "streamed"]
    block_rows: int
    n_blocks: int
    extent_rows: int
    """Rows read in one piece: some blocks that follow one another."""
    group_blocks: int
    """Extents, from far apart, that are worked on together."""
    arena_bytes: int
    """Of rows that stay in memory while the others stream by."""
    arena_sweeps: int
    piece_rows: int
    """Rows read from the store at a time while loading or staging."""
    staging_workers: int
    """Segments that are copied at one time, as the budget allows."""
    data_bytes: int
    """Of X, y and weights decoded; an estimate until everything was read."""
    needs: tuple[Need, ...]
    spilled: tuple[str, ...]
    scratch_bytes: int
    certificate_workers: int
    min_memory_bytes: int
    parallel: int
    memory_source: str

    @property
    def resident(self) -> bool:
        return self.mode == "resident"

    def buffers(self, data: RowBlocks) -> Callable[[], GroupBuffers] | None:
        """Makes room for a group of blocks, where `data` can be read into it."""
        if not isinstance(data, StagedRows) or self.parallel > 1:
            return None
        blocks = self.group_blocks * -(-self.extent_rows // self.block_rows)
        return lambda: data.group_buffers(blocks)

    def resolved(self) -> dict[str, Any]:
        """The values that decide the mathematics, as the model records them."""
        return {
            "solver": self.solver.name,
            "why": self.why,
            "resident": self.resident,
            "block_rows": self.block_rows,
            "n_blocks": self.n_blocks,
            "extent_rows": self.extent_rows,
            "group_extents": self.group_blocks,
            "arena_bytes": self.arena_bytes,
            "arena_sweeps": self.arena_sweeps,
            "blocks_per_round": self.parallel,
        }

    def document(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            **self.resolved(),
            "mode": self.mode,
            "budget_bytes": self.budget_bytes,
            "n_samples": self.shape.n_samples,
            "n_features": self.shape.n_features,
            "nnz": self.shape.nnz,
            "n_models": self.shape.n_models,
            "data_bytes": self.data_bytes,
            "needs": [{"what": n.what, "bytes": n.nbytes, "spilled": n.what in self.spilled} for n in self.needs],
            "scratch_bytes": self.scratch_bytes,
            "min_memory_bytes": self.min_memory_bytes,
            "memory_source": self.memory_source,
        }

    def describe(self) -> list[tuple[str, str]]:
        """Rows for people."""
        how = {
            "resident": "read once, kept in memory",
            "staged": f"copied raw to scratch ({show_bytes(self.data_bytes)}), streamed from there",
            "streamed": "streamed from the store itself in every pass",
        }[self.mode]
        rows = [
            ("solver", f"{self.solver.name} ({self.why})"),
            (
                "data",
                f"{self.shape.n_samples:,} x {self.shape.n_features:,}, {show_bytes(self.data_bytes)}; {how}",
            ),
            (
                "blocks",
                f"{self.n_blocks:,} of {self.block_rows:,} rows, read {self.extent_rows:,} rows at a time from "
                f"{self.group_blocks:,} places",
            ),
            (
                "memory",
                f"{show_bytes(self.budget_bytes)} ({self.memory_source}); {show_bytes(self.min_memory_bytes)} would do",
            ),
        ]
        for need in self.needs:
            rows.append(
                (
                    f"  {need.what}",
                    show_bytes(need.nbytes) + (" on disk" if need.what in self.spilled else ""),
                )
            )
        rows.append(("scratch", show_bytes(self.scratch_bytes)))
        return rows


def make_plan(store: RowBlocks, config: FitConfig, limit: MemoryLimit | None = None) -> Plan:
    """The plan of fitting `store` as `config` says.  Reads metadata only.

    Raises
    ------
    PlanRefused : it cannot fit; carries the smallest memory that would do.
    UsageError, Unsupported, DataError : the problem makes no sense on this store.
    """
    solver, why = choose_solver(config)
    balanced = config.class_weight == "balanced"
    # The counts only scale C; a plan does not need them, and only a reading of all labels gives them.
    counts = np.ones(0 if store.classes is None else len(store.classes), np.int64) if balanced else None
    problem = make_problem(config, store, counts)
    limit = limit or memory_limit()
    budget = config.memory_bytes(limit.nbytes)
    if config.memory is None:
        source = f"half of {show_bytes(limit.nbytes)} ({limit.source}) less 256 MiB"
    else:
        source = "as asked"
    nnz = store.nnz if store.nnz is not None else int(row_bytes(store) * store.n_samples / 8)
    K = config.blocks_per_round
    weight_bytes = solver.weight_bytes(config.tol, K)
    shape = DataShape(store.n_samples, store.n_features, nnz, problem.n_models, K, weight_bytes)
    in_memory = _Sizes(store, shape, tuple(solver.needs(shape, True)), config.stage)
    sizes = _Sizes(store, shape, tuple(solver.needs(shape, False)), config.stage)

    least = min(sizes.least_memory(), -(-in_memory.resident_bytes() // MIB) * MIB)
    if budget < least:
        raise _refused(store, budget, least)
    resident = in_memory.resident_from() <= budget
    sizes = in_memory if resident else sizes
    if resident and sizes.resident_bytes() > budget:
        least = -(-sizes.resident_bytes() // MIB) * MIB
        raise _refused(store, budget, least)
    raw = bool(getattr(store, "raw", False))
    mode: Literal["resident", "staged", "streamed"]
    mode = "resident" if resident else "streamed" if raw or config.stage == "none" else "staged"
    block_rows = store.n_samples if resident else sizes.block_rows(budget)
    spilled, taken = [], sizes.fixed_bytes(budget, resident)
    room = budget if resident else min(budget, taken + budget // _SPARE_SHARE)
    for need in sizes.needs:
        if need.may_spill:
            if taken + need.nbytes <= room:
                taken += need.nbytes
            else:
                spilled.append(need.what)
    arena = 0
    if not resident and K == 1 and getattr(solver, "arena", "off") != "off":
        kept = sum(need.nbytes for need in sizes.needs if need.may_spill and need.what not in spilled)
        arena = sizes.arena(store, budget - sizes.beside_arena(budget) - kept)
        taken = max(taken, budget if arena else 0)
    scratch = sum(need.nbytes for need in sizes.needs if need.what in spilled)
    if mode == "staged":
        scratch += sizes.data_bytes
    scratch_limit = config.scratch_limit_bytes()
    if scratch_limit is not None and scratch > scratch_limit:
        raise PlanRefused(
            f"{show_bytes(scratch_limit)} of scratch cannot hold the {show_bytes(scratch)} ({scratch} bytes) needed",
            store.uri,
            f"say --scratch-limit {-(-scratch // MIB)}MiB, more --memory, or --stage none",
        )
    spare = max(budget - taken, 0)
    return Plan(
        solver=solver,
        why=why,
        problem=problem,
        shape=shape,
        budget_bytes=budget,
        mode=mode,
        block_rows=block_rows,
        n_blocks=-(-store.n_samples // block_rows),
        extent_rows=block_rows if resident else sizes.extent_rows(budget),
        group_blocks=1 if resident else sizes.group_extents(budget),
        arena_bytes=arena,
        arena_sweeps=sizes.arena_sweeps(store, arena),
        piece_rows=(piece_rows := sizes.piece_rows(budget, resident)),
        staging_workers=sizes.staging_workers(budget, piece_rows),
        data_bytes=sizes.data_bytes,
        needs=(
            *sizes.needs,
            *([Need("arena", arena)] if arena else []),
            Need("resident data" if resident else "block window", sizes.window(budget, resident)),
        ),
        spilled=tuple(spilled),
        scratch_bytes=scratch,
        certificate_workers=_PARALLEL + min(spare // max(sizes.wide, 1), 62),
        min_memory_bytes=least,
        parallel=config.blocks_per_round,
        memory_source=source,
    )


def _refused(store: RowBlocks, budget: int, least: int) -> PlanRefused:
    return PlanRefused(
        f"{show_bytes(budget)} of memory cannot hold this fit; {show_bytes(least)} ({least} bytes) would do",
        store.uri,
        f"say --memory {least // MIB}MiB",
        min_memory_bytes=least,
    )


class _Sizes:
    """The arithmetic of a plan: pure functions of metadata and the budget."""

    def __init__(self, store: RowBlocks, shape: DataShape, needs: tuple[Need, ...], stage: str) -> None:
        self.shape, self.needs = shape, needs
        self.row_bytes = max(row_bytes(store), 1.0)
        self.data_bytes = int(self.row_bytes * shape.n_samples) + 8
        self.wide = max((need.nbytes for need in needs if not need.may_spill), default=0)
        self.raw = bool(getattr(store, "raw", False))
        self.staged = not self.raw and stage == "auto"
        # An open store keeps the chunks it read last, and every reader decodes others beside them.
        self.open_chunks = int(getattr(store, "chunk_nbytes", 0))
        self.decode = self.open_chunks * 3 // 2

    def group_bytes(self, budget: int) -> int:
        return int(min(BLOCK_BYTES, max(budget // 32, _SMALLEST_GROUP)))

    def block_rows(self, budget: int) -> int:
        """Rows of a block: of a working copy the same for every budget; else what is read in one piece."""
        if self.staged:
            return int(min(max(_COPY_BLOCK // self.row_bytes, 1), self.shape.n_samples))
        pieces = _EXTENTS if self.raw else 1
        return int(min(max(self.group_bytes(budget) // pieces // self.row_bytes, 1), self.shape.n_samples))

    def extent_rows(self, budget: int) -> int:
        rows = self.block_rows(budget)
        return rows * max(int(self.group_bytes(budget) / _EXTENTS // (rows * self.row_bytes)), 1)

    def group_extents(self, budget: int) -> int:
        return max(int(self.group_bytes(budget) // (self.extent_rows(budget) * self.row_bytes)), 1)

    def beside_arena(self, budget: int) -> int:
        return _FIXED + self.open_chunks + self.streaming(budget)

    def arena(self, store: RowBlocks, spare: int) -> int:
        """Bytes for rows that stay: all that is spare, if that is worth having."""
        nbytes = min(spare, packed_bytes(store))
        return nbytes if nbytes >= _SMALLEST_ARENA else 0

    def arena_sweeps(self, store: RowBlocks, arena: int) -> int:
        if arena == 0:
            return 0
        narrow = slots_in(arena, store) >= _NARROW * self.shape.n_features
        return _ARENA_SWEEPS_NARROW if narrow else _ARENA_SWEEPS

    def piece_rows(self, budget: int, resident: bool) -> int:
        """Rows read from the store at a time; a multiple of the block's, since staging cuts pieces into blocks."""
        if resident:
            return max(int(_PIECE // self.row_bytes), 1)
        rows = self.block_rows(budget)
        room = (budget - _FIXED - self.open_chunks - _PARALLEL * self.decode) / (_PIECE_COPIES * _PARALLEL)
        return max(int(min(room, 8 * _PIECE) // (self.row_bytes * rows)), 1) * rows

    def staging_bytes(self, piece_rows: int) -> int:
        """What one worker holds while it copies."""
        return int(_PIECE_COPIES * piece_rows * self.row_bytes) + self.decode

    def staging_workers(self, budget: int, piece_rows: int) -> int:
        spare = budget - _FIXED - self.open_chunks
        return int(min(max(spare // max(self.staging_bytes(piece_rows), 1), 1), 64))

    def window(self, budget: int, resident: bool) -> int:
        """Bytes of rows in memory at one time: all of them, or the blocks in flight and in work."""
        if resident:
            return self.data_bytes + _ROW_EXTRA * self.shape.n_samples
        rows = self.extent_rows(budget) * self.group_extents(budget)
        block = int(max(rows * self.row_bytes * _UNEVEN, self.group_bytes(budget)))
        beside = (_ROW_EXTRA + 8 * self.shape.n_models) * rows
        if self.shape.parallel == 1 and self.staged:
            return (READ_DEPTH + 1) * block + 2 * beside
        # A group is a copy beside the maps that it is made of.
        decode = 0 if self.staged else (1 + _PARALLEL) * self.decode
        return (READ_DEPTH + 1 + _PARALLEL) * 2 * block + 2 * beside + decode

    def fixed_bytes(self, budget: int, resident: bool) -> int:
        """What must be in memory whatever else spills, without an arena."""
        loading = int(_PIECE_COPIES * _PIECE) + self.decode if resident else 0
        saving = self.wide_bytes()
        copying = self.staging_bytes(self.block_rows(budget)) if self.staged and not resident else 0
        streams = not resident and self.shape.parallel == 1
        training = self.streaming(budget) if streams else self.window(budget, resident) + loading + saving
        return _FIXED + self.open_chunks + max(training, copying, saving)

    def streaming(self, budget: int) -> int:
        """What a pass over streamed rows holds: the rows, w and two copies of it, and a float64 one of a proof."""
        return self.window(budget, False) + (3 + 8 // self.shape.weight_bytes) * self.wide

    def resident_from(self) -> int:
        """Budgets from which all rows are kept in memory: a function of content and dtype, not of chunks.

        A constant stands for what reading the store takes, so that the mathematics is the same for every
        chunking; where the chunks are larger than that, `resident_bytes` is what must be there.
        """
        state = sum(need.nbytes for need in self.needs if need.may_spill)
        return _FIXED + self.window(0, True) + _LOADING + self.wide_bytes() + state

    def wide_bytes(self) -> int:
        """Bytes for arrays as large as w: while rows in memory are certified, or while the model is saved."""
        return self.wide + _WIDE_BESIDE * self.wide // self.shape.weight_bytes

    def resident_bytes(self) -> int:
        """All rows and all per-row state in memory, and what reading this store takes."""
        state = sum(need.nbytes for need in self.needs if need.may_spill)
        return max(self.resident_from(), self.fixed_bytes(0, True) + state)

    def least_memory(self) -> int:
        """The smallest budget that works, in whole MiB: blocks stream, per-row state is on disk."""
        low, high = 0, 1 << 50
        while low < high:
            middle = (low + high) // 2
            if self.fixed_bytes(middle, False) <= middle:
                high = middle
            else:
                low = middle + 1
        return -(-min(low, self.resident_bytes()) // MIB) * MIB
