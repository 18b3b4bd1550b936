"""Rows that join a store, and what a store holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.formats.opener import open_store
from bigsvm.store.sealing.manifest import FORMER

WIDTH = 12
Part = tuple[Any, np.ndarray]


def rows(n: int, classes: tuple[Any, ...] = (-1, 1), dense: bool = False, seed: int = 0) -> Part:
    rng = np.random.default_rng(seed)
    X = (rng.integers(1, 9, (n, WIDTH)) * (rng.random((n, WIDTH)) < 0.4)).astype(np.float32)
    return X if dense else sp.csr_matrix(X), rng.choice(np.array(classes), n)


def together(parts: list[Part]) -> Part:
    stack = np.vstack if isinstance(parts[0][0], np.ndarray) else sp.vstack
    return stack([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def content(store: Any) -> tuple[np.ndarray, np.ndarray]:
    """All values and all labels."""
    rows = open_store(store) if isinstance(store, str | Path) else store
    blocks = [rows.read(ref) for ref in rows.refs(17)]
    values = [
        sp.csr_matrix((b.X.data, b.X.indices, b.X.indptr), (b.n_rows, WIDTH)).toarray() if isinstance(b.X, CSR) else b.X
        for b in blocks
    ]
    assert rows.classes is not None
    return np.vstack(values), rows.classes[np.concatenate([b.y for b in blocks])]


def same(found: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> bool:
    return all(np.array_equal(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))


def files_of(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(FORMER)}
