"""The arithmetic of a plan: bytes and rows as pure functions of metadata and the budget."""

from __future__ import annotations

import functools

from bigsvm.files.packed_text import text_bytes
from bigsvm.solvers.base import WEIGHTS, DataShape, Need
from bigsvm.solvers.dcd.active_row_buffer import slots_in, whole_row_buffer
from bigsvm.store.blocks import RowBlocks, row_bytes
from bigsvm.units import MIB

BLOCK_BYTES = 4 * MIB  # largest group: rows from several places of the data that are worked on together
_GROUPS_A_BUDGET = 32  # in a small budget a group is smaller: the budget divided by this, but no less than
_SMALLEST_GROUP = MIB // 4
_COPY_BLOCK = MIB // 4  # a block of a working copy; the same for every budget, so that fits can share a copy
_EXTENTS = 4  # places that the rows of a group come from; each is read in one piece
FIXED = 8 * MIB  # events, indices, interpreter objects of a run: its table of strings alone may double, by 2 MiB
READ_DEPTH = 2  # groups that are read ahead
PARALLEL = 2  # certificate tasks counted for; a constant, because decisions must not depend on the number of cores
# Bytes for each weight of float64 arrays as large as w, beside w itself, while a proof runs: the best w, v, and the
# parts of v of two tasks.  Saving the model takes no more.
_WIDE_BESIDE = 32
SPARE_SHARE = 16  # if rows stream, per-row vectors beyond this part (1/16) of the budget go to disk
_UNPACKED = 4  # kept rows, with the work space of what solves them, take at most this many times their packed bytes
_SMALLEST_ROW_BUFFER = MIB // 4  # a smaller one is not worth having
_ROW_BUFFER_SWEEPS = 20  # sweeps of the row buffer in a pass; more gain little if features are many
_ROW_BUFFER_SWEEPS_SMOOTH = 8  # for a smooth loss, whose rows converge sooner
_ROW_BUFFER_SWEEPS_MANY = 10  # for many models: each of them has to be swept, but they share the reading
_MANY_MODELS = 8
_ROW_BUFFER_SWEEPS_NARROW = 60  # if the row buffer holds many more rows than there are features, more sweeps pay
_NARROW = 16  # rows in the buffer per feature from which that is so
_NARROW_SEARCH = 8  # the same for a search, in which a saved reading is one of all its models
_LOADING = 24 * MIB  # what reading a store into memory takes: chunks of the default size, decoded
_PIECE = MIB  # bytes read from a store at a time if memory is scarce
_PIECE_COPIES = 1.25  # a piece together with its labels, weights and hashes, relative to the piece
_UNEVEN = 1.1  # bytes of a group relative to those of as many average rows
_HUNDREDS = 256  # models from which what a solver holds for each row and model is more than the rows
_OF_HUNDREDS = 6  # arrays of (rows, models) then: scores, steps, curvature, duals, and two temporary ones
_ROW_EXTRA = 44  # bytes for each row of a block in work: order, cost, code


def data_bytes_of(store: RowBlocks) -> int:
    """Decoded bytes of X, y and weights."""
    return int(max(row_bytes(store), 1.0) * store.n_samples) + 8


class Sizes:
    """The memory of a fit with data of `shape`, as a function of the budget.

    needs : what the solver asks for;  stage : 'auto' if rows are copied to scratch, else 'none'
    packed : kept rows take 16 bits a value

    wide : bytes of w;  beside : bytes of the other needs that must be in memory
    """

    def __init__(self, store: RowBlocks, shape: DataShape, needs: tuple[Need, ...], stage: str, packed: bool) -> None:
        self.shape, self.needs, self.packed = shape, needs, packed
        self.row_bytes = max(row_bytes(store), 1.0)
        self.data_bytes = data_bytes_of(store)
        self.wide = next((need.nbytes for need in needs if need.what == WEIGHTS), 0)
        self.beside = sum(need.nbytes for need in needs if not need.may_spill) - self.wide
        self.raw = store.raw
        self.staged = stage == "auto"
        # An open store keeps the chunks that it read last, and each reader decodes further chunks.
        self.open_chunks = store.chunk_nbytes
        self.decode = self.open_chunks * 3 // 2
        self.fixed = FIXED + text_bytes(store.feature_names)

    def group_bytes(self, budget: int) -> int:
        """Bytes of a group of extents."""
        return int(min(BLOCK_BYTES, max(budget // _GROUPS_A_BUDGET, _SMALLEST_GROUP)))

    def block_rows(self, budget: int) -> int:
        """Rows of a block.  Without a working copy a block is what is read from the store in one piece."""
        if self.staged:
            return int(min(max(_COPY_BLOCK // self.row_bytes, 1), self.shape.n_samples))
        pieces = _EXTENTS if self.raw else 1
        return int(min(max(self.group_bytes(budget) // pieces // self.row_bytes, 1), self.shape.n_samples))

    def extent_rows(self, budget: int) -> int:
        """Rows read in one piece: a whole number of blocks."""
        rows = self.block_rows(budget)
        return rows * max(int(self.group_bytes(budget) / _EXTENTS // (rows * self.row_bytes)), 1)

    def group_extents(self, budget: int) -> int:
        """Extents in a group."""
        return max(int(self.group_bytes(budget) // (self.extent_rows(budget) * self.row_bytes)), 1)

    def beside_row_buffer(self, budget: int) -> int:
        """Bytes that must stay free of the row buffer while rows stream."""
        # A store that was staged holds no chunks any more, and must not be counted with them: otherwise the size of the
        # row buffer, and so the model, would depend on the chunks of the store.
        return self.fixed + (0 if self.staged else self.open_chunks) + self.streaming(budget)

    def row_buffer(self, store: RowBlocks, spare: int, unpacked: bool = False) -> int:
        """Bytes of the row buffer: all that is spare, or 0 if that is too little.

        unpacked : the rows are kept as they are, with what the solver needs to solve them
        """
        nbytes = min(spare, whole_row_buffer(store, self.packed) * (_UNPACKED if unpacked else 1))
        return nbytes if nbytes >= _SMALLEST_ROW_BUFFER else 0

    def row_buffer_sweeps(self, store: RowBlocks, row_buffer: int) -> int:
        """Sweeps of a row buffer of so many bytes in a pass."""
        if row_buffer == 0:
            return 0
        rows_a_feature = _NARROW_SEARCH if self.shape.folded else _NARROW
        narrow = slots_in(row_buffer, store, self.packed) >= rows_a_feature * self.shape.n_features
        if narrow:
            return _ROW_BUFFER_SWEEPS_NARROW
        many = self.shape.n_models >= _MANY_MODELS and not self.shape.folded and not self.shape.joint
        if many:
            return _ROW_BUFFER_SWEEPS_MANY
        smooth = self.shape.smooth_loss and self.shape.shards == 1  # on shards passes are dear, sweeps are not
        return _ROW_BUFFER_SWEEPS_SMOOTH if smooth else _ROW_BUFFER_SWEEPS

    def piece_rows(self, budget: int, resident: bool) -> int:
        """Rows read from the store at a time, a whole number of blocks, since staging cuts pieces into blocks."""
        if resident:
            return max(int(_PIECE // self.row_bytes), 1)
        rows = self.block_rows(budget)
        room = (budget - self.fixed - self.open_chunks - PARALLEL * self.decode) / (_PIECE_COPIES * PARALLEL)
        return max(int(min(room, 8 * _PIECE) // (self.row_bytes * rows)), 1) * rows

    def staging_bytes(self, piece_rows: int) -> int:
        """Bytes that one worker holds while it copies."""
        return int(_PIECE_COPIES * piece_rows * self.row_bytes) + self.decode

    def staging_workers(self, budget: int, piece_rows: int) -> int:
        """Workers that may copy at one time."""
        spare = budget - self.fixed - self.open_chunks
        return int(min(max(spare // max(self.staging_bytes(piece_rows), 1), 1), 64))

    def window(self, budget: int, resident: bool) -> int:
        """Bytes of rows in memory at one time: all rows, or those of the groups that are read ahead and in work."""
        if resident:
            return self.data_bytes + _ROW_EXTRA * self.shape.n_samples
        rows = self.extent_rows(budget) * self.group_extents(budget)
        block = int(max(rows * self.row_bytes * _UNEVEN, self.group_bytes(budget)))
        beside = (_ROW_EXTRA + 8 * self.shape.n_models) * rows
        if self.shape.n_models >= _HUNDREDS:
            beside = beside * _OF_HUNDREDS // 2
        if self.shape.shards == 1 and self.staged:
            return (READ_DEPTH + 1) * block + 2 * beside
        # A group is a copy of the blocks that it is made of, and both are in memory.
        decode = 0 if self.staged else (1 + PARALLEL) * self.decode
        return (READ_DEPTH + 1 + PARALLEL) * 2 * block + 2 * beside + decode

    def fixed_bytes(self, budget: int, resident: bool) -> int:
        """Bytes that must be in memory even if all per-row vectors are on disk, without a row buffer."""
        loading = int(_PIECE_COPIES * _PIECE) + self.decode if resident else 0
        saving = self.wide_bytes()
        streams = not resident and self.shape.shards == 1
        training = self.streaming(budget) if streams else self.window(budget, resident) + loading + saving + self.beside
        if self.staged and not resident:  # copying ends before training begins, and the chunks of the store go with it
            copying = self.open_chunks + self.staging_bytes(self.block_rows(budget))
            return self.fixed + max(copying, training, saving)
        return self.fixed + self.open_chunks + max(training, saving)

    def streaming(self, budget: int) -> int:
        """Bytes that a pass over streamed rows holds: rows, w, two copies of it, and a float64 copy for a proof."""
        return self.window(budget, False) + (3 + 8 // self.shape.weight_bytes) * self.wide + self.beside

    def resident_from(self) -> int:
        """The smallest budget in which all rows are kept in memory.

        It depends on content and dtype but not on the chunks of the store, so that the model does not either: reading
        the store is counted with a constant.  If larger chunks need more, `resident_bytes` says how much.
        """
        state = sum(need.nbytes for need in self.needs if need.may_spill)
        return self.fixed + self.window(0, True) + _LOADING + self.wide_bytes() + self.beside + state

    def wide_bytes(self) -> int:
        """Bytes of w and of arrays as large as w, during a proof with rows in memory, or while the model is saved."""
        return self.wide + _WIDE_BESIDE * self.wide // self.shape.weight_bytes

    def resident_bytes(self) -> int:
        """Bytes for all rows and all per-row state in memory, and for reading this store."""
        state = sum(need.nbytes for need in self.needs if need.may_spill)
        return max(self.resident_from(), self.fixed_bytes(0, True) + state)

    def least_memory(self) -> int:
        """The smallest budget that works, in whole MiB: usually with streamed rows and per-row state on disk."""
        return self._least_memory

    @functools.cached_property
    def _least_memory(self) -> int:
        low, high = 0, 1 << 50
        largest = self.fixed_bytes(high, False)
        while low < high:
            middle = (low + high) // 2
            # From here on groups do not grow with the budget, nor does the sum: computing it again would take half the
            # time of planning a small fit.
            needed = largest if middle >= _GROUPS_A_BUDGET * BLOCK_BYTES else self.fixed_bytes(middle, False)
            if needed <= middle:
                high = middle
            else:
                low = middle + 1
        if self.shape.shards == 1:  # the rows of shards always stream
            low = min(low, self.resident_bytes())
        return -(-low // MIB) * MIB
