"""The document of a model has its own digest: a flipped bit is refused, and documents without a digest are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bigsvm.errors import BigSVMError, DataError
from bigsvm.model.model_files import read_document
from bigsvm.store.formats.opener import open_store
from tests.run.selections import LINEAR, columns, fitted, matrix


def test_every_flipped_bit_of_a_model_document_is_refused_or_harmless(tmp_path: Path) -> None:
    X = matrix()
    folder = fitted(open_store((X, columns(X)["label"])), {**LINEAR, "tol": 0.5}, tmp_path / "scratch", tmp_path / "m")
    path, content = folder / "model.json", (folder / "model.json").read_bytes()
    whole = read_document(folder, "m")
    refused = 0
    flips = range(0, 8 * len(content), 3)  # each bit of a byte is among them
    for bit in flips:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert read_document(folder, "m") == whole
        except BigSVMError:
            refused += 1
    assert refused > 0.9 * len(flips)


def test_an_older_model_document_without_a_digest_is_read(tmp_path: Path) -> None:
    X = matrix()
    folder = fitted(open_store((X, columns(X)["label"])), {**LINEAR, "tol": 0.5}, tmp_path / "scratch", tmp_path / "m")
    document = json.loads((folder / "model.json").read_text())
    now = read_document(folder, "m")
    del document["digest"]
    for version in (1, 2):
        (folder / "model.json").write_text(json.dumps({**document, "format_version": version}))
        assert read_document(folder, "m") == {**now, "format_version": version}
    (folder / "model.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="its own digest"):
        read_document(folder, "m")
