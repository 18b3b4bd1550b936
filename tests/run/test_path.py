"""A path of C: each result is what a fit at that C gives, for the readings of one fit."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, Interrupted, UsageError
from bigsvm.events import EpochEnd, Event, FitStarted
from bigsvm.problem.problem import make_problem
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.path import fit_path_store
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws.capacity import rows_in
from bigsvm.solvers.newton_ws.newton_ws import NewtonWS
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.proofs import same_optimum

CS = [0.1, 10.0, 1.0]  # results come in the order that was asked for
SOLVERS = [
    ("newton-ws", "hinge"), ("newton-ws", "squared_hinge"), ("dcd", "hinge"), ("dcd", "squared_hinge"),
    ("newton", "squared_hinge"), ("newton-cg", "squared_hinge"),
]  # fmt: skip


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("solver", "loss"), SOLVERS)
def test_each_result_is_that_of_a_fit_at_its_C(solver: str, loss: str, n_classes: int) -> None:
    X, y = random_problem(200, 5, 0.7, seed=71, n_classes=n_classes)
    options: dict[str, Any] = {"solver": solver, "loss": loss, "tol": 1e-6, "class_weight": "balanced"}
    path = bigsvm.fit_path((X, y), CS, **options)
    assert [result.figures["C"] for result in path] == CS
    for result, C in zip(path, CS, strict=True):
        alone = bigsvm.fit((X, y), C=C, **options)
        assert result.status == "converged"
        assert result.certificate.relative_gap <= 1e-6
        assert result.figures["objective"] == pytest.approx(alone.figures["objective"], rel=1e-5)
        assert result.figures["objective"] == pytest.approx(result.certificate.primal.sum(), rel=1e-12)
        assert len(result.figures["models"]) == alone.model.n_models
        for ours, other in zip(result.figures["models"], alone.figures["models"], strict=True):
            assert ours["class"] == other["class"]
            assert ours["objective"] == pytest.approx(other["objective"], rel=1e-5)
        np.testing.assert_allclose(result.model.coef, alone.model.coef, rtol=0, atol=0.02)
        assert result.model.decision_function(X).shape == alone.model.decision_function(X).shape


@pytest.mark.parametrize("bias", ["augmented", "free", "none"])
def test_weights_sparse_rows_and_every_bias(bias: str) -> None:
    X, y = random_problem(200, 5, 0.5, seed=72)
    rows = (sparse.csr_array(X), y, np.random.default_rng(0).random(200))
    options: dict[str, Any] = {"solver": "newton-ws", "loss": "hinge", "tol": 1e-6, "bias": bias}
    for result in bigsvm.fit_path(rows, CS, **options):
        alone = bigsvm.fit(rows, C=result.figures["C"], **options)
        assert result.figures["objective"] == pytest.approx(alone.figures["objective"], rel=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_saved_model_of_a_path_is_like_any_other(tmp_path: Path, n_classes: int) -> None:
    X, y = random_problem(150, 4, seed=73, n_classes=n_classes)
    path = bigsvm.fit_path((X, y), [0.5, 2.0, 2.0], loss="squared_hinge", tol=1e-6)
    np.testing.assert_array_equal(path[1].model.coef, path[2].model.coef)
    path[1].save_model(tmp_path / "m")
    model = bigsvm.load_model(tmp_path / "m")
    assert model.about["problem"]["C"] == [2.0] * model.n_models
    assert model.about["C_path"] == [0.5, 2.0, 2.0]
    assert model.about["certificate"]["objective"] == path[1].certificate.primal.tolist()
    proof = bigsvm.certify(tmp_path / "m", (X, y))
    assert proof["bound"].startswith("weaker bound")
    assert proof["objective"] == pytest.approx(path[1].figures["objective"], rel=1e-12)


@pytest.mark.parametrize(("loss", "bias"), [("hinge", "augmented"), ("squared_hinge", "augmented"), ("hinge", "free")])
def test_a_streamed_path_reads_little_more_than_its_largest_C(streaming: None, loss: str, bias: str) -> None:
    X, y = random_problem(800, 4, seed=74, noise=0.1)
    options: dict[str, Any] = {"solver": "newton-ws", "loss": loss, "bias": bias, "stage": "none", "memory": "16MiB"}
    alone = bigsvm.fit((X, y), C=100.0, **options)
    path = bigsvm.fit_path((X, y), [0.1, 1.0, 100.0], **options)
    assert path[0].figures["bytes_read"] > path[0].figures["data_bytes"]  # they are not in memory
    assert path[0].figures["bytes_read"] <= 2 * alone.figures["bytes_read"]
    assert [result.status for result in path] == ["converged"] * 3
    same_optimum(path[2], alone)


def costs_begun(run: Any) -> tuple[list[float], Any]:
    """(the largest C of each fit, in order, what `run` returned)"""
    begun: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, FitStarted):
            begun.append(float(event.config["C"]))

    return begun, run(note)


def test_newton_cg_in_memory_trains_one_C_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All models of a fit took part in each product until the last was proved, though there were no passes to share."""
    X, y = random_problem(60, 200, seed=78, noise=0.2)
    costs, options = [1.0, 100.0, 1.0, 10.0], {"solver": "newton-cg", "loss": "squared_hinge", "tol": 1e-4}
    begun, path = costs_begun(lambda note: bigsvm.fit_path((X, y), costs, emit=note, **options))
    assert begun == [1.0, 10.0, 100.0]
    np.testing.assert_array_equal(path[0].model.coef, path[2].model.coef)
    for k, (result, C) in enumerate(zip(path, costs, strict=True)):
        assert (result.figures["C"], result.figures["C_path"], result.status) == (C, costs, "converged")
        same_optimum(result, bigsvm.fit((X, y), C=C, **options))
        result.save_model(tmp_path / str(k))
        about = bigsvm.load_model(tmp_path / str(k)).about
        assert (about["problem"]["C"], about["C_path"], about["plan"]["why"]) == ([C], costs, "as asked")
        proof = bigsvm.certify(tmp_path / str(k), (X, y))
        assert proof["objective"] == pytest.approx(result.figures["objective"], rel=1e-12)
        assert (result.figures["passes"], result.figures["epochs"]) == (3.0, path[0].figures["epochs"])
    monkeypatch.setattr("bigsvm.run.path._plan_of_turns", lambda store, config: None)
    together = bigsvm.fit_path((X, y), costs, **options)
    assert path[0].figures["epochs"] < 0.7 * together[0].figures["epochs"]
    for one, other in zip(path, together, strict=True):
        same_optimum(one, other)


@pytest.mark.parametrize("how", ["max_passes", "max_time", "streaming", "dcd", "one C"])
def test_other_paths_are_one_fit(how: str, request: pytest.FixtureRequest) -> None:
    """A limit is one of the whole path, and rows that stream are read for all values of C at a time."""
    X, y = random_problem(60, 20, seed=79, noise=0.2)
    options: dict[str, Any] = {"solver": "newton-cg", "loss": "squared_hinge"}
    options |= {"max_passes": {"max_passes": 99}, "max_time": {"max_time": "1h"}, "dcd": {"solver": "dcd"}}.get(how, {})
    if how == "streaming":
        request.getfixturevalue("streaming")
    costs = [2.0, 2.0] if how == "one C" else [1.0, 2.0]
    begun, path = costs_begun(lambda note: bigsvm.fit_path((X, y), costs, emit=note, **options))
    assert (begun, [result.figures["C"] for result in path]) == ([2.0], costs)


@pytest.mark.usefixtures("freed_is_returned")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_streamed_path_keeps_its_budget(loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsvm.run.fit.sizes.Sizes.resident_from", lambda self: 1 << 50)
    X, y = random_problem(9000, 200, seed=77, noise=0.05)
    store = ArrayRows(X.astype(np.float32), y)
    options: dict[str, Any] = {"solver": "newton-ws", "loss": loss, "tol": 1e-2, "threads": 1}
    least = make_plan(store, FitConfig(C_path=CS, memory="8GiB", **options)).min_memory_bytes
    result = bigsvm.fit_path((X.astype(np.float32), y), CS, memory=least, **options)[0]
    assert result.model.about["plan"]["resident"] is False
    assert result.figures["solver"] == "newton-ws"
    assert result.memory["peak_anon_bytes"] - result.memory["base_bytes"] <= least


def test_only_the_squared_hinge_pays_for_matrices_of_folded_rows() -> None:
    shape = DataShape(n_samples=10**6, n_features=700, nnz=10**8, n_models=8)
    one = 8 * triangle_size(701)
    hessian = {
        linear: next(
            need.nbytes
            for need in NewtonWS().needs(replace(shape, smooth_loss=not linear), False)
            if need.what == "Hessian"
        )
        for linear in (True, False)
    }
    assert hessian[True] <= 4 * one
    assert hessian[False] >= (4 + 3 * 8) * one


def test_a_limit_leaves_each_C_its_own_status(streaming: None) -> None:
    X, y = random_problem(400, 20, seed=37, noise=0.4)
    easy, hard = bigsvm.fit_path((X, y), [1e-4, 1e3], solver="dcd", loss="hinge", tol=1e-4, max_passes=8)
    assert (easy.status, hard.status) == ("converged", "stopped")
    assert ("hint" in easy.figures, "hint" in hard.figures) == (False, True)
    assert easy.certificate.relative_gap <= 1e-4 < hard.certificate.relative_gap
    assert (easy.model.about["status"], hard.exit_code()) == ("converged", 4)


def test_a_stopped_path_goes_on_from_its_checkpoint(streaming: None, tmp_path: Path) -> None:
    store = ArrayRows(*random_problem(300, 5, seed=75, noise=0.2))
    config = FitConfig.of(solver="dcd", loss="hinge", tol=1e-4, memory="64MiB")
    straight = fit_path_store(store, CS, config)
    steps: list[Event] = []

    def kill(event: Event) -> None:
        if isinstance(event, EpochEnd):
            steps.append(event)
            if len(steps) == 3:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        fit_path_store(store, CS, config, kill, Checkpoints(tmp_path / "c", {}, 1e9))
    with pytest.raises(BigSVMError, match="of another run: C_path was"):
        fit_path_store(store, [10.0], config, checkpoints=Checkpoints(tmp_path / "c", {}, 1e9), resume=True)
    again = fit_path_store(store, CS, config, checkpoints=Checkpoints(tmp_path / "c", {}, 1e9), resume=True)
    for one, other in zip(straight, again, strict=True):
        np.testing.assert_array_equal(one.model.coef, other.model.coef)
        assert one.model.about == other.model.about


def test_auto_goes_by_the_largest_C() -> None:
    X, y = random_problem(500, 3, seed=76)
    for Cs in ([0.1, 1.0], [1000.0, 0.1]):
        path = bigsvm.fit_path((X, y), Cs, loss="hinge")
        chosen = make_plan(ArrayRows(X, y), FitConfig(loss="hinge", C=max(Cs))).solver.name
        assert path[0].figures["solver"] == chosen


@pytest.mark.parametrize("Cs", [[], [1.0, 0.0], [-1.0], [1.0, np.inf], [np.nan], ["one"], "12", 1.0, None])
def test_bad_costs_are_refused_in_one_line(Cs: Any) -> None:
    with pytest.raises(UsageError, match="positive number") as error:
        bigsvm.fit_path(random_problem(20, 2), Cs)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("options", [{"C": 1.0}, {"lam": 0.1}, {"C_path": [1.0]}])
def test_only_Cs_has_the_costs(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        bigsvm.fit_path(random_problem(20, 2), [1.0], **options)
    with pytest.raises(UsageError, match="unknown option"):
        bigsvm.fit(random_problem(20, 2), C_path=[1.0])


def test_models_that_differ_in_C_alone_share_the_room_of_the_working_set() -> None:
    one = DataShape(n_samples=10**6, n_features=100, nnz=10**8, n_models=1)
    path, classes = replace(one, n_models=8, n_costs=8), replace(one, n_models=8)

    def rows_held(shape: DataShape) -> float:
        held = next(need.nbytes for need in NewtonWS().needs(shape, False) if need.what == "working set")
        return rows_in(held, shape)

    assert rows_held(path) < 3 * rows_held(one)
    assert rows_held(classes) == pytest.approx(8 * rows_held(one), rel=1e-3)
    problem = make_problem(FitConfig(C_path=CS), ArrayRows(*random_problem(60, 3, n_classes=3)))
    assert (problem.n_models, problem.n_costs) == (9, 3)
    assert problem.C.tolist() == np.repeat(CS, 3).tolist()
    assert problem.positive.tolist() == [0, 1, 2] * 3
