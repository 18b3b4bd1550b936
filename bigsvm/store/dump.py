"""A store as svmlight text, such that ingesting it gives the same content again, bit for bit."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from bigsvm.errors import DataError, OutputError
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.kernels.rows import CSR
from bigsvm.store.blocks import Block, Matrix, RowBlocks, row_bytes
from bigsvm.store.files import cannot_write, sync_directory, temporary_name
from bigsvm.units import MIB

_BLOCK_BYTES = MIB  # decoded; the text and its Python strings take some thirty times more


def dump(
    store: RowBlocks,
    out: str | Path,
    block_rows: int | None = None,
    emit: Emit = silent,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write every row of `store` as text, features counted from 1, each value in its shortest exact form.

    out : a path, which appears whole or not at all, or "-" for standard output
    block_rows : rows at a time; by default about a MiB of them

    Returns n_samples, n_features, nnz, bytes (of text), seconds, out, warnings.  Weights cannot be written:
    a warning says so; another says when the width of the store cannot be told from the text.

    Raises
    ------
    DataError : labels that are not numbers, or a block that cannot be read
    OutputError : `out` exists, or cannot be written.
    """
    began = time.perf_counter()
    rows = block_rows or max(1, int(_BLOCK_BYTES / max(row_bytes(store), 1)))
    label_texts = None if store.classes is None else _class_texts(store)
    warnings: list[str] = []

    def warn(message: str) -> None:
        warnings.append(message)
        emit(Warned(message))

    if store.has_weights:
        warn("svmlight text cannot hold the weights: they are left out")
    emit(WorkStarted("dump", store.n_samples, "rows"))
    written = nnz = width = 0
    with _text_file(out, overwrite) as file:
        for ref in store.refs(rows):
            block = store.read(ref)
            X = _as_csr(block.X)
            content = _lines(block, X, label_texts)
            try:
                file.write(content)
            except BrokenPipeError:
                raise
            except OSError as error:
                raise cannot_write(Path(out), error, written + len(content)) from error
            written += len(content)
            nnz += len(X.data)
            width = max(width, int(X.indices.max()) + 1 if len(X.indices) else 0)
            emit(WorkAdvanced("dump", block.stop))
    if width < store.n_features:
        warn(f"no row reaches the last feature: ingest the text with --n-features {store.n_features}")
    seconds = time.perf_counter() - began
    emit(WorkEnded("dump", seconds))
    return {
        "n_samples": store.n_samples,
        "n_features": store.n_features,
        "nnz": nnz,
        "bytes": written,
        "seconds": seconds,
        "out": str(out),
        "warnings": warnings,
    }


def _class_texts(store: RowBlocks) -> np.ndarray:
    """The text of each class.  Raises DataError for classes that are not numbers."""
    classes = cast(np.ndarray, store.classes)
    if classes.dtype.kind not in "biuf":
        raise DataError(
            f"labels such as {str(classes[0])!r} are not numbers", store.uri, "svmlight text has numbers only"
        )
    numbers = classes.astype(np.float64) if classes.dtype.kind == "f" else classes.astype(np.int64)
    return np.array([repr(value).removesuffix(".0") for value in numbers.tolist()], object)


def _as_csr(X: Matrix) -> CSR:
    if isinstance(X, CSR):
        return X
    rows, columns = np.nonzero(X)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(X)))])
    return CSR(X[rows, columns], columns, indptr)


def _lines(block: Block, X: CSR, label_texts: np.ndarray | None) -> bytes:
    if label_texts is None:
        labels = [repr(value).removesuffix(".0") for value in block.y.tolist()]
    else:
        labels = label_texts[block.y].tolist()
    numbers = (X.indices.astype(np.int64) + 1).tolist()
    items = [f"{number}:{text}" for number, text in zip(numbers, exact_texts(X.data), strict=True)]
    ends = X.indptr.tolist()
    lines = [
        f"{label} {' '.join(items[start:stop])}" if stop > start else label
        for label, start, stop in zip(labels, ends, ends[1:], strict=False)
    ]
    lines.append("")
    return "\n".join(lines).encode()


def exact_texts(values: np.ndarray) -> list[str]:
    """The shortest decimal that is read back as each value (float32 or float64)."""
    distinct, places = np.unique(values[:4096], return_inverse=True)
    if len(values) > 4096 and len(distinct) < 1024:  # often there are few: counts, ones
        distinct, places = np.unique(values, return_inverse=True)
    if 2 * len(distinct) < len(values) == len(places):
        # The two zeros are one to `unique`, and so both lose their sign: no content changes by it.
        return np.array(exact_texts(distinct), object)[places].tolist()
    if values.dtype == np.float64:
        return [repr(value).removesuffix(".0") for value in values.tolist()]
    texts: list[str] = values.astype("U24").tolist()
    # Text is read as a double and then rounded to float32: in rare cases that is not the nearest float32.
    doubles = np.array([float(text) for text in texts])
    for place in np.flatnonzero(doubles.astype(np.float32) != values).tolist():
        texts[place] = repr(float(values[place]))
    return [text.removesuffix(".0") for text in texts]


@contextmanager
def _text_file(out: str | Path, overwrite: bool) -> Iterator[IO[bytes]]:
    """Standard output for "-", else a file that takes the name `out` when the block ends well."""
    if str(out) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    final = Path(out)
    if final.exists() and not overwrite:
        raise OutputError("the output exists", str(final), "choose another name or say --overwrite")
    temporary = temporary_name(final)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(temporary, "xb"))
        except OSError as error:
            raise cannot_write(final, error) from error
        stack.callback(temporary.unlink, missing_ok=True)
        yield file
        try:
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, final)
            sync_directory(final.parent)
        except OSError as error:
            raise cannot_write(final, error) from error
