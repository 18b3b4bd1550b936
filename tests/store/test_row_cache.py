"""The row cache: a dictionary that forgets.  What it gives is what was put, whatever the disk does."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.store.state import slot_file
from bigsvm.store.state.row_cache import RowCache

N = 40  # entries a row
ROW = N * 4  # bytes


def row_of(i: int) -> np.ndarray:
    return np.random.default_rng([7, i]).standard_normal(N).astype(np.float32)


def cache_of(memory: int, disk: int, folder: Path | None, n_rows: int | None = None) -> RowCache:
    """A cache of so many rows in memory (with the one to change places by) and on disk."""
    return RowCache(N, np.float32, memory * ROW, disk * ROW, folder, n_rows)


def held(cache: RowCache, rows: range) -> list[int]:
    """The rows that are here, all checked."""
    found = []
    for i in rows:
        row = cache.get(i)
        if row is not None:
            np.testing.assert_array_equal(row, row_of(i))
            found.append(i)
    return found


def fill(cache: RowCache, rows: range) -> None:
    for i in rows:
        cache.put(i, row_of(i))


class FailingDisk:
    """Stands for `os` in the slot file: each call of a name fails from its n-th on."""

    def __init__(self, name: str, after: int, number: int) -> None:
        self._name, self._left, self._number = name, after, number

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            self._left -= 1
            if self._left < 0:
                raise OSError(self._number, os.strerror(self._number))
        return getattr(os, name)


def test_memory_keeps_the_rows_used_last() -> None:
    cache = cache_of(3, 0, None)
    fill(cache, range(3))
    assert cache.get(0) is not None
    cache.put(3, row_of(3))
    assert [i for i in range(4) if cache.get(i) is not None] == [0, 2, 3]
    stats = cache.stats()
    assert (stats.memory_hits, stats.disk_hits, stats.misses, stats.spills) == (4, 0, 1, 0)
    assert (stats.memory_bytes, stats.disk_bytes, stats.memory_rows) == (3 * ROW, 0, 3)


def test_what_memory_gives_up_is_found_on_disk(tmp_path: Path) -> None:
    cache = cache_of(4, 5, tmp_path)
    fill(cache, range(8))
    assert cache.stats().memory_rows == 3
    assert cache.stats().spills == 5
    assert held(cache, range(8)) == list(range(8))
    stats = cache.stats()
    assert stats.disk_hits >= 5
    assert (stats.memory_rows, stats.disk_rows) == (3, 5)
    assert stats.disk_bytes == 5 * ROW
    cache.put(8, row_of(8))
    cache.put(9, row_of(9))
    assert len(held(cache, range(10))) == 8


def test_a_row_from_disk_changes_places_with_the_oldest(tmp_path: Path) -> None:
    cache = cache_of(3, 1, tmp_path)
    fill(cache, range(3))  # 1, 2 in memory, 0 on disk
    for i in (0, 1, 2, 0, 1, 2):
        np.testing.assert_array_equal(cache.get(i), row_of(i))
    stats = cache.stats()
    assert (stats.disk_hits, stats.misses, stats.spills) == (6, 0, 7)


def test_two_rows_may_be_held(tmp_path: Path) -> None:
    cache = cache_of(3, 6, tmp_path)
    fill(cache, range(8))
    for i, j in ((2, 3), (3, 7), (7, 6), (5, 7), (4, 2)):
        first, second = cache.get(i), cache.get(j)
        np.testing.assert_array_equal(first, row_of(i))
        np.testing.assert_array_equal(second, row_of(j))
    assert cache.stats().misses == 0


def test_rows_are_not_for_writing(tmp_path: Path) -> None:
    cache = cache_of(3, 2, tmp_path)
    fill(cache, range(4))
    for i in (3, 0):
        row = cache.get(i)
        assert row is not None
        with pytest.raises(ValueError, match="read-only"):
            row[0] = 1.0


def test_get_many_copies_what_is_here(tmp_path: Path) -> None:
    cache = cache_of(3, 2, tmp_path)
    fill(cache, range(4))
    idx, out = np.array([9, 0, 3, 8, 2]), np.full((5, N), np.nan, np.float32)
    before = cache.stats()
    assert cache.has(idx).tolist() == [False, True, True, False, True]
    assert cache.stats() == before
    found = cache.get_many(idx, out)
    assert found.tolist() == [False, True, True, False, True]
    for k in np.flatnonzero(found):
        np.testing.assert_array_equal(out[k], row_of(int(idx[k])))
    stats = cache.stats()
    assert (stats.memory_hits, stats.disk_hits, stats.misses) == (2, 1, 2)


def test_a_row_put_again_is_the_new_one(tmp_path: Path) -> None:
    cache = cache_of(3, 3, tmp_path)
    fill(cache, range(4))
    for i in (0, 3):  # on disk, in memory
        cache.put(i, row_of(100 + i))
        np.testing.assert_array_equal(cache.get(i), row_of(100 + i))
    assert cache.stats().disk_rows + cache.stats().memory_rows == 4


def test_no_more_room_is_taken_than_there_are_rows(tmp_path: Path) -> None:
    cache = cache_of(6, 1000, tmp_path, n_rows=20)
    fill(cache, range(20))
    stats = cache.stats()
    assert stats.memory_rows + stats.disk_rows == 20
    assert stats.disk_bytes == 15 * ROW
    assert cache_of(1000, 1000, tmp_path, n_rows=20).stats().memory_bytes == 20 * ROW


def test_the_file_is_allocated_at_once_and_has_no_name(tmp_path: Path) -> None:
    cache = cache_of(3, 500, tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
    disk = cache._disk
    assert disk is not None
    assert os.fstat(disk._handle).st_size == 500 * ROW
    assert os.fstat(disk._handle).st_blocks * 512 >= 500 * ROW
    cache.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(disk._handle)
    cache.close()


def test_clear_forgets_all(tmp_path: Path) -> None:
    cache = cache_of(4, 4, tmp_path)
    fill(cache, range(7))
    cache.clear()
    assert held(cache, range(7)) == []
    fill(cache, range(10, 17))
    assert held(cache, range(20)) == list(range(10, 17))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EOPNOTSUPP, errno.EDQUOT])
def test_a_full_disk_turns_the_tier_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(slot_file, "os", FailingDisk("posix_fallocate", 0, number))
    cache = cache_of(3, 1 << 20, tmp_path)
    fill(cache, range(5))
    assert held(cache, range(5)) == [2, 3, 4]
    assert cache.stats().spill_failures == 1
    assert cache.stats().disk_bytes == 0
    warning = cache.take_warning()
    assert warning is not None
    assert os.strerror(number) in warning
    assert str(tmp_path) in warning
    assert cache.take_warning() is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_turns_the_tier_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = cache_of(3, 9, tmp_path / "file")
    fill(cache, range(4))
    assert held(cache, range(4)) == [1, 2, 3]
    assert cache.stats().spill_failures == 1


@pytest.mark.parametrize("name", ["pwrite", "preadv"])
@pytest.mark.parametrize("after", [0, 3])
def test_a_device_that_fails_costs_rows_and_at_last_the_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: int
) -> None:
    monkeypatch.setattr(slot_file, "os", FailingDisk(name, after, errno.EIO))
    cache = cache_of(4, 5, tmp_path)
    for _ in range(6):
        for i in range(12):
            row = cache.get(i)
            if row is None:
                cache.put(i, row_of(i))
            else:
                np.testing.assert_array_equal(row, row_of(i))
    fill(cache, range(20, 40))
    assert len(held(cache, range(40))) >= 3
    stats = cache.stats()
    assert 1 <= stats.spill_failures <= 5
    if name == "pwrite":  # each slot was tried once more and is out of use
        assert stats.spill_failures == 5
        assert stats.disk_bytes == 0
        assert stats.memory_rows == 4, "the row to change places by is of use again"
    warning = cache.take_warning()
    assert warning is not None
    assert os.strerror(errno.EIO) in warning


def test_bytes_that_changed_on_disk_are_a_miss(tmp_path: Path) -> None:
    cache = cache_of(3, 4, tmp_path)
    fill(cache, range(6))
    disk = cache._disk
    assert disk is not None
    place = cache._on_disk[1]
    os.pwrite(disk._handle, b"\x01", place * ROW + 77)
    assert held(cache, range(6)) == [0, 2, 3, 4, 5]
    stats = cache.stats()
    assert (stats.spill_failures, stats.misses) == (1, 1)
    fill(cache, range(6, 20))
    assert len(held(cache, range(20))) == 5, "the slot is not used again"


def test_a_file_that_became_shorter_is_a_miss(tmp_path: Path) -> None:
    cache = cache_of(3, 4, tmp_path)
    fill(cache, range(6))
    disk = cache._disk
    assert disk is not None
    os.ftruncate(disk._handle, ROW + 3)
    assert len(held(cache, range(6))) == 3
    assert cache.stats().spill_failures == 3


@pytest.mark.parametrize(("memory", "disk"), [(1, 0), (2, 1)])
def test_too_little_memory_is_refused(tmp_path: Path, memory: int, disk: int) -> None:
    least = RowCache.least_bytes(N, np.float32, disk > 0)
    with pytest.raises(ValueError, match=str(least)):
        cache_of(memory, disk, tmp_path)
    RowCache(N, np.float32, least, disk * ROW, tmp_path)


def test_other_rows_are_refused() -> None:
    cache = cache_of(2, 0, None)
    for row in (np.zeros(N), np.zeros(N - 1, np.float32)):
        with pytest.raises(ValueError, match="in a cache of"):
            cache.put(0, row)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=80),
    st.integers(3, 5),
    st.integers(0, 6),
)
def test_it_is_a_dictionary_that_forgets(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, int]], memory: int, disk: int
) -> None:
    cache = cache_of(memory, disk, tmp_path_factory.getbasetemp() / "slots")
    recent: list[int] = []  # the one used last at the end: exactly these are held
    room = memory - 1 + disk if disk else memory
    for write, i in steps:
        if write:
            cache.put(i, row_of(i))
        else:
            row = cache.get(i)
            assert (row is not None) == (i in recent)
            if row is None:
                continue
            np.testing.assert_array_equal(row, row_of(i))
        recent = [*(k for k in recent if k != i), i][-room:]
    stats = cache.stats()
    assert stats.memory_rows + stats.disk_rows == len(recent)
    cache.close()
