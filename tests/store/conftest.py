"""What several files of these tests ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigsvm.store.ingest import row_source
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
