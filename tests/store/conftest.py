"""What several files of these tests ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigsvm.compiled import cache_folder
from bigsvm.store.ingest.sources import row_source
from tests.store import formats
from tests.store.cells import STORES, content


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One AnnData in four files."""
    folder = tmp_path_factory.mktemp("cells")
    for name in STORES:
        formats.anndata(folder / name, content())
    return folder


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few rows, so that every source comes in many."""
    monkeypatch.setattr(row_source, "_PART_BYTES", 5000)
    monkeypatch.setattr(row_source, "_PART_ROWS", 64)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that knows no file, where compiled functions are a link to those of all tests."""
    compiled, cache = cache_folder().resolve(), Path(f"{tmp_path}-cache")
    (cache / "bigsvm").mkdir(parents=True)
    (cache / "bigsvm" / compiled.name).symlink_to(compiled)
    monkeypatch.setenv("BIGSVM_CACHE", str(cache))
