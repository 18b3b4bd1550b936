"""Problems for Rosen's gradient projection, and a solver on one of them: what must hold is tested after every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.testing.matrix_rows import MatrixRows


@pytest.fixture(autouse=True)
def fits(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how many rows of a face there is memory for; at first all."""

    def say(most: int) -> None:
        for module in ("rosen", "rosen_block"):
            monkeypatch.setattr(f"bigsvm.solvers.kernel.rosen.{module}.rows_that_fit", lambda ctx: most)

    say(10_000)
    return say


def gram(X: np.ndarray, gamma: float) -> np.ndarray:
    square = (X * X).sum(axis=1)
    K = np.exp(-gamma * np.maximum(square[:, None] + square[None, :] - 2.0 * X @ X.T, 0.0))
    np.fill_diagonal(K, 1.0)
    return K


def classification(y: np.ndarray, C: float | np.ndarray, eps: float = 1e-6) -> DualQP:
    C = np.broadcast_to(C, y.shape).astype(float)
    lower, upper = np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0)
    return started(DualQP(y.astype(float), lower, upper, 0.0, np.zeros(len(y)), np.zeros(len(y)), eps=eps))


def regression(t: np.ndarray, C: float, epsilon: float, eps: float = 1e-6) -> DualQP:
    full = np.full(len(t), C)
    return started(DualQP(t.astype(float), -full, full, epsilon, np.zeros(len(t)), np.zeros(len(t)), eps=eps))


def started(qp: DualQP) -> DualQP:
    qp.start()
    return qp


def objective(qp: DualQP, K: np.ndarray) -> float:
    b = qp.beta
    return float(0.5 * b @ K.astype(np.float64) @ b - qp.target @ b + qp.epsilon * np.abs(b).sum())


def check(qp: DualQP, K: np.ndarray) -> None:
    """What holds after every call: feasible, and f is that of beta."""
    C = float(np.maximum(qp.upper, -qp.lower).max())
    assert np.all(qp.beta >= qp.lower)
    assert np.all(qp.beta <= qp.upper)
    assert abs(qp.beta.sum()) <= 1e-12 * C * len(qp.beta)
    f = K.astype(np.float64) @ qp.beta - qp.target
    np.testing.assert_allclose(qp.f, f, rtol=0, atol=1e-11 * max(1.0, C) * len(f))


def solve(solver: Any, qp: DualQP, K: np.ndarray, most: int = 2000) -> tuple[Any, Progress]:
    rows = MatrixRows(K)
    work = solver.start_model(qp, rows, None)
    former, start = np.inf, objective(qp, K)
    for _ in range(most):
        progress = solver.step_model(qp, work, rows, None)
        check(qp, K)
        now = objective(qp, K)
        assert now <= former + 1e-12 * max(1.0, abs(now))
        former = now
        if progress.done or progress.exhausted:
            assert work.gain == pytest.approx(start - now, rel=1e-9, abs=1e-9)
            return work, progress
    raise AssertionError("it does not end")


def made_up(n: int, seed: int, noise: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0, 1.0, -1.0)
    return X, np.where(rng.random(n) < noise, -y, y)
