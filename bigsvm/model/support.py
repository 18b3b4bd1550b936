"""Support vectors: in memory, as maps of a model's files, or as pieces that are about to be written.

support.npy          dense, (n_support, n_features), in the data's dtype
support_data.npy     CSR: values in the data's dtype, (nnz,)
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
from bigsvm.model.kernel_scores import LARGEST_BLOCK, TABLE, tile_bytes
from bigsvm.model.model_files import GrowingArray, write_array
from bigsvm.model.support_files import DENSE, SPARSE, indptr_pieces
from bigsvm.store.blocks import Matrix

_INT32 = np.dtype(np.int32)
_MOST_ROWS = 512  # support vectors that are worked with at one time


@dataclass(frozen=True)
class SupportPieces:
    """Support vectors that nobody holds: `pieces()` gives them from the first to the last, each time it is called.

    layout : 'dense' | 'csr';  dtype : of the values;  index_dtype : int32 or int64
    nbytes : what they take, for the message where a disk is full
    """

    layout: str
    dtype: np.dtype
    pieces: Callable[[], Iterator[Matrix]]
    index_dtype: np.dtype = _INT32
    nbytes: int = 0


Support = Matrix | SupportPieces


def support_blocks(support: Support) -> Iterator[tuple[int, int, Matrix]]:
    """(first, last, rows [first, last) in memory), a bounded number at a time, in order.

    Blocks of whole support vectors are a function of them alone, so that sums over them have the same bits always.
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
        # A copy, never a view of a map: kernels are compiled for plain arrays.
        yield start, stop, CSR(*map(np.array, block)) if isinstance(block, CSR) else np.array(block)
        start = stop


def gathered(support: Support) -> Matrix:
    """All support vectors as they are in memory or mapped; pieces are put together."""
    if not isinstance(support, SupportPieces):
        return support
    parts = list(support.pieces())
    if support.layout == "dense":
        return np.concatenate([np.asarray(part) for part in parts])
    data, indices, rows = zip(*((part.data, part.indices, np.diff(part.indptr)) for part in parts), strict=True)  # type: ignore[union-attr]
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(rows)))).astype(np.int64)
    return CSR(np.concatenate(data), np.concatenate(indices), indptr)


def _block_rows(support: Matrix, start: int, n: int) -> int:
    """Rows of the block at `start`: in float64, and their features as a tile, they take LARGEST_BLOCK or are one."""
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
    """Bytes that a block of support vectors takes at most: itself, in float64, and its tile."""
    if isinstance(support, CSR):
        entries = max((int(np.diff(piece).max()) for piece in indptr_pieces(support.indptr)), default=1)
    elif isinstance(support, SupportPieces) and support.layout == "csr":
        entries = 1  # unknown; they are about to be written, not to be predicted with
    else:
        return 2 * max(LARGEST_BLOCK, 16 * n_features) + tile_bytes(n_features)
    numbering = 12 * min(n_features, TABLE)
    return 3 * max(LARGEST_BLOCK, 16 * entries) + max(LARGEST_BLOCK, tile_bytes(entries)) + numbering


def kinds_of(support: Support | None) -> tuple[str, ...]:
    """Layout and types, which decide what is compiled for it."""
    if support is None:
        return ()
    if isinstance(support, SupportPieces):
        kinds = (support.layout, support.dtype.name)
        return kinds if support.layout == "dense" else (*kinds, support.index_dtype.name)
    if isinstance(support, CSR):
        return "csr", support.data.dtype.name, support.indices.dtype.name
    return "dense", support.dtype.name


def tiny_support(support: Support | None) -> Matrix | None:
    """One vector of one feature of the same kind: what compiles all that `support` needs."""
    kinds = kinds_of(support)
    if not kinds:
        return None
    if kinds[0] == "dense":
        return np.zeros((1, 1), kinds[1])
    return CSR(np.zeros(1, kinds[1]), np.zeros(1, kinds[2]), np.array([0, 1], np.int64))


def support_nbytes(support: Support | None) -> int:
    """Bytes of the arrays."""
    if support is None or isinstance(support, SupportPieces | np.ndarray):
        return 0 if support is None else support.nbytes
    return sum(array.nbytes for array in support)


def write_support(folder: Path, support: Support | None, n_support: int, n_features: int) -> dict[str, str]:
    """Write the files; their digests by name.  Pieces are written as they come.

    Raises ValueError where the pieces are not `n_support` rows.
    """
    if support is None:
        return {}
    if isinstance(support, np.ndarray):
        return {DENSE[0]: write_array(folder / DENSE[0], support)}
    if isinstance(support, CSR):
        arrays = (support.data, support.indices, np.asarray(support.indptr, np.int64))
        return {name: write_array(folder / name, array) for name, array in zip(SPARSE, arrays, strict=True)}
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
