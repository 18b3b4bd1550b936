"""Equal and nearly equal rows with different labels: every update of one row is undone by that of another one."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.problem.loss import LOSSES
from tests.run.counted_fits import Rows, fit

TOL = 1e-3
COSTS = (1.0, 100.0, 1e5)


def repeated(n: int, d: int, copies: int, apart: float = 0.0) -> Rows:
    """n rows, each in copies with labels in turns, that are `apart` in each column."""
    rng = np.random.default_rng(n)
    X = np.repeat(rng.standard_normal((n, d)), copies, axis=0)
    return X + apart * rng.standard_normal(X.shape), np.tile([-1, 1], n * copies // 2)


ROWS = {
    "two rows": (np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([-1, 1])),
    "four rows": (np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 1.0], [3.0, 1.0001]]), np.array([-1, 1, 1, -1])),
    "many rows for each feature": repeated(5, 3, 4),
    "nearly equal": repeated(5, 3, 4, 1e-5),
    "few rows for each feature": repeated(5, 30, 2),
}


@pytest.mark.parametrize("solver", ["auto", "dcd"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_alike_are_proved_or_honestly_stalled(name: str, loss: str, solver: str) -> None:
    """`auto` proves all of them.  `dcd` proves those that its limit of epochs allows (C epochs or more), and no stall
    comes before that limit: its projected gradients are equal to one another long before the optimum."""
    X, y = ROWS[name]
    for C in COSTS:
        result = fit((X, y), loss=loss, C=C, solver=solver, bias="none", tol=TOL)
        w = result.model.coef.ravel()
        slack = np.maximum(1 - y * (X @ w), 0.0)
        primal = 0.5 * w @ w + C * (slack**2 if LOSSES[loss].smooth else slack).sum()
        assert result.figures["objective"] == pytest.approx(primal, rel=1e-6)
        assert result.certificate.relative_gap >= 0
        if solver == "auto" or C <= 100:
            assert result.status == "converged", C
            assert result.certificate.relative_gap <= TOL
        else:
            assert result.status == "converged" or result.figures["epochs"] >= 1000
