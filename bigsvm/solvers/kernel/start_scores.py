"""The first f = K beta - t of models that are trained together, computed for all of them on the same readings.

After a cold start f is -t, and nothing is read.  After a warm start the support vectors of all models are read into
memory, as many at a time as fit, and each time one pass over the rows serves all models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.state import KernelState, make_qp
from bigsvm.solvers.kernel.values.data import KernelData, of_qp
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, support_rows


def score_all(state: KernelState, ctx: Context) -> bool:
    """Compute f of all models; False if the run is to stop before, and then the work is done again later."""
    qps = [make_qp(state, m) for m in range(state.n_models)]
    for qp in qps:
        np.negative(qp.target, out=qp.f)
    support = [np.flatnonzero(qp.beta) for qp in qps]
    own = [which if qp.rows is None else qp.rows[which] for qp, which in zip(qps, support, strict=True)]
    numbers, read = np.unique(np.concatenate(own)), ctx.bytes_read
    row_buffer = RowBuffer(state.data) if len(numbers) else None
    while row_buffer is not None and len(numbers):
        taken = numbers[: row_buffer.load(numbers[: row_buffer.capacity], charge=True)]
        values = _add(qps, _between(own, support, taken), state, row_buffer, ctx)
        if values is None:
            ctx.uncharge(read)
            return False
        state.kernel_rows += (len(taken), 0, 0, values)
        numbers = numbers[len(taken) :]
    for m, qp in enumerate(qps):
        state.asked[m] += len(support[m]) * qp.n
    state.scored[:] = True
    return True


def _between(
    own: Sequence[np.ndarray], support: Sequence[np.ndarray], taken: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each model its support vectors among the rows `taken`: (numbers in the data, places in the programme)."""
    ends = [np.searchsorted(numbers, [taken[0], taken[-1] + 1]) for numbers in own]
    return [(n[a:b], which[a:b]) for n, which, (a, b) in zip(own, support, ends, strict=True)]


def _add(
    qps: Sequence[DualQP],
    support: Sequence[tuple[np.ndarray, np.ndarray]],
    state: KernelState,
    row_buffer: RowBuffer,
    ctx: Context,
) -> int | None:
    """Add the part of the support vectors in the row buffer to f of all rows.

    Returns the number of kernel values computed, or None if the run is to stop.
    """
    data: KernelData = state.data
    gram, at_once, values = data.exact if state.precise else data.gram, support_rows(ctx), 0
    for rows in data.blocks():
        for qp, (numbers, which) in zip(qps, support, strict=True):
            mine, own = of_qp(qp, rows)
            if not len(own) or not len(which):
                continue
            f, at = np.ascontiguousarray(qp.f[mine])[None, :], row_buffer.at(numbers)
            for start in range(0, len(which), at_once):
                these = slice(start, start + at_once)
                side = data.support(row_buffer.X, at[these], numbers[these], gram)
                gram.add(rows.X, own - rows.offset, side, qp.beta[which[these]][:, None], f)
            qp.f[mine] = f[0]
            values += len(own) * len(which)
        if ctx.stopping():
            return None
    return values
