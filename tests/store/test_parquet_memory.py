"""Parquet: what reading rows and footers holds in memory, and what is counted for it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigsvm
from bigsvm.errors import PlanRefused
from bigsvm.store.formats import parquet_files
from bigsvm.store.formats.parquet_rows import ParquetRows
from bigsvm.testing.contracts import dense, example
from tests.store import formats
from tests.store.test_parquet_rows import write

X, LABELS = example()


@pytest.mark.usefixtures("few_objects")
def test_what_was_read_is_let_go(tmp_path: Path) -> None:
    store = ParquetRows(str(formats.parquet(tmp_path / "r.parquet", X, LABELS)))
    gc.collect()
    gc.disable()  # what waits for it stays in memory until then
    try:
        store.read(store.refs(7)[0])
        cursor = weakref.ref(next(iter(vars(store._files._places._threads)["kept"].values())))
        assert cursor() is not None
        store.forget()
        assert cursor() is None
        store.read(store.refs(7)[0])
    finally:
        gc.enable()


def test_long_rows_are_decoded_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = formats.parquet(tmp_path / "r.parquet", np.ones((60, 50)), np.arange(60) % 2, row_group_size=60)
    row = 50 * (4 + 8) + 8
    for nbytes, most in ((1, 1), (5 * row, 5), (1 << 20, 60)):
        monkeypatch.setattr(parquet_files, "_BATCH_BYTES", nbytes)
        monkeypatch.setattr(parquet_files, "_FLAT_BATCH_BYTES", nbytes)
        store = ParquetRows(str(path))
        batches = [batch.num_rows for _, batch in store._files.batches(0, 60, ["label", "indices", "values"])]
        assert (max(batches), sum(batches)) == (most, 60)
        np.testing.assert_array_equal(dense(store.read(store.refs(60)[0]).X, 50), 1.0)


def test_batches_are_parts_of_what_is_asked_for() -> None:
    """So that none lies in two blocks; at most a quarter more than is best, and never none."""
    for asked in range(1, 400):
        for rows in range(1, 60):
            found = parquet_files._parts_of(asked, rows)
            assert 1 <= found <= max(1.25 * rows + 1, rows)
            if asked < 1.5 * rows:
                assert found == rows
            else:
                parts = -(-asked // found)
                assert found * parts - asked < parts, "all of one length, but for a row"


def test_memory_is_a_batch_and_not_a_row_group(tmp_path: Path) -> None:
    n = 2_000_000
    rng = np.random.default_rng(0)
    columns = {f"f{j}": rng.random(n, dtype=np.float32) for j in range(4)}
    store = write(tmp_path / "a.parquet", label=np.arange(n) % 2, **columns)
    assert store.classes is not None
    before, held = pa.total_allocated_bytes(), 0
    for ref in store.refs(10_000):
        store.read(ref)
        held = max(held, pa.total_allocated_bytes() - before)
    assert held < store.chunk_nbytes + (4 << 20)
    assert held < n * 4 * 4 / 2


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_large_pages_are_counted(tmp_path: Path, compression: str, dictionary: bool) -> None:
    """One page a column chunk, as some writers make them: pyarrow holds all of it, compressed and not."""
    n, path = 600_000, tmp_path / "rows.parquet"
    rng = np.random.default_rng(0)
    table = pa.table({"label": rng.integers(0, 2, n), "a": rng.normal(size=n), "b": rng.normal(size=n)})
    options = {"compression": compression, "use_dictionary": dictionary, "dictionary_pagesize_limit": 1 << 30}
    large = {"data_page_size": 1 << 30, "write_batch_size": n, "max_rows_per_page": n, "row_group_size": n}
    pq.write_table(table, path, **options, **large)  # type: ignore[arg-type]
    group = pq.ParquetFile(path).metadata.row_group(0)
    with open(path, "rb") as file:
        for j in (1, 2):
            column = group.column(j)
            pages = column.total_uncompressed_size + column.total_compressed_size
            assert parquet_files._largest_page(file.fileno(), column) == pytest.approx(pages, rel=0.01)
        assert parquet_files.page_bytes_at(file.fileno(), 0) == 0  # "PAR1"
        assert parquet_files.page_bytes_at(file.fileno(), 1 << 40) == 0
    counted = parquet_files.ParquetFiles([str(path)]).page_bytes
    held = sum(group.column(j).total_uncompressed_size + group.column(j).total_compressed_size for j in (1, 2))
    assert counted * 1.5 >= held
    pq.write_table(table, path, **options)  # type: ignore[arg-type]
    usual = parquet_files.ParquetFiles([str(path)]).page_bytes
    assert dictionary or usual < counted
    pq.write_table(table, path, **options, **large)  # type: ignore[arg-type]
    with pytest.raises(PlanRefused, match="would do"):
        bigsvm.fit(path, memory="16MiB")


@pytest.mark.parametrize("options", [{}, {"write_page_checksum": True}, {"compression": "none"}])
def test_long_texts_of_a_dictionary_are_decoded_a_few_at_a_time(options: dict[str, Any], tmp_path: Path) -> None:
    """A footer says what is stored of them: a number each."""
    path, n = tmp_path / "rows.parquet", 6000
    texts, short = pa.array(["no" + "q" * 3000, "yes" + "q" * 3000] * (n // 2)), pa.array(["a", "bc", "d"] * (n // 3))
    table = pa.table({"label": texts, "city": short, "x": np.arange(float(n))})
    pq.write_table(table, path, **options)
    files = parquet_files.ParquetFiles([str(path)])
    assert files.text_widths[str(path)] == {"label": 3002 + 4, "city": 5}
    for columns, most in ((["label", "x"], 2 << 20), (["city", "x"], 1 << 30)):
        batches = [batch for _, batch in files.batches(0, n, columns)]
        assert pa.Table.from_batches(batches).equals(table.select(columns))
        assert max(batch.nbytes for batch in batches) <= most * 1.25 + 8 * n
    assert max(batch.num_rows for batch in batches) == n, "others are read as before"
    with open(path, "rb") as file:
        assert [parquet_files.dictionary_at(file.fileno(), at) for at in (0, 1 << 40)] == [(0, 0)] * 2
    pq.write_table(table, path, use_dictionary=False)
    assert parquet_files.ParquetFiles([str(path)]).text_widths[str(path)] == {}


def test_the_largest_row_group_is_what_counts(tmp_path: Path) -> None:
    path, rng = tmp_path / "rows.parquet", np.random.default_rng(0)
    table = pa.table({"label": rng.integers(0, 2, 300_000), "a": rng.normal(size=300_000)})
    with pq.ParquetWriter(path, table.schema, use_dictionary=False) as writer:
        writer.write_table(table.slice(0, 10))
        writer.write_table(table.slice(10))
    with_small = parquet_files.ParquetFiles([str(path)]).page_bytes
    pq.write_table(table.slice(10), path, use_dictionary=False)
    # The footer of two row groups is counted, too.
    assert with_small == pytest.approx(parquet_files.ParquetFiles([str(path)]).page_bytes, abs=1 << 13)


def footers() -> list[object]:
    """All that this process holds, and what holds them."""
    return [found for found in gc.get_objects() if type(found) in (pq.FileMetaData, pq.ParquetSchema)]


@pytest.mark.usefixtures("few_objects")
def test_no_footer_stays_in_memory(tmp_path: Path) -> None:
    """Each of many wide files has one of some megabytes; a footer and its schema hold each other."""
    table = pa.table({"label": [0, 1] * 5, **{f"c{j}": np.arange(10.0) for j in range(40)}})
    for k in range(5):
        pq.write_table(table, tmp_path / f"{k}.parquet")
    gc.collect()
    gc.disable()
    try:
        before = footers()
        rows = parquet_files.ParquetFiles(parquet_files.find_files(str(tmp_path)))
        for columns in (["label"], table.schema.names):
            assert sum(batch.num_rows for _, batch in rows.batches(0, 50, columns)) == 50
        rows.forget()
        assert [found for found in footers() if not any(found is other for other in before)] == []
    finally:
        gc.enable()


def test_a_few_small_footers_are_kept_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that read here and there would throw one footer to and fro."""
    for k in range(4):
        pq.write_table(pa.table({"label": [0, 1] * 10, "a": np.arange(20.0)}), tmp_path / f"{k}.parquet")
    paths, opened = parquet_files.find_files(str(tmp_path)), []

    def open_parquet(path: str, n_columns: int = 1, footer: Any = None) -> Any:
        opened.extend([path] if footer is None else [])
        return plain(path, n_columns, footer)

    plain, one = parquet_files.open_parquet, parquet_files._footer_bytes(pq.read_metadata(paths[0]))
    monkeypatch.setattr(parquet_files, "open_parquet", open_parquet)

    def read_again(kept: float) -> tuple[int, int]:
        """(footers that are read where four files are read in turn, three times; what a reader is counted for)."""
        monkeypatch.setattr(parquet_files, "_KEPT_FOOTERS", int(kept * one))
        files = parquet_files.ParquetFiles(paths)
        opened.clear()
        for file in [0, 1, 2, 3] * 3:
            assert [batch.num_rows for _, batch in files.batches(20 * file, 20 * file + 20, ["a"])] == [20]
            assert len(files._footers) <= max(kept, 1)
        return len(opened), files.page_bytes

    (each, by_one), (few, by_two), (once, by_four) = map(read_again, (0, 2.5, 4))
    assert (each, few, once) == (12, 12, 4)
    assert by_two == pytest.approx(by_one + 0.8 * 1.5 * one, abs=1)
    assert by_four == pytest.approx(by_one + 0.8 * 3 * one, abs=1)
    monkeypatch.setattr(parquet_files, "_KEPT_FOOTERS", 5 * one)
    files = parquet_files.ParquetFiles(paths)
    assert len({id(files.footer_of(paths[0])) for _ in range(3)}) == 1
    files.forget()
    assert not files._footers


@pytest.mark.parametrize("row_group_size", [5, 1000])
def test_what_a_footer_takes_is_counted(row_group_size: int, tmp_path: Path) -> None:
    names = {f"column_{j:05d}": np.arange(1000.0) for j in range(100)}
    pq.write_table(pa.table({"label": [0, 1] * 500, **names}), tmp_path / "a.parquet", row_group_size=row_group_size)
    files = parquet_files.ParquetFiles([str(tmp_path / "a.parquet")])
    n_chunks = 101 * (1000 // row_group_size)
    assert files.page_bytes * 2.5 >= 2 * 1107 * n_chunks
    if row_group_size == 5:
        with pytest.raises(PlanRefused, match="would do"):
            bigsvm.fit(tmp_path / "a.parquet", memory="32MiB")
