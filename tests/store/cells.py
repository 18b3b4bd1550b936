"""Sixty cells of nine genes as AnnData: what a file holds, for `formats.anndata` to write."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

N, D = 60, 9
X = sp.random(N, D, 0.3, random_state=0, format="csr", dtype=np.float32)
CODES = (np.arange(N) % 3).astype(np.int8)
HOLES = np.where(np.arange(N) % 7 == 0, -1, CODES).astype(np.int8)
NAMES = [f"gene{j}" for j in range(D)]
STORES = ["v2.zarr", "v3.zarr", "plain.h5ad", "gzip.h5ad"]


def content() -> dict:
    """Path -> what lies there: a matrix, or a column."""
    return {
        "X": X, "layers/csc": X.tocsc(), "layers/dense": X.toarray(), "obsm/pca": X.toarray()[:, :4].astype(float),
        "raw/X": X.tocsc(), "raw/var/_index": NAMES, "var/_index": NAMES,
        "obs/label": (CODES, ["b", "a", "c"]), "obs/holes": (HOLES, ["b", "a", "c"]),
        "obs/number": np.where(HOLES < 0, np.nan, CODES), "obs/text": ["x", "y"] * (N // 2),
        "obs/nullable": (HOLES.astype(np.int64), HOLES < 0, "nullable-integer"),
    }  # fmt: skip
