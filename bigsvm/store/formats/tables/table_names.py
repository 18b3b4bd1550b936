"""Which files are tables, by their names alone: nothing heavy is loaded for it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Literal

from bigsvm.files.paths import STORE_MARKS

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_TEXT, _ARROW = (".csv", ".tsv"), (".arrow", ".feather", ".ipc")
SUFFIXES = {"text": tuple(s + c for s in _TEXT for c in ("", *_COMPRESSED)), "arrow": _ARROW}
"""Kind -> suffixes of its files."""
PARQUET = (".parquet", ".pq")
_EVERY = (*PARQUET, *SUFFIXES["text"], *_ARROW)


def told_of_others(name: str, taken: tuple[str, ...]) -> list[str]:
    """Warnings of files that are left out: of a folder, those with rows of another kind than the suffixes `taken`, and
    those in its subfolders.
    """
    if not os.path.isdir(name):
        return []
    files = [file for file in sorted(os.listdir(name)) if file[0] not in "._"]
    others = [file for file in files if file.lower().endswith(_EVERY) and not file.lower().endswith(taken)]
    nested = told_of_nested(name, _files_below(name))
    if not others:
        return nested
    shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
    return [
        f"{name}: files of another kind are left out: {len(others)} ({shown}); a glob names the files that are meant",
        *nested,
    ]


def told_of_nested(name: str, files: Iterable[str]) -> list[str]:
    """A warning of files with rows in the subfolders of a folder, which are left out.

    files : paths below the folder, with a slash; those that are no tables do not count, and neither do those with a
        name on their way that begins with a dot or an underscore
    """
    nested = sorted(
        file for file in files
        if file.lower().endswith(_EVERY) and not any(part[0] in "._" for part in file.split("/"))
    )  # fmt: skip
    if not nested:
        return []
    *folders, last = nested[0].split("/")
    suffix = next(suffix for suffix in _EVERY if last.lower().endswith(suffix))
    pattern = "/".join([name.rstrip("/"), *("*" for _ in folders), "*" + last[len(last) - len(suffix) :]])
    shown = nested[0] + (", ..." if len(nested) > 1 else "")
    return [
        f"{name}: files in subfolders are left out: {len(nested)} ({shown}); to read them, put them into the folder "
        f"itself, or name them: '{pattern}'"
    ]


def _files_below(name: str) -> Iterator[str]:
    """Paths, below a folder, of the files in its subfolders; those of Zarr stores are no tables, and not looked at."""
    seen = {os.path.realpath(name)}
    for folder, subfolders, files in os.walk(name, followlinks=True):
        within = os.path.relpath(folder, name)
        if within != os.curdir:
            if any(mark in files for mark in STORE_MARKS):
                subfolders.clear()
                continue
            yield from (f"{within}/{file}" for file in files)
        here = [subfolder for subfolder in sorted(subfolders) if subfolder[0] not in "._"]
        places = {subfolder: os.path.realpath(os.path.join(folder, subfolder)) for subfolder in here}
        subfolders[:] = [subfolder for subfolder in here if places[subfolder] not in seen]  # links may lead in a circle
        seen.update(places.values())


def kind_of_table(name: str) -> Literal["text", "arrow"] | None:
    """What a path, a glob or a folder of files holds; None where these are no tables."""
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
