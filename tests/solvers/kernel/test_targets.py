"""The violation that a kernel solver aims at, so that the gap is small enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.solvers.kernel.ends import EndsOfModels


def test_a_target_that_was_too_large_for_the_gap_is_made_smaller_by_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by its own size, which is a violation: the set would be solved ten thousand times too exactly."""
    factors: list[float] = []
    aim = EndsOfModels.aim

    def told(self: Any, state: Any, qp: Any, m: int) -> None:
        aim(self, state, qp, m)
        factors.append(float(state.eps[m]))

    monkeypatch.setattr(EndsOfModels, "aim", told)
    rng = np.random.default_rng(223)
    X = rng.normal(size=(33, 5))
    y = np.where(X[:, 0] > 0.0, 1, -1)
    result = bigsvm.fit((X, y), kernel="rbf", gamma=1.0, C=1000.0, solver="rosen", tol=1e-2)
    assert result.status == "converged"
    assert set(factors) == {1.0, 0.3}  # how often each, depends on the time that a share of work takes
