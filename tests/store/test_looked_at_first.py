"""Files that could end the process, or keep it for ever, are looked at in a child before they are opened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigsvm.errors import DataError
from bigsvm.store.formats import parquet_files
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import looked_at_first
from bigsvm.store.formats.tables.looked_at_first import look_first
from tests.store import formats

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux only")


IN_CHILD = looked_at_first._in_child
"""As it is: other tests have no children."""


@pytest.fixture(autouse=True)
def _in_children(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked_at_first, "_in_child", IN_CHILD)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    found = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for path in found:
        path.write_text(path.name)
    return [str(path) for path in found]


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    """A file for what a child did."""
    return tmp_path / "noted"


def noting(noted: Path) -> Callable[[str], None]:
    def look(path: str) -> None:
        with open(noted, "a") as file:
            file.write(Path(path).name)

    return look


def test_sound_files_are_looked_at_once(paths: list[str], noted: Path) -> None:
    for _ in range(2):
        look_first(paths, noting(noted), "test")
    assert noted.read_text() == "abc"
    look_first(paths, noting(noted), "test", ("otherwise",))
    assert noted.read_text() == "abcabc"
    Path(paths[1]).write_text("another text")
    look_first(paths, noting(noted), "test")
    assert noted.read_text() == "abcabcabc"


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
def test_a_crash_is_an_error_that_names_the_file(paths: list[str], number: signal.Signals) -> None:
    def look(path: str) -> None:
        if path == paths[1]:
            os.write(2, b"terminate called\n  what():  sizes differ\n" * (number == signal.SIGABRT))
            os.kill(os.getpid(), number)

    said = "sizes differ" if number == signal.SIGABRT else "ends by SIGSEGV"
    for _ in range(2):  # it is not remembered that it was looked at
        with pytest.raises(DataError, match=rf"b: damaged test file: .*{said}"):
            look_first(paths, look, "test")


def test_a_look_without_end_is_an_error_that_names_the_file(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked_at_first, "_CPU_S", 1)

    def look(path: str) -> None:
        while path == paths[2]:
            pass

    with pytest.raises(DataError, match="c: damaged test file: opening it does not come to an end"):
        look_first(paths, look, "test")


def test_a_child_that_waits_tells_nothing(paths: list[str], noted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is where another thread held a lock at the moment of the fork."""
    monkeypatch.setattr(looked_at_first, "_PATIENCE_S", 0.01)
    look_first(paths, lambda _: signal.pause(), "test")
    monkeypatch.undo()
    monkeypatch.setenv("BIGSVM_CACHE", str(noted.parent / "cache"))
    look_first(paths, noting(noted), "test")
    assert noted.read_text() == "abc"


def test_what_is_raised_or_cannot_be_forked_is_left_to_this_process(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str = "") -> int:
        raise OSError("no")

    look_first(paths, refuse, "test")  # type: ignore[arg-type]
    monkeypatch.setattr(os, "fork", refuse)
    look_first(paths, lambda _: None, "another kind")


_READ_ALL = """
import sys
from pathlib import Path
from bigsvm.errors import DataError
from bigsvm.store.formats.parquet_rows import ParquetRows

path = Path(sys.argv[1])
content = path.read_bytes()
begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
for place in [*range(begin, begin + 80), *range(begin + 80, len(content), 7)]:
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    try:
        store = ParquetRows(str(path))
        for ref in store.refs(2):
            store.read(ref)
    except DataError as error:  # the others are read in vain
        assert str(path) in str(error)
        assert "\\n" not in str(error)
print("read all")
"""


def test_no_byte_of_a_parquet_footer_ends_the_process(tmp_path: Path) -> None:
    """pyarrow aborts where a column's statistics do not fit the schema, which begins the footer, if nobody looks.

    A small program looks: to fork a process with so much memory takes ten times as long, and it does so for each byte.
    """
    path = tmp_path / "a.parquet"
    table = pa.table({"label": np.array([1, -1]), "x": np.array([0.5, 2.0])})
    pq.write_table(table, path, store_schema=False)
    program = [sys.executable, "-c", _READ_ALL, str(path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "read all\n"), done.stderr


def test_row_groups_have_as_many_rows_as_the_footer_says(tmp_path: Path) -> None:
    class Group:
        num_columns, num_rows = 2, -2

    class Footer:
        num_columns, num_row_groups, num_rows = 2, 1, -2

        def row_group(self, _: int) -> Group:
            return Group()

    with pytest.raises(DataError, match=r"a\.parquet: damaged Parquet file: row group 0 has -2 rows"):
        parquet_files._refuse_contradictions("a.parquet", Footer())
    Group.num_rows = 2
    with pytest.raises(DataError, match="its row groups have 2 rows, and its footer says -2"):
        parquet_files._refuse_contradictions("a.parquet", Footer())
    Group.num_columns = 3
    with pytest.raises(DataError, match="row group 0 has 3 columns, and the schema 2"):
        parquet_files._refuse_contradictions("a.parquet", Footer())


def test_hdf5_that_goes_round_in_a_circle_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heap of texts says that it is longer than it is, and HDF5 looks for its end for ever."""
    pytest.importorskip("h5py")
    monkeypatch.setattr(looked_at_first, "_CPU_S", 1)
    names = {"var/_index": ["g0", "g1", "g2"]}
    path = formats.anndata(
        tmp_path / "a.h5ad", {"X": np.eye(3, dtype=np.float32), "obs/label": np.arange(3.0), **names}
    )
    content = path.read_bytes()
    assert open_store(str(path)).n_samples == 3
    place = content.index(b"GCOL") + 9  # the second byte of its size
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(DataError, match=r"a\.h5ad: damaged HDF5 file: opening it does not come to an end"):
        open_store(str(path))
