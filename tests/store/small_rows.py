"""Small rows and labels in every format that takes them, and what a store makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr

from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.dump import dump
from bigsvm.testing.contracts import dense
from tests.store import formats

N = 40
LABELS = np.where(np.arange(N) % 3 > 0, 1.0, -1.0)
SMALL = np.arange(N * 3, dtype=np.float32).reshape(N, 3) + 1


def rows_of(store: Any) -> np.ndarray:
    """All rows, dense."""
    parts = [store.read(ref) for ref in store.refs(7)]
    return np.concatenate([dense(block.X, store.n_features) for block in parts])


def labels_of(store: Any) -> list[Any]:
    """The label of every row."""
    blocks = [store.read(ref) for ref in store.refs(7)]
    return store.classes[np.concatenate([block.y for block in blocks])].tolist()


def ingested(source: Any, folder: Path, **options: Any) -> Any:
    ingest(source, folder / "out.zarr", **options)
    return open_store(folder / "out.zarr")


def plain_zarr(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.foreign(folder / "s.zarr", X, labels, layout="dense"))


def categorical_zarr(X: np.ndarray, labels: Any, folder: Path) -> Any:
    path = formats.foreign(folder / "s.zarr", X, LABELS, layout="dense")
    names, codes = np.unique(labels, return_inverse=True)
    group = zarr.open_group(path, mode="a")
    del group["obs/label"]
    column = group.create_group("obs/label", attributes={"encoding-type": "categorical"})
    column.create_array("codes", data=codes.astype(np.int8), config={"write_empty_chunks": True})
    column.create_array("categories", data=names, config={"write_empty_chunks": True})
    return open_store(path)


def text(X: np.ndarray, labels: Any, folder: Path) -> Any:
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for label, row in zip(labels, X, strict=True)
    ]
    (folder / "s.svm").write_text("# first\n\n" + "\n".join(lines) + "\n")
    return ingested(folder / "s.svm", folder)


def parquet(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.parquet(folder / "s.parquet", X, labels, layout="columns"))


def npz(X: np.ndarray, labels: Any, folder: Path) -> Any:
    np.savez(folder / "s.npz", X=X, y=labels)
    return ingested(folder / "s.npz", folder)


def parquet_ingested(X: np.ndarray, labels: Any, folder: Path) -> Any:
    parquet(X, labels, folder)
    return ingested(folder / "s.parquet", folder)


def dumped(X: np.ndarray, labels: Any, folder: Path) -> Any:
    dump(ArrayRows(X, labels), folder / "d.svm")
    return ingested(folder / "d.svm", folder)


def arrays(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return ArrayRows(X, labels)
