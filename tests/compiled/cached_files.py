"""The files of a cache of compiled functions, and ways to damage one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bigsvm.compiled.cache import stamp
from bigsvm.compiled.cache.functions import SUFFIX
from bigsvm.compiled.cache.places import cache_folder


def kept() -> list[Path]:
    """The files of the user's cache."""
    return sorted(cache_folder().glob("*"))


def the_file(folder: Path) -> Path:
    return next(folder.glob(f"*{SUFFIX}"))


def cut(n: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        content = the_file(folder).read_bytes()
        the_file(folder).write_bytes(content[: n if n >= 0 else len(content) + n])

    return change


def flip(place: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        content = bytearray(the_file(folder).read_bytes())
        content[place] ^= 1
        the_file(folder).write_bytes(content)

    return change


def other_sources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the pig does not name was edited: pigs may take in its code."""
    copy = folder.parent / "sources"
    shutil.copytree(stamp.SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    edited = copy / "shared" / "losses.py"
    edited.write_text(edited.read_text() + "\n")
    monkeypatch.setattr(stamp, "SOURCES", copy)
