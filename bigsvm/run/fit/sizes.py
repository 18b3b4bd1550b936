"""The arithmetic of a plan: bytes and rows as pure functions of metadata and the budget."""

from __future__ import annotations

import functools

from bigsvm.files.packed_text import text_bytes
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.dcd.active_row_buffer import slots_in, whole_row_buffer
from bigsvm.store.blocks import RowBlocks, row_bytes
from bigsvm.units import MIB

BLOCK_BYTES = 4 * MIB  # rows worked on together: extents from all over the data, as many as this holds
_GROUPS_A_BUDGET = 32  # of groups that are smaller than that, since the budget is small
_SMALLEST_GROUP = MIB // 4
_COPY_BLOCK = MIB // 4  # a block of a working copy; the same for every budget, so that fits share copies
_EXTENTS = 4  # places that a group's rows come from, each read in one piece
FIXED = 8 * MIB  # events, indices, interpreter objects of a run: its table of strings alone may double, by 2 MiB
READ_DEPTH = 2
PARALLEL = 2  # certificate tasks counted for, a constant: decisions must not depend on the cores
_WIDE_BESIDE = 32  # bytes a weight beside w: its best copy, v, the parts of two tasks; or saving the model
SPARE_SHARE = 16  # of streamed fits: per-row vectors of more than this part of the budget go to disk
_UNPACKED = 4  # times the bytes of packed rows, that rows and what a solver of them needs take at most
_SMALLEST_ROW_BUFFER = MIB // 4
_ROW_BUFFER_SWEEPS = 20  # a pass; more gain little where features are many
_ROW_BUFFER_SWEEPS_SMOOTH = 8  # of a smooth loss, whose rows settle sooner
_ROW_BUFFER_SWEEPS_MANY = 10  # of many models, each of which a sweep costs, while they share the reading
_MANY_MODELS = 8
_ROW_BUFFER_SWEEPS_NARROW = 60  # where the row buffer holds many more rows than there are features, they pay
_NARROW = 16  # rows a feature, from which that is so
_NARROW_SEARCH = 8  # likewise of a search, where a reading that is spared is one of all its models
_LOADING = 24 * MIB  # what reading a store into memory takes: chunks of the default size, decoded
_PIECE = MIB  # bytes read from a store at a time where memory is scarce
_PIECE_COPIES = 1.25  # a piece, and its labels, weights and hashes
_UNEVEN = 1.1  # a group's bytes over those of average rows
_HUNDREDS = 256  # models, from which what a solver holds of each row and model is more than the rows
_OF_HUNDREDS = 6  # arrays of rows by models: scores, steps, curvature, duals, and two that come and go
_ROW_EXTRA = 44  # bytes a row of a block in work: order, cost, code


class Sizes:
    """What a fit of `shape` holds at any budget."""

    def __init__(self, store: RowBlocks, shape: DataShape, needs: tuple[Need, ...], stage: str, packed: bool) -> None:
        self.shape, self.needs, self.packed = shape, needs, packed
        self.row_bytes = max(row_bytes(store), 1.0)
        self.data_bytes = int(self.row_bytes * shape.n_samples) + 8
        self.wide = next((need.nbytes for need in needs if need.what == "w"), 0)
        self.beside = sum(need.nbytes for need in needs if not need.may_spill) - self.wide
        self.raw = store.raw
        self.staged = stage == "auto"
        # An open store keeps the chunks it read last, and every reader decodes others beside them.
        self.open_chunks = store.chunk_nbytes
        self.decode = self.open_chunks * 3 // 2
        self.fixed = FIXED + text_bytes(store.feature_names)

    def group_bytes(self, budget: int) -> int:
        return int(min(BLOCK_BYTES, max(budget // _GROUPS_A_BUDGET, _SMALLEST_GROUP)))

    def block_rows(self, budget: int) -> int:
        """Rows of a block: of a working copy the same for every budget; else what is read in one piece."""
        if self.staged:
            return int(min(max(_COPY_BLOCK // self.row_bytes, 1), self.shape.n_samples))
        pieces = _EXTENTS if self.raw else 1
        return int(min(max(self.group_bytes(budget) // pieces // self.row_bytes, 1), self.shape.n_samples))

    def extent_rows(self, budget: int) -> int:
        rows = self.block_rows(budget)
        return rows * max(int(self.group_bytes(budget) / _EXTENTS // (rows * self.row_bytes)), 1)

    def group_extents(self, budget: int) -> int:
        return max(int(self.group_bytes(budget) // (self.extent_rows(budget) * self.row_bytes)), 1)

    def beside_row_buffer(self, budget: int) -> int:
        # A store that was staged has let go of its chunks: the row buffer, and with it the bytes of the model, must not
        # depend on how it is chunked.
        return self.fixed + (0 if self.staged else self.open_chunks) + self.streaming(budget)

    def row_buffer(self, store: RowBlocks, spare: int, unpacked: bool = False) -> int:
        """Bytes for rows that stay: all that is spare, if that is worth having; `unpacked` with what solves them."""
        nbytes = min(spare, whole_row_buffer(store, self.packed) * (_UNPACKED if unpacked else 1))
        return nbytes if nbytes >= _SMALLEST_ROW_BUFFER else 0

    def row_buffer_sweeps(self, store: RowBlocks, row_buffer: int) -> int:
        if row_buffer == 0:
            return 0
        rows_a_feature = _NARROW_SEARCH if self.shape.folded else _NARROW
        narrow = slots_in(row_buffer, store, self.packed) >= rows_a_feature * self.shape.n_features
        if narrow:
            return _ROW_BUFFER_SWEEPS_NARROW
        many = self.shape.n_models >= _MANY_MODELS and not self.shape.folded and not self.shape.joint
        if many:
            return _ROW_BUFFER_SWEEPS_MANY
        smooth = self.shape.smooth_loss and self.shape.shards == 1  # on shards a pass costs more than its sweeps
        return _ROW_BUFFER_SWEEPS_SMOOTH if smooth else _ROW_BUFFER_SWEEPS

    def piece_rows(self, budget: int, resident: bool) -> int:
        """Rows read from the store at a time; a multiple of the block's, since staging cuts pieces into blocks."""
        if resident:
            return max(int(_PIECE // self.row_bytes), 1)
        rows = self.block_rows(budget)
        room = (budget - self.fixed - self.open_chunks - PARALLEL * self.decode) / (_PIECE_COPIES * PARALLEL)
        return max(int(min(room, 8 * _PIECE) // (self.row_bytes * rows)), 1) * rows

    def staging_bytes(self, piece_rows: int) -> int:
        """What one worker holds while it copies."""
        return int(_PIECE_COPIES * piece_rows * self.row_bytes) + self.decode

    def staging_workers(self, budget: int, piece_rows: int) -> int:
        spare = budget - self.fixed - self.open_chunks
        return int(min(max(spare // max(self.staging_bytes(piece_rows), 1), 1), 64))

    def window(self, budget: int, resident: bool) -> int:
        """Bytes of rows in memory at one time: all of them, or the blocks in flight and in work."""
        if resident:
            return self.data_bytes + _ROW_EXTRA * self.shape.n_samples
        rows = self.extent_rows(budget) * self.group_extents(budget)
        block = int(max(rows * self.row_bytes * _UNEVEN, self.group_bytes(budget)))
        beside = (_ROW_EXTRA + 8 * self.shape.n_models) * rows
        if self.shape.n_models >= _HUNDREDS:
            beside = beside * _OF_HUNDREDS // 2
        if self.shape.shards == 1 and self.staged:
            return (READ_DEPTH + 1) * block + 2 * beside
        # A group is a copy beside the maps that it is made of.
        decode = 0 if self.staged else (1 + PARALLEL) * self.decode
        return (READ_DEPTH + 1 + PARALLEL) * 2 * block + 2 * beside + decode

    def fixed_bytes(self, budget: int, resident: bool) -> int:
        """What must be in memory whatever else spills, without a row buffer."""
        loading = int(_PIECE_COPIES * _PIECE) + self.decode if resident else 0
        saving = self.wide_bytes()
        streams = not resident and self.shape.shards == 1
        training = self.streaming(budget) if streams else self.window(budget, resident) + loading + saving + self.beside
        if self.staged and not resident:  # the copy is made before training begins, and the store lets go of its chunks
            copying = self.open_chunks + self.staging_bytes(self.block_rows(budget))
            return self.fixed + max(copying, training, saving)
        return self.fixed + self.open_chunks + max(training, saving)

    def streaming(self, budget: int) -> int:
        """What a pass over streamed rows holds: the rows, w and two copies of it, and a float64 one of a proof."""
        return self.window(budget, False) + (3 + 8 // self.shape.weight_bytes) * self.wide + self.beside

    def resident_from(self) -> int:
        """Budgets from which all rows are kept in memory: a function of content and dtype, not of chunks.

        A constant stands for what reading the store takes, so that the mathematics is the same for every
        chunking; where the chunks are larger than that, `resident_bytes` is what must be there.
        """
        state = sum(need.nbytes for need in self.needs if need.may_spill)
        return self.fixed + self.window(0, True) + _LOADING + self.wide_bytes() + self.beside + state

    def wide_bytes(self) -> int:
        """Bytes for arrays as large as w: while rows in memory are certified, or while the model is saved."""
        return self.wide + _WIDE_BESIDE * self.wide // self.shape.weight_bytes

    def resident_bytes(self) -> int:
        """All rows and all per-row state in memory, and what reading this store takes."""
        state = sum(need.nbytes for need in self.needs if need.may_spill)
        return max(self.resident_from(), self.fixed_bytes(0, True) + state)

    def least_memory(self) -> int:
        """The smallest budget that works, in whole MiB: blocks stream, per-row state is on disk."""
        return self._least_memory

    @functools.cached_property
    def _least_memory(self) -> int:
        low, high = 0, 1 << 50
        largest = self.fixed_bytes(high, False)
        while low < high:
            middle = (low + high) // 2
            # Larger budgets have no larger groups: half of a small fit's planning would be to find that again.
            needed = largest if middle >= _GROUPS_A_BUDGET * BLOCK_BYTES else self.fixed_bytes(middle, False)
            if needed <= middle:
                high = middle
            else:
                low = middle + 1
        return -(-min(low, self.resident_bytes()) // MIB) * MIB
