"""Rows of arrays in memory: NumPy, or SciPy CSR."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import scipy.sparse
import xxhash

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, StoreBase, bounds, tile
from bigsvm.store.checks import as_values, check_csr, check_finite, check_indptr, index_dtype, value_dtype
from bigsvm.store.content import ContentHash
from bigsvm.store.frames.columns import names_of_columns, told_of_weights
from bigsvm.store.frames.values import plain_rows, unmasked
from bigsvm.store.identity import Identity
from bigsvm.store.labels import (
    ONE_A_ROW,
    Task,
    alike,
    as_labels,
    as_targets,
    check_weights,
    label_codes,
    normal_classes,
    scan_classes,
)
from bigsvm.units import counted

_PIECE = 1 << 18  # labels


class ArrayRows(StoreBase):
    """RowBlocks over arrays in memory; blocks are views, if no order is given and the dtype is one that X may have.

    X : (n_samples, n_features) array, SciPy CSR matrix or array, or our CSR with `n_features` given
    y : labels, numbers or strings, shape (n_samples,)
    sample_weight : shape (n_samples,), each >= 0
    row_order : working row i is row row_order[i] of X
    feature_order : working feature j is feature feature_order[j] of X
    classes : all labels that may occur, ascending; found in y by default
    task : whether numeric labels are classes or targets (`labels.scan_classes`)
    indices : dtype of the feature numbers of CSR rows; by default the smallest sufficient one

    Raises
    ------
    UsageError : shapes do not go together.  DataError : a value cannot be used (names the row).
    """

    uri = "memory"

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        row_order: np.ndarray | None = None,
        feature_order: np.ndarray | None = None,
        classes: np.ndarray | None = None,
        *,
        n_features: int | None = None,
        task: Task = "auto",
        indices: np.dtype | None = None,
    ) -> None:
        self._task, self.feature_names = task, names_of_columns(X)
        self.warnings = told_of_weights(self.feature_names, in_memory=True)
        self._take_matrix(X, n_features, indices)
        labels = unmasked(y, "y")
        if labels.shape != (self.n_samples,):
            hint = "one label a row: pass numpy.ravel(y)" if labels.shape == (self.n_samples, 1) else ONE_A_ROW
            raise UsageError(f"labels of shape {labels.shape} for {counted(self.n_samples, 'row')}", hint=hint)
        self._weight: np.ndarray | None = None
        if sample_weight is not None:
            self._weight = check_weights(unmasked(sample_weight, "sample_weight"), "sample_weight")
            if self._weight.shape != (self.n_samples,):
                what = f"weights of shape {self._weight.shape} for {counted(self.n_samples, 'row')}"
                raise UsageError(what, hint="one weight a row")
        self.has_weights = self._weight is not None
        self.row_order = _permutation(row_order, self.n_samples, "row_order")
        self.working_row = None if self.row_order is None else np.argsort(self.row_order)
        self.feature_order = _permutation(feature_order, self.n_features, "feature_order")
        self._place: np.ndarray | None = None  # working position of each stored feature
        if self.feature_order is not None:
            self._place = np.argsort(self.feature_order).astype(self.index_dtype)
        if classes is not None or task == "regression" or not self._coded(labels, task):
            self._kept: np.ndarray | None = as_labels(labels, "y")
            found = self._find_classes(classes, self._kept, task)
            self.classes = found
            self._y = as_targets(self._kept, "y") if found is None else label_codes(self._kept, found)

    def __repr__(self) -> str:
        return f"ArrayRows({self.n_samples} x {self.n_features} {self.layout})"

    def _take_matrix(self, X: Any, n_features: int | None, numbers: np.dtype | None) -> None:
        self.layout: Literal["csr", "dense"]
        if hasattr(X, "to_memory"):  # of anndata, backed or not
            hint = "give the path of its file, or arrays: (adata.X, adata.obs[...]); of a backed one X.to_memory()"
            raise UsageError(f"X is a {type(X).__name__}, not an array", hint=hint)
        if isinstance(X, CSR):
            if n_features is None:
                raise UsageError("n_features is needed with bare CSR arrays")
            shape, matrix = (len(X.indptr) - 1, n_features), X
        elif scipy.sparse.issparse(X):
            if X.format != "csr":
                raise UsageError(f"a sparse matrix in {X.format} format", hint="convert it with .tocsr()")
            check_indptr(X.indptr, len(X.indices), len(X.data), "X")
            if not X.has_sorted_indices:
                X = X.sorted_indices()  # a copy, so that the same content gives the same sums in the same order
            shape, matrix = X.shape, CSR(X.data, X.indices, X.indptr)
        else:
            dense = plain_rows(X, "X")
            if dense.ndim != 2:
                raise UsageError(f"X of shape {dense.shape}", hint="two dimensions: rows and features")
            shape, matrix = dense.shape, None
            self.dtype = value_dtype(dense.dtype, "X")
            self._X: np.ndarray | CSR = dense if dense.dtype == self.dtype else as_values(dense, self.dtype, "X", 0)
        self.n_samples, self.n_features = int(shape[0]), int(shape[1])
        self.index_dtype = np.dtype(np.int32)
        if matrix is None:
            self.layout = "dense"
            self.nnz: int | None = self.n_samples * self.n_features
            check_finite(self._X, "X", 0)
            return
        self.layout = "csr"
        self.dtype, self.index_dtype = value_dtype(matrix.data.dtype, "X"), numbers or index_dtype(self.n_features)
        check_csr(matrix, self.n_features, "X", 0)
        indices = np.asarray(matrix.indices, self.index_dtype)
        data = as_values(matrix.data, self.dtype, "X", 0, matrix.indptr)
        self._X = CSR(data, indices, np.asarray(matrix.indptr, np.int64))
        self.nnz = len(matrix.data)

    def _coded(self, labels: np.ndarray, task: Task) -> bool:
        """Replace labels by their codes, to save memory; False if they cannot be restored from codes, or are targets.

        Works piece by piece: int64 copies of one-byte labels would take more memory than narrow rows do.
        """
        if labels.dtype.kind not in "biu":
            return False
        pieces = list(tile(self.n_samples, _PIECE))
        classes = scan_classes((as_labels(labels[a:b], "y") for a, b in pieces), task)
        if classes is None or classes.dtype != as_labels(labels[:0], "y").dtype:
            return False
        codes = [label_codes(as_labels(labels[a:b], "y"), classes) for a, b in pieces]
        self.classes, self._kept = classes, None
        self._y = np.concatenate(codes) if codes else label_codes(as_labels(labels, "y"), classes)
        return True

    def _find_classes(self, classes: np.ndarray | None, labels: np.ndarray, task: Task) -> np.ndarray | None:
        if classes is None:
            return scan_classes([labels], task)
        found = normal_classes(np.asarray(classes))
        unknown = ~np.isin(*alike(labels, found))
        if np.any(unknown):
            row = int(np.flatnonzero(unknown)[0])
            raise DataError(f"label {labels[row]} of row {row} is not among the classes", self.uri)
        return found

    @property
    def _labels(self) -> np.ndarray:
        """The labels as from `as_labels`, (n_samples,)."""
        if self._kept is not None:
            return self._kept
        assert self.classes is not None
        return self.classes[self._y]

    def shares(self, array: np.ndarray) -> bool:
        """Whether this object may use the memory of an array."""
        kept = (*(self._X if isinstance(self._X, CSR) else (self._X,)), self._kept, self._weight)
        return any(part is not None and np.may_share_memory(array, part) for part in kept)

    def kept_X(self) -> Any:
        """X in a form that `open_store` accepts, from what is kept."""
        if not isinstance(self._X, CSR):
            return self._X
        return scipy.sparse.csr_array(tuple(self._X), shape=(self.n_samples, self.n_features))

    def kept_labels(self) -> np.ndarray:
        """The same for y."""
        return self._labels

    def kept_weights(self) -> np.ndarray | None:
        """The same for the weights."""
        return self._weight

    @functools.cached_property
    def fingerprint(self) -> str:
        """xxh3-128 of the dtypes, shapes and bytes of the arrays, and of the orders."""
        hasher = xxhash.xxh3_128(f"{self.layout} {self.n_samples} {self.n_features}".encode())
        parts: list[tuple[np.ndarray | None, np.ndarray | None]] = [
            (part, None) for part in (self._X if isinstance(self._X, CSR) else (self._X,))
        ]
        parts += [(self._kept, None)] if self._kept is not None else [(self.classes, self._y)]
        parts += [(part, None) for part in (self._weight, self.row_order, self.feature_order)]
        for part, codes in parts:
            if part is None:
                hasher.update(b"none")
                continue
            hasher.update(f"{part.dtype.str} {part.shape if codes is None else codes.shape}".encode())
            for piece in [part] if codes is None else (part[codes[a:b]] for a, b in tile(len(codes), _PIECE)):
                hasher.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
        return hasher.hexdigest()

    @functools.cached_property
    def identity(self) -> Identity:
        """The arrays are identified by their content; the possible classes are given by the caller."""
        weight = "sample_weight" if self.has_weights else ""
        classes = "" if self.classes is None else json.dumps(self.classes.tolist())
        return Identity.of(self.fingerprint, matrix="X", label="y", weight=weight, task=self._task, classes=classes)

    @functools.cached_property
    def content_fingerprint(self) -> str | None:
        """The fingerprint of the rows and features in X's own order."""
        content = ContentHash()
        content.add(self._X, self._labels, self._weight, 0)
        return content.hexdigest()

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(cast(RowBlocks, self), block_rows)

    def read(self, ref: BlockRef) -> Block:
        start, stop = bounds(ref, self.n_samples, self.uri)
        rows: Any = slice(start, stop) if self.row_order is None else self.row_order[start:stop]
        X = self._read_csr(rows) if isinstance(self._X, CSR) else self._read_dense(self._X, rows)
        weight = None if self._weight is None else self._weight[rows]
        return Block(start, stop, X, self._y[rows], weight)

    def _read_dense(self, X: np.ndarray, rows: Any) -> np.ndarray:
        block = X[rows]
        if self.feature_order is not None:
            block = block[:, self.feature_order]
        return np.ascontiguousarray(block)

    def _read_csr(self, rows: Any) -> CSR:
        assert isinstance(self._X, CSR)
        data, indices, indptr = self._X
        if isinstance(rows, slice):
            a, b = indptr[rows.start], indptr[rows.stop]
            block = CSR(data[a:b], indices[a:b], indptr[rows.start : rows.stop + 1] - a)
        else:
            block = gather_rows(self._X, rows)
        return block if self._place is None else _renumber(block, self._place)


def gather_rows(X: CSR, rows: np.ndarray) -> CSR:
    """The rows with these numbers, in that order; int64 indptr from 0."""
    lengths = X.indptr[rows + 1] - X.indptr[rows]
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    entries = np.arange(indptr[-1]) + np.repeat(X.indptr[rows] - indptr[:-1], lengths)
    return CSR(X.data[entries], X.indices[entries], indptr)


def _renumber(X: CSR, place: np.ndarray) -> CSR:
    """Renumber the features by `place`, and sort each row again."""
    indices = place[X.indices]
    row = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
    order = np.lexsort((indices, row))
    return CSR(X.data[order], indices[order], X.indptr)


def _permutation(order: Any, n: int, name: str) -> np.ndarray | None:
    if order is None:
        return None
    order = np.asarray(order)
    if order.shape != (n,) or order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(n)):
        raise UsageError(f"{name} is not a permutation of {n}")
    return order.astype(np.int64)
