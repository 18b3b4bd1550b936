"""Arithmetic on arrays: NumPy and numba, nothing of ours.

numba keeps compiled functions on disk, but does not notice when a function that they call in another
file was edited.  So the cache folder is named after a hash of every source file here, of numba's version
and of the processor; it is private to the user, and only our functions are sent there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numba
import numba.core.config as numba_config

_HERE = Path(__file__).parent


def _sources() -> list[Path]:
    return sorted(_HERE.rglob("*.py"))


def cache_folder() -> Path:
    """Where compiled kernels of exactly these sources, in this place, are kept; not created here."""
    sources = hashlib.sha256()
    for path in _sources():
        # numba knows a file by its path and time: what another installation compiled is of no use to this one.
        sources.update(f"{path} {path.stat().st_mtime_ns} ".encode() + path.read_bytes())
    processor = getattr(numba_config, "CPU_NAME", None), getattr(numba_config, "CPU_FEATURES", None)
    sources.update(f"{numba.__version__} {platform.machine()} {processor}".encode())
    base = os.environ.get("BIGSVM_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "bigsvm" / f"kernels-{sources.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only home: compile again in each machine's temporary folder
        folder = Path(tempfile.gettempdir()) / f"bigsvm-{os.getuid()}" / folder.name
    return folder


@contextmanager
def _our_cache() -> Iterator[None]:
    """Send functions decorated inside the block to our folder, and leave other users of numba alone."""
    former = numba_config.CACHE_DIR  # type: ignore[attr-defined]
    numba_config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba_config.CACHE_DIR = former  # type: ignore[attr-defined]


with _our_cache():  # all of them, here: what is first imported elsewhere would be kept in another folder
    for _path in _sources():
        if _path.stem != "__init__":
            import_module(".".join([__name__, *_path.relative_to(_HERE).with_suffix("").parts]))
