"""What a wheel ships: files of the caches that were filled for each level of processors, and what they are for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from bigsvm.compiled.cache.functions import SUFFIX, is_wide, level_and_name
from bigsvm.compiled.cache.places import ABOUT, LEVELS
from bigsvm.compiled.cache.stamp import stamp


def gather(filled: Mapping[str, Path], folder: Path) -> int:
    """Put into `folder` what installations of these sources and versions can use; returns how many functions.

    filled : for each of LEVELS the folder below which such a processor's functions were kept

    Of all levels but the plainest, only functions are taken whose vectors are as wide as the processor's.
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
