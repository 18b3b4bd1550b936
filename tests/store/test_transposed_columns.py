"""Matrices whose columns are contiguous (CSC) are transposed on disk, once, and then read as rows."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.errors import DataError, OutputError
from bigsvm.files import locks
from bigsvm.files.atomic import temporary_name
from bigsvm.store.formats import csc_rows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.remembered import folder_to_write
from tests.store import formats
from tests.store.cells import CODES, N, X
from tests.store.read_back import rows_of

pytest.importorskip("h5py")


def transposed() -> list[Path]:
    """Folders of columns that were made rows, whole or not."""
    return [path for path in folder_to_write().glob("*transposed-*") if path.is_dir()]


@pytest.mark.parametrize("buffer", [1, 200, 1 << 20])
def test_columns_are_transposed_in_pieces(buffer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csc_rows, "_BUFFER", buffer)
    monkeypatch.setattr(csc_rows, "_PIECE", 7)
    path = formats.anndata(tmp_path / "a.zarr", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    np.testing.assert_array_equal(rows_of(open_store(path)), X.toarray())
    made = transposed()
    assert len(made) == 1
    times = {file: file.stat().st_mtime_ns for file in made[0].iterdir()}
    np.testing.assert_array_equal(rows_of(open_store(path)), X.toarray())
    assert {file: file.stat().st_mtime_ns for file in made[0].iterdir()} == times
    # A copy that is damaged is made anew, not believed.
    (made[0] / "data").write_bytes(bytes((made[0] / "data").stat().st_size))
    np.testing.assert_array_equal(rows_of(open_store(path)), X.toarray())


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [("indices", N, "row index 60 is beyond the 60 rows"), ("indptr", 100, "column pointers are not ascending")],
)
def test_bad_columns_are_refused(part: str, value: int, said: str, tmp_path: Path) -> None:
    path = formats.anndata(tmp_path / "a.zarr", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    zarr.open_group(path, mode="a")[f"X/{part}"][3] = value
    with pytest.raises(DataError, match=said):
        open_store(path)
    assert not transposed()


def test_columns_that_a_full_disk_cannot_hold_as_rows_are_an_error_and_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, start: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = formats.anndata(tmp_path / "a.h5ad", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    folder = folder_to_write()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match="No space left on device") as told:
        open_store(path)
    monkeypatch.undo()
    assert Path(told.value.where).parent == folder
    assert not transposed()
    np.testing.assert_array_equal(rows_of(open_store(path)), X.toarray())
    (made,) = folder.glob("transposed-*/indptr")
    assert made.stat().st_blocks * 512 >= made.stat().st_size  # it has no holes


def test_memory_does_not_grow_with_the_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are only so many files of rows; what is too much for one of them is divided again, a long row alone not."""
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, (300, 70)) * (rng.random((300, 70)) < 0.3)
    dense[123] = 1
    monkeypatch.setattr(csc_rows, "_BUFFER", 512)
    monkeypatch.setattr(csc_rows, "_MOST_FILES", 3)
    monkeypatch.setattr(csc_rows, "_PIECE", 97)
    held: list[int] = []
    read = np.fromfile

    def counted(*arguments: Any) -> np.ndarray:
        found = read(*arguments)
        held.append(found.nbytes)
        return found

    monkeypatch.setattr(csc_rows.np, "fromfile", counted)
    content = {
        "X": sp.csc_matrix(dense.astype(np.float32)),
        "obs/label": (np.arange(300, dtype=np.int8) % 2, ["a", "b"]),
    }
    store = open_store(formats.anndata(tmp_path / "a.zarr", content))
    np.testing.assert_array_equal(rows_of(store), dense)
    entry = 8 + 4 + 4
    assert max(held) <= max(2 * 512, 97 * entry, 70 * entry + 512)
    assert len(transposed()) == 1
    assert {file.name for file in transposed()[0].iterdir()} == {"about.json", "data", "indices", "indptr"}


def test_columns_are_transposed_once_by_those_who_open_them_at_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = formats.anndata(tmp_path / "a.zarr", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    transpose, wait_for = csc_rows._transpose, locks.wait_for
    began, others_turn = [], threading.Event()

    def slow(*arguments: Any) -> None:
        began.append(threading.get_ident())
        if len(began) == 1:
            other.start()
            others_turn.wait()
        else:
            others_turn.set()
        transpose(*arguments)

    def waited(*arguments: Any) -> None:
        if threading.current_thread() is other:
            others_turn.set()
        wait_for(*arguments)

    found: list[np.ndarray] = []
    other = threading.Thread(target=lambda: found.append(rows_of(open_store(path))))
    monkeypatch.setattr(csc_rows, "_transpose", slow)
    monkeypatch.setattr(csc_rows, "wait_for", waited, raising=False)
    np.testing.assert_array_equal(rows_of(open_store(path)), X.toarray())
    other.join()
    np.testing.assert_array_equal(found[0], X.toarray())
    assert len(began) == 1


_HELD = """
import sys
from bigsvm.store.formats import csc_rows
from bigsvm.store.formats.opener import open_store

def held(*arguments):
    print("begun", flush=True)
    sys.stdin.read()

csc_rows._transpose = held
open_store(sys.argv[1])
"""


def test_what_killed_processes_made_of_columns_is_removed(tmp_path: Path) -> None:
    path = formats.anndata(tmp_path / "a.zarr", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    command = [sys.executable, "-c", _HELD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
    assert len(transposed()) == 1
    at_work = temporary_name(folder_to_write() / "transposed-other")  # of a process that lives
    at_work.mkdir()
    open_store(path)
    assert len(transposed()) == 2
    assert at_work in transposed()
