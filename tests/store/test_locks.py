"""Locks: named holders, and none that outlives its process, not even in a child that it had forked."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from bigsvm.errors import OutputError
from bigsvm.events import silent
from bigsvm.files import locks
from bigsvm.process import Process, started, this_process
from bigsvm.store.copy.copy_folder import lock_copy, remove_copy

# Holds a lock, hands a second descriptor of it to a grandchild that lives until its standard input ends, and says so.
_HOLDER = """
import os, subprocess, sys
from pathlib import Path
from bigsvm.files import locks
with locks.alone(Path(sys.argv[1]), "the run"):
    (held,) = locks._locks
    copy = os.dup(held.fileno())
    heir = subprocess.Popen(["cat"], stdin=0, stdout=1, pass_fds=[copy])
    print("held", flush=True)
    heir.wait()
"""


def fork_that_waits() -> tuple[int, int]:
    """(pid, descriptor) of a forked child that is past the fork and lives until the descriptor is closed."""
    alive_read, alive_write = os.pipe()
    end_read, end_write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        pid = os.fork()
    if pid == 0:
        try:
            os.close(end_write)
            os.write(alive_write, b"x")
            os.read(end_read, 1)
        finally:
            os._exit(0)
    os.close(end_read)
    assert os.read(alive_read, 1) == b"x"
    os.close(alive_read)
    os.close(alive_write)
    return pid, end_write


@pytest.mark.parametrize("how", ["alone", "take", "wait_for"])
def test_a_forked_child_holds_no_lock(tmp_path: Path, how: str) -> None:
    path = tmp_path / "lock"
    with open(path, "a+") as lock, open(path) as other:
        if how == "wait_for":
            locks.wait_for(lock)
        elif how == "take":
            assert locks.take(lock, fcntl.LOCK_SH)
        else:
            path = tmp_path / "held"
            holding = locks.alone(path, "the run")
            holding.__enter__()
        child, end = fork_that_waits()
        try:
            if how == "alone":
                holding.__exit__(None, None, None)
                with locks.alone(path, "the run"):
                    pass
            else:
                lock.close()
                assert locks.take(other, fcntl.LOCK_EX)
        finally:
            os.close(end)
            os.waitpid(child, 0)


def test_a_fork_does_not_free_the_lock_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locks.alone(path, "the run"), open(path, "a+") as other:
        child, end = fork_that_waits()
        os.close(end)
        os.waitpid(child, 0)
        assert not locks.take(other, fcntl.LOCK_EX)


def test_the_lock_of_a_killed_process_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An heir of its descriptor lives on until somebody waits: then it goes, and the lock is had."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", _HOLDER, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(OutputError, match=f"in use by process {holder.pid} on"), locks.alone(path, "the run"):
        pass
    holder.kill()  # not waited for: it has a number still, and is gone all the same
    ended = os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    waits = []

    def heir_goes(seconds: float) -> None:
        if not waits:
            assert holder.stdin is not None
            holder.stdin.close()
            with open(path) as other:
                fcntl.flock(other, fcntl.LOCK_EX)  # waits until it has ended
        waits.append(seconds)

    monkeypatch.setattr(locks.time, "sleep", heir_goes)
    with locks.alone(path, "the run"):
        pass
    assert waits
    holder.wait()
    holder.stdout.close()


def test_the_heir_of_a_killed_process_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", _HOLDER, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    holder.kill()
    holder.wait()
    monkeypatch.setattr(locks.time, "sleep", lambda seconds: None)
    with pytest.raises(OutputError, match=f"in use by process {holder.pid} on"), locks.alone(path, "the run"):
        pass
    holder.communicate()


def test_a_process_that_nobody_has_waited_for_is_gone() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    process = Process(this_process().machine, child.pid, started(child.pid))
    assert not process.is_gone()
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.is_gone()
    child.wait()
    assert process.is_gone()


def _alone(path: Path) -> None:
    with locks.alone(path, "the run"):
        pass


def _open(use: Callable[[IO[str]], object]) -> Callable[[Path], None]:
    def opened(path: Path) -> None:
        with open(path, "a+") as lock:
            use(lock)

    return opened


WAYS: dict[str, Callable[[Path], object]] = {
    "alone": _alone,
    "check_free": lambda path: locks.check_free(path, "the run"),
    "take": _open(lambda lock: locks.take(lock, fcntl.LOCK_SH)),
    "wait_for": _open(locks.wait_for),
    "wait_for and tell": _open(lambda lock: locks.wait_for(lock, lambda holder: None)),
    "lock_copy": _open(lambda lock: lock_copy(lock, lambda: True, silent)),
    "remove_copy": lambda path: remove_copy(path.with_suffix("")),
}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO])
@pytest.mark.parametrize("way", WAYS)
def test_a_file_system_without_locks_is_told_by_name(
    way: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only 'No locks available' was said, as a failure of reading."""

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "some.lock"
    path.touch()
    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(OutputError, match=f"cannot lock some.lock: {os.strerror(number)}") as caught:
        WAYS[way](path)
    assert caught.value.where == str(tmp_path)
    assert "choose a folder on another disk" in caught.value.hint


@pytest.mark.parametrize("signed", [False, True])
def test_a_folder_without_locks_is_left_as_it_was(
    signed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file stayed, and the next fit took its folder for a run; a lock that names a holder stays."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    folder = tmp_path / "s.run"
    if signed:
        folder.mkdir()
        (folder / "lock").write_text("{}")
    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(OutputError, match="cannot lock"), locks.folder_alone(folder, "lock", "the run"):
        pass
    assert folder.exists() == (folder / "lock").exists() == signed
