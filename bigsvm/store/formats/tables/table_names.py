"""Which files are tables, by their names alone, so that no large library needs to be imported."""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from bigsvm.errors import DataError, UsageError
from bigsvm.files.paths import STORE_MARKS

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_TEXT, _ARROW = (".csv", ".tsv"), (".arrow", ".feather", ".ipc")
SUFFIXES = {"text": tuple(s + c for s in _TEXT for c in ("", *_COMPRESSED)), "arrow": _ARROW}
"""Kind of table -> suffixes of its files."""
PARQUET = (".parquet", ".pq")
_EVERY = (*PARQUET, *SUFFIXES["text"], *_ARROW)
_LOOKED = 1000  # most subfolders that are searched when a folder of tables is opened: 100,000 took seconds


def told_of_others(name: str, taken: tuple[str, ...]) -> list[str]:
    """Warnings about files of a folder that are left out: tables of another kind, and tables in subfolders.

    taken : suffixes of the files that are read
    """
    if not os.path.isdir(name):
        return []
    others = _of_another_kind((file for file in sorted(os.listdir(name)) if file[0] not in "._"), taken)
    nested = told_of_nested(name, *_files_below(name))
    if not others:
        return nested
    shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
    pattern = name.rstrip("/") + "/*" + _suffix_of(others[0])
    return [
        f"{name}: files of another kind are left out: {len(others)} ({shown}); to read these, name them: '{pattern}'",
        *nested,
    ]


@contextmanager
def telling_of_others(name: str, taken: tuple[str, ...]) -> Iterator[None]:
    """An error about columns, raised in the block, tells which files of the folder are left out.

    The columns that somebody looks for may be in these.
    """
    try:
        yield
    except (UsageError, DataError) as error:
        others = told_of_others(name, taken) if "column" in error.what else []
        if not others:
            raise
        told = (warning.removeprefix(f"{name}: ") for warning in others)
        raise type(error)(error.what, error.where, "; ".join(filter(None, [error.hint, *told]))) from None


def refuse_mixed(name: str, files: Sequence[str], taken: tuple[str, ...]) -> None:
    """Raise UsageError for a glob that names tables of several kinds.

    files : that the glob names;  taken : suffixes of the kind that is read
    """
    others = _of_another_kind(files, taken)
    if not others:
        return
    one = next((file for file in files if file.lower().endswith(taken)), files[0])
    shown = f"{os.path.basename(one)} and {os.path.basename(others[0])}"
    folder, last = os.path.split(name)
    start = name if last.endswith("*") and "." not in last else os.path.join(folder, "*")
    patterns = " or ".join(f"'{start}{_suffix_of(file)}'" for file in (one, others[0]))
    raise UsageError(f"names files of several kinds, such as {shown}", name, f"name those of one kind: {patterns}")


def _of_another_kind(files: Iterable[str], taken: tuple[str, ...]) -> list[str]:
    """The tables among `files` that have none of the suffixes `taken`."""
    return [file for file in files if file.lower().endswith(_EVERY) and not file.lower().endswith(taken)]


def _suffix_of(file: str) -> str:
    """The suffix of a table, as it is written."""
    suffix = next(suffix for suffix in _EVERY if file.lower().endswith(suffix))
    return file[len(file) - len(suffix) :]


def told_of_nested(name: str, files: Iterable[str], is_all: bool = True) -> list[str]:
    """A warning about tables in the subfolders of a folder, which are left out; [] if there are none.

    files : paths below the folder, each with a slash.  Files that are no tables do not count, nor paths with a part
        that begins with a dot or an underscore
    is_all : `files` has all of them; else the warning says "at least"
    """
    nested = sorted(
        file for file in files
        if file.lower().endswith(_EVERY) and not any(part[0] in "._" for part in file.split("/"))
    )  # fmt: skip
    if not nested:
        return []
    *folders, last = nested[0].split("/")
    pattern = "/".join([name.rstrip("/"), *("*" for _ in folders), "*" + _suffix_of(last)])
    shown = nested[0] + (", ..." if len(nested) > 1 else "")
    count = f"{len(nested)}" if is_all else f"at least {len(nested)}"
    return [
        f"{name}: files in subfolders are left out: {count} ({shown}); to read them, put them into the folder "
        f"itself, or name them: '{pattern}'"
    ]


def _files_below(name: str) -> tuple[list[str], bool]:
    """(paths of the files in the subfolders of a folder, whether all subfolders were searched).

    Zarr stores are not searched, because their files are no tables.  In a folder that is a link only its own files
    count, because it may lead anywhere; none count if it leads into `name`, or to a folder that contains `name`.
    """
    root, files = os.path.realpath(name), list[str]()
    waiting = deque([("", False)])
    for _ in range(_LOOKED):
        if not waiting:
            return files, True
        within, is_link = waiting.popleft()
        try:
            with os.scandir(os.path.join(name, within)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        if within and any(entry.name in STORE_MARKS for entry in entries):
            continue
        for entry in entries:
            path = f"{within}/{entry.name}" if within else entry.name
            if entry.name[0] in "._":
                continue
            if entry.is_dir():
                place = os.path.realpath(entry.path) if entry.is_symlink() else ""
                if not is_link and not (place and os.path.commonpath([root, place]) in (root, place)):
                    waiting.append((path, entry.is_symlink()))
            elif within:
                files.append(path)
    return files, not waiting


def table_is_named(name: str) -> bool:
    """Whether the suffix of a name is that of a table, Parquet included."""
    return name.lower().endswith(_EVERY)


def kind_of_table(name: str) -> Literal["text", "arrow"] | None:
    """The kind of the tables that a path, a glob or a folder names; None if there are none."""
    names = [name]
    if os.path.isdir(name):
        names = sorted(os.listdir(name))
    elif any(mark in name for mark in "*?[") and not os.path.exists(name):
        names = sorted(glob.glob(name)) or names
    for found in names:
        low = found.lower()
        if low.endswith(SUFFIXES["text"]):
            return "text"
        if low.endswith(_ARROW):
            return "arrow"
    return None
