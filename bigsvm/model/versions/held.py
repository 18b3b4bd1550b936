"""A registry held by its lock: made by its first promotion, and taken away again if that one fails."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bigsvm.errors import MissingInput, OutputError
from bigsvm.events import WAITING, Emit, WorkEnded, WorkStarted
from bigsvm.files.atomic import check_name
from bigsvm.files.locks import is_that, sign, unsign, wait_for
from bigsvm.files.paths import check_here, check_outside_stores
from bigsvm.files.space import cannot_write
from bigsvm.model.versions.layout import CURRENT, HISTORY, LOCK, PENDING, VERSIONS
from bigsvm.model.versions.tidy import tidy

_LOOKS = 100  # for a lock, while others take it away with the registry that they could not make


@contextmanager
def held_registry(root: Path, emit: Emit, create: bool = False) -> Iterator[None]:
    """Hold the lock of a registry during the block, which begins with a tidy registry.

    create : make the registry if there is none; a block that fails takes away what was made
    emit : receives a message if another process holds the lock, and the warning of `tidy`

    Raises
    ------
    MissingInput : there is no registry.
    OutputError : it cannot be made or locked, or would be made where something else is.
    """
    if not create and not (root / VERSIONS).is_dir():
        raise MissingInput("no registry here", str(root), "bigsvm promote makes one")
    _check_place(root)
    folder = root / VERSIONS
    absent = [each for each in (folder, *folder.parents) if create and not each.exists()]
    held = False
    try:
        with _locked(root, emit, create) as lock:
            held = True
            sign(lock)
            try:
                tidy(root, emit)
                yield
            except BaseException:
                _remove_empty(root, absent)
                raise
            finally:
                unsign(lock)
    except OutputError:
        if not held:  # not even the lock could be made; once it was let go, what is there may be another process's
            _remove_empty(root, absent)
        raise


@contextmanager
def _locked(root: Path, emit: Emit, create: bool) -> Iterator[IO[str]]:
    """The lock of a registry, held during the block.

    create : make its folders; whoever made them and could not promote takes them away again, and with them the lock
        that others may wait for
    """
    folder = root / VERSIONS
    for look in range(_LOOKS):
        try:
            if create:
                folder.mkdir(parents=True, exist_ok=True)
            lock = open(root / LOCK, "a+")  # noqa: SIM115
        except FileNotFoundError as error:
            if create and look < _LOOKS - 1:  # taken away between the two
                continue
            raise cannot_write(root, error) from error
        except OSError as error:
            raise cannot_write(root, error) from error
        with lock:
            _wait_for(lock, emit)
            # Whoever takes a registry away removes `versions` before the lock, and perhaps between our two steps above.
            if is_that(root / LOCK, lock) and (not create or folder.is_dir()):
                yield lock
                return
    hint = "find out which other jobs promote to it, then repeat the command"
    raise OutputError("other processes keep creating and removing it", str(root), hint)


def _remove_empty(root: Path, absent: list[Path]) -> None:
    """Remove a registry that has no version, if it was not there before: nobody is to take it for one.

    absent : the folders that were not there, innermost first
    """
    with suppress(OSError):
        if not absent or os.path.lexists(root / CURRENT) or _size(root / HISTORY) or any((root / VERSIONS).glob("*")):
            return
        for name in (HISTORY, PENDING):
            (root / name).unlink(missing_ok=True)
        for each in absent:  # `versions`, then the registry, then what it lies in
            with suppress(FileNotFoundError):
                each.rmdir()
            (root / LOCK).unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _wait_for(lock: IO[str], emit: Emit) -> None:
    """Take the registry's lock; if that takes long, emit a message naming its holder."""
    waiting, began = "", time.monotonic()

    def tell(who: str) -> None:
        nonlocal waiting
        waiting = f"{WAITING}{who}, which is changing the registry"
        emit(WorkStarted(waiting, 0, ""))

    wait_for(lock, tell)
    if waiting:
        emit(WorkEnded(waiting, time.monotonic() - began))


def _check_place(root: Path) -> None:
    """Raise OutputError for a registry in a bucket or in a store, or whose folder is a model or a run."""
    check_here(root)
    check_outside_stores(root / VERSIONS)
    for name, what in (("model.json", "model"), ("run.json", "run")):
        check_name(root / name)
        if (root / name).is_file():
            hint = "the registry comes first: bigsvm promote REGISTRY MODEL"
            raise OutputError(f"is a {what}, not a registry", str(root), hint)
