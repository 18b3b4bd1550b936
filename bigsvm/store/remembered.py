"""What was found out about stores and files is remembered in the cache folder, so that it is found out once.

If the cache folder is in the temporary folder because the usual one cannot be written (a home that became read-only, or
an image of a container that was filled before), both are read, and only the first is written.  The usual one is then
believed only where nobody but its owner can write, and the owner is this user or root.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from bigsvm.files.paths import cache_folder, make_cache_folder, unwritable_cache
from bigsvm.files.sealed_json import read_sealed, write_sealed

FOLDER = "manifests"
"""The folder in the cache folder."""
T = TypeVar("T")


def folder_to_write() -> Path:
    """The folder in which new things are remembered; it may be missing."""
    return cache_folder() / FOLDER


def made_folder() -> Path:
    """The same folder, made if it was missing.  Raises OutputError."""
    folder = folder_to_write()
    make_cache_folder(folder)
    return folder


def folders() -> Iterator[Path]:
    """The folders in which something may be remembered, the one that is written first."""
    yield folder_to_write()
    usual = unwritable_cache()
    if usual is not None and not why_not_read(usual / FOLDER):
        yield usual / FOLDER


def places(name: str) -> Iterator[Path]:
    """The paths at which a file or a folder of this name may be, the one that is written first."""
    for folder in folders():
        path = folder / name
        if folder == folder_to_write() or is_believed(path):
            yield path


def recall(name: str, use: Callable[[Any], T]) -> T | None:
    """What `use` makes of the content of a document (`sealed_json`); None if no folder has one that can be used.

    use : raises ValueError, KeyError or TypeError for a document that is not what it needs
    """
    for path in places(name):
        with suppress(OSError, ValueError, KeyError, TypeError):
            return use(read_sealed(path))
    return None


def remember(name: str, content: Any) -> Path:
    """Write a document, in place of a former one of that name; returns its path.  Raises OutputError."""
    path = made_folder() / name
    write_sealed(path, content)
    return path


def why_not_read(folder: Path) -> str:
    """Why nothing is read from a folder that this user cannot write; '' if it is believed."""
    # The import compiles nothing, but it takes half a second, and few have such a folder.
    from bigsvm.compiled.cache.trust import why_not_folder

    return why_not_folder(folder, (os.geteuid(),))


def is_believed(path: Path) -> bool:
    """Whether nobody but a trusted owner can write a file, or a folder and the files in it; a link is not followed."""
    from bigsvm.compiled.cache.trust import why_not

    try:
        inside = list(path.iterdir()) if path.is_dir() else []
        return not any(why_not(each.lstat(), (os.geteuid(),)) for each in (path, *inside))
    except OSError:
        return False
