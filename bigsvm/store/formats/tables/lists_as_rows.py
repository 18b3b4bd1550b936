"""Conversion of Arrow lists of indices and values, and of Spark ML vectors that consist of them, to sparse rows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bigsvm.compiled.tables.arrow_lists import TO_BE_LOOKED_AT, Lists, add_lists
from bigsvm.store.blocks import CompiledCall
from bigsvm.store.formats.tables.arrow_values import export, one_zero
from bigsvm.store.formats.tables.block_memory import BlockMemory, GrowingRows

_INDICES = {pa.int32(): np.int32, pa.int64(): np.int64}
"""Types of indices that the compiled loop reads; others are rare."""
NO_LABELS = np.empty(0, np.uint8)


class ListsAsRows:
    """Converts the batches of a file to sparse rows by a compiled loop, in the usual case.

    features : names of the columns of indices and of values, or of one column of vectors;  dtype : of the values
    label : name of a column of numbers that is read with them; None for none
    """

    def __init__(self, features: Sequence[str], dtype: np.dtype, label: str | None = None) -> None:
        self._features, self._dtype, self._label = tuple(features), dtype, label
        self._known: tuple[pa.Schema, Lists | None] | None = None

    def compiled_calls(self, stored: np.dtype, index_dtype: np.dtype) -> tuple[CompiledCall, ...]:
        """The compiled functions that `add` calls.

        stored, index_dtype : types of the indices in the file, and in the rows
        """
        kind = ("lists as rows", self._dtype.name, stored.name, index_dtype.name)
        return (CompiledCall(kind, lambda: self._add_one(stored, index_dtype)),)

    def add(self, batch: pa.RecordBatch, rows: GrowingRows, n_features: int, labels: np.ndarray = NO_LABELS) -> bool:
        """Add the rows of a batch to `rows`.  Returns False, and adds nothing, if the loop cannot read them.

        That is so if they have other types, nulls or dense vectors, or are invalid.  The caller then reads them by
        Arrow's functions, which name what is wrong.

        labels : uint8, bytes of the labels of all rows, to which those of the batch are written if there is a `label`
        """
        lists, n_rows = self._lists(batch.schema), batch.num_rows
        if lists is None or n_rows == 0:
            return False
        exported = export(batch)
        found = add_lists(ctypes.addressof(exported), lists, n_features, *rows.next_rows, labels)
        if found < TO_BE_LOOKED_AT:
            rows.make_room(n_rows, TO_BE_LOOKED_AT - found)
            exported = export(batch)
            found = add_lists(ctypes.addressof(exported), lists, n_features, *rows.next_rows, labels)
        if found == TO_BE_LOOKED_AT:
            return False
        rows.took(n_rows)
        return True

    def _lists(self, schema: pa.Schema) -> Lists | None:
        """Where the lists are in a batch, None if the loop cannot read them; found once, as all batches are alike."""
        if self._known is None or not schema.equals(self._known[0]):
            self._known = schema, self._found(schema)
        return self._known[1]

    def _found(self, schema: pa.Schema) -> Lists | None:
        label = -1 if self._label is None else schema.get_field_index(self._label)
        vectors, fields = -1, [schema.get_field_index(name) for name in self._features]
        kinds = [schema.field(place).type for place in fields]
        if len(fields) == 1:
            (vectors,), (of,) = fields, kinds
            if (of.field("type").type, of.field("size").type) != (pa.int8(), pa.int32()):
                return None
            fields = [of.get_field_index(name) for name in ("indices", "values")]
            kinds = [of.field(place).type for place in fields]
        plain = [pa.types.is_list(kind) for kind in kinds]
        known = all(pa.types.is_list(kind) or pa.types.is_large_list(kind) for kind in kinds)
        if not known or plain[0] != plain[1] or kinds[0].value_type not in _INDICES:
            return None
        if kinds[1].value_type != pa.from_numpy_dtype(self._dtype):
            return None
        stored = np.empty(0, _INDICES[kinds[0].value_type])
        return Lists(vectors, fields[0], fields[1], 0 if plain[0] else 1, label, stored)

    def _add_one(self, stored: np.dtype, index_dtype: np.dtype) -> None:
        """Call `add` for one row with one entry."""
        offsets = pa.py_buffer(np.array([0, 1], np.int32))
        flat = [one_zero(stored), one_zero(self._dtype)]
        columns = [
            pa.Array.from_buffers(pa.list_(of.type), 1, [None, offsets], children=[of]) for of in flat
        ]  # fmt: skip
        rows = GrowingRows(1, 1, self._dtype, index_dtype, BlockMemory())
        names = ["indices", "values"]
        ListsAsRows(names, self._dtype).add(pa.record_batch(columns, names), rows, 1)
