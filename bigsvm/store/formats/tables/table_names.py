"""Which files are tables, by their names alone: nothing heavy is loaded for it."""

from __future__ import annotations

import glob
import os
from typing import Literal

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_TEXT, _ARROW = (".csv", ".tsv"), (".arrow", ".feather", ".ipc")
SUFFIXES = {"text": tuple(s + c for s in _TEXT for c in ("", *_COMPRESSED)), "arrow": _ARROW}
"""Kind -> suffixes of its files."""
PARQUET = (".parquet", ".pq")


def told_of_others(name: str, taken: tuple[str, ...]) -> list[str]:
    """A warning of files that are left out: of a folder, those with rows of another kind than the suffixes `taken`."""
    every = (*PARQUET, *SUFFIXES["text"], *_ARROW)
    files = [file for file in sorted(os.listdir(name)) if file[0] not in "._"] if os.path.isdir(name) else []
    others = [file for file in files if file.lower().endswith(every) and not file.lower().endswith(taken)]
    if not others:
        return []
    shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
    return [
        f"{name}: files of another kind are left out: {len(others)} ({shown}); a glob names the files that are meant"
    ]


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
