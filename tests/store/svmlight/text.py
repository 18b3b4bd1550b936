"""svmlight text on disk for tests, and what it becomes."""

from __future__ import annotations

import bz2
import gzip
import lzma
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from bigsvm.errors import BigSVMError
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.svmlight import Chunk, read_chunks
from bigsvm.store.text.text_files import read_pieces

Rows = list[tuple[float, dict[int, float]]]
ONE: Rows = [(1.0, {1: 0.5})]


PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def text_file(folder: Path, content: bytes, name: str = "a.svm") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def rows_of(store: Path) -> Rows:
    data = ZarrRows(store, task="classification")
    found: Rows = []
    for ref in data.refs(1000):
        block = data.read(ref)
        for i in range(block.n_rows):
            a, b = block.X.indptr[i : i + 2]
            entries = zip((block.X.indices[a:b].astype(np.int64) + 1).tolist(), block.X.data[a:b].tolist(), strict=True)
            found.append((float(data.classes[block.y[i]]), dict(entries)))
    return found


def refused(source: Any, out: Path, code: int, where: str = "", word: str = "", **options: Any) -> BigSVMError:
    """Ingest, which must fail so; nothing is left at the final path nor beside it."""
    before = set(out.parent.iterdir())
    with pytest.raises(BigSVMError) as caught:
        ingest(source, out, **options)
    assert set(out.parent.iterdir()) == before
    assert caught.value.code == code
    assert where in caught.value.where
    assert word in str(caught.value)
    return caught.value


def chunks_of(path: Path, piece_bytes: int = 1 << 20, **options: Any) -> list[Chunk]:
    options = {"dtype": np.dtype(np.float64), **options}
    with closing(read_pieces([str(path)], piece_bytes=piece_bytes, line_bytes=1 << 24)) as pieces:
        return list(read_chunks(pieces, **options))
