"""Rosen's gradient projection: invariants after every call, the optimum beside scikit-learn's, degenerate data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.compiled.kernel.dual_qp import Box, DualPoint
from bigsvm.compiled.kernel.rosen import (
    DUE,
    FACE,
    NEWTON,
    RELEASE,
    Descent,
    DescentWorkspace,
    LastDirection,
    _end,
    descend,
)
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.rosen.rosen import Block, Rosen
from bigsvm.solvers.kernel.rosen.rosen_block import RosenBlock, working_set
from bigsvm.solvers.kernel.rosen.rosen_face import Workspace, look
from bigsvm.store.state.state_files import dump, load
from bigsvm.testing.matrix_rows import MatrixRows

SOLVERS = [
    Rosen(), Rosen(full=True), Rosen(inner="newton"), Rosen(inner="steepest"), RosenBlock(), RosenBlock(q=4),
    RosenBlock(q=10, max_set=12), RosenBlock(inner="newton"),
]  # fmt: skip


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


def test_the_kink_is_a_bound_that_rows_cross() -> None:
    """A warm start on the wrong side of 0: beta stops there, and goes on with the other slope."""
    t = np.array([1.0, -1.0, 0.5, -0.5])
    K, qp = np.eye(4), regression(t, 1.0, 0.1)
    qp.beta[:] = np.array([-0.5, 0.5, -0.25, 0.25])
    qp.f[:] = K @ qp.beta - t
    for solver in (Rosen(), RosenBlock()):
        one = copy.deepcopy(qp)
        solve(solver, one, K)
        np.testing.assert_allclose(one.beta, np.sign(t) * (np.abs(t) - 0.1), atol=1e-6)


@pytest.mark.parametrize(
    ("beta", "e", "end"), [(-0.5, 1.0, 0.0), (0.5, -1.0, 0.0), (0.0, 1.0, 2.0), (0.0, -1.0, -3.0), (0.5, 1.0, 2.0)]
)
def test_a_row_stops_at_0_on_its_way_to_a_bound(beta: float, e: float, end: float) -> None:
    assert _end(beta, -3.0, 2.0, e) == end


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


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]), st.booleans())
def test_one_step_descends_and_a_released_row_may_move(seed: int, epsilon: float, newton: bool) -> None:
    """e.z >= 0, the objective falls by what is said, and the released p leaves its bound to the inside."""
    rng = np.random.default_rng(seed)
    n = 12
    X, C = rng.normal(size=(n, 3)), 1.0
    K = gram(X, 0.3)
    beta = np.clip(rng.normal(size=n), -C, C) * (rng.random(n) < 0.7)
    target = rng.normal(size=n)
    qp = DualQP(target, np.full(n, -C), np.full(n, C), epsilon, beta, K @ beta - target)
    now, before = look(qp), beta.copy()
    e, r, z, memory, counts = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(2), np.zeros(5, np.int64)
    square = np.zeros((n + 2, n))
    start = objective(qp, K)
    numbers = np.arange(n)
    how = Descent(2 * newton, stop=0.0, small=0.0, theta=1e9, level=0.0, releases=1, most=1, most_work=10**9)
    last, room = LastDirection(e, memory), DescentWorkspace(r, z, square)
    _, gain = descend(K, 1.0, numbers, qp.point, qp.box, epsilon, how, last, room, counts)
    assert abs(e.sum()) < 1e-12
    assert e @ z >= 0.0
    np.testing.assert_allclose(z, K @ e, atol=1e-13)
    np.testing.assert_allclose(qp.f, K @ beta - target, atol=1e-13)
    assert start - objective(qp, K) == pytest.approx(gain, abs=1e-12)
    assert gain > 0.0
    if counts[RELEASE]:
        assert now.p >= 0
        moved = beta[now.p] - before[now.p]
        assert moved * e[now.p] > 0
        assert qp.lower[now.p] <= beta[now.p] <= qp.upper[now.p]
        assert abs(e[now.p]) == pytest.approx(len(now.free) / (len(now.free) + 1) * now.multiplier)


def nothing_yet(m: int) -> tuple[LastDirection, DescentWorkspace]:
    """No direction of before, and room for m rows without Newton's square."""
    return LastDirection(np.zeros(m), np.zeros(2)), DescentWorkspace(np.zeros(m), np.zeros(m), np.zeros((0, 0)))


@pytest.mark.parametrize(("theta", "released"), [(0.5, 0), (0.8, 1)])
def test_theta_decides_when_a_row_is_released(theta: float, released: int) -> None:
    """Inside the face 0.3 is left, and a row at its bound wants to move by 0.4."""
    beta, f = np.array([0.5, 0.5, 0.0, 0.5]), np.array([-0.3, 0.3, -0.4, 0.0])
    lower, upper, counts = np.zeros(4), np.ones(4), np.zeros(5, np.int64)
    how = Descent(0, stop=1e-9, small=0.0, theta=theta, level=0.0, releases=1, most=1, most_work=10**9)
    descend(np.eye(4), 1.0, np.arange(4), DualPoint(beta, f), Box(lower, upper), 0.0, how, *nothing_yet(4), counts)
    assert counts[FACE] + counts[RELEASE] == 1
    assert counts[RELEASE] == released
    assert (beta[2] > 0.0) == bool(released)


def test_no_release_is_made_that_is_not_allowed() -> None:
    K, y = np.eye(4), np.array([1.0, 1.0, -1.0, -1.0])
    qp = classification(y, 1.0)
    counts = np.zeros(5, np.int64)
    how = Descent(0, stop=0.0, small=0.0, theta=0.5, level=0.0, releases=0, most=100, most_work=10**9)
    reason, gain = descend(K, 1.0, np.arange(4), qp.point, qp.box, 0.0, how, *nothing_yet(4), counts)
    assert reason == DUE
    assert gain == 0.0
    assert not counts.any()


def test_fewer_kernel_values_than_one_row_a_step_and_a_row_that_moves() -> None:
    """Faces cost one update a release, and what the paper would count is counted as well."""
    X, y = made_up(200, 15)
    found = {}
    for full in (False, True):
        qp, rows, solver = classification(y, 10.0, eps=2e-3), MatrixRows(gram(X, 0.1)), Rosen(full=full)
        work = solver.start_model(qp, rows, None)
        while not solver.step_model(qp, work, rows, None).done:
            pass
        found[full] = rows.counts.values, int(work.counts[3]) * 200, work.steps, work.updates
    assert found[False][0] < 0.6 * found[False][1]
    assert found[True][3] == found[True][2]
    assert found[False][3] < 0.6 * found[False][2]
    assert found[True][2] <= 1.05 * found[False][2]


def test_rounds_are_passes() -> None:
    X, y = made_up(300, 17)
    K = gram(X, 0.5)
    qp, rows = classification(y, 1.0, eps=2e-3), MatrixRows(K)
    solver = RosenBlock(q=100)
    work = solver.start_model(qp, rows, None)
    progress = solver.step_model(qp, work, rows, None)
    assert progress.done
    assert progress.iterations == work.updates <= 12 < work.steps
    assert progress.visits == 300 * work.updates


def test_the_working_set_keeps_the_pair_and_the_largest_violations() -> None:
    X, y = made_up(60, 19)
    K, qp = gram(X, 0.5), classification(y, 1.0)
    solve(Rosen(), qp, K)
    qp.f += 0.1 * np.random.default_rng(1).normal(size=60)
    now = look(qp)
    W = working_set(qp, now, 10, 100)
    assert set(now.free) | {now.i_up, now.i_low} <= set(W.tolist())
    assert len(W) <= len(now.free) + 10 + 2
    assert np.all(np.diff(W) > 0)
    few = working_set(qp, now, 10, 5)
    assert len(few) == 5
    assert {now.i_up, now.i_low} <= set(few.tolist()) <= set(W.tolist())
    violation = np.maximum(now.centre - now.up, now.down - now.centre)
    assert violation[few].min() >= violation[np.setdiff1d(W, few)].max()


def test_a_block_of_kernel_values_follows_its_rows() -> None:
    K = gram(np.random.default_rng(2).normal(size=(20, 3)), 0.5)
    rows = MatrixRows(K)
    block = Block(rows, 20)
    for wanted in ([3, 1, 7], [3, 7, 19, 0], [19], list(range(20)), [5, 4]):
        block.take(np.array(wanted))
        assert sorted(block.numbers.tolist()) == sorted(wanted)
        assert np.array_equal(block.K, K[np.ix_(block.numbers, block.numbers)])
    spent = rows.counts.values
    block.take(np.array([4, 5]))
    assert rows.counts.values == spent


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


def test_work_space_is_of_one_type_whatever_was_worked_on_before() -> None:
    """An array with gaps between its rows would have the loop compiled for it anew."""
    workspace = Workspace()
    for m in (40, 40 + 40 // 4 + 32, 7, 300):
        for inner in (NEWTON, NEWTON + 1):
            e, rest = workspace.of(m, inner)
            assert len(e) == len(rest.r) == len(rest.z) == m
            assert rest.square.shape == ((m + 2, m) if inner == NEWTON else (0, 0))
            assert rest.square.flags.c_contiguous
