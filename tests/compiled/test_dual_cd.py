"""The coordinate descent kernel: against ten lines of NumPy, dense = CSR, one model = many, visits = a sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import jit

from bigsvm.compiled.linear.dual_cd import (
    EXACT,
    BlockRows,
    Limits,
    Stiffness,
    _sweeps,
    _workspace,
    dual_cd_sweeps,
    dual_cd_visit,
    next_thresholds,
    widest_spread,
)
from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.compiled.shared.losses import DualBox, DualModels
from bigsvm.compiled.shared.packed import PackedCSR, PackedDense, pack_row
from bigsvm.compiled.shared.rows import CSR, n_rows_of, sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder, shuffled
from bigsvm.problem.problem import zero_weights
from bigsvm.solvers.dcd.dual_cd_state import all_live
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr, full_csr, random_problem
from bigsvm.testing.reference import dual_value, primal_value

HINGE, SQUARED = DualBox(0, 0.0, 1.0, 0.0, 0.0, 1.0), DualBox(1, 0.0, np.inf, 0.5, 0.0, 1.0)
CLASSES = np.ones(5)  # weight of each class
OPEN = np.array([[np.inf], [-np.inf]])
ALL = np.empty(0, np.int64)  # places of rows that are their own


def sweep(X: Any, y: np.ndarray, box: DualBox, n_sweeps: int, positive: list[int] | None = None, **changed: Any) -> Any:
    n, m = n_rows_of(X), len(positive or [1])
    d = int(changed.pop("n_features"))
    codes = changed.pop("codes", (y > 0).astype(np.int32))
    weight = changed.pop("sample_weight", np.empty(0))
    norms, stats = np.empty(n), np.empty((m, 4))
    sqnorms(readonly_view(X), norms)
    w = zero_weights(d, m, changed.pop("wide", np.float64))
    alpha, active = np.zeros((n, m)), np.full(n, all_live(m), np.uint8)
    rows = BlockRows(readonly_view(X), codes, weight, norms, ALL)
    class_weight = changed.pop("class_weight", CLASSES)
    models = DualModels(class_weight, np.array(positive or [1], np.int32), np.full(m, 0.7), box)
    limits = Limits(n_sweeps, n_sweeps > 1, changed.pop("eps", 0.0), 0.0, np.zeros(m))
    done = dual_cd_sweeps(
        rows, models, alpha, w, active, EXACT, np.repeat(OPEN, m, axis=1), VisitingOrder(28, 3, 0, 0), limits, stats
    )  # fmt: skip
    assert not changed
    return alpha, w, active, stats, done


def numpy_sweeps(X: np.ndarray, y: np.ndarray, box: DualBox, n_sweeps: int) -> tuple[np.ndarray, np.ndarray]:
    """Plain dual coordinate descent, no shrinking."""
    Z = np.hstack([X, np.full((len(X), 1), box.bias)]) * y[:, None]
    alpha, w, C = np.zeros(len(X)), np.zeros(Z.shape[1]), 0.7
    for epoch in range(n_sweeps):
        for i in shuffled(len(X), 3, epoch, 0):
            G = Z[i] @ w - 1.0 + box.diag_factor / C * alpha[i]
            new = np.clip(alpha[i] - G / (Z[i] @ Z[i] + box.diag_factor / C), 0.0, box.upper_factor * C)
            w += (new - alpha[i]) * Z[i]
            alpha[i] = new
    return alpha, w


@pytest.mark.parametrize("box", [HINGE, SQUARED, HINGE._replace(bias=0.0), SQUARED._replace(bias=3.0)])
def test_one_sweep_is_textbook_dual_coordinate_descent(box: DualBox) -> None:
    X, y = random_problem(50, 6, 0.6, seed=11)
    alpha, w, *_ = sweep(as_csr(X), y, box, 1, n_features=6)
    expected_alpha, expected_w = numpy_sweeps(X, y, box, 1)
    np.testing.assert_allclose(alpha[:, 0], expected_alpha, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(w, expected_w, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("box", [HINGE, SQUARED])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_and_csr_give_the_same_bits(box: DualBox, dtype: type) -> None:
    X, y = random_problem(80, 7, seed=12)
    X = X.astype(dtype)
    dense = sweep(X, y, box, 20, n_features=7)
    for index_dtype in (np.int32, np.int64) if dtype is np.float64 else (np.int32,):
        sparse = sweep(full_csr(X, index_dtype), y, box, 20, n_features=7)
        np.testing.assert_array_equal(dense[0], sparse[0])
        np.testing.assert_array_equal(dense[1], sparse[1])


@pytest.mark.parametrize("box", [HINGE, SQUARED])
def test_models_on_the_model_axis_do_not_know_each_other(box: DualBox) -> None:
    X, y = random_problem(60, 5, 0.7, seed=13, n_classes=3)
    codes = y.astype(np.int32)
    together = sweep(as_csr(X), y, box, 1, [0, 1, 2], n_features=5, codes=codes)
    for m in range(3):
        alone = sweep(as_csr(X), y, box, 1, [m], n_features=5, codes=codes)
        np.testing.assert_allclose(together[0][:, m], alone[0][:, 0], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(together[1][:, m], alone[1], rtol=1e-11, atol=1e-13)


def test_w_stays_the_sum_of_alpha_y_x_and_alpha_in_its_box() -> None:
    X, y = random_problem(70, 9, 0.5, seed=14)
    alpha, w, *_ = sweep(as_csr(X), y, HINGE, 50, n_features=9)
    assert alpha.min() >= 0
    assert alpha.max() <= 0.7
    np.testing.assert_allclose(w, np.append(X.T @ (alpha[:, 0] * y), alpha[:, 0] @ y), atol=1e-12)


def test_shrinking_reaches_the_same_point_in_fewer_visits() -> None:
    X, y = random_problem(300, 8, seed=15)
    n, C = len(X), np.full(1, 0.7)
    norms, stats, alpha, w = np.empty(n), np.empty((1, 4)), np.zeros((n, 1)), np.zeros(9)
    sqnorms(readonly_view(X), norms)
    codes, positive, active = (y > 0).astype(np.int32), np.ones(1, np.int32), np.ones(n, np.uint8)
    sweeps = visits = 0
    for _ in range(50):  # settled on the active rows, then everybody again, until that settles at once
        thresholds = OPEN.copy()
        active[:] = 1
        rows = BlockRows(readonly_view(X), codes, np.empty(0), norms, ALL)
        done = dual_cd_sweeps(
            rows, DualModels(CLASSES, positive, C, HINGE), alpha, w, active, EXACT, thresholds,
            VisitingOrder(28, 3, sweeps, 0), Limits(3000, True, 1e-9, 0.0, np.zeros(1)), stats,
        )  # fmt: skip
        sweeps, visits = sweeps + done[0], visits + done[1]
        if done[2] == n:
            break
    else:
        pytest.fail("it never settled with every row active")
    costs = np.full(n, 0.7)
    primal = primal_value(X, y, costs, "hinge", w)
    assert primal - dual_value(X, y, costs, "hinge", alpha[:, 0]) <= 1e-7 * primal
    assert visits < 0.7 * sweeps * n


def test_rows_of_cost_zero_and_zero_rows() -> None:
    X, y = random_problem(30, 4, seed=16)
    X[5] = 0.0
    weight = np.ones(30)
    weight[[2, 9]] = 0.0
    alpha, w, active, *_ = sweep(as_csr(X), y, HINGE._replace(bias=0.0), 3, n_features=4, sample_weight=weight)
    assert alpha[2, 0] == alpha[9, 0] == 0.0
    assert active[2] == active[9] == 0
    assert alpha[5, 0] == 0.7  # a zero row always has slack 1: its best alpha is its bound
    assert w[-1] == 0.0


def as_kind(X: np.ndarray, kind: str) -> Any:
    """The same rows, as kernels meet them."""
    n, d = X.shape
    if kind == "csr":
        return readonly_view(as_csr(X))
    if kind == "dense":
        return readonly_view(X)
    packed: Any = PackedDense(np.empty((n, d), np.int16), np.empty(n, np.float32))
    if kind == "packed csr":
        pool = np.empty(16 * n * d, np.uint16)
        ptr, hot, scale = np.zeros(n + 1, np.int64), np.empty(n, np.int32), np.empty(n, np.float32)
        packed = PackedCSR(pool, pool.view(np.int16), ptr, hot, scale)
    pack_all(packed, readonly_view(as_csr(X) if kind == "packed csr" else X))
    return packed


@inner_loop
def pack_all(A: Any, X: Any) -> None:
    for i in range(n_rows_of(X)):
        pack_row(A, i, X, i)


@pytest.mark.parametrize("kind", ["dense", "csr", "packed csr", "packed dense"])
@pytest.mark.parametrize("models", [1, 3])
def test_each_feature_is_as_stiff_as_it_was_told(kind: str, models: int) -> None:
    """A step is that of the row's problem with x_j^2 weighted, and w moves by the stiffness times the sum."""
    rng = np.random.default_rng(17)
    d = 70_000 if "csr" in kind else 6  # numbers of features beyond 16 bits
    X = np.zeros((3, d))
    columns = [0, 1, 2, 3, 4, d - 1]
    X[:, columns] = rng.choice([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0], (3, 6))
    X[:, 1] = 3.0
    codes = np.array([0, 1, 2], np.int32)
    positive = np.arange(3, dtype=np.int32) if models == 3 else np.ones(1, np.int32)
    stiff = np.ones(d, np.float32)
    stiff[columns] = [1.0, 16.0, 2.5, 7.0, 1.25, 4.0]
    wide = np.float32 if "packed" in kind else np.float64  # as most fits have w: compiled for these anyway
    for i in range(3):
        alpha, W, stats = np.zeros((3, models)), zero_weights(d, models, wide), np.empty((models, 4))
        norms = np.square(X[[i]]).sum(axis=1)
        rows = BlockRows(as_kind(X[[i]], kind), codes[[i]], np.empty(0), norms, np.array([i]))
        for _ in range(2):  # the second finds the optimum of the local problem
            dual_cd_visit(
                rows, DualModels(np.ones(5), positive, np.full(models, 1e9), HINGE), alpha, W, np.empty(0, np.uint8),
                Stiffness(stiff, 2.0), VisitingOrder(28, 0, 0, 0), np.empty(1, np.int64), stats,
                np.empty(0, np.float32),
            )  # fmt: skip
        np.testing.assert_allclose(alpha[i], 1.0 / (stiff @ X[i] ** 2 + 2.0), rtol=1e-4)
        sign = np.where(positive == codes[i], 1.0, -1.0)
        change = np.append(stiff * X[i], 2.0)[:, None] * sign * alpha[i]
        np.testing.assert_allclose(W.reshape(d + 1, models), change, rtol=1e-4, atol=1e-6)


def test_empty_block() -> None:
    empty = CSR(np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(1, np.int64))
    alpha, w, *_ = sweep(empty, np.empty(0), HINGE, 1, n_features=3)
    assert alpha.shape == (0, 1)
    assert not w.any()


def test_cost_is_the_weight_of_the_class_times_that_of_the_row() -> None:
    X, y = random_problem(60, 5, 0.7, seed=19)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 60)
    by_class = np.array([0.5, 3.0])
    apart = sweep(as_csr(X), y, SQUARED, 5, n_features=5, class_weight=by_class, sample_weight=weight)
    product = weight * by_class[(y > 0).astype(int)]
    together = sweep(as_csr(X), y, SQUARED, 5, n_features=5, sample_weight=product)
    for ours, theirs in zip(apart[:3], together[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def visit(
    X: Any, codes: np.ndarray, box: DualBox, alpha: np.ndarray, at: np.ndarray, w: np.ndarray, streams: np.ndarray
) -> Any:
    """One visit of the rows of X that stream; (rows visited in order, score, stats)."""
    n, m = n_rows_of(X), alpha.shape[1]
    norms, stats = np.empty(n), np.empty((m, 4))
    sqnorms(readonly_view(X), norms)
    order, score = np.full(n, -1), np.full(n, np.nan, np.float32)
    positive = np.arange(m, dtype=np.int32) if m > 1 else np.ones(1, np.int32)
    rows = BlockRows(readonly_view(X), codes, np.empty(0), norms, at)
    models = DualModels(CLASSES, positive, np.full(m, 0.7), box)
    visited = dual_cd_visit(rows, models, alpha, w, streams, EXACT, VisitingOrder(28, 3, 0, 0), order, stats, score)
    return order[:visited], score, stats


@pytest.mark.parametrize("box", [HINGE, SQUARED])
@pytest.mark.parametrize("wide", [np.float32, np.float64])
@pytest.mark.parametrize("models", [1, 4])
def test_a_visit_of_all_rows_is_one_sweep(box: DualBox, wide: type, models: int) -> None:
    X, y = random_problem(150, 9, 0.5, seed=20, n_classes=4)
    X, codes = X.astype(wide), y.astype(np.int32)  # rows of the other type: the next test
    positive = [0, 1, 2, 3] if models == 4 else [1]
    alpha, w, _, stats, _ = sweep(as_csr(X), y, box, 1, positive, n_features=9, codes=codes, wide=wide)
    for streams in (np.ones(150, np.uint8), np.empty(0, np.uint8)):
        ours, weights = np.zeros((150, models)), zero_weights(9, models, wide)
        order, score, seen = visit(as_csr(X), codes, box, ours, np.arange(150), weights, streams)
        assert weights.dtype == wide
        np.testing.assert_array_equal(ours, alpha)
        np.testing.assert_array_equal(weights, w)
        np.testing.assert_array_equal(seen, stats)
        assert sorted(order) == list(range(150))
        assert np.all(score >= 0)


@pytest.mark.parametrize("wide", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_visit_of_dense_rows_and_of_csr_gives_the_same_bits(wide: type, dtype: type) -> None:
    X, y = random_problem(90, 7, seed=21)
    X, codes, outcome = X.astype(dtype), (y > 0).astype(np.int32), []
    for rows in (X, full_csr(X), *([full_csr(X, np.int64)] if dtype is wide is np.float64 else [])):
        alpha, w = np.zeros((90, 1)), zero_weights(7, 1, wide)
        order, score, stats = visit(rows, codes, HINGE, alpha, np.arange(90), w, np.ones(90, np.uint8))
        outcome.append((alpha, w, order, score, stats))
    for other in outcome[1:]:
        for ours, theirs in zip(outcome[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@given(n=st.integers(1, 200), seed=st.integers(0, 1000), share=st.floats(0, 1))
def test_a_visit_meets_exactly_the_rows_that_stream(n: int, seed: int, share: float) -> None:
    X, y = random_problem(n, 4, seed=seed)
    rng = np.random.default_rng(seed)
    at = rng.permutation(2 * n)[:n]  # these rows lie anywhere among twice as many
    streams = (rng.random(2 * n) < share).astype(np.uint8)
    before = rng.uniform(0, 0.7, (2 * n, 1))
    alpha = before.copy()
    order, score, _ = visit(X, (y > 0).astype(np.int32), HINGE, alpha, at, zero_weights(4, 1), streams)
    np.testing.assert_array_equal(np.sort(order), np.flatnonzero(streams[at]))
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(score)), np.sort(order))
    others = np.setdiff1d(np.arange(2 * n), at[order])
    np.testing.assert_array_equal(alpha[others], before[others])


@pytest.mark.parametrize("models", [1, 3])
def test_the_inner_loop_counts_no_references(models: int) -> None:
    # Taking the arrays out of X for every row would cost more than the row (`compiled/shared/compile.py`).
    X, y = random_problem(10, 3, seed=22, n_classes=3)
    nothing, w = np.empty(0, np.uint8), zero_weights(3, models)
    plain: Any = jit(**_sweeps.targetoptions)(_sweeps.py_func)  # what is cached cannot be inspected
    stats, m = np.zeros((models, 4)), models
    rows = BlockRows(readonly_view(as_csr(X)), y.astype(np.int32), np.empty(0), np.ones(10), np.arange(10))
    plain(
        rows, DualModels(CLASSES, np.arange(m, dtype=np.int32), np.ones(m), HINGE), np.zeros((10, m)),
        w, nothing, nothing, EXACT, np.repeat(OPEN, m, axis=1), VisitingOrder(1, 0, 0, 0),
        Limits(1, False, 0.0, 0.0, np.empty(0)), stats,
        _workspace(np.arange(10), np.zeros(10, np.float32), w, again=False),
    )  # fmt: skip
    (code,) = plain.inspect_llvm().values()
    assert "define" in code
    assert not [line for line in code.splitlines() if "call" in line and "NRT_incref" in line]


def swept(
    x: np.ndarray, alpha: np.ndarray, w: float, thresholds: np.ndarray, active: np.ndarray, **changed: Any
) -> tuple[np.ndarray, np.ndarray, int]:
    """One sweep of the hinge, C = 1, over rows x of one feature and label +1; (alpha, w, settled)."""
    n, W, given = len(x), np.array([w, 0.0]), {"sigma": 1.0, "target": 0.0, "floor": 0.0, **changed}
    a = alpha[:, None].copy()
    rows = BlockRows(readonly_view(x[:, None].copy()), np.ones(n, np.int32), np.empty(0), x * x, ALL)
    models = DualModels(np.ones(2), np.ones(1, np.int32), np.ones(1), HINGE._replace(bias=0.0))
    limits = Limits(1, True, -1.0, given["target"], np.array([given["floor"]]))
    *_, settled = dual_cd_sweeps(
        rows, models, a, W, active, Stiffness(np.full(1, given["sigma"], np.float32), 1.0), thresholds,
        VisitingOrder(28, 0, 0, 0), limits, np.empty((1, 4)),
    )  # fmt: skip
    return a[:, 0], W, settled


def test_sigma_makes_steps_shorter() -> None:
    for sigma in (1.0, 4.0):
        alpha, w, _ = swept(np.array([2.0]), np.zeros(1), 0.0, OPEN.copy(), np.ones(1, np.uint8), sigma=sigma)
        assert alpha[0] == pytest.approx(0.25 / sigma)  # of 1 / (sigma x^2)
        assert w[0] == pytest.approx(sigma * alpha[0] * 2.0)


def test_shrinking_leaves_out_what_presses_against_its_bound() -> None:
    """Rows at 0 with G = 1 and 0.2, rows at C with G = -0.8 and -0.2, thresholds 0.5 and -0.5."""
    x, alpha = np.array([2.0, 1.2, 0.2, 0.8]), np.array([0.0, 0.0, 1.0, 1.0])
    active = np.ones(4, np.uint8)
    after, w, _ = swept(x, alpha, 1.0, np.array([[0.5], [-0.5]]), active)
    assert active.tolist() == [0, 1, 0, 1]
    assert after.tolist() == alpha.tolist()
    assert w[0] == 1.0


def test_thresholds_are_open_where_a_sweep_saw_no_such_gradient() -> None:
    thresholds = np.zeros((2, 3))
    next_thresholds(np.array([[0.3, -0.2, 0, 0], [-0.1, -0.4, 0, 0], [0.5, 0.1, 0, 0]]), thresholds)
    assert thresholds.tolist() == [[0.3, np.inf, 0.5], [-0.2, -0.4, -np.inf]]


def test_the_spread_is_that_of_the_worst_model() -> None:
    assert widest_spread(np.array([[3.0, -1.0, 0, 0], [0.25, 0.0, 0, 0]])) == 4.0


@pytest.mark.parametrize(("largest", "smallest", "spread"), [(-2, -2, 2.0), (2, 1, 2.0), (-np.inf, np.inf, 0.0)])
def test_gradients_that_are_equal_but_not_0_are_apart_from_0(largest: float, smallest: float, spread: float) -> None:
    assert widest_spread(np.array([[largest, smallest, 0, 0]], np.float64)) == spread


def test_what_was_proved_bounds_the_primal_that_shrunk_rows_hide() -> None:
    """The one row that is active has all of its loss as gap; with what is known of the others that is little."""
    x, active = np.array([0.1, 0.1]), np.array([1, 0], np.uint8)
    for floor, settled in ((0.0, 0), (10.0, 2)):
        assert swept(x, np.zeros(2), 0.0, OPEN.copy(), active.copy(), target=0.2, floor=floor)[2] == settled
