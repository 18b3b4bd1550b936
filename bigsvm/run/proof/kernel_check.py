"""Whether the kernel of a problem is positive semidefinite on its rows; checked before a gap is called proved.

For a precomputed kernel all rows are read once.  K must be symmetric, and everything that can refute its definiteness
at no further cost is looked for (`problem/definite.py`).  If K in float64 fits in memory beside the rows, a Cholesky
factorisation decides.  For a sigmoid or similar kernel for which the user vouches, only the diagonal is checked.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.compiled.kernel.values.support import support_of
from bigsvm.errors import DataError
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.problem.definite import ROW_BYTES, Lines, Pair, ValueCheck, is_definite, put_rows, whole_bytes
from bigsvm.problem.kernel import Definite, Kernel
from bigsvm.solvers.base import Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.values.data import own_columns
from bigsvm.store.blocks import Matrix, RowBlocks, blocks_of, readonly_view, tile

_CHECKING = "checking the kernel"
_AT_ONCE = 1 << 12  # rows whose norms are computed together
Reading = Callable[[], Iterator[tuple[int, Matrix]]]
"""Begins a reading of all rows; yields (number of the first row, X) of consecutive blocks."""


def check_needs(kernel: Kernel, n_samples: int) -> tuple[Need, ...]:
    """Bytes that the check holds in addition to the rows and to K in float64, if that fits."""
    return (Need("kernel check", ROW_BYTES * n_samples),) if kernel.name == "precomputed" else ()


def checked_kernel(kernel: Kernel, data: RowBlocks, reading: Reading, budget: MemoryBudget, decide: bool) -> Kernel:
    """`kernel` with all that is known of its definiteness on the rows of `data`.

    decide : the plan has room for K in float64.  Without it, the present state of `kernel` stays unless it is refuted

    Raises
    ------
    DataError : a precomputed kernel is not symmetric; or the user vouches for a kernel that is refuted.
    """
    if kernel.by_construction:
        return kernel
    found = kernel.definite
    if kernel.name == "precomputed":
        found = _of_values(kernel, data, reading, budget, decide)
    elif found.how == "assumed":
        found = _of_diagonal(kernel, data, reading)
    if found.how == "refuted" and kernel.definite.how == "assumed":
        raise refuted(found.why, data.uri)
    return dataclasses.replace(kernel, definite=found)


def reading_of(ctx: Context, emit: Emit) -> Reading:
    """Readings of the rows of a run, which count as reading like all others."""

    def reading() -> Iterator[tuple[int, Matrix]]:
        if ctx.resident:
            yield 0, ctx.data.read(ctx.refs[0]).X
            return
        began = time.monotonic()
        emit(WorkStarted(_CHECKING, ctx.data.n_samples, "rows"))
        for block in blocks_of(ctx.data, ctx.proof_refs):
            ctx.charge(block.nbytes)
            yield block.start, block.X
            emit(WorkAdvanced(_CHECKING, block.stop))
        emit(WorkEnded(_CHECKING, time.monotonic() - began))

    return reading


def refuted(why: str, where: str) -> DataError:
    """The error for a kernel that is not positive semidefinite although --assume-psd says so."""
    return DataError(
        f"the kernel is not positive semidefinite, though --assume-psd vouches for it: {why}",
        where,
        "leave --assume-psd out: the fit then ends where the optimality conditions hold, and proves no gap",
    )


def quadratic_refutes(kernel: Kernel, quadratic: float, squares: float, size: float) -> str:
    """Why a dual point refutes the kernel: beta'K beta is negative; '' if it does not.

    quadratic : beta'K beta;  squares : sum beta^2
    size : size of the sums of which `quadratic` was computed, which bounds their rounding
    """
    slack = kernel.definite.tolerance * squares + 2.0**-40 * size
    return f"beta'K beta = {quadratic:.6g} of the dual point is below 0" if quadratic < -slack else ""


def _of_values(kernel: Kernel, data: RowBlocks, reading: Reading, budget: MemoryBudget, decide: bool) -> Definite:
    n = data.n_samples
    check = ValueCheck(n, data.dtype)
    with ExitStack() as stack:
        whole = None
        if decide:
            stack.enter_context(budget.reserve("kernel values to factorise", whole_bytes(n)))
            whole = np.empty((n, n))
        for places, X in _placed(data, reading):
            check.add(X, places)
            if whole is not None:
                put_rows(whole, X, places)
        _refuse_asymmetry(check, data, reading)
        tolerance = check.tolerance
        found = check.refutation()
        if found is not None:
            why, pair = found
            row, column = _row_of(data, pair.row), _row_of(data, pair.column)
            return Definite("refuted", tolerance, why.format(row=row, column=column))
        if whole is None:
            return dataclasses.replace(kernel.definite, tolerance=tolerance)
        if is_definite(whole, tolerance):
            return Definite("assumed" if kernel.definite.how == "assumed" else "checked", tolerance)
        return Definite("refuted", tolerance, f"an eigenvalue lies below {-tolerance:.3g}")


def _refuse_asymmetry(check: ValueCheck, data: RowBlocks, reading: Reading) -> None:
    suspects = check.suspects()
    if not len(suspects):
        return
    lines = Lines(data.n_samples, suspects)
    for places, X in _placed(data, reading):
        lines.add(X, places)
    pair = lines.furthest()
    if pair.excess > check.asymmetry:
        raise _asymmetric(data, pair, lines.values(pair))


def _asymmetric(data: RowBlocks, pair: Pair, values: tuple[float, float]) -> DataError:
    i, j = _row_of(data, pair.row), _row_of(data, pair.column)
    return DataError(
        f"the precomputed kernel is not symmetric: K[{i}, {j}] = {values[0]!r} and K[{j}, {i}] = {values[1]!r}",
        data.uri,
        "were rows and columns ordered apart?  Rounding is forgiven; more is mended by (K + K') / 2",
    )


def _of_diagonal(kernel: Kernel, data: RowBlocks, reading: Reading) -> Definite:
    """The definiteness that follows from K(x, x) of every row: a negative value refutes it."""
    eps, n = float(np.finfo(np.float64).eps), data.n_samples
    largest, lowest, row = 0.0, np.inf, 0
    for first, X in reading():
        X = readonly_view(X)
        n_rows = len(X) if isinstance(X, np.ndarray) else len(X.indptr) - 1
        for start, stop in tile(n_rows, _AT_ONCE):
            diagonal = kernel.diagonal(support_of(X, np.arange(start, stop), np.dtype(np.float64)).sq)
            at = int(np.argmin(diagonal))
            if diagonal[at] < lowest:
                lowest, row = float(diagonal[at]), first + start + at
            largest = max(largest, float(np.abs(diagonal).max()))
    tolerance = max(n, 64) * eps * largest
    if lowest < -tolerance:
        row = row if data.row_order is None else int(data.row_order[row])
        return Definite("refuted", tolerance, f"K(x, x) = {lowest:.6g} of row {row} is below 0")
    return Definite("assumed", tolerance)


def _placed(data: RowBlocks, reading: Reading) -> Iterator[tuple[np.ndarray, Matrix]]:
    """(numbers of the columns that belong to the rows, X) of each block."""
    for first, X in reading():
        n_rows = len(X) if isinstance(X, np.ndarray) else len(X.indptr) - 1
        yield own_columns(data, np.arange(first, first + n_rows)), X


def _row_of(data: RowBlocks, place: int) -> int:
    """The row of the store that belongs to the column with this number in working order."""
    return place if data.feature_order is None else int(data.feature_order[place])
