"""Collect the compiled functions that a wheel ships, from caches that were filled for each level of processors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from bigsvm.compiled.cache.functions import SUFFIX, is_wide, level_and_name
from bigsvm.compiled.cache.places import ABOUT, LEVELS
from bigsvm.compiled.cache.stamp import stamp


def gather(filled: Mapping[str, Path], folder: Path) -> int:
    """Copy to `folder` the compiled functions for installations of these sources and versions; returns their number.

    filled : for each of LEVELS the folder below which functions for such processors were stored

    From levels above the lowest only functions with vectors of 64 bytes are copied, because others gain nothing there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    n, plainest = 0, next(iter(LEVELS))
    for level, kept in filled.items():
        for path in sorted(kept.rglob(f"*{SUFFIX}")):
            of, name = level_and_name(path)
            if of == level and (level == plainest or is_wide(name)):
                shutil.copyfile(path, folder / path.name)
                n += 1
    (folder / ABOUT).write_text(json.dumps({"stamp": stamp(), "levels": [*filled]}, indent=1) + "\n")
    return n
