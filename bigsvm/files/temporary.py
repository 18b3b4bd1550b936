"""Temporary folders of which nothing stays: not after a signal, and what a kill leaves goes with the next one."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigsvm.files.atomic import remove, remove_dead, temporary_name
from bigsvm.files.space import cannot_write
from bigsvm.files.undisturbed import undisturbed

NAME = "bigsvm"
_made: dict[str, int] = {}  # folder -> the process that made it


@contextmanager
def temporary_folder(place: str | Path | None = None) -> Iterator[Path]:
    """A folder for the duration of the block, which only this user can read.

    Its name says which process made it, so that later calls remove those of processes that were killed.

    place : where it lies; None: the machine's temporary folder

    Raises OutputError if it cannot be made.
    """
    base = Path(place or tempfile.gettempdir())
    remove_dead(base, NAME)
    folder = temporary_name(base / NAME)
    _made[str(folder)] = os.getpid()
    try:
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise cannot_write(base, error) from error
        yield folder
    finally:
        if _made.get(str(folder)) == os.getpid():  # and not in a child that ends by an exception
            with undisturbed():
                remove(folder)
                _made.pop(str(folder), None)


@atexit.register
def _remove_rest() -> None:
    """Remove what an interruption kept the block from removing: it may come between any two steps of the above."""
    for folder, maker in list(_made.items()):
        if maker == os.getpid():
            remove(Path(folder))
