"""`ingest`: writes a sealed Zarr store from anything with rows and labels, in bounded memory, whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bigsvm.errors import DataError, OutputError, PlanRefused, UsageError
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.files.atomic import check_replaceable
from bigsvm.files.packed_text import text_bytes
from bigsvm.machine import return_freed_memory
from bigsvm.peak_memory import PeakMemory
from bigsvm.store.formats.chosen.split_rows import check_share
from bigsvm.store.ingest.appending.commit import commit, growing
from bigsvm.store.ingest.appending.fits import check_fits, options_of
from bigsvm.store.ingest.appending.grown_store import GrownStore, SealedStore
from bigsvm.store.ingest.chunk_files import DEFAULT_CHUNK_BYTES
from bigsvm.store.ingest.compile_time import compile_time
from bigsvm.store.ingest.on_thread import on_thread
from bigsvm.store.ingest.small_ingest import load_code
from bigsvm.store.ingest.sources.open_source import open_source
from bigsvm.store.ingest.sources.row_source import RowSource
from bigsvm.store.ingest.zarr_writer import MARKS, ZarrWriter
from bigsvm.store.labels import CodedLabels, Missing, n_labels
from bigsvm.store.remote.settings import storing
from bigsvm.store.sealing.seal import EmptyChunks
from bigsvm.store.transforms.scaling import Scale
from bigsvm.units import MIB, as_names, counted, parse_bytes, show_bytes

_MAX_FRACTIONAL_CLASSES = 1000
_FIXED = 4 * MIB  # bytes of labels, indices and interpreter objects
_NAMES_COPIES = 5  # copies of the names of features: zarr writes them as Python objects, in one chunk


def ingest(
    source: Any,
    path: str | Path,
    *,
    y: Any = None,
    sample_weight: Any = None,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    weight: str | None = None,
    from_format: str | None = None,
    n_features: int | None = None,
    zero_based: bool = False,
    task: Literal["classification", "regression"] = "classification",
    dtype: str | None = None,
    codec: str = "lz4",
    chunk_bytes: int | str | None = None,
    memory: int | str | None = None,
    threads: int = 2,
    overwrite: bool = False,
    append: bool = False,
    source_digest: str | None = None,
    empty_chunks: EmptyChunks = "refuse",
    matrix: str | None = None,
    missing: Missing = "refuse",
    columns: str | Sequence[str] = (),
    hash_bits: int | None = None,
    scale: Scale | None = None,
    normalize: str | None = None,
    rows: str | None = None,
    split: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Any = None,
    emit: Emit = silent,
) -> dict[str, Any]:
    """Write a store from text, arrays or another store; the source is read once.

    Parameters
    ----------
    source : path or paths of svmlight text (also .gz .bz2 .xz .zst; "-": standard input); a .npz, a .npy, a folder of
        .npy files; anything that `open_store` opens; (X, y) or (X, y, sample_weight) as NumPy, SciPy sparse, dask or
        xarray arrays; a dask dataframe; a list of Delayed, each of which gives (X, y), (X, y, weights), or X if `y` is
        given
    path : the store to write
    y, sample_weight : arrays, shape (n_samples,), if they are not part of the source
    label, weight : name of the array in an .npz, of the .npy file, or of the column that holds them; by default weights
        are the column `weight`, in an .npz or a folder of .npy files also the array `sample_weight`, if it exists;
        weight='' reads none
    labels : for rows with several labels, or none, as in `open_store`; for svmlight text, where a line has all its
        labels in one field (`1,5 3:0.2`), ["label"].  The store keeps sets of labels
    from_format : svmlight, npz, npy, folder or store, if the name does not tell
    n_features : width of the store; text with features beyond it is refused
    zero_based : the text counts features from 0
    task : classification, or regression, which keeps labels as numbers
    dtype : float32 or float64; default: float32 for text and 16-bit integers, float64 for wider integers, uint8 for
        bool, and otherwise the dtype of the source
    codec : lz4, zstd or none;  chunk_bytes : size of a decoded chunk, as a number or as '4MiB'
    memory : bytes, or a size such as "512MiB"; less memory means smaller pieces, and too little is refused
    threads : with 1, reading, parsing and writing take turns
    append : add the rows after those of an existing store, in one step; a reader that opened the store before keeps
        seeing the rows that it saw.  Width, dtype, codec, task and recipe are those of the store
    source_digest : recorded in the manifest, beside the content before the append, so that a killed caller can find out
        whether its rows were added
    empty_chunks, matrix, missing, columns, hash_bits, scale, normalize, rows, storage_options : how to read the source,
    see `open_store`
    split : record this share, such as 0.9: fits and searches train on it by default; 1 records none.  All rows are
        written in any case
    client : a `distributed.Client` that computes dask collections; None: dask's current client, else threads of this
        process

    Returns
    -------
    dict : n_samples, n_features, nnz, labels, weights_from (the column, array or file of row weights; None if there
        are none), bytes, seconds, compile_seconds (part of seconds), memory (in bytes, as for a fit; measured from when
        the source is open), store, store_fingerprint, content_fingerprint, warnings; after an append also n_appended

    Raises
    ------
    UsageError : options that do not go together
    MissingInput, ReadFailed : the source is missing, or its device fails
    DataError : bad data; names the file and the line, or the row
    OutputError : `path` exists or cannot be written, or another process is appending to it
    PlanRefused : `memory` is too small; names a sufficient size
    """
    return_freed_memory()
    began = time.perf_counter()
    path = Path(path)
    if dtype not in (None, "float32", "float64"):
        raise UsageError(f"unknown dtype {dtype!r}", hint="use float32 or float64")
    chunk_nbytes = None if chunk_bytes is None else parse_bytes(chunk_bytes)
    if n_features is not None and not 1 <= n_features < 2**63:
        raise UsageError(f"n_features must be between 1 and 2^63 - 1, not {n_features}")
    if split is not None and split != 1:
        check_share(split)
    split = None if split is None or split == 1 else float(split)
    if append and overwrite:
        raise UsageError("--append and --overwrite exclude each other")
    if not append:
        check_replaceable(path, overwrite, MARKS, "store")
    if isinstance(source, str | Path) and path.exists() and Path(source).exists() and path.samefile(source):
        raise OutputError("is the source itself", str(path), "choose another name")
    warnings: list[str] = []

    def warn(message: str) -> None:
        warnings.append(message)
        emit(Warned(message))

    with ExitStack() as stack:
        given = None if memory is None else parse_bytes(memory)
        stack.enter_context(storing(storage_options, memory=given, watch=lambda: nullcontext(emit)))
        former: SealedStore | None = None
        like: dict[str, Any] = {}
        if append:
            stack.enter_context(growing(path))
            former = SealedStore(path)
            wanted = options_of(former, task, n_features, dtype, split)
            task, n_features, dtype = wanted["task"], wanted["n_features"], wanted["dtype"]
            like = {"like": former.recipe} if former.recipe else {}
        compiling = stack.enter_context(compile_time())
        sourced = open_source(
            source,
            y=y,
            sample_weight=sample_weight,
            label=label,
            weight=weight,
            from_format=from_format,
            n_features=n_features,
            zero_based=zero_based,
            task=task,
            dtype=dtype,
            memory=given,
            threads=threads,
            empty_chunks=empty_chunks,
            chosen={
                "matrix": matrix,
                "columns": as_names(columns),
                "hash_bits": hash_bits,
                "scale": None if scale == "none" else scale,
                "normalize": normalize,
                **({} if missing == "refuse" else {"missing": missing}),
                **({} if rows is None else {"rows": rows}),
                **({} if not labels else {"labels": list(as_names(labels))}),
                **like,
            },
            client=client,
            warn=warn,
            stack=stack,
        )
        if given is not None:
            _check_memory(given, sourced, chunk_nbytes or DEFAULT_CHUNK_BYTES)
        if former is not None:
            check_fits(former, sourced)
            writer: ZarrWriter = GrownStore(former, chunk_nbytes, source_digest)
        else:
            writer = ZarrWriter(
                path,
                layout=sourced.layout,
                dtype=sourced.dtype,
                n_features=_width(sourced, n_features),
                codec=codec,
                chunk_bytes=chunk_nbytes,
                has_weights=sourced.has_weights,
                task=task,
                overwrite=overwrite,
                recipe=sourced.recipe,
                feature_names=sourced.feature_names,
                split=split,
                columns=sourced.columns,
            )
        load_code(sourced, codec, task, emit)
        held = stack.enter_context(PeakMemory())
        stack.enter_context(writer)
        if sourced.placed is not None and (place := writer.place()) is not None:
            sourced.placed(place)
        emit(WorkStarted("ingest", sourced.total_bytes, "bytes"))
        _copy(sourced, writer, task, threads, emit)
        result = writer.finish()
        held.sample()
        if isinstance(writer, GrownStore):
            commit(path, writer.root, writer.former.manifest, warn)
            result["n_appended"] = result["n_samples"] - writer.former.n_samples
    for message in result.pop("warnings"):
        warn(message)
    seconds = time.perf_counter() - began
    emit(WorkEnded("ingest", max(seconds - compiling.seconds, 0.0)))
    return {
        **result,
        "weights_from": sourced.weights_from,
        "seconds": seconds,
        "compile_seconds": compiling.seconds,
        "memory": held.document(given),
        "store": str(path),
        "warnings": warnings,
    }


def _check_memory(memory: int, rows: RowSource, chunk_bytes: int) -> None:
    """Raise PlanRefused if `memory` is too small for the chunks being filled and encoded, whose size is fixed."""
    least = _FIXED + 4 * chunk_bytes + rows.held_bytes + _NAMES_COPIES * text_bytes(rows.feature_names)
    if memory < least:
        least = -(-least // MIB) * MIB
        raise PlanRefused(
            f"{show_bytes(memory)} of memory cannot hold this ingest; {show_bytes(least)} would do",
            rows.where,
            f"use --memory {least // MIB}MiB, or {rows.remedy}",
            min_memory_bytes=least,
        )


def _width(rows: RowSource, n_features: int | None) -> int | None:
    if n_features is None or rows.layout == "csr":
        return rows.n_features if n_features is None else n_features
    if rows.n_features is not None and rows.n_features != n_features:
        raise DataError(f"the rows have {counted(rows.n_features, 'feature')}, not {n_features}")
    return n_features


def _copy(rows: RowSource, writer: ZarrWriter, task: str, threads: int, emit: Emit) -> None:
    """Read on another thread, write on this one."""
    fractional: set[float] = set()
    seen = 0
    parts = rows.rows()
    with on_thread(parts) if threads > 1 else closing(parts) as ahead:
        for part in ahead:
            labels = part.labels
            if task == "classification" and not isinstance(labels, CodedLabels) and labels.dtype.kind == "f":
                fractional.update(np.unique(labels[labels != np.rint(labels)]).tolist())
                if len(fractional) > _MAX_FRACTIONAL_CLASSES:
                    raise DataError(
                        f"more than {_MAX_FRACTIONAL_CLASSES} different labels that are not integers",
                        rows.where,
                        "should this be --task regression?",
                    )
            writer.append(part.X, labels, part.weights)
            seen += n_labels(labels)
            emit(WorkAdvanced("ingest", part.consumed))
    if seen == 0:
        raise DataError("there are no rows", rows.where, "is it empty?")
