"""The rows of a model's support vectors, gathered from data that may be larger than memory.

They grow with the data: a model of noisy rows keeps more than half of them.  So they lie in memory only as far as the
budget has room once the fit's own rows are gone, else in scratch files without a name, which the arrays keep alive.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.compiled.shared.rows import CSR
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.kernel.values.data import KernelData
from bigsvm.solvers.kernel.values.row_spool import RowSpool
from bigsvm.store.blocks import Matrix, RowBlocks, blocks_of, tile
from bigsvm.store.state.vectors import RowVector

_PIECE_ROWS = 4096  # of rows that are in memory anyway
_WHAT = "support vectors"


class SupportRoom:
    """Makes the arrays of a model's support vectors, in memory as long as there is room, then in scratch files.

    left : int   bytes of memory that are left
    """

    def __init__(self, ctx: Context) -> None:
        self._folder = ctx.workdir
        self.left = ctx.budget.free + (0 if ctx.resident else ctx.row_buffer_bytes)

    def array(self, n: int, width: int, dtype: np.dtype | type) -> np.ndarray:
        """An array of zeros, (n, width).  Raises OutputError if the scratch folder has no room for it."""
        nbytes = n * width * np.dtype(dtype).itemsize
        fits = nbytes <= self.left
        self.left -= nbytes if fits else 0
        return RowVector(_WHAT, n, width, dtype, MemoryBudget(nbytes), self._folder, on_disk=not fits).values

    def spool(self) -> RowSpool:
        """A spool for sparse rows until their number of entries is known; it may take half of what is left."""
        return RowSpool(self.left // 2, self._folder)


def gathered_support(
    data: KernelData, support: np.ndarray, rank: np.ndarray, store: RowBlocks, room: SupportRoom
) -> Matrix:
    """Rows of the data in the order of the store's rows, with the store's feature numbers; the rows are read once.

    support : int64, ascending, their numbers in the data;  rank : int64, the place of each among the store's

    Raises OutputError if they fit neither in memory nor in the scratch folder.
    """
    if store.layout == "dense":
        X = room.array(len(support), store.n_features, store.dtype)
        first = 0
        for piece in _pieces(data, support):
            assert not isinstance(piece, CSR)
            places = rank[first : first + len(piece)]
            if store.feature_order is None:
                X[places] = piece
            else:
                X[places[:, None], store.feature_order] = piece
            first += len(piece)
        return X
    return _sparse(data, support, rank, store, room)


def _sparse(data: KernelData, support: np.ndarray, rank: np.ndarray, store: RowBlocks, room: SupportRoom) -> CSR:
    spool, indptr, first = room.spool(), np.zeros(len(support) + 1, np.int64), 0
    for piece in _pieces(data, support):
        assert isinstance(piece, CSR)
        lengths = np.diff(piece.indptr)
        indptr[rank[first : first + len(lengths)] + 1] = lengths
        spool.add(piece if store.feature_order is None else _renumbered(piece, np.asarray(store.feature_order)))
        first += len(lengths)
    np.cumsum(indptr, out=indptr)
    room.left -= spool.held_bytes
    values = room.array(int(indptr[-1]), 1, store.dtype).reshape(-1)
    indices = room.array(int(indptr[-1]), 1, store.index_dtype).reshape(-1)
    first = 0
    for piece in spool:
        n = len(piece.indptr) - 1
        shift = indptr[rank[first : first + n]] - piece.indptr[:-1]
        places = np.arange(len(piece.data)) + np.repeat(shift, np.diff(piece.indptr))
        values[places], indices[places] = piece.data, piece.indices
        first += n
    return CSR(values, indices, indptr)


def _pieces(data: KernelData, support: np.ndarray) -> Iterator[Matrix]:
    """Copies of the rows, a block's at a time."""
    whole = data.whole()
    if whole is not None:
        for start, stop in tile(len(support), _PIECE_ROWS):
            yield picked_rows(whole, support[start:stop])
        return
    for block in blocks_of(data.ctx.data, data.refs_of(support)):
        data.ctx.charge(block.nbytes)
        a, b = np.searchsorted(support, [block.start, block.stop])
        yield picked_rows(block.X, support[a:b] - block.start)


def _renumbered(piece: CSR, feature_order: np.ndarray) -> CSR:
    """With the store's feature numbers, ascending within a row."""
    indices = feature_order[piece.indices].astype(piece.indices.dtype)
    row = np.repeat(np.arange(len(piece.indptr) - 1), np.diff(piece.indptr))
    ascending = np.lexsort((indices, row))
    return CSR(piece.data[ascending], indices[ascending], piece.indptr)
