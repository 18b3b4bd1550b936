"""Columns of Arrow as dense rows, and parts of sparse rows as one matrix."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.formats.tables import arrow_values
from bigsvm.store.formats.tables.arrow_values import fill_rows
from bigsvm.store.formats.tables.block_memory import BlockMemory, GrowingRows

KINDS = {
    "one type": (["float32"] * 37, np.float32),
    "several types": (["float32", "int16", "bool", "float64", "int64"] * 7, np.float64),
    "truth values": (["bool"] * 3, np.uint8),
    "half": (["float16"] * 4, np.float32),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("square", [(1024, 32), (7, 3)])
def test_columns_become_rows(kind: str, square: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes, dtype = KINDS[kind]
    monkeypatch.setattr(arrow_values, "_SQUARE", square)
    monkeypatch.setattr(arrow_values, "_TOGETHER_BYTES", 1)
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 2 if name == "bool" else 100, 50).astype(name) for name in dtypes]
    names = [f"f{j}" for j in range(len(columns))]
    batch = pa.record_batch([pa.array(column) for column in columns], names=names).slice(3, 40)
    asked = names[::-1]  # in another order than the file's
    out = np.full((40, len(names)), 7, dtype)
    fill_rows(batch, asked, out, "t", 0)
    np.testing.assert_array_equal(out, np.stack([column[3:43] for column in columns[::-1]], axis=1).astype(dtype))


@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([1.0, None, 2.0], "float64", "column 'b': row 11 holds a null"),
        ([1, 2, 2**53 + 1], "int64", "row 12 holds 9007"),
    ],
)
def test_a_value_that_is_none_is_named(values: list, dtype: str, said: str) -> None:
    batch = pa.record_batch({"a": pa.array([1.0, 2.0, 3.0]), "b": pa.array(values, pa.type_for_alias(dtype))})
    with pytest.raises(DataError, match=said):
        fill_rows(batch, ["a", "b"], np.empty((3, 2)), "t", 10)


@pytest.mark.parametrize("lengths", [[3] * 20, [0] * 20, [1, 0, 9, 50, 0, 700, 2, 2, 2, 1], [40, 0, 0, 0, 0]])
@pytest.mark.parametrize("together", [1, 3, 20])
def test_parts_of_sparse_rows_are_joined_as_they_come(lengths: list[int], together: int) -> None:
    rng = np.random.default_rng(0)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    data, indices = rng.random(indptr[-1]), rng.integers(0, 9, indptr[-1])
    growing = GrowingRows(len(lengths), np.dtype(np.float32), np.dtype(np.int32), BlockMemory())
    for first in range(0, len(lengths), together):
        some = indptr[first : first + together + 1]
        a, b = some[0], some[-1]
        growing.add(CSR(data[a:b], indices[a:b], some - a))
    whole = growing.whole()
    assert (whole.data.dtype, whole.indices.dtype, whole.indptr.dtype) == (np.float32, np.int32, np.int64)
    np.testing.assert_array_equal(whole.data, data.astype(np.float32))
    np.testing.assert_array_equal(whole.indices, indices)
    np.testing.assert_array_equal(whole.indptr, indptr)
