"""What a fit with a kernel calls of compiled code: the same code, on a few rows of the same kind."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.compiled.shared.rows import CSR, sqnorms
from bigsvm.model.decide import models_of
from bigsvm.problem.definite import is_definite
from bigsvm.problem.problem import Problem
from bigsvm.run.execute.local import SerialMapper
from bigsvm.run.fit.kernel_outcome import kernel_model
from bigsvm.run.fit.plan import Plan
from bigsvm.run.proof.kernel_prover import KernelProver
from bigsvm.solvers.base import Context
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.smo.smo import Smo
from bigsvm.solvers.kernel.values.data_rows import DataRows
from bigsvm.store.blocks import Matrix, RowBlocks, kernel_matrix
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.units import MIB

_WIDTH = 4
_TINY, _FEW = 4, 48  # rows: so few that all may be free at once; some at a bound
_MANY = 4500  # rows of which `smo` leaves some on disk
_STEPS = 60
_SWEEPS = 4  # n^2 kernel values that a step may ask for


def warm_kernels(store: RowBlocks, plan: Plan) -> None:
    """Solve small problems by the plan's solver, in float32 and in float64, prove them and make their models."""
    solver = plan.solver
    assert isinstance(solver, KernelSolver)
    sizes = [_TINY, _FEW]
    if not plan.resident and isinstance(solver, Smo) and not solver.by_pairs:
        sizes.append(_MANY)
    for n in sizes:
        problem = _small_problem(plan.problem, n)
        small = _rows(store, problem, n)
        refs = small.refs(n if plan.resident else -(-n // 4))
        with tempfile.TemporaryDirectory(prefix="bigsvm-") as folder:
            for tol in (1e-3, 1e-9):  # float32 and float64 values
                ctx = Context(
                    data=small, refs=refs, resident=plan.resident, mapper=SerialMapper(), budget=MemoryBudget(64 * MIB),
                    seed=0, parallel=1, threads=1, read_depth=1, group_blocks=1, proof_refs=refs, workdir=Path(folder),
                    tol=tol, arena_bytes=MIB if plan.resident else 0, sweeps_left=_SWEEPS,
                )  # fmt: skip
                _train(solver, problem, ctx)
    X = kernel_matrix(small.read(small.refs(n)[0]).X)
    sqnorms(X, np.empty(n))  # what a proof asks for where values are near
    is_definite(np.eye(2), 1.0)  # of precomputed values: LAPACK is loaded when it is first called


def _small_problem(problem: Problem, n_rows: int) -> Problem:
    """The same of a few classes: no type depends on how many there are."""
    classes = problem.classes[: 3 if n_rows == _FEW else 2]
    positive, negative = models_of(len(classes), problem.pairs)
    if problem.regression:
        positive, negative = problem.positive, problem.negative
    ones = np.ones(max(len(classes), 1))
    C = np.full(len(positive), 100.0 if n_rows == _TINY else 0.1)
    # No type depends on a kernel's parameters, and with the user's own even a small problem may be hopeless.
    kernel = dataclasses.replace(problem.kernel, gamma=1.0 / _WIDTH, coef0=1.0, degree=2)
    return dataclasses.replace(
        problem, kernel=kernel, C=C, class_weight=ones, classes=classes, positive=positive, negative=negative
    )  # fmt: skip


def _train(solver: KernelSolver, problem: Problem, ctx: Context) -> None:
    """Some steps, proofs with and without a bias, a model."""
    state = solver.init(problem, ctx)
    for gram in (state.data.gram, state.data.exact):
        rows, some = DataRows(state.data, gram, None), np.arange(2)
        rows.update(np.zeros(rows.n), some, np.ones(2))
        rows.fetch(some)
        rows.block(some, some + 1)
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
