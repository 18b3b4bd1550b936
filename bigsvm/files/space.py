"""Space on a disk: what an output needs, and what a write that failed says of what is free."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bigsvm.errors import OutputError

_STANDARD_OUTPUT = ("-", "<stdout>")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Need = int | Callable[[int], str] | None
"""The bytes that an output needs; or a function of those that were written before the disk was full, which says it in
words; None: more than these."""


@dataclass
class Share:
    """How many of the rows of an output are written, for an estimate of its size (a `Need`)."""

    total: int
    done: int = 0

    def __call__(self, nbytes: int) -> str:
        if 0 < self.done < self.total:
            return f"about {nbytes * self.total // self.done} bytes"
        return f"more than {nbytes} bytes" if nbytes else ""


def what_was_needed(need: Need, error: OSError, written: int) -> int | str | None:
    """What an output needs that could not be written: bytes, or words.  written : the bytes of it that were"""
    if need is None and error.errno in _NO_ROOM:
        need = Share(0)
    return need(written) if callable(need) else need


def tree_size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 if there is none."""
    with suppress(OSError):
        files = [part for part in path.rglob("*") if part.is_file()] if path.is_dir() else [path]
        return sum(part.stat().st_size for part in files)
    return 0


def zeros_map(handle: int, nbytes: int) -> mmap.mmap:
    """A shared map of a new file, which becomes `nbytes` zeros (at least one).

    All its blocks are asked for at once: a full disk is an OSError here, and not a SIGBUS, which ends the process
    without a word, when the first byte of a page is written.
    """
    os.posix_fallocate(handle, 0, nbytes)
    return mmap.mmap(handle, nbytes)


def cannot_write(path: Path, error: OSError, nbytes: int | str | None = None) -> OutputError:
    """The OutputError for an OSError while writing `path`; says how much space is needed, if that is known.

    path : standard output is `-`, or as Python calls it; its disk is unknown
    nbytes : the space, also in words
    """
    what = f"cannot write: {error.strerror or error}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if str(path) in _STANDARD_OUTPUT:
        return OutputError(what, "standard output", "free space where it is redirected to" if full else "")
    if nbytes not in (None, ""):
        what += f", {nbytes if isinstance(nbytes, str) else f'{nbytes} bytes'} needed"
    if full and not str(path).startswith("<"):  # "<...>" is the name of a stream, whose disk is unknown
        with suppress(OSError):
            there = os.statvfs(_there(path))
            if there.f_files and not there.f_favail:
                what += ", no inode is free"
                return OutputError(what, str(path), "delete files there or choose another folder")
            what += f", {there.f_bavail * there.f_frsize} are free"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OutputError(what, str(path), "may this user write there? If not, choose another folder")
    return OutputError(what, str(path), "free space there or choose another folder" if full else "")


def _there(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
