"""Momentum of streamed dcd: feasible after every pass, no harm, the same bytes however it is run; its proofs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.events import CertificateMade
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.proof import linear_prover
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.solvers.dcd.momentum import Momentum
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.state.vectors import RowVector
from bigsvm.testing.problems import random_problem
from bigsvm.testing.reference import dual_value
from tests.products import each_of, pairs_of
from tests.run.test_checkpoint import comes_to_the_same, same_folder


def hard(n: int = 700, width: int = 500, seed: int = 1, n_classes: int = 2) -> tuple[Any, np.ndarray]:
    """Sparse rows, as many features nearly: most support vectors are free."""
    rng = np.random.default_rng(seed)
    X = sparse.random(n, width, 0.04, "csr", np.float32, random_state=seed, data_rvs=rng.standard_normal)
    scores = X @ rng.standard_normal((width, n_classes)) + 0.3 * rng.standard_normal((n, n_classes))
    return sparse.csr_array(X), np.argmax(scores, axis=1)


def config(momentum: str, **options: Any) -> FitConfig:
    return FitConfig.of(**{"solver": "dcd", "loss": "hinge", "solver_options": {"momentum": momentum}, **options})


@pairs_of(
    n_classes__weighted__options=[
        (2, False, {}),
        (2, True, {"bias": "none"}),
        (9, False, {"class_weight": {"0": 2.0, "1": 0.0}}),
        (3, True, {"tol": 1e-6}),
    ],
    loss=["hinge", "squared_hinge"],
    row_buffer=["auto", "off"],
)
@pytest.mark.usefixtures("streaming")
def test_alpha_is_in_its_box_at_the_end_of_every_pass(
    n_classes: int, weighted: bool, options: dict[str, Any], loss: str, row_buffer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = hard(n_classes=n_classes)
    # Rows without entries too, whose alpha only a bias, or nothing, holds back.
    X = sparse.csr_array(sparse.diags_array((np.arange(X.shape[0]) % 50 != 3).astype(np.float32)) @ X)
    X.eliminate_zeros()
    weights = np.random.default_rng(0).integers(0, 4, X.shape[0]) / 2.0
    plain, ahead, passes = DualCD.step, [], []

    def step(self: DualCD, problem: Problem, state: Any, ctx: Any) -> Any:
        info = plain(self, problem, state, ctx)
        if ctx.data.n_samples != X.shape[0]:  # a small fit, which compiles
            return info
        cost = np.ones((X.shape[0], 1)) if state.cost is None else state.cost.values
        for group in state.groups:
            weighs = cost[:, 0] > 0
            upper = problem.loss.upper_factor * cost[weighs] * group.problem.C
            assert np.all(group.alpha.values >= 0.0)
            assert np.all(group.alpha.values[weighs] <= upper)
            assert np.all(group.alpha.values[~weighs] == 0.0)
            ahead.append(float(group.momentum.theta.max()))
        passes.append(info)
        return info

    monkeypatch.setattr(DualCD, "step", step)
    store = ArrayRows(X, y, weights if weighted else None)
    options = {"tol": 1e-3, "C": 3.0, "max_passes": 15, **options}
    fit_store(store, config("on", loss=loss, **options, solver_options={"row_buffer": row_buffer}))
    assert max(ahead) > 0.1
    assert len(passes) > 3


@each_of(row_buffer=["off", "auto"], loss=["hinge", "squared_hinge"])
@pytest.mark.usefixtures("streaming_hundreds")
def test_it_spares_passes_where_most_support_vectors_are_free(loss: str, row_buffer: str) -> None:
    passes = {}
    for momentum in ("auto", "off"):
        options = {"momentum": momentum, "row_buffer": row_buffer}
        result = fit_store(ArrayRows(*hard()), config("", loss=loss, C=10.0, tol=2e-3, solver_options=options))
        assert result.status == "converged"
        passes[momentum] = result.figures["passes"]
    assert passes["auto"] < passes["off"] * (0.6 if row_buffer == "off" else 1.0)


@each_of(
    C__noise__n_features=[(0.1, 0.3, 6), (1.0, 0.2, 30), (10.0, 0.0, 12), (3.0, 0.3, 20)],
    loss=["hinge", "squared_hinge"],
)
@pytest.mark.usefixtures("streaming")
def test_it_does_no_harm_elsewhere(C: float, noise: float, n_features: int, loss: str) -> None:
    X, y = random_problem(300, n_features, 0.6, seed=31, noise=noise)
    passes = {}
    for momentum in ("on", "off"):
        result = fit_store(ArrayRows(X, y), config(momentum, loss=loss, C=C, tol=1e-3, max_passes=400))
        assert result.status == "converged"
        passes[momentum] = result.figures["passes"]
    assert passes["on"] <= 1.2 * passes["off"] + 1.0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.usefixtures("streaming")
def test_the_gap_that_is_reported_never_rises(n_classes: int) -> None:
    gaps = []

    def emit(event: Any) -> None:
        if isinstance(event, CertificateMade):
            gaps.append(event.relative_gap)

    fit_store(ArrayRows(*hard(n_classes=n_classes)), config("on", C=30.0, tol=3e-4, max_passes=60), emit)
    assert len(gaps) > 3
    assert gaps == sorted(gaps, reverse=True)


@pytest.mark.parametrize(
    ("n_classes", "options"),
    [
        (2, {"tol": 1e-3}),
        (9, {"tol": 1e-2, "class_weight": {"0": 2.0}}),
        (2, {"tol": 1e-6, "bias": "none", "loss": "squared_hinge"}),
    ],
)
@pytest.mark.usefixtures("streaming")
def test_interrupted_within_passes_it_comes_to_the_same_bytes(
    n_classes: int, options: dict[str, Any], tmp_path: Path
) -> None:
    X, y = hard(300, 200, n_classes=n_classes)
    store = ArrayRows(X, y, np.random.default_rng(0).random(len(y)))
    comes_to_the_same(store, config("on", C=10.0, memory="64MiB", max_passes=30, **options), tmp_path, 25)


@pytest.mark.usefixtures("streaming")
def test_threads_do_not_change_the_bytes(tmp_path: Path) -> None:
    for threads in (1, 2, 4):
        options = {"C": 10.0, "tol": 1e-2, "memory": "64MiB", "threads": threads}
        fit_store(ArrayRows(*hard(n_classes=9)), config("on", **options)).save_model(tmp_path / str(threads))
    assert same_folder(tmp_path / "1", tmp_path / "2")
    assert same_folder(tmp_path / "1", tmp_path / "4")


@each_of(n_classes__end=[(2, "stopped"), (3, "stopped"), (2, "converged")], loss=["hinge", "squared_hinge"])
@pytest.mark.usefixtures("streaming")
def test_the_model_is_the_multiple_of_w_that_was_proved(
    loss: str, n_classes: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales = []

    def note(problem: Problem, w: Any, scale: np.ndarray, *others: Any) -> Any:
        scales.append(scale)
        return linear_model(problem, w, scale, *others)

    linear_model = linear_prover.linear_model
    monkeypatch.setattr(linear_prover, "linear_model", note)
    X, y = hard(n_classes=n_classes)
    limits = {"max_passes": 4} if end == "stopped" else {"tol": 1e-2}
    result = fit_store(ArrayRows(X, y), config("on", loss=loss, C=10.0, **limits))
    assert result.status == end
    assert np.any(scales[-1] != 1.0)  # those before are of small fits, which compile
    result.save_model(tmp_path / "model")
    found = bigsvm.certify(tmp_path / "model", (X, y))
    for name in ("objective", "dual_objective", "relative_gap"):
        assert found[name] == pytest.approx(result.figures[name], rel=1e-9), name


def leaping(
    X: np.ndarray, y: np.ndarray, before: np.ndarray, alpha: np.ndarray, folder: Path, **options: Any
) -> tuple[Problem, Momentum, RowVector, np.ndarray]:
    """The momentum of a pass that led from `before` to `alpha`, with the moved alpha and w; no bias."""
    problem = make_problem(config("on", bias="none", **options), ArrayRows(X, y))
    signs = np.where(y == y.max(), 1.0, -1.0)
    vectors = []
    for values in (before, alpha):
        vectors.append(RowVector("alpha", len(y), 1, np.float64, MemoryBudget(1 << 20), folder))
        vectors[-1].values[:, 0] = values
    w_before, w = (np.append(X.T @ (signs * values), 0.0) for values in (before, alpha))
    momentum = Momentum.new(w_before, vectors[0])
    momentum.leap(problem, w, vectors[1], np.empty(0))
    return problem, momentum, vectors[1], w


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_step_maximises_the_dual_along_the_direction(loss: str, tmp_path: Path) -> None:
    """Half a step beyond alpha: the peak of the dual's parabola through three of its values."""
    C, rng = 2.0, np.random.default_rng(3)
    X, y = random_problem(40, 5, seed=32)
    u, d = rng.uniform(0.5, 1.0, 40), rng.uniform(0.0, 0.02, 40)

    def peak(alpha: np.ndarray) -> float:
        low, middle, high = (dual_value(X, y, np.full(40, C), loss, alpha + t * d, 0.0) for t in (-1.0, 0.0, 1.0))
        return float(0.5 * (low - high) / (low - 2.0 * middle + high))

    # It is linear in a multiple of u.
    less, more = peak(0.1 * u), peak(0.2 * u)
    now = (0.1 + 0.1 * (0.5 - less) / (more - less)) * u
    assert d.max() < now.min()
    assert now.max() < 0.9 * C
    _, momentum, alpha, w = leaping(X, y, now - d, now, tmp_path, loss=loss, C=C)
    theta = momentum.theta[0]
    assert theta == pytest.approx(peak(now), rel=1e-6)
    assert theta == pytest.approx(0.5, rel=1e-6)
    np.testing.assert_allclose(alpha.values[:, 0], now + theta * d, rtol=1e-12)
    np.testing.assert_allclose(momentum.alpha.values[:, 0], now)
    np.testing.assert_allclose(w[:-1], X.T @ (np.where(y > 0, 1.0, -1.0) * alpha.values[:, 0]), atol=1e-12)


def test_the_guard_cuts_a_step_that_the_box_would_clip(tmp_path: Path) -> None:
    X = np.eye(10) * 0.1
    y = np.arange(10) % 2
    before = np.full(10, 0.5)
    inside = leaping(X, y, before, np.full(10, 0.6), tmp_path, C=10.0)[1]
    assert inside.theta[0] == 0.9  # far from the optimum and from the box
    _, cut, alpha, _ = leaping(X, y, before, np.full(10, 0.6), tmp_path, C=0.65)
    assert 0.0 < cut.theta[0] < 0.9
    step = 0.1 * cut.theta[0]
    assert np.maximum(alpha.values - 0.65, 0.0).sum() <= 0.25 * 10 * step
    assert np.maximum(0.6 + step / 0.7 - 0.65, 0.0) > 0.25 * step / 0.7  # a longer one would have been clipped
    _, none, alpha, _ = leaping(X, y, before, np.full(10, 0.6), tmp_path, C=0.6)
    assert none.theta[0] == 0.0
    np.testing.assert_array_equal(alpha.values, 0.6)


def test_no_leap_after_the_dual_has_fallen(tmp_path: Path) -> None:
    X, y = np.eye(10) * 0.1, np.arange(10) % 2
    problem, momentum, alpha, w = leaping(X, y, np.full(10, 0.5), np.full(10, 0.6), tmp_path, C=10.0)
    assert momentum.theta[0] > 0
    momentum.dual[...] = 1e9
    momentum.leap(problem, w, alpha, np.empty(0))
    assert momentum.theta[0] == 0.0
    alpha.values[...] += 0.1
    w[:-1] += X.T @ np.where(y == 1, 0.1, -0.1)
    momentum.leap(problem, w, alpha, np.empty(0))
    assert momentum.theta[0] > 0
