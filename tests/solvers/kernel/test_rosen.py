"""Rosen's gradient projection: invariants after every call, the optimum beside scikit-learn's, degenerate data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.rosen.rosen import Rosen
from bigsvm.solvers.kernel.rosen.rosen_block import RosenBlock
from bigsvm.store.state.state_files import dump, load
from bigsvm.testing.matrix_rows import MatrixRows
from tests.solvers.kernel.rosen_problems import check, classification, fits, gram, made_up, objective, regression, solve

__all__ = ["fits"]

SOLVERS = [
    Rosen(), Rosen(full=True), Rosen(inner="newton"), Rosen(inner="steepest"), RosenBlock(), RosenBlock(q=4),
    RosenBlock(q=10, max_set=12), RosenBlock(inner="newton"),
]  # fmt: skip


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_svc_optimum_of_scikit_learn(solver: Any, C: float) -> None:
    from sklearn.svm import SVC

    X, y = made_up(120, 1)
    K, qp = gram(X, 0.5), classification(y, C)
    _, progress = solve(solver, qp, K)
    assert progress.done
    assert qp.violation() <= 1e-6
    judge = SVC(kernel="precomputed", C=C, tol=1e-9).fit(K, y)
    theirs = np.zeros(len(y))
    theirs[judge.support_] = judge.dual_coef_[0]
    reference = 0.5 * theirs @ K @ theirs - y @ theirs
    assert objective(qp, K) == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("epsilon", [0.2, 0.0])
def test_svr_optimum_of_scikit_learn(solver: Any, epsilon: float) -> None:
    from sklearn.svm import SVR

    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2))
    t = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=80)
    K, qp = gram(X, 1.0), regression(t, 2.0, epsilon)
    _, progress = solve(solver, qp, K)
    assert progress.done
    judge = SVR(kernel="precomputed", C=2.0, epsilon=epsilon, tol=1e-9).fit(K, t)
    theirs = np.zeros(80)
    theirs[judge.support_] = judge.dual_coef_[0]
    reference = 0.5 * theirs @ K @ theirs - t @ theirs + epsilon * np.abs(theirs).sum()
    assert objective(qp, K) == pytest.approx(reference, rel=1e-6)
    assert np.any(qp.beta > 0)
    assert np.any(qp.beta < 0)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 40), st.sampled_from([0.05, 1.0, 1e3]), st.sampled_from(SOLVERS[:6]))
def test_any_small_problem(seed: int, n: int, C: float, solver: Any) -> None:
    """Rows drawn from few places, so that many are equal, with either label; C differs from row to row."""
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 3, (n, 2)).astype(float), rng.choice([-1.0, 1.0], n)
    K, qp = gram(X, 0.7), classification(y, C * rng.uniform(0.5, 2.0, n), eps=1e-5)
    if getattr(solver, "inner", "") == "steepest" and C > 1:
        solver = Rosen()  # steepest descent crawls through long flat boxes
    _, progress = solve(solver, qp, K)
    assert progress.done
    assert progress.violation == qp.violation() <= 1e-5


@pytest.mark.parametrize("solver", [Rosen(), Rosen(inner="newton"), RosenBlock(q=10)], ids=repr)
def test_degenerate_rows(solver: Any) -> None:
    """One class; all rows equal (K of rank 1); pairs of equal rows with opposite labels; no curvature at all."""
    X, y = made_up(30, 5)
    qp = classification(np.ones(30), 1.0)
    _, progress = solve(solver, qp, gram(X, 0.5))
    assert progress.done
    assert not qp.beta.any()
    assert qp.violation() == -np.inf  # nothing may move

    y = np.where(np.arange(30) < 10, 1.0, -1.0)
    qp = classification(y, 2.0)
    _, progress = solve(solver, qp, np.ones((30, 30)))
    assert progress.done
    assert objective(qp, np.ones((30, 30))) == pytest.approx(-40.0)  # all of the smaller class at C

    X, y = np.repeat(X, 2, axis=0), np.tile([1.0, -1.0], 30)
    qp = classification(y, 3.0)
    K = gram(X, 0.5)
    _, progress = solve(solver, qp, K)
    assert progress.done
    assert objective(qp, K) == pytest.approx(-180.0)  # nothing separates them: every row at C

    qp = classification(y, 3.0)
    _, progress = solve(solver, qp, np.zeros((60, 60)))
    assert progress.done
    assert objective(qp, np.zeros((60, 60))) == -180.0


@pytest.mark.parametrize("solver", [Rosen(), Rosen(inner="newton"), RosenBlock(q=20)], ids=repr)
def test_huge_C(solver: Any) -> None:
    X, y = made_up(60, 7, noise=0.3)
    X[30:] = X[:30]  # half of them with both labels
    qp = classification(y, 1e6, eps=1e-4)
    _, progress = solve(solver, qp, gram(X, 0.5))
    assert progress.done


@pytest.mark.parametrize("solver", [Rosen(), RosenBlock()], ids=repr)
def test_what_floating_point_does_not_allow_ends(solver: Any) -> None:
    X, y = made_up(60, 9)
    qp = classification(y, 10.0, eps=0.0)
    _, progress = solve(solver, qp, gram(X, 0.5))
    assert progress.done or progress.exhausted
    assert qp.violation() < 1e-11


@pytest.mark.parametrize("solver", [Rosen(), Rosen(inner="newton"), RosenBlock(q=20), RosenBlock(q=10, max_set=20)])
def test_a_saved_state_goes_on_to_the_same_bits(solver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of a round: calls are made short."""
    monkeypatch.setattr("bigsvm.solvers.kernel.rosen.rosen._CALL_WORK", 20_000)
    monkeypatch.setattr("bigsvm.solvers.kernel.rosen.rosen_block._CALL_WORK", 20_000)
    X, y = made_up(150, 11)
    K = gram(X, 0.5).astype(np.float32)

    def run(save: bool) -> tuple[DualQP, Any, int]:
        qp, rows = classification(y, 5.0), MatrixRows(K)
        work, calls, inside = solver.start_model(qp, rows, None), 0, 0
        while not (done := solver.step_model(qp, work, rows, None)).done:
            assert not done.exhausted
            calls += 1
            inside += getattr(work, "stop", -1.0) >= 0
            if save:
                tree = copy.deepcopy(dump([qp, work]))
                qp, rows = classification(y, 5.0), MatrixRows(K)
                work = solver.start_model(qp, rows, None)
                load([qp, work], tree)
            check(qp, K)
        assert inside or solver.name == "rosen" or solver.max_set == 20  # whose rounds are as short as a call
        return qp, work, calls

    qp, work, calls = run(False)
    again, saved, as_many = run(True)
    assert calls == as_many > 3
    assert np.array_equal(qp.beta, again.beta)
    assert np.array_equal(qp.f, again.f)
    assert np.array_equal(work.counts, saved.counts)


def test_float32_kernel_values() -> None:
    X, y = made_up(100, 13)
    K = gram(X, 0.5)
    for solver in (Rosen(), RosenBlock()):
        qp, reference = classification(y, 1.0), classification(y, 1.0)
        solve(solver, qp, K.astype(np.float32))
        solve(solver, reference, K)
        assert objective(qp, K) == pytest.approx(objective(reference, K), rel=1e-5)


@pytest.mark.parametrize("solver", [Rosen(), Rosen(inner="newton"), RosenBlock(q=20)], ids=repr)
@pytest.mark.parametrize("most", [3, 7])
def test_a_face_larger_than_memory_is_worked_on_in_parts(
    solver: Any, most: int, fits: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimum is the same, and K is never of more rows than there is room for."""
    rng, largest = np.random.default_rng(3), []
    X = rng.normal(size=(60, 2))
    t = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=60)
    K, whole, qp = gram(X, 1.0), regression(t, 2.0, 0.1), regression(t, 2.0, 0.1)
    solve(solver, whole, K)
    assert np.count_nonzero(whole.free()) > 7
    fits(most)
    block = MatrixRows.block

    def counted(rows: MatrixRows, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        largest.append(len(b))
        return block(rows, a, b)

    monkeypatch.setattr(MatrixRows, "block", counted)
    _, progress = solve(solver, qp, K, 20_000)
    assert progress.done
    assert 3 <= max(largest) <= most
    assert objective(qp, K) == pytest.approx(objective(whole, K), rel=1e-9)


def test_options_that_are_none() -> None:
    for bad in ({"inner": "lbfgs"}, {"theta": 0.0}, {"theta": float("nan")}):
        with pytest.raises(ValueError, match="must be"):
            Rosen(**bad)
        with pytest.raises(ValueError, match="must be"):
            RosenBlock(**bad)
    with pytest.raises(ValueError, match="at least 2"):
        RosenBlock(q=1)
