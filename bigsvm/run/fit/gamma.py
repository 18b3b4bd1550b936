"""gamma='scale': a number that follows from the rows, found in one reading of them before a fit begins."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.csr import CSR
from bigsvm.errors import DataError
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.problem.kernel import PARAMETERS
from bigsvm.run.fit.plan import Plan
from bigsvm.store.blocks import RowBlocks, blocks_of, row_bytes
from bigsvm.store.transforms.scaling import Scaling
from bigsvm.units import MIB

_WORK = "variance"


def with_gamma(store: RowBlocks, plan: Plan, config: FitConfig, emit: Emit) -> tuple[Plan, FitConfig]:
    """Plan and options with the number that gamma='scale' means on these rows; as they are where it is one already.

    Raises DataError where rows are bad, or their variance is beyond float64.
    """
    kernel = plan.problem.kernel
    if config.gamma != "scale" or "gamma" not in PARAMETERS[kernel.name]:
        return plan, config
    began = time.monotonic()
    emit(WorkStarted(_WORK, store.n_samples, "rows"))
    gamma = scale_gamma(store, emit)
    emit(WorkEnded(_WORK, time.monotonic() - began))
    problem = dataclasses.replace(plan.problem, kernel=dataclasses.replace(kernel, gamma=gamma))
    return dataclasses.replace(plan, problem=problem), dataclasses.replace(config, gamma=gamma)


@np.errstate(over="ignore", invalid="ignore")  # the variance tells
def scale_gamma(rows: RowBlocks, emit: Emit = silent) -> float:
    """1 / (n_features * variance of all entries of X), scikit-learn's gamma='scale'; 1 where nothing varies.

    Reads the rows once, in their own order and in pieces that follow from their metadata alone: the same bits wherever
    they are kept.  Means of blocks, and sums of squares about them, are joined as by Chan, Golub and LeVeque (1983).

    Raises DataError where the variance is beyond float64.
    """
    n, mean, spread = 0, 0.0, 0.0
    refs = rows.refs(max(1, min(rows.n_samples, int(MIB // max(row_bytes(rows), 1)))))
    for block in blocks_of(rows, refs):
        n_new = block.n_rows * rows.n_features
        values = block.X.data if isinstance(block.X, CSR) else block.X.ravel()
        mean_new = float(values.sum(dtype=np.float64)) / n_new
        zeros = n_new - len(values)
        about = values.astype(np.float64)
        about -= mean_new
        np.square(about, out=about)
        spread_new = float(np.sum(about))
        if zeros:
            spread_new += zeros * (mean_new * mean_new)
        apart, total = mean_new - mean, n + n_new
        spread += spread_new + apart * apart * n * n_new / total
        mean += apart * n_new / total
        n = total
        emit(WorkAdvanced(_WORK, block.stop))
    scaling = Scaling.of(rows.recipe)
    if scaling is not None and scaling.shift is not None and not scaling.centred:
        # Rows that count as centred: each column is spread about its own mean, and the mean of all is 0.
        shift = scaling.shift
        spread = max(spread + n * mean * mean - rows.n_samples * float(np.einsum("j,j->", shift, shift)), 0.0)
    hint = "scale the features, or give gamma a number"
    if not np.isfinite(spread):
        raise DataError("--gamma scale: the variance of X is beyond float64", rows.uri, hint)
    gamma = n / (rows.n_features * spread) if spread != 0 else 1.0
    if not np.isfinite(gamma):
        raise DataError("--gamma scale: the variance of X is so small that gamma is beyond float64", rows.uri, hint)
    return gamma
