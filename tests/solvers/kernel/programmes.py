"""Small programmes of kernel models, a driver for the textbook engine, and the same rules again in plain NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.smo.textbook import Textbook
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows
from bigsvm.testing.matrix_rows import MatrixRows


def classification(y: np.ndarray, C: float | np.ndarray, eps: float = 1e-3) -> DualQP:
    """At beta = 0."""
    y, C = y.astype(np.float64), np.broadcast_to(C, len(y)).astype(np.float64)
    return DualQP(y.copy(), np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0), 0.0, np.zeros(len(y)), -y, eps=eps)


def regression(t: np.ndarray, C: float | np.ndarray, epsilon: float, eps: float = 1e-3) -> DualQP:
    """At beta = 0."""
    C = np.broadcast_to(C, len(t)).astype(np.float64)
    return DualQP(t.copy(), -C, C.copy(), epsilon, np.zeros(len(t)), -t, eps=eps)


class Run(NamedTuple):
    """How it ended, the steps and visits in all, and what was kept."""

    last: Progress
    iterations: int
    visits: int
    work: Any


def solve(
    qp: DualQP, K: np.ndarray | KernelRows, wss: str = "2", shrinking: bool = False, steps: int = 1000,
    record: bool = False, at_most: int = 200_000,
) -> Run:  # fmt: skip
    """Advance until it is over."""
    rows = MatrixRows(K) if isinstance(K, np.ndarray) else K
    engine = Textbook(steps, record, wss, shrinking)
    work = engine.start_model(qp, rows)
    iterations = visits = 0
    while iterations < at_most:
        last = engine.step_model(qp, work, rows)
        iterations, visits = iterations + last.iterations, visits + last.visits
        if last.done or last.exhausted or last.final:
            return Run(last, iterations, visits, work)
    raise AssertionError(f"not over after {iterations} steps: {last}")


def objective(qp: DualQP, K: np.ndarray, beta: np.ndarray | None = None) -> float:
    """What is minimised, from scratch."""
    beta = qp.beta if beta is None else beta
    return float(0.5 * beta @ K @ beta - qp.target @ beta + qp.epsilon * np.abs(beta).sum())


def check(qp: DualQP, K: np.ndarray, scale: float = 1.0) -> None:
    """The box, the sum, f, and the violation of a fresh f."""
    assert (qp.beta >= qp.lower).all()
    assert (qp.beta <= qp.upper).all()
    largest = np.abs(qp.beta).max(initial=1.0)
    assert abs(qp.beta.sum()) <= 1e-12 * qp.n * largest
    f = K.astype(np.float64) @ qp.beta - qp.target
    np.testing.assert_allclose(qp.f, f, rtol=0, atol=1e-11 * largest * scale)
    qp.f[:] = f
    assert qp.violation() <= qp.eps + 1e-10 * largest * scale


def blobs(n: int, seed: int, kernel: Kernel | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """K, labels of two mixed classes, and a smooth target."""
    rng = np.random.default_rng([seed, n])
    X = rng.standard_normal((n, 5))
    y = np.where(X[:, 0] * X[:, 1] + 0.4 * rng.standard_normal(n) > 0, 1.0, -1.0)
    t = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n)
    return (kernel or Kernel("rbf", 0.3)).matrix(X, X), y, t


def in_two_l_variables(
    qp: DualQP, K: np.ndarray, wss: str, at_most: int = 100_000
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """(alpha, pairs) of LIBSVM's 2l variables, alpha then alpha*, by docs/mathematics.md 8.1 and 8.2.

    Both kinds of programme: a variable of the box [0, 0] is never chosen.
    """
    n, tau = qp.n, 1e-12
    sign = np.repeat([1.0, -1.0], n)
    C = np.concatenate([qp.upper, -qp.lower])
    p = np.concatenate([qp.epsilon - qp.target, qp.epsilon + qp.target])
    Q = np.block([[K, -K], [-K, K]])
    a, G, fresh, pairs = np.zeros(2 * n), p.copy(), np.ones(2 * n, bool), []
    limited = wss.startswith("wr")
    while len(pairs) < at_most:
        F = sign * G
        up = np.where(sign > 0, a < C, a > 0) & (fresh | (not limited))
        low = np.where(sign > 0, a > 0, a < C) & (fresh | (not limited))
        F_up, F_low = np.where(up, F, np.inf), np.where(low, F, -np.inf)
        i = int(F_up.argmin())
        if F_low.max() - F_up[i] <= qp.eps:
            if wss != "wr+3" or not limited:
                break
            limited = False
            both = np.minimum(a[:n], a[n:])  # alpha_i alpha*_i = 0 lowers the objective and changes no f
            a -= np.concatenate([both, both])
            continue
        b = F_low - F_up[i]
        curvature = np.diag(Q)[i] + np.diag(Q) - 2.0 * sign[i] * sign * Q[i]
        curvature[curvature <= 0] = tau
        j = int(F_low.argmax()) if wss == "1" else int(np.where(b > 0, b * b / curvature, -1.0).argmax())
        room_i = C[i] - a[i] if sign[i] > 0 else a[i]
        room_j = a[j] if sign[j] > 0 else C[j] - a[j]
        step = min(b[j] / curvature[j], room_i, room_j)
        for k, by in ((i, sign[i] * step), (j, -sign[j] * step)):
            new = C[k] if by > 0 and step == (room_i if k == i else room_j) else a[k] + by
            new = 0.0 if by < 0 and step == (room_i if k == i else room_j) else new
            G += Q[k] * (new - a[k])
            a[k] = new
        fresh[[i, j]] = False
        pairs.append((i, j))
    return a, pairs
