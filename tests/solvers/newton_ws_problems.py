"""Problems that tests of newton-ws share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bigsvm.solvers.newton_ws.newton_ws import NewtonWS
from bigsvm.solvers.newton_ws.subproblem import Subproblem
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import random_problem
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


def subproblem(n: int = 300, d: int = 6, bias: float = 1.0, free: bool = False, **changes: Any) -> Subproblem:
    X, y = random_problem(n, d, seed=n + d)
    rng = np.random.default_rng(n)
    given: dict[str, Any] = {
        "parts": [readonly_view(X[:100]), readonly_view(X[100:])], "codes": (y > 0).astype(np.int32),
        "C": rng.uniform(0.5, 2.0, n), "far": np.zeros(n, bool), "side": np.ones(n), "bias": bias, "free": free,
        "lean": 0.1 * rng.standard_normal(d + 1), "at": np.zeros(d + 1),
    }  # fmt: skip
    given["lean"][-1] *= bias
    return Subproblem(**{**given, **changes})


def primal(problem: Subproblem, w: np.ndarray, loss: str) -> float:
    s = np.maximum(problem.slacks(w), 0.0)
    smooth = 0.5 * float(w @ (problem.regulariser * w)) - float(problem.lean @ (w - problem.at))
    if problem.F is not None:
        whole = np.zeros((len(w), len(w)))
        whole[np.triu_indices(len(w))] = problem.F
        whole += np.triu(whole, 1).T
        smooth += 0.5 * float((w - problem.at) @ whole @ (w - problem.at))
    return smooth + float(problem.C @ (s if loss == "hinge" else s * s))
