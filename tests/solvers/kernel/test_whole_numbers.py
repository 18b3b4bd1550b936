"""Fits of rows of whole numbers in memory: pairs give the model that floats give, to the same proof."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.kernel.values import step as step_module
from bigsvm.compiled.kernel.values.step import Steps
from bigsvm.compiled.shared.rows import n_rows_of
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.values import gram as gram_module
from bigsvm.solvers.kernel.values.other_side import OtherSide
from bigsvm.solvers.kernel.values.sent_rows import SentValues
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr

N, WIDTH, GAMMA = 400, 40, 0.05


def problem(stored: str) -> tuple[np.ndarray, np.ndarray]:
    """Bytes, or what they are divided by 127, and labels that a curved border and some noise make."""
    rng = np.random.default_rng(4)
    K = rng.integers(0, 128, (N, WIDTH)) * (rng.random((N, WIDTH)) < 0.9)
    K[0, 0] = 1
    X = K / 127
    y = np.where(((X - 0.5) ** 2).sum(axis=1) + 0.1 * rng.standard_normal(N) > 3.5, 1, -1)
    return (K.astype(stored) if np.dtype(stored).kind != "f" else X.astype(stored)), y


def fitted(monkeypatch: pytest.MonkeyPatch, stored: str, pairs: bool, layout: str = "dense", **options: Any) -> Any:
    """A fit, and how often rows became pairs in it, by float type."""
    X, y = problem(stored)
    used: list[str] = []

    def counted(self: Any, X: Any, rows: np.ndarray) -> Any:
        found = plain(self, X, rows)
        if X.shape[1] == WIDTH if isinstance(X, np.ndarray) else n_rows_of(X) == N:  # and not the few rows that compile
            used.append(self.dtype.name if found.step else "")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(step_module, "_WORTH_IT", 0 if pairs else 1 << 40)
        plain = gram_module.Gram.support
        patch.setattr(gram_module.Gram, "support", counted)
        gamma = GAMMA if np.dtype(stored).kind == "f" else GAMMA / 127**2
        given = {"kernel": "rbf", "gamma": gamma, "C": 10.0, "tol": 1e-4, **options}
        result = bigsvm.fit((sparse.csr_matrix(X) if layout == "csr" else X, y), **given)
    return result, set(used)


def gap(result: Any, stored: str, layout: str) -> tuple[float, float]:
    """(primal, dual) of the model and its alpha, by NumPy and by scores that know of no pairs."""
    X, y = problem(stored)
    K, alpha = result.model.kernel.matrix(X.astype(float), X.astype(float)), np.abs(result.alpha[0].values.ravel())
    beta = np.where(y > 0, alpha, -alpha)
    assert np.all((alpha >= 0) & (alpha <= 10.0))
    assert abs(beta.sum()) <= 1e-9 * alpha.sum()
    decision = result.model.decision_function(sparse.csr_matrix(X) if layout == "csr" else X)
    quadratic = 0.5 * beta @ K @ beta
    return quadratic + 10.0 * np.maximum(0.0, 1.0 - y * decision).sum(), alpha.sum() - quadratic


@pytest.mark.parametrize(("stored", "layout"), [("int8", "dense"), ("float64", "csr"), ("float32", "dense")])
@pytest.mark.parametrize("solver", ["smo", "rosen"])
def test_pairs_give_the_model_of_floats(monkeypatch: pytest.MonkeyPatch, stored: str, layout: str, solver: str) -> None:
    found, used = fitted(monkeypatch, stored, True, layout, solver=solver)
    plain, none = fitted(monkeypatch, stored, False, layout, solver=solver)
    assert none == {""}
    # Numbers that float32 rounded are near enough for values in float32 alone.
    assert used - {"float32", "float64"} == ({""} if stored == "float32" else set())
    assert "float32" in used
    assert found.status == plain.status == "converged"
    primal, dual = gap(found, stored, layout)
    assert found.certificate.primal == pytest.approx(primal, rel=1e-10)
    assert found.certificate.dual == pytest.approx(dual, rel=1e-10)
    assert 0.0 <= primal - dual <= 1e-4 * primal
    assert plain.certificate.primal == pytest.approx(primal, rel=2e-4)
    threaded, _ = fitted(monkeypatch, stored, True, layout, solver=solver, threads=3)
    assert np.array_equal(threaded.alpha[0].values, found.alpha[0].values)


@pytest.mark.usefixtures("streaming")
def test_bytes_that_stream_become_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    found, used = fitted(monkeypatch, "int8", True, memory="64MiB", stage="none")
    assert not found.model.about["plan"]["resident"]
    assert used == {"float32", "float64"}
    primal, dual = gap(found, "int8", "dense")
    assert found.status == "converged"
    assert found.certificate.primal == pytest.approx(primal, rel=1e-10)
    assert found.certificate.dual == pytest.approx(dual, rel=1e-10)
    floats, none = fitted(monkeypatch, "float64", True, memory="64MiB", stage="none")
    assert none == {""}
    assert floats.certificate.primal == pytest.approx(primal, rel=2e-4)


@pytest.mark.parametrize("stored", ["float64", "float32"])
def test_float32_values_of_pairs_are_within_their_bound(stored: str) -> None:
    """Which is narrow where the numbers are multiples in float64; else it counts the numbers of a row, as of floats."""
    X, at = readonly_view(as_csr(problem(stored)[0])), np.arange(N)
    rows = problem(stored)[0].astype(float)
    for gamma in (0.01, 1.0, 6.0):
        steps = Steps(1 / 127, stored == "float64", float((rows**2).sum(axis=1).max()))
        values = SentValues(Kernel("rbf", gamma), WIDTH, steps)
        assert values.gram.support(X, at).step == 1 / 127
        side = OtherSide(values, X, at, at, np.ones(N), 64, 64)
        bound, norms = side.bound(), (rows**2).sum(axis=1)
        narrow = bound.per_norm < 1.2 * gamma * 2.0**-24 * 20
        assert narrow == (stored == "float64")
        exact = Kernel("rbf", gamma).matrix(rows, rows)
        error = np.abs(values.gram.values(X, at, values.gram.support(X, at)) - exact) / exact
        allowed = bound.per_norm * (norms[None, :] + norms[:, None]) + bound.constant
        counts = exact > 1e-37  # below, float32 has no such numbers
        assert np.all(error[counts] <= allowed[counts])
        assert np.all(norms <= bound.largest * (1 + 1e-12))
