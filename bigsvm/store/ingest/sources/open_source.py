"""From the arguments of `ingest` (paths, arrays, a folder) to a source of rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bigsvm.errors import MissingInput, UsageError
from bigsvm.store.formats.not_readable import REMEDIES, not_readable
from bigsvm.store.formats.tables.table_names import kind_of_table, table_is_named
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.store.ingest.sources.array_files import folder_source, npy_source, npz_source
from bigsvm.store.ingest.sources.changed_rows import changed_rows, recipe_asked
from bigsvm.store.ingest.sources.memory_source import memory_source, sequential_of
from bigsvm.store.ingest.sources.row_source import RowSource, store_source
from bigsvm.store.ingest.sources.sequential import Sequential, open_npy
from bigsvm.store.ingest.sources.text_source import sets_asked, text_source
from bigsvm.store.labels import Task
from bigsvm.store.remote.names import here, is_remote, without_secrets
from bigsvm.store.sealing.seal import EmptyChunks
from bigsvm.store.text.compressed import COMPRESSED

FORMATS = ("svmlight", "npz", "npy", "folder", "store")
_STORE_SUFFIXES = (".zarr", ".parquet", ".pq")
_BY_ROW = ("scale", "normalize", "like")
"""Options that apply to rows of any source."""


def find_format(path: str) -> str:
    """The format of a path, one of FORMATS, by its name and the content of a folder; other files are svmlight text."""
    suffix = Path(path).suffix.lower()
    if path == "-":
        return "svmlight"
    if suffix in _STORE_SUFFIXES or ("://" in path and not is_remote(path)):
        return "store"
    inner = Path(path).with_suffix("").suffix.lower() if suffix in COMPRESSED else suffix
    if inner in REMEDIES:
        raise not_readable(path, inner)
    if kind_of_table(path) is not None or inner == ".h5ad":
        return "store"
    if suffix in (".npz", ".npy"):
        return suffix[1:]
    if os.path.isdir(path):
        parts = {entry.name for entry in os.scandir(path)}
        return "folder" if parts & {"X.npy", "indptr.npy"} else "store"
    # A remote name without a suffix is a store or a folder.
    return "store" if is_remote(path) and not inner else "svmlight"


def _told(rows: RowSource, warn: Callable[[str], None]) -> RowSource:
    for message in rows.warnings:
        warn(message)
    return rows


def open_source(
    source: Any,
    *,
    y: Any,
    sample_weight: Any,
    label: str | None,
    weight: str | None,
    from_format: str | None,
    n_features: int | None,
    zero_based: bool,
    task: Task,
    dtype: str | None,
    memory: int | None,
    threads: int,
    empty_chunks: EmptyChunks,
    chosen: dict[str, Any],
    client: Any,
    warn: Callable[[str], None],
    stack: ExitStack,
) -> RowSource:
    """The rows of any source that `ingest` accepts; whatever must be closed at the end is added to `stack`.

    Raises
    ------
    UsageError : arguments that do not go together.
    MissingInput, DataError, ReadFailed : from the source.
    """
    if from_format is not None and from_format not in FORMATS:
        hint = f"use one of {', '.join(FORMATS)}; the suffix of a file, such as .csv, says that it is a table"
        raise UsageError(f"unknown format {from_format!r}", hint=hint)
    if isinstance(source, tuple) and len(source) == 2 and y is None and not isinstance(source[0], str | os.PathLike):
        source, y = source
    elif isinstance(source, tuple) and len(source) == 3 and y is None and len(getattr(source[0], "shape", ())) == 2:
        if sample_weight is not None:
            raise UsageError(
                "sample_weight is given twice, also in (X, y, sample_weight)", hint="leave one of them out"
            )
        source, y, sample_weight = (
            source  # but the three arrays of a CSR matrix, which have one axis each, are not (X, y, sample_weight)
        )
    if weight == "":
        sample_weight = None
    paths = _paths(source)
    if is_lazy(source):
        change = recipe_asked(chosen.get("scale"), chosen.get("normalize"), chosen.get("like"))
        rows = _lazy_source(source, y, sample_weight, label, weight, dtype, memory, threads, chosen, client)
        return changed_rows(_told(rows, warn), change)
    if paths is None:
        is_open = all(hasattr(type(source), name) for name in ("refs", "read"))
        by_row = ("like",) if is_open else _BY_ROW  # whether an open store is like the former rows is checked later
        for option in (name for name, value in chosen.items() if value and name not in by_row):
            hint = "in Python open_store(..., " + option + "=...) opens rows that way, and ingest takes them"
            raise UsageError(f"--{option.replace('_', '-')} does not apply to an open store", hint=hint)
        for what, named in (("label", label), ("weight", weight)):
            if named:
                if is_open:
                    hint = f"in Python open_store(..., {what}=...) opens rows with other {what}s"
                    raise UsageError(f"--{what} does not apply to an open store", hint=hint)
                said = f"arrays have no column {named!r} of {what}s"
                raise UsageError(said, hint="pass (X, y) or (X, y, sample_weight)")
        if is_open:
            if weight is not None and source.has_weights:
                hint = "in Python open_store(..., weight='') opens rows without them"
                raise UsageError("--weight does not apply to an open store", hint=hint)
            return store_source(source, dtype)
        change = recipe_asked(chosen["scale"], chosen["normalize"], chosen.get("like"))
        return changed_rows(_told(memory_source(source, y, sample_weight, dtype), warn), change)
    if y is not None:
        raise UsageError("labels are an array, but the matrix is not", hint="name a file with --label")
    paths = [without_secrets(path) for path in paths]
    kinds = {from_format or find_format(path) for path in paths}
    if kinds != {"svmlight"} and len(paths) > 1:
        raise _of_several(paths)
    kind = kinds.pop()
    if kind != "store":
        paths = [stack.enter_context(here(path)) for path in paths]
    path = Path(paths[0])
    if kind == "store":
        # Imported when needed, because pyarrow and other libraries of formats are large.
        from bigsvm.store.formats.opener import open_store

        store = open_store(paths[0], label=label, weight=weight, task=task, empty_chunks=empty_chunks, **chosen)
        for message in store.warnings:
            warn(message)
        return store_source(store, dtype)
    change = recipe_asked(chosen["scale"], chosen["normalize"], chosen.get("like"))
    for option in (name for name, value in chosen.items() if value and name not in _BY_ROW):
        if kind == "svmlight" and option == "labels":
            continue
        raise UsageError(
            f"--{option.replace('_', '-')} does not apply to this kind of source", str(path), "leave it out"
        )
    weights: Sequential | None = None
    if kind == "svmlight" and (weight or sample_weight is not None):
        raise UsageError("weights cannot be given for svmlight text", hint="use .npz or Parquet")
    if weight and not (kind == "npz" and not weight.endswith(".npy")):
        weights = open_npy(Path(weight))
    elif sample_weight is not None:
        weights = sequential_of(sample_weight, "sample_weight")
    if kind == "svmlight":
        if label is not None:
            raise UsageError("svmlight text contains its labels", hint="leave out --label")
        text = text_source(
            paths, dtype=dtype, zero_based=zero_based, n_features=n_features, memory=memory,
            threads=threads, warn=warn, sets=sets_asked(chosen, task),
        )  # fmt: skip
        return changed_rows(text, change)
    if not path.exists():
        raise MissingInput("there is no such file or folder", str(path))
    if kind == "folder":
        return changed_rows(folder_source(path, label, "" if weight == "" else weights, dtype, warn), change)
    if kind == "npy":
        return changed_rows(npy_source(path, label, weights, dtype), change)
    npz = npz_source(path, label, weight if weights is None else weights, dtype, stack, warn)
    return changed_rows(npz, change)


def _of_several(paths: list[str]) -> UsageError:
    """The error for several sources that are not svmlight text: a shell has perhaps expanded a glob."""
    suffixes = {Path(path).suffix for path in paths}
    hint = "ingest the first one, then add each of the others with --append"
    if len(suffixes) == 1 and table_is_named(paths[0]):
        hint = f"quote a pattern, so that it names all files as one table: '*{suffixes.pop()}'; or name their folder"
    shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return UsageError("several sources must all be svmlight text", shown, hint)


def _lazy_source(
    source: Any, y: Any, sample_weight: Any, label: str | None, weight: str | None, dtype: str | None,
    memory: int | None, threads: int, chosen: dict[str, Any], client: Any,
) -> RowSource:  # fmt: skip
    for option in ("matrix", "labels"):
        if chosen.get(option):
            raise UsageError(f"--{option} does not apply to dask collections", hint="leave it out")
    from bigsvm.store.ingest.collections.dask_frames import (
        FrameOptions,  # imported when needed, because it imports dask
    )
    from bigsvm.store.ingest.collections.dask_source import dask_source

    options = FrameOptions(
        label, weight, chosen["columns"], chosen["hash_bits"], chosen.get("missing", "refuse"), chosen.get("like")
    )
    return dask_source(
        source, y, sample_weight, dtype=dtype, options=options, memory=memory, threads=threads, client=client,
        sequential=sequential_of,
    )  # fmt: skip


def _paths(source: Any) -> list[str] | None:
    """The paths as a list; None if the source is data."""
    if isinstance(source, str | os.PathLike):
        return [os.fspath(source)]
    if isinstance(source, list | tuple) and source and all(isinstance(s, str | os.PathLike) for s in source):
        return [os.fspath(s) for s in source]
    return None
