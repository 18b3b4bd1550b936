"""What a run will call of compiled code, called once on two rows before its clock and its memory count begin."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.compiled.linear.active_row_buffer import evict
from bigsvm.compiled.linear.dual_cd import dual_cd_sweeps, dual_cd_visit
from bigsvm.compiled.linear.gap_terms import N_SUMS, certify_rows, distances
from bigsvm.compiled.linear.primal import add_rows
from bigsvm.compiled.shared.fingerprint import content_hash, first_bad_value
from bigsvm.compiled.shared.losses import HINGE, SQUARED_HINGE, DualBox
from bigsvm.compiled.shared.rows import CSR, decision, sqnorms
from bigsvm.compiled.shared.visiting import shuffled
from bigsvm.config import OPTIONS
from bigsvm.events import silent
from bigsvm.problem.problem import zero_weights
from bigsvm.run.copies.column_copy import staged_columns
from bigsvm.run.copies.staging import staged
from bigsvm.run.execute.aside import compiled_aside
from bigsvm.run.execute.local import SerialMapper
from bigsvm.run.fit.plan import Plan
from bigsvm.run.fit.warm_kernels import warm_kernels
from bigsvm.solvers.base import Context
from bigsvm.solvers.dcd.active_row_buffer import make_arena
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.solvers.dcd.dual_cd_state import groups_of_models
from bigsvm.solvers.dcd.momentum import Momentum
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.primal.line_search import exact_step
from bigsvm.store.blocks import BlockGroup, Matrix, RowBlocks, kernel_matrix
from bigsvm.store.columns.column_blocks import ResidentColumns
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.state.vectors import RowVector
from bigsvm.store.working_order import MANY_FEATURES
from bigsvm.units import MIB

_WARM_STEPS = 6
_MANY_ROWS = 4096  # enough for a sample to tell that they are sorted


def warm(store: RowBlocks, plan: Plan | None = None, n_models: int = 1) -> None:
    """Compile, or load, every kernel that a fit (with its plan), certificate or prediction on `store` will call."""
    kind: tuple[Any, ...] = (store.layout, store.dtype.name, store.index_dtype.name, store.has_weights)
    if plan is None:
        compiled_aside(("proof", *kind, n_models), lambda: warm_for(store, n_models))
        return
    how: tuple[object, ...] = (
        plan.resident,
        plan.parallel,
        plan.shape.n_models,
        plan.shape.weight_bytes,
        plan.arena_bytes > 0,
    )

    def fit() -> None:
        warm_for(store, plan.shape.n_models)
        if isinstance(plan.solver, DualCD):
            warm_training(store, plan)
        elif isinstance(plan.solver, KernelSolver):
            warm_kernels(store, plan)
        else:
            warm_by_fitting(store, plan)

    if isinstance(plan.solver, KernelSolver):
        how += (plan.problem.kernel.name, plan.problem.regression, plan.problem.pairs)
    asked = getattr(plan.solver, "asked", None)
    how += tuple(getattr(asked, name) for name, option in OPTIONS.items() if asked and option.solvers)
    compiled_aside(("fit", repr(plan.solver), *kind, *how, plan.arena_packed), fit)
    if plan.mode == "staged":
        # Once: loading it takes next to no memory, and the call makes a small copy.
        compiled_aside(("staging", *kind), lambda: warm_staging(store), load=False)


def warm_for(store: RowBlocks, n_models: int) -> None:
    """What a certificate or a prediction calls."""
    X = _two_rows(store.layout, store.dtype, store.index_dtype)
    codes, positive, cost = np.array([0, 1], np.int32), np.ones(n_models, np.int32), np.ones(2)
    C, w, alpha = np.ones(n_models), zero_weights(1, n_models), np.zeros((2, n_models))
    box = DualBox(0, 1.0, 0.0, 1.0)
    scales, ones = np.empty(0), np.ones(n_models)
    certify_rows(X, codes, positive, cost, C, alpha, w, w.copy(), box, scales, np.zeros((n_models, N_SUMS)))
    distances(w, ones, w.copy(), np.zeros((n_models, 3)), 0)
    decision(X, np.zeros((1, n_models)), np.empty((2, n_models)))
    content_hash(X, np.zeros(2, np.uint64), cost, 0)
    first_bad_value(np.ones(2, store.dtype))


def warm_training(store: RowBlocks, plan: Plan) -> None:
    """What training by `plan` calls: a step on two rows, streamed or in memory as the plan has it."""
    width = 1 if store.layout == "csr" else store.n_features
    X = _two_rows(store.layout, store.dtype, store.index_dtype, width)
    codes, cost, classes = np.array([0, 1], np.int32), np.ones(2), np.ones(2)
    weights = np.ones(2 if store.has_weights else 0)
    sqnorm, box = np.ones((2, 1)), DualBox(0, 1.0, 0.0, 1.0)
    wide = np.float32 if plan.shape.weight_bytes == 4 else np.float64
    for models in groups_of_models(plan.shape.n_models, plan.parallel):
        m = models.stop - models.start
        C, positive, alpha, W = np.ones(m), np.ones(m, np.int32), np.zeros((2, m)), zero_weights(width, m, wide)
        stats, thresholds, active = np.zeros((m, 4)), np.zeros((2, m)), np.ones((2, 1), np.uint8)[:, 0]
        shuffled(2, 0, 0, 0)
        sqnorms(X, sqnorm[:, 0])
        sums = np.zeros((m, N_SUMS))
        certify_rows(X, codes, positive, cost, C, alpha, W, np.zeros(W.shape), box, np.empty(0), sums)
        distances(W, np.ones(m), np.zeros(W.shape), np.zeros((m, 3)), 0)
        if plan.resident:
            if m > 8:
                active = active.astype(np.uint64)
            dual_cd_sweeps(
                X, codes, classes, weights, positive, C, sqnorm[:, 0], alpha, W, active, box, 1.0, thresholds, 1,
                True, 1, 0, 0, 0, 0.0, 0.0, np.zeros(m), stats,
            )  # fmt: skip
            continue
        sqnorms(X, sqnorm.ravel())
        order, score, at = np.zeros(2, np.int64), np.ones(2, np.float32), np.arange(2)
        dual_cd_visit(
            X, codes, classes, weights, positive, C, sqnorm.ravel(), alpha, at, W, active, box, 1.0, 1, 0, 0, 0,
            order, stats, score,
        )  # fmt: skip
        part = dataclasses.replace(plan.problem, C=C, positive=positive, class_weight=classes)
        former, latter = (
            RowVector("warm", 2, m, np.float64, MemoryBudget(MIB), Path(tempfile.gettempdir())) for _ in range(2)
        )
        Momentum.new(W, former).leap(part, W, latter, np.empty(0))
        if plan.arena_bytes:
            arena = make_arena(4096, store, plan.arena_packed, at_least=2)
            arena.admit(X, codes, weights, sqnorm.ravel(), at, order, score, active)
            arena.sweep(part, alpha, W, (0, 0), 0)
            evict(arena.rows, arena.slots, arena.n, 0.0, active, np.empty(1, np.uint16))


def warm_by_fitting(store: RowBlocks, plan: Plan) -> None:
    """What a solver calls, whatever that is: a few of its steps on a few rows in memory.

    Noisy rows, so that searches end on a kink and between two, and rows lie on both sides and near their hyperplanes.
    """
    n, width, m = 32, 4, plan.shape.n_models
    rng = np.random.default_rng(0)
    values = rng.standard_normal((n, width)) if store.dtype.kind == "f" else rng.integers(0, 5, (n, width))
    X: Matrix = values.astype(store.dtype)
    if store.layout == "csr":
        indices = np.tile(np.arange(width, dtype=store.index_dtype), n)
        X = CSR(values.ravel().astype(store.dtype), indices, np.arange(n + 1) * width)
    n_classes = len(plan.problem.classes)
    y = np.arange(n) % (n_classes or n)
    small = ArrayRows(X, y.astype(np.int64), np.ones(n) if store.has_weights else None, n_features=width)
    problem = dataclasses.replace(plan.problem, C=np.ones(m), class_weight=np.ones(n_classes))
    with tempfile.TemporaryDirectory(prefix="bigsvm-") as folder:
        refs = small.refs(n)
        ctx = Context(
            data=small, refs=refs, resident=True, mapper=SerialMapper(), budget=MemoryBudget(MIB << 10), seed=0,
            parallel=1, threads=1, read_depth=1, group_blocks=1, proof_refs=refs, workdir=Path(folder), tol=1e-12,
            columns=lambda: ResidentColumns(small.read(refs[0]), small.n_features),
        )  # fmt: skip
        if not plan.resident and getattr(plan.solver, "column_access", False):
            with staged_columns(small, Path(folder), MIB, None, silent) as copy:
                copy.read(copy.refs(MIB)[0])
        state = plan.solver.init(problem, ctx)
        for _ in range(_WARM_STEPS):
            plan.solver.step(problem, state, ctx)
        s, p, cost = np.ones((2, m)), np.ones((2, m)), np.ones((2, 1))
        for code in (HINGE, SQUARED_HINGE):  # a search that ends on a kink, and one that does not
            exact_step(lambda: iter([(s[:, 0], p[:, 0], cost[:, 0])]), 1.0, code, 0.0, 1.0)
        shuffled(2, 0, 0, 0)
        if m > 1:  # what a working set folds: so few rows are kept all
            rows, codes = kernel_matrix(X), y.astype(np.int32)
            add_rows(rows, codes, problem.positive, np.zeros((n, m)), 1.0, zero_weights(width, m))
        plan.solver.finish(state)


def warm_staging(store: RowBlocks) -> None:
    """What making a working copy calls: a small one is made, of sorted rows with many features."""
    n, width = _MANY_ROWS, 2 if store.layout == "dense" else MANY_FEATURES + 2
    X: Matrix
    if store.layout == "csr":
        X = CSR(np.ones(n, store.dtype), np.arange(n, dtype=store.index_dtype) % width, np.arange(n + 1))
    else:
        X = np.ones((n, width), store.dtype)
    y = np.arange(n) >= n // 2
    weight = np.ones(n) if store.has_weights else None
    small = ArrayRows(X, y.astype(np.int64), weight, n_features=width)
    with (
        tempfile.TemporaryDirectory(prefix="bigsvm-") as folder,
        staged(small, Path(folder), n // 4, n // 4, 1 << 20, None, SerialMapper(), silent, memory=MIB) as copy,
    ):
        refs = copy.refs(n // 4)
        copy.read_group(BlockGroup((refs[0], refs[1])), copy.group_buffers(2))


def _two_rows(layout: str, dtype: np.dtype, index_dtype: np.dtype, width: int = 1) -> Matrix:
    if layout == "csr":
        return kernel_matrix(CSR(np.ones(2, dtype), np.zeros(2, index_dtype), np.arange(3)))
    return kernel_matrix(np.ones((2, width), dtype))
