"""Where things may lie: the cache folder, and files inside a store and nowhere else."""

from __future__ import annotations

import functools
import os
import re
import stat
from pathlib import Path

from bigsvm.errors import DataError, MissingInput, OutputError

STORE_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata", "bigsvm-manifest.json")
"""Files by which a folder is known as a Zarr store, or as a part of one."""
BUCKETS = ("s3", "gs", "az")
"""Schemes of stores elsewhere that list their objects."""
SCHEMES = (*BUCKETS, "http", "https")
"""Schemes of what lies elsewhere."""
_ELSEWHERE = re.compile(rf"({'|'.join(SCHEMES)}):/+(?:[^/]*@)?([^?]*)", re.IGNORECASE)


def cache_folder() -> Path:
    """$BIGSVM_CACHE, else $XDG_CACHE_HOME, else ~/.cache, and `bigsvm` below it; not created here."""
    base = os.environ.get("BIGSVM_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "bigsvm"


def make_cache_folder(folder: Path) -> None:
    """Make a folder in the cache folder, where it is not there.  Raises OutputError where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the cache folder: {error.strerror}", str(folder), "set BIGSVM_CACHE") from error


def no_such_store(named: str) -> MissingInput:
    """The error of a store that is not where a user named it, with a name there that comes close, if one does."""
    if Path(named).is_file():
        return MissingInput("is a file, and no store", named, f"make one of it: bigsvm ingest {named} STORE")
    return _not_there("no such store", named)


def no_such_file(named: str) -> MissingInput:
    """The same of a file."""
    return _not_there("no such file", named)


def _not_there(what: str, named: str) -> MissingInput:
    import difflib  # of use here alone: `bigsvm --help` goes without

    path = Path(named)
    folder = path.absolute().parent
    if path.is_symlink() and not path.exists():
        return MissingInput(what, named, f"it is a link to {os.readlink(path)}, where nothing is")
    try:
        close = difflib.get_close_matches(path.name, os.listdir(folder), 1)
    except OSError:
        return MissingInput(what, named, f"there is no folder {folder} that can be listed")
    hint = f"did you mean {path.with_name(close[0])}?" if close else f"the folder looked in is {folder}"
    return MissingInput(what, named, hint)


def not_permitted(path: Path | str, error: PermissionError) -> MissingInput:
    """The error for a file that is there, and that this user may not read: nothing is known of what it holds."""
    return MissingInput(f"cannot be read: {error.strerror or error}", str(path), "may this user read it?")


def local_path(root: Path, key: str) -> Path:
    """The file of `key` in the store at `root`.

    Raises
    ------
    DataError : the key, or a link on its way, leads out of the store.
    """
    if _names_another_place(key):
        raise DataError("leads out of the store", key, "a store may not point to other places")
    path = root / key
    # Chunks share a folder, which is looked at once; a chunk costs one lstat.
    inside = _folder_is_inside(os.fspath(path.parent), os.fspath(root))
    if not inside or (os.path.islink(path) and not _is_inside(path, root)):
        raise DataError("links out of the store", key, "a store may not point to other places")
    return path


def unlinked_path(root: str, key: str) -> str | None:
    """The path of `key` in the store at `root`; None where a folder on its way, or the key, leads out of the store.

    Of its last part nothing is said, which saves an lstat: whoever opens it does not follow a link.
    """
    if _names_another_place(key):
        return None
    path = f"{root}/{key}"
    return path if _folder_is_inside(path.rpartition("/")[0], root) else None


def plain_path(root: Path, key: str) -> Path:
    """`local_path`, of a plain file, a folder or nothing.  Raises DataError for a pipe or a device as well.

    Whoever opens a pipe that nobody writes to waits for ever, and so does the thread that was told to.
    """
    path = local_path(root, key)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return path
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError("is not a plain file", key)
    return path


def check_own_files(folder: Path, kind: str) -> None:
    """Refuse a folder of ours in which a link leads elsewhere, or a pipe or device stands for a file.

    What lies elsewhere may change; who opens a pipe may wait for ever.

    kind : what the folder is, such as "model"

    Raises DataError; a folder that cannot be listed is left to whoever reads it.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink() and not _is_inside(entry.path, folder):
            raise DataError(f"links out of the {kind}", entry.path, f"put the file itself into the {kind}'s folder")
        if not (entry.is_file() or entry.is_dir() or entry.is_symlink()):
            raise DataError("is not a plain file", entry.path, f"a {kind} has none: remove it")


def check_here(output: str | Path) -> None:
    """Refuse an output that would lie in a bucket or on a web server.  Raises OutputError."""
    elsewhere = _ELSEWHERE.match(str(output))
    if elsewhere:
        raise OutputError(
            "outputs are written to local disks only, where they become visible whole or not at all",
            f"{elsewhere[1].lower()}://{elsewhere[2]}",
            "name a local path, then copy what is there: aws s3 cp --recursive, gcloud storage cp -r, azcopy copy",
        )


def check_outside_stores(output: Path) -> None:
    """Refuse an output that would lie in a Zarr store, whatever links lead there.  Raises OutputError."""
    for folder in Path(os.path.realpath(output)).parents:
        if any((folder / mark).is_file() for mark in STORE_MARKS):
            hint = "choose another folder: only ingest and seal write into a store"
            raise OutputError(f"lies in the store {folder}", str(output), hint)


def contains(folder: str | Path, path: str | Path) -> bool:
    """Whether a path is the folder or lies in it, whatever links lead there; neither need exist."""
    return _is_inside(path, folder)


@functools.lru_cache(maxsize=256)
def _folder_is_inside(folder: str, root: str) -> bool:
    return _is_inside(folder, root)


def _names_another_place(key: str) -> bool:
    return os.path.isabs(key) or ".." in key.split("/") or "\0" in key


def _is_inside(path: str | Path, root: str | Path) -> bool:
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)
