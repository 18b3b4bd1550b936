"""Delimited text is cut into pieces: how large they are is nobody's matter."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import bigsvm
from bigsvm.store.formats.tables import pieces
from bigsvm.store.formats.tables.table_rows import TableRows


def test_a_model_is_the_same_to_the_byte_however_text_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some pieces have quotes in them, with newlines between, and are read more carefully than the others."""
    cities, found = ["a", 'b "x",\nc', "d"], []
    rows = [[i / 7, cities[max(i // 20 - 1, 0) % 3], int((i * 5 % 7 > 3) ^ (i > 30)), i % 3] for i in range(90)]
    for size in (pieces.PIECE_BYTES, 256):
        monkeypatch.setattr(pieces, "PIECE_BYTES", size)
        folder = tmp_path / str(size)
        folder.mkdir()
        with open(folder / "rows.csv", "w", newline="") as file:
            csv.writer(file).writerows([["age", "city", "label", "n"], *rows])
        store = bigsvm.open_store(folder / "rows.csv")
        assert isinstance(store, TableRows)
        assert (len(store._files._pieces) > 3) == (size == 256)
        bigsvm.fit(store, loss="hinge", memory="64MiB").model.save(folder / "model")
        found.append({file.name: file.read_bytes() for file in (folder / "model").iterdir()})
    assert found[0] == found[1]
