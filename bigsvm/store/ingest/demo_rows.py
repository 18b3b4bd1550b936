"""The synthetic problem of `bigsvm demo`, of any size, written block by block.

The rows resemble text: sparse, with a few frequent and many rare features, of unit length.  Labels come from a planted
direction, and some are wrong.  A block depends only on the seed and its number, so the rows do not depend on how many
are written.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import UsageError
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.store.ingest.zarr_writer import ZarrWriter

N_FEATURES = 20_000
DRAWS = 64
"""Features drawn for a row with replacement; about 54 of them are different."""
ROW_BYTES = 54 * 8 + 16
WRONG_LABELS = 0.03
BLOCK_ROWS = 8192
SEED = 20_000
HELD_OUT = 1 << 32
"""Number of the first block of held-out rows."""


def write_problem(
    path: Path, n_samples: int, first_block: int = 0, emit: Emit = silent, what: str = "making data"
) -> dict[str, Any]:
    """Write rows to a store at `path`, block by block; returns the result of `ZarrWriter`.

    Parameters
    ----------
    first_block : start at this block; other blocks give other rows of the same problem
    """
    if n_samples < 10:
        raise UsageError(f"a demonstration needs at least 10 rows, not {n_samples}")
    direction = np.random.default_rng(SEED).standard_normal(N_FEATURES)
    began = time.monotonic()
    emit(WorkStarted(what, n_samples, "rows"))
    with ZarrWriter(path, layout="csr", dtype=np.float32, n_features=N_FEATURES) as writer:
        for start in range(0, n_samples, BLOCK_ROWS):
            n_rows = min(BLOCK_ROWS, n_samples - start)
            writer.append(*make_block(first_block + start // BLOCK_ROWS, n_rows, direction))
            emit(WorkAdvanced(what, start + n_rows))
        summary = writer.finish()
    emit(WorkEnded(what, time.monotonic() - began))
    return summary


def make_block(number: int, n_rows: int, direction: np.ndarray) -> tuple[CSR, np.ndarray]:
    """(rows, labels of -1 and 1) of a block."""
    rng = np.random.default_rng([SEED, number])
    # Zipf's law: the logarithm of the feature number is uniformly distributed.
    drawn = (N_FEATURES ** rng.random((n_rows, DRAWS), dtype=np.float32)).astype(np.int32) - 1
    drawn = np.minimum(drawn, N_FEATURES - 1)
    drawn.sort(axis=1)
    kept = np.ones(drawn.shape, bool)
    kept[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    # As in TF-IDF, rare features have larger weights.
    values = np.log2(2.0 + drawn.astype(np.float32)) * (0.5 + rng.random(drawn.shape, dtype=np.float32))
    values[~kept] = 0.0
    values /= np.sqrt(np.sum(values * values, axis=1, keepdims=True))
    scores = np.sum(values * direction[drawn], axis=1)
    labels = np.where(scores > 0, 1.0, -1.0)
    labels[rng.random(n_rows) < WRONG_LABELS] *= -1.0
    indptr = np.concatenate(([0], np.cumsum(kept.sum(axis=1)))).astype(np.int64)
    return CSR(values[kept], drawn[kept], indptr), labels
