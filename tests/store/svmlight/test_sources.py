"""Where svmlight text comes from: files, standard input, and pieces of any size."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from bigsvm.errors import DataError
from bigsvm.store.ingest.ingest import ingest
from tests.store.svmlight.text import ONE, PACK, chunks_of, refused, rows_of, text_file


def test_missing_and_folder(tmp_path: Path) -> None:
    refused(tmp_path / "no.svm", tmp_path / "s", 66, "no.svm")
    refused(tmp_path / "no.svm.gz", tmp_path / "s", 66, "no.svm.gz")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", tmp_path / "s", 66, "folder", from_format="svmlight")
    refused([text_file(tmp_path, b"1 1:1\n"), tmp_path / "no.svm"], tmp_path / "s", 66, "no.svm")


def test_output_exists(tmp_path: Path) -> None:
    path = text_file(tmp_path, b"1 1:1\n")
    ingest(path, tmp_path / "s")
    refused(path, tmp_path / "s", 73, "s", "exists")
    refused(text_file(tmp_path, b"1 1:x\n"), tmp_path / "s", 65, overwrite=True)
    assert rows_of(tmp_path / "s") == [(1.0, {1: 1.0})]  # what was there is still there
    ingest(text_file(tmp_path, b"1 2:1\n"), tmp_path / "s", overwrite=True)
    assert rows_of(tmp_path / "s") == [(1.0, {2: 1.0})]


def test_several_files_each_with_its_own_lines(tmp_path: Path) -> None:
    a = text_file(tmp_path, b"\xef\xbb\xbf1 1:1\n2 2:2", "a")  # torn: the next file begins a new line
    b = text_file(tmp_path, b"\xef\xbb\xbf# c\n3 3:3\n", "b")
    ingest([a, b], tmp_path / "s")
    assert rows_of(tmp_path / "s") == [(1.0, {1: 1.0}), (2.0, {2: 2.0}), (3.0, {3: 3.0})]
    bad = text_file(tmp_path, b"1 1:1\n1 1:x\n", "bad")
    refused([a, bad], tmp_path / "t", 65, f"{bad}:2")


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 1:0.5\n")))
    ingest("-", tmp_path / "s")
    assert rows_of(tmp_path / "s") == ONE
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 1:0.5\n1 1:x\n")))
    refused("-", tmp_path / "t", 65, "<stdin>:2")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 16, 61, 200, 5000])
def test_pieces_of_any_size_give_the_same_rows(tmp_path: Path, piece_bytes: int, suffix: str) -> None:
    rng = random.Random(2)
    lines = []
    for k in range(150):
        entries = " ".join(f"{j}:{rng.random():.5g}" for j in sorted(rng.sample(range(1, 99), rng.randint(0, 8))))
        lines.append(f"{k} {entries}{rng.choice(['', ' ', ' # note'])}{rng.choice(['', chr(13)])}")
        lines += [""] * rng.choice([0, 0, 2])
    content = ("\ufeff" + "\n".join(lines)).encode()
    path = text_file(tmp_path, PACK[suffix](content) if suffix else content, "a" + suffix)
    whole, parts = chunks_of(path), chunks_of(path, piece_bytes)
    for name in ("data", "indices"):
        assert np.array_equal(*(np.concatenate([getattr(c.X, name) for c in cs]) for cs in (whole, parts)))
    assert np.array_equal(*(np.concatenate([np.diff(c.X.indptr) for c in cs]) for cs in (whole, parts)))
    assert np.array_equal(*(np.concatenate([c.labels for c in cs]) for cs in (whole, parts)))
    bad = content + b"\n1 1:x\n"
    path.write_bytes(PACK[suffix](bad) if suffix else bad)
    with pytest.raises(DataError, match=f":{len(lines) + 1}: "):
        chunks_of(path, piece_bytes)
