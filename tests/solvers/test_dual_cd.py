"""dcd against an independent solver, over losses, layouts, biases, corners and ways of holding the rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import Unsupported, UsageError
from bigsvm.events import EpochEnd, silent
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import make_problem
from bigsvm.run.execute.local import SerialMapper
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.solvers.dcd.dual_cd_state import ModelGroup
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import corner_problems, random_problem
from bigsvm.testing.reference import dual_optimum
from tests.products import pairs_of
from tests.solvers.stepping import choose_solver

CORNERS = corner_problems()


@pairs_of(
    corner__loss=[(corner, loss) for corner in CORNERS for loss in ("hinge", "squared_hinge")],
    bias=["augmented", "none"], layout=["dense", "csr"], C=[1e-4, 1.0],
)  # fmt: skip
def test_every_corner_is_proved_and_agrees_with_lbfgsb(
    corner: str, bias: str, loss: str, layout: str, C: float
) -> None:
    X, y = CORNERS[corner]
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    result = bigsvm.fit((rows, y), solver="dcd", loss=loss, bias=bias, C=C, tol=1e-6, threads=1, max_passes=100_000)
    assert result.status == "converged"
    assert result.certificate.relative_gap <= 1e-6
    expected = dual_optimum(X, y, np.full(len(y), C), loss, 1.0 if bias == "augmented" else 0.0)
    objective = result.figures["objective"]
    assert objective >= expected * (1 - 1e-9)
    if corner != "large values":  # there L-BFGS-B stops short, and its dual value is only a lower bound
        assert objective == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("tol", [1e-3, 1e-7])  # weights in float32 and in float64
@pytest.mark.parametrize("row_buffer", ["auto", "off"])
def test_streamed_rows_reach_the_same_optimum(
    loss: str, layout: str, tol: float, row_buffer: str, streaming: None
) -> None:
    X, y = random_problem(400, 6, 0.7, seed=21, noise=0.2)
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    config = FitConfig(solver="dcd", loss=loss, tol=tol, C=0.1, threads=1, solver_options={"row_buffer": row_buffer})
    streamed = fit_store(ArrayRows(rows, y), config)
    plan = streamed.model.about["plan"]
    assert not plan["resident"]
    assert plan["n_blocks"] > 20
    assert plan["group_extents"] > 1
    assert (plan["row_buffer_bytes"] > 0) == (row_buffer == "auto")
    assert streamed.status == "converged"
    assert streamed.figures["passes"] > 2
    assert 0 <= streamed.certificate.relative_gap <= tol
    expected = dual_optimum(X, y, np.full(400, 0.1), loss)
    assert streamed.figures["objective"] == pytest.approx(expected, rel=1.1 * tol)
    assert streamed.figures["dual_objective"] <= expected * (1 + 1e-9)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("n_classes", [10, 20])
def test_many_streamed_models_are_every_class_alone(loss: str, n_classes: int, streaming: None) -> None:
    X, y = random_problem(300, 6, seed=27, n_classes=n_classes)
    result = bigsvm.fit((X, y), solver="dcd", loss=loss, tol=1e-3, C=0.1)
    assert len(result.alpha) == 2
    assert result.status == "converged"
    for m in range(n_classes):
        alone = dual_optimum(X, np.where(y == m, 1.0, -1.0), np.full(300, 0.1), loss)
        assert result.figures["models"][m]["objective"] == pytest.approx(alone, rel=1.1e-3)


def test_the_row_buffer_spares_passes(streaming: None) -> None:
    X, y = random_problem(600, 20, 0.5, seed=28, noise=0.2)
    passes = {}
    for row_buffer in ("auto", "off"):
        result = bigsvm.fit((X, y), loss="hinge", tol=1e-3, solver_options={"row_buffer": row_buffer})
        assert result.status == "converged"
        passes[row_buffer] = result.figures["passes"]
    assert passes["auto"] < 0.5 * passes["off"]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_rows_drawn_with_replacement_reach_the_same_optimum(loss: str, layout: str, n_classes: int) -> None:
    X, y = random_problem(200, 6, 0.7, seed=31, noise=0.2, n_classes=n_classes)
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    weights = np.ones(200)
    weights[:20] = 0.0
    drawn = bigsvm.fit((rows, y, weights), solver="dcd", loss=loss, tol=1e-6, C=0.1, solver_options={"order": "random"})
    assert drawn.status == "converged"
    assert drawn.certificate.relative_gap <= 1e-6
    for entry in drawn.figures["models"]:
        signs = np.where(y[20:] == entry["class"], 1.0, -1.0)
        alone = dual_optimum(X[20:], signs, np.full(180, 0.1), loss)
        assert entry["objective"] == pytest.approx(alone, rel=2e-6)
    if n_classes == 2:
        assert drawn.figures["epochs"] == round(drawn.figures["epochs"])  # nothing is shrunk
    every = bigsvm.fit((rows, y, weights), loss=loss, tol=1e-6, C=0.1, solver="dcd")
    assert np.any(drawn.model.coef != every.model.coef)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_streamed_rows_drawn_with_replacement_go_without_row_buffer_and_momentum(loss: str, streaming: None) -> None:
    X, y = random_problem(400, 6, 0.7, seed=21, noise=0.2)
    drawn = bigsvm.fit((X, y), solver="dcd", loss=loss, tol=1e-3, C=0.1, solver_options={"order": "random"})
    plan = drawn.model.about["plan"]
    assert not plan["resident"]
    assert plan["n_blocks"] > 20
    assert plan["row_buffer_bytes"] == 0
    assert drawn.status == "converged"
    assert drawn.figures["objective"] == pytest.approx(dual_optimum(X, y, np.full(400, 0.1), loss), rel=1.1e-3)
    with pytest.raises(Unsupported, match="use shards=1"):
        bigsvm.fit((X, y), solver="dcd", loss=loss, shards=2, solver_options={"order": "random"})


def test_draws_belong_to_the_seed() -> None:
    X, y = random_problem(100, 5, seed=32, noise=0.2)

    def weights(seed: int) -> np.ndarray:
        asked = {"order": "random"}
        return bigsvm.fit((X, y), solver="dcd", loss="hinge", tol=1e-2, seed=seed, solver_options=asked).model.coef

    np.testing.assert_array_equal(weights(3), weights(3))
    assert np.any(weights(3) != weights(4))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_row_of_weight_two_is_two_rows(loss: str) -> None:
    X, y = random_problem(60, 4, seed=22)
    weights = np.ones(60)
    weights[10:20] = 2.0
    weights[30:35] = 0.0
    weighted = bigsvm.fit((X, y, weights), solver="dcd", loss=loss, tol=1e-8)
    keep = np.concatenate([np.arange(30), np.arange(35, 60), np.arange(10, 20)])
    repeated = bigsvm.fit((X[keep], y[keep]), solver="dcd", loss=loss, tol=1e-8)
    assert weighted.figures["objective"] == pytest.approx(repeated.figures["objective"], rel=3e-8)
    np.testing.assert_allclose(weighted.model.coef, repeated.model.coef, atol=1e-3)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_class_weights_scale_the_cost_of_their_rows(loss: str) -> None:
    X, y = random_problem(80, 4, seed=23, noise=0.3)
    result = bigsvm.fit((X, y), solver="dcd", loss=loss, tol=1e-7, class_weight={"-1": 0.25, "1": 3.0})
    expected = dual_optimum(X, y, np.where(y > 0, 3.0, 0.25), loss)
    assert result.figures["objective"] == pytest.approx(expected, rel=1e-6)
    balanced = bigsvm.fit((X, y), solver="dcd", loss=loss, tol=1e-7, class_weight="balanced")
    costs = 80 / (2 * np.where(y > 0, (y > 0).sum(), (y < 0).sum()))
    assert balanced.figures["objective"] == pytest.approx(dual_optimum(X, y, costs, loss), rel=1e-6)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_scaling_x_by_s_and_c_by_one_over_s_squared_changes_no_decision(loss: str) -> None:
    X, y = random_problem(60, 5, seed=24, noise=0.2)
    plain = bigsvm.fit((X, y), solver="dcd", loss=loss, tol=1e-9, bias="none", C=0.5)
    scaled = bigsvm.fit((8 * X, y), solver="dcd", loss=loss, tol=1e-9, bias="none", C=0.5 / 64)
    np.testing.assert_allclose(plain.model.decision_function(X), scaled.model.decision_function(8 * X), atol=2e-4)
    assert plain.figures["objective"] == pytest.approx(64 * scaled.figures["objective"], rel=1e-8)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_one_against_rest_is_every_class_alone(loss: str) -> None:
    X, y = random_problem(150, 6, seed=25, n_classes=4)
    together = bigsvm.fit((X, y), solver="dcd", loss=loss, tol=1e-6)
    assert len(together.figures["models"]) == 4
    for m, entry in enumerate(together.figures["models"]):
        assert entry["class"] == m
        alone = dual_optimum(X, np.where(y == m, 1.0, -1.0), np.ones(150), loss)
        assert entry["objective"] == pytest.approx(alone, rel=2e-6)
    assert together.figures["objective"] == pytest.approx(sum(e["objective"] for e in together.figures["models"]))
    assert together.figures["relative_gap"] == max(e["relative_gap"] for e in together.figures["models"])


@pytest.mark.parametrize("n_classes", [4, 12])
def test_a_class_that_is_done_rests_until_a_proof_says_otherwise(
    n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The last two classes look alike and take longest: others must not be trained as long as they are."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, n_classes, 600)
    X = np.zeros((600, n_classes + 20))
    X[np.arange(600), y] = 3.0
    X[:, n_classes:] = rng.standard_normal((600, 20))
    hard = y >= n_classes - 2
    X[hard, n_classes - 2 : n_classes] = 0.0  # the last two look alike
    resting: list[int] = []
    rest = ModelGroup.rest

    def counted(group: ModelGroup, trained: Any) -> None:
        rest(group, trained)
        resting.append(int((group.moves == 0).sum()) if group.moves.any() else 0)

    monkeypatch.setattr(ModelGroup, "rest", counted)
    told = []
    for threads in (1, 2):
        fit = bigsvm.fit((X, y), threads=threads, solver="dcd", loss="hinge", tol=1e-3, bias="none")
        assert fit.status == "converged"
        assert float(fit.certificate.relative_gaps.max()) <= 1e-3
        told.append(fit.model.coef.tobytes())
    assert told[0] == told[1]
    assert max(resting) >= 1  # some rested while others went on


def noisy_classes(seed: int, n: int, n_features: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of classes that no plane separates, so that `dcd` needs many epochs."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_features)).astype(np.float32)
    scores = X @ rng.standard_normal((n_features, n_classes)) + 3.0 * rng.standard_normal((n, n_classes))
    return X, scores.argmax(axis=1)


@pytest.mark.parametrize(("loss", "tol"), [("hinge", 1e-3), ("squared_hinge", 1e-4)])
def test_classes_that_all_rest_are_proved_and_come_back(loss: str, tol: float) -> None:
    """The estimates of all classes met the target, a proof did not: such fits ended as stalled, just above it."""
    seen: list[Any] = []
    fit = bigsvm.fit(noisy_classes(1, 1000, 5, 6), solver="dcd", loss=loss, tol=tol, emit=seen.append)
    assert fit.status == "converged"
    visited = [event.active_rows for event in seen if isinstance(event, EpochEnd)]
    assert min(visited) > 0  # the proof follows at once, not after a step without rows


def test_proofs_that_show_shrunk_rows_do_not_make_a_fit_hopeless() -> None:
    """Proofs after twice as many epochs each are so few that one with a larger gap made the rate of the fit 0."""
    fit = bigsvm.fit(noisy_classes(8, 300, 60, 6), solver="dcd", loss="squared_hinge", C=100.0, tol=1e-2)
    assert fit.status == "converged"


def test_one_class_alone_never_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = random_problem(200, 8, seed=3, noise=0.2)
    moves: list[bool] = []
    take_proved = DualCD.take_proved

    def seen(self: DualCD, state: Any, proved: np.ndarray) -> None:
        take_proved(self, state, proved)
        moves.extend(bool(group.moves.all()) for group in state.groups)

    monkeypatch.setattr(DualCD, "take_proved", seen)
    assert bigsvm.fit((X, y), solver="dcd", loss="hinge", tol=1e-6).status == "converged"
    assert moves
    assert all(moves)


def test_permuted_working_rows_and_features_come_back_in_the_users_order() -> None:
    X, y = random_problem(90, 6, seed=26)
    rng = np.random.default_rng(1)
    rows, features = rng.permutation(90), rng.permutation(6)
    plain = bigsvm.fit((X, y), solver="dcd", loss="squared_hinge", tol=1e-10)
    moved = fit_store(
        ArrayRows(X, y, row_order=rows, feature_order=features),
        FitConfig(solver="dcd", loss="squared_hinge", tol=1e-10),
        silent,
    )
    np.testing.assert_allclose(moved.model.coef, plain.model.coef, atol=1e-4)
    (found,), (expected,) = moved.alpha, plain.alpha
    ours = np.concatenate(list(found.in_store_order(moved.working_row)))
    np.testing.assert_allclose(ours, expected.values, atol=1e-3)


def learning(folder: Path) -> tuple[DualCD, Any, ModelGroup]:
    """A solver on rows in memory, its state, and its only group of models."""
    X, y = random_problem(50, 4, seed=29)
    data = ArrayRows(X, y)
    refs = data.refs(50)
    ctx = Context(
        data=data, refs=refs, resident=True, mapper=SerialMapper(), budget=MemoryBudget(1 << 20), seed=0, shards=1,
        threads=1, read_depth=1, group_blocks=1, proof_refs=refs, workdir=folder, tol=1e-3,
    )  # fmt: skip
    solver = DualCD()
    state = solver.init(make_problem(FitConfig(loss="hinge"), data), ctx)
    (group,) = state.groups
    group.w[...] = 1.0
    return solver, state, group


def certified(primal: float, dual: float) -> Certificate:
    P, D = np.array([primal]), np.array([dual])
    return Certificate(P, D, P - D, 50, 0.0, np.zeros(1, np.int64))


def test_a_proof_takes_the_rounding_out_of_w(tmp_path: Path) -> None:
    solver, state, group = learning(tmp_path)
    solver.learn(state, certified(2.0, 1.0), [np.full(5, 1.5)], [group.w])
    assert group.w.tolist() == [1.5] * 5
    # Where w has moved on since, it keeps what it has won.
    solver.learn(state, certified(2.0, 1.0), [np.full(5, 1.25)], [np.full(5, 1.0)])
    assert group.w.tolist() == [1.75] * 5


def test_a_proof_leaves_its_lower_bound_behind(tmp_path: Path) -> None:
    solver, state, group = learning(tmp_path)
    for dual, floor in ((1.0, 1.0), (0.5, 1.0), (1.5, 1.5)):
        solver.learn(state, certified(2.0, dual), [group.w.copy()], [group.w])
        assert group.floor.tolist() == [floor]


def test_a_proof_that_falls_short_brings_shrunk_rows_back(tmp_path: Path) -> None:
    solver, state, group = learning(tmp_path)
    for estimate, back in ((0.4, 0), (1e-4, 1)):
        group.active.values[:], group.estimate = 0, estimate
        group.thresholds[...] = 0.0
        solver.learn(state, certified(2.0, 1.0), [group.w.copy()], [group.w])
        assert np.all(group.active.values == back)
        assert np.all(np.isinf(group.thresholds)) == bool(back)


def test_options_and_names_are_checked_in_milliseconds() -> None:
    solver, why = choose_solver(FitConfig(solver="dcd", solver_options={"max_sweeps_per_step": "3"}))
    defaults = {
        "row_buffer": "auto", "momentum": "auto", "order": "permutation", "eps": 1e-3, "interior_after": 0,
        "takeover_after": -1,
    }  # fmt: skip
    options = {name: value for name, value in dataclasses.asdict(solver).items() if name != "asked"}
    assert options == {"max_sweeps_per_step": 3, **defaults}
    assert why == "as asked"
    for options, error, words in (
        ({"solver": "sgd"}, UsageError, "unknown solver"),
        ({"solver": "dcd", "bias": "free"}, Unsupported, "dcd"),
        ({"solver": "pcd", "loss": "epsilon_insensitive"}, Unsupported, "squared_hinge"),
        ({"solver": "newton-cg", "stop": "paper", "loss": "squared_hinge"}, Unsupported, "gap"),
        ({"solver": "dcd", "solver_options": {"eps1": "1"}}, UsageError, "no option 'eps1'"),
        (
            {"solver": "dcd", "solver_options": {"max_sweeps_per_step": "x"}},
            UsageError,
            "max_sweeps_per_step",
        ),
        ({"solver": "dcd", "solver_options": {"row_buffer": "nonsense"}}, UsageError, "row_buffer"),
        ({"solver": "dcd", "solver_options": {"momentum": "0.9"}}, UsageError, "momentum"),
        ({"solver": "dcd", "solver_options": {"order": "sorted"}}, UsageError, "order"),
        ({"solver": "dcd", "solver_options": {"eps": "0"}}, UsageError, "eps must be above 0"),
        ({"solver": "dcd", "solver_options": {"order": "random", "momentum": "on"}}, UsageError, "momentum=on"),
    ):
        with pytest.raises(error, match=words):
            choose_solver(FitConfig(**options))
