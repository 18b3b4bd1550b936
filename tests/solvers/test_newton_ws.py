"""newton-ws: its inner solvers against each other, points against their rows, and the working set against a sort."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.linear import interior
from bigsvm.config import FitConfig
from bigsvm.solvers.auto import preferences
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws import working_pass, working_set
from bigsvm.solvers.newton_ws.capacity import Room
from bigsvm.solvers.newton_ws.hand_over import shape_of
from bigsvm.solvers.newton_ws.interior import solve_hinge
from bigsvm.solvers.newton_ws.newton_ws import NewtonWS
from bigsvm.solvers.newton_ws.subproblem import Subproblem
from bigsvm.solvers.newton_ws.working_newton import solve_squared_hinge
from bigsvm.solvers.newton_ws.working_problem import balance, kept_rows
from bigsvm.solvers.newton_ws.working_set import FOLDED, KEPT, OUT
from bigsvm.solvers.primal import row_pass
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr, random_problem
from tests.products import WHOLE
from tests.solvers.newton_ws_problems import bench, cloud, primal, subproblem
from tests.solvers.stepping import Bench, ElsewhereMapper

N_MNIST = None if WHOLE else 15_000  # rows


def lowest_around(problem: Subproblem, w: np.ndarray, loss: str) -> float:
    """The least value of random points near w, on all scales."""
    rng = np.random.default_rng(0)
    free = np.where((np.arange(len(w)) == len(w) - 1) & (problem.bias == 0.0), 0.0, 1.0)
    steps = (10.0 ** rng.uniform(-6, 0) * rng.standard_normal(len(w)) * free for _ in range(3000))
    return min(primal(problem, w + step, loss) for step in steps)


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("sides", [False, True])
@pytest.mark.parametrize(("bias", "free"), [(1.0, False), (0.0, False), (1.0, True)])
def test_the_interior_point_method_proves_its_gap(bias: float, free: bool, sides: bool, cold: bool) -> None:
    side = np.where(np.random.default_rng(1).random(300) < 0.2, -1.0, 1.0) if sides else np.ones(300)
    problem = subproblem(bias=bias, free=free, side=side)
    start = np.zeros(7) if cold else np.random.default_rng(2).standard_normal(7) * np.where(np.arange(7) == 6, bias, 1)
    found = solve_hinge(problem, start, 1e-6, 1.0 if cold else 0.1)
    assert np.all((found.alpha >= 0.0) & (found.alpha <= problem.C))
    V = problem.lean + problem.pull(found.alpha)
    dual = float(side @ found.alpha) - 0.5 * float(V @ (problem.regulariser * V))
    assert primal(problem, found.w, "hinge") - dual <= 1e-5
    if free:
        assert abs(V[-1]) <= 1e-4  # its price, |b V[-1]|, is in the gap
    assert lowest_around(problem, found.w, "hinge") >= primal(problem, found.w, "hinge") - 1e-6


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_newton_finds_the_least_value_of_a_subproblem(layout: str, folded: bool) -> None:
    G = np.random.default_rng(3).standard_normal((20, 7))
    F = (G.T @ G)[np.triu_indices(7)] if folded else None
    problem = subproblem(F=F, at=np.full(7, 0.05))
    if layout == "csr":
        problem = subproblem(F=F, at=np.full(7, 0.05), parts=[readonly_view(as_csr(X)) for X in problem.parts])
    found = solve_squared_hinge(problem, np.zeros(7), 1e-10)
    assert lowest_around(problem, found.w, "squared_hinge") >= primal(problem, found.w, "squared_hinge") - 1e-9


@pytest.mark.parametrize(
    "solve", [lambda part, w: solve_hinge(part, w, 1e-6, 1.0), lambda part, w: solve_squared_hinge(part, w, 1e-6)]
)
@pytest.mark.parametrize("free", [False, True])
def test_a_subproblem_without_rows_is_its_fold(solve: Any, free: bool) -> None:
    empty = {
        name: np.zeros(0, dtype) for name, dtype in (("codes", np.int32), ("C", float), ("far", bool), ("side", float))
    }
    problem = subproblem(parts=[], free=free, **empty)
    found = solve(problem, np.zeros(7))
    np.testing.assert_allclose(found.w[:6], problem.lean[:6])
    assert np.all(np.isfinite(found.w))
    assert len(found.alpha) == 0


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_what_is_known_of_a_point_is_so(loss: str, layout: str, tmp_path: Path) -> None:
    """P, and the sums that D is made of, after each pass; neither P nor the gap ever rises."""
    run = bench(tmp_path, loss, layout=layout)
    X, y = cloud()
    wide, C = np.hstack([X, np.ones((len(X), 1))]) * y[:, None], 10.0
    former_primal = former_gap = np.inf
    for _ in range(7):
        run.step()
        state = run.state
        s = np.maximum(1.0 - wide @ state.w, 0.0)
        value = 0.5 * state.w @ state.w + C * np.sum(s if loss == "hinge" else s * s)
        assert state.primal[0] == pytest.approx(value, rel=1e-9)
        alpha = state.rows.alpha.values[:, 0]
        assert alpha.min() >= 0.0
        assert loss == "squared_hinge" or alpha.max() <= C
        np.testing.assert_allclose(columns(state.dual.v)[:, 0], alpha @ wide, rtol=1e-7, atol=1e-7)
        v, quarter = alpha @ wide, 0.0 if loss == "hinge" else 0.25 / C
        dual = alpha.sum() - 0.5 * v @ v - quarter * alpha @ alpha
        assert state.dual.value(run.problem)[0] == pytest.approx(dual, rel=1e-7, abs=1e-6)
        gap = value - max(dual, 0.0)
        assert value <= former_primal * (1 + 1e-12)
        assert gap <= former_gap + 1e-9 * value
        former_primal, former_gap = value, gap
    assert former_gap <= 1e-3 * former_primal


@pytest.mark.parametrize("room", [100, 400, 2000])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_rows_that_are_kept_are_the_nearest_of_either_side(loss: str, room: int, tmp_path: Path) -> None:
    run = bench(tmp_path, loss, room)
    found: list[Any] = []
    original = NewtonWS._solve

    def spy(self: NewtonWS, state: Any, ctx: Any, measured: Any, *others: Any) -> Any:
        found[:] = [measured.working_set, state.place.values[:, 0].copy()]
        return original(self, state, ctx, measured, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewtonWS, "_solve", spy)
        for _ in range(4):
            s, direction = run.state.rows.s.values[:, 0].copy(), run.state.direction.copy()
            run.step()
            if run.state.passes == 1:
                continue  # the first pass chose its own direction
            working_set, place = found
            X, y = cloud()
            p = (np.hstack([X, np.ones((len(X), 1))]) * y[:, None]) @ direction
            z = s - working_set.bands.ahead[0] * p
            distance = np.abs(z) * np.where((s > 0) != (s - p > 0), 0.3, 1.0) / (np.abs(p) + working_set.bands.reach[0])
            assert working_set.held <= room
            assert np.count_nonzero(place == KEPT) == working_set.held
            assert working_set.held >= min(0.6 * room, 300)
            for side, elsewhere in ((z > 0, FOLDED), (z <= 0, OUT)):
                kept, left = distance[side & (place == KEPT)], distance[side & (place != KEPT)]
                if len(kept) and len(left):
                    assert kept.max() <= left.min() * (1 + 1e-6)
                assert np.all(place[side & (place != KEPT)] == elsewhere)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_tasks_elsewhere_and_threads_change_no_bit(loss: str, tmp_path: Path) -> None:
    points = []
    for lent in ({}, {"threads": 3}, {"mapper": ElsewhereMapper()}):
        run = bench(tmp_path, loss, **lent)
        for _ in range(4):
            run.step()
        points.append((run.state.w, run.state.direction, run.state.rows.alpha.values.copy()))
    for point in points[1:]:
        for one, other in zip(points[0], point, strict=True):
            np.testing.assert_array_equal(one, other)


def test_rows_in_memory_get_more_room_as_they_need_it() -> None:
    X, y = cloud(6000, 5, flipped=0.35)
    result = bigsvm.fit((X, y), solver="newton-ws", loss="hinge", C=100.0, tol=1e-5)
    assert result.status == "converged"
    assert not result.warnings


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_mnist_in_few_passes(loss: str, real_data: ModuleType) -> None:
    """0 against the rest at C = 10, where coordinate descent leaves a gap of 0.9 after forty passes."""
    try:
        X, labels = real_data.load("mnist")
    except real_data.DataError as error:
        pytest.skip(str(error))
    X, y = sparse.csr_matrix(X)[:N_MNIST].astype(np.float32) / np.float32(255), np.where(labels[:N_MNIST] == 0, 1, -1)
    options = {"working_rows": len(y) // 10, "fallback": "false"}
    result = bigsvm.fit((X, y), solver="newton-ws", loss=loss, C=10.0, tol=1e-3, max_passes=8, solver_options=options)
    assert result.status == "converged"
    assert result.figures["epochs"] <= 5


def shape(n: int, d: int, models: int = 1) -> DataShape:
    return DataShape(n, d, n * d, models, entry_bytes=4)


def test_auto_takes_it_for_few_features_and_large_costs() -> None:
    def first(n: int, d: int, in_memory: bool = False, **options: Any) -> str:
        found = preferences(FitConfig.of(**options), shape(n, d), in_memory)[0]
        return f"dcd, then {found.name}" if dict(found.options).get("opening") == "dcd" else found.name

    hinge = {"loss": "hinge"}
    assert first(10**6, 100, **hinge, C=1.0) == "dcd, then newton-ws"  # its passes are short
    assert first(10**6, 100, **hinge, C=10.0) == "newton-ws"
    assert first(10**7, 100, **hinge, C=1.0) == "newton-ws"
    assert first(10**7, 100, **hinge, C=0.01) == "dcd, then newton-ws"
    assert first(10**7, 100, **hinge, C=0.01, warm_start="m") == "dcd"  # it starts from duals
    assert first(10**7, 2000, **hinge, C=0.01) == "dcd"
    assert first(10**7, 100, **hinge, lam=1e-4) == "dcd, then newton-ws"
    assert first(10**7, 100, **hinge, lam=1e-8) == "newton-ws"
    opened = preferences(FitConfig.of(**hinge, C=1.0), shape(10**6, 100), True)
    assert [(p.name, dict(p.options)) for p in opened] == [
        ("newton-ws", {"opening": "dcd"}),
        ("dcd", {"takeover_after": 0}),
    ]
    assert opened[0].kept_bytes > 10**6 * 400
    assert first(10**6, 100, True, loss="epsilon_insensitive") == "dcd"
    assert first(10**6, 2000, True, **hinge, C=1.0) == "dcd"
    assert first(100, 90, True, **hinge, C=1.0) == first(100, 90, True, loss="squared_hinge") == "dcd, then newton-ws"
    assert first(100, 90, **hinge, C=1.0) == first(100, 1001, True, loss="squared_hinge") == "dcd"
    assert first(8000, 100, True, **hinge, C=1.0, bias="free") == "newton-ws"
    assert first(10**6, 100, True, **hinge, C=100.0) == "newton-ws"
    assert first(10**6, 10**5, **hinge, C=100.0) == "dcd"
    assert first(10**6, 100, loss="squared_hinge", C=1.0) == "newton-ws"
    assert first(10**6, 100, True, loss="squared_hinge", C=10.0) == "newton"
    assert first(10**6, 100, **hinge, C=10.0, bias="free") == "newton-ws"
    assert first(10**6, 100, **hinge, C=1.0, bias="free") == "hyperpass"
    assert first(10**6, 100, True, **hinge, C=10.0, bias="free") == "hyperpass"
    why = preferences(FitConfig.of(loss="hinge", C=10.0), shape(10**6, 100))[0]
    assert "C = 10" in why.why
    assert why.kept_bytes > 0.02 * 10**6 * 400


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_dual_point_of_a_free_bias_is_balanced(loss: str, tmp_path: Path) -> None:
    run = bench(tmp_path, loss, options={"bias": "free"})
    y = cloud()[1]
    for _ in range(6):
        run.step()
        alpha = run.state.rows.alpha.values[:, 0]
        assert abs(alpha @ y) <= 1e-9 * alpha.sum()
        assert run.state.dual.value(run.problem)[0] <= run.state.primal[0] * (1 + 1e-12)
    assert run.state.estimate <= 1e-3


@pytest.mark.parametrize("tol", [1e-4, 1e-5, 1e-6, 1e-8])
@pytest.mark.parametrize("C", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("edges", [[1.5], [0.8, 2.2]])
def test_what_a_balanced_bias_costs_the_dual_point_stalls_no_fit(edges: list[float], C: float, tol: float) -> None:
    """w was at its end, and alpha of a class was cut by more than the tolerance: one solution after another did so."""
    for seed in (2, 15, 18, 26, 45, 59):
        rng = np.random.default_rng(seed)
        X = np.abs((2 * rng.standard_normal((66, 5))).round())
        y = np.searchsorted(edges, X[:, 0] + 1.4 * rng.standard_normal(66))
        X = (X + 1) / (X + 1).sum(axis=1, keepdims=True)
        result = bigsvm.fit(X, y, solver="newton-ws", loss="hinge", bias="free", C=C, tol=tol)
        assert result.status == "converged", (seed, result.certificate)


@pytest.mark.parametrize("folded", [-20.0, 20.0])
def test_the_heavier_class_of_kept_rows_is_made_lighter(folded: float) -> None:
    part = subproblem(bias=3.0, free=True)
    signs, alpha = np.where(part.codes == 1, 1.0, -1.0), np.random.default_rng(1).uniform(0.0, 1.0, len(part.codes))
    before = alpha.copy()
    assert balance(part, alpha, 3.0 * folded)
    assert alpha @ signs + folded == pytest.approx(0.0, abs=1e-9)
    assert np.all((alpha >= 0.0) & (alpha <= before))
    assert not balance(part, alpha, 3.0 * 1000.0)


def test_rows_without_entries_have_a_dual_point_too() -> None:
    y = np.repeat([0, 1, 2], [3, 2, 1])
    result = bigsvm.fit((np.zeros((6, 2)), y), solver="newton-ws", loss="hinge", bias="free", C=4.6, tol=1e-6)
    assert result.status == "converged"


def test_far_rows_of_the_sample_stand_for_the_others(tmp_path: Path) -> None:
    """As many as are far are paid for, and those that are folded pay only where they leave the margin."""
    run = bench(tmp_path, "hinge", 100)
    found: list[Any] = []
    original = NewtonWS._solve

    def spy(self: NewtonWS, state: Any, ctx: Any, measured: Any, *others: Any) -> Any:
        lean, at, working_set = columns(state.w)[:, 0].copy(), columns(state.w)[:, 0].copy(), measured.working_set
        found[:] = [kept_rows(state.problem, working_set, 0, lean, at, 1, sampled=True), working_set.held]
        return original(self, state, ctx, measured, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewtonWS, "_solve", spy)
        for _ in range(4):
            w = columns(run.state.w)[:, 0].copy()
            run.step()
    part, held = found
    assert part.far.sum() >= 5
    stands_for = part.C[part.far].sum() / 10.0
    assert 0.5 * (3000 - held) <= stands_for <= 1.5 * (3000 - held)
    np.testing.assert_allclose(part.C[~part.far], 10.0)
    assert {1.0, -1.0} == set(part.side[part.far])
    assert np.mean(part.slacks(w)[part.far] <= 0.0) > 0.8


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_sample_is_of_all_rows_if_they_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: bool, layout: str
) -> None:
    """Rows of a like kind lie side by side in kddcup99: a tenth of the blocks held no row of most kinds."""
    monkeypatch.setattr(row_pass, "_RESIDENT_BLOCK", 1)  # bytes: a block for each row
    monkeypatch.setattr(working_pass, "_SPARE", 0.0)  # a task for each row
    monkeypatch.setattr(working_pass, "_TASK_CODED", 0.0)
    monkeypatch.setattr(working_pass, "_TASK_BYTES", working_pass._ROW_MODEL_BYTES)
    X, y = cloud(1500)
    X = X if layout == "dense" else sparse.csr_matrix(X)
    run = Bench(NewtonWS(), X, y, tmp_path, 1 if streams else None, {"loss": "hinge"}, row_buffer_bytes=1 << 24)
    measured, share = run.solver._new_pass(run.state, run.ctx).sample()
    found = measured.working_set
    assert found.seen == (150 if streams else 1500)
    numbers = np.concatenate([part.number for part in found.parts])
    assert len(np.unique(numbers)) == len(numbers) == pytest.approx(1500 * share, rel=0.3)
    assert len(np.unique(numbers // 50)) > 20  # from all over, whatever was read
    assert streams or len(found.parts) == 1  # an iteration calls a loop for each part


def interior_rows(n: int = 50) -> tuple[np.ndarray, ...]:
    """(s, C, alpha, room, xi, eta, h) strictly inside."""
    rng = np.random.default_rng(7)
    s, C = rng.standard_normal(n), rng.uniform(0.5, 2.0, n)
    alpha = C * rng.uniform(0.1, 0.9, n)
    xi, eta = rng.uniform(0.1, 2.0, n), rng.uniform(0.1, 2.0, n)
    room = C - alpha
    return s, C, alpha, room, xi, eta, 1.0 / (xi / room + eta / alpha)


@pytest.mark.parametrize("cap", [1.0, np.inf])
@pytest.mark.parametrize("most", [0.0, 0.5, 1e100])
def test_the_corrector_aims_at_the_central_path(cap: float, most: float) -> None:
    """The products after the step are mu min(C, cap), but for what the corrector's own change adds.

    Second-order terms above `most` min(C, cap) count for that much.
    """
    s, C, alpha, room, xi, eta, h = interior_rows()
    p, mu, t1, t2 = np.random.default_rng(8).standard_normal(len(s)), 0.1, np.empty(len(s)), np.empty(len(s))
    interior.second_order(
        interior.RowsOnPath(s, alpha, room, xi, eta), h, p, C, cap, mu, most, interior.Targets(t1, t2)
    )
    da = -h * (p - s)
    de, dx = -eta - eta * da / alpha, -xi + xi * da / room
    linear = alpha * eta + eta * da + alpha * de  # what Newton's equation makes of alpha eta with its target 0
    np.testing.assert_allclose(linear, 0.0, atol=1e-13)
    cost = np.minimum(C, cap)
    np.testing.assert_allclose((room - da) * (xi + dx), -da * dx, atol=1e-12)
    np.testing.assert_allclose(t1, mu * cost - np.clip(da * de, -most * cost, most * cost), atol=1e-12)
    np.testing.assert_allclose(t2, mu * cost + np.clip(da * dx, -most * cost, most * cost), atol=1e-12)
    assert most != 0.5 or 0 < np.count_nonzero(np.abs(da * de) > most * cost) < len(s)


def test_rows_go_to_the_bound_that_they_are_clearly_at() -> None:
    """alpha / C, eta and xi of rows that are out, in, and neither."""
    alpha = np.array([0.01, 0.99, 0.7, 0.2, 0.5])
    eta, xi = np.array([1.0, 0.0, 0.6, 0.5, 0.1]), np.array([0.0, 1.0, 0.5, 0.6, 0.2])
    C = np.full(5, 2.0)
    found = C * alpha
    interior.at_bounds(C, xi, eta, found)
    np.testing.assert_allclose(found, [0.0, 2.0, 1.4, 0.4, 1.0])


def test_coded_rows_change_no_bit_and_let_more_of_them_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = cloud()
    X = sparse.csr_matrix(np.rint(2.0 * X) / np.float32(3))
    monkeypatch.setattr(Room, "certain", lambda self, entry_bytes: 1.0)  # rounds of one length
    points, held = [], []
    for coded in (True, False):
        if not coded:
            monkeypatch.setattr(working_pass, "coded", lambda X: X)
        lent = {"options": {"loss": "hinge", "C": 10.0}, "tol": 1e-9}
        run = Bench(NewtonWS(working_rows=400), X, y, tmp_path / f"many {coded}", 100, row_buffer_bytes=1 << 24, **lent)
        for _ in range(3):
            run.step()
        points.append((run.state.w, run.state.direction, run.state.rows.alpha.values.copy()))
        run = Bench(NewtonWS(), X, y, tmp_path / f"few {coded}", 100, row_buffer_bytes=1 << 17, **lent)
        for _ in range(2):
            run.step()
        held.append((int((run.state.place.values == KEPT).sum()), run.state.entry_bytes))
    for one, other in zip(*points, strict=True):
        np.testing.assert_array_equal(one, other)
    assert held[0][1] < 0.5 * held[1][1]
    assert held[0][0] > 1.15 * held[1][0]


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_parts_that_are_put_together_hold_the_same_rows(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order; rows that a model keeps and others stay apart."""
    monkeypatch.setattr(working_set, "_TOGETHER", 200)
    X, _ = random_problem(40, 3, seed=1)
    numbers, parts = np.arange(40), []
    for k, rows in enumerate(np.split(numbers, 20)):
        one, each = np.ones(2), np.full((2, 1), float(k))
        place = np.full((2, 1), KEPT if k % 2 else OUT, np.uint8)
        kept = X[rows] if layout == "dense" else as_csr(X[rows])
        parts.append(
            working_set.KeptRows(
                kept, one.astype(np.int32), one, rows, np.empty((0, 2, 1)), each, each, place, one, one > 0
            )
        )
    found = working_set.gathered(list(parts))
    assert len(found) < 15
    for near in (True, False):
        some, before = ([part for part in which if part.near[0] == near] for which in (found, parts))
        assert all(part.near.all() == near for part in some)
        for name in ("number", "z", "place"):
            one, other = (np.concatenate([getattr(part, name) for part in which]) for which in (some, before))
            np.testing.assert_array_equal(one, other)
        dense = [
            part.X if layout == "dense" else sparse.csr_matrix(tuple(part.X), (len(part.number), 3)).toarray()
            for part in some
        ]
        np.testing.assert_array_equal(np.concatenate(dense), X[np.concatenate([part.number for part in before])])


def test_rows_whose_values_no_table_holds_get_less_room(tmp_path: Path) -> None:
    """What was thought of their bytes is corrected while they come, and never believed beyond what is certain."""
    data = DataShape(10_000, 50, 250_000, 1, entry_bytes=8)
    room = Room(10_000, 1 << 21, data)
    assert room.rows(75.0) > 1.2 * room.rows(150.0)
    assert room.rows(0.0) == pytest.approx(
        room.rows(150.0), rel=0.1
    )  # a row of 25 entries: four bytes of value, two of number
    assert room.certain(75.0) * room.rows(75.0) == pytest.approx(room.rows(0.0), rel=1e-3)
    X, y = cloud()
    X = sparse.csr_matrix(X)  # the first pass knows nothing yet
    run = Bench(NewtonWS(), X, y, tmp_path, 100, {"loss": "hinge", "C": 10.0}, row_buffer_bytes=1 << 16, tol=1e-9)
    run.step()
    run.state.entry_bytes = 8.0  # a lie
    run.step()
    shape = shape_of(run.problem, run.ctx)
    most = run.solver._room(run.ctx, run.problem, 0).rows(run.state.entry_bytes)
    assert np.count_nonzero(run.state.place.values == KEPT) <= most < shape.n_samples
