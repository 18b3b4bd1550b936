"""Where things may lie: the cache folder, and files inside a store and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from bigsvm.errors import DataError


def cache_folder() -> Path:
    """$BIGSVM_CACHE, else $XDG_CACHE_HOME, else ~/.cache, and `bigsvm` below it; not created here."""
    base = (
        os.environ.get("BIGSVM_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    )
    return Path(base) / "bigsvm"


def local_path(root: Path, key: str) -> Path:
    """The file of `key` in the store at `root`.

    Raises
    ------
    DataError : the key, or a link on its way, leads out of the store.
    """
    if os.path.isabs(key) or ".." in key.split("/") or "\0" in key:
        raise DataError("leads out of the store", key, "a store may not point to other places")
    path = root / key
    real, base = os.path.realpath(path), os.path.realpath(root)
    if real != base and not real.startswith(base.rstrip(os.sep) + os.sep):
        raise DataError(f"links out of the store, to {real}", key, "a store may not point to other places")
    return path
