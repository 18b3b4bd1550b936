"""Single steps of Rosen's gradient projection, its working sets, and what it counts."""

from __future__ import annotations

import copy

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
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.rosen.rosen import Block, Rosen
from bigsvm.solvers.kernel.rosen.rosen_block import RosenBlock, working_set
from bigsvm.solvers.kernel.rosen.rosen_face import Workspace, look
from bigsvm.testing.matrix_rows import MatrixRows
from tests.solvers.kernel.rosen_problems import classification, fits, gram, made_up, objective, regression, solve

__all__ = ["fits"]


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


def test_work_space_is_of_one_type_whatever_was_worked_on_before() -> None:
    """An array with gaps between its rows would have the loop compiled for it anew."""
    workspace = Workspace()
    for m in (40, 40 + 40 // 4 + 32, 7, 300):
        for inner in (NEWTON, NEWTON + 1):
            e, rest = workspace.of(m, inner)
            assert len(e) == len(rest.r) == len(rest.z) == m
            assert rest.square.shape == ((m + 2, m) if inner == NEWTON else (0, 0))
            assert rest.square.flags.c_contiguous
