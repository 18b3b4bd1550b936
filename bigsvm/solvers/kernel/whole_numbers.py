"""Rows of whole numbers: detected once in a run, whose kernel values then use integer arithmetic (`whole.py`)."""

from __future__ import annotations

import dataclasses
import time
from functools import partial

import numpy as np

from bigsvm.compile_in_child import compiled_in_child
from bigsvm.compiled.kernel.values.step import Steps, steps_of, steps_of_bytes
from bigsvm.compiled.shared.rows import CSR
from bigsvm.events import COMPILING, Emit, WorkEnded, WorkStarted
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.store.blocks import Matrix, readonly_view

_ROWS, _WIDTH = 2, 4


def with_steps(ctx: Context, kernel: Kernel, emit: Emit) -> Context:
    """`ctx` with the step that all values of the rows are multiples of; compiles or loads the loops for such rows.

    Only rows in memory and dense rows of bytes are looked at, because others would have to be read for it.
    """
    data = ctx.data
    if kernel.name == "precomputed" or not (ctx.resident or data.layout == "dense"):
        return ctx
    if ctx.resident:
        X = readonly_view(data.read(ctx.refs[0]).X)
        steps = steps_of(X)
    else:
        X = readonly_view(np.empty((0, data.n_features), data.dtype))
        steps = steps_of_bytes(data.dtype, data.n_samples, data.n_features)
    if steps.step:
        began = time.monotonic()
        emit(WorkStarted(COMPILING, 0, "functions"))
        precompile_pairs(X, emit)
        emit(WorkEnded(COMPILING, time.monotonic() - began))
    return dataclasses.replace(ctx, steps=steps)


def precompile_pairs(X: Matrix, emit: Emit) -> None:
    """Compile, or load, the loops for rows with the dtypes of X that take values as pairs of whole numbers."""
    kind = ("pairs", isinstance(X, CSR), *(array.dtype.str for array in (X if isinstance(X, CSR) else (X,))))
    compiled_in_child(kind, partial(_call_all, _tiny(X)), emit=emit)


def _tiny(X: Matrix) -> Matrix:
    """Two rows with the dtypes of X."""
    if not isinstance(X, CSR):
        return readonly_view(np.ones((_ROWS, _WIDTH), X.dtype))
    numbers = np.tile(np.arange(_WIDTH, dtype=X.indices.dtype), _ROWS)
    return readonly_view(CSR(np.ones(len(numbers), X.data.dtype), numbers, np.arange(_ROWS + 1) * _WIDTH))


def _call_all(X: Matrix) -> None:
    """Call the loops for kernel values once in each float type."""
    rows, f = np.arange(_ROWS), np.zeros(_ROWS)
    for dtype in (np.float32, np.float64):
        gram = Gram(Kernel("rbf", 1.0), _WIDTH, dtype, 1, Steps(1.0))
        support, coef = gram.support(X, rows), np.ones((_ROWS, 1))
        gram.add(X, rows, support, coef, f[None, :].copy())
        gram.add_pairs(X, rows, support, coef[:, 0].copy(), f, rows)
        gram.values(X, rows, support)
