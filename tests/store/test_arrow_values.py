"""Columns of Arrow as dense rows, and parts of sparse rows as one matrix."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.formats.tables import arrow_values
from bigsvm.store.formats.tables.arrow_values import ColumnsAsRows, decoded, dtype_of
from bigsvm.store.formats.tables.block_memory import BlockMemory, GrowingRows

PACKAGE = Path(arrow_values.__file__).parents[3]
KINDS = {
    "one type": (["float32"] * 37, np.float32),
    "float64": (["float64"] * 8, np.float64),
    "eight bits": (["int8"] * 3, np.int8),
    "bytes": (["uint8"] * 17, np.uint8),
    "several types": (["float32", "int16", "bool", "float64", "int64"] * 7, np.float64),
    "truth values": (["bool"] * 3, np.uint8),
    "half": (["float16"] * 4, np.float32),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_rows", [0, 1, 40, 300, 600])
@pytest.mark.parametrize("together", [1, 1 << 18])
def test_columns_become_rows(kind: str, n_rows: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes, dtype = KINDS[kind]
    monkeypatch.setattr(arrow_values, "_TOGETHER_BYTES", together)
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 2 if name == "bool" else 100, n_rows + 10).astype(name) for name in dtypes]
    names = [f"f{j}" for j in range(len(columns))]
    whole = pa.record_batch([pa.array(column) for column in columns], names=names)
    asked = names[::-1]  # in another order than the file's
    as_rows = ColumnsAsRows(asked, np.dtype(dtype))
    for first in (3, 0, 7):  # a batch after the other
        out = np.full((n_rows, len(names)), 7, dtype)
        as_rows.fill(whole.slice(first, n_rows), out, "t", 0)
        rows = slice(first, first + n_rows)
        np.testing.assert_array_equal(out, np.stack([column[rows] for column in columns[::-1]], axis=1).astype(dtype))


def test_batches_with_other_columns_are_read_by_theirs() -> None:
    as_rows, out = ColumnsAsRows(["b", "a"], np.dtype(np.float32)), np.empty((2, 2), np.float32)
    a, b = pa.array([1.0, 2.0], pa.float32()), pa.array([3.0, 4.0], pa.float32())
    for batch in (
        pa.record_batch({"a": a, "b": b}),
        pa.record_batch({"b": b, "x": a, "a": a}),
        pa.record_batch({"b": b, "a": a.cast(pa.float64())}),
        pa.record_batch({"a": a.cast(pa.int16()), "b": b}),
    ):
        out[:] = 0
        as_rows.fill(batch, out, "t", 0)
        np.testing.assert_array_equal(out, [[3, 1], [4, 2]])
    with pytest.raises(DataError, match="no column 'a', or more than one"):
        as_rows.fill(pa.record_batch([b, a, a], ["b", "a", "a"]), out, "t", 0)


@pytest.mark.parametrize("known", [True, False])
def test_columns_that_could_have_nulls_and_have_none(known: bool) -> None:
    """Arrow keeps bits of what is there, and may not have counted them."""
    a, b = pa.array([None, 1.0, 2.0, 3.0]), pa.array([5.0, 6.0, 7.0, 8.0])
    if known:
        assert a.slice(1).null_count == 0
    out = np.empty((3, 2))
    ColumnsAsRows(["a", "b"], np.dtype(np.float64)).fill(pa.record_batch({"a": a, "b": b}).slice(1), out, "t", 0)
    np.testing.assert_array_equal(out, [[1, 6], [2, 7], [3, 8]])


@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([1.0, None, 2.0], "float64", "column 'b': row 11 holds a null"),
        ([1.0, 2.0, float("nan")], "float64", "row 12 holds nan in column 'b'"),
        ([float("-inf"), 2.0, 3.0], "float64", "row 10 holds -inf in column 'b'"),
        ([1.0, float("inf"), 3.0], "float32", "row 11 holds inf in column 'b'"),
        ([1, 2, 2**53 + 1], "int64", "row 12 holds 9007"),
    ],
)
def test_a_value_that_is_none_is_named(values: list, dtype: str, said: str) -> None:
    batch = pa.record_batch({"a": pa.array([1.0, 2.0, 3.0]), "b": pa.array(values, pa.type_for_alias(dtype))})
    with pytest.raises(DataError, match=said):
        ColumnsAsRows(["a", "b"], np.dtype(np.float64)).fill(batch, np.empty((3, 2)), "t", 10)


def sparse(lengths: list[int], kind: str) -> CSR:
    rng = np.random.default_rng(0)
    columns = [np.sort(rng.permutation(900)[:n]) for n in lengths]
    indices = np.concatenate(columns).astype(kind)
    return CSR(rng.random(len(indices)).astype(np.float32), indices, np.concatenate([[0], np.cumsum(lengths)]))


@pytest.mark.parametrize("lengths", [[3] * 20, [0] * 20, [1, 0, 9, 50, 0, 700, 2, 2, 2, 1], [40, 0, 0, 0, 0]])
@pytest.mark.parametrize("together", [1, 3, 20])
@pytest.mark.parametrize("kind", ["int32", "int64", "int16", "uint32"])
@pytest.mark.parametrize("ascending", [True, False])
def test_parts_of_sparse_rows_are_joined_as_they_come(
    lengths: list[int], together: int, kind: str, ascending: bool
) -> None:
    data, indices, indptr = sparse(lengths, kind)
    if not ascending:
        indices = np.concatenate([indices[a:b][::-1] for a, b in itertools.pairwise(indptr)])
    growing = GrowingRows(len(lengths), 900, np.dtype(np.float32), np.dtype(np.int32), BlockMemory())
    for first in range(0, len(lengths), together):
        some = indptr[first : first + together + 1]
        a, b = some[0], some[-1]
        growing.add(CSR(data[a:b], indices[a:b], some - a), "t", first)
    whole = growing.whole()
    assert (whole.data.dtype, whole.indices.dtype, whole.indptr.dtype) == (np.float32, np.int32, np.int64)
    np.testing.assert_array_equal(whole.data, data)
    np.testing.assert_array_equal(whole.indices, indices)
    np.testing.assert_array_equal(whole.indptr, indptr)


@pytest.mark.parametrize(
    ("index", "value", "said"),
    [
        (900, 1.0, "row 16 has index 900, beyond the 900 features"),
        (2**32 + 5, 1.0, "row 16 has index 4294967301"),
        (-1, 1.0, "row 16 has index -1"),
        (None, np.nan, r"row 16 holds nan in column \d+"),
        ("twice", 1.0, "row 16 has column .* twice"),
    ],
)
def test_a_part_that_is_not_sound_is_refused_with_its_row(index: int | str | None, value: float, said: str) -> None:
    first, second = sparse([3] * 5, "int64"), sparse([4] * 5, "int64")
    second.data[7] = value
    if index is not None:
        second.indices[7] = second.indices[6] if index == "twice" else index
    growing = GrowingRows(10, 900, np.dtype(np.float32), np.dtype(np.int32), BlockMemory())
    growing.add(first, "t", 10)
    with pytest.raises(DataError, match=said):
        growing.add(second, "t", 15)


@pytest.mark.parametrize("value_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_dictionary_is_decoded_whatever_its_strings_are(value_type: pa.DataType) -> None:
    """polars writes views of strings, which Arrow does not decode."""
    plain = ["b", None, "a", "b"]
    indices = pa.array([1, None, 0, 1], pa.uint32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]).cast(value_type))
    assert decoded(column).to_pylist() == plain
    assert decoded(column.slice(2)).to_pylist() == plain[2:]
    assert decoded(pa.array(plain)).to_pylist() == plain


def test_types_are_those_of_numpy() -> None:
    for name in ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32",
                 "float64"):  # fmt: skip
        kind = pa.from_numpy_dtype(np.dtype(name))
        assert dtype_of(kind) == np.dtype(name) == np.dtype(kind.to_pandas_dtype())
    for other in (pa.string(), pa.date32(), pa.decimal128(5, 2), pa.list_(pa.int8()), pa.null(), pa.duration("s")):
        assert dtype_of(other) is None


def test_no_type_is_asked_of_pandas() -> None:
    """Some versions of pyarrow import pandas to tell NumPy's name of a type; its memory is in no plan."""
    asking = [path for path in PACKAGE.rglob("*.py") if ".to_pandas_dtype(" in path.read_text()]
    assert asking == []
