"""From what a user names to rows: one line per format."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Any, cast

from bigsvm.errors import MissingInput, UsageError
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.labels import Task
from bigsvm.store.paths import STORE_MARKS

ENTRY_POINTS = "bigsvm.stores"
"""Entry point group of further formats: name = file suffix without dot, or URI scheme; object = a callable
(path, *, label, weight, task) -> RowBlocks."""

_TEXT = (".svm", ".svmlight", ".libsvm", ".txt", ".csv", ".tsv", ".dat", ".npz", ".npy", ".h5ad")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def open_store(source: Any, *, label: str | None = None, weight: str | None = None, task: Task = "auto") -> RowBlocks:
    """Open rows for reading.

    Parameters
    ----------
    source : a Zarr folder, a Parquet file, folder or glob, as str or path; (X, y) or (X, y, weight) arrays;
        or rows that are open already, which pass through
    label, weight : names of the columns; by default `label`, and `weight` where there is one
    task : `regression` keeps numeric labels as targets; `auto` takes whole numbers for classes

    Raises
    ------
    UsageError : this kind of source cannot be opened. MissingInput : there is nothing there.
    DataError : it is bad.
    """
    if isinstance(source, tuple):
        if len(source) not in (2, 3):
            raise UsageError(f"a tuple of {len(source)} arrays", hint="(X, y) or (X, y, sample_weight)")
        from bigsvm.store.array_rows import ArrayRows  # here and below: one format's library, not all

        return cast(RowBlocks, ArrayRows(*source, task=task))
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fspath(source), label, weight, task)
    # On the class: asking the instance whether it has `classes` would read all labels.
    if all(hasattr(type(source), name) for name in ("refs", "read")):
        return source
    raise UsageError(f"cannot open a {type(source).__name__}", hint="give a path, or (X, y) arrays")


def _open_path(name: str, label: str | None, weight: str | None, task: Task) -> RowBlocks:
    scheme, separator, rest = name.partition("://")
    kind = scheme if separator else Path(name).suffix.lstrip(".")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=kind) if kind else ():
        return entry.load()(name, label=label, weight=weight, task=task)
    if separator:
        if scheme != "file":
            raise UsageError(f"{scheme}:// stores are not available yet", name, "copy it to a local disk")
        name = rest
    path = Path(name)
    if path.is_dir() and any((path / mark).exists() for mark in STORE_MARKS):
        from bigsvm.store.zarr_rows import ZarrRows

        return cast(RowBlocks, ZarrRows(path, label=label, weight=weight, task=task))
    if _is_parquet(path):
        from bigsvm.store.parquet_rows import ParquetRows

        return cast(RowBlocks, ParquetRows(name, label=label, weight=weight, task=task))
    if not path.exists():
        raise MissingInput("no such store", name)
    if path.is_file():
        suffixes = [suffix for suffix in path.suffixes if suffix not in _COMPRESSED]
        if not suffixes or suffixes[-1] in _TEXT:
            raise UsageError("not a store", name, f"make one first: bigsvm ingest {name} {path.stem}.zarr")
    raise UsageError("not a store of a known kind", name, "a Zarr folder, or Parquet; other files: bigsvm ingest")


def _is_parquet(path: Path) -> bool:
    if any(mark in path.name for mark in "*?["):
        return path.suffix in (".parquet", ".pq")
    if path.is_dir():
        return any(path.glob("*.parquet"))
    return path.is_file() and path.suffix in (".parquet", ".pq")
