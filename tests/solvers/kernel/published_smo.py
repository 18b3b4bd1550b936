"""The published SMO solvers on a matrix of kernel values, call by call, and an optimum to compare with."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from bigsvm.budget import MemoryBudget
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.literature import platt, simplified
from bigsvm.solvers.kernel.literature.platt import PlattSMO
from bigsvm.solvers.kernel.literature.simplified import SimplifiedSMO, SimplifiedSMOWithKM
from bigsvm.testing.matrix_rows import MatrixRows
from tests.solvers.kernel.checks import imbalance, outside_box

TIGHT = (SimplifiedSMO(min_step=1e-13), SimplifiedSMOWithKM(min_step=1e-13), PlattSMO(eps=1e-12))


def name_of(solver: Any) -> str:
    """Ids of tests."""
    return solver.name


class Run:
    """A solver on a matrix, call by call; the invariants are looked at after each."""

    def __init__(self, solver: Any, K: np.ndarray, y: np.ndarray, C: Any = 1.0, eps: float = 1e-3, seed: int = 0):
        n, C = len(y), np.broadcast_to(C, len(y))
        y = y.astype(np.float64)
        self.qp = DualQP(
            y, np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0), 0.0, np.zeros(n), np.zeros(n), eps=2 * eps
        )
        self.qp.start()
        self.K, self.solver, self.rows = K.astype(np.float64), solver, MatrixRows(K)
        self.ctx: Any = SimpleNamespace(
            seed=seed,
            budget=MemoryBudget(1 << 28),
            cache_bytes=0,
            sweeps_left=None,
            expired=lambda: False,
            read_enough=lambda: False,
        )
        self.work = solver.start_model(self.qp, self.rows, self.ctx)
        self.steps = self.calls = 0

    def call(self) -> Progress:
        """One call of advance."""
        progress = self.solver.step_model(self.qp, self.work, self.rows, self.ctx)
        self.steps += progress.iterations
        self.calls += 1
        scale = max(float(np.max(self.qp.upper - self.qp.lower, initial=0.0)), 1e-300)
        assert outside_box(self.qp) == 0.0
        assert imbalance(self.qp) <= 1e-10 * scale
        found = self.K @ self.qp.beta - self.qp.target
        np.testing.assert_allclose(self.qp.f, found, atol=1e-10 * max(1.0, scale * np.abs(self.K).max(initial=0)))
        assert progress.violation == self.qp.violation()
        return progress

    def whole(self) -> Progress:
        """Until the rule says that it is over."""
        while True:
            progress = self.call()
            assert not (progress.done and progress.final)
            if progress.done or progress.final or progress.exhausted:
                return progress

    @property
    def dual(self) -> float:
        beta = self.qp.beta
        return float(np.abs(beta).sum() - 0.5 * beta @ self.K @ beta)

    @property
    def primal(self) -> float:
        """With the solver's own b."""
        qp, scores = self.qp, self.K @ self.qp.beta + self.work.b
        slack = np.maximum(0.0, 1.0 - qp.target * scores)
        return float(0.5 * qp.beta @ self.K @ qp.beta + (qp.upper - qp.lower) @ slack)

    @property
    def accuracy(self) -> float:
        return float(np.mean(np.sign(self.K @ self.qp.beta + self.work.b) == self.qp.target))


def optimum(K: np.ndarray, y: np.ndarray, C: Any) -> float:
    """The dual optimum by another program (SLSQP)."""
    Q, n = np.outer(y, y) * K, len(y)
    found = minimize(
        lambda a: 0.5 * a @ Q @ a - a.sum(),
        np.zeros(n),
        jac=lambda a: Q @ a - 1.0,
        bounds=[(0.0, c) for c in np.broadcast_to(C, n)],
        constraints=LinearConstraint(y[None, :], 0.0, 0.0),
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    return -float(found.fun)


@pytest.fixture
def heart(real_data: ModuleType) -> tuple[np.ndarray, np.ndarray]:
    """K of the linear kernel and y."""
    X, y = real_data.load("heart_scale")
    return Kernel("linear").matrix(X, X), y


@pytest.fixture
def short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of advance end soon, and rows come in small groups."""
    monkeypatch.setattr(simplified, "_VALUES", 2000)
    monkeypatch.setattr(simplified, "_TOGETHER", 700)
    monkeypatch.setattr(platt, "_VALUES", 2000)
