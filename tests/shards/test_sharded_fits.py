"""Fits with shards end at the optimum of fits without, and their bytes do not depend on who computes."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.plan import make_plan
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.dcd.shards.shard_state import ShardState
from bigsvm.solvers.dcd.shards.sharded_pass import ShardedGroup
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.products import pairs_of
from tests.run.test_checkpoint import stopped
from tests.shards.apart import Apart

CLASSES = ("hinge", "squared_hinge")
LEAPS: dict[str, Any] = {"bias": "none", "solver_options": {"row_buffer": "off"}}
"""Passes start ahead of where the last one ended."""
TARGETS = ("epsilon_insensitive", "squared_epsilon_insensitive")


def folder_bytes(result: Any, path: Path) -> dict[str, bytes]:
    result.save_model(path, overwrite=True)
    return {p.name: p.read_bytes() for p in sorted(path.iterdir())}


def rows_of(loss: str, n_classes: int = 2, weights: bool = False) -> ArrayRows:
    """Few enough rows that a pass is short, and classes of different sizes, so that there is a bias to find."""
    X, y = random_problem(400, 6, seed=33, noise=0.2, n_classes=n_classes)
    X = X + 0.5
    weight = np.linspace(0.0, 2.0, 400) if weights else None
    if loss in TARGETS:
        t = X @ np.arange(6.0) + 3.0 + np.sin(np.arange(400))
        return ArrayRows(X, t, task="regression", sample_weight=weight)
    return ArrayRows(sparse.csr_array(X), y, sample_weight=weight)


@pytest.mark.usefixtures("streaming")
@pairs_of(loss=CLASSES + TARGETS, bias=["augmented", "none"], shards__weights=[(2, True), (5, False)])
def test_every_loss_and_bias_comes_to_its_optimum(loss: str, bias: str, shards: int, weights: bool) -> None:
    rows = rows_of(loss, weights=weights)
    options: dict[str, Any] = {"solver": "dcd", "loss": loss, "bias": bias, "C": 0.1, "tol": 1e-3}
    alone = bigsvm.fit(rows, **options)
    apart = bigsvm.fit(rows, shards=shards, rounds_per_pass=8, **options)
    assert (alone.status, apart.status) == ("converged", "converged")
    assert apart.figures["objective"] == pytest.approx(alone.figures["objective"], rel=1.1e-3)
    assert apart.figures["dual_objective"] <= alone.figures["objective"]


@pytest.mark.usefixtures("streaming")
def test_models_of_two_groups_come_to_the_optimum_on_shards() -> None:
    """A group has at most 64 models."""
    rows = rows_of("hinge", n_classes=66)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "bias": "none", "C": 0.1, "tol": 1e-2}
    alone, apart = bigsvm.fit(rows, **options), bigsvm.fit(rows, shards=2, **options)
    assert (alone.status, apart.status) == ("converged", "converged")
    assert apart.figures["objective"] == pytest.approx(alone.figures["objective"], rel=1.1e-2)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(("n_classes", "most"), [(3, 4), (3, 5), (66, 6), (66, 7), (66, 9), (130, 12)])
def test_a_fit_ends_within_the_passes_that_it_may_take(n_classes: int, most: int) -> None:
    """Each group of models reads all rows, in a step and in a proof: 66 models are two groups, 130 are three."""
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "bias": "none", "C": 10.0, "tol": 1e-9}
    result = bigsvm.fit(rows_of("hinge", n_classes), shards=2, max_passes=most, **options)
    groups = -(-n_classes // 64)
    assert result.status == "stopped"
    assert most - groups < result.figures["passes"] <= most


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("n_classes", [2, 5])
def test_bytes_are_of_shards_and_rounds_and_of_nothing_else(n_classes: int, tmp_path: Path) -> None:
    rows = rows_of("hinge", n_classes)
    options: dict[str, Any] = {
        "solver": "dcd",
        "loss": "hinge",
        "C": 0.1,
        "tol": 1e-2,
        "memory": "64MiB",
        "max_passes": 6,
    }
    same = [{"scheduler": "serial"}, {"threads": 2}, {"threads": 5}]
    found = [folder_bytes(bigsvm.fit(rows, shards=6, **options, **how), tmp_path / "m") for how in same]
    assert all(other == found[0] for other in found)
    for changed in ({"shards": 5}, {"shards": 6, "rounds_per_pass": 5}):
        assert folder_bytes(bigsvm.fit(rows, **options, **changed), tmp_path / "m") != found[0]


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon_insensitive"])
def test_no_round_lowers_the_dual_at_the_bias_that_it_was_given(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bias b held, the dual of the saddle is a concave function of alpha; a round goes up on it or stays."""
    rows = rows_of(loss)
    seen: list[float] = []
    steps: list[float] = []

    def value(group: ShardedGroup, alpha: np.ndarray, bias: float) -> float:
        problem, a, data = group.models.problem, alpha[:, 0], group._rows[0].data
        block = data.read(data.refs(400)[0])  # in the order of alpha
        X = sparse.csr_array((block.X.data, block.X.indices, block.X.indptr)).toarray() if loss in CLASSES else block.X
        if loss in CLASSES:
            y = np.where(block.y == problem.positive[0], 1.0, -1.0)
            gain, diag = a.sum(), problem.loss.diag_factor / problem.C[0]
        else:
            y, diag = np.ones(len(a)), 0.0
            gain = block.y @ a - problem.loss.epsilon * np.abs(a).sum()
        w = (a * y) @ X
        return float(gain - bias * (a @ y) - 0.5 * w @ w - 0.5 * diag * (a @ a))

    whole = ShardedGroup.round

    def watched(self: ShardedGroup, *told: Any) -> None:
        if len(self.models.alpha.values) != 400:  # the few rows of a fit that compiles
            return whole(self, *told)
        self.collect()
        before, bias = self.models.alpha.values.copy(), float(self._bias()[0])
        whole(self, *told)
        self.collect()
        seen.append(value(self, self.models.alpha.values, bias) - value(self, before, bias))
        steps.append(float(self.theta[0]))
        return None

    monkeypatch.setattr(ShardedGroup, "round", watched)
    options: dict[str, Any] = {"C": 0.1, "tol": 1e-9, "shards": 8, "rounds_per_pass": 2}  # float64 weights
    bigsvm.fit(rows, solver="dcd", loss=loss, max_passes=40, **options)
    assert len(seen) > 50
    assert min(seen) > -1e-9
    assert max(seen) > 0.01
    assert sum(0.0 < step < 1.0 for step in steps) > 3  # the line search had its say


@pytest.mark.usefixtures("streaming_hundreds")
@pytest.mark.parametrize(("loss", "rounds"), [("squared_hinge", 8), ("epsilon_insensitive", 8), ("hinge", 1)])
def test_the_bias_settles_where_many_rows_push_it(loss: str, rounds: int) -> None:
    """Few features and many rows that are all inside their box, or at its ends: each pass pushes the bias again."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 8))
    t = X @ rng.normal(size=8) + 1.0 + 0.5 * rng.normal(size=1200)
    y = np.where(t > 0.0, 1, -1)
    rows = ArrayRows(X, t, task="regression") if loss in TARGETS else ArrayRows(X, y)
    options: dict[str, Any] = {"solver": "dcd", "loss": loss, "shards": 4, "rounds_per_pass": rounds, "tol": 1e-9}
    result = bigsvm.fit(rows, max_passes=60 if rounds == 1 else 40, **options)
    assert result.figures["relative_gap"] < (0.3 if rounds == 1 else 0.03)


@pytest.mark.usefixtures("streaming_hundreds")
def test_many_rounds_a_pass_are_worth_more_than_one() -> None:
    """One sum a pass (CoCoA's way) needs several times the passes: the harness sees the difference."""
    X, y = random_problem(2000, 40, 0.2, seed=5, noise=0.1)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "C": 0.1, "tol": 1e-2, "max_passes": 60}
    options["solver_options"] = {"row_buffer": "off"}
    one, many = (bigsvm.fit((X, y), shards=8, rounds_per_pass=p, **options) for p in (1, 32))
    assert many.status == "converged"
    assert one.figures["passes"] > 2 * many.figures["passes"]


@pytest.mark.usefixtures("streaming_hundreds")
def test_passes_that_start_ahead_are_fewer_and_end_at_the_optimum() -> None:
    X, y = random_problem(2000, 40, seed=5, noise=0.1)
    problem: dict[str, Any] = {"loss": "squared_hinge", "bias": "none", "C": 0.1}
    options: dict[str, Any] = {"solver": "dcd", "tol": 1e-2, "max_passes": 60, **problem}
    found = {
        momentum: bigsvm.fit(
            (X, y), shards=4, rounds_per_pass=16, solver_options={"row_buffer": "off", "momentum": momentum}, **options
        )
        for momentum in ("auto", "off")
    }
    assert found["auto"].status == "converged"
    assert found["auto"].figures["passes"] < 0.7 * found["off"].figures["passes"]
    assert found["auto"].alpha[0].values.min() >= 0.0
    optimum = bigsvm.fit((X, y), tol=1e-6, **problem)
    assert found["auto"].figures["objective"] == pytest.approx(optimum.figures["objective"], rel=1.1e-2)


def test_shards_and_rounds_follow_from_the_shape() -> None:
    from bigsvm.solvers.base import DataShape
    from bigsvm.solvers.dcd.dual_cd import DualCD
    from bigsvm.solvers.primal.newton import Newton
    from bigsvm.solvers.shards import rounds_of, shards_of

    auto = FitConfig.of()
    sizes = [1e9, 16e9, 24e9, 25e9, 64e9, 1e12, 1e14]
    assert [shards_of(auto, int(size)) for size in sizes] == [1, 1, 1, 2, 4, 64, 256]
    assert shards_of(FitConfig.of(shards=3), 10) == 3
    for shards, size in [(2, 32e9), (64, 1e12), (256, 1e13)]:
        shape = DataShape(10**9, 10**6, 10**11, 1, shards, weight_bytes=4)
        rounds = rounds_of(auto, shape, int(size), DualCD())
        assert max(shards, 16) <= rounds <= 256
        assert math.log2(rounds).is_integer()
    assert rounds_of(FitConfig.of(rounds_per_pass=7), DataShape(56, 10, 10, 1, 2), 10, DualCD()) == 7
    assert rounds_of(FitConfig.of(rounds_per_pass=4135), DataShape(94, 2, 188, 1, 2), 10, DualCD()) == 12
    assert rounds_of(auto, DataShape(10, 10, 10, 1), 10, DualCD()) == 1
    assert rounds_of(auto, DataShape(10, 10, 10, 1, 2), 10, Newton()) == 1
    shape = DataShape(10**9, 10**6, 10**11, 1, 8, weight_bytes=4)
    told = [rounds_of(FitConfig.of(sum_seconds=s), shape, int(128e9), DualCD()) for s in (1e-6, 0.03, 0.1, 0.5, 1e6)]
    assert told == [256, 64, 32, 16, 16]
    assert rounds_of(FitConfig.of(sum_seconds=1e6), DataShape(10**9, 9, 9, 1, 64), int(1e12), DualCD()) == 64
    assert rounds_of(FitConfig.of(sum_seconds=0.5), DataShape(56, 10, 10, 1, 2), 10, DualCD()) == 4
    with pytest.raises(bigsvm.errors.UsageError, match="'newton' adds shards up once a pass"):
        rounds_of(FitConfig.of(rounds_per_pass=7), DataShape(10, 10, 10, 1, 2), 10, Newton())


def test_every_shard_has_rows_where_there_are_enough() -> None:
    from bigsvm.solvers.base import DataShape
    from bigsvm.solvers.shards import extent_rows_of

    assert extent_rows_of(5000, DataShape(400, 12, 4800, 1, 4)) == 12
    assert extent_rows_of(5, DataShape(400, 12, 4800, 1, 4)) == 5
    assert extent_rows_of(5000, DataShape(3, 12, 36, 1, 8)) == 1
    assert extent_rows_of(5000, DataShape(400, 12, 4800, 1)) == 5000


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("own", [{}, LEAPS], ids=["", "leaps"])
def test_a_proof_rides_on_the_rounds_of_a_pass(own: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds what a pass of its own would have found of the point that the pass began at."""
    from bigsvm.run.proof.linear_prover import LinearProver

    rows = rows_of("hinge", 3)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "C": 0.1, "tol": 1e-2, "shards": 3, **own}
    alone: list[Any] = []
    ridden: list[Any] = []
    schedule, collect = LinearProver.schedule, LinearProver.collect

    def scheduled(self: LinearProver) -> None:
        points = self._solver.points(self._state)
        alone.extend(self._from_shards(point).certificate for point in points)
        schedule(self)

    def collected(self: LinearProver) -> Any:
        ridden.extend(proof.finish().certificate for proof in self._ctx.deferred)
        return collect(self)

    monkeypatch.setattr(LinearProver, "schedule", scheduled)
    monkeypatch.setattr(LinearProver, "collect", collected)
    here = bigsvm.fit(rows, scheduler="serial", rounds_per_pass=8, **options)
    assert here.status == "converged"
    whole = [[proof for proof in found if proof.n_rows == 400] for found in (alone, ridden)]  # not those that compile
    assert len(whole[1]) > 2
    for own, other in zip(*whole, strict=False):  # the last one may have met no further pass
        np.testing.assert_allclose(own.dual, other.dual, rtol=1e-12)
        np.testing.assert_allclose(own.primal, other.primal, rtol=1e-12)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(("stop", "own"), [(20, {}), (40, {}), (40, LEAPS)])
def test_same_bytes_where_half_of_all_is_lost_before_each_round(
    stop: int, own: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With proofs that ride; and a run that was stopped in the midst of a pass goes on there."""
    rows = rows_of("hinge")
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "C": 0.1, "tol": 1e-2, "shards": 3, **own}
    serial = FitConfig.of(scheduler="serial", rounds_per_pass=5, **options)
    here = folder_bytes(fit_store(rows, serial), tmp_path / "m")
    riding: list[bool] = []
    dumped = ShardState.dump
    with monkeypatch.context() as patch:
        patch.setattr(ShardState, "dump", lambda state: riding.append(state.proof is not None) or dumped(state))
        while riding[-3:] != [True] * 3:  # where a working copy is made anew the run looks more often before it trains
            saves = Checkpoints(tmp_path / f"c{stop}", {}, 1e9)
            assert "SIGTERM" in stopped(rows, serial, saves, stop)
            stop += 1
    apart = Apart()
    monkeypatch.setattr("bigsvm.run.fit.fit.open_mapper", lambda *_: nullcontext(apart))
    assert folder_bytes(fit_store(rows, serial, checkpoints=saves, resume=True), tmp_path / "m") == here
    assert apart.asked > 10
    assert not shard_tasks._HELD


@pytest.mark.parametrize("name", [name for name, solver in SOLVERS.items() if not solver.in_shards])
def test_shards_are_refused_by_solvers_that_know_none(name: str) -> None:
    with pytest.raises(UsageError, match="does not train shards"):
        bigsvm.fit(rows_of(SOLVERS[name].losses[0]), solver=name, loss=SOLVERS[name].losses[0], shards=2)


def test_a_refusal_on_shards_names_solvers_that_know_them() -> None:
    with pytest.raises(UsageError, match="a step a pass") as refused:
        bigsvm.fit(rows_of("hinge"), solver="pegasos", loss="hinge", shards=2)
    named = refused.value.hint.removeprefix("solvers that do: ").split(", ")
    assert "dcd" in named
    assert [name for name in named if not SOLVERS[name].in_shards] == []


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("loss", CLASSES)
def test_auto_takes_a_solver_that_knows_shards(loss: str) -> None:
    plan = make_plan(rows_of(loss), FitConfig.of(loss=loss, shards=2))
    assert SOLVERS[plan.solver.name].in_shards
    assert plan.shards == 2


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(("solver", "implied"), [("newton", True), ("newton-ws", False)])
def test_much_data_make_shards_where_a_solver_wants_them(
    solver: str, implied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigsvm.solvers.shards._SHARD_BYTES", 1000)
    options = {"solver": solver, "loss": "squared_hinge"}
    assert (make_plan(rows_of("hinge"), FitConfig.of(**options)).shards > 1) == implied
    assert make_plan(rows_of("hinge"), FitConfig.of(shards=2, **options)).shards == 2


@pytest.mark.usefixtures("streaming")
def test_newton_ws_on_shards_is_for_who_names_it() -> None:
    plan = make_plan(rows_of("hinge"), FitConfig.of(loss="hinge", C=100.0, shards=2))
    assert (plan.solver.name, plan.shards) == ("dcd", 2)
    assert "without --shards it would be newton-ws" in plan.why
    plan = make_plan(rows_of("hinge"), FitConfig.of(loss="hinge", C=100.0, shards=2, solver="newton-ws"))
    assert (plan.solver.name, plan.shards) == ("newton-ws", 2)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("loss", CLASSES + TARGETS)
def test_a_plan_of_shards_says_what_would_be_chosen_without_them(loss: str) -> None:
    asked, whole = (make_plan(rows_of(loss), FitConfig.of(loss=loss, C=100.0, shards=L)) for L in (2, 1))
    instead = whole.solver.name != asked.solver.name
    assert (f"without --shards it would be {whole.solver.name}" in asked.why) == instead
    assert "without --shards" not in whole.why
