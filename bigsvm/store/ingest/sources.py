"""From the arguments of `ingest` (paths, arrays, a folder) to a source of rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from bigsvm.compiled.shared.rows import CSR, take_rows
from bigsvm.errors import DataError, MissingInput, UsageError
from bigsvm.files.temporary import temporary_folder
from bigsvm.store.blocks import CompiledCall
from bigsvm.store.formats.not_readable import REMEDIES, not_readable
from bigsvm.store.formats.tables.table_names import kind_of_table, table_is_named
from bigsvm.store.frames.columns import names_of_columns, told_of_weights
from bigsvm.store.frames.values import plain_rows, unmasked
from bigsvm.store.ingest.changed_rows import changed_rows, recipe_asked
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.store.ingest.on_thread import on_thread
from bigsvm.store.ingest.row_source import Rows, RowSource, array_source, csr_source, store_source
from bigsvm.store.ingest.sequential import InMemory, Sequential, ZipMember, npz_keys, open_npy, open_npz
from bigsvm.store.labels import Task, as_labels
from bigsvm.store.remote.names import here, is_remote, without_secrets
from bigsvm.store.sealing.seal import EmptyChunks
from bigsvm.store.text.compressed import COMPRESSED, total_bytes
from bigsvm.store.text.label_fields import LABELS_FIELD, LabelFields, in_parts
from bigsvm.store.text.svmlight import UNLIMITED, read_chunks
from bigsvm.store.text.text_files import PIECE_BYTES, line_limit, read_pieces
from bigsvm.store.text.unpacking import USUAL, unpacking_bytes
from bigsvm.store.transforms.label_sets import LABEL_SETS
from bigsvm.units import KIB, shortened

FORMATS = ("svmlight", "npz", "npy", "folder", "store")
_STORE_SUFFIXES = (".zarr", ".parquet", ".pq")
WEIGHT_ARRAYS = ("weight", "sample_weight")
"""Names under which files of arrays hold row weights, if --weight does not name the array."""
_BY_ROW = ("scale", "normalize", "like")
"""Options that apply to rows of any source."""
_QID_WARNING = "query ids (qid:) are ignored"


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


def text_source(
    paths: Sequence[str],
    *,
    dtype: str | None,
    zero_based: bool,
    n_features: int | None,
    memory: int | None,
    threads: int,
    warn: Callable[[str], None],
    sets: Mapping[str, Any] | None = None,
) -> RowSource:
    """The rows of svmlight text; one thread reads and decompresses while another one parses.

    sets : for rows with several labels: the entry `LABEL_SETS` of the store's recipe; None: one label for each row

    Raises
    ------
    MissingInput : a file is missing; and, while reading, whatever `read_pieces` and `read_chunks` raise.
    """
    unpacking = unpacking_bytes(paths)
    # Three pieces of text are held at a time, and the numbers of three, which take up to four times as much.
    piece_bytes = PIECE_BYTES if memory is None else min(PIECE_BYTES, max(64 * KIB, (memory - unpacking) // 32))
    out = np.dtype(dtype or "float32")
    size = total_bytes(paths)

    def rows() -> Generator[Rows, None, None]:
        pieces = read_pieces(paths, piece_bytes=piece_bytes, line_bytes=line_limit(memory))
        warned = False
        with on_thread(pieces) if threads > 1 else closing(pieces) as ahead:
            for chunk in read_chunks(
                ahead,
                dtype=out,
                zero_based=zero_based,
                n_features=UNLIMITED if n_features is None else n_features,
                fields=None if sets is None else LabelFields(sets["names"]),
            ):
                if chunk.qid and not warned:
                    warned = True
                    warn(_QID_WARNING)
                if sets is None:
                    yield Rows(chunk.X, chunk.labels, None, chunk.consumed)
                    continue
                for part, labels in in_parts(chunk.labels):
                    yield Rows(take_rows(chunk.X, part.start, part.stop), labels, None, chunk.consumed)

    return RowSource(
        ", ".join(paths), "csr", out, n_features, size, rows, 16 * 64 * KIB + unpacking,
        {} if sets is None else {LABEL_SETS: sets},
        remedy="a smaller --chunk-bytes" if unpacking <= USUAL else "unpack the text first",
        compiled_calls=[CompiledCall(("text", out.name), lambda: _parse_a_line(out))],
    )  # fmt: skip


def _parse_a_line(dtype: np.dtype) -> None:
    with temporary_folder() as folder:
        (folder / "line.svm").write_bytes(b"1 1:0.5 2:1\n")
        for _ in read_chunks(read_pieces([str(folder / "line.svm")], piece_bytes=64 * KIB), dtype=dtype):
            pass


def folder_source(
    path: Path, label: str | None, weights: Sequential | None, dtype: str | None, warn: Callable[[str], None]
) -> RowSource:
    """The rows of a folder with X.npy, or with data.npy, indices.npy and indptr.npy (and shape.npy, if it is there).

    Labels are in y.npy, and row weights in weight.npy or sample_weight.npy, if one of them is there.  `warn` is told of
    other arrays.
    """
    names = sorted(entry.name.removesuffix(".npy") for entry in os.scandir(path) if entry.name.endswith(".npy"))
    if weights is None and (name := _name_of_weights(names, str(path), str(path / "{}.npy"))) is not None:
        weights = open_npy(path / f"{name}.npy")
    labels = path / "y.npy" if label is None else Path(label)
    parts = ("X",) if "X" in names else ("data", "indices", "indptr", "shape")
    read = {labels.resolve(), *((path / f"{name}.npy").resolve() for name in parts)}
    read |= set() if weights is None else {Path(weights.where).resolve()}
    _tell_not_read([f"{name}.npy" for name in names if (path / f"{name}.npy").resolve() not in read], str(path), warn)
    y = open_npy(labels)
    if "X" in names:
        return array_source(open_npy(path / "X.npy"), y, weights, dtype)
    n_features = None
    if "shape" in names:
        shape = open_npy(path / "shape.npy")
        n_features = _n_features_of(np.asarray(shape.take(2)), shape.where)
    data, indices, indptr = (open_npy(path / f"{name}.npy") for name in ("data", "indices", "indptr"))
    return csr_source((data, indices, indptr), n_features, y, weights, dtype)


def npy_source(path: Path, label: str | None, weights: Sequential | None, dtype: str | None) -> RowSource:
    """The rows of a dense .npy file; its labels are in another file."""
    if label is None:
        raise UsageError("a .npy file has no labels", str(path), "name the .npy file of the labels with --label")
    return array_source(open_npy(path), open_npy(Path(label)), weights, dtype)


def npz_source(
    path: Path,
    label: str | None,
    weights: Sequential | str | None,
    dtype: str | None,
    stack: ExitStack,
    warn: Callable[[str], None],
) -> RowSource:
    """The rows of an .npz file: from scipy.sparse.save_npz, or with a dense array X.

    The labels are the array `label` of the file, else `y` or `label` in it, or a separate .npy file.  `weights` may be
    the name of an array in the file, too; without it row weights are the array `weight` or `sample_weight`, if one of
    them is there.  `warn` is told of arrays that are not read.
    """  # fmt: skip
    where = str(path)
    archive = stack.enter_context(open_npz(path))
    keys = npz_keys(archive)

    def member(key: str) -> ZipMember:
        return ZipMember(archive, key, where, stack)

    y: Sequential
    name = None
    if label is not None and label not in keys:
        if not label.endswith(".npy"):
            raise UsageError(f"there is no array {label!r} in it", where, f"it has {', '.join(keys)}")
        y = open_npy(Path(label))
    else:
        name = label or next((key for key in ("y", "label") if key in keys), None)
        if name is None:
            raise UsageError("it has no labels", where, "name an array in it, or a .npy file, with --label")
        y = member(name)
    if weights is None:
        weights = _name_of_weights(keys, where)
    is_dense = "indptr" not in keys and "X" in keys
    read = {"X"} if is_dense else {"data", "indices", "indptr", "shape", "format"}
    read |= {found for found in (name, weights) if isinstance(found, str)}
    if isinstance(weights, str):
        if weights not in keys:
            raise UsageError(f"there is no array {weights!r} in it", where, f"it has {', '.join(keys)}")
        weights = member(weights)
    _tell_not_read([key for key in keys if key not in read], where, warn)
    if is_dense:
        return array_source(member("X"), y, weights, dtype)
    if "format" in keys:
        kind = member("format").whole().tolist()
        if kind not in (b"csr", "csr"):
            raise DataError(f"the sparse matrix has format {kind!r}", where, "save it as CSR: matrix.tocsr()")
    n_features = None
    if "shape" in keys:
        n_features = _n_features_of(member("shape").whole(), where)
    return csr_source((member("data"), member("indices"), member("indptr")), n_features, y, weights, dtype)


def _n_features_of(shape: np.ndarray, where: str) -> int:
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise DataError(f"shape is {shape.tolist()!r}, not two whole numbers", where, "save the matrix again")
    return int(shape[1])


def _name_of_weights(names: Sequence[str], where: str, spelled: str = "{}") -> str | None:
    """The array of row weights among `names`, or None.  Raises UsageError if there are two.

    spelled : what --weight takes for an array, with {} in place of its name
    """
    found = [name for name in WEIGHT_ARRAYS if name in names]
    if len(found) > 1:
        hint = f"name one of them: --weight {spelled.format(found[0])}"
        raise UsageError(f"it has two arrays of row weights, {' and '.join(found)}", where, hint)
    return found[0] if found else None


def _tell_not_read(names: Sequence[str], where: str, warn: Callable[[str], None]) -> None:
    if names:
        warn(f"{where}: arrays that are not read: {shortened(', '.join(names))}")


def memory_source(X: Any, y: Any, weights: Any, dtype: str | None) -> RowSource:
    """The rows of arrays, of frames, whose columns have names, of SciPy's sparse matrices, or of CSR tuples."""
    if y is None:
        raise UsageError("arrays need labels", hint="call ingest((X, y), path)")
    labels = _sequential(y, "y")
    kept = None if weights is None else _sequential(weights, "sample_weight")
    if scipy.sparse.issparse(X):
        S = X.tocsr()
        parts = (InMemory(S.data, "X"), InMemory(S.indices, "X"), InMemory(S.indptr, "X"))
        return csr_source(parts, S.shape[1], labels, kept, dtype)
    if isinstance(X, CSR):
        parts = (InMemory(X.data, "X"), InMemory(X.indices, "X"), InMemory(X.indptr, "X"))
        return csr_source(parts, None, labels, kept, dtype)
    rows = array_source(_sequential(X, "X"), labels, kept, dtype)
    told = told_of_weights(names_of_columns(X), in_memory=True)
    return dataclasses.replace(rows, feature_names=names_of_columns(X), warnings=told)


def _told(rows: RowSource, warn: Callable[[str], None]) -> RowSource:
    for message in rows.warnings:
        warn(message)
    return rows


def _sequential(array: Any, where: str) -> Sequential:
    if is_lazy(array) and not isinstance(array, list):  # labels beside a matrix in memory are small
        array = array.compute() if hasattr(array, "compute") else array
    known = plain_rows(array, where) if where == "X" else unmasked(array, where)
    if known.dtype == object and where == "y" and known.ndim == 1:
        known = as_labels(known, where)
    elif known.dtype == object:
        raise DataError("the array holds Python objects", where, "use numbers, or strings as labels")
    return InMemory(known, where)


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
    paths = _paths(source)
    if is_lazy(source):
        change = recipe_asked(chosen.get("scale"), chosen.get("normalize"), chosen.get("like"))
        rows = _lazy_source(source, y, sample_weight, label, weight, dtype, memory, threads, chosen, client)
        return changed_rows(_told(rows, warn), change)
    if paths is None:
        is_open = all(hasattr(type(source), name) for name in ("refs", "read"))
        by_row = () if is_open else _BY_ROW
        for option in (name for name, value in chosen.items() if value and name not in by_row):
            hint = "in Python open_store(..., " + option + "=...) opens rows that way, and ingest takes them"
            raise UsageError(f"--{option.replace('_', '-')} does not apply to an open store", hint=hint)
        if is_open:
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
    if weight is not None and not (kind == "npz" and not weight.endswith(".npy")):
        weights = open_npy(Path(weight))
    elif sample_weight is not None:
        weights = _sequential(sample_weight, "sample_weight")
    if kind == "svmlight":
        if label is not None:
            raise UsageError("svmlight text contains its labels", hint="leave out --label")
        if weights is not None:
            raise UsageError("weights cannot be given for svmlight text", hint="use .npz or Parquet")
        text = text_source(
            paths, dtype=dtype, zero_based=zero_based, n_features=n_features, memory=memory,
            threads=threads, warn=warn, sets=_sets_asked(chosen, task),
        )  # fmt: skip
        return changed_rows(text, change)
    if not path.exists():
        raise MissingInput("there is no such file or folder", str(path))
    if kind == "folder":
        return changed_rows(folder_source(path, label, weights, dtype, warn), change)
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


def _sets_asked(chosen: Mapping[str, Any], task: Task) -> dict[str, Any] | None:
    """The entry `LABEL_SETS` of the recipe for text with sets of labels, as asked, or as in the store; or None.

    Raises UsageError if the field of labels is called by another name, or the task is regression.
    """
    asked, kept = chosen.get("labels"), (chosen.get("like") or {}).get(LABEL_SETS)
    if asked and list(asked) != [LABELS_FIELD]:
        what = "a line of svmlight text has all its labels in one field, which is called label"
        raise UsageError(what, hint=f"--labels {LABELS_FIELD}")
    if asked and task == "regression":
        raise UsageError("--labels and --task regression exclude each other", hint="leave one of them out")
    if not asked and kept is None:
        return None
    return {"names": None, "columns": None} if kept is None else dict(kept)


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
        sequential=_sequential,
    )  # fmt: skip


def _paths(source: Any) -> list[str] | None:
    """The paths as a list; None if the source is data."""
    if isinstance(source, str | os.PathLike):
        return [os.fspath(source)]
    if isinstance(source, list | tuple) and source and all(isinstance(s, str | os.PathLike) for s in source):
        return [os.fspath(s) for s in source]
    return None
