"""One small compiled function with caches of its own: what is true of it is true of all."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigsvm.compiled.cache import places
from bigsvm.compiled.cache.functions import told_of_compiling
from bigsvm.compiled.cache.places import shipped

PIG = """
from bigsvm.compiled.shared.compile import njit

@njit(cache=True)
def twice(x):
    return 2 * x + {more}
"""


class Pig:
    """A module with a small compiled function, and how often that was compiled since it was loaded."""

    def __init__(self, folder: Path, more: int = 0, name: str = "pig") -> None:
        path = folder / f"{name}.py"
        path.write_text(PIG.format(more=more))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # what is loaded looks its module up
        spec.loader.exec_module(module)
        self.function, self.compiled = module.twice, 0

    def __call__(self, x: float) -> float:
        def count() -> None:
            self.compiled += 1

        with told_of_compiling(count):
            return self.function(x)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, with caches of its own below it: `user`, and `shipped`, which is not there."""
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "user"))
    monkeypatch.setattr(places, "SHIPPED", tmp_path / "shipped")
    yield tmp_path
    for name in ("pig", "one", "other"):
        sys.modules.pop(name, None)
    shipped.cache_clear()
    places._usable.cache_clear()
