"""The one way anything becomes visible on disk: written aside, flushed, then renamed into place.

A reader sees the old thing, the new thing or nothing, at every instant; a crash leaves a temporary whose
name says who wrote it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bigsvm.errors import OutputError


def temporary_name(final: Path) -> Path:
    """A name beside `final` that no other process chooses: `.NAME.tmp-PID-RANDOM`."""
    return final.with_name(f".{final.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")


def sync_directory(path: Path) -> None:
    """Make renames and creations inside `path` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(final: Path, content: bytes) -> None:
    """Write a file so that it is whole or absent.  Raises OutputError naming the path."""
    temporary = temporary_name(final)
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, final)
        sync_directory(final.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(final, error, len(content)) from error


def check_replaceable(final: Path, overwrite: bool, marks: Sequence[str], kind: str) -> None:
    """Refuse an output that exists, unless it may be overwritten and is of the kind that will replace it.

    marks : names of files of which such a folder holds one; an empty folder may always be replaced

    Raises
    ------
    OutputError : it exists; or it is something else than a `kind`, which `--overwrite` must not delete.
    """
    if not final.name or final.name == "..":
        raise OutputError("not a name for an output", str(final), "give a folder that may be made or replaced")
    if not (final.exists() or final.is_symlink()):
        return
    if not overwrite:
        raise OutputError("the output exists", str(final), "choose another name or say --overwrite")
    ours = final.is_dir() and (any((final / mark).exists() for mark in marks) or not any(final.iterdir()))
    if not ours or final.is_symlink():
        raise OutputError(f"is not a {kind}, so --overwrite will not replace it", str(final), "choose another name")


@contextmanager
def new_directory(
    final: Path, overwrite: bool = False, marks: Sequence[str] = (), kind: str = "folder of ours"
) -> Iterator[Path]:
    """A temporary folder that becomes `final` when the block ends well, and vanishes when it does not.

    Raises
    ------
    OutputError : `final` exists and may not be replaced (`check_replaceable`), or it cannot be written.
    """
    check_replaceable(final, overwrite, marks, kind)
    temporary = temporary_name(final)
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(final, error) from error
    try:
        yield temporary
        publish_directory(temporary, final)
    except OSError as error:
        raise cannot_write(final, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def publish_directory(temporary: Path, final: Path) -> None:
    """Flush every file below `temporary` and rename it to `final`, whose former content goes away."""
    for folder, _, names in os.walk(temporary):
        for name in names:
            handle = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_directory(Path(folder))
    former = None
    if final.exists():
        former = temporary_name(final)
        os.rename(final, former)
    try:
        os.rename(temporary, final)
    except OSError:
        if former is not None:
            os.rename(former, final)
        raise
    sync_directory(final.parent)
    if former is not None:
        if former.is_dir():
            shutil.rmtree(former, ignore_errors=True)
        else:
            former.unlink()


def cannot_write(path: Path, error: OSError, nbytes: int | None = None) -> OutputError:
    """The OutputError for an OSError while writing `path`, with the space needed where it is known."""
    what = f"cannot write: {error.strerror or error}"
    if nbytes is not None:
        what += f", {nbytes} bytes needed"
    hint = "free space there or choose another folder" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return OutputError(what, str(path), hint)
