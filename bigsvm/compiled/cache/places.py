"""The folders of compiled functions: that of the installation, which is only read, and the user's cache."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding
import numba.core.config as numba_config

from bigsvm.compiled.cache.stamp import SOURCES, stamp, stamp_digest
from bigsvm.compiled.cache.trust import read_believed, why_not_folder

SHIPPED = SOURCES.parent / "_compiled_cache"
"""The folder that comes with the wheel; a checkout of the sources has none."""
ABOUT = "about.json"

_V3 = "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3"
LEVELS = {"x86-64-v3": _V3.split(), "x86-64-v4": f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl".split()}
"""The levels of processors for which a wheel has code, the lowest first, and the features that each requires."""


class Shipped(NamedTuple):
    """What this processor can use of the installation's compiled functions.

    levels : those of LEVELS that were compiled and that this processor supports; empty if nothing can be used
    why_not : the reason, for people, why nothing can be used; '' if there is nothing at all, or something can be used
    """

    levels: tuple[str, ...]
    why_not: str = ""


def cache_folder() -> Path:
    """The user's folder of functions compiled from exactly these sources, with these versions and settings.

    Only the user can access it.
    """
    return _usable(_base(), _name())


def folder_only_read() -> Path | None:
    """The folder of the same functions in the user's cache, if it is there and is not `cache_folder`.

    It was filled before its place became read-only, or others can write it; `trust.py` decides what is read from it.
    """
    base = _base()
    folder = None if base is None else Path(base) / "bigsvm" / _name()
    return None if folder is None or folder == cache_folder() or not folder.is_dir() else folder


def _base() -> str | None:
    base = os.environ.get("BIGSVM_CACHE")
    if base:
        return base
    usual = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # The path is relative if there is no home: `~` is then no more than a name.
    return usual if os.path.isabs(usual) else None


def _name() -> str:
    return f"kernels-{stamp_digest()[:16]}"


@functools.lru_cache(maxsize=8)
def _usable(base: str | None, name: str) -> Path:
    """The first folder that this user, and nobody else, can write: in the cache, in the machine's temporary folder, or
    a new one that is removed at the end of this process."""
    usual = [] if base is None else [Path(base) / "bigsvm" / name]
    own = Path(tempfile.gettempdir()) / f"bigsvm-{os.getuid()}"
    for folder in (*usual, own / name):
        try:
            # `files/paths.py` refuses a folder of its cache that others can write.
            folder.parent.mkdir(0o700 if folder.parent == own else 0o777, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK) and not why_not_folder(folder, (os.geteuid(),)):
            return folder
    folder, maker = Path(tempfile.mkdtemp(prefix="bigsvm-")), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == maker else None)
    return folder


def owner_of_installation() -> tuple[int, ...]:
    """The owner of the sources, who can change what runs anyway."""
    return (os.stat(SOURCES / "__init__.py").st_uid,)


@functools.lru_cache(maxsize=8)
def shipped(folder: Path) -> Shipped:
    """What this processor can use of the compiled functions in `folder`, which belongs to the installation."""
    if not folder.is_dir():
        return Shipped(())
    refused = why_not_folder(folder, owner_of_installation())
    if refused:
        return Shipped((), f"{folder} is not believed: {refused}")
    about = _about(folder)
    here = stamp()
    other = [name for name in here if about.get("stamp", {}).get(name) != here[name]]
    if not here["sources"] or other:
        return Shipped((), _differs(other[0] if other else "sources", about, here))
    if numba_config.CPU_NAME is not None or numba_config.CPU_FEATURES is not None:
        return Shipped((), "NUMBA_CPU_NAME or NUMBA_CPU_FEATURES asks for another processor")
    compiled = [level for level in LEVELS if level in about.get("levels", ())]
    levels = tuple(level for level in compiled if not lacks(level))
    if compiled and not levels:
        missing = ", ".join(lacks(compiled[0]))
        return Shipped((), f"they are for {compiled[0]}, and this processor has no {missing}")
    return Shipped(levels)


@functools.cache
def lacks(level: str) -> list[str]:
    """The features of a level that this processor does not have."""
    try:
        can = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:
        return list(LEVELS[level])
    return [feature for feature in LEVELS[level] if not can.get(feature)]


def _about(folder: Path) -> dict[str, Any]:
    """The content of the folder's about.json; {} if it cannot be read."""
    content = read_believed(folder / ABOUT, owner_of_installation())
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("stamp"), dict) else {}


def _differs(name: str, about: dict[str, Any], here: dict[str, str]) -> str:
    if not about:
        return f"{ABOUT} cannot be read"
    if name == "sources":
        return "they are of other source files"
    return f"they are for {name} {about['stamp'].get(name)}, and here is {here[name]}"
