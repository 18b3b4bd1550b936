"""A store as svmlight text, such that ingesting it gives the same content again, bit for bit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.text import svmlight as kernel
from bigsvm.errors import DataError
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.files.outputs import output_file
from bigsvm.files.space import Share, cannot_write
from bigsvm.store.blocks import Block, Matrix, RowBlocks, frozen, row_bytes
from bigsvm.store.checks import index_dtype
from bigsvm.store.delegated import check_unchanged
from bigsvm.store.precompile_reading import precompile_reading
from bigsvm.store.transforms.label_sets import LabelSets
from bigsvm.units import MIB

_BLOCK_BYTES = MIB  # decoded; the room for the text is some ten times more


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
    widened = max(4 // store.dtype.itemsize, 1)  # text is made of float32 at least
    rows = block_rows or max(1, int(_BLOCK_BYTES / max(row_bytes(store) * widened, 1)))
    labels = _Labels(store)
    warnings: list[str] = []

    def warn(message: str) -> None:
        warnings.append(message)
        emit(Warned(message))

    if told := told_of_changes(store):
        warn(told)
    if store.has_weights:
        warn("svmlight text cannot hold the weights: they are left out")
    emit(WorkStarted("dump", store.n_samples, "rows"))
    precompile_reading(store, emit)
    written = nnz = width = 0
    share = Share(store.n_samples)
    with output_file(out, overwrite, share) as file:
        for ref in store.refs(rows):
            block = store.read(ref)
            X = _as_csr(block.X)
            content = _lines(block, X, labels)
            try:
                file.write(content)
            except BrokenPipeError:
                raise
            except OSError as error:
                if str(out) != "-":
                    raise  # `output_file` tells of it
                raise cannot_write(Path(out), error) from error
            share.done = block.stop
            written += len(content)
            nnz += len(X.data)
            width = max(width, int(X.indices.max()) + 1 if len(X.indices) else 0)
            emit(WorkAdvanced("dump", block.stop))
        check_unchanged(store)
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


def told_of_changes(store: RowBlocks) -> str | None:
    """The warning about rows that were changed when they were ingested, which a file of them does not say; else None.

    A model of the store expects rows from before the changes, and would change these again.
    """
    scale = store.recipe.get("scale")
    steps = [f"scaled by {scale['kind']}"] if scale else []
    if "normalize" in store.recipe:
        steps.insert(0, f"normalized by {store.recipe['normalize']}")
    if not steps:
        return None
    return (
        f"the rows are written as the store holds them, {' and '.join(steps)}, which the output does not record: "
        "models of the store would change these rows again; .zarr keeps the record"
    )


class _Labels:
    """The texts of labels, one after the other, and which of them each row of a block has."""

    def __init__(self, store: RowBlocks) -> None:
        self._classes, self._empty, self._where = store.classes, -1, store.uri
        sets = LabelSets.of(store.recipe, store.classes)
        if sets is not None and store.classes is not None and sets.names.dtype.kind in "iu":
            texts = [name.encode() for name in store.classes.tolist()]
            self._empty = texts.index(b"") if b"" in texts else -1
            self._lay(texts)
        elif store.classes is not None:
            if store.classes.dtype.kind not in "biuf":
                raise DataError(
                    f"labels such as {str(store.classes[0])!r} are not numbers",
                    store.uri,
                    "svmlight text has numbers only",
                )
            self._set(store.classes + 0 if store.classes.dtype == bool else store.classes)

    def _set(self, numbers: np.ndarray) -> None:
        self._lay([repr(value).removesuffix(".0").encode() for value in numbers.tolist()])

    def _lay(self, texts: list[bytes]) -> None:
        self.text = np.frombuffer(b"".join(texts), np.uint8)
        self.starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        self.longest = max(map(len, texts), default=0)

    def of(self, block: Block, indptr: np.ndarray) -> np.ndarray:
        """For each row, the number of its label in `starts`.

        Raises DataError naming the row for which text has no line: one with neither labels nor entries.
        """
        bare = (block.y == self._empty) & (np.diff(indptr) == 0) if self._empty >= 0 else np.zeros(0, bool)
        if bare.any():
            what = f"row {block.start + int(np.argmax(bare))} has neither labels nor entries"
            raise DataError(what, self._where, "svmlight text has no line for it: write .jsonl, .parquet or .zarr")
        if self._classes is not None:
            return block.y
        self._set(block.y)
        return np.arange(block.n_rows)


def _as_csr(X: Matrix) -> CSR:
    """X with floating values: the digits of a number are sought in the precision it is stored in."""
    if isinstance(X, CSR):
        return X if X.data.dtype.kind == "f" else X._replace(data=X.data.astype(np.float32))
    rows, columns = np.nonzero(X)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(X)))])
    values = X[rows, columns]
    columns = columns.astype(index_dtype(X.shape[1]))  # of the types that sparse rows have: one loop serves both
    return CSR(values if values.dtype.kind == "f" else values.astype(np.float32), columns, indptr)


def _lines(block: Block, X: CSR, labels: _Labels) -> memoryview:
    which = labels.of(block, X.indptr)
    mantissas, exponents = exact_decimals(X.data)
    out = np.empty(kernel.ENTRY_BYTES * len(X.data) + (labels.longest + 1) * block.n_rows, np.uint8)
    indices, data = frozen(X.indices), frozen(X.data)  # a loop for both, whoever may write to them
    size = kernel.write_lines(labels.text, labels.starts, which, X.indptr, indices, data, mantissas, exponents, out)
    return out[:size].data


def exact_decimals(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mantissas, exponents): |values| = mantissa * 10^exponent when read back, in as few digits as do."""
    mantissas, exponents = np.empty(len(values), np.uint64), np.empty(len(values), np.int64)
    left = np.empty(len(values), np.int64)
    n_left = kernel.shortest(frozen(values), mantissas, exponents, left)
    for place in left[:n_left].tolist():  # float64 of 16 and 17 digits: Python knows the shortest
        digits, _, power = repr(abs(float(values[place]))).partition("e")
        whole, _, fraction = digits.partition(".")
        mantissas[place] = int(whole + fraction)
        exponents[place] = int(power or 0) - len(fraction)
    return mantissas, exponents
