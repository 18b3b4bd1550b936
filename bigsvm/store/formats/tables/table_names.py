"""Which files are tables, by their names alone: nothing heavy is loaded for it."""

from __future__ import annotations

import glob
import os
from typing import Literal

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_TEXT, _ARROW = (".csv", ".tsv"), (".arrow", ".feather", ".ipc")
SUFFIXES = {"text": tuple(s + c for s in _TEXT for c in ("", *_COMPRESSED)), "arrow": _ARROW}
"""Kind -> suffixes of its files."""


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
