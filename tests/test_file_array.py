"""Arrays that stay in their files: the values of NumPy's arrays, and none that came into the file later."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import DataError, ReadFailed
from bigsvm.files import file_array
from bigsvm.files.atomic import file_digest
from bigsvm.files.file_array import FileArray
from bigsvm.store.ingest.sources import row_source, sequential
from bigsvm.store.ingest.sources.sequential import InMemory

KEYS: list[Any] = [
    0, -1, np.int64(2), slice(None), slice(1, 3), slice(3, 1), slice(-2, None), slice(0, 0), slice(None, None, 2),
    (slice(None), slice(1, 4)), (slice(1, 3), slice(0, 0)), (2, slice(1, 4)), (slice(None), -1), (1, 2), ..., None,
    np.array([3, 0]), np.array([True, False, True, False]), (),
]  # fmt: skip


def saved(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("shape", [(4,), (4, 5), (4, 5, 2), (4, 0)])
def test_its_parts_are_those_of_the_array(tmp_path: Path, shape: tuple[int, ...], key: Any) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    here = FileArray(saved(tmp_path / "a.npy", array))
    try:
        wanted = array[key]
    except IndexError:
        with pytest.raises(IndexError, match="ind"):
            here[key]
        return
    found = here[key]
    assert found.dtype == array.dtype
    assert found.shape == np.shape(wanted)
    np.testing.assert_array_equal(found, wanted)


def test_the_rest_of_an_array_is_there(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    here = FileArray(saved(tmp_path / "a.npy", array))
    assert (here.shape, here.ndim, here.size, here.nbytes, len(here)) == ((3, 4), 2, 12, 96, 3)
    assert (here.dtype, here.digest) == (array.dtype, file_digest(tmp_path / "a.npy"))
    assert here.sum() == array.sum()
    for found, wanted in (
        (here + 1, array + 1),
        (2 * here, 2 * array),
        (here.T, array.T),
        (array @ here.T, array @ array.T),
    ):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(list(here), array)
    np.testing.assert_array_equal(np.concatenate(list(here.pieces(5))), array.reshape(-1))
    assert np.asarray(here, np.float64).dtype == np.float64
    assert type(pickle.loads(pickle.dumps(here))) is np.ndarray
    assert FileArray(saved(tmp_path / "b.npy", np.array(7)))[()] == 7


def overwrite(path: Path, array: np.ndarray) -> None:
    """As `cp` overwrites a file that is there: the file stays the same, and is emptied first."""
    saved(path.with_name("other.npy"), array)
    path.write_bytes(path.with_name("other.npy").read_bytes())


A = np.arange(3000.0).reshape(3, 1000)
READS: list[Callable[[FileArray], Any]] = [
    lambda a: a[1], lambda a: a[:, 990:], lambda a: a[2:3, 5], np.asarray, lambda a: list(a.pieces(700)),
    lambda a: a.max(),
]  # fmt: skip


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("other", [A + 1.0, A[:1], np.tile(A, 2)], ids=["same size", "shorter", "longer"])
def test_what_came_into_the_file_later_is_refused(
    tmp_path: Path, other: np.ndarray, read: Callable[[FileArray], Any]
) -> None:
    here = FileArray(saved(tmp_path / "a.npy", A))
    read(here)
    overwrite(tmp_path / "a.npy", other)
    for _ in range(2):
        with pytest.raises(DataError, match="changed while it was read"):
            read(here)


def test_a_change_between_two_pieces_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, read, reads = FileArray(saved(tmp_path / "a.npy", A)), os.preadv, 0

    def change_meanwhile(*arguments: Any) -> int:
        nonlocal reads
        reads += 1
        if reads == 2:
            overwrite(tmp_path / "a.npy", A + 1.0)
        return read(*arguments)

    monkeypatch.setattr(os, "preadv", change_meanwhile)
    with pytest.raises(DataError, match="changed while it was read"):
        here[:, 10:20]
    assert reads > 2


def test_a_change_during_the_opening_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, parse = saved(tmp_path / "a.npy", A), file_array.read_header

    def change_before(file: Any) -> Any:
        overwrite(path, A + 1.0)
        return parse(file)

    monkeypatch.setattr(file_array, "read_header", change_before)
    with pytest.raises(DataError, match="changed while it was read"):
        FileArray(path)


def deleted(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    os.replace(saved(path.with_name("other.npy"), A + 1.0), path)


def rewritten(path: Path) -> None:
    overwrite(path, A)


def touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))
    path.chmod(0o400)


@pytest.mark.parametrize("change", [deleted, replaced, rewritten, touched])
def test_the_values_stay_readable_while_their_file_has_them(tmp_path: Path, change: Callable[[Path], None]) -> None:
    here = FileArray(saved(tmp_path / "a.npy", A))
    change(tmp_path / "a.npy")
    np.testing.assert_array_equal(here[:, 3:7], A[:, 3:7])
    np.testing.assert_array_equal(here, A)


def test_what_is_no_plain_array_is_refused(tmp_path: Path) -> None:
    for array in (np.array([{}]), np.asfortranarray(A)):
        with pytest.raises(ValueError, match=r"objects|column by column"):
            FileArray(saved(tmp_path / "a.npy", array))
    whole = saved(tmp_path / "a.npy", A).read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="too few"):
        FileArray(tmp_path / "a.npy")
    with pytest.raises(IsADirectoryError):
        FileArray(tmp_path)


def test_a_device_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = FileArray(saved(tmp_path / "a.npy", A))

    def failing(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(ReadFailed, match="Input/output error"):
        here[0]


@pytest.mark.parametrize("name", ["X.npy", "y.npy"])
@pytest.mark.parametrize("shorter", [False, True])
def test_an_array_that_changes_while_it_is_ingested_is_refused(
    tmp_path: Path, name: str, shorter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "rows").mkdir()
    saved(tmp_path / "rows" / "X.npy", rng.standard_normal((4000, 8)))
    saved(tmp_path / "rows" / "y.npy", rng.integers(0, 2, 4000))
    take, taken = InMemory.take, 0

    def take_and_change(self: InMemory, n: int) -> np.ndarray:
        nonlocal taken
        taken += 1
        if taken == 5:
            path = tmp_path / "rows" / name
            overwrite(path, np.load(path)[: 100 if shorter else None] * 0)
        return take(self, n)

    monkeypatch.setattr(InMemory, "take", take_and_change)
    monkeypatch.setattr(row_source, "_PART_ROWS", 500)
    with pytest.raises(DataError, match="changed while it was read"):
        bigsvm.ingest(tmp_path / "rows", tmp_path / "rows.zarr")
    assert taken >= 5
    assert not (tmp_path / "rows.zarr").exists()


def test_what_arrays_do_not_have_is_asked_without_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hasattr(array, "compute")` asks whether rows are of dask, and would read a whole model."""
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    array = FileArray(tmp_path / "a.npy")
    monkeypatch.setattr(FileArray, "_read", None)
    assert not any(hasattr(array, name) for name in ("compute", "columns", "tocsr", "iloc"))


@pytest.mark.parametrize("shape", [(40, 3), (7, 900), (1000, 70), (3, 1), (0, 4), (5, 0)])
@pytest.mark.parametrize("n", [1, 3, 64])
def test_rows_of_an_array_by_columns_are_those_of_the_array(tmp_path: Path, shape: tuple[int, int], n: int) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    source = sequential.open_npy(saved(tmp_path / "a.npy", np.asfortranarray(array)))
    assert source.shape == shape
    parts = [source.take(n) for _ in range(shape[0] // n + 2)]
    assert all(part.flags.c_contiguous for part in parts)
    assert [len(part) for part in parts[: shape[0] // n]] == [n] * (shape[0] // n)
    np.testing.assert_array_equal(np.concatenate(parts), array)


def test_a_wide_file_by_columns_takes_no_memory_for_each_column(tmp_path: Path) -> None:
    """Beyond the rows that it reads: a list of the places of 400,000 columns would be 16 MB."""
    source = sequential.open_npy(saved(tmp_path / "a.npy", np.ones((4, 400_000), np.float32, order="F")))
    tracemalloc.start()
    try:
        assert source.take(1).all()
        assert tracemalloc.get_traced_memory()[1] < source.held_bytes + (4 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "most"),
    [(20_000, 10, 10 * 50), (2000, 1500, 1500 * 10), (400, 3000, 200), (50, 20_000, 200)],
)
def test_columns_are_read_in_long_runs_or_many_together(
    tmp_path: Path, n_rows: int, n_columns: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of calls stays far below one for each column of each part; so does the memory."""
    source = sequential.open_npy(saved(tmp_path / "a.npy", np.ones((n_rows, n_columns), order="F")))
    assert isinstance(source, sequential.ByColumns)
    step, calls, plain = max(n_rows // 50, 1), list[int](), os.preadv

    def preadv(handle: int, parts: Any, at: int) -> int:
        calls.append(plain(handle, parts, at))
        return calls[-1]

    monkeypatch.setattr(os, "preadv", preadv)
    for _ in range(0, n_rows, step):
        assert source.take(step).all()
        assert source._band is not None
        assert source._band.nbytes <= max(source.held_bytes, step * n_columns * 8)
    assert source.held_bytes <= 16 << 20
    assert len(calls) <= most
