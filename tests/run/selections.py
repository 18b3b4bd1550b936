"""Stores in which several columns may be labels or weights, and fits of what is selected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
import zarr

from bigsvm.config import FitConfig
from bigsvm.run.fit.fit import fit_store
from bigsvm.store.formats.opener import open_store
from tests.store import formats

N, D = 150, 6
WEIGHTS = np.where(np.arange(N) % 3 == 0, 4.0, 0.5)


def matrix(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.7)).astype(np.float32)


def columns(X: np.ndarray) -> dict[str, np.ndarray]:
    """Columns that may all serve as labels: two of classes, one of numbers that are classes or targets."""
    return {
        "label": np.where(X[:, 0] > 0, 1, -1),
        "other": np.where(X[:, 1] > 0, 1, -1),
        "several": np.rint(np.clip(3 * X[:, 2], -2, 2)).astype(np.int64),
    }


def zarr_store(path: Path, layout: str, version: int, seed: int = 0) -> Path:
    X = matrix(seed)
    formats.foreign(path, X, columns(X)["label"], version=version, layout=layout)
    frame = zarr.open_group(path, mode="a")["obs"]
    for name, values in (("other", columns(X)["other"]), ("several", columns(X)["several"]), ("w", WEIGHTS)):
        frame.create_array(name, data=values, chunks=(16,))
    return path


def parquet_store(path: Path, layout: str) -> Path:
    X = matrix()
    formats.parquet(path, X, columns(X)["label"], layout=layout)
    table = pq.read_table(path)
    for name in ("other", "several"):
        table = table.append_column(name, pa.array(columns(X)[name]))
    pq.write_table(table.append_column("w", pa.array(WEIGHTS)), path, row_group_size=40)
    return path


Opener = Callable[..., Any]


def by_name(path: Path) -> Opener:
    return lambda **selected: open_store(path, **({} if "labels" in selected else {"label": "label"}) | selected)


def arrays(layout: str) -> Opener:
    def opened(label: str = "label", weight: str | None = None, task: Any = "auto") -> Any:
        X = matrix()
        rows = X if layout == "dense" else formats.csr(X)
        if layout == "csr":
            rows = scipy.sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=X.shape)
        y = columns(X)[label]
        return open_store((rows, y) if weight is None else (rows, y, WEIGHTS), task=task)

    return opened


LINEAR = {"solver": "dcd", "loss": "hinge", "memory": "64MiB"}
BY_NEWTON = {"solver": "newton", "loss": "squared_hinge", "memory": "64MiB"}


def fitted(store: Any, options: dict[str, Any], scratch: Path, model: Path) -> Path:
    result = fit_store(store, FitConfig.of(**{**options, "scratch": str(scratch)}))
    result.save_model(model)
    result.close()
    return model
