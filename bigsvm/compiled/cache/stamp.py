"""The *stamp*: what compiled code depends on besides its own function, which are sources, versions and settings.

A compiled function contains code of functions in other files, and numba's own cache does not notice their changes.  So
the stamp includes the content of all files of `bigsvm.compiled`.  No other code of the package is compiled, which
`tests/compiled/test_cache.py` checks.  Paths and times are not part of the stamp, so two checkouts of the same sources
share what they compile.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
import numba.core.config as numba_config
import numpy as np

from bigsvm.process import this_process

_PACKAGE: Any = sys.modules["bigsvm"]  # by its name: the package is far above
LOADED_AT, WRITTEN_AT = _PACKAGE.LOADED_AT, _PACKAGE.WRITTEN_AT
SOURCES = Path(__file__).parents[1]
_SETTINGS = (
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT",
    "ENABLE_AVX",
    "DISABLE_INTEL_SVML",
)
"""Settings of numba that change the machine code made from a source."""


@functools.lru_cache(maxsize=8)
def digest_of(folder: Path) -> str:
    """A hash of the names and contents of all Python files below a folder; '' if there is none."""
    files = sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix())
    found = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        found.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest() if files else ""


def stamp() -> dict[str, str]:
    """All that must be the same for compiled code to be usable, under names that people understand."""
    abi = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}-{importlib.util.MAGIC_NUMBER.hex()}"
    return {
        "sources": digest_of(SOURCES),
        "python": abi,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "llvm": ".".join(map(str, llvmlite.binding.llvm_version_info)),
        "numpy": np.__version__,
        "machine": f"{sys.platform}-{platform.machine()}",
        "settings": " ".join(f"{name}={getattr(numba_config, name, None)}" for name in _SETTINGS),
    }


def stamp_digest() -> str:
    """A hash of the stamp, 64 characters; '' if the sources cannot be read."""
    found = stamp()
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found["sources"] else ""


CHANGED = "changed after it was loaded"
"""How the digest of sources begins that a process no longer finds; the rest says which process, so none is like it."""


@functools.cache
def loaded_digest() -> str:
    """12 digits of a hash of the sources that this process runs; or CHANGED where they are not there any more.

    Modules are loaded when they are needed, and this is read when workers are: in a notebook whose bigsvm was upgraded
    meanwhile it would be the hash of code that does not run.
    """
    found = digest_of(SOURCES.parent)[:12]
    if not written_since(SOURCES.parent, LOADED_AT, WRITTEN_AT):
        return found
    process = this_process()
    return f"{CHANGED} by process {process.pid} of {process.machine}"


def written_since(package: Path, loaded_at: int, written_at: int) -> bool:
    """Whether a source of a package was written after it was loaded, or its `__init__.py` is another file than then.

    An upgrade replaces that, too, and an installer may give files the time at which they came into its cache.

    loaded_at, written_at : when `__init__.py` was loaded and when it was written, in ns; 0 where there is no such file
    """
    if not written_at:
        return False
    if (package / "__init__.py").stat().st_mtime_ns != written_at:
        return True
    now = time.time_ns()  # a later time is of another clock, and says nothing
    return any(loaded_at < path.stat().st_mtime_ns <= now for path in package.rglob("*.py"))


def versions() -> dict[str, str]:
    """What the results of a task on another machine depend on, in this process.

    Of bigsvm all sources count, not only compiled ones: workers also transform rows and add up proofs.
    """
    return {
        "bigsvm (its sources)": loaded_digest(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def difference(ours: dict[str, str]) -> str:
    """What this process has other than the caller, whose `versions` are given, in words; '' if they have the same."""
    for name, version in versions().items():
        if ours.get(name) != version:
            return f"has {name} {version}, and the caller {ours.get(name)}"
    return ""
