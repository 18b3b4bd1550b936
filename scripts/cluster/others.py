"""What has no shards: an ingest of Parquet files as a dask collection, and predictions with a kernel."""

from __future__ import annotations

import shutil
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
_PAIRS = 3
_LEAST = 1.6


def measure(work: Path, smoke: bool) -> Iterator[Row]:
    """Seconds on one worker over those on two."""
    files, rows = (2, 500) if smoke else (48, 40_000)
    folder = work / "parquet"
    _write_parquet(folder, files, rows, 4 if smoke else 100)
    model, few, store = _kernel_model(work, smoke)
    ingests: list[list[float]] = []
    predictions: list[list[float]] = []
    for turn in range(1 if smoke else _PAIRS):
        ingests.append([])
        predictions.append([])
        for workers in (1, 2):
            with Cluster(work / f"others-{turn}-{workers}", workers, None if smoke else _CORES) as cluster:
                ingests[-1].append(_ingest(cluster, folder, work / f"ingested-{workers}.zarr"))
                out = str(work / f"scores-{turn}-{workers}")
                run(cluster, ["predict", str(model), str(few), "-o", f"{out}-first"])  # as above: what is loaded once
                began = time.monotonic()
                run(cluster, ["predict", str(model), str(store), "-o", out])
                predictions[-1].append(time.monotonic() - began)
            for written in work.glob("ingested-*"):
                shutil.rmtree(written)
    for name, pairs in (("ingest of Parquet files", ingests), ("predictions of many rows with rbf", predictions)):
        one, two = sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2]
        of = f"the middle one of {len(pairs)} pairs in turns"
        what = f"{name}: {one:.1f} and {two:.1f} s, {of}, workers of {_CORES:g} of a core, a caller of one"
        yield bar("others", what, "times as fast with two workers", one / two, _LEAST, True)


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


_INGEST = f"""
import json, sys, time
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
import dask
import bigsvm
from pathlib import Path
from distributed import Client
from cluster.others import read_part

folder, out, file = Path(sys.argv[1]), sys.argv[2], sys.argv[-1]
with Client(scheduler_file=file, set_as_default=False) as client:
    parts = [dask.delayed(read_part)(str(path)) for path in sorted(folder.glob("*.parquet"))]
    client.run(read_part, str(min(folder.glob("*.parquet"))))  # what a process imports once does not count
    bigsvm.ingest(parts[:9], out + "-first", client=client)
    began = time.monotonic()
    bigsvm.ingest(parts, out, client=client)
    print(json.dumps({{"result": {{"seconds": time.monotonic() - began}}}}))
"""
"""An ingest in a process of its own, in the caller's cage."""


def _ingest(cluster: Cluster, folder: Path, out: Path) -> float:
    return float(run(cluster, [str(folder), str(out)], ("-c", _INGEST))["seconds"])


def _kernel_model(work: Path, smoke: bool) -> tuple[Path, Path, Path]:
    """A model, a store of a few rows, and one of many."""
    rng = np.random.default_rng(1)
    n, d, many = (200, 5, 500) if smoke else (3_000, 100, 640_000)
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
    model = work / "kernel.model"
    bigsvm.fit((X, y), kernel="rbf", tol=1e-2).model.save(model)
    few, store = work / "kernel-few.zarr", work / "kernel-rows.zarr"
    rows = rng.standard_normal((many, d)).astype(np.float32)
    labels = np.where(rows[:, 0] > 0, 1.0, -1.0)
    bigsvm.ingest((rows[: n // 10], labels[: n // 10]), few)
    bigsvm.ingest((rows, labels), store)
    return model, few, store
