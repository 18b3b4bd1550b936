"""Dask arrays and frames as the estimators read them: partition by partition, or as a whole where that has room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from bigsvm.config import FitConfig
from bigsvm.machine import core_count, memory_limit
from bigsvm.units import MIB


def computed_parts(estimator: Any, X: Any) -> Iterator[Any]:
    """Partitions of a collection that have rows, as NumPy, SciPy or pandas have them: as many at a time as fit."""
    from bigsvm.store.ingest.collections.dask_parts import DaskParts, partitions  # dask is loaded: it made X
    from bigsvm.store.ingest.collections.dask_source import InFlight, nbytes_of

    where = "X"
    parts = DaskParts([partitions(X, None, where)[0]], where, None)
    first = parts.first()
    in_flight = InFlight(_memory_of(estimator), estimator.threads or core_count())
    at_most = in_flight.at_most(parts, nbytes_of(first))
    found = first
    for (following,) in parts.computed(1, at_most):
        if found[0].shape[0]:
            yield found[0]
        found = (following,)
    yield found[0]


def check_room(estimator: Any, X: Any) -> None:
    """Raise ValueError where a dask array or frame of known size, that has to be in memory, exceeds `memory=`."""
    block = getattr(X, "_meta", None)
    nbytes = getattr(X, "nbytes", None)
    if estimator.memory is None or scipy.sparse.issparse(block) or not isinstance(nbytes, int | np.integer):
        return
    if nbytes > _memory_of(estimator):
        what = f"{nbytes / MIB:.0f} MiB of rows, which have to be in memory here, exceed memory={estimator.memory!r}"
        raise ValueError(f"{what}: bigsvm.ingest((X, y), 'rows.zarr'), and fit the store")


def _memory_of(estimator: Any) -> int:
    config = FitConfig.of(**({} if estimator.memory is None else {"memory": estimator.memory}))
    return config.memory_bytes(memory_limit().nbytes)
