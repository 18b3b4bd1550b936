"""Places of files: the cache folder, and checks that paths do not lead out of a store or into one."""

from __future__ import annotations

import functools
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from bigsvm.errors import BigSVMError, DataError, MissingInput, OutputError

STORE_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata", "bigsvm-manifest.json")
"""Files by which a folder is recognised as a Zarr store, or as a part of one."""
BUCKETS = ("s3", "gs", "az")
"""URL schemes of object stores, whose objects can be listed."""
SCHEMES = (*BUCKETS, "http", "https")
"""URL schemes of all remote stores."""
_OF_A_PIPE = "write its output to a file, and name that file"
_copies: dict[str, str] = {}
"""Whole path by which a file is opened here -> the name that the user knows it by."""
_ELSEWHERE = re.compile(rf"({'|'.join(SCHEMES)}):/+(?:[^/]*@)?([^?]*)", re.IGNORECASE)


def cache_folder() -> Path:
    """The folder `bigsvm` below $BIGSVM_CACHE, else $XDG_CACHE_HOME, else ~/.cache; it is not created here.

    If $BIGSVM_CACHE is not set and the other two cannot be written (a read-only home, or a user without one), it is the
    user's folder in the machine's temporary folder, which is created.  Raises OutputError if others can write that.
    """
    named = os.environ.get("BIGSVM_CACHE")
    if named:
        return Path(named) / "bigsvm"
    return _writable_cache(_usual_cache(), temporary_cache())


def unwritable_cache() -> Path | None:
    """The usual cache folder, if it is there, and `cache_folder` is another one because this one cannot be written.

    What an earlier run kept in it can still be read.
    """
    folder = _usual_cache()
    if os.environ.get("BIGSVM_CACHE") or not folder.is_absolute() or not os.path.isdir(folder):
        return None
    return None if cache_folder() == folder else folder


def _usual_cache() -> Path:
    """The cache folder where $BIGSVM_CACHE is not set.  It is relative if there is no home: `~` is then only a name."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "bigsvm"


def temporary_cache() -> Path:
    """The user's folder in the machine's temporary folder, which is the cache where the usual one cannot be written."""
    return Path(tempfile.gettempdir()) / f"bigsvm-{os.getuid()}"


@functools.lru_cache(maxsize=8)
def _writable_cache(folder: Path, own: Path) -> Path:
    if folder.is_absolute() and can_make(folder):
        return folder
    try:
        with suppress(FileExistsError):
            own.mkdir(mode=0o700)
        found = own.lstat()  # do not follow a link, which anybody may put there
    except OSError as error:
        what = f"cannot make the cache folder: {error.strerror}"
        raise OutputError(what, str(own), "set BIGSVM_CACHE") from error
    why = ""
    if not stat.S_ISDIR(found.st_mode):
        why = "it is not a folder, or a link to one"
    elif found.st_uid != os.getuid():
        why = "it does not belong to you"
    elif found.st_mode & stat.S_IWOTH:
        why = "others can write it"
    if why:
        raise OutputError(f"cannot be the cache folder: {why}", str(own), "set BIGSVM_CACHE")
    return own


def can_make(folder: Path) -> bool:
    """Whether files can be written into a folder, which may be missing, and folders above it; nothing is made here."""
    there = nearest(folder)
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


def nearest(path: Path) -> Path:
    """The path itself, or the nearest one above it that is there; a dangling link is there: it occupies its name."""
    path = path.absolute()
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def make_cache_folder(folder: Path) -> None:
    """Make a folder in the cache folder, if it is missing.  Raises OutputError if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the cache folder: {error.strerror}", str(folder), "set BIGSVM_CACHE") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError("cannot write into the cache folder", str(folder), "set BIGSVM_CACHE")


def no_such_store(named: str) -> MissingInput:
    """The error for a store that is missing; its hint suggests a similar name in the same folder, if there is one."""
    if Path(named).is_file():
        return MissingInput("is a file, not a store", named, f"convert it first: bigsvm ingest {named} STORE")
    if os.path.exists(named) and not os.path.isdir(named):
        return MissingInput("is a pipe or a device, not a store", named, _OF_A_PIPE)
    return not_there("no such store", named)


def no_such_file(named: str) -> MissingInput:
    """The error for a file that is missing, with the same hint; or for something else that has its name."""
    if os.path.isdir(named):
        return MissingInput("is a folder, not a file", named, "name the file; a Zarr store is called NAME.zarr")
    if os.path.exists(named):
        return MissingInput("is a pipe or a device, not a file", named, _OF_A_PIPE)
    return not_there("no such file", named)


def no_model_here(folder: Path, named: str) -> MissingInput:
    """The error for a model that is missing; its hint says what `folder` is instead, if that can be told."""
    if not folder.exists():
        return not_there("no model here", named)
    beside = folder.parent / folder.name.removesuffix(".run")
    hint = "a model is a folder with model.json"
    if beside != folder and (beside / "model.json").is_file():
        hint = f"this is the record of a run, and its model is {beside}"
    elif not folder.is_dir():
        hint = f"this is a file, and {hint}"
    elif any((folder / mark).exists() for mark in STORE_MARKS):
        hint = f"this is a store, and {hint}"
    elif (folder / "current").is_symlink():
        hint = f"this is a registry, and its current model is {folder / 'current'}"
    return MissingInput("no model here", named, hint)


def not_there(what: str, named: str) -> MissingInput:
    """The error for a path that does not exist; its hint is a similar name in the same folder, or names that folder."""
    import difflib  # here, because `bigsvm --help` does not need it

    path = Path(named)
    folder = path.absolute().parent
    if path.is_symlink() and not path.exists():
        return MissingInput(what, named, f"it is a link to {os.readlink(path)}, which does not exist")
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
    DataError : the key, or a link in its path, leads out of the store.
    """
    if _names_another_place(key):
        raise DataError("leads out of the store", key, "a store may not point to other places")
    path = root / key
    # Chunks of an array share a folder, whose check is cached; so a chunk costs one lstat.
    inside = _folder_is_inside(os.fspath(path.parent), os.fspath(root))
    if not inside or (os.path.islink(path) and not _is_inside(path, root)):
        raise DataError("links out of the store", key, "a store may not point to other places")
    return path


def unlinked_path(root: str, key: str) -> str | None:
    """The path of `key` in the store at `root`; None if the key, or a folder in its path, leads out of the store.

    The last component is not checked, which saves an lstat: the caller must open it without following links.
    """
    if _names_another_place(key):
        return None
    path = f"{root}/{key}"
    return path if _folder_is_inside(path.rpartition("/")[0], root) else None


def plain_path(root: Path, key: str) -> Path:
    """`local_path`, if it is a plain file, a folder or nothing.  Raises DataError for a pipe or a device as well.

    Opening a pipe that nobody writes to would block for ever.
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
    """Raise DataError if a folder made by bigsvm contains a link to elsewhere, a pipe or a device.

    The target of a link may change, and opening a pipe may block for ever.

    kind : what the folder is, such as "model", for the message

    A folder that cannot be listed is not an error here; whoever reads it reports that.
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
    """Raise OutputError for an output in a bucket or on a web server."""
    elsewhere = _ELSEWHERE.match(str(output))
    if elsewhere:
        raise OutputError(
            "outputs are written only to local disks, where they appear complete or not at all",
            f"{elsewhere[1].lower()}://{elsewhere[2]}",
            "name a local path, then copy it: aws s3 cp --recursive, gcloud storage cp -r, azcopy copy",
        )


def check_outside_stores(output: Path) -> None:
    """Raise OutputError for an output that would lie in a Zarr store; links are followed."""
    for folder in Path(os.path.realpath(output)).parents:
        if any(os.path.isfile(folder / mark) for mark in STORE_MARKS):  # False where a folder may not be searched
            hint = "choose another folder: only ingest and seal write into a store"
            raise OutputError(f"lies in the store {folder}", str(output), hint)


def contains(folder: str | Path, path: str | Path) -> bool:
    """Whether `path` is the folder or lies in it; links are followed, and neither needs to exist."""
    return _is_inside(path, folder)


@functools.lru_cache(maxsize=256)
def _folder_is_inside(folder: str, root: str) -> bool:
    return _is_inside(folder, root)


def _names_another_place(key: str) -> bool:
    return os.path.isabs(key) or ".." in key.split("/") or "\0" in key


def _is_inside(path: str | Path, root: str | Path) -> bool:
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)


def came_from(path: str, name: str) -> None:
    """Remember that what lies at `path` here is a copy of `name`."""
    _copies[path] = name.rstrip("/")


def given_as(name: str | os.PathLike[str]) -> None:
    """Remember how a user wrote the path of an input, which is opened by its whole path.  Of a glob: its folder."""
    given = os.path.normpath(os.fspath(name))
    while set(given) & set("*?["):
        given = os.path.dirname(given)
    real = os.path.realpath(given)
    dangling = os.path.islink(given) and not os.path.exists(real)
    if "://" in _copies.get(real, "") or dangling:
        return  # a copy, which the user knows by the name of the remote one; or a link to nothing, which a message says
    if real == given:
        _copies.pop(real, None)
    elif real != os.path.realpath(""):  # else the path of any other file here would change, too
        _copies[real] = given


def rename(error: BigSVMError) -> BigSVMError:
    """The same error, with the names that a user knows in the place of the paths by which files were opened."""
    for path, name in sorted(_copies.items(), key=lambda known: -len(known[0])):
        # Of the thousands of names that a long-lived process knows, hardly any occurs, and a pattern takes longer.
        if not any(path in text for text in (error.what, error.where, error.hint)):
            continue
        whole = re.compile(rf"(?<![^\s'\"(=:]){re.escape(path)}(?![^\s/'\"),:;])")
        error.what, error.where, error.hint = (
            name.join(whole.split(text)) for text in (error.what, error.where, error.hint)
        )
    error.args = (error.what, error.where, error.hint)
    return error
