"""Rows that the tests of ingest and dump write into stores: in memory, and as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

N, D = 700, 40
_RNG = np.random.default_rng(5)
DENSE = np.where(_RNG.random((N, D)) < 0.2, _RNG.random((N, D)) - 0.5, 0.0).astype(np.float32)
DENSE[-1, -1] = 1.0  # the text of the last feature tells the width
X = sp.csr_array(DENSE)
y = _RNG.choice([-1, 1, 3], N)


def write_text(path: Path) -> Path:
    lines = []
    for i in range(N):
        a, b = X.indptr[i : i + 2]
        entries = [f"{j + 1}:{v!s}" for j, v in zip(X.indices[a:b], X.data[a:b], strict=True)]
        lines.append(" ".join([str(y[i]), *entries]))
    path.write_text("\n".join(lines) + "\n")
    return path
