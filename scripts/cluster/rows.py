"""Rows of any width for measurements: sparse like text, of unit length, with a twentieth of the labels wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.ingest.zarr_writer import ZarrWriter

_BLOCK = 8192
_WRONG = 0.05


def write_rows(path: Path, n_rows: int, n_features: int, entries: int = 48, seed: int = 1) -> None:
    """A store of CSR rows, float32; `entries` features are drawn for a row by Zipf's law, some of them twice."""
    direction = np.random.default_rng(seed).standard_normal(n_features)
    with ZarrWriter(path, layout="csr", dtype=np.float32, n_features=n_features) as writer:
        for number, start in enumerate(range(0, n_rows, _BLOCK)):
            writer.append(*_block(number, min(_BLOCK, n_rows - start), entries, direction, seed))
        writer.finish()


def _block(number: int, n_rows: int, entries: int, direction: np.ndarray, seed: int) -> tuple[CSR, np.ndarray]:
    rng = np.random.default_rng([seed, number])
    n_features = len(direction)
    drawn = np.minimum((n_features ** rng.random((n_rows, entries))).astype(np.int32) - 1, n_features - 1)
    drawn.sort(axis=1)
    first = np.ones(drawn.shape, bool)
    first[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    values = (np.log2(2.0 + drawn) * (0.5 + rng.random(drawn.shape))).astype(np.float32)
    values[~first] = 0.0
    values /= np.sqrt(np.sum(values * values, axis=1, keepdims=True))
    labels = np.where(np.sum(values * direction[drawn], axis=1) > 0, 1.0, -1.0)
    labels[rng.random(n_rows) < _WRONG] *= -1.0
    indptr = np.concatenate(([0], np.cumsum(first.sum(axis=1)))).astype(np.int64)
    return CSR(values[first], drawn[first], indptr), labels
