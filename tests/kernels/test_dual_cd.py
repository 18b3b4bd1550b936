"""The coordinate descent kernel: against ten lines of NumPy, dense = CSR, one model = many, orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.kernels.dual_cd import SMALL_ROWS, DualBox, dual_cd_sweeps, mixed_runs_of, shuffled, visiting_order
from bigsvm.kernels.rows import CSR, n_rows_of, sqnorms
from bigsvm.problem.problem import zero_weights
from bigsvm.store.blocks import kernel_matrix
from bigsvm.testing.problems import as_csr, full_csr, random_problem
from bigsvm.testing.reference import dual_value, primal_value

HINGE, SQUARED = DualBox(0, 1.0, 0.0, 1.0), DualBox(1, np.inf, 0.5, 1.0)
MIXED_RUNS = 28
OPEN = np.array([[np.inf], [-np.inf]])


def sweep(X: Any, y: np.ndarray, box: DualBox, n_sweeps: int, positive: list[int] | None = None, **changed: Any) -> Any:
    n, m = n_rows_of(X), len(positive or [1])
    d = int(changed.pop("n_features"))
    codes = changed.pop("codes", (y > 0).astype(np.int32))
    cost = changed.pop("cost", np.ones(n))
    norms, stats = np.empty(n), np.empty((m, 4))
    sqnorms(kernel_matrix(X), norms)
    alpha, w, active = np.zeros((n, m)), zero_weights(d, m), np.ones(n, np.uint8)
    done = dual_cd_sweeps(
        kernel_matrix(X), codes, np.array(positive or [1], np.int32), cost, np.full(m, 0.7), norms, alpha, w, active,
        box, 1.0, np.repeat(OPEN, m, axis=1), n_sweeps, n_sweeps > 1, 28, 3, 0, 0, changed.pop("eps", 0.0), 0.0,
        np.zeros(m), stats,
    )  # fmt: skip
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
    for index_dtype in (np.int32, np.int64):
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
    sqnorms(kernel_matrix(X), norms)
    codes, positive, active = (y > 0).astype(np.int32), np.ones(1, np.int32), np.ones(n, np.uint8)
    sweeps = visits = 0
    for _ in range(50):  # settled on the active rows, then everybody again, until that settles at once
        thresholds = OPEN.copy()
        active[:] = 1
        done = dual_cd_sweeps(
            kernel_matrix(X), codes, positive, np.ones(n), C, norms, alpha, w, active, HINGE, 1.0, thresholds, 3000,
            True, 28, 3, sweeps, 0, 1e-9, 0.0, np.zeros(1), stats,
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
    cost = np.ones(30)
    cost[[2, 9]] = 0.0
    alpha, w, active, *_ = sweep(as_csr(X), y, HINGE._replace(bias=0.0), 3, n_features=4, cost=cost)
    assert alpha[2, 0] == alpha[9, 0] == 0.0
    assert active[2] == active[9] == 0
    assert alpha[5, 0] == 0.7  # a zero row always has slack 1: its best alpha is its bound
    assert w[-1] == 0.0


def test_sigma_makes_the_local_problem_stiffer() -> None:
    X, y = random_problem(40, 4, seed=17)
    n = len(X)
    norms, stats = np.empty(n), np.empty((1, 4))
    sqnorms(kernel_matrix(X), norms)
    alpha, w = np.zeros((n, 1)), np.zeros(5)
    dual_cd_sweeps(
        kernel_matrix(X), (y > 0).astype(np.int32), np.ones(1, np.int32), np.ones(n), np.ones(1), norms, alpha, w,
        np.ones(n, np.uint8), HINGE, 4.0, OPEN.copy(), 1, False, 28, 0, 0, 0, 0.0, 0.0, np.zeros(1), stats,
    )  # fmt: skip
    np.testing.assert_allclose(w / 4.0, np.append(X.T @ (alpha[:, 0] * y), alpha[:, 0] @ y), atol=1e-12)


@given(
    n=st.integers(0, 300),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 2**40),
    start=st.integers(0, 2**40),
)
def test_an_order_is_a_permutation_and_a_function_of_its_key(n: int, seed: int, epoch: int, start: int) -> None:
    order = shuffled(n, seed, epoch, start)
    assert sorted(order) == list(range(n))
    np.testing.assert_array_equal(order, shuffled(n, seed, epoch, start))


def test_orders_of_different_keys_differ_and_are_uniform() -> None:
    assert len({tuple(shuffled(20, s, e, b)) for s in range(5) for e in range(5) for b in range(5)}) == 125
    first = np.bincount([shuffled(10, 0, e, 0)[0] for e in range(20_000)], minlength=10)
    assert abs(first - 2000).max() < 200  # 4.7 standard deviations


@settings(max_examples=25)
@given(n=st.integers(0, 20_000), seed=st.integers(0, 2**30), share=st.floats(0, 1))
def test_the_visiting_order_meets_every_active_row_once_and_stays_local(n: int, seed: int, share: float) -> None:
    active = (np.random.default_rng(seed).random(n) < share).astype(np.uint8)
    order = visiting_order(active, MIXED_RUNS, seed, 5, 0)
    np.testing.assert_array_equal(np.sort(order), np.flatnonzero(active))
    runs = order // SMALL_ROWS
    seen, last = set(), -1
    for mixed in np.split(runs, np.flatnonzero(np.diff([_group_of(runs)[r] for r in runs])) + 1) if n else []:
        assert len(set(mixed)) <= MIXED_RUNS
        assert not seen & set(mixed)
        seen |= set(mixed)
        last = max(last, len(mixed))
    assert last <= SMALL_ROWS * MIXED_RUNS


def _group_of(runs: np.ndarray) -> dict[int, int]:
    """Number of the group of each run: runs whose visits overlap are of one group."""
    first, final = {}, {}
    for place, run in enumerate(runs):
        first.setdefault(run, place)
        final[run] = place
    groups, number, end = {}, 0, -1
    for run in sorted(first, key=first.__getitem__):
        if first[run] > end:
            number += 1
        groups[run] = number
        end = max(end, final[run])
    return groups


def test_small_data_is_shuffled_as_a_whole_and_large_data_in_parts() -> None:
    X, _ = random_problem(1000, 10, seed=18)
    assert mixed_runs_of(X) * SMALL_ROWS > len(X)
    wide = CSR(np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(3, np.int64))
    assert mixed_runs_of(wide) >= 1
    entries = np.broadcast_to(np.float32(1), 100_000_000)
    large = CSR(entries, entries.view(np.int32), np.linspace(0, 100_000_000, 1_000_001).astype(np.int64))
    assert 10 < mixed_runs_of(large) < 200


def test_empty_block() -> None:
    empty = CSR(np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(1, np.int64))
    alpha, w, *_ = sweep(empty, np.empty(0), HINGE, 1, n_features=3)
    assert alpha.shape == (0, 1)
    assert not w.any()
