"""Arithmetic on arrays: NumPy and numba, nothing of ours.

What is compiled is kept on disk (`cache/`), by the content of every source file here.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from bigsvm.compiled.cache.places import cache_folder

__all__ = ["cache_folder"]

_HERE = Path(__file__).parent
# All of them, always in the same order: which implementations of a function numba knows must not depend on what was
# imported before it was compiled.
for _path in sorted(_HERE.rglob("*.py")):
    if _path.stem != "__init__":
        import_module(".".join([__name__, *_path.relative_to(_HERE).with_suffix("").parts]))
