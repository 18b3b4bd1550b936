"""Claims of fits whose rows lie far from the origin, against P, D and scores written out in long double."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm

C, N = 10.0, 100


@pytest.mark.parametrize(
    ("far", "spread", "gamma", "dtype", "layout"),
    [
        (1e2, 1.0, 0.5, np.float32, "dense"),
        (1e4, 1.0, 0.5, np.float64, "csr"),
        (1e6, 1.0, 0.5, np.float32, "csr"),
        (1e7, 1.0, 0.5, np.float64, "dense"),
        (1e9, 1.0, 0.5, np.float64, "csr"),
        (1.7e9, 100.0, 5e-5, np.float64, "dense"),
    ],
)
def test_the_gap_and_the_scores_are_true(
    tmp_path: Path, far: float, spread: float, gamma: float, dtype: Any, layout: str
) -> None:
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((N, 4))
    y = np.where(Z[:, 0] * Z[:, 1] + 0.3 * rng.standard_normal(N) > 0, 1, -1)
    X = (far + spread * Z).astype(dtype)
    wide = X.astype(np.longdouble)
    K = np.exp(-np.longdouble(gamma) * ((wide[:, None] - wide[None]) ** 2).sum(axis=-1))
    given = sparse.csr_array(X) if layout == "csr" else X
    result = bigsvm.fit((given, y), kernel="rbf", gamma=gamma, C=C, solver="smo", tol=1e-3)
    result.save_model(tmp_path / "m")
    model = bigsvm.load_model(tmp_path / "m")
    beta = (y * np.load(tmp_path / "m" / "alpha.npy")[0]).astype(np.longdouble)
    scores = K @ beta + np.longdouble(model.intercept[0])
    primal = 0.5 * beta @ K @ beta + C * np.maximum(0, 1 - y * scores).sum()
    dual = np.abs(beta).sum() - 0.5 * beta @ K @ beta
    gap = float((primal - dual) / primal)
    assert result.status == "converged"
    assert gap <= 1e-3
    assert result.figures["relative_gap"] == pytest.approx(gap, rel=1e-6)
    assert bigsvm.certify(tmp_path / "m", (given, y))["relative_gap"] == pytest.approx(gap, rel=1e-6)
    assert float(np.abs(model.decision_function(given) - scores).max()) < 1e-11


@pytest.mark.parametrize("far", [0.0, 1e4, 1e8])
@pytest.mark.parametrize(("dtype", "layout"), [(np.float32, "dense"), (np.float64, "csr")])
def test_of_the_linear_kernel_too_what_is_claimed_holds_of_the_saved_model(
    tmp_path: Path, far: float, dtype: Any, layout: str
) -> None:
    """Far out the solver's kernel values lose what tells rows apart: it may stall, but claims no smaller gap."""
    rng = np.random.default_rng(2)
    Z = rng.standard_normal((N, 3))
    y = np.where(Z[:, 0] + 0.3 * rng.standard_normal(N) > 0, 1, -1)
    X = (far + 25.0 * Z).astype(dtype)
    given = sparse.csr_array(X) if layout == "csr" else X
    result = bigsvm.fit((given, y), solver="smo", kernel="linear", C=0.01, tol=1e-2)
    result.save_model(tmp_path / "m")
    model, wide = bigsvm.load_model(tmp_path / "m"), X.astype(np.longdouble)
    beta = (y * np.load(tmp_path / "m" / "alpha.npy")[0]).astype(np.longdouble)
    w = model.coef[0].astype(np.longdouble)
    loss = np.maximum(0, 1 - y * (wide @ w + np.longdouble(model.intercept[0]))).sum()
    v = beta @ wide
    primal = 0.5 * w @ w + np.longdouble(0.01) * loss
    dual = np.abs(beta).sum() - 0.5 * v @ v
    assert float((primal - dual) / primal) <= result.figures["relative_gap"] * (1 + 1e-6) + 1e-9
    assert result.status == "converged" or far == 1e8
