"""Support vectors: in memory, in a model's files, or as pieces that are about to be written.

support.npy          dense, (n_support, n_features), in the dtype of the data
support_data.npy     CSR: values in the dtype of the data, (nnz,)
support_indices.npy  int32 or int64, (nnz,), ascending within a row
support_indptr.npy   int64, (n_support + 1,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR, n_rows_of, take_rows
from bigsvm.files.file_array import FileArray
from bigsvm.model.kernel_scores import LARGEST_BLOCK, TABLE, tile_bytes
from bigsvm.model.model_files import GrowingArray, write_array
from bigsvm.model.support_files import DENSE, SPARSE, indptr_pieces
from bigsvm.store.blocks import Matrix

_INT32 = np.dtype(np.int32)
_MOST_ROWS = 512  # limit of the support vectors in a block


@dataclass(frozen=True)
class SupportPieces:
    """Support vectors that are not held in memory: each call of `pieces()` yields them from the first to the last.

    layout : 'dense' | 'csr';  dtype : dtype of the values;  index_dtype : int32 or int64
    nbytes : their total size, for the error message if a disk is full
    """

    layout: str
    dtype: np.dtype
    pieces: Callable[[], Iterator[Matrix]]
    index_dtype: np.dtype = _INT32
    nbytes: int = 0


Support = Matrix | FileArray | SupportPieces


def support_blocks(support: Support) -> Iterator[tuple[int, int, Matrix]]:
    """Blocks (first, last, rows [first, last) in memory) of bounded size, in order.

    The blocks depend only on the support vectors, so that sums over them always have the same bits.
    """
    if isinstance(support, SupportPieces):
        first = 0
        for piece in support.pieces():
            for a, b, block in support_blocks(piece):
                yield first + a, first + b, block
            first += n_rows_of(piece)
        return
    n, start = n_rows_of(support), 0
    while start < n:
        stop = start + _block_rows(support, start, n)
        block = take_rows(support, start, stop)
        yield start, stop, CSR(*map(_plain, block)) if isinstance(block, CSR) else _plain(block)
        start = stop


def _plain(array: np.ndarray) -> np.ndarray:
    """A copy, because the loops are compiled for plain arrays, not for read-only views; what was just read is one."""
    return array if type(array) is np.ndarray and array.flags.owndata and array.flags.writeable else np.array(array)


def gathered(support: Support) -> Matrix:
    """All support vectors as one matrix in memory; pieces are concatenated."""
    if isinstance(support, CSR):
        return CSR(*map(np.asarray, support))
    if not isinstance(support, SupportPieces):
        return np.asarray(support)
    parts = list(support.pieces())
    if support.layout == "dense":
        return np.concatenate([np.asarray(part) for part in parts])
    data, indices, rows = zip(*((part.data, part.indices, np.diff(part.indptr)) for part in parts), strict=True)  # type: ignore[union-attr]
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(rows)))).astype(np.int64)
    return CSR(np.concatenate(data), np.concatenate(indices), indptr)


def _block_rows(support: Matrix | FileArray, start: int, n: int) -> int:
    """Rows of the block at `start`: as many as fit LARGEST_BLOCK in float64, and with their features as a tile."""
    rows = min(_MOST_ROWS, n - start)
    if not isinstance(support, CSR):
        return max(min(rows, LARGEST_BLOCK // max(8 * support.shape[1], 1)), 1)
    while rows > 1:
        a, b = int(support.indptr[start]), int(support.indptr[start + rows])
        features = b - a
        if tile_bytes(features) > LARGEST_BLOCK and b - a <= LARGEST_BLOCK // 16:
            here = support.indices[a:b]
            features = min(features, int(here.max()) + 1 - int(here.min()))
        if max(16 * (b - a), tile_bytes(features)) <= LARGEST_BLOCK:
            break
        rows //= 2
    return rows


def block_bytes(support: Support, n_features: int) -> int:
    """Upper bound of the bytes of a block of support vectors: as stored, in float64, and its tile."""
    if isinstance(support, CSR):
        entries = max((int(np.diff(piece).max()) for piece in indptr_pieces(support.indptr)), default=1)
    elif isinstance(support, SupportPieces) and support.layout == "csr":
        entries = 1  # unknown, and irrelevant: pieces are written, not predicted with
    else:
        return 2 * max(LARGEST_BLOCK, 16 * n_features) + tile_bytes(n_features)
    numbering = 12 * min(n_features, TABLE)
    return 3 * max(LARGEST_BLOCK, 16 * entries) + max(LARGEST_BLOCK, tile_bytes(entries)) + numbering


def kinds_of(support: Support | None) -> tuple[str, ...]:
    """Layout and dtypes, which decide what has to be compiled."""
    if support is None:
        return ()
    if isinstance(support, SupportPieces):
        kinds = (support.layout, support.dtype.name)
        return kinds if support.layout == "dense" else (*kinds, support.index_dtype.name)
    if isinstance(support, CSR):
        return "csr", support.data.dtype.name, support.indices.dtype.name
    return "dense", support.dtype.name


def tiny_support(support: Support | None) -> Matrix | None:
    """One support vector with one feature, of the same layout and dtypes; scoring with it compiles the same code."""
    kinds = kinds_of(support)
    if not kinds:
        return None
    if kinds[0] == "dense":
        return np.zeros((1, 1), kinds[1])
    return CSR(np.zeros(1, kinds[1]), np.zeros(1, kinds[2]), np.array([0, 1], np.int64))


def support_nbytes(support: Support | None) -> int:
    """Bytes of the arrays."""
    if isinstance(support, CSR):
        return sum(array.nbytes for array in support)
    return 0 if support is None else support.nbytes


def write_support(folder: Path, support: Support | None, n_support: int, n_features: int) -> dict[str, str]:
    """Write the files; returns their digests by name.  Pieces are written one by one.

    Raises ValueError if the pieces have another number of rows than `n_support`.
    """
    if support is None:
        return {}
    if isinstance(support, np.ndarray | FileArray):
        return {DENSE[0]: write_array(folder / DENSE[0], support)}
    if isinstance(support, CSR):
        kinds = (None, None, np.int64)
        named = zip(SPARSE, support, kinds, strict=True)
        return {name: write_array(folder / name, array, kind) for name, array, kind in named}
    with ExitStack() as stack:

        def growing(name: str, dtype: Any, *tail: int) -> GrowingArray:
            array = GrowingArray(folder / name, dtype, *tail)
            stack.callback(array.abandon)
            return array

        n = 0
        if support.layout == "dense":
            files = [growing(DENSE[0], support.dtype, n_features)]
            for piece in support.pieces():
                files[0].append(piece)  # type: ignore[arg-type]
                n += n_rows_of(piece)
        else:
            data, indices = growing(SPARSE[0], support.dtype), growing(SPARSE[1], support.index_dtype)
            indptr = growing(SPARSE[2], np.int64)
            indptr.append(np.zeros(1, np.int64))
            for piece in support.pieces():
                assert isinstance(piece, CSR)
                indptr.append(np.asarray(piece.indptr[1:], np.int64) + data.n)
                data.append(piece.data)
                indices.append(piece.indices)
                n += n_rows_of(piece)
            files = [data, indices, indptr]
        if n != n_support:
            raise ValueError(f"{n} support vectors were given for {n_support} rows")
        names = DENSE if support.layout == "dense" else SPARSE
        return {name: file.close() for name, file in zip(names, files, strict=True)}
