"""The textbook engine: snapshots, LIBSVM step for step, the rules again in NumPy, and what rules promise."""

from __future__ import annotations

import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC, SVR

from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.smo import textbook
from bigsvm.solvers.kernel.smo.textbook import Textbook
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from bigsvm.testing.matrix_rows import MatrixRows
from tests.products import pairs_of
from tests.solvers.kernel.programmes import blobs, check, classification, in_two_l_variables, objective, regression
from tests.solvers.kernel.programmes import solve as solved

RULES = ["1", "2", "3", "keerthi2", "wr+3"]


@pytest.fixture
def heart(real_data: ModuleType) -> tuple[np.ndarray, np.ndarray]:
    X, y = real_data.load("heart_scale")
    return Kernel("rbf", 1 / 13).matrix(X, X), y


@pytest.mark.parametrize(
    ("C", "wss", "iterations", "dual"),
    [(1.0, "wr", 61, -94.554), (1.0, "3", 140, -100.877), (1.0, "2", 140, -100.877), (100.0, "wr", 49, -868.839),
     (100.0, "3", None, -2526.925), (100.0, "wr+3", None, -2526.925)],
)  # fmt: skip
def test_snapshot_of_heart(
    heart: tuple[np.ndarray, np.ndarray], C: float, wss: str, iterations: int | None, dual: float
) -> None:
    # Steps and dual values of a program that shares nothing with this one; the paper prints none.
    K, y = heart
    qp = classification(y, C)
    run = solved(qp, K, wss)
    assert objective(qp, K) == pytest.approx(dual, abs=6e-4)
    if iterations is not None:
        assert run.iterations == iterations
    if wss == "wr":
        assert (run.last.final, run.last.done) == (True, False)
        assert np.count_nonzero(qp.beta) == 2 * run.iterations
        assert run.last.violation == pytest.approx(qp.violation())


def test_as_many_steps_of_the_third_rule_are_better_than_wr(heart: tuple[np.ndarray, np.ndarray]) -> None:
    K, y = heart
    qp = classification(y, 1.0)
    engine = Textbook(steps=61, wss="3", shrinking=False)
    last = engine.step_model(qp, engine.start_model(qp, MatrixRows(K)), MatrixRows(K))
    assert last.iterations == 61
    assert objective(qp, K) == pytest.approx(-97.754, abs=6e-4)


@pytest.mark.parametrize("shrinking", [False, True])
@pytest.mark.parametrize(("n", "C"), [(100, 1.0), (300, 1.0), (300, 10.0)])
def test_libsvm_step_for_step(n: int, C: float, shrinking: bool) -> None:
    K, y, _ = blobs(n, 4)
    order = np.argsort(y, kind="stable")
    K, y = K[np.ix_(order, order)], y[order]
    theirs = SVC(kernel="precomputed", C=C, tol=1e-3, shrinking=shrinking).fit(K, y)
    beta = np.zeros(n)
    beta[theirs.support_] = theirs.dual_coef_[0]
    # LIBSVM takes the last of equal rows, calls the first label +1, and holds K in float32.
    qp = classification(-y[::-1], C)
    run = solved(qp, K[::-1, ::-1].astype(np.float32), "2", shrinking)
    assert run.iterations == int(theirs.n_iter_[0])
    np.testing.assert_allclose(qp.beta, -beta[::-1], rtol=0, atol=1e-10 * C)
    if shrinking and C > 1:
        assert run.visits < 0.8 * run.iterations * n, "rows left"
        assert run.work.unshrunk, "and came back near the end, once"


def test_the_optimum_of_some_rows_is_not_the_end() -> None:
    """Two rows of one class are all that is active: nothing may move among them."""
    K, y, _ = blobs(60, 3)
    qp, rows = classification(y, 1.0), MatrixRows(K)
    work = Textbook().start_model(qp, rows)
    work.n_active = 2
    work.active[:2] = np.flatnonzero(y > 0)[:2]
    last = Textbook(10_000).step_model(qp, work, rows)
    assert last.done
    assert np.count_nonzero(qp.beta) > 10
    assert qp.violation() <= qp.eps


# Without epsilon a step may pass 0, which is two steps of alpha and alpha*: only wr takes the same ones.
@pytest.mark.parametrize(
    ("kind", "wss"),
    [(kind, wss) for kind in ("classification", "regression") for wss in ("1", "3", "wr", "wr+3")]
    + [("exact regression", "wr")],
)
def test_the_2l_variables_in_numpy_take_the_same_steps(kind: str, wss: str) -> None:
    # Rows that met in a step have the same F up to rounding, so that long runs of other data may part at such a tie.
    K, y, t = blobs(60, 4)
    C = np.random.default_rng(6).uniform(0.5, 4.0, 60)
    qp = classification(y, C) if kind == "classification" else regression(t, C, 0.05 if kind == "regression" else 0.0)
    alpha, pairs = in_two_l_variables(qp, K, wss)
    run = solved(qp, K, wss, record=True)
    assert run.iterations == len(pairs)
    np.testing.assert_allclose(qp.beta, alpha[:60] - alpha[60:], rtol=0, atol=1e-9)
    counts = np.bincount(np.ravel(pairs), minlength=120).reshape(2, 60)
    np.testing.assert_array_equal(run.work.selected, counts)


@pytest.mark.parametrize("wss", ["1", "2", "3", "wr"])
def test_equal_rows_are_chosen_by_the_lowest_number(wss: str) -> None:
    y = np.where(np.arange(20) % 3 == 0, -1.0, 1.0)
    K = np.where(y[:, None] == y[None, :], 1.0, 0.2)
    qp, engine = classification(y, 1.0), Textbook(steps=1, wss=wss)
    work = engine.start_model(qp, MatrixRows(K))
    engine.step_model(qp, work, MatrixRows(K))
    assert np.flatnonzero(qp.beta).tolist() == [0, 1]


@pytest.mark.parametrize("weighted", [False, True])
def test_wr_selects_no_variable_twice(weighted: bool) -> None:
    K, y, _ = blobs(120, 8)
    y[:30] = 1.0
    C = np.random.default_rng(1).uniform(1.0, 30.0, 120) if weighted else np.full(120, 30.0)
    qp = classification(y, C)
    run = solved(qp, K, "wr", record=True)
    assert run.last.final
    assert run.work.selected.max() == 1
    assert run.iterations <= min((y > 0).sum(), (y < 0).sum())
    assert np.count_nonzero(qp.beta) == run.work.selected.sum() == 2 * run.iterations
    values, counts = np.unique(np.abs(qp.beta[qp.beta != 0]), return_counts=True)
    assert (counts % 2 == 0).all(), f"alpha is equal within a pair: {values}"


def test_wr_of_regression_may_select_both_variables_of_a_row() -> None:
    K, _, t = blobs(150, 9)
    qp = regression(t, 5.0, 1e-3)
    run = solved(qp, K, "wr", record=True)
    assert run.iterations <= 150
    assert run.work.selected.max() == 1
    assert (run.work.selected.sum(axis=0) == 2).any()
    assert (np.abs(qp.beta) <= 5.0).all()
    np.testing.assert_allclose(qp.f, K @ qp.beta - t, rtol=0, atol=1e-12)


def sklearn_beta(kind: str, K: np.ndarray, y: np.ndarray, C: np.ndarray, epsilon: float, eps: float) -> np.ndarray:
    model = SVC(kernel="precomputed", tol=eps) if kind == "svc" else SVR(kernel="precomputed", tol=eps, epsilon=epsilon)
    model.fit(K, y, sample_weight=C)
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    return beta


@pairs_of(
    kernel=[Kernel("rbf", 0.3), Kernel("poly", 0.2, 2, 1.0), Kernel("linear")], kind=["svc", "svr"], wss=RULES,
    shrinking=[False, True], eps=[1e-3, 1e-6],
)  # fmt: skip
def test_the_objective_is_sklearns(kernel: Kernel, kind: str, wss: str, shrinking: bool, eps: float) -> None:
    K, y, t = blobs(90, 11, kernel)
    C = np.random.default_rng(2).uniform(0.2, 3.0, 90)
    epsilon = 0.1
    qp = classification(y, C, eps) if kind == "svc" else regression(t, C, epsilon, eps)
    beta = sklearn_beta(kind, K, y if kind == "svc" else t, C, epsilon, 1e-8)
    run = solved(qp, K, wss, shrinking)
    assert run.last.done
    assert run.last.violation <= eps
    check(qp, K, scale=float(np.abs(K).max()))
    # The gap of a point is at most its violation times what could still move.
    best = objective(qp, K, beta)
    assert -1e-9 * abs(best) <= objective(qp, K) - best <= eps * C.sum()
    assert objective(qp, K) == pytest.approx(best, rel=1e-3 if eps == 1e-3 else 1e-8)


@pytest.mark.parametrize("wss", RULES)
def test_a_sigmoid_kernel_comes_to_an_end(wss: str) -> None:
    K, y, t = blobs(100, 13, Kernel("sigmoid", 0.5, 3, -0.5))
    assert np.linalg.eigvalsh(K)[0] < -0.1
    for qp in (classification(y, 10.0), regression(t, 10.0, 0.05)):
        for shrinking in (False, True):
            there = copy.deepcopy(qp)
            assert solved(there, K, wss, shrinking).last.done
            check(there, K)


@pytest.mark.parametrize("wss", [*RULES, "wr"])
@pytest.mark.parametrize("shrinking", [False, True])
def test_it_goes_on_from_files_to_the_same_bits(tmp_path: Path, wss: str, shrinking: bool) -> None:
    K, _, t = blobs(80, 14)
    straight, resumed = regression(t, 50.0, 0.02, 1e-4), regression(t, 50.0, 0.02, 1e-4)
    run = solved(straight, K, wss, shrinking, record=True)
    engine = Textbook(37, True, wss, shrinking)
    rows = MatrixRows(K)
    work: Any = engine.start_model(resumed, rows)
    iterations = 0
    for k in range(100_000):
        last = engine.step_model(resumed, work, rows)
        iterations += last.iterations
        if last.done or last.final:
            break
        if k < 40:
            folder = tmp_path / str(k)
            folder.mkdir()
            write_tree(folder, [dump(resumed.beta), dump(resumed.f), dump(work)])
            resumed = regression(t, 50.0, 0.02, 1e-4)
            work = engine.start_model(resumed, rows)
            load([resumed.beta, resumed.f, work], read_tree(folder))
    assert iterations == run.iterations
    assert resumed.beta.tobytes() == straight.beta.tobytes()
    assert resumed.f.tobytes() == straight.f.tobytes()
    np.testing.assert_array_equal(work.selected, run.work.selected)


@pytest.mark.parametrize("n_active", [2, 25])
def test_what_left_is_rebuilt_by_rows_or_by_a_block(n_active: int, monkeypatch: pytest.MonkeyPatch) -> None:
    K, _, t = blobs(50, 15)
    rows = MatrixRows(K.astype(np.float32))
    qp = regression(t, 1.0, 0.1)
    qp.beta[:15] = np.linspace(-0.9, 0.9, 15) + 1e-3
    qp.beta[15:19] = 1.0, -1.0, 1.0, -1.0
    engine = Textbook()
    work: Any = engine.start_model(qp, rows)
    np.testing.assert_allclose(work.at_bound, K[:, 15:19] @ qp.beta[15:19], rtol=0, atol=1e-6)
    work.active[:n_active] = np.arange(n_active)
    work.n_active = n_active
    qp.f[:] = np.nan
    before = rows.counts.values
    monkeypatch.setattr(textbook, "_BLOCK_VALUES", 100)
    engine.whole(qp, work, rows)
    away = slice(n_active, None)
    by_block = rows.counts.values - before == 15 * (50 - n_active)
    assert by_block == (n_active == 2)
    np.testing.assert_allclose(qp.f[away], (K @ qp.beta - t)[away], rtol=0, atol=1e-6)
    expected = work.at_bound - t
    for k in range(15):
        expected += qp.beta[k] * rows.fetch(np.array([k]))[0].astype(np.float64)
    assert qp.f[away].tobytes() == expected[away].tobytes(), "either way the same bits"
    assert np.isnan(qp.f[:n_active]).all()


@pytest.mark.parametrize("wss", ["1", "3"])
def test_f_is_made_whole_between_two_calls(wss: str) -> None:
    K, y, _ = blobs(200, 16)
    qp, rows = classification(y, 10.0, 1e-6), MatrixRows(K)
    engine = Textbook(steps=900, wss=wss)
    work: Any = engine.start_model(qp, rows)
    engine.step_model(qp, work, rows)
    assert work.n_active < 200
    other, other_work = copy.deepcopy((qp, work))
    engine.whole(qp, work, rows)
    np.testing.assert_allclose(qp.f, K @ qp.beta - y, rtol=0, atol=1e-11)
    for _ in range(3):
        engine.step_model(qp, work, rows)
        engine.step_model(other, other_work, rows)
    assert qp.beta.tobytes() == other.beta.tobytes(), "it changes nothing of what follows"


@pytest.mark.parametrize("wss", RULES)
@pytest.mark.parametrize("shrinking", [False, True])
def test_a_start_near_the_end_is_of_use(wss: str, shrinking: bool) -> None:
    K, y, t = blobs(100, 17)
    for qp in (classification(y, 5.0, 1e-4), regression(t, 5.0, 0.05, 1e-4)):
        first = solved(qp, K, wss, shrinking)
        again = copy.deepcopy(qp)
        assert solved(again, K, wss, shrinking).iterations == 0
        assert again.beta.tobytes() == qp.beta.tobytes()
        moved = copy.deepcopy(qp)
        moved.beta *= 0.9
        moved.f[:] = K @ moved.beta - moved.target
        assert 0 < solved(moved, K, wss, shrinking).iterations < first.iterations
        check(moved, K)


@pytest.mark.parametrize("wss", ["1", "2", "3"])
def test_equal_rows_have_no_curvature_where_the_diagonal_is_of_another_type(
    wss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K(x, x) = 0.7 in float64 is more than rows of float32 hold: beta of equal rows goes to its bounds at once."""
    rows = MatrixRows(np.full((2, 2), 0.7, np.float32))
    monkeypatch.setattr(MatrixRows, "diag", np.full(2, 0.7))
    qp = classification(np.array([1.0, -1.0]), 1e9)
    engine = Textbook(steps=1, wss=wss, shrinking=False)
    engine.step_model(qp, engine.start_model(qp, rows), rows)
    assert qp.beta.tolist() == [1e9, -1e9]


@pairs_of(
    case=["empty", "one row", "one class", "no cost", "all equal", "opposite twins", "huge C", "zero rows"],
    wss=[*RULES, "wr"], shrinking=[False, True], dtype=[np.float32, np.float64],
)  # fmt: skip
def test_degenerate_programmes(case: str, dtype: type, shrinking: bool, wss: str) -> None:
    K, y, _ = blobs(40, 18)
    C: float | np.ndarray = 2.0
    if case == "empty":
        K, y = K[:0, :0], y[:0]
    elif case == "one row":
        K, y = K[:1, :1], y[:1]
    elif case == "one class":
        y = np.ones(40)
    elif case == "no cost":
        C = np.where(np.arange(40) % 3 == 0, 0.0, 2.0)
    elif case == "all equal":
        K = np.full((40, 40), 0.7)
    elif case == "opposite twins":
        K, y = np.tile(K[:20, :20], (2, 2)) + 1e3, np.concatenate([y[:20], -y[:20]])
    elif case == "huge C":
        C = 1e8
    else:
        K = np.zeros((40, 40))
    qp = classification(y, C, 1e-3 if case != "huge C" else 1e-2)
    run = solved(qp, K.astype(dtype), wss, shrinking, at_most=400_000)
    if wss == "wr":
        assert run.last.final
        return
    assert run.last.done
    if case in ("empty", "one row", "one class"):
        assert run.iterations == 0
    check(qp, K.astype(dtype), scale=1e3 if case == "opposite twins" else 1.0)
    if case == "no cost":
        assert (qp.beta[::3] == 0).all()
    if case in ("all equal", "zero rows"):  # the smaller class is at C, and is met by as much of the other
        assert np.abs(qp.beta).sum() == pytest.approx(2 * 2.0 * min((y > 0).sum(), (y < 0).sum()))


@pytest.mark.parametrize("wss", RULES)
@pytest.mark.parametrize("shrinking", [False, True])
def test_float64_has_an_end(wss: str, shrinking: bool) -> None:
    K, y, _ = blobs(60, 19)
    qp: DualQP = classification(y, 3.0, 1e-300)
    run = solved(qp, K, wss, shrinking)
    assert run.last.exhausted or run.last.done
    np.testing.assert_allclose(qp.f, K @ qp.beta - y, rtol=0, atol=1e-13)
    assert qp.violation() < 1e-13


def test_the_first_rule_fetches_its_two_rows_at_once() -> None:
    class Watched(MatrixRows):
        asked: list[int] = []

        def fetch(self, idx: np.ndarray) -> np.ndarray:
            self.asked.append(len(idx))
            return super().fetch(idx)

    K, y, _ = blobs(60, 20)
    rows = Watched(K)
    run = solved(classification(y, 1.0), rows, "1")
    assert rows.asked == [2] * run.iterations
