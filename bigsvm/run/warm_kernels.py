"""What a fit with a kernel calls of compiled code: the same code, on a few rows of the same kind."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.kernels.rows import CSR, sqnorms
from bigsvm.problem.problem import Problem
from bigsvm.run.kernel_outcome import kernel_model
from bigsvm.run.kernel_proofs import KernelProver
from bigsvm.run.local import SerialMapper
from bigsvm.run.plan import Plan
from bigsvm.solvers.base import Context
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.store.array_rows import ArrayRows
from bigsvm.store.blocks import Matrix, RowBlocks, kernel_matrix
from bigsvm.units import MIB

_WIDTH = 4
_FEW, _MANY = 48, 4500  # rows in memory; rows of which some stay on disk
_STEPS = 12


def warm_kernels(store: RowBlocks, plan: Plan) -> None:
    """Solve small problems by the plan's solver, in float32 and in float64, and prove and make the models."""
    solver = plan.solver
    assert isinstance(solver, KernelSolver)
    small = _rows(store, plan.problem, _FEW if plan.resident else _MANY)
    m, n = plan.shape.n_models, small.n_samples
    C = np.ones(m) if plan.problem.regression or plan.resident else np.full(m, 0.1)
    problem = dataclasses.replace(plan.problem, C=C, class_weight=np.ones(max(len(plan.problem.classes), 1)))
    sqnorms(kernel_matrix(small.read(small.refs(n)[0]).X), np.empty(n))  # what a proof asks for where values are near
    refs = small.refs(n if plan.resident else n // 4)
    with tempfile.TemporaryDirectory(prefix="bigsvm-") as folder:
        for tol in (1e-3, 1e-9):  # float32 and float64 values
            ctx = Context(
                data=small, refs=refs, resident=plan.resident, mapper=SerialMapper(), budget=MemoryBudget(64 * MIB),
                seed=0, parallel=1, threads=1, read_depth=1, group_blocks=1, proof_refs=refs, workdir=Path(folder),
                tol=tol, arena_bytes=MIB if plan.resident else 0,
            )  # fmt: skip
            _train(solver, problem, ctx)


def _train(solver: KernelSolver, problem: Problem, ctx: Context) -> None:
    """Some steps, proofs with and without a bias, a model."""
    state = solver.init(problem, ctx)
    prover = KernelProver(solver, state, ctx)
    for _ in range(_STEPS):
        if solver.step(problem, state, ctx).ask_certificate:
            break
    prover.prove()
    kernel_model(state, prover, ctx.data, {})
    solver.finish(state)


def _rows(store: RowBlocks, problem: Problem, n: int) -> ArrayRows:
    """Noisy rows of the store's kind, with labels or targets that no model fits well."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (n, _WIDTH)).astype(np.float64)
    if problem.kernel.name == "precomputed":
        values = np.minimum(values @ values.T, 100.0)
    elif store.dtype.kind == "f":
        values = rng.standard_normal((n, _WIDTH))
    width = values.shape[1]
    values = np.ascontiguousarray(values.astype(store.dtype))
    X: Matrix = values
    if store.layout == "csr":
        indices = np.tile(np.arange(width, dtype=store.index_dtype), n)
        X = CSR(values.ravel(), indices, np.arange(n + 1) * width)
    weight = np.ones(n) if store.has_weights else None
    if problem.regression:
        return ArrayRows(X, rng.standard_normal(n), weight, n_features=width, task="regression")
    y = rng.integers(0, len(problem.classes), n)
    y[: len(problem.classes)] = np.arange(len(problem.classes))
    return ArrayRows(X, y, weight, n_features=width, task="classification")
