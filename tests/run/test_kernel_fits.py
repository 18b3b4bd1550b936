"""Whole fits with kernels against scikit-learn's SVC and SVR (LIBSVM): objectives, values, labels, on real sets too."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC, SVR

import bigsvm
from bigsvm.problem.kernel import Kernel
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.products import WHOLE, each_of

SETS = ("abalone_scale", "housing", "mpg", "cpusmall")
N_REGRESSION, N_DIGITS = (None, 2000) if WHOLE else (3000, 1200)  # rows, at most


def scaled(X: Any) -> np.ndarray:
    """Features between -1 and 1, those that are constant 0."""
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    low, high = X.min(axis=0), X.max(axis=0)
    return 2.0 * (X - low) / np.where(high > low, high - low, 1.0) - 1.0


def dual_of(oracle: SVR, K: np.ndarray, t: np.ndarray) -> float:
    """D of the point that scikit-learn found."""
    beta = np.zeros(len(t))
    beta[oracle.support_] = oracle.dual_coef_[0]
    return float(t @ beta - oracle.epsilon * np.abs(beta).sum() - 0.5 * beta @ K @ beta)


def regression_of(real_data: ModuleType, name: str) -> tuple[np.ndarray, np.ndarray, float]:
    """(X, t, epsilon), epsilon a tenth of the targets' deviation."""
    X, t = (A[:N_REGRESSION] for A in real_data.load(name))
    return scaled(X), t, 0.1 * float(t.std())


@pytest.mark.slow
@each_of(name=SETS, C=[10.0, 1.0])
def test_regression_is_scikit_learns(real_data: ModuleType, name: str, C: float) -> None:
    """At the rule of LIBSVM and its tolerance: D as near to the optimum as its own, and far nearer than the bound."""
    X, t, epsilon = regression_of(real_data, name)
    gamma = 1.0 / X.shape[1]
    K = Kernel("rbf", gamma).matrix(X, X)
    options = {"C": C, "gamma": gamma, "epsilon": epsilon}
    optimum = dual_of(SVR(tol=1e-6, cache_size=500, **options).fit(X, t), K, t)
    oracle = SVR(tol=1e-3, cache_size=500, **options).fit(X, t)
    rows = ArrayRows(X, t, task="regression")
    result = bigsvm.fit(rows, solver="smo", kernel="rbf", loss="epsilon_insensitive", stop="paper", **options)
    assert result.status == "paper_rule"
    assert result.figures["violation"] <= 1e-3
    found = result.figures["dual_objective"]
    assert abs(optimum - found) <= 1e-7 * optimum
    assert dual_of(oracle, K, t) == pytest.approx(found, rel=1e-6)
    assert result.figures["duality_gap"] <= len(t) * C * 1e-3 / 2  # docs/mathematics.md 2.2
    assert result.figures["relative_gap"] <= 1e-5
    np.testing.assert_allclose(result.model.predict(X), oracle.predict(X), atol=5e-3 * float(t.std()))
    proved = bigsvm.fit(rows, solver="smo", kernel="rbf", loss="epsilon_insensitive", tol=1e-3, **options)
    assert proved.status == "converged"
    assert proved.figures["dual_objective"] <= optimum * (1 + 1e-9) <= proved.figures["objective"] * (1 + 1e-9)
    # 1/2 ||w - w*||^2 is at most the gap, and every row has the length 1; the bias, which is free, is left out.
    lacking = optimum - dual_of(oracle, K, t)
    apart = 2.0 * (np.sqrt(2.0 * proved.figures["duality_gap"]) + np.sqrt(2.0 * max(lacking, 0.0)))
    difference = proved.model.predict(X) - oracle.predict(X)
    assert np.abs(difference - difference.mean()).max() <= apart


def digits(real_data: ModuleType, name: str, n: int) -> tuple[Any, ...]:
    """(X, y, test X, test y) of the first rows, float32, values between 0 and 1; 2,000 rows to test."""
    (X, y), (X_test, y_test) = real_data.load(name), real_data.load(name, "test")
    scale = 100.0 if name == "pendigits" else 255.0
    dense = [A.toarray() if sparse.issparse(A) else np.asarray(A) for A in (X[:n], X_test[:2000])]
    X, X_test = ((A / scale).astype(np.float32) for A in dense)
    return X, y[:n], X_test, y_test[:2000]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gamma"), [("pendigits", 2.0), ("mnist", 0.02)])
def test_pairs_of_digits_are_scikit_learns(real_data: ModuleType, tmp_path: Path, name: str, gamma: float) -> None:
    X, y, X_test, y_test = digits(real_data, name, N_DIGITS)
    oracle = SVC(C=10.0, gamma=gamma, tol=1e-3, decision_function_shape="ovo").fit(X, y)
    expected, accuracy = oracle.decision_function(X_test), oracle.score(X_test, y_test)
    options = {"solver": "smo", "kernel": "rbf", "gamma": gamma, "C": 10.0, "memory": "1GiB"}
    result = bigsvm.fit((X, y), tol=1e-4, **options)
    assert result.model.pairs
    scores = result.model.decision_function(X_test)
    assert scores.shape == expected.shape == (2000, 45)
    np.testing.assert_allclose(scores, expected, atol=5e-3)
    assert np.mean(result.model.predict(X_test) == oracle.predict(X_test)) >= 0.999
    assert np.mean(result.model.predict(X_test) == y_test) == pytest.approx(accuracy, abs=1e-3)
    assert result.model.n_support == pytest.approx(len(oracle.support_), rel=0.02)
    result.save_model(tmp_path / "m")
    proof = bigsvm.certify(tmp_path / "m", (X, y))
    assert proof["relative_gap"] == pytest.approx(result.certificate.relative_gap, rel=1e-4)
    rest = bigsvm.fit((X, y), tol=1e-3, multi_class="ovr", **options)
    assert rest.model.n_models == 10
    assert np.mean(rest.model.predict(X_test) == y_test) > accuracy - 0.01


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_one_against_one_and_against_the_rest_by_hand(multi_class: str, layout: str) -> None:
    """Each model is that of its own two-class problem."""
    X, y = random_problem(240, 5, seed=2, noise=0.3, n_classes=3)
    given = sparse.csr_array(X) if layout == "csr" else X
    options = {"solver": "smo", "kernel": "rbf", "gamma": 0.3, "C": 2.0, "tol": 1e-9}
    result = bigsvm.fit((given, y), multi_class=multi_class, **options)
    scores = result.model.decision_function(X)
    for m, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)] if multi_class == "ovo" else [(c, -1) for c in range(3)]):
        rows = np.flatnonzero((y == a) | (y == b)) if b >= 0 else np.arange(len(y))
        alone = SVC(C=2.0, gamma=0.3, tol=1e-8).fit(X[rows], y[rows] == a)
        np.testing.assert_allclose(scores[:, m], alone.decision_function(X), atol=3e-4)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_store_of_kernel_values_gives_the_model_of_the_kernel(tmp_path: Path, layout: str) -> None:
    X, y = random_problem(300, 5, seed=6, noise=0.2, n_classes=3)
    K = Kernel("rbf", 0.3).matrix(X, X)
    options = {"solver": "smo", "C": 2.0, "tol": 1e-9}
    rbf = bigsvm.fit((X, y), kernel="rbf", gamma=0.3, **options)
    given = bigsvm.fit((sparse.csr_array(K) if layout == "csr" else K, y), kernel="precomputed", **options)
    for name in ("objective", "dual_objective"):
        assert given.figures[name] == pytest.approx(rbf.figures[name], rel=1e-8)
    new = np.random.default_rng(1).standard_normal((40, 5))
    values = given.model.decision_function(Kernel("rbf", 0.3).matrix(new, X))
    np.testing.assert_allclose(values, rbf.model.decision_function(new), atol=1e-4)
    given.save_model(tmp_path / "m")
    assert bigsvm.load_model(tmp_path / "m").n_features == 300


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
@pytest.mark.parametrize("solver", ["smo", "rosen", "rosen-block"])
def test_every_solver_finds_scikit_learns_optimum(solver: str, kernel: str) -> None:
    X, y = random_problem(200, 4, seed=9, noise=0.2)
    parameters = {"gamma": 0.5, "degree": 2, "coef0": 1.0}
    oracle = SVC(C=1.0, kernel=kernel, tol=1e-8, **parameters).fit(X, y)
    result = bigsvm.fit((X, y), solver=solver, kernel=kernel, C=1.0, tol=1e-7, **parameters)
    assert result.status == "converged"
    np.testing.assert_allclose(result.model.decision_function(X), oracle.decision_function(X), atol=2e-3)
    K = Kernel(kernel, 0.5, 2, 1.0).matrix(X, X)
    beta = np.zeros(200)
    beta[oracle.support_] = oracle.dual_coef_[0]
    best = np.where(y > 0, 1.0, -1.0) @ beta - 0.5 * beta @ K @ beta
    assert result.figures["dual_objective"] == pytest.approx(best, rel=1e-7)
