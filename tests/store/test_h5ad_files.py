"""Files of HDF5: what is refused, numbers in one piece, and files that are open or written anew."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.errors import DataError, MissingInput
from bigsvm.store.formats import h5ad_rows
from bigsvm.store.formats.opener import open_store
from tests.store import formats
from tests.store.cells import CODES, N, X, content
from tests.store.read_back import rows_of

pytest.importorskip("h5py")


def open_files(path: Path) -> int:
    """How many descriptors of this process are of a file."""
    return sum(os.path.realpath(f"/proc/self/fd/{name}") == str(path) for name in os.listdir("/proc/self/fd"))


def test_a_file_that_is_not_there_is_answered_with_one_that_is(tmp_path: Path) -> None:
    (tmp_path / "cells.h5ad").touch()
    with pytest.raises(MissingInput, match=f"no such file .did you mean {tmp_path}/cells.h5ad"):
        open_store(tmp_path / "cell.h5ad")


def test_an_h5ad_that_was_read_is_let_go_of_and_opened_again(cells: Path) -> None:
    """HDF5 keeps chunks and its index while the file is open: memory that a plan has given to others."""
    path = cells / "gzip.h5ad"
    store = open_store(path)
    np.testing.assert_array_equal(rows_of(store), X.toarray())
    assert open_files(path) == 1
    store.forget()
    assert open_files(path) == 0
    np.testing.assert_array_equal(rows_of(store), X.toarray())
    store.forget()
    store.forget()
    assert open_files(path) == 0


def test_what_is_no_h5ad_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.h5ad").write_bytes(b"\x89HDF of a sort")
    with pytest.raises(DataError, match=r"not an \.h5ad file that can be read"):
        open_store(tmp_path / "t.h5ad")
    path = formats.anndata(tmp_path / "u.h5ad", {"X": X, "obs/label": (CODES, ["b", "a", "c"])})
    store = open_store(path)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match="changed since it was opened"):
        rows_of(store)


KINDS = {
    "as it is": ({}, "<f4", None),
    "most significant byte first": ({}, ">f4", None),
    "float16": ({}, "<f2", None),
    "behind a user block": ({"userblock_size": 1024}, "<f8", None),
    "never written": ({"userblock_size": 1024}, "<f8", 2.5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_in_one_piece_are_those_that_h5py_reads(kind: str, tmp_path: Path) -> None:
    import h5py

    file, dtype, fill = KINDS[kind]
    values = np.random.default_rng(0).normal(size=(37, 3)).astype(dtype)
    with h5py.File(tmp_path / "t.h5ad", "w", **file) as root:
        root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        root.create_dataset("X", values.shape, dtype, data=None if fill else values, fillvalue=fill)
        root["obs/label"] = np.arange(37) % 2
        expected = root["X"][:]
    store = open_store(tmp_path / "t.h5ad")
    X = store.read(store.refs(37)[0]).X
    np.testing.assert_array_equal(X, expected)
    assert X.dtype.isnative
    assert (store._data._place is None) == (kind == "never written")  # else it shows nothing
    store.forget()
    np.testing.assert_array_equal(store.read(store.refs(10)[3]).X, expected[30:])
    assert expected[0, 0] == (fill or values[0, 0])


ARRAYS, GROUPS = ["X", "layers/csc/data", "obs/weight"], ["layers/csc", "obs", "obs/label"]
LINKS = ["external link", "link to an external link", "link to nothing"]
ELSEWHERE = [(what, how) for what in ARRAYS + GROUPS for how in LINKS]
ELSEWHERE += [(what, how) for what in ARRAYS for how in ("virtual", "external storage")]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("what", "how"), ELSEWHERE)
def test_what_lies_in_another_file_is_refused(what: str, how: str, there: bool, tmp_path: Path) -> None:
    """Its changes would not be seen; and where that file is gone, HDF5 gives zeros, or says that nothing was there."""
    import h5py

    formats.anndata(tmp_path / "t.h5ad", {**content(), "obs/weight": np.arange(1.0, N + 1), "X": X.toarray()})
    other = tmp_path / "other.h5"
    with h5py.File(tmp_path / "t.h5ad", "r+", locking=False) as root, h5py.File(other, "w", locking=False) as file:
        root.copy(what, file, "moved")
        node, attrs = root[what], dict(root[what].attrs)
        values = node[:] if isinstance(node, h5py.Dataset) else None
        del root[what]
        if how == "external link":
            root[what] = h5py.ExternalLink("other.h5", "moved")
        elif how == "link to an external link":
            root["elsewhere"] = h5py.ExternalLink("other.h5", "moved")
            root[what] = h5py.SoftLink("/elsewhere")
        elif how == "link to nothing":
            root[what] = h5py.SoftLink("/nothing")
        elif how == "virtual":
            layout = h5py.VirtualLayout(values.shape, values.dtype)
            layout[:] = h5py.VirtualSource("other.h5", "moved", values.shape)
            root.create_virtual_dataset(what, layout).attrs.update(attrs)
        else:
            outside = [(str(tmp_path / "other.raw"), 0, values.nbytes)]
            root.create_dataset(what, data=values, external=outside).attrs.update(attrs)
    if not there:
        for name in ("other.h5", "other.raw"):
            (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(DataError, match=r"which is not there|whose changes nobody would see"):
        open_store(tmp_path / "t.h5ad", matrix="layers/csc" if what.startswith("layers") else None)


@pytest.mark.parametrize("locking", [True, False, "best-effort", None])
def test_a_file_that_is_open_in_this_process_is_read(locking: Any, cells: Path, tmp_path: Path) -> None:
    """As `anndata.read_h5ad(backed="r")` has it open in a notebook, with HDF5's locks."""
    import h5py

    path = Path(shutil.copy(cells / "gzip.h5ad", tmp_path))
    with h5py.File(path, "r", **({} if locking is None else {"locking": locking})):
        store = open_store(path)
        np.testing.assert_array_equal(rows_of(store), X.toarray())
        store.forget()


@pytest.mark.parametrize("kept", ["open", "gone", "forgotten"])
@pytest.mark.parametrize("changed", ["names of classes", "classes of rows", "values", "number of rows"])
def test_a_file_that_was_written_anew_in_place_is_read_anew(kept: str, changed: str, tmp_path: Path) -> None:
    """HDF5 shares what a process has open of a file, whatever has become of the file meanwhile."""
    path = tmp_path / "rows.h5ad"
    program = """
import sys, h5py, numpy as np
for line in sys.stdin:
    changed = line.strip()
    n = 30 if changed == "number of rows" else 24
    X = np.arange(2.0 * n).reshape(n, 2) * (-1 if changed == "values" else 1)
    codes = (np.arange(n) % 3 + (changed == "classes of rows")) % 3
    names = ["x", "y", "z"] if changed == "names of classes" else ["a", "b", "c"]
    with h5py.File(sys.argv[1], "w") as file:
        file.create_dataset("X", data=X, chunks=(7, 2))
        label = file.create_group("obs/label")
        label.attrs["encoding-type"] = "categorical"
        label["codes"], label["categories"] = codes.astype("i1"), names
    print("written", flush=True)
"""
    surroundings = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}
    pipe = subprocess.PIPE
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=pipe, stdout=pipe, text=True, env=surroundings
    )

    def written(what: str) -> None:
        assert writer.stdin is not None
        assert writer.stdout is not None
        print(what, file=writer.stdin, flush=True)
        assert writer.stdout.readline() == "written\n"

    def seen() -> tuple[list[Any], ...]:
        store = open_store(path)
        block = store.read(store.refs(99)[0])
        assert store.classes is not None
        if kept != "gone":
            stores.append(store)
        if kept == "forgotten":
            store.forget()
        return block.X.tolist(), store.classes[block.y].tolist()

    stores: list[Any] = []
    found = []
    with writer:
        for what in ("", changed, "", changed):
            written(what)
            found.append(seen())
    assert found[0] == found[2] != found[1] == found[3]
    n = 30 if changed == "number of rows" else 24
    assert len(found[1][1]) == n
    assert found[1][1][0] == {"names of classes": "x", "classes of rows": "b"}.get(changed, "a")
    if kept == "open":
        with pytest.raises(DataError, match="changed"):
            stores[0].read(stores[0].refs(99)[0])


@pytest.mark.parametrize("rows_of_chunk", [7, 60, 200])
@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
def test_a_large_chunk_is_decoded_once_for_all_blocks(
    form: str, rows_of_chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk may be the whole array, as R writes it; HDF5 keeps no chunk that is larger than its cache."""
    import h5py

    monkeypatch.setattr(h5ad_rows, "_CHUNK_CACHE", 0)
    decode, decoded = h5ad_rows.H5Array._decoded, dict[str, int]()

    def counted(self: h5ad_rows.H5Array, start: int, stop: int) -> np.ndarray:
        number = range(start // self.unit_rows, -(-stop // self.unit_rows))
        decoded[self.path] = decoded.get(self.path, 0) + len(number)
        return decode(self, start, stop)

    monkeypatch.setattr(h5ad_rows.H5Array, "_decoded", counted)
    rng = np.random.default_rng(0)
    X = (rng.integers(1, 9, (200, 30)) * (rng.random((200, 30)) < 0.3)).astype(np.float32)
    kept = X if form == "dense" else sp.csr_matrix(X) if form == "csr" else sp.csc_matrix(X)
    path = formats.anndata(tmp_path / "a.h5ad", {"X": kept, "obs/label": np.arange(200) % 2})
    names, n_chunks = ["X"] if form == "dense" else ["X/data", "X/indices", "X/indptr"], dict[str, int]()
    with h5py.File(path, "r+") as root:
        for name in names:
            values = root[name][:]
            del root[name]
            chunks = (min(rows_of_chunk * len(values) // 200 + 1, len(values)), *values.shape[1:])
            root.create_dataset(name, data=values, chunks=chunks, compression="gzip")
            n_chunks[name] = -(-len(values) // chunks[0])
    store = open_store(path)
    np.testing.assert_array_equal(rows_of(store), X)
    for name in names:
        assert decoded[name] <= 3 * n_chunks[name] + 3  # once to count, once to read, and the ends of the pointers
    store.forget()
    assert all(part._last is None for part in vars(store).values() if isinstance(part, h5ad_rows.H5Array))


def test_two_threads_decode_a_large_chunk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both decoded it, and for a moment there were two."""
    import h5py

    monkeypatch.setattr(h5ad_rows, "_CHUNK_CACHE", 0)
    X = np.ones((200, 30), np.float32)
    path = formats.anndata(tmp_path / "a.h5ad", {"X": X, "obs/label": np.arange(200) % 2})
    with h5py.File(path, "r+") as root:
        del root["X"]
        root.create_dataset("X", data=X, chunks=X.shape, compression="gzip")
    store = open_store(path)
    decode, decoded, both = h5ad_rows.H5Array._decoded, [], threading.Barrier(2)

    def met(self: h5ad_rows.H5Array, start: int, stop: int) -> np.ndarray:
        if self.path == "X":
            decoded.append(start)
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.2)  # both are here at a time if nothing keeps one of them out
        return decode(self, start, stop)

    monkeypatch.setattr(h5ad_rows.H5Array, "_decoded", met)
    with ThreadPoolExecutor(2) as pool:
        blocks = list(pool.map(store.read, store.refs(100)))
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), X)
    assert decoded == [0]
