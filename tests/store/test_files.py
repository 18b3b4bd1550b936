"""What is written appears whole; what the dead leave goes; what is locked names its holder."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bigsvm import process
from bigsvm.errors import OutputError
from bigsvm.files import sealed_json
from bigsvm.files.atomic import (
    new_directory,
    new_file,
    open_regular,
    read_bytes,
    remove,
    remove_dead,
    temporary_name,
    write_bytes,
)
from bigsvm.files.locks import alone
from bigsvm.files.outputs import new_output
from bigsvm.files.sealed_json import sealed, unsealed
from bigsvm.files.space import cannot_write
from bigsvm.process import Process, this_process


def a_dead_process() -> Process:
    """One that was here and is gone."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    was = Process(this_process().machine, child.pid, process.started(child.pid))
    assert not was.is_gone()
    child.communicate(b"\n")
    return was


def test_temporaries_of_the_dead_go_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final = tmp_path / "a.b"
    ours = temporary_name(final)
    ours.touch()
    machine, pid, started = a_dead_process()
    dead = ours.with_name(f".a.b.tmp-{machine}-{pid}-{started}-00000000")
    elsewhere = ours.with_name(f".a.b.tmp-ffffffff-{pid}-{started}-00000000")
    reused = ours.with_name(f".a.b.tmp-{machine}-{os.getpid()}-1-00000000")  # our number, another start
    other_output = ours.with_name(f".c.tmp-{machine}-{pid}-{started}-00000000")
    foreign = tmp_path / ".a.b.tmp-notes"
    for path in (elsewhere, reused, other_output, foreign):
        path.touch()
    dead.mkdir()
    (dead / "half").touch()
    remove_dead(tmp_path, "a.b")
    assert set(tmp_path.iterdir()) == {ours, elsewhere, other_output, foreign}
    remove_dead(tmp_path)
    assert set(tmp_path.iterdir()) == {ours, elsewhere, foreign}


def test_a_folder_goes_although_somebody_still_writes_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose result nobody waits for any more makes another file, after the folder was listed."""
    rmdir, late = os.rmdir, ["a", "b"]

    def while_it_is_emptied(path: str, **how: Any) -> None:
        if late and Path(path).name == "made":
            (tmp_path / "store" / "made" / late.pop()).touch()
        rmdir(path, **how)

    monkeypatch.setattr(os, "rmdir", while_it_is_emptied)
    (tmp_path / "store" / "made").mkdir(parents=True)
    remove(tmp_path / "store")
    assert (late, list(tmp_path.iterdir())) == ([], [])


def test_the_next_writer_cleans_up(tmp_path: Path) -> None:
    machine, pid, started = a_dead_process()
    for name in ("file", "folder"):
        (tmp_path / f".{name}.tmp-{machine}-{pid}-{started}-00000000").mkdir()
    write_bytes(tmp_path / "file", b"x")
    with new_directory(tmp_path / "folder") as folder:
        (folder / "y").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_writing_looks_rarely_through_a_large_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, scandir = [], os.scandir
    for number in range(1000):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(path) or scandir(path))
    for number in range(100):
        write_bytes(tmp_path / f"new-{number}", b"x")
    assert 1 < len(looked) < 8


def test_what_the_dead_left_in_a_large_folder_goes_at_the_first_writing_and_later(tmp_path: Path) -> None:
    machine, pid, started = a_dead_process()
    for number in range(1000):
        (tmp_path / str(number)).touch()
    before = tmp_path / f".b.tmp-{machine}-{pid}-{started}-00000000"
    later = tmp_path / f".b.tmp-{machine}-{pid}-{started}-00000001"
    before.touch()
    write_bytes(tmp_path / "a", b"x")
    assert before.exists()
    write_bytes(tmp_path / "b", b"x")
    assert not before.exists()
    later.touch()
    for _ in range(16):
        write_bytes(tmp_path / "b", b"x")
    assert not later.exists()


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    def fails() -> None:
        with new_file(tmp_path / "a") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list(tmp_path.iterdir()) == []
    write_bytes(tmp_path / "a", b"old")

    def full() -> None:
        with new_file(tmp_path / "a", 12345) as file:
            file.write(b"new")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        OutputError, match=r"/a: cannot write: No space left on device, 12345 bytes needed, \d+ are free"
    ):
        full()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_error_names_the_output_and_not_its_temporary(tmp_path: Path) -> None:
    def full() -> None:
        with new_file(tmp_path / "a") as file:
            raise cannot_write(Path(file.name), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    with pytest.raises(OutputError) as error:
        full()
    assert error.value.where == str(tmp_path / "a")


def test_a_folder_that_is_replaced_is_there_at_every_instant(tmp_path: Path) -> None:
    final, missing, done = tmp_path / "a", [], threading.Event()

    def put(content: str) -> None:
        with new_directory(final, overwrite=True, marks=("x",)) as folder:
            (folder / "x").write_text(content)

    def watch() -> None:
        while not done.is_set():
            try:
                os.stat(final / "x")
            except OSError as error:
                missing.append(error)

    put("0")
    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(200):
        put(str(number))
    done.set()
    watcher.join()
    assert not missing
    assert (final / "x").read_text() == "199"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_without_an_exchange_a_folder_is_still_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsvm.files.atomic._rename", lambda one, other, how: False)
    for content in ("1", "2"):
        with new_directory(tmp_path / "a", overwrite=True, marks=("x",)) as folder:
            (folder / "x").write_text(content)
    assert (tmp_path / "a" / "x").read_text() == "2"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("renames", [True, False])
@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("came", ["file", "foreign folder", "folder of ours"])
@pytest.mark.parametrize("made", ["file", "folder"])
def test_what_came_while_an_output_was_made_is_not_lost(
    made: str, came: str, overwrite: bool, renames: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not renames:
        monkeypatch.setattr("bigsvm.files.atomic._rename", lambda one, other, how: False)
    final, mark = tmp_path / "a", "x" if came == "folder of ours" else "precious"

    def come() -> None:
        if came == "file":
            final.write_text("precious")
        else:
            final.mkdir()
            (final / mark).write_text("precious")

    def make() -> None:
        if made == "file":
            with new_output(final, overwrite) as file:
                file.write(b"new")
                come()
        else:
            with new_directory(final, overwrite, marks=("x",)) as folder:
                (folder / "x").write_text("new")
                come()

    if overwrite and (made, came) in (("file", "file"), ("folder", "folder of ours")):
        make()
        assert (final if made == "file" else final / "x").read_text() == "new"
    else:
        with pytest.raises(OutputError, match=r"exists|is not a|Is a directory"):
            make()
        assert (final if came == "file" else final / mark).read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


HOLD = """
import sys, pathlib
from bigsvm.files.locks import alone
with alone(pathlib.Path(sys.argv[1]), "the run"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_lock_names_its_holder_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    child = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    with (
        pytest.raises(OutputError, match=rf"the run is in use by process {child.pid} on .* since 20"),
        alone(path, "the run"),
    ):
        pass
    child.kill()
    child.communicate()
    assert path.exists()  # the dead leave it, and it blocks nobody
    with alone(path, "the run"):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="plain file"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")


def test_sealed_documents_come_back_or_not_at_all() -> None:
    content = {"b": [1, 2.5, None], "a": "é", "inf": float("inf")}
    document = sealed(content)
    assert unsealed(document) == content
    for at in range(len(document) - 1):  # but for the newline at the end
        with pytest.raises(ValueError, match=r"file|digest|Expecting|codec|delimiter|char|data|quote"):
            unsealed(document[:at] + bytes([document[at] ^ 1]) + document[at + 1 :])


def test_a_failure_inside_a_new_directory_names_what_it_was_to_become(tmp_path: Path) -> None:
    final, full = tmp_path / "x.zarr", OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError, match="7 bytes needed") as caught, new_directory(final) as folder:
        raise cannot_write(folder / "X" / "c" / "0", full, 7)
    assert caught.value.where == str(final)
    assert list(tmp_path.iterdir()) == []


def test_a_sealed_document_that_is_read_but_too_deep_to_be_hashed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 reads JSON that is nested more deeply than Python's own calls may be."""

    def too_deep(content: object) -> str:
        raise RecursionError

    document = sealed([[1]])
    monkeypatch.setattr(sealed_json, "json_digest", too_deep)
    with pytest.raises(ValueError, match="nested too deeply"):
        unsealed(document)
