"""Servers for the tests of objects elsewhere: those of scripts/stress/objects, and small rows in several forms."""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import bigsvm
from bigsvm.store.blocks import RowBlocks
from tests.store import formats

_STRESS = str(Path(__file__).parents[2] / "scripts" / "stress")
sys.path.insert(0, _STRESS)
try:
    proxy: Any = importlib.import_module("objects.proxy")
    standing_clock: Any = importlib.import_module("objects.standing_clock")
finally:
    sys.path.remove(_STRESS)

N, D = 300, 12
SECRET = "planted-7f3c"
FORMS = ("sealed.zarr", "v2.zarr", "v3.zarr", "rows.parquet", "folder", "rows.csv.gz")


def matrix() -> tuple[np.ndarray, np.ndarray]:
    """X, dense with zeros, and y."""
    rng = np.random.default_rng(3)
    X = (rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.4)).astype(np.float32)
    return X, np.where(X[:, 0] + 0.5 * X[:, 1] + 0.2 * rng.normal(size=N) > 0, 1, -1)


def write_forms(folder: Path) -> None:
    """The rows in all FORMS, and as rows.svm and rows.svm.gz."""
    import gzip

    X, y = matrix()
    bigsvm.ingest((sp.csr_matrix(X), y), folder / "sealed.zarr", chunk_bytes=1 << 10)
    for version in (2, 3):
        group = zarr.open_group(folder / f"v{version}.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
        for name, values in (("X", X), ("layers/twice", 2 * X), ("obs/label", y)):
            group.create_array(name, data=values, chunks=(64, *values.shape[1:]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)
            zarr.consolidate_metadata(group.store)
    formats.parquet(folder / "rows.parquet", X, y, layout="columns")
    (folder / "folder").mkdir()
    for k in range(2):
        half = slice(150 * k, 150 * k + 150)
        formats.parquet(folder / "folder" / f"part-{k}.parquet", X[half], y[half], layout="columns")
    (folder / "folder" / "_SUCCESS").touch()
    lines = [",".join([*(f"f{j}" for j in range(D)), "label"])]
    lines += [",".join([*map(str, row), str(label)]) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    (folder / "rows.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    text = "".join(
        f"{label} " + " ".join(f"{j + 1}:{row[j]!r}" for j in range(D) if row[j]) + "\n"
        for row, label in zip(X.tolist(), y.tolist(), strict=True)
    )
    (folder / "rows.svm").write_text(text)
    (folder / "rows.svm.gz").write_bytes(gzip.compress(text.encode()))


def deadlines_over_without(key: str, served: Path, scratch: Path) -> AbstractContextManager[None]:
    """Deadlines are over once all chunks of the sealed store but one are here, and no earlier."""
    others = chunks_in(served / "sealed.zarr") - {key}

    def is_time() -> bool:
        return any(others <= chunks_in(folder) for folder in scratch.rglob("sealed.zarr"))

    return standing_clock.deadlines_over_when(is_time)  # type: ignore[no-any-return]


def chunks_in(store: Path) -> set[str]:
    """Keys of whole chunks in a store's folder."""
    return {str(path.relative_to(store)) for path in store.rglob("c/*") if not path.name.startswith(".")}


def rows_of(store: RowBlocks) -> tuple[np.ndarray, np.ndarray]:
    """All rows, dense, and their class codes."""
    blocks = [store.read(ref) for ref in store.refs(64)]
    X = [
        block.X if isinstance(block.X, np.ndarray) else sp.csr_matrix(tuple(block.X), (len(block.y), D)).toarray()
        for block in blocks
    ]
    return np.concatenate(X), np.concatenate([block.y for block in blocks])


def has_rows(store: RowBlocks, X: np.ndarray | None = None) -> bool:
    """Whether a store has the rows of `matrix`."""
    wanted, y = matrix()
    found, codes = rows_of(store)
    assert store.classes is not None
    return np.array_equal(found, wanted if X is None else X) and np.array_equal(store.classes[codes.astype(int)], y)
