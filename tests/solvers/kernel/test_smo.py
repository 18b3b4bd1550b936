"""`smo` with working sets: LIBSVM's optimum, in memory and out of core; its parts against plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC, SVR

import bigsvm
from bigsvm.compiled.kernel.block_smo import LANES, StepWorkspace, solve_working_set
from bigsvm.compiled.kernel.dual_qp import Box, DualPoint, best_bias, bounds_of, qp_sums
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.smo import active_set
from bigsvm.solvers.kernel.smo.round_work import FAR, FLAGS
from bigsvm.solvers.kernel.smo.smo import Smo
from bigsvm.solvers.kernel.state import OpenModel, terms
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem


def noisy(n: int = 600, d: int = 6, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Classes that overlap: many rows at C, some free."""
    X, y = random_problem(n, d, seed=seed, noise=0.25)
    return X, y


def a_part(n: int, epsilon: float, seed: int) -> tuple[DualQP, np.ndarray]:
    """A programme at a feasible point, and its K."""
    rng = np.random.default_rng(seed)
    X, y = noisy(n, seed=seed)
    K = Kernel("rbf", 0.2).matrix(X, X)
    C = rng.uniform(0.2, 2.0, n)
    lower, upper = (-C, C) if epsilon else (np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0))
    target = rng.standard_normal(n) if epsilon else y
    qp = DualQP(target, lower, upper, epsilon, np.zeros(n), -target)
    return qp, K


def padded(a: np.ndarray, q: int) -> np.ndarray:
    out = np.zeros((q,) * a.ndim)
    out[tuple(slice(0, n) for n in a.shape)] = a
    return out


def room_of(q: int) -> StepWorkspace:
    return StepWorkspace(np.empty(q), np.empty(q), np.empty(q, np.float32))


@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("n", [3, 64, 130])
def test_a_working_set_is_solved(n: int, epsilon: float, second: bool) -> None:
    qp, K = a_part(n, epsilon, n)
    q = -(-n // LANES) * LANES
    diag, box = padded(np.ones(n), q), Box(padded(qp.lower, q), padded(qp.upper, q))
    beta, f = padded(qp.beta, q), padded(qp.f, q)
    steps, violation = solve_working_set(
        padded(K, q), diag, box, epsilon, DualPoint(beta, f), 1e-9, 100_000, second, room_of(q)
    )  # fmt: skip
    qp.beta[:], qp.f[:] = beta[:n], f[:n]
    assert steps > 0
    assert violation <= 1e-9
    assert qp.violation() <= 1e-9
    assert qp.f == pytest.approx(K @ qp.beta - qp.target, abs=1e-12)
    assert abs(qp.beta.sum()) < 1e-12
    assert np.all((qp.beta >= qp.lower) & (qp.beta <= qp.upper))
    assert not beta[n:].any()


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_after_every_step_the_violation_is_that_of_all_rows(epsilon: float) -> None:
    """The two that moved among them: one that a step has not brought to its bound may be the next."""
    n = q = 2 * LANES
    for seed in range(3):
        for most in range(40):
            qp, K = a_part(n, epsilon, seed)
            point = DualPoint(qp.beta, qp.f)
            steps, violation = solve_working_set(
                K, np.ones(n), qp.box, epsilon, point, 1e-9, most, True, room_of(q)
            )  # fmt: skip
            assert steps == most
            assert violation == pytest.approx(qp.violation(), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_the_best_bias_has_the_least_loss(epsilon: float) -> None:
    for seed in range(20):
        qp, K = a_part(40 + seed, epsilon, seed)
        rng = np.random.default_rng(seed)
        qp.beta[:] = rng.uniform(qp.lower, qp.upper)
        qp.f[:] = K @ qp.beta - qp.target
        sides = (qp.f, qp.lower, qp.upper, epsilon)

        def loss(b: float, qp: DualQP = qp) -> float:
            return qp_sums(qp.f, qp.beta, qp.lower, qp.upper, qp.target, qp.epsilon, b)[1]

        b = best_bias(*sides)
        places = np.concatenate([-qp.f - epsilon, -qp.f + epsilon])
        least = min(loss(float(place)) for place in places)
        assert loss(b) <= least * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.1, 0.25])
def test_breakpoints_that_coincide_but_for_rounding_end_a_flat_part(epsilon: float) -> None:
    """Rows on both edges of the tube: by its residual one is before the bias, by its breakpoint behind it."""
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 15))
        f = 0.1 * rng.integers(-5, 6, n) + rng.normal()
        upper = rng.choice([1.0, 1.0, 0.3, 3.0], n)
        lower = -upper

        def loss(b: float, f: np.ndarray = f, upper: np.ndarray = upper) -> float:
            return float(upper @ np.maximum(0.0, np.abs(f + b) - epsilon))

        least = min(loss(float(place)) for place in np.concatenate([-f - epsilon, -f + epsilon]))
        assert loss(best_bias(f, lower, upper, epsilon)) <= least * (1 + 1e-12) + 1e-13


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("values", ["all different", "many alike"])
def test_the_best_bias_does_not_depend_on_how_many_rows_are_looked_at_apart(epsilon: float, values: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 400))
        f = rng.normal(size=n) if values == "all different" else rng.integers(-3, 4, n).astype(float)
        cost = rng.choice([0.0, 0.25, 1.0, 3.0], n)  # whose sums are exact
        upper = cost * (rng.random(n) < 0.5) if epsilon == 0.0 else cost
        lower = upper - cost if epsilon == 0.0 else -cost
        found = {best_bias(f, lower, upper, epsilon, room) for room in (1, 2, 7, 50, n, 1000)}
        assert len(found) == 1
        b = found.pop()
        places = np.concatenate([-f - epsilon, -f + epsilon])

        def loss(b: float, f: np.ndarray = f, lower: np.ndarray = lower, upper: np.ndarray = upper) -> float:
            return qp_sums(f, 0.0 * f, lower, upper, 0.0 * f, epsilon, b)[1]

        assert loss(b) <= min(loss(float(place)) for place in places) * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_gap_is_primal_less_dual(epsilon: float) -> None:
    qp, K = a_part(80, epsilon, 5)
    rng = np.random.default_rng(0)
    # A feasible point: the programme's own solution of half of the rows, moved about.
    qp.beta[:] = 0.5 * rng.uniform(qp.lower, qp.upper)
    positive, negative = qp.beta.clip(min=0).sum(), -qp.beta.clip(max=0).sum()
    qp.beta[qp.beta > 0] *= min(negative / positive, 1.0)
    qp.beta[qp.beta < 0] *= min(positive / negative, 1.0)
    qp.f[:] = K @ qp.beta - qp.target
    gap, loss, beta_f, beta_t, size = qp_sums(
        qp.f, qp.beta, qp.lower, qp.upper, qp.target, epsilon, 0.3
    )  # fmt: skip
    quadratic = qp.beta @ K @ qp.beta
    r = qp.target - K @ qp.beta - 0.3
    y = np.sign(qp.target)
    cost = np.maximum(qp.upper, -qp.lower)
    expected = cost * (np.maximum(np.abs(r) - epsilon, 0.0) if epsilon else np.maximum(y * r, 0.0))
    dual = qp.target @ qp.beta - epsilon * np.abs(qp.beta).sum() - 0.5 * quadratic
    assert loss == pytest.approx(expected.sum(), rel=1e-12)
    assert beta_f + beta_t == pytest.approx(quadratic, rel=1e-10)
    assert size == pytest.approx(np.abs(qp.beta).sum())
    assert gap == pytest.approx(0.5 * quadratic + loss - dual, rel=1e-10)
    assert terms(qp, 0.3) == pytest.approx((gap, 0.5 * quadratic + loss, dual), rel=1e-10)
    up, down = qp.up(), qp.down()
    assert bounds_of(qp.f, qp.beta, qp.lower, qp.upper, epsilon) == (up.min(), down.max())


def test_bounds_of_rows_at_the_kink() -> None:
    qp, K = a_part(80, 0.1, 5)
    qp.beta[::2] = 0.5 * qp.upper[::2]
    qp.beta[1::4] = qp.lower[1::4]
    qp.f[:] = K @ qp.beta - qp.target
    assert np.count_nonzero(qp.beta == 0.0) == 20
    up, down = qp.up(), qp.down()
    np.testing.assert_array_equal(up[qp.beta == 0.0], qp.f[qp.beta == 0.0] + 0.1)
    np.testing.assert_array_equal(down[qp.beta == 0.0], qp.f[qp.beta == 0.0] - 0.1)
    sides = (qp.f, qp.beta, qp.lower, qp.upper, qp.epsilon)
    assert bounds_of(*sides) == (up.min(), down.max())
    for row in np.flatnonzero(qp.beta == 0.0):  # also where such a row is the one that decides
        one = [np.ascontiguousarray(side[row : row + 1]) for side in sides[:4]]
        assert bounds_of(*one, qp.epsilon) == (up[row], down[row])


def test_a_flat_bias_is_taken_in_its_middle() -> None:
    """One row of either class at beta = 0: every bias between -1 and 1 is as good."""
    f, lower, upper = np.array([-1.0, 1.0]), np.array([0.0, -1.0]), np.array([1.0, 0.0])
    assert best_bias(f, lower, upper, 0.0) == pytest.approx(0.0, abs=1e-12)
    assert best_bias(f - 5.0, lower, upper, 0.0) == pytest.approx(5.0)


@pytest.mark.parametrize("second", [True, False])
def test_equal_rows_of_a_working_set_are_chosen_by_the_lowest_number(second: bool) -> None:
    q, y = 2 * LANES, np.where(np.arange(2 * LANES) % 3 == 0, -1.0, 1.0)
    K = np.where(y[:, None] == y[None, :], 1.0, 0.2)
    beta, f = np.zeros(q), -y
    box = Box(np.minimum(y, 0.0), np.maximum(y, 0.0))
    for step in range(1, 4):
        solve_working_set(K, np.ones(q), box, 0.0, DualPoint(beta, f), 1e-9, 1, second, room_of(q))
        first = [np.flatnonzero(y == side)[:step] for side in (1.0, -1.0)]
        assert set(np.flatnonzero(beta)) <= set(np.concatenate(first).tolist())


def test_a_step_to_a_bound_ends_there_exactly() -> None:
    """Where beta + (bound - beta) is not the bound."""
    rng, q = np.random.default_rng(11), LANES
    bounds, starts = rng.uniform(0.5, 1.0, 500), rng.uniform(0.0, 0.4, 500)
    rounded = np.flatnonzero(starts + (bounds - starts) != bounds)[:5]
    assert len(rounded) == 5
    for bound, start in zip(bounds[rounded], starts[rounded], strict=True):
        for row in (0, 1):  # 0 goes up to its bound, 1 down; the other has room left
            lower, upper, beta, f = np.zeros(q), np.zeros(q), np.zeros(q), np.zeros(q)
            lower[1], upper[0] = -9.0, 9.0
            (upper if row == 0 else lower)[row] = bound if row == 0 else -bound
            beta[row] = start if row == 0 else -start
            f[:2] = -50.0, 50.0
            box, point = Box(lower, upper), DualPoint(beta, f)
            solve_working_set(np.eye(q), np.ones(q), box, 0.0, point, 1e-9, 1, True, room_of(q))
            assert beta[row] == (bound if row == 0 else -bound)


@pytest.mark.parametrize("start", [(-0.3, 0.2), (-0.2, 0.3)])
def test_a_step_stops_where_the_size_of_beta_bends(start: tuple[float, float]) -> None:
    q = LANES
    lower, upper, beta, f = np.zeros(q), np.zeros(q), np.zeros(q), np.zeros(q)
    lower[:2], upper[:2], beta[:2], f[:2] = -9.0, 9.0, start, (-5.0, 5.0)
    box, point = Box(lower, upper), DualPoint(beta, f)
    solve_working_set(np.eye(q), np.ones(q), box, 0.1, point, 1e-9, 1, True, room_of(q))
    assert beta[:2].tolist() == pytest.approx([-0.1, 0.0] if start[1] == 0.2 else [0.0, 0.1])
    assert 0.0 in beta[:2].tolist()


@pytest.mark.parametrize("scale", [1.0, 1e20, 1e44, 1e300])
def test_gains_beyond_float32_choose_rows_that_may_move(scale: float) -> None:
    """Violations whose square is no float32, and no float64: beta stays in its box, balanced, and comes to its end."""
    qp, K = a_part(130, 0.0, 4)
    q = 3 * LANES
    box, beta = Box(padded(qp.lower, q), padded(qp.upper, q)), padded(qp.beta, q)
    f = padded(scale * (K @ qp.beta) - qp.target, q)
    f[:4] += scale * np.array([3.0, -2.0, 5.0, -7.0])
    steps, left = solve_working_set(
        padded(scale * K, q), padded(np.full(130, scale), q), box, 0.0, DualPoint(beta, f), 1e-6 * scale, 5000, True,
        room_of(q),
    )  # fmt: skip
    assert steps < 1000
    assert left <= 1e-6 * scale
    assert np.all((beta >= box.lower) & (beta <= box.upper))
    assert abs(beta.sum()) <= 1e-12 * np.abs(beta).sum()


def test_rows_at_their_bounds_are_there_exactly() -> None:
    qp, K = a_part(128, 0.0, 9)
    solve_working_set(K, np.ones(128), qp.box, 0.0, qp.point, 1e-9, 100_000, True, room_of(128))
    cost = qp.upper - qp.lower
    for end in (qp.lower, qp.upper):
        near = np.abs(qp.beta - end) < 1e-12 * cost
        assert np.count_nonzero(near & (end != 0.0)) > 10
        np.testing.assert_array_equal(qp.beta[near], end[near])


@pytest.mark.parametrize("streams", [False, True])
def test_more_rows_than_an_active_set_have_libsvms_optimum(
    streams: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """After every round f is that of beta for all rows, whether they were active or not; but for rows that are far."""
    if streams:
        request.getfixturevalue("streaming")
    monkeypatch.setattr(active_set, "_SMALL", 32)
    X, y = noisy()
    K, rounds = Kernel("rbf", 0.3).matrix(X, X), []
    step_models = Smo.step_models

    def watched(self: Smo, models: Sequence[OpenModel], *others: Any) -> Any:
        (progress,), qp = step_models(self, models, *others), models[0].qp
        if qp.n == len(K) and not (progress.paused or progress.stale or streams):
            rounds.append(progress.iterations)
            near = (qp.own[FLAGS] & FAR) == 0
            assert qp.f[near] == pytest.approx((K @ qp.beta - qp.target)[near], abs=1e-4)
        return [progress]

    monkeypatch.setattr(Smo, "step_models", watched)
    ours = bigsvm.fit((X, y), kernel="rbf", gamma=0.3, C=1.0, stop="paper", tol=1e-4, working_set=64)
    theirs = SVC(C=1.0, gamma=0.3, tol=1e-6).fit(X, y)
    beta = np.zeros(len(y))
    beta[theirs.support_] = theirs.dual_coef_[0]
    assert ours.status == "paper_rule"
    assert ours.figures["dual_objective"] == pytest.approx(np.abs(beta).sum() - 0.5 * beta @ K @ beta, rel=1e-6)
    assert streams or len(rounds) > 2


CASES: list[dict[str, Any]] = [
    {"kernel": "rbf", "gamma": 0.3, "C": 1.0},
    {"kernel": "rbf", "gamma": 2.0, "C": 100.0},
    {"kernel": "poly", "gamma": 0.3, "degree": 2, "coef0": 1.0, "C": 0.5},
    {"kernel": "linear", "C": 0.3},
]


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("options", CASES, ids=lambda options: f"{options['kernel']}-{options['C']}")
def test_the_optimum_is_that_of_libsvm(
    options: dict[str, Any], streams: bool, layout: str, request: pytest.FixtureRequest
) -> None:
    if streams:
        request.getfixturevalue("streaming")
    X, y = noisy()
    theirs = SVC(tol=1e-6, cache_size=50, **options).fit(X, y)
    beta = np.zeros(len(y))
    beta[theirs.support_] = theirs.dual_coef_[0]
    shape = (options.get("gamma", 1.0), options.get("degree", 3), options.get("coef0", 0.0))
    kernel = Kernel(options["kernel"], *shape)
    best = np.abs(beta).sum() - 0.5 * beta @ kernel.matrix(X, X) @ beta
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    ours = bigsvm.fit((rows, y), solver="smo", stop="paper", tol=1e-5, working_set=128, **options)
    assert ours.status == "paper_rule"
    assert ours.figures["dual_objective"] == pytest.approx(best, rel=1e-6)
    assert ours.figures["violation"] <= 1e-5
    assert ours.figures["objective"] - ours.figures["dual_objective"] == pytest.approx(
        ours.figures["duality_gap"], rel=1e-3, abs=1e-9 * best
    )
    assert ours.model.decision_function(X) == pytest.approx(theirs.decision_function(X), abs=2e-3)


@pytest.mark.parametrize("streams", [False, True])
def test_regression_is_libsvms_too(streams: bool, request: pytest.FixtureRequest) -> None:
    if streams:
        request.getfixturevalue("streaming")
    rng = np.random.default_rng(3)
    X = rng.standard_normal((500, 4))
    t = np.sin(X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.1 * rng.standard_normal(500)
    theirs = SVR(kernel="rbf", gamma=0.4, C=2.0, epsilon=0.15, tol=1e-7).fit(X, t)
    store = ArrayRows(X, t, task="regression")
    ours = bigsvm.fit(
        store, kernel="rbf", gamma=0.4, C=2.0, loss="epsilon_insensitive", epsilon=0.15, stop="paper", tol=1e-6
    )
    beta = theirs.dual_coef_[0]
    K = Kernel("rbf", 0.4).matrix(X[theirs.support_], X[theirs.support_])
    best = t[theirs.support_] @ beta - 0.15 * np.abs(beta).sum() - 0.5 * beta @ K @ beta
    assert ours.figures["dual_objective"] == pytest.approx(best, rel=1e-7)
    assert ours.model.predict(X) == pytest.approx(theirs.predict(X), abs=1e-4)


def test_rows_that_do_not_fit_wait_on_disk(streaming: None) -> None:
    X, y = noisy(9000, 5)
    together = bigsvm.fit((X, y), kernel="rbf", gamma=0.5, C=1.0, memory="512MiB")
    assert together.figures["passes"] > 2  # rows stream here whatever the budget is
    assert together.status == "converged"
    assert together.figures["relative_gap"] <= 1e-3


def test_an_indefinite_kernel_has_no_certificate() -> None:
    X, y = noisy(200)
    found = bigsvm.fit((X, y), kernel="sigmoid", gamma=1.0, C=1.0)
    assert found.status == "kkt"
    assert found.figures["certificate"] == "none"
    assert found.figures["violation"] <= 1e-3
    assert found.exit_code() == 0


def test_same_options_same_bytes_whatever_the_threads(tmp_path: Path) -> None:
    X, y = noisy(5000, 5)
    found = []
    for threads in (1, 3):
        bigsvm.fit((X, y), kernel="rbf", gamma=0.5, threads=threads, memory="256MiB").save_model(
            tmp_path / str(threads)
        )
        found.append({p.name: p.read_bytes() for p in sorted((tmp_path / str(threads)).iterdir())})
    assert found[0] == found[1]


def test_more_free_rows_than_memory_holds_do_not_keep_the_others_out() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 30)).astype(np.float32)
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(6000) > 0, 1, -1)
    options: dict[str, Any] = {"kernel": "rbf", "gamma": 1.0 / 3.0, "C": 10.0}
    least = bigsvm.fit((X, y), memory="1GiB", **options)
    scarce = bigsvm.fit((X, y), memory="27MiB", max_passes=100, **options)
    assert not scarce.model.about["plan"]["resident"]
    assert scarce.status == least.status == "converged"
    assert scarce.figures["dual_objective"] == pytest.approx(least.figures["dual_objective"], rel=1e-3)
