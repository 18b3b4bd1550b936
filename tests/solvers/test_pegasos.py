"""pegasos: the published iterates, w = sum alpha y x at any time, and the same steps however the rows are held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.compiled.linear.pegasos import LabelledRows, Models, ScaledPoint, StepLength, pegasos_visit
from bigsvm.compiled.shared.visiting import VisitingOrder
from bigsvm.config import FitConfig
from bigsvm.errors import Interrupted, UsageError
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.run.execute.local import SerialMapper
from bigsvm.run.execute.signals import Stop
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.context import Context
from bigsvm.solvers.literature.pegasos import Pegasos, PegasosState
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import readonly_view
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import as_csr, random_problem
from tests.products import WHOLE, pairs_of
from tests.solvers.stepping import choose_solver

PUBLISHED = {28: 5.0695504, 911: 0.5545929, 1273: 0.5455888, 1361: 0.5447137, 1376: 0.5446285}


class Bench(NamedTuple):
    """A solver on rows in memory, to be driven step by step."""

    solver: Pegasos
    problem: Problem
    state: PegasosState
    ctx: Context

    def run(self, steps: int) -> PegasosState:
        for _ in range(steps):
            self.solver.step(self.problem, self.state, self.ctx)
        return self.state


@contextmanager
def bench(solver: Pegasos, rows: ArrayRows, folder: Path, seed: int = 0, **options: Any) -> Iterator[Bench]:
    config = FitConfig(solver="pegasos", loss="hinge", **options)
    problem, refs = make_problem(config, rows), rows.refs(rows.n_samples)
    ctx = Context(
        data=rows, refs=refs, resident=True, mapper=SerialMapper(), budget=MemoryBudget(1 << 32), seed=seed,
        shards=1, threads=1, read_depth=1, group_blocks=1, proof_refs=refs, workdir=folder, tol=1e-9,
    )  # fmt: skip
    yield Bench(solver, problem, solver.init(problem, ctx), ctx)


@pytest.fixture(scope="session")
def mnist_zero(real_data: ModuleType) -> tuple[np.ndarray, np.ndarray]:
    """'0' against the others on the 50 leading principal components of the raw pixels."""
    images, digits = real_data.load("mnist")
    X = np.asarray(images.todense(), np.float64)
    X -= X.mean(axis=0)
    _, vectors = np.linalg.eigh(X.T @ X / len(X))
    return np.ascontiguousarray(X @ vectors[:, :-51:-1]), np.where(digits == 0, 1.0, -1.0)


def mean_primal(X: np.ndarray, y: np.ndarray, w: np.ndarray, lam: float) -> float:
    return float(0.5 * lam * (w @ w) + np.maximum(0.0, 1.0 - y * (X @ w)).mean())


@pytest.mark.slow
def test_the_published_primal_values_of_the_batch_method(
    mnist_zero: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, y = mnist_zero
    with bench(Pegasos(batch=0), ArrayRows(X, y), tmp_path, lam=100.0, bias="none") as batch:
        for t, published in PUBLISHED.items() if WHOLE else [(28, PUBLISHED[28])]:
            while batch.state.iteration < t:
                batch.run(1)
            assert batch.state.primal[0] * 100.0 == pytest.approx(published, abs=5.1e-8)
            assert mean_primal(X, y, batch.state.w[:-1], 100.0) == pytest.approx(published, abs=5.1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "published"), [(100, 0.5464795), (10, 0.5464416)])
def test_the_published_primal_values_of_mini_batches_are_of_our_distribution(
    mnist_zero: tuple[np.ndarray, np.ndarray], tmp_path: Path, size: int, published: float
) -> None:
    X, y = mnist_zero
    found = []
    for seed in range(6):  # one run's last iterate varies by 1e-3
        with bench(Pegasos(batch=size), ArrayRows(X, y), tmp_path, seed=seed, lam=100.0, bias="none") as some:
            state = some.run(28)
        assert state.iteration == 28 * 60_000 // size
        found.append(mean_primal(X, y, state.w[:-1], 100.0))
    # How far one more value may be from the mean of n of the same distribution, at 1 in 100 (Student, 5 degrees).
    assert abs(published - np.mean(found)) <= 4.03 * np.std(found, ddof=1) * (1.0 + 1.0 / len(found)) ** 0.5


@pytest.mark.parametrize("options", [{"batch": 1}, {"batch": 16}, {"batch": 16, "offset": 0}, {"batch": 1000}])
def test_heart_scale_oracle(real_data: ModuleType, options: dict[str, Any]) -> None:
    X, y = real_data.load("heart_scale")
    result = bigsvm.fit((X, y), solver="pegasos", loss="hinge", tol=2e-3, max_passes=40_000, solver_options=options)
    assert result.status == "converged"
    assert 92.95772 * (1 - 1e-7) <= result.figures["objective"] <= 92.95772 * (1 + 2e-3)


@pairs_of(
    solver=[Pegasos(batch=0), Pegasos(batch=1), Pegasos(batch=7, offset=0, projection=False)],
    layout=["dense", "csr"],
    n_classes=[2, 3],
    scale=[1.0, 1e4],  # of long rows the first steps shrink w below what numbers can be
)
def test_w_is_the_sum_of_its_alpha(layout: str, n_classes: int, solver: Pegasos, scale: float, tmp_path: Path) -> None:
    X, y = random_problem(300, 6, 0.6, seed=61, n_classes=n_classes)
    X = X * scale
    weight = np.random.default_rng(62).integers(0, 3, 300).astype(float)
    rows = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, weight)
    with bench(solver, rows, tmp_path, C=0.3) as some:
        state = some.run(5)
        codes, W = np.unique(y, return_inverse=True)[1], columns(state.w)
        signs = np.where(codes[:, None] == some.problem.positive, 1.0, -1.0)
        alpha = state.rows.alpha.values
        expected = np.column_stack([X, np.ones(300)]).T @ (signs * alpha)
        assert np.abs(W - expected).max() <= 1e-11 * np.abs(alpha).max() * np.abs(X).max() * 300
        assert np.all(alpha >= 0)
        assert np.all(alpha <= 0.3 * weight[:, None] * (1 + 1e-12))
        if solver.projection:
            assert np.all((W**2).sum(axis=0) <= 0.3 * weight.sum() * (1 + 1e-12))
        if solver.batch:
            assert state.sqnorm == pytest.approx((W**2).sum(axis=0), rel=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 60, 500])
def test_after_whole_passes_every_visit_weighs_the_same(batch: int, tmp_path: Path) -> None:
    """Batches that are cut short too: alpha is C times the share of the passes in which the row violated."""
    X, y = random_problem(60, 3, seed=65, noise=0.3)
    with bench(Pegasos(batch=batch, offset=0, projection=False), ArrayRows(X, y), tmp_path, C=0.2) as some:
        alpha = some.run(4).rows.alpha.values
        visits = alpha * 4 / 0.2
        np.testing.assert_allclose(visits, np.round(visits), atol=1e-9)
        assert set(np.round(visits).ravel().astype(int)) >= {1, 4}


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_the_norm_that_is_kept_is_that_of_w(layout: str) -> None:
    X, y = random_problem(50, 3, 0.7, seed=66)
    W, scale, sqnorm, alpha = np.zeros(4), np.ones(1), np.zeros(1), np.zeros((50, 1))
    rows = readonly_view(as_csr(X) if layout == "csr" else X)
    pegasos_visit(
        LabelledRows(rows, (y > 0).astype(np.int32), np.ones(50), np.empty(0, np.int64)),
        Models(np.ones(1, np.int32), np.full(1, 0.5), 1.0, np.full(1, np.inf)),
        ScaledPoint(W, alpha, scale, sqnorm),
        StepLength(50, 1, 1.0, 0),
        VisitingOrder(1, 0, 0, 0),
        np.zeros((1, 2)),
    )
    assert sqnorm[0] > 0.0
    assert sqnorm[0] == pytest.approx(W @ W, rel=1e-9)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("size", [0, 500])
def test_the_step_is_one_over_t_and_the_offset(size: int, offset: int, tmp_path: Path) -> None:
    """From w = 0 every row violates: the first step goes 1 / (1 + offset) of the way to the sum of all of them."""
    X, y = random_problem(60, 3, seed=64)
    whole = np.append(X.T @ y, y.sum()) * 0.2
    with bench(Pegasos(batch=size, offset=offset, projection=False), ArrayRows(X, y), tmp_path, C=0.2) as some:
        state = some.run(1 if size else 2)  # the batch method looks at w = 0 first
        assert state.iteration == 1
        np.testing.assert_allclose(state.w, whole / (1 + offset), rtol=1e-12)
        np.testing.assert_allclose(state.rows.alpha.values, 0.2 / (1 + offset), rtol=1e-12)


def test_the_ball_holds_the_optimum_and_little_more(tmp_path: Path) -> None:
    """||w||^2 <= C sum of the costs at the optimum; without regularisation to speak of nearly that."""
    X, y = np.array([[1e-3], [-1e-3]]), np.array([1.0, -1.0])
    with bench(Pegasos(batch=0), ArrayRows(X, y, np.array([3.0, 5.0])), tmp_path, C=2.0) as some:
        some.run(1)
        assert some.solver._radius(some.state) ** 2 == pytest.approx(2.0 * 8.0)


@pytest.mark.parametrize("projection", [True, False])
def test_one_batch_of_all_rows_is_the_batch_method(tmp_path: Path, projection: bool) -> None:
    X, y = random_problem(200, 5, seed=63)
    found = []
    for solver, steps in (
        (Pegasos(batch=0, projection=projection), 31),
        (Pegasos(batch=500, projection=projection), 30),
    ):
        with bench(solver, ArrayRows(X, y), tmp_path, C=2.0) as some:
            state = some.run(steps)  # the batch method looks at w = 0 first
            assert state.iteration == 30
            found.append((state.w.copy(), state.rows.alpha.values.copy()))
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=1e-11, abs=1e-13)


def test_steps_of_the_papers_formula(tmp_path: Path) -> None:
    """A few mini-batches by hand, in the order that the kernel draws."""
    from bigsvm.compiled.shared.visiting import mixed_runs_of, visiting_order

    X, y = random_problem(60, 4, seed=64)
    lam, w, t = 0.5, np.zeros(4), 0
    for epoch in range(3):
        order = visiting_order(np.ones(60, np.uint8), mixed_runs_of(X, True), 9, epoch, 0)
        for first in range(0, 60, 20):
            t += 1
            A = order[first : first + 20]
            eta = 1.0 / (lam * (t + 1))
            violating = A[y[A] * (X[A] @ w) < 1.0]
            w = (1.0 - eta * lam) * w + eta / 20 * (y[violating, None] * X[violating]).sum(axis=0)
            w *= min(1.0, 1.0 / (np.sqrt(lam) * np.linalg.norm(w)))
    with bench(Pegasos(batch=20), ArrayRows(X, y), tmp_path, seed=9, lam=lam, bias="none") as some:
        assert some.run(3).w[:-1] == pytest.approx(w, rel=1e-12)


def test_a_weight_of_two_is_two_rows_to_the_batch_method(tmp_path: Path) -> None:
    X, y = random_problem(50, 4, seed=65)
    weight = np.random.default_rng(66).integers(0, 4, 50)
    found = []
    for rows in (ArrayRows(X, y, weight.astype(float)), ArrayRows(X.repeat(weight, axis=0), y.repeat(weight))):
        with bench(Pegasos(batch=0), rows, tmp_path, C=0.2) as some:
            found.append(some.run(40).w.copy())
    assert found[0] == pytest.approx(found[1], rel=1e-9)


@pytest.mark.parametrize("size", [0, 10])
def test_three_classes_together_take_the_steps_of_each_alone(size: int, tmp_path: Path) -> None:
    X, y = random_problem(150, 5, 0.7, seed=67, n_classes=3)
    with bench(Pegasos(batch=size), ArrayRows(X, y), tmp_path) as some:
        together = some.run(20).w.copy()
    for m in range(3):
        with bench(Pegasos(batch=size), ArrayRows(X, np.where(y == m, 1.0, -1.0)), tmp_path) as some:
            assert some.run(20).w == pytest.approx(together[:, m], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("size", [0, 10])
def test_dense_and_sparse_rows_give_one_model(size: int) -> None:
    X, y = random_problem(200, 6, 0.5, seed=68)
    options: dict[str, Any] = {
        "solver": "pegasos",
        "loss": "hinge",
        "max_passes": 50,
        "solver_options": {"batch": size},
    }
    one, other = (bigsvm.fit((rows, y), **options).figures["objective"] for rows in (X, sparse.csr_array(X)))
    assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"max_passes": 3}, {"solver_options": {"iterations": "6"}}])
def test_by_the_papers_rule_it_ends_after_a_number_of_steps(options: dict[str, Any]) -> None:
    X, y = random_problem(100, 6, seed=69)
    asked: dict[str, Any] = {"solver": "pegasos", "loss": "hinge", "stop": "paper", **options}
    if not options:
        with pytest.raises(UsageError, match=r"after a number of steps.*iterations.*N"):
            bigsvm.fit((X, y), **asked)
    else:
        assert bigsvm.fit((X, y), **asked).status == ("stopped" if "max_passes" in options else "paper_rule")


def test_streamed_the_batch_method_takes_the_same_steps(streaming: None, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = random_problem(300, 6, seed=69)
    config = FitConfig.of(
        solver="pegasos", loss="hinge", C=0.1, stop="paper", solver_options={"batch": "0", "iterations": "60"}
    )
    streamed = fit_store(ArrayRows(X, y), config)
    assert not streamed.model.about["plan"]["resident"]
    monkeypatch.undo()
    resident = fit_store(ArrayRows(X, y), config)
    assert resident.model.about["plan"]["resident"]
    for result in (streamed, resident):
        assert result.status == "paper_rule"
        assert result.figures["epochs"] == 61  # 60 steps and the look at the last
    assert streamed.figures["passes"] == pytest.approx(62)
    assert streamed.figures["objective"] == pytest.approx(resident.figures["objective"], rel=1e-9)
    assert streamed.figures["relative_gap"] == pytest.approx(resident.figures["relative_gap"], rel=1e-6)


@pytest.mark.cluster
@pytest.mark.parametrize("size", [0, 20])
def test_worker_processes_give_the_bytes_of_none(size: int, tmp_path: Path, streaming: None, cluster: str) -> None:
    X, y = random_problem(200, 5, seed=73, n_classes=3)
    options: dict[str, Any] = {
        "solver": "pegasos",
        "loss": "hinge",
        "max_passes": 20,
        "solver_options": {"batch": size},
    }
    for number, changed in enumerate(({"threads": 1}, {"scheduler": cluster})):
        result = bigsvm.fit((X, y), **options, **changed, scratch=str(tmp_path / f"scratch{number}"))
        result.save_model(tmp_path / str(number))
    for path in (tmp_path / "0").iterdir():
        assert path.read_bytes() == (tmp_path / "1" / path.name).read_bytes()


@pairs_of(size=[0, 4], n_classes=[2, 3], weighted=[False, True])
@pytest.mark.usefixtures("streaming")
def test_interrupted_anywhere_it_comes_to_the_same_bytes(
    size: int, n_classes: int, weighted: bool, tmp_path: Path
) -> None:
    X, y = random_problem(250, 6, 0.6, seed=70, n_classes=n_classes)
    store = ArrayRows(sparse.csr_array(X), y, np.random.default_rng(71).random(250) if weighted else None)
    config = FitConfig.of(
        solver="pegasos", loss="hinge", tol=1e-4, max_passes=12, memory="64MiB", solver_options={"batch": str(size)}
    )
    fit_store(store, config).save_model(tmp_path / "a")
    stops, done = 0, False
    while not done:
        left = 12 + stops

        def asked(self: Stop) -> bool:
            nonlocal left
            left -= 1
            if left <= 0:
                self.by = "SIGTERM"
            return left <= 0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Stop, "__bool__", asked)
            try:
                result = fit_store(store, config, checkpoints=Checkpoints(tmp_path / "c", {}, 1e9), resume=True)
                done = True
            except Interrupted:
                stops += 1
    result.save_model(tmp_path / "b")
    assert stops >= 3
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_proofs_are_few_while_the_tolerance_is_far(streaming: None) -> None:
    from bigsvm.events import CertificateMade

    X, y = random_problem(200, 5, seed=72, noise=0.3)
    proofs: list[Any] = []
    bigsvm.fit(
        (X, y), emit=lambda event: proofs.append(event) if isinstance(event, CertificateMade) else None,
        solver="pegasos", loss="hinge", tol=1e-9, max_passes=130,
    )  # fmt: skip
    assert 4 <= len(proofs) <= 7  # at 4, 8, 16, ... passes, and at the end


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": "-1"}, "must not be negative"),
        ({"offset": "2"}, "offset must be 0 or 1"),
        ({"projection": "perhaps"}, "perhaps"),
        ({"step": "1"}, "no option 'step'"),
    ],
)
def test_options_are_checked(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        choose_solver(FitConfig(solver="pegasos", loss="hinge", solver_options=options))


def test_projection_can_be_said_in_words() -> None:
    solver, _ = choose_solver(FitConfig(solver="pegasos", loss="hinge", solver_options={"projection": "0"}))
    assert solver == Pegasos(projection=False)
