"""What has no shards: an ingest of Parquet files as a dask collection, and predictions with a kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bigsvm
from cluster.bars import Row, bar
from cluster.cages import Cluster
from cluster.passes import run

_CORES = 0.25
_LEAST = 1.6


def measure(work: Path, smoke: bool) -> Iterator[Row]:
    """Seconds on one worker over those on two."""
    files, rows = (2, 500) if smoke else (16, 40_000)
    folder = work / "parquet"
    _write_parquet(folder, files, rows, 4 if smoke else 100)
    model, store = _kernel_model(work, smoke)
    ingests, predictions = [], []
    for workers in (1, 2):
        with Cluster(work / f"others-{workers}", workers, None if smoke else _CORES) as cluster:
            ingests.append(_ingest(cluster, folder, work / f"ingested-{workers}.zarr"))
            began = time.monotonic()
            run(cluster, ["predict", str(model), str(store), "-o", str(work / f"scores-{workers}")])
            predictions.append(time.monotonic() - began)
    for name, seconds in (("ingest of Parquet files", ingests), ("predictions with rbf", predictions)):
        what = f"{name}: {seconds[0]:.1f} and {seconds[1]:.1f} s, workers of {_CORES:g} of a core"
        yield bar("others", what, "times as fast with two workers", seconds[0] / seconds[1], _LEAST, True)


def _write_parquet(folder: Path, files: int, rows: int, columns: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(files):
        table = {f"x{k}": rng.standard_normal(rows).astype(np.float32) for k in range(columns)}
        table["y"] = np.where(table["x0"] > 0, 1.0, -1.0)
        pq.write_table(pa.table(table), folder / f"{number:03d}.parquet", compression="zstd")


def read_part(path: str) -> Any:
    """(X, y) of a Parquet file: what a partition computes on a worker."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, use_threads=False)
    y = table.column("y").to_numpy()
    columns = [column.to_numpy() for name, column in zip(table.column_names, table.columns, strict=True) if name != "y"]
    return np.ascontiguousarray(np.stack(columns, axis=1)), y


def _ingest(cluster: Cluster, folder: Path, out: Path) -> float:
    import dask
    from distributed import Client

    with Client(scheduler_file=str(cluster.file), set_as_default=False) as client:
        parts = [dask.delayed(read_part)(str(path)) for path in sorted(folder.glob("*.parquet"))]
        began = time.monotonic()
        bigsvm.ingest(parts, out, client=client)
        return time.monotonic() - began


def _kernel_model(work: Path, smoke: bool) -> tuple[Path, Path]:
    rng = np.random.default_rng(1)
    n, d, many = (200, 5, 500) if smoke else (3_000, 100, 40_000)
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
    model = work / "kernel.model"
    bigsvm.fit((X, y), kernel="rbf", tol=1e-2).model.save(model)
    store = work / "kernel-rows.zarr"
    rows = rng.standard_normal((many, d)).astype(np.float32)
    bigsvm.ingest((rows, np.where(rows[:, 0] > 0, 1.0, -1.0)), store)
    return model, store
