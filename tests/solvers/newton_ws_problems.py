"""Problems that tests of newton-ws share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bigsvm.solvers.newton_ws.newton_ws import NewtonWS
from tests.solvers.stepping import Bench


def cloud(n: int = 3000, d: int = 8, seed: int = 0, flipped: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.where(X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0)
    y[rng.random(n) < flipped] *= -1.0
    return X, y


def bench(
    tmp_path: Path, loss: str, rows: int = 400, layout: str = "dense", own: dict[str, Any] | None = None, **lent: Any
) -> Bench:
    X, y = cloud()
    X = X if layout == "dense" else sparse.csr_matrix(X)
    options = {"loss": loss, "C": 10.0, **lent.pop("options", {})}
    solver = NewtonWS(working_rows=rows, **(own or {}))
    return Bench(solver, X, y, tmp_path, 100, options, row_buffer_bytes=1 << 24, tol=1e-9, **lent)


def unscaled(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two noisy classes, whose columns differ a hundredfold."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((n, 5)) * np.array([1.0, 10.0, 100.0, 30.0, 3.0])
    return X, np.where(X @ (1.0 / np.array([1.0, 10.0, 100.0, 30.0, 3.0])) + rng.standard_normal(n) > 0, 1, -1)
