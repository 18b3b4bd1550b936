"""Lists and vectors of Spark as sparse rows: the fast way gives what the careful way gives, or leaves it to that."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.parquet_columns import Layout, csr_of, find_layout
from bigsvm.store.formats.tables.block_memory import BlockMemory, GrowingRows
from bigsvm.store.formats.tables.lists_as_rows import ListsAsRows
from tests.products import each_of

N, WIDTH = 12, 50
LENGTHS = [3, 0, 5, 1, 1, 0, 40, 2, 7, 0, 0, 4]


def entries(kind: str, stored: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    indices = np.concatenate([np.sort(rng.permutation(WIDTH)[:n]) for n in LENGTHS])
    return rng.integers(1, 99, len(indices)).astype(kind), indices.astype(stored), np.cumsum([0, *LENGTHS])


def lists_of(flat: np.ndarray, indptr: np.ndarray, large: bool, before: int) -> pa.Array:
    """Lists, of which `before` values lie before the first."""
    flat = np.concatenate([np.full(before, 7, flat.dtype), flat])
    of, offsets = (pa.LargeListArray, np.int64) if large else (pa.ListArray, np.int32)
    return of.from_arrays(pa.array((indptr + before).astype(offsets)), pa.array(flat))


def batch_of(form: str, indices: pa.Array, values: pa.Array, **parts: Any) -> pa.RecordBatch:
    """Rows of a form; `parts` of vectors other than the usual."""
    labels = pa.array(np.arange(len(indices)))
    if form == "lists":
        return pa.record_batch({"label": labels, "values": values, "indices": indices})
    kinds = parts.get("kinds", pa.array(np.zeros(len(indices)), pa.int8()))
    sizes = parts.get("sizes", pa.array(np.full(len(indices), WIDTH), pa.int32()))
    there = {"mask": parts["mask"]} if "mask" in parts else {}
    vectors = pa.StructArray.from_arrays(
        [kinds, sizes, indices, values], ["type", "size", "indices", "values"], **there
    )
    return pa.record_batch({"x": vectors, "label": labels})


def layout_of(batch: pa.RecordBatch) -> Layout:
    return find_layout(batch.schema, "label", None, "t", apart=("x",) if "indices" in batch.schema.names else ())


def read(batches: list[pa.RecordBatch], fast: bool) -> tuple[list[list[Any]] | str, list[bool]]:
    """(the rows, or what is said of them; which batches were read the fast way)."""
    layout = layout_of(batches[0])
    rows = GrowingRows(sum(map(len, batches)), WIDTH, layout.dtype, np.dtype(np.int32), BlockMemory())
    as_lists, first, how = ListsAsRows(layout.features, layout.dtype), 0, []
    try:
        for batch in batches:
            how.append(fast and as_lists.add(batch, rows, WIDTH))
            if not how[-1]:
                rows.add(csr_of(batch, layout, "t", first, WIDTH), "t", first)
            first += len(batch)
    except DataError as error:
        return str(error), how
    whole = rows.whole()
    assert (whole.data.dtype, whole.indices.dtype, whole.indptr.dtype) == (layout.dtype, np.int32, np.int64)
    return [part.tolist() for part in whole], how


@each_of(
    form=["lists", "vectors"],
    kind=["float32", "float64", "int8", "int64"],
    stored=["int32", "int64", "int16", "uint32"],
    large=[False, True],
    before=[0, 9],
    together=[1, 5, 12],
    skipped=[0, 2],
)
def test_lists_become_rows(
    form: str, kind: str, stored: str, large: bool, before: int, together: int, skipped: int
) -> None:
    data, indices, indptr = entries(kind, stored)
    whole = batch_of(form, lists_of(indices, indptr, large, before), lists_of(data, indptr, large, 2 * before))
    batches = [whole.slice(first, together) for first in range(skipped, N, together)]
    found, how = read(batches, fast=True)
    rows = slice(indptr[skipped], None)
    assert found == [data[rows].tolist(), indices[rows].tolist(), (indptr[skipped:] - indptr[skipped]).tolist()]
    assert found == read(batches, fast=False)[0]
    usual = stored in ("int32", "int64") and kind != "int64"  # whole numbers of 64 bits are to be looked at
    assert set(how) == {usual}


def test_parts_of_vectors_that_begin_later_than_others() -> None:
    """A slice of a vector's part, in a slice of the vectors, in a slice of the batch."""
    data, indices, indptr = entries("float32", "int32")
    lists = [lists_of(values, indptr, False, 0) for values in (indices, data)]
    one = batch_of("vectors", lists[0].slice(1), pa.concat_arrays([lists[1][:3], lists[1]]).slice(4))
    batch = pa.record_batch({"x": one.column(0).slice(2), "label": one.column(1).slice(2)}).slice(3)
    found, how = read([batch], fast=True)
    assert how == [True]
    assert found == [data[indptr[6] :].tolist(), indices[indptr[6] :].tolist(), (indptr[6:] - indptr[6]).tolist()]


def changed(values: pa.Array, place: int, value: Any) -> pa.Array:
    found = values.to_pylist()
    found[place] = value
    return pa.array(found, values.type)


SIZES = pa.array([WIDTH] * N, pa.int32())
ODD: dict[str, Any] = {
    "a list that is null": lambda i, v: (changed(i, 8, None), v, {}),
    "values that are null": lambda i, v: (i, changed(v, 8, None), {}),
    "a null in a list": lambda i, v: (i, changed(v, 8, [1.0, None, 2, 3, 4, 5, 6]), {}),
    "a list that is shorter": lambda i, v: (i, changed(v, 8, [1.0, 2.0]), {}),
    "an index that is null": lambda i, v: (changed(i, 8, [1, None, 2, 3, 4, 5, 6]), v, {}),
    "an index twice": lambda i, v: (changed(i, 8, [1, 1, 2, 3, 4, 5, 6]), v, {}),
    "a negative index": lambda i, v: (changed(i, 8, [-1, 1, 2, 3, 4, 5, 6]), v, {}),
    "an index beyond": lambda i, v: (changed(i, 8, [0, 1, 2, 3, 4, 5, WIDTH]), v, {}),
    "indices that fall": lambda i, v: (changed(i, 8, [6, 5, 4, 3, 2, 1, 0]), v, {}),
    "a value that is none": lambda i, v: (i, changed(v, 8, [1.0, 2, 3, float("nan"), 5, 6, 7]), {}),
    "an infinite value": lambda i, v: (i, changed(v, 8, [1.0, 2, 3, 4, 5, 6, float("inf")]), {}),
}
ODD_VECTORS: dict[str, Any] = {
    "a vector that is null": lambda i, v: (i, v, {"mask": pa.array(np.arange(N) == 8)}),
    "a dense vector": lambda i, v: (
        changed(i, 8, None), changed(v, 8, [*map(float, range(1, WIDTH + 1))]),
        {"kinds": pa.array(np.arange(N) == 8).cast(pa.int8()), "sizes": changed(SIZES, 8, None)},
    ),
    "no kind": lambda i, v: (i, v, {"kinds": changed(pa.array([0] * N, pa.int8()), 8, None)}),
    "no size": lambda i, v: (i, v, {"sizes": changed(SIZES, 8, None)}),
    "another size": lambda i, v: (i, v, {"sizes": changed(SIZES, 8, WIDTH + 1)}),
    "all of another size": lambda i, v: (i, v, {"sizes": pa.array([WIDTH + 1] * N, pa.int32())}),
    "sizes of 64 bits": lambda i, v: (i, v, {"sizes": pa.array([WIDTH] * N, pa.int64())}),
}  # fmt: skip
CASES = [(form, name) for form in ("lists", "vectors") for name in ODD] + [("vectors", name) for name in ODD_VECTORS]


@pytest.mark.parametrize(("form", "name"), CASES)
@pytest.mark.parametrize("together", [1, 5, 12])
def test_what_is_not_as_it_mostly_is_is_looked_at(form: str, name: str, together: int) -> None:
    data, indices, indptr = entries("float32", "int32")
    lists = lists_of(indices, indptr, False, 0), lists_of(data, indptr, False, 0)
    left, right, parts = {**ODD, **ODD_VECTORS}[name](*lists)
    whole = batch_of(form, left, right, **parts)
    batches = [whole.slice(first, together) for first in range(0, N, together)]
    found, how = read(batches, fast=True)
    slow, _ = read(batches, fast=False)
    assert found == slow
    everywhere = name in ("all of another size", "sizes of 64 bits")
    if isinstance(found, str):
        assert f"row {0 if everywhere else 8}" in found
    assert not how[min(8 // together, len(how) - 1)]
    if everywhere:
        assert not any(how)
    elif (
        not any(part.null_count for part in (left, right, left.values, right.values, *parts.values()))
        and "mask" not in parts
    ):
        assert all(one for k, one in enumerate(how) if k != 8 // together)


@pytest.mark.parametrize("long_first", [True, False])
def test_rows_that_are_longer_than_was_thought_get_more_room(long_first: bool) -> None:
    lengths = [1] * 10 + [WIDTH] * 10
    lengths = lengths[::-1] if long_first else lengths
    indices = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    indptr = np.cumsum([0, *lengths])
    data = np.arange(len(indices)).astype(np.float64)
    whole = batch_of("lists", lists_of(indices, indptr, False, 0), lists_of(data, indptr, False, 0))
    for together in (1, 3, 20):
        batches = [whole.slice(first, together) for first in range(0, 20, together)]
        assert read(batches, fast=True) == ([data.tolist(), indices.tolist(), indptr.tolist()], [True] * len(batches))


def test_all_pairs_of_forms_in_one_file_are_read_by_their_own() -> None:
    """A schema that changes from one batch to the next is noticed."""
    data, indices, indptr = entries("float32", "int32")
    as_lists = ListsAsRows(("indices", "values"), np.dtype(np.float32))
    kinds = [(large, stored) for large in (False, True) for stored in ("int32", "int64", "int16")]
    for some in itertools.permutations(kinds, 2):
        rows = GrowingRows(2 * N, WIDTH, np.dtype(np.float32), np.dtype(np.int32), BlockMemory())
        for large, stored in some:
            flat = lists_of(indices.astype(stored), indptr, large, 0), lists_of(data, indptr, large, 0)
            batch = batch_of("lists", *flat)
            if not as_lists.add(batch, rows, WIDTH):
                assert stored == "int16"
                rows.add(csr_of(batch, layout_of(batch), "t", 0, WIDTH), "t", 0)
        assert rows.whole().indices.tolist() == [*indices.tolist(), *indices.tolist()]


@each_of(
    form=["lists", "vectors"],
    kind=["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bool"],
    together=[1, 5, 12],
    skipped=[0, 2],
    large_read=[1, 4, 12],
)
def test_labels_come_with_the_rows(
    form: str, kind: str, together: int, skipped: int, large_read: int, tmp_path: Path
) -> None:
    """Of every type, from batches and reads of any size, each row has its own."""
    data, indices, indptr = entries("float32", "int32")
    whole = batch_of(form, lists_of(indices, indptr, False, 0), lists_of(data, indptr, False, 0))
    labels = np.resize([1, 0, 0, 1, 1], N).astype(kind)
    whole = whole.set_column(whole.schema.get_field_index("label"), "label", pa.array(labels))
    pq.write_table(pa.Table.from_batches([whole]).slice(skipped), tmp_path / "a.parquet", row_group_size=together)
    store = open_store(str(tmp_path / "a.parquet"))
    assert store.classes is not None
    found = [store.classes[store.read(ref).y.astype(int)] for ref in store.refs(large_read)]
    assert np.concatenate(found).tolist() == labels[skipped:].tolist()


@pytest.mark.parametrize("form", ["lists", "vectors"])
@pytest.mark.parametrize("odd", [None, "null", "nan", "inf"])
@pytest.mark.parametrize("slow", [None, 8])
def test_labels_beside_rows_that_are_looked_at(form: str, odd: str | None, slow: int | None, tmp_path: Path) -> None:
    """A batch that is read the careful way gives its labels too, and one that is none is named by its row."""
    data, indices, indptr = entries("float32", "int32")
    left, right = lists_of(indices, indptr, False, 0), lists_of(data, indptr, False, 0)
    if slow is not None:  # indices that fall
        left = changed(left, slow, [6, 5, 4, 3, 2, 1, 0])
    labels: list[float | None] = np.resize([1.5, 0.25, 3.0], N).tolist()
    if odd is not None:
        labels[9] = None if odd == "null" else float(odd)
    whole = batch_of(form, left, right)
    whole = whole.set_column(whole.schema.get_field_index("label"), "label", pa.array(labels, pa.float64()))
    pq.write_table(pa.Table.from_batches([whole]), tmp_path / "a.parquet", row_group_size=5)

    def read() -> list[float]:
        store = open_store(str(tmp_path / "a.parquet"), task="regression")
        return [y for ref in store.refs(7) for y in store.read(ref).y.tolist()]

    if odd is None:
        assert read() == labels
    else:
        with pytest.raises(DataError, match="row 9 "):
            read()
