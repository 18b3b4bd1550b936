"""Primal solvers on shards: the passes and the optimum of one shard, and bytes that do not know who computes."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.problem.certificate import Accumulator
from bigsvm.problem.loss import LOSSES
from bigsvm.problem.problem import Problem
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.gathered import Gathered
from bigsvm.solvers.hyperpass.near_rows import no_near_rows
from bigsvm.solvers.hyperpass.near_shards import NearOnShards, NearShard
from bigsvm.solvers.newton_ws.newton_ws import NewtonWS
from bigsvm.solvers.newton_ws.working_state import WorkingState
from bigsvm.solvers.primal.shards.shard_state import PrimalRows, Told, packed, unpacked
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.tasks import ShardSum, added
from tests.products import on_request
from tests.run.test_checkpoint import comes_to_the_same, stopped
from tests.shards.apart import Apart
from tests.shards.test_sharded_fits import folder_bytes, rows_of

CASES = [
    ("newton", "squared_hinge", "augmented"),
    ("newton", "squared_epsilon_insensitive", "free"),
    ("newton-cg", "squared_hinge", "free"),
    ("newton-cg", "squared_epsilon_insensitive", "none"),
    ("newton-ws", "hinge", "augmented"),
    ("newton-ws", "hinge", "free"),
    ("newton-ws", "squared_hinge", "none"),
    ("hyperpass", "hinge", "augmented"),
    ("hyperpass", "hinge", "free"),
    ("ssvm", "squared_hinge", "none"),
]
_NEVER = 10**9
OPTIONS: dict[str, dict[str, Any]] = {
    "hyperpass": {"near": 8},  # so few that it is worth while to read them alone
    "ssvm": {"smoothing": 200.0},
    "pegasos": {"batch": 0},
}


def options_of(solver: str, **others: Any) -> dict[str, Any]:
    """With the cost that a solver is for."""
    own = OPTIONS.get(solver, {})
    return {"solver": solver, "C": 10.0 if solver == "newton-ws" else 0.1, "solver_options": own, **others}


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(("solver", "loss", "bias"), CASES)
def test_as_many_passes_as_with_one_shard(solver: str, loss: str, bias: str, tmp_path: Path) -> None:
    # A working set is solved in some hundred sums for each model.
    n_classes, tol = (2, 1e-4) if solver == "newton-ws" else (3, 1e-6)
    rows = rows_of(loss, n_classes=n_classes, weights=True)
    options = options_of(solver, loss=loss, bias=bias, tol=tol)
    alone = bigsvm.fit(rows, **options)
    apart = bigsvm.fit(rows, shards=5, scheduler="serial", **options)
    assert apart.figures["relative_gap"] < tol
    assert apart.figures["objective"] == pytest.approx(alone.figures["objective"], rel=tol)
    # Which rows are near is for each shard of newton-ws to say, of its own rows.
    assert apart.figures["passes"] == pytest.approx(alone.figures["passes"], abs=3.1 if solver == "newton-ws" else 0.1)
    assert np.any(apart.model.coef != alone.model.coef)  # sums have another order
    threads = bigsvm.fit(rows, shards=5, threads=3, **options)
    assert folder_bytes(threads, tmp_path / "m") == folder_bytes(apart, tmp_path / "m")


def test_triangles_travel_packed() -> None:
    H = np.triu(np.arange(2 * 49.0).reshape(2, 7, 7))
    assert packed(H).shape == (2, 28)
    np.testing.assert_array_equal(unpacked(packed(H), 7), H)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(
    ("solver", "loss", "bias", "n_classes"),
    [
        *((*case, 2) for case in CASES[1::2]),  # each solver once
        *on_request(*((*case, 2) for case in CASES[::2])),
        ("newton-cg", "squared_hinge", "augmented", 3),
        ("pegasos", "hinge", "augmented", 3),
        *on_request(("newton-ws", "squared_hinge", "free", 3), ("hyperpass", "hinge", "none", 3)),
    ],
)
def test_same_bytes_where_half_of_all_is_lost_before_each_task(
    solver: str, loss: str, bias: str, n_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a run that began in this process, and was stopped in the midst of a system, goes on there."""
    monkeypatch.setattr("bigsvm.solvers.hyperpass.hyperpass._REFRESH", 3)  # slacks anew, within a few passes
    rows = rows_of(loss, n_classes=n_classes)
    options = options_of(solver, loss=loss, bias=bias, tol=1e-2, shards=3)
    options["max_passes"] = 12 if solver == "pegasos" else None
    serial, saves = FitConfig.of(scheduler="serial", **options), Checkpoints(tmp_path / "c", {}, 1e9)
    here = folder_bytes(fit_store(rows, serial), tmp_path / "m")
    assert "SIGTERM" in stopped(rows, serial, saves, 12)
    apart = Apart(every=97 if solver == "newton-ws" else 1)
    monkeypatch.setattr("bigsvm.run.fit.fit.open_mapper", lambda *_: nullcontext(apart))
    assert folder_bytes(fit_store(rows, serial), tmp_path / "m") == here
    assert folder_bytes(fit_store(rows, serial, checkpoints=saves, resume=True), tmp_path / "m") == here
    assert apart.asked > 30
    assert not shard_tasks._HELD


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("apart", [False, True], ids=["here", "apart"])
@pytest.mark.parametrize(
    ("solver", "loss", "every"), [("newton-cg", "squared_hinge", 9), ("hyperpass", "hinge", 7)]
)  # fmt: skip
def test_a_run_that_is_stopped_again_and_again_ends_with_the_same_bytes(
    solver: str, loss: str, every: int, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the workers are elsewhere: some have done a round when the others leave it."""
    if apart:
        monkeypatch.setattr("bigsvm.run.fit.fit.open_mapper", lambda *_: nullcontext(Apart(every=_NEVER)))
    options = options_of(solver, loss=loss, bias="free", tol=1e-2, shards=4)
    comes_to_the_same(rows_of(loss), FitConfig.of(scheduler="serial", **options), tmp_path, every)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_newton_ws_leaves_a_step_while_it_solves_its_working_set(
    loss: str, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is repeated as a whole: w, slacks and alpha are those of its beginning."""
    left: list[str] = []
    put_back = WorkingState.put_back

    def watched(self: WorkingState, held: dict[str, Any]) -> None:
        # Between the pass and the end of the solution w has moved, and the slacks have not.
        left.append("solving" if np.any(self.w != held["w"]) else "reading")
        put_back(self, held)

    rows, options = rows_of(loss), options_of("newton-ws", loss=loss, tol=1e-3, shards=shards, max_passes=4)
    config = FitConfig.of(scheduler="serial", **options)
    here = folder_bytes(fit_store(rows, config), tmp_path / "m")
    monkeypatch.setattr(WorkingState, "put_back", watched)
    if shards > 1:
        monkeypatch.setattr("bigsvm.run.fit.fit.open_mapper", lambda *_: nullcontext(Apart(every=_NEVER)))
    saves = Checkpoints(tmp_path / "c", {}, 1e9)
    for after in (60, 75, 90) if shards == 1 else (100, 450, 300):
        assert "SIGTERM" in stopped(rows, config, saves, after, resume=True)
    assert left.count("solving") >= 2
    assert folder_bytes(fit_store(rows, config, checkpoints=saves, resume=True), tmp_path / "m") == here


@pytest.mark.parametrize(("solver", "loss", "rel"), [("newton", "squared_hinge", 1e-9), ("newton-ws", "hinge", 1e-6)])
def test_shards_without_rows_add_nothing(solver: str, loss: str, rel: float) -> None:
    X = np.random.default_rng(0).normal(size=(12, 2))
    asked: dict[str, Any] = {"solver": solver, "loss": loss, "tol": 1e-6, "memory": "64MiB"}
    found, wanted = (bigsvm.fit(X, X[:, 0] > 0, shards=shards, **asked) for shards in (20, 1))
    assert found.status == "converged"
    assert found.figures["objective"] == pytest.approx(wanted.figures["objective"], rel=rel)


def test_copies_of_a_near_row_are_counted_on_every_shard() -> None:
    """Also where a shard has named others, which are as far away as its copy."""
    far, K, M, N = [9.0], [1.0], [2.0], [3.0]
    data = ArrayRows(np.array([K, far, far, far, M, N, K, far]), np.array([1, -1, 1, -1, 1, 1, 1, -1]))
    one, two = np.ones(1), np.ones(2)
    codes = np.array([1], np.int32)
    problem = Problem(LOSSES["hinge"](), one, two, "none", 1.0, data.classes, codes, -codes)
    parts = [PrimalRows(data, problem, k, 4, range(k, k + 1), problem.loss, NearShard, False) for k in (0, 1)]
    shards = [part.new_state() for part in parts]

    class Here:
        """As `ShardedRows`, of two shards."""

        def ask(self, question: tuple[Any, ...]) -> ShardSum:
            return added(*(shard.answer(part, question, None) for part, shard in zip(parts, shards, strict=True)))

        def tell(self, what: str, args: list[Any]) -> ShardSum:
            told = Told(0, what, args)
            return added(*(shard.work(part, told, np.zeros(0)) for part, shard in zip(parts, shards, strict=True)))

        def looked(self, total: ShardSum) -> None: ...

    around = NearOnShards(problem, Here(), None, no_near_rows(1, 2))  # type: ignore[arg-type]
    nobody = around.find(0.5)
    around.read(None, (2,), nobody, Gathered(np.zeros(0, np.int64)), with_keys=True)  # type: ignore[arg-type]
    for shard, near in zip(shards, ([0], [0, 1, 2]), strict=True):
        shard.rows.s.values[:] = 7.0
        shard.rows.s.values[near] = 0.5
    found = around.find(0.5)
    gather = Gathered(np.array([0, 4]))
    V = around.read(None, (2,), found, gather, with_keys=False)  # type: ignore[arg-type]
    assert found.rows.tolist() == [[0, 4]]
    assert found.count.tolist() == [[2, 1]]
    assert found.cost.tolist() == [[2.0, 1.0]]
    np.testing.assert_array_equal(gather.matrix(), [K, M])
    assert V[0] == 1.0 + 2.0 + 3.0 + 1.0 + (9.0 - 9.0) - 9.0 - 9.0  # all violate; 9 is of class 1 once


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_what_shards_of_newton_ws_know_of_their_dual_point_is_so(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P never rises, D is that of alpha on the shards, and most rows are not kept."""
    rows, found = rows_of(loss, weights=True), []
    original = NewtonWS.step

    def step(self: NewtonWS, problem: Any, state: Any, ctx: Any) -> Any:
        info = original(self, problem, state, ctx)
        if problem.n_models == 1 and ctx.data.n_samples == 400:  # not one that compiles
            total = Accumulator(problem, state.w)
            for terms in state.rows.prove(state.w, False, False):
                total.add(terms)
            found.append((total.proof().certificate, float(state.primal[0]), float(state.dual.value(problem)[0])))
        return info

    monkeypatch.setattr(NewtonWS, "step", step)
    few = {"working_rows": 60}
    options = options_of("newton-ws", loss=loss, tol=1e-4, shards=4, scheduler="serial", solver_options=few)
    result = bigsvm.fit(rows, max_passes=8, **options)
    assert result.status in ("converged", "stopped", "stalled")
    assert len(found) >= 3
    primals = [primal for _, primal, _ in found]
    assert all(later <= before * (1 + 1e-12) for before, later in itertools.pairwise(primals))
    for proof, primal, dual in found:
        assert proof.primal[0] == pytest.approx(primal, rel=1e-9)
        assert proof.dual[0] == pytest.approx(dual, rel=1e-7)


@pytest.mark.parametrize(("option", "value"), [("opening", "dcd"), ("fallback_after", "2")])
def test_newton_ws_on_shards_hands_nothing_over(option: str, value: str) -> None:
    options = options_of("newton-ws", loss="hinge", shards=2, solver_options={option: value})
    with pytest.raises(UsageError, match=f"hands nothing over to dcd: leave out {option}"):
        bigsvm.fit(rows_of("hinge"), **options)
