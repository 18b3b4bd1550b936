"""Copies in the scratch folder: made by one process, shared by many, and evicted when nobody uses them.

A copy is made under an exclusive lock and used under a shared one (flock, so a dead holder never blocks).  So two fits
of one store make the copy once, and nobody deletes it while it is read.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bigsvm.errors import PlanRefused
from bigsvm.events import WAITING, Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.files.locks import flock, holder, sign, take
from bigsvm.files.space import cannot_write
from bigsvm.store.copy.stage_index import COPIES
from bigsvm.units import MIB, show_bytes

OBJECTS = "objects.json"
"""The document of a finished copy of remote objects."""
_DOCUMENTS = ("staged.json", "columns.json", OBJECTS)
"""Without its document a folder does not count as a copy."""
_CHANCES = 5  # attempts to make a copy that others delete at once
_LOOK_S = 0.1
_TELL = 200  # number of progress events in one piece of work


def copies_folder(scratch: Path) -> Path:
    """The folder of working copies in a scratch folder."""
    return scratch / COPIES


def copies_in(folder: Path) -> list[Path]:
    """The working copies of rows and of columns in the folder, and the copies of remote objects."""
    return sorted(path for kind in ("rows", "columns", "objects") for path in folder.glob(f"{kind}-*") if path.is_dir())


@contextmanager
def kept_copy(folder: Path, is_whole: Callable[[], bool], make: Callable[[], None], emit: Emit) -> Iterator[None]:
    """A copy in `folder`, made now unless it exists; it is not deleted during the block.

    make : fills the existing folder; no other process does so meanwhile

    Raises OutputError if the folder cannot be made, and whatever `make` raises.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder.with_suffix(".lock"), "a+")  # noqa: SIM115
    except OSError as error:
        raise cannot_write(folder, error) from error
    with lock:
        for _ in range(_CHANCES):
            if not lock_copy(lock, is_whole, emit):
                folder.mkdir(parents=True, exist_ok=True)
                make()
                flock(lock, fcntl.LOCK_SH)
            # An exclusive lock is released before the shared one is taken.  Who makes room may come between the two.
            if any((folder / document).exists() for document in _DOCUMENTS):
                break
        os.utime(folder)  # mark as recently used
        yield


def lock_copy(lock: IO[str], is_whole: Callable[[], bool], emit: Emit) -> bool:
    """Lock a copy: shared if it is complete (returns True), else exclusively for making it (False).

    While another process makes the copy, events name that process.
    """
    began, told, rounds = time.monotonic(), "", 0
    # Do not wait for the exclusive lock: the maker keeps using the copy for hours, and we can share it.
    while not (found := take(lock, fcntl.LOCK_SH) and is_whole()):
        # A shared lock cannot be upgraded in one step: release it, then check again.
        flock(lock, fcntl.LOCK_UN)
        if rounds > 0:  # sleep without any lock, so that one of several waiting processes gets it
            if not told:
                told = f"{WAITING}{holder(lock)}, which makes the working copy"
                emit(WorkStarted(told, 0, ""))
            emit(WorkAdvanced(told, 0))
            time.sleep(_LOOK_S)
        rounds += 1
        if take(lock, fcntl.LOCK_EX):
            found = is_whole()
            if found:
                flock(lock, fcntl.LOCK_SH)
            else:
                sign(lock)
            break
    if told:
        emit(WorkEnded(told, time.monotonic() - began))
    return found


@contextmanager
def work(what: str, rows: int, emit: Emit) -> Iterator[Callable[[int], None]]:
    """Events of a piece of work on rows; yields the function that reports how many rows are done."""
    began, told = time.monotonic(), 0

    def advanced(done: int) -> None:
        nonlocal told
        if done - told >= rows / _TELL or done == rows:  # a large copy has millions of blocks
            told = done
            emit(WorkAdvanced(what, done))

    emit(WorkStarted(what, rows, "rows"))
    yield advanced
    emit(WorkEnded(what, time.monotonic() - began))


def make_room(folder: Path, needed: int, scratch_limit: int | None, remedy: str = "use --stage none") -> None:
    """Delete the least recently used copies that nobody reads, until `needed` bytes fit.

    remedy : advice for the message, in addition to more space or a higher limit; may be empty

    Raises PlanRefused.
    """
    have = tree_bytes(folder)
    others = sorted((p for p in copies_in(folder.parent) if p != folder), key=lambda p: p.stat().st_mtime)
    held = {path: tree_bytes(path) for path in others}

    def short() -> int:
        free = shutil.disk_usage(folder).free + have - needed
        if scratch_limit is not None:
            free = min(free, scratch_limit - sum(held.values()) - needed)
        return -free

    for path in others:
        if short() <= 0:
            return
        if remove_copy(path):
            del held[path]
    if short() > 0:
        ways = [f"use --scratch-limit {-(-(sum(held.values()) + needed) // MIB)}MiB"]
        if shutil.disk_usage(folder).free + have < needed:  # a higher limit would not help
            ways = ["free space there", "use --scratch DIR"]
        ways += [remedy] if remedy else []
        raise PlanRefused(
            f"the working copy needs {show_bytes(needed)} ({needed} bytes), but only "
            f"{show_bytes(max(needed - short(), 0))} are available",
            str(folder.parent),
            " or ".join(filter(None, [", ".join(ways[:-1]), ways[-1]])),
        )


def remove_copy(folder: Path) -> bool:
    """Delete a working copy unless a run uses it; returns whether it was deleted."""
    lock_path = folder.with_suffix(".lock")
    with open(lock_path, "a") as lock:
        if not take(lock, fcntl.LOCK_EX):
            return False
        for document in _DOCUMENTS:
            (folder / document).unlink(missing_ok=True)  # first
        shutil.rmtree(folder, ignore_errors=True)
    return True


def tree_bytes(folder: Path) -> int:
    """Total bytes of the files below a folder, which others may be deleting."""
    total = 0
    for place, _, files in os.walk(folder):  # unlike `rglob`, it passes over folders that are gone
        for file in files:
            with suppress(OSError):
                total += os.stat(os.path.join(place, file)).st_size
    return total
