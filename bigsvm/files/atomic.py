"""Atomic outputs: whatever bigsvm makes is written under a temporary name, flushed, and renamed into place.

So a reader sees the old output, the new one, or nothing.  A crash leaves a temporary whose name says which process
wrote it, so that it can be removed later.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import xxhash

from bigsvm.errors import OutputError
from bigsvm.files.paths import check_here, check_outside_stores
from bigsvm.files.space import Need, cannot_write, tree_size, what_was_needed
from bigsvm.process import Process, this_process

_PIECE = 1 << 20  # bytes
_AT_ONCE = 8  # files that are flushed at the same time
_PAID = 64  # entries of a folder that may be looked at for each file that is written there
_MOST_LOOKS = 256  # folders whose entries are remembered
_REMOVALS = 20  # attempts to remove a folder in which another process still makes files
# Limits of Linux's file systems in bytes; a path leaves room for the names of files inside.
_LONGEST_NAME, _LONGEST_PATH = 255, 4000
_AT_FDCWD, _RENAME_NOREPLACE, _RENAME_EXCHANGE = -100, 1, 2  # renameat2(2)


_TEMPORARY = re.compile(r"\.(?P<name>.+)\.tmp-(?P<machine>[0-9a-f]{8})-(?P<pid>[0-9]+)-(?P<started>[0-9]+)-[0-9a-f]{8}")


def temporary_name(final: Path) -> Path:
    """A name beside `final` that is unique to this process, and tells which process chose it."""
    machine, pid, started = this_process()
    return final.with_name(f".{final.name}.tmp-{machine}-{pid}-{started}-{os.urandom(4).hex()}")


def remove_dead(folder: Path, name: str | None = None) -> None:
    """Remove the temporaries in a folder whose processes have ended; of the output `name`, or of all outputs."""
    try:
        names = [entry.name for entry in os.scandir(folder) if ".tmp-" in entry.name]
    except OSError:
        return
    temporaries = filter(None, map(_TEMPORARY.fullmatch, names))
    _remove_those_of_dead(folder, (made for made in temporaries if name in (None, made["name"])))


def _remove_those_of_dead(folder: Path, temporaries: Iterable[re.Match[str]]) -> None:
    for made in temporaries:
        if Process(made["machine"], int(made["pid"]), int(made["started"])).is_gone():
            remove(folder / made.string)


@dataclass
class _Look:
    """What this process found when it last looked through a folder.

    n_entries : the number of names;  temporaries : output -> its temporaries
    n_paid : entries that may be looked at anew for what was written since
    """

    n_entries: int
    temporaries: dict[str, list[re.Match[str]]]
    n_paid: int = 0


_looks: dict[str, _Look] = {}


def _remove_dead_before_writing(final: Path) -> None:
    """Remove the temporaries of one output whose processes have ended, without a look through the folder each time.

    The cache folder may hold many thousands of files, and a look at all of them before each small file would take
    longer than the file.  So a process looks once, notes the temporaries of all outputs, and looks again when it has
    written a file for every `_PAID` names in the folder.  A small folder is looked through each time.  What a process
    leaves that dies meanwhile is removed at the next look, or by the next process.
    """
    folder = os.path.abspath(final.parent)
    look = _looks.get(folder)
    if look is None or look.n_paid >= look.n_entries:
        if len(_looks) >= _MOST_LOOKS:
            _looks.clear()
        look = _looks[folder] = _looked(folder)
    look.n_paid += _PAID
    _remove_those_of_dead(final.parent, look.temporaries.get(final.name, ()))


def _looked(folder: str) -> _Look:
    look = _Look(0, {})
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            look.n_entries += 1
            found = _TEMPORARY.fullmatch(entry.name) if ".tmp-" in entry.name else None
            if found is not None:
                look.temporaries.setdefault(found["name"], []).append(found)
    return look


def remove(path: Path) -> None:
    """Delete a file, a link or a folder.  No error is raised if it is missing or cannot be deleted.

    Several attempts may be needed: a worker that does not know that its work is void may still make files in the
    folder.
    """
    if path.is_dir() and not path.is_symlink():
        for _ in range(_REMOVALS):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break
    else:
        with suppress(OSError):
            path.unlink()


def sync_directory(path: Path) -> None:
    """Make renames and creations inside `path` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: str | Path) -> None:
    """Make the content of a file durable that was written and closed before."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_file(final: Path, nbytes: Need = None, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A temporary file that is renamed to `final`, durably, if the block ends well, and is removed otherwise.

    nbytes : what is needed, for the error message if the disk is full
    overwrite : replace an existing file, also one that appeared in the meantime

    Every OSError inside the block is raised as OutputError naming the path.
    """
    _remove_dead_before_writing(final)
    temporary = temporary_name(final)
    try:
        with _closed_quietly(open(temporary, "xb")) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(temporary, final)
        else:
            _take_free_name(temporary, final)
        sync_directory(final.parent)
    except OutputError as error:
        if error.where == str(temporary):  # name the output, which the user knows, not the temporary
            error.where = str(final)
        raise
    except OSError as error:
        raise _removed(temporary, final, error, nbytes) from error
    finally:
        remove(temporary)


def _removed(temporary: Path, final: Path, error: OSError, need: Need) -> OutputError:
    """The error for an output that could not be written; what it took is free again when the disk is looked at."""
    written = tree_size(temporary)
    remove(temporary)
    return cannot_write(final, error, what_was_needed(need, error, written))


@contextmanager
def _closed_quietly(file: BinaryIO) -> Iterator[BinaryIO]:
    """Close the file at the end.  If the block failed, an error of closing must not hide the first error."""
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


def write_bytes(final: Path, content: bytes) -> None:
    """Write a file so that it is whole or absent.  Raises OutputError naming the path."""
    with new_file(final, len(content)) as file:
        file.write(content)


def check_name(final: Path) -> None:
    """Raise OutputError for a name that no output can have, or that lies in a bucket or on a server."""
    check_here(final)
    if not final.name or final.name == "..":
        raise OutputError("not a valid name for an output", str(final), "give one that may be made or replaced")
    parts = [temporary_name(final).name, *final.parts]
    if max(len(os.fsencode(part)) for part in parts) > _LONGEST_NAME or len(os.fsencode(final)) > _LONGEST_PATH:
        raise OutputError("the name is too long", str(final), "choose a shorter one")
    if "\0" in str(final):
        raise OutputError("not a valid name for an output: it contains a zero byte", repr(str(final)))
    try:
        os.lstat(final)
        os.stat(os.path.join(final, "."))
    except PermissionError as error:  # it is a folder that may not be searched, or lies in one
        raise cannot_write(final, error) from error
    except OSError:
        pass


def check_replaceable(final: Path, overwrite: bool, marks: Sequence[str], kind: str) -> None:
    """Raise OutputError if `final` exists, unless it may be overwritten and is of the same kind as the new output.

    marks : file names by which a folder of this kind is recognised; an empty folder may always be replaced
    kind : what the output is, such as "model", for messages

    Raises
    ------
    OutputError : `final` exists, or lies in a store; or it is not a `kind`, which `--overwrite` must not delete; or its
        files may not be removed.
    """
    if str(final) == "-":
        raise OutputError(f"a {kind} is a folder, which cannot go to standard output", "-", "name a folder")
    check_name(final)
    check_outside_stores(final)
    if not (final.exists() or final.is_symlink()):
        return
    if not overwrite:
        raise OutputError("the output exists", str(final), "choose another name or use --overwrite")
    try:
        empty = not any(final.iterdir()) if final.is_dir() else False
        ours = empty or (final.is_dir() and any((final / mark).exists() for mark in marks))
    except OSError as error:
        raise cannot_write(final, error) from error
    if not ours or final.is_symlink():
        raise OutputError(f"is not a {kind}, so --overwrite will not replace it", str(final), "choose another name")
    if not (empty or os.access(final, os.W_OK)):
        raise OutputError("cannot write: its files may not be removed", str(final), "choose another name")


@contextmanager
def new_directory(
    final: Path,
    overwrite: bool = False,
    marks: Sequence[str] = (),
    kind: str = "folder of ours",
    nbytes: Need = None,
) -> Iterator[Path]:
    """A temporary folder that is renamed to `final` if the block ends well, and is removed otherwise.

    nbytes : what is needed, for the error message if the disk is full

    Raises
    ------
    OutputError : `final` exists and may not be replaced (`check_replaceable`), or it cannot be written.
    """
    check_replaceable(final, overwrite, marks, kind)
    remove_dead(final.parent, final.name)
    temporary = temporary_name(final)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _publish_directory(temporary, final, overwrite, marks, kind)
    except OutputError as error:
        if Path(error.where).is_relative_to(temporary):  # name the output, which the user knows, not the temporary
            error.where = str(final)
        raise
    except OSError as error:
        raise _removed(temporary, final, error, nbytes) from error
    finally:
        remove(temporary)


def _publish_directory(temporary: Path, final: Path, overwrite: bool, marks: Sequence[str], kind: str) -> None:
    """Flush every file in `temporary`, and rename it to `final`; a former folder of that name is deleted.

    On Linux the two names are exchanged in one step, so that one of the two folders is there at every instant.  The
    work may have taken hours, so whatever is at `final` by now is checked again with `check_replaceable`.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # a disk flushes several files in hardly more time than one
        for folder, _, names in os.walk(temporary):
            for _ in pool.map(sync_file, [os.path.join(folder, name) for name in names]):
                pass
            sync_directory(Path(folder))
    if overwrite:
        check_replaceable(final, overwrite, marks, kind)
    if not (overwrite and final.exists()):
        _take_free_name(temporary, final)
        sync_directory(final.parent)
        return
    former = temporary
    if not _rename(temporary, final, _RENAME_EXCHANGE):
        former = temporary_name(final)
        os.rename(final, former)
        try:
            os.rename(temporary, final)
        except OSError:
            os.rename(former, final)
            raise
    sync_directory(final.parent)
    remove(former)


def _take_free_name(temporary: Path, final: Path) -> None:
    """Rename, but never over an existing file or folder.  Raises OutputError if there is one."""
    try:
        if _rename(temporary, final, _RENAME_NOREPLACE):
            return
        if not os.path.lexists(final):
            os.rename(temporary, final)
            return
    except FileExistsError:
        pass
    what = "the output exists: it appeared while this one was being made"
    raise OutputError(what, str(final), "choose another name or use --overwrite")


def _rename(one: Path, other: Path, how: int) -> bool:
    """Exchange two names, or take a free one, in one step; False if the system or the file system cannot do that.

    Raises OSError; FileExistsError if `other` was to be free and is not.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), how) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(other))


def open_regular(path: Path) -> int:
    """Open a plain file, or a link to one, for reading; returns the descriptor.

    Raises OSError if it is missing or a folder, and for pipes and devices, which could block or never end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "Not a plain file", str(path))


def read_bytes(path: Path) -> bytes:
    """All bytes of a plain file.  Raises OSError as `open_regular` does."""
    with open(open_regular(path), "rb", buffering=0) as file:
        return file.read()


def read_unlinked(path: str, nbytes: int) -> tuple[bytes, os.stat_result] | None:
    """(content, status) of a plain file of exactly `nbytes` bytes, with only five system calls.

    None for anything else: a link, another size, a missing or unreadable file, one that changed meanwhile.  The caller
    then takes the slow way, which raises the proper error.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size != nbytes:
            return None
        content = os.read(handle, nbytes)
        after = os.fstat(handle)
    except OSError:
        return None
    finally:
        os.close(handle)
    same = (after.st_size, after.st_mtime_ns, after.st_ctime_ns) == (nbytes, status.st_mtime_ns, status.st_ctime_ns)
    return (content, status) if same and len(content) == nbytes else None


def bytes_digest(content: bytes) -> str:
    """The `file_digest` of a file with this content."""
    return xxhash.xxh3_128(content).hexdigest()


def file_digest(path: Path) -> str:
    """xxh3-128 of a file, read in pieces."""
    digest = xxhash.xxh3_128()
    with open(open_regular(path), "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
