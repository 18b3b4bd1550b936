"""Files are read on from where the last read ended: the work grows as the rows do, however they are asked for."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard

from bigsvm.store.formats import parquet_files
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.chosen.split_rows import numbers_in_store
from bigsvm.store.formats.kept_rows import KeptRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import arrow_files, pieces
from tests.store.read_back import labels_of, rows_of

NAMES = ["t.csv", "t.csv.gz", "t.csv.zst", "t.parquet", "t.feather"]
ASKED: dict[str, dict[str, Any]] = {
    "label": {"label": "y"},
    "labels": {"labels": ["A", "B"]},
    "labels of some": {"labels": ["A", "B"], "rows": "k > 2"},
    "rows": {"label": "y", "rows": "k > 2", "weight": "w"},
    "labelled rows": {"label": "y", "missing": "drop"},
    "split": {"label": "y", "split": 0.7},
}


def table(n: int, holes: bool) -> pa.Table:
    rng = np.random.default_rng(0)
    y = pa.array(rng.integers(0, 2, n), mask=np.arange(n) % 5 == 0 if holes else None)
    columns = {"a": rng.normal(size=n).round(3), "b": rng.integers(0, 9, n), "y": y, "w": rng.integers(1, 3, n)}
    return pa.table({**columns, "k": np.arange(n) % 7, "A": rng.random(n) < 0.4, "B": rng.random(n) < 0.4})


def written(path: Path, rows: pa.Table) -> Path:
    """The table as one file, whose rows are all in one row group, or in one record batch."""
    if path.suffix == ".parquet":
        pq.write_table(rows, path)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(rows, path, compression="lz4", chunksize=len(rows))
    else:
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(rows, sink)
        packed = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
        path.write_bytes(packed(sink.getvalue().to_pybytes()))
    return path


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of text, or rows of columns, that were read from files; pieces and batches are small."""
    done: list[int] = []

    def counted(read: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
        def reading(*args: Any) -> Any:
            found = read(*args)
            done.append(size(found))
            return found

        return reading

    def batches(*args: Any) -> Iterator[Any]:
        for found in read_batches(*args):
            done.append(found[1].num_rows)
            yield found

    read_batches = parquet_files._read
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1024)
    monkeypatch.setattr(pieces.ByteSource, "fill", counted(pieces.ByteSource.fill, int))
    monkeypatch.setattr(pieces.PieceReader, "read", counted(pieces.PieceReader.read, len))
    monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 32)
    monkeypatch.setattr(parquet_files, "_read", batches)
    monkeypatch.setattr(arrow_files, "_with_plain_nulls", counted(arrow_files._with_plain_nulls, len))
    return done


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", NAMES)
def test_four_times_the_rows_are_four_times_the_work(name: str, asked: str, tmp_path: Path, work: list[int]) -> None:
    options, took = ASKED[asked], []
    for n in (600, 2400):
        (tmp_path / str(n)).mkdir()
        path = written(tmp_path / str(n) / name, table(n, asked == "labelled rows"))
        work.clear()
        store = open_store(path, columns=["a", "b"], **options)
        for ref in store.refs(50):
            store.read(ref)
        took.append(sum(work))
    assert took[1] < 5 * took[0]


@pytest.mark.parametrize("name", NAMES)
def test_labels_in_several_columns_are_those_of_their_rows(name: str, tmp_path: Path, work: list[int]) -> None:
    rows = table(500, False)
    store = open_store(written(tmp_path / name, rows), columns=["a", "b"], labels=["A", "B"])
    expected = [",".join(c for c in "AB" if row[c]) for row in rows.select(["A", "B"]).to_pylist()]
    assert labels_of(store) == expected
    np.testing.assert_array_equal(rows_of(store), np.stack([rows["a"], rows["b"]], axis=1))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_column_of_dates_costs_one_pass_more(suffix: str, tmp_path: Path, work: list[int]) -> None:
    """pyarrow takes dates for no text, so their texts are collected once all pieces have been seen."""
    took = []
    for n in (600, 2400):
        dates = [f"2024-01-{1 + k % 28:02d}" for k in range(n)]
        rows = table(n, False).append_column("day", pa.array(dates))
        path = written(tmp_path / f"t{n}.csv{suffix}", rows)
        work.clear()
        store = open_store(path, columns=["a", "day"], label="y")
        assert store.feature_names == ["a", *(f"day=2024-01-{day:02d}" for day in range(1, 29))]
        took.append(sum(work))
    assert took[1] < 5 * took[0]


def traced(call: Callable[[], Any]) -> tuple[Any, int]:
    """(result, most bytes that it held at a time)."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def every(n: int, step: int) -> np.ndarray:
    """One bit for each of n rows, set for every `step`th."""
    return np.packbits(np.arange(n) % step == 0)


def test_places_may_be_forgotten_during_a_read(tmp_path: Path) -> None:
    """Another thread calls `forget` while this one reads: the read failed with KeyError."""
    files = open_store(written(tmp_path / "t.parquet", table(100, holes=False)), label="y")._files
    for _, batch in files.batches(0, 100, ["a"]):
        assert batch.num_rows == 100
        files.forget()
    assert sum(batch.num_rows for _, batch in files.batches(40, 100, ["a"])) == 60


def test_rows_that_were_left_out_take_no_memory_when_rows_are_numbered() -> None:
    n = 1 << 22
    few = KeptRows(ArrayRows(np.zeros((n, 1), np.uint8), np.arange(n) % 2), every(n, 1 << 14))
    fewer = KeptRows(few, every(few.n_samples, 3))
    for rows, step in ((few, 1 << 14), (fewer, 3 << 14)):
        numbers, held = traced(lambda rows=rows: numbers_in_store(rows, 0, rows.n_samples))
        np.testing.assert_array_equal(numbers, np.arange(0, n, step))
        assert held < n


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_which_rows_have_a_label_takes_a_bit_of_each(name: str, tmp_path: Path) -> None:
    n = 1 << 21
    there = np.arange(n) % 5 > 0
    rows = pa.table({"a": np.zeros(n, np.int8), "y": pa.array(np.arange(n, dtype=np.int8) % 2, mask=~there)})
    path = written(tmp_path / name, rows)
    store = open_store(path, columns=["a"], label="y", missing="drop")
    below = store.below  # type: ignore[attr-defined]
    below._bits = None
    bits, held = traced(below.labelled_rows)
    np.testing.assert_array_equal(np.unpackbits(bits)[:n], there)
    assert held < n


@pytest.mark.parametrize("columns", [["a", "b", "c"], ["b"], ["c", "k"]])
def test_some_columns_of_a_batch_that_is_the_whole_file_are_not_copied(columns: list[str], tmp_path: Path) -> None:
    """An uncompressed batch is a map of the file, whichever of its columns are read."""
    rows = table(1 << 17, False).append_column("c", pa.array(["x", "y"] * (1 << 16)))
    path = tmp_path / "t.feather"
    pyarrow.feather.write_feather(rows, path, compression="uncompressed", chunksize=len(rows))
    before = pa.total_allocated_bytes()
    store = open_store(path, columns=columns, label="y")
    kept = [store.nnz, *(store.read(ref).n_rows for ref in store.refs(1 << 12))]
    assert sum(kept[1:]) == len(rows)
    assert pa.total_allocated_bytes() - before < len(rows)
