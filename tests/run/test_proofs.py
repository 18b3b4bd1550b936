"""Proofs: a deferred one is as good as one of its own, a saved model proves what its fit said, few passes are spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import silent
from bigsvm.problem.certificate import Certificate, Proof
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.problem.problem import make_problem
from bigsvm.run.copies.staging import staged
from bigsvm.run.execute.local import SerialMapper
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.proof.certify import certify_model
from bigsvm.run.proof.linear_prover import LinearProver
from bigsvm.solvers.block_order import groups_at_random
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.store.addresses import in_groups
from bigsvm.store.blocks import BlockGroup, RowBlocks
from bigsvm.store.copy.copy_folder import copies_folder
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.join import read_group
from bigsvm.store.state.vectors import RowVector
from bigsvm.testing.problems import random_problem
from bigsvm.testing.reference import dual_value, primal_value
from tests.products import pairs_of

BLOCK = 8


def problem_rows(layout: str = "csr", n: int = 400, n_classes: int = 2, noise: float = 0.2) -> ArrayRows:
    X, y = random_problem(n, 12, 0.5, seed=5, noise=noise, n_classes=n_classes)
    return ArrayRows(sparse.csr_array(X.astype(np.float32)) if layout == "csr" else X, y)


def context(data: Any, tmp_path: Path, tol: float) -> Context:
    return Context(
        data=data, refs=data.refs(BLOCK), resident=False, mapper=SerialMapper(), budget=MemoryBudget(1 << 30), seed=3,
        shards=1, threads=2, read_depth=2, group_blocks=5, proof_refs=data.refs(5 * BLOCK), workdir=tmp_path, tol=tol,
        row_buffer_bytes=8000, row_buffer_sweeps=10, buffers=lambda: data.group_buffers(5),
    )  # fmt: skip


def fed(proof: DeferredCertificate, data: RowBlocks, groups: list[BlockGroup]) -> tuple[Certificate, np.ndarray]:
    for group in groups:
        proof.add(read_group(data, group), group)
    found = proof.finish()
    return found.certificate, found.v


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("n_classes", [2, 10])  # ten: two groups of models
@pytest.mark.parametrize("tol", [1e-3, 1e-6])  # weights in float32 and in float64
def test_a_deferred_certificate_is_the_proof_of_the_point_before(
    layout: str, n_classes: int, tol: float, tmp_path: Path
) -> None:
    store = problem_rows(layout, n_classes=n_classes)
    problem, solver = make_problem(FitConfig(loss="hinge", C=0.3), store), DualCD()
    with staged(store, tmp_path, BLOCK, 7 * BLOCK, 200_000, None, SerialMapper(), silent) as data:
        ctx = context(data, tmp_path, tol)
        state = solver.init(problem, ctx)
        prover = LinearProver(solver, state, ctx)
        for _ in range(3):
            solver.step(problem, state, ctx)
        points, number = [], state.sweep
        for group in state.groups:
            values = group.alpha.values.copy()
            alpha = RowVector("alpha", len(values), values.shape[1], np.float64, ctx.budget, tmp_path)
            alpha.values[:] = values
            points.append((group.problem, group.w.copy(), alpha))
        prover.schedule()
        assert solver.step(problem, state, ctx).collectable
        assert all(np.any(group.w != w) for group, (_, w, _) in zip(state.groups, points, strict=True))
        rebuilt = [proof._total.v.copy() for proof in ctx.deferred]
        collected = prover.collect()
        assert collected.n_rows == store.n_samples
        assert not ctx.deferred
        same = groups_at_random(ctx, number)
        other = in_groups(ctx.refs, np.arange(len(ctx.refs)), ctx.group_blocks)
        first = 0
        for (part, w, alpha), v in zip(points, rebuilt, strict=True):
            models = slice(first, first := first + part.n_models)
            own, own_v = fed(DeferredCertificate(part, w, alpha, rescaled=True), data, same)
            np.testing.assert_array_equal(collected.primal[models], own.primal)
            np.testing.assert_array_equal(collected.gap[models], own.gap)
            np.testing.assert_array_equal(v, own_v)
            own, own_v = fed(DeferredCertificate(part, w, alpha, rescaled=True), data, other)
            np.testing.assert_allclose(collected.primal[models], own.primal, rtol=1e-12)
            np.testing.assert_allclose(collected.gap[models], own.gap, rtol=1e-12)
            np.testing.assert_allclose(v, own_v, atol=1e-12)


def test_a_deferred_certificate_has_the_alpha_of_its_point(tmp_path: Path) -> None:
    """Also where the solver keeps no copy of its own, twice in a row."""
    store = problem_rows()
    problem, solver = make_problem(FitConfig(loss="hinge", C=0.3), store), DualCD(momentum="off")
    with staged(store, tmp_path, BLOCK, 7 * BLOCK, 200_000, None, SerialMapper(), silent) as data:
        ctx = context(data, tmp_path, 1e-3)
        state = solver.init(problem, ctx)
        prover = LinearProver(solver, state, ctx)
        solver.step(problem, state, ctx)
        for _ in range(2):
            (group,) = state.groups
            w, values = group.w.copy(), group.alpha.values.copy()
            prover.schedule()
            solver.step(problem, state, ctx)
            collected = ctx.deferred[0].finish().certificate
            prover.collect()
            alpha = RowVector("alpha", len(values), 1, np.float64, ctx.budget, tmp_path)
            alpha.values[:] = values
            groups = in_groups(ctx.refs, np.arange(len(ctx.refs)), ctx.group_blocks)
            own, _ = fed(DeferredCertificate(problem, w, alpha), data, groups)
            np.testing.assert_allclose(collected.primal, own.primal, rtol=1e-12)
            np.testing.assert_allclose(collected.gap, own.gap, rtol=1e-12)


def test_a_proof_that_was_left_goes_on_with_what_it_has_seen(tmp_path: Path) -> None:
    store = problem_rows("dense")
    problem = make_problem(FitConfig(loss="hinge", C=0.3), store)
    rng, budget = np.random.default_rng(4), MemoryBudget(1 << 20)
    alpha = RowVector("alpha", 400, 1, np.float64, budget, tmp_path)
    alpha.values[:] = rng.uniform(0.0, 0.3, (400, 1))
    w, refs = rng.standard_normal(13), store.refs(40)
    groups = in_groups(refs, np.arange(len(refs)), 1)
    straight, whole = fed(DeferredCertificate(problem, w, alpha, rescaled=True), store, groups)
    left = DeferredCertificate(problem, w, alpha, rescaled=True)
    fed(left, store, groups[:4])
    again = DeferredCertificate(problem, np.zeros(13), alpha, rescaled=True)
    again.load(left.dump())
    assert again.n_groups == 4
    resumed, v = fed(again, store, groups[4:])
    assert resumed.n_rows == straight.n_rows == 400
    assert (resumed.primal, resumed.gap) == (straight.primal, straight.gap)
    np.testing.assert_array_equal(v, whole)


def found(primal: list[float], dual: list[float], scale: float = 1.0, n_rows: int = 10) -> Proof:
    """What a proof might find."""
    P, D = np.array(primal), np.array(dual)
    certificate = Certificate(P, D, P - D, n_rows, 0.0, np.zeros(len(P), np.int64))
    return Proof(certificate, np.zeros((3, len(P))), np.full(len(P), scale))


def a_prover() -> LinearProver:
    """Of ten rows, with a solver that learns nothing."""
    solver: Any = SimpleNamespace(learn=lambda *arguments: None)
    ctx: Any = SimpleNamespace(resident=True, data=SimpleNamespace(n_samples=10, uri="store"), deferred=[])
    return LinearProver(solver, None, ctx)


def test_the_weights_that_are_kept_are_those_of_the_best_proof() -> None:
    """Two groups of two models: of each model the weights and the multiple that its primal value belongs to."""
    prover = a_prover()
    first, then = ([np.full((3, 2), value), np.full((3, 2), value)] for value in (1.0, 2.0))
    prover._take([found([9.0, 9.0], [0.0, 0.0]), found([9.0, 9.0], [0.0, 0.0])], first)
    best = prover._take([found([8.0, 10.0], [1.0, 1.0], 0.9), found([10.0, 8.0], [1.0, 1.0], 0.9)], then)
    assert best.primal.tolist() == [8.0, 9.0, 9.0, 8.0]
    assert prover.w[0].tolist() == [[2.0, 1.0]] * 3
    assert prover.w[1].tolist() == [[1.0, 2.0]] * 3
    assert prover.scale.tolist() == [0.9, 1.0, 1.0, 0.9]


def test_what_was_proved_is_kept_in_a_checkpoint() -> None:
    prover, again = a_prover(), a_prover()
    prover._take([found([9.0, 8.0], [0.0, 1.0], 0.75)], [np.full((3, 2), 3.0)])
    again.load(prover.dump())
    assert again.scale.tolist() == [0.75, 0.75]
    assert [w.tolist() for w in again.w] == [w.tolist() for w in prover.w]
    assert again.certificate is not None
    assert again.certificate.primal.tolist() == [9.0, 8.0]
    assert again.certificate.gap.tolist() == [9.0, 7.0]


def test_tasks_prove_their_rows_with_the_alpha_of_those_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsvm.run.proof.linear_prover.BLOCKS_PER_TASK", 2)
    store = problem_rows("dense")
    problem, block = make_problem(FitConfig(loss="hinge", C=0.3, bias="none"), store), store.read(store.refs(400)[0])
    ctx = context(store, tmp_path, 1e-3)
    alpha = RowVector("alpha", 400, 1, np.float64, ctx.budget, tmp_path)
    alpha.values[:] = np.random.default_rng(6).uniform(0.0, 0.3, (400, 1))
    point: Any = SimpleNamespace(problem=problem, w=np.zeros(13), alpha=alpha)
    solver: Any = None
    v = LinearProver(solver, None, ctx)._tasks(point).v
    signs = np.where(block.y == problem.positive[0], 1.0, -1.0)
    np.testing.assert_allclose(v[:12], block.X.T @ (signs * alpha.values[:, 0]), rtol=1e-9, atol=1e-12)


def test_a_proof_that_has_not_seen_all_rows_is_none() -> None:
    with pytest.raises(DataError, match="only 9 of 10 rows were seen"):
        a_prover()._take([found([2.0], [1.0], n_rows=9)], [np.zeros(3)])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_overflow_the_objective_are_refused(value: float) -> None:
    with pytest.raises(DataError, match="overflows"):
        a_prover()._take([found([2.0, value], [1.0, 0.0])], [np.zeros((3, 2))])


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the proofs of the last fit, in order: 'prove' (a pass of its own) or 'collect' (deferred)."""
    made: list[str] = []
    of: list[LinearProver] = []

    def noted(name: str, plain: Callable[[LinearProver], Certificate]) -> Callable[[LinearProver], Certificate]:
        def proof(prover: LinearProver) -> Certificate:
            if of and of[-1] is not prover:
                made.clear()  # another fit: those before were small ones, which compile
            of.append(prover)
            made.append(name)
            return plain(prover)

        return proof

    for name in ("prove", "collect"):
        monkeypatch.setattr(LinearProver, name, noted(name, getattr(LinearProver, name)))
    return made


def sorted_and_wide(n: int = 1600) -> ArrayRows:
    """Sparse rows sorted by label, more features than keep their numbers, the frequent ones last."""
    rng = np.random.default_rng(8)
    d = 20_000
    X = sparse.lil_array((n, d), dtype=np.float64)
    direction = rng.standard_normal(d)
    for i in range(n):
        features = d - 1 - np.unique((d ** rng.random(12)).astype(int) - 1)
        X[i, features] = rng.standard_normal(len(features)).astype(np.float32)
    X = X.tocsr()
    y = np.where(X @ direction + rng.standard_normal(n) > 0, 1.0, -1.0)
    order = np.argsort(y, kind="stable")
    return ArrayRows(sparse.csr_array(X[order]), y[order])


@pairs_of(
    end=["deferred", "alone", "limit", "resident"], loss=["hinge", "squared_hinge"], rows=["plain", "sorted and wide"]
)
def test_a_saved_model_proves_what_its_fit_said(
    end: str, loss: str, rows: str, tmp_path: Path, proofs: list[str], request: pytest.FixtureRequest
) -> None:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    options: dict[str, Any] = {"solver": "dcd", "loss": loss, "tol": 1e-3, "C": 0.2}
    if end != "resident":
        request.getfixturevalue("streaming")
    if end == "deferred":
        monkeypatch.setattr(DualCD, "forecast", lambda self, state: np.inf)  # never hopeful: all are deferred
    elif end == "alone":
        monkeypatch.setattr("bigsvm.run.fit.loop._FIRST_CHECK", 1e9)
        monkeypatch.setattr("bigsvm.run.fit.loop._DEFER_BELOW", 0.0)
        monkeypatch.setattr(DualCD, "forecast", lambda self, state: 0.0 if state.sweep >= 30 else np.inf)
    elif end == "limit":
        options |= {"tol": 1e-12, "max_passes": 12}
    store = problem_rows() if rows == "plain" else sorted_and_wide()
    result = fit_store(store, FitConfig.of(**options))
    assert result.status == ("stopped" if end == "limit" else "converged")
    assert proofs[-1] == ("collect" if end == "deferred" else "prove")
    if rows != "plain" and end != "resident":
        assert result.working_row is not None
        assert np.any(result.working_row[1:] < result.working_row[:-1])
    result.save_model(tmp_path / "m")
    proved = certify_model(tmp_path / "m", store, FitConfig())
    assert proved["relative_gap"] == pytest.approx(result.certificate.relative_gap, rel=1e-9, abs=1e-15)
    assert proved["objective"] == pytest.approx(result.figures["objective"], rel=1e-12)
    # And by NumPy, from the files alone: rows and features came back in the store's order.
    block = store.read(store.refs(store.n_samples)[0])
    X = sparse.csr_array(tuple(block.X), shape=(store.n_samples, store.n_features))
    used = np.unique(X.indices)
    X, y = X[:, used].toarray().astype(np.float64), np.where(block.y == 1, 1.0, -1.0)
    alpha = np.load(tmp_path / "m" / "alpha.npy")[0]
    w = np.append(result.model.coef[0, used], result.model.intercept)
    assert not np.delete(result.model.coef[0], used).any()
    costs = np.full(len(y), 0.2)
    assert alpha.min() >= 0
    assert loss != "hinge" or alpha.max() <= 0.2
    primal, dual = primal_value(X, y, costs, loss, w), dual_value(X, y, costs, loss, alpha)
    assert primal == pytest.approx(result.figures["objective"], rel=1e-11)
    assert dual == pytest.approx(result.figures["dual_objective"], rel=1e-11)
    assert primal - dual == pytest.approx(result.figures["duality_gap"], abs=1e-10 * primal)


@pairs_of(
    loss=["hinge", "squared_hinge"], n_classes=[2, 10], tol=[1e-1, 1e-2, 1e-3, 1e-4], noise=[0.02, 0.3],
)  # fmt: skip
def test_one_pass_at_most_is_spent_on_a_proof_alone(
    loss: str, n_classes: int, tol: float, noise: float, proofs: list[str], streaming: None
) -> None:
    store = problem_rows(n_classes=n_classes, noise=noise)
    result = fit_store(store, FitConfig(solver="dcd", loss=loss, tol=tol, C=0.2))
    assert result.status == "converged"
    assert proofs.count("prove") <= 1
    assert result.figures["certificate_passes"] == pytest.approx(proofs.count("prove"), rel=1e-2)
    assert result.figures["relative_gap"] <= tol


@pytest.mark.parametrize("max_passes", [2, 3, 5, 9])
@pytest.mark.parametrize("shards", [1, 2])
def test_the_limit_on_passes_is_kept_with_its_proof(max_passes: int, shards: int, streaming: None) -> None:
    config = FitConfig(solver="dcd", loss="hinge", tol=1e-9, max_passes=max_passes, shards=shards)
    result = fit_store(problem_rows(), config)
    assert result.status == "stopped"
    assert result.figures["passes"] == pytest.approx(max_passes, rel=1e-2)
    assert result.figures["passes"] <= max_passes
    assert 1e-9 < result.certificate.relative_gap <= 1


@pytest.mark.parametrize("lie", [0.0, np.inf])
def test_a_forecast_decides_when_and_never_what_is_reported(
    lie: float, streaming: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = random_problem(400, 12, seed=6, noise=0.3)
    monkeypatch.setattr(DualCD, "forecast", lambda self, state: lie)
    result = bigsvm.fit((X, y), loss="hinge", tol=1e-3, C=0.2)
    assert result.status == "converged"
    assert result.certificate.relative_gap <= 1e-3
    (vector,) = result.alpha
    alpha = np.concatenate(list(vector.in_store_order(result.working_row)))[:, 0]
    w, costs = np.append(result.model.coef[0], result.model.intercept), np.full(400, 0.2)
    gap = primal_value(X, y, costs, "hinge", w) - dual_value(X, y, costs, "hinge", alpha)
    assert gap == pytest.approx(result.figures["duality_gap"], rel=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rows_sorted_by_label_need_the_passes_of_shuffled_ones(loss: str, streaming: None) -> None:
    X, y = random_problem(4000, 12, 0.5, seed=7, noise=0.2)
    order = np.argsort(y, kind="stable")
    passes = []
    for rows in (np.arange(4000), order):
        result = bigsvm.fit((X[rows], y[rows]), solver="dcd", loss=loss, tol=1e-3, C=0.01)
        assert result.status == "converged"
        passes.append(result.figures["passes"] - result.figures["certificate_passes"])
    assert result.working_row is not None
    assert abs(passes[0] - passes[1]) <= 1.01


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_a_damaged_block_ends_the_fit_names_itself_and_leaves_no_threads(
    layout: str, tmp_path: Path, streaming: None, started_and_alive: Callable[[], list[str]]
) -> None:
    store = problem_rows(layout)
    config = FitConfig(loss="hinge", tol=1e-3, scratch=str(tmp_path / "s"), threads=2)
    sound = fit_store(store, config)
    wanted = sound.model.coef.copy()
    sound.close()
    (path,) = copies_folder(tmp_path / "s").glob("rows-*/segment-00000.bin")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"block \d+ of the working copy is damaged") as damage:
        fit_store(store, config)
    assert damage.value.code == 65
    assert str(path) in str(damage.value.where)
    assert started_and_alive() == []
    again = fit_store(store, config)  # a nightly fit is not damaged for ever
    np.testing.assert_array_equal(again.model.coef, wanted)
    again.close()


@pytest.mark.parametrize("max_passes", [2, 3, 5, 9])
def test_newton_ws_keeps_the_limit_on_passes_with_its_sample_and_its_proof(max_passes: int, streaming: None) -> None:
    result = fit_store(problem_rows(), FitConfig(solver="newton-ws", loss="hinge", tol=1e-12, max_passes=max_passes))
    assert max_passes - 2.01 < result.figures["passes"] <= max_passes
    assert 0 < result.certificate.relative_gap <= 1
