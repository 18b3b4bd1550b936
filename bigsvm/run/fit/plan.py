"""The plan: what a fit will hold, read and write, decided before it starts from metadata alone.

Whatever changes the model (rows of a block, whether all rows are in memory) is a function of logical metadata and of
options, --memory being one of them; never of clocks, cores or the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bigsvm.config import BASE_BYTES, FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.machine import MemoryLimit, memory_limit
from bigsvm.problem.definite import whole_bytes
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.run.fit.cache_plan import CachePlan, needed, plan_cache
from bigsvm.run.fit.choice import Chosen, choose, least_memory
from bigsvm.run.fit.sizes import PARALLEL, SPARE_SHARE, Sizes
from bigsvm.run.proof.kernel_check import check_needs
from bigsvm.solvers.base import DataShape, Need, Solver
from bigsvm.solvers.kernel.values.row_keeping import CACHE
from bigsvm.solvers.newton_ws.capacity import working_bytes
from bigsvm.solvers.shards import extent_rows_of, rounds_of, shards_of
from bigsvm.store.blocks import RowBlocks, row_bytes
from bigsvm.store.columns.column_addresses import row_dtype
from bigsvm.store.columns.column_writer import copy_bytes
from bigsvm.store.copy.group_buffers import GroupBuffers
from bigsvm.store.copy.stage import StagedRows
from bigsvm.units import MIB, counted, show_bytes

RESIDENT_DATA, BLOCK_WINDOW = "resident data", "block window"
"""The need of rows: all of them, or those that are read ahead and in work."""


@dataclass(frozen=True)
class Plan:
    """What was decided, in bytes and rows."""

    solver: Solver
    why: str
    """The reason for the solver, in words."""
    problem: Problem
    shape: DataShape
    budget_bytes: int
    mode: Literal["resident", "staged", "streamed"]
    block_rows: int
    n_blocks: int
    extent_rows: int
    """Rows of an extent: consecutive blocks that are read in one piece."""
    group_blocks: int
    """Extents of a group, from far apart, that are worked on together."""
    row_buffer_bytes: int
    """Size of the row buffer: rows that stay in memory while the others stream; 0 for none."""
    row_buffer_sweeps: int
    """Sweeps of the row buffer in a pass."""
    row_buffer_packed: bool
    """Values in the row buffer are rounded to 16 bits; proofs read the exact rows."""
    piece_rows: int
    """Rows read from the store at a time while loading or staging."""
    staging_workers: int
    """Segments that may be copied at one time."""
    data_bytes: int
    """Decoded bytes of X, y and weights; an estimate until all rows were read."""
    fixed_bytes: int
    """Of what every process holds whatever it does: small things, names of features, values of text columns."""
    needs: tuple[Need, ...]
    """The memory of the fit, by name."""
    decides_kernel: bool
    """There is room to factorise a precomputed kernel, which decides whether it is positive semidefinite."""
    cache: CachePlan
    """The cache of kernel rows; the model does not depend on it."""
    spilled: tuple[str, ...]
    """Names of the needs that go to disk."""
    scratch_bytes: int
    certificate_workers: int
    """Tasks of a proof that may run at one time."""
    min_memory_bytes: int
    """The smallest budget in which this fit works."""
    shards: int
    """Parts of the rows that are trained apart, and added up `rounds_per_pass` times in a pass."""
    rounds_per_pass: int
    memory_source: str
    """Where the budget comes from, in words."""

    @property
    def resident(self) -> bool:
        return self.mode == "resident"

    @property
    def window_bytes(self) -> int:
        """Bytes of rows in memory at one time: of all rows, or of those that are read ahead and in work."""
        return next(need.nbytes for need in self.needs if need.what in (RESIDENT_DATA, BLOCK_WINDOW))

    @property
    def shares_scratch(self) -> bool:
        """Whether other processes need what is in the scratch folder."""
        return self.mode == "staged" or self.shards > 1

    def buffers(self, data: RowBlocks) -> Callable[[], GroupBuffers] | None:
        """A function that makes buffers for a group of blocks; None if `data` cannot be read into buffers."""
        if not isinstance(data, StagedRows) or self.shards > 1:
            return None
        blocks = self.group_blocks * -(-self.extent_rows // self.block_rows)
        return lambda: data.group_buffers(blocks)

    def resolved(self) -> dict[str, Any]:
        """The part of the plan that a model records: what decides the model, and why the solver was chosen."""
        return {**self.decisive(), "why": self.why}

    def decisive(self) -> dict[str, Any]:
        """The values that the model depends on."""
        return {
            "solver": self.solver.name,
            "resident": self.resident,
            "block_rows": self.block_rows,
            "n_blocks": self.n_blocks,
            "extent_rows": self.extent_rows,
            "group_extents": self.group_blocks,
            "row_buffer_bytes": self.row_buffer_bytes,
            "row_buffer_sweeps": self.row_buffer_sweeps,
            "row_buffer_packed": self.row_buffer_packed,
            "shards": self.shards,
            "rounds_per_pass": self.rounds_per_pass,
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
            "decides_kernel": self.decides_kernel if self.problem.kernel.name == "precomputed" else None,
            "kernel_rows": self.cache._asdict() if self.cache.memory_bytes else None,
            "min_memory_bytes": self.min_memory_bytes,
            "memory_source": self.memory_source,
        }

    def describe(self) -> list[tuple[str, str]]:
        """The plan for people: (name, value) of each line."""
        how = {
            "resident": "read once, kept in memory",
            "staged": "copied to scratch, streamed from there",
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
                f"{counted(self.n_blocks, 'block', commas=True)} of {counted(self.block_rows, 'row', commas=True)}, "
                f"read {counted(self.extent_rows, 'row', commas=True)} at a time from "
                f"{counted(self.group_blocks, 'place', commas=True)}",
            ),
            (
                "memory",
                f"{show_bytes(self.budget_bytes)} ({self.memory_source}); "
                f"a fit needs at least {show_bytes(self.min_memory_bytes)}",
            ),
        ]
        if self.shards > 1:
            rounds = f"{self.rounds_per_pass:,} times in a pass" if self.rounds_per_pass > 1 else "once a pass"
            rows.append(("shards", f"{self.shards:,}, added up {rounds}"))
        for need in self.needs:
            rows.append(
                (
                    f"  {need.what}",
                    show_bytes(need.nbytes) + (" on disk" if need.what in self.spilled else ""),
                )
            )
        if self.problem.kernel.name == "precomputed" and self.problem.kernel.definite.how != "assumed":
            whole = show_bytes(whole_bytes(self.shape.n_samples))
            how = f"factorised once, in {whole}" if self.decides_kernel else f"gaps are estimates: {whole} would decide"
            rows.append(("kernel check", how))
        rows.extend(self.cache.describe())
        rows.append(("scratch", show_bytes(self.scratch_bytes)))
        return rows


def make_plan(
    store: RowBlocks, config: FitConfig, limit: MemoryLimit | None = None, folded: bool = False,
    begun_with: str | None = None,
) -> Plan:  # fmt: skip
    """The plan of fitting `store` as `config` says.  Reads metadata only.

    folded : the models differ in the rows that take part (`problem/axis.py`)
    begun_with : the solver with which the fit began that goes on: 'auto' keeps it, though it would now choose another

    Raises
    ------
    PlanRefused : it cannot fit; carries the smallest memory that would do.
    UsageError, Unsupported, DataError : the problem makes no sense on this store.
    """
    balanced = config.class_weight == "balanced"
    # Balanced weights only scale C, which a plan does not need; counting the classes would read all labels.
    counts = np.ones(0 if store.classes is None else len(store.classes), np.int64) if balanced else None
    problem = make_problem(config, store, counts)
    limit = limit or memory_limit()
    budget = config.memory_bytes(limit.nbytes)
    if config.memory is None:
        source = f"half of {show_bytes(limit.nbytes)} ({limit.source}) less {show_bytes(BASE_BYTES)}"
    else:
        source = "as asked"
    nnz = store.nnz if store.nnz is not None else int(row_bytes(store) * store.n_samples / 8)
    entry_bytes = store.dtype.itemsize + (row_dtype(store.n_samples).itemsize if store.layout == "csr" else 0)
    weighted = store.has_weights or config.class_weight is not None
    whole = folded or (problem.joint and config.shards is None)
    shards = 1 if whole else shards_of(config, int(row_bytes(store) * store.n_samples))
    shape = DataShape(
        store.n_samples, store.n_features, nnz, problem.n_models, shards, entry_bytes=entry_bytes, weighted=weighted,
        n_costs=problem.n_costs, smooth_loss=problem.loss.smooth, regression=problem.regression,
        centred=problem.centre is not None, folded=folded, joint=problem.joint,
        label_sets=problem.member is not None, models_per_row=problem.models_per_row,
    )  # fmt: skip
    chosen = choose(store, config, problem, shape, budget, begun_with)
    least = least_memory(store, config, problem, shape, chosen, begun_with)
    wanted = chosen.wanted(budget)
    if wanted:
        would, use = f"{show_bytes(least)} ({least} bytes) would do", f"use --memory {least // MIB}MiB"
        if least < budget:  # a smaller budget works, since rows then stream; this one is between the two
            would += f" for rows that stream, and {show_bytes(wanted)} for all of them"
            use += f", or {wanted // MIB}MiB"
        raise PlanRefused(
            f"{show_bytes(budget)} of memory cannot hold this fit; {would}", store.uri, use, min_memory_bytes=least
        )
    least = min(least, budget)  # `least_memory` may have found a larger one, by another solver
    return _planned(store, config, problem, chosen, budget, least, source)


def _planned(
    store: RowBlocks, config: FitConfig, problem: Problem, chosen: Chosen, budget: int, least: int, source: str
) -> Plan:  # fmt: skip
    """The plan for a budget that is known to be enough.

    least : smallest budget that works;  source : where the budget comes from, in words
    """
    solver, shape = chosen.solver, chosen.shape
    resident = chosen.keeps_all_rows(budget)
    sizes = chosen.whole if resident else chosen.streamed
    mode: Literal["resident", "staged", "streamed"]
    mode = "resident" if resident else "streamed" if config.stage == "none" else "staged"
    block_rows = store.n_samples if resident else sizes.block_rows(budget)
    spilled, taken = _spilled(sizes, budget, resident)
    least_cache = needed(sizes.needs)
    spare = _spare(sizes, spilled, budget, resident)
    row_buffer = _row_buffer(store, chosen, sizes, spare, resident)
    scratch = _scratch_bytes(store, config, chosen, spilled, mode)
    cache = CachePlan()
    if least_cache:
        left = max(spare - row_buffer, 0)
        cache = plan_cache(store, shape, config, budget, least_cache + left, resident, scratch)
        cache = cache._replace(memory_bytes=max(cache.memory_bytes, least_cache))
    if row_buffer or least_cache:  # they take all that is left
        taken = max(taken, budget)
    unused = max(budget - taken, 0)
    window = sizes.window(budget, resident)
    checking = sum(need.nbytes for need in check_needs(problem.kernel, store.n_samples))
    return Plan(
        solver=solver,
        why=chosen.why,
        problem=problem,
        shape=shape,
        budget_bytes=budget,
        mode=mode,
        block_rows=block_rows,
        n_blocks=-(-store.n_samples // block_rows),
        extent_rows=block_rows if resident else extent_rows_of(sizes.extent_rows(budget), shape),
        group_blocks=1 if resident else sizes.group_extents(budget),
        row_buffer_bytes=row_buffer,
        row_buffer_sweeps=sizes.row_buffer_sweeps(store, row_buffer),
        row_buffer_packed=chosen.packed,
        piece_rows=(piece_rows := sizes.piece_rows(budget, resident)),
        staging_workers=sizes.staging_workers(budget, piece_rows),
        data_bytes=sizes.data_bytes,
        fixed_bytes=sizes.fixed,
        needs=(
            *(need._replace(nbytes=cache.memory_bytes) if need.what == CACHE else need for need in sizes.needs),
            *([Need("row buffer", row_buffer)] if row_buffer else []),
            Need(RESIDENT_DATA if resident else BLOCK_WINDOW, window),
        ),
        # The check runs before anything else is kept beside the rows, so it may use all the memory that is left.
        decides_kernel=resident
        and problem.kernel.name == "precomputed"
        and sizes.fixed + window + checking + whole_bytes(store.n_samples) <= budget,
        cache=cache,
        spilled=tuple(spilled),
        scratch_bytes=scratch,
        certificate_workers=PARALLEL + min(unused // max(sizes.wide, 1), 62),
        min_memory_bytes=least,
        shards=shape.shards,
        rounds_per_pass=rounds_of(config, shape, sizes.data_bytes, solver),
        memory_source=source,
    )


def _spilled(sizes: Sizes, budget: int, resident: bool) -> tuple[list[str], int]:
    """The names of the needs that go to disk, and the bytes of memory that are taken without them.

    If rows stream, most of the memory is left for the row buffer, so only small vectors stay in memory.
    """
    spilled, taken = [], sizes.fixed_bytes(budget, resident)
    room = budget if resident else min(budget, taken + budget // SPARE_SHARE)
    for need in sizes.needs:
        if need.may_spill:
            if taken + need.nbytes <= room:
                taken += need.nbytes
            else:
                spilled.append(need.what)
    return spilled, taken


def _spare(sizes: Sizes, spilled: list[str], budget: int, resident: bool) -> int:
    """Bytes that are left for a row buffer or a cache of kernel rows."""
    kept = sum(need.nbytes for need in sizes.needs if need.may_spill and need.what not in spilled)
    beside = sizes.fixed_bytes(budget, True) if resident else sizes.beside_row_buffer(budget)
    return budget - beside - kept


def _row_buffer(store: RowBlocks, chosen: Chosen, sizes: Sizes, spare: int, resident: bool) -> int:
    """Bytes of the row buffer; 0 without one."""
    solver, keeps = chosen.solver, chosen.solver.keeps_rows
    if keeps == "off" or (keeps == "auto" and resident):
        return 0
    # Beside a cache the row buffer gets half of what is left, even if --cache-memory leaves more: the model depends on
    # the row buffer, and must not depend on the cache.
    row_buffer = sizes.row_buffer(store, spare // 2 if needed(sizes.needs) else spare, keeps == "always")
    if row_buffer and resident and solver.proof == "linear" and chosen.shape.n_models > 1:  # each has rows of its own
        row_buffer = max(row_buffer, min(spare, working_bytes(chosen.shape, store.n_samples)))
    return row_buffer


def _scratch_bytes(store: RowBlocks, config: FitConfig, chosen: Chosen, spilled: list[str], mode: str) -> int:
    """Bytes on the scratch disk.  Raises PlanRefused if --scratch-limit is less."""
    sizes = chosen.whole if mode == "resident" else chosen.streamed
    scratch = sum(need.nbytes for need in sizes.needs if need.what in spilled)
    if mode == "staged":
        scratch += sizes.data_bytes
    if mode != "resident" and chosen.solver.column_access:
        scratch += copy_bytes(store)
    limit = config.scratch_limit_bytes()
    if limit is not None and scratch > limit:
        raise PlanRefused(
            f"{show_bytes(limit)} of scratch cannot hold the {show_bytes(scratch)} ({scratch} bytes) needed",
            store.uri,
            f"use --scratch-limit {-(-scratch // MIB)}MiB, more --memory, or --stage none",
        )
    return scratch
