"""nu-SVC where classes overlap: problems without a margin are given up early, all others still reach their optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigsvm.errors import DataError
from bigsvm.run.api import fit
from bigsvm.solvers.kernel import ends
from bigsvm.solvers.kernel.state import OpenModel
from bigsvm.solvers.pace import kernel_limits
from tests.products import on_request, pairs_of

TOL = 1e-3


def overlapping(seed: int, n: int, d: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = random.standard_normal((n, d))
    X[:, 0] += shift * y
    return X, y


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Rows of a model -> the most work that was spent on one with so many, in passes."""
    found: dict[int, float] = {}
    names = [name for name, kind in vars(ends).items() if isinstance(kind, type) and hasattr(kind, "is_hopeless")]
    kind = getattr(ends, names[-1])
    judged = kind.is_hopeless

    def counted(self: Any, state: Any, one: OpenModel, ctx: Any) -> bool:
        n = one.qp.n
        found[n] = max(found.get(n, 0.0), state.asked[one.model] / n**2)
        return bool(judged(self, state, one, ctx))

    monkeypatch.setattr(kind, "is_hopeless", counted)
    return found


@pairs_of(nu=[0.1, 0.3], n__d__gamma=[*on_request((400, 2, 0.05), (400, 1, 0.2)), (150, 2, 0.02), (60, 2, 0.005)])
def test_a_problem_without_a_margin_is_given_up_early(
    n: int, d: int, gamma: float, nu: float, counts: dict[int, float]
) -> None:
    X, y = overlapping(1, n, d, 0.3)
    try:
        ended = fit((X, y), loss="nu_svc", nu=nu, kernel="rbf", gamma=gamma, tol=TOL).status
    except DataError as error:
        ended = str(error)
    assert "stalled" in ended or "margin" in ended
    assert counts[n] < 0.5 * kernel_limits(n).most


HARD = [(60, 4, 0.025, 0.05, 0.2), (400, 4, 0.0119, 0.8, 0.5), (150, 5, 0.0125, 0.5, 1.0)]
"""Rows, features, gamma, nu and shift of problems with narrow margins."""
RANDOM = [
    (int(n), int(d), float(gamma), float(nu), float(shift))
    for n, d, gamma, nu, shift in zip(
        np.tile([60, 100, 150, 200], 5), np.tile([2, 3, 5, 8, 12], 4), np.geomspace(0.5, 3.0, 20),
        np.linspace(0.5, 0.8, 20), np.linspace(0.3, 2.0, 20), strict=True,
    )
]  # fmt: skip


@pytest.mark.parametrize(("n", "d", "gamma", "nu", "shift"), [*HARD, *RANDOM])
def test_a_problem_with_a_margin_reaches_the_objective_of_scikit_learn(
    n: int, d: int, gamma: float, nu: float, shift: float
) -> None:
    svm = pytest.importorskip("sklearn.svm")
    X, y = overlapping(0, n, d, shift)
    result = fit((X, y), loss="nu_svc", nu=nu, kernel="rbf", gamma=gamma, tol=TOL)
    assert result.status == "converged"
    theirs = svm.NuSVC(nu=nu, gamma=gamma, tol=1e-9).fit(X, y)
    beta = theirs.dual_coef_[0] * nu * n / np.abs(theirs.dual_coef_).sum()  # LIBSVM divides by rho
    support = X[theirs.support_]
    K = np.exp(-gamma * ((support[:, None] - support[None]) ** 2).sum(axis=2))
    optimum = 0.5 * beta @ K @ beta
    assert float(result.certificate.primal[0]) == pytest.approx(optimum, rel=2 * TOL)
