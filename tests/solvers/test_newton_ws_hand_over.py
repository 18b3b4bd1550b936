"""newton-ws and dcd: who goes first, who goes on, and what they hand over."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.events import EpochEnd, Warned
from bigsvm.problem.problem import make_problem
from bigsvm.run.fit import loop
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd import slow_sweeps
from bigsvm.solvers.newton_ws import hand_over, newton_ws, working_steps
from bigsvm.solvers.newton_ws.hand_over import dcd_is_nearer
from bigsvm.solvers.newton_ws.newton_ws import NewtonWS
from bigsvm.solvers.newton_ws.progress import STUCK, TOO_MANY, does_not_fall, stands
from bigsvm.solvers.pace import Limits, Pace
from bigsvm.solvers.tube import first_weights
from bigsvm.solvers.weights import columns
from bigsvm.store.formats.opener import open_store
from tests.run.test_checkpoint import comes_to_the_same
from tests.solvers.newton_ws_problems import bench, cloud, unscaled


def test_where_the_rows_do_not_fit_dcd_goes_on_and_the_run_says_so() -> None:
    X, y = cloud(4000, 20, flipped=0.3)
    said: list[Any] = []
    options = {"loss": "hinge", "C": 1.0, "tol": 1e-3, "solver": "newton-ws"}
    result = bigsvm.fit((X, y), solver_options={"working_rows": 12}, emit=said.append, **options)
    assert result.status == "converged"
    assert any(isinstance(event, Warned) and "dcd goes on" in event.message for event in said)
    best = bigsvm.fit((X, y), **{**options, "solver": "dcd", "tol": 1e-6}).figures["objective"]
    assert result.figures["objective"] <= best * (1 + 1.001e-3)
    alone = bigsvm.fit((X, y), solver_options={"working_rows": 12, "fallback": "false"}, max_passes=12, **options)
    assert not any("dcd" in message for message in alone.warnings)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bias", ["augmented", "none"])
def test_dcd_goes_first_and_is_given_up_where_it_is_slow(bias: str, n_classes: int) -> None:
    X, y = unscaled()
    y = y if n_classes == 2 else y + (X[:, 2] > 50.0)
    said: list[Any] = []
    options: dict[str, Any] = {"loss": "hinge", "bias": bias, "C": 10.0, "tol": 1e-6}
    result = bigsvm.fit((X, y), **options, emit=said.append)
    assert result.status == "converged"
    assert [e for e in said if isinstance(e, Warned) and "working sets take over" in e.message]
    alone = bigsvm.fit((X, y), **options, solver="newton-ws")
    assert result.figures["objective"] == pytest.approx(alone.figures["objective"], rel=2e-6)
    easy = bigsvm.fit((X / np.abs(X).max(axis=0), y), loss="hinge", bias=bias, C=0.1)
    only = bigsvm.fit((X / np.abs(X).max(axis=0), y), loss="hinge", bias=bias, C=0.1, solver="dcd")
    assert (easy.model.about["plan"]["solver"], easy.status) == ("newton-ws", "converged")
    np.testing.assert_array_equal(easy.model.coef, only.model.coef)


def test_the_first_epoch_of_dcd_says_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows so many that a step is one sweep: the gap is seen as it was before each row's step."""
    monkeypatch.setattr("bigsvm.solvers.dcd.dual_cd_memory._VISITS_PER_STEP", 1)
    rng = np.random.default_rng(3)
    X = 0.3 * rng.standard_normal((6000, 4))
    y = np.where(X.sum(axis=1) + 0.3 * rng.standard_normal(6000) > 0, 1, -1)
    said: list[Any] = []
    result = bigsvm.fit((X, y), loss="hinge", bias="none", tol=1e-3, emit=said.append)
    assert (result.status, result.model.about["plan"]["solver"]) == ("converged", "newton-ws")
    gaps = [event.gap_estimate for event in said if isinstance(event, EpochEnd)]
    assert gaps[0] > 0.9
    assert len(gaps) > 4
    assert not any(isinstance(event, Warned) for event in said)


@pytest.mark.parametrize(("options", "n_classes"), [({"opening": "dcd"}, 3), ({"fallback_after": 2}, 2)])
def test_the_weights_of_either_solver_are_written_as_they_were_proved(options: dict[str, Any], n_classes: int) -> None:
    """Of rows in float32 one has its weights in float32 and the other in float64: what is written is not rounded."""
    X, y = unscaled()
    y = y if n_classes == 2 else y + (X[:, 2] > 50.0)
    X = X.astype(np.float32)
    fit: dict[str, Any] = {"loss": "hinge", "C": 10.0, "tol": 1e-4, "solver": "newton-ws", "solver_options": options}
    result = bigsvm.fit((X, y), **fit)
    scores = X.astype(np.float64) @ result.model.coef.T + result.model.intercept
    for m, model in enumerate(result.figures["models"]):
        signs = np.where(y == result.model.classes[result.model.positive[m]], 1.0, -1.0)
        square = float((result.model.coef[m] ** 2).sum() + result.model.intercept[m] ** 2)
        primal = 0.5 * square + 10.0 * float(np.maximum(1.0 - signs * scores[:, m], 0.0).sum())
        assert model["objective"] == pytest.approx(primal, rel=1e-12)


@pytest.mark.usefixtures("streaming")
def test_dcd_hands_over_on_rows_that_stream(tmp_path: Path) -> None:
    """From its best dual point, after a few passes, and to the same bytes where the run is interrupted anywhere."""
    X, y = unscaled(700)
    store = bigsvm.open_store((X, y + (X[:, 2] > 50.0)))
    config = FitConfig.of(loss="hinge", memory="64MiB", tol=1e-4, seed=0)
    said: list[Any] = []
    result = fit_store(store, config, said.append)
    assert (result.figures["solver"], result.status) == ("newton-ws", "converged")
    assert not result.model.about["plan"]["resident"]
    assert sum("working sets take over" in e.message for e in said if isinstance(e, Warned)) == 1
    assert result.figures["passes"] <= 30
    comes_to_the_same(store, config, tmp_path, 120)


def test_a_pace_by_ratio_goes_on_as_it_went() -> None:
    pace = Pace.of(3)
    pace.see(0.0, np.ones(3))
    pace.see(10.0, np.array([0.1, 1.0, 1e-4]))
    left = pace.by_ratio(np.full(3, 1e-3))
    assert left[0] == pytest.approx(20.0)
    assert left[1:].tolist() == [np.inf, 0.0]
    assert Pace.of(1).by_ratio(np.ones(1)).tolist() == [0.0]


def test_what_dcd_hands_over_is_a_dual_point(tmp_path: Path) -> None:
    """D of what the first pass of working sets begins with is that of alpha, whose sum of rows v is."""
    run = bench(tmp_path, "hinge", own={"opening": "dcd"})
    for _ in range(2):
        run.step()
    assert run.state.opening is not None
    run.state.given_up = True
    alpha = run.state.opening.groups[0].alpha.values.copy()
    handed: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewtonWS, "_new_pass", lambda self, state, ctx: handed.append(state) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.step()
    (state,) = handed
    assert state.opening is None
    np.testing.assert_array_equal(state.rows.alpha.values, alpha)
    X, y = cloud()
    v = np.append((alpha[:, 0] * y) @ X, alpha[:, 0] @ y)
    np.testing.assert_allclose(columns(state.dual.v)[:, 0], v, rtol=1e-4, atol=1e-4 * np.abs(v).max())
    assert state.dual.linear[0] == pytest.approx(alpha.sum())
    np.testing.assert_array_equal(state.direction, state.dual.v)


def test_every_group_of_models_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    groups = [
        SimpleNamespace(
            problem=SimpleNamespace(n_models=m), w=rng.normal(size=(4, m)),
            alpha=SimpleNamespace(values=rng.normal(size=(5, m))),
        )
        for m in (2, 3)
    ]  # fmt: skip
    rows = SimpleNamespace(alpha=SimpleNamespace(values=np.zeros((5, 5))), pieces=lambda: [slice(0, 2), slice(2, 5)])
    state: Any = SimpleNamespace(
        opening=SimpleNamespace(groups=groups), rows=rows, direction=np.zeros((4, 5)), started=False,
        dual=SimpleNamespace(v=np.zeros((4, 5)), linear=np.zeros(5)),
        problem=SimpleNamespace(loss=SimpleNamespace(smooth=False)),
    )  # fmt: skip
    monkeypatch.setattr(hand_over, "give_up", lambda state: None)
    hand_over.hand_over(state)
    alpha = np.hstack([group.alpha.values for group in groups])
    np.testing.assert_array_equal(state.direction, np.hstack([group.w for group in groups]))
    np.testing.assert_array_equal(state.dual.v, state.direction)
    np.testing.assert_array_equal(rows.alpha.values, alpha)
    np.testing.assert_allclose(state.dual.linear, alpha.sum(axis=0))


@pytest.mark.usefixtures("no_small_fits")
@pytest.mark.parametrize("case", ["far", "close", "no room"])
def test_after_dcd_there_are_newton_steps_unless_dcd_has_come_close(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Where memory has no room for them working sets begin at the solution of a sample."""
    X, y = unscaled()
    best = bigsvm.fit((X, y), loss="hinge", C=10.0, tol=1e-8, solver="newton-ws")
    put, changed = working_steps.put_first_weights, []

    def watched(W: np.ndarray, problem: Any, ctx: Any) -> bool:
        of_dcd = W.copy()
        if case == "no room":
            monkeypatch.setattr(first_weights, "_ARRAYS", 1 << 50)
        done = put(W, problem, ctx)
        assert done == (case == "far")
        changed.append(not np.array_equal(W, of_dcd))
        return done

    monkeypatch.setattr(working_steps, "put_first_weights", watched)
    sample, sampled = NewtonWS._solve_sample, []
    monkeypatch.setattr(
        NewtonWS, "_solve_sample", lambda self, state, ctx: (sampled.append(1), sample(self, state, ctx))
    )
    if case == "close":
        monkeypatch.setattr(newton_ws, "_CLOSE", 1.0)  # what dcd has reached on these rows counts as near
    result = bigsvm.fit((X, y), loss="hinge", C=10.0, tol=1e-6)
    assert result.status == "converged"
    assert any("working sets take over" in message for message in result.warnings)
    assert changed == {"far": [True], "close": [], "no room": [False]}[case]
    assert len(sampled) == (case == "no room")
    assert result.figures["objective"] <= best.figures["objective"] * (1 + 1.001e-6)


def test_dcd_goes_on_after_so_many_passes_as_asked(tmp_path: Path) -> None:
    run = bench(tmp_path, "hinge", own={"fallback_after": 2})
    run.step()
    assert run.state.fallback is None
    assert "after 2 passes dcd goes on, as asked" in run.step().message
    assert run.state.fallback is not None
    (group,) = run.state.fallback.groups
    (X, y), alpha = cloud(), group.alpha.values[:, 0]
    assert alpha.max() > 0.0
    v = np.append((alpha * y) @ X, alpha @ y)
    np.testing.assert_allclose(columns(group.w)[:, 0], v, rtol=1e-4, atol=1e-4 * np.abs(v).max())
    with pytest.raises(ValueError, match="fallback_after must be a number of passes"):
        NewtonWS(fallback_after=-1)


def test_an_opening_is_of_rows_in_memory_with_a_price() -> None:
    with pytest.raises(ValueError, match="opening must be none or dcd"):
        NewtonWS(opening="newton")


def test_what_working_sets_cost_follows_the_entries_of_a_row_and_not_only_the_features() -> None:
    """A Hessian adds up the pairs of entries of each kept row: a few in sparse rows, all of them in dense ones."""
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 2

    def price(X: Any) -> float:
        store, config = open_store((X, y[: X.shape[0]])), FitConfig.of(loss="hinge")
        context: Any = SimpleNamespace(resident=True, data=store)
        return hand_over.worth(make_problem(config, store), context)

    dense, rare = rng.standard_normal((2000, 100)), sp.random(2000, 100, 0.05, "csr", random_state=rng)
    few = sp.random(2000, 10, 0.5, "csr", random_state=rng)
    assert price(few) < price(rare) < price(dense)
    # 1,500 x 300 rows of 30 entries: working sets take as long as about 1,000 epochs of dcd, and not 100,000.
    assert 300 < price(sp.random(1500, 300, 0.1, "csr", random_state=rng)) < 3000
    context: Any = SimpleNamespace(resident=False)
    assert hand_over.worth(None, context) == 40.0  # type: ignore[arg-type]


def test_after_dcd_few_passes_are_enough_where_more_rows_matter_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noisy rows of many features, 10 of them kept for each: from dcd's weights four passes led nowhere."""
    monkeypatch.setattr("bigsvm.solvers.newton_ws.capacity._SMALL_BYTES", 0)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((9000, 120))
    y = np.where((X @ rng.standard_normal(120) > 0) ^ (rng.random(9000) < 0.1), 1, -1)
    said: list[Any] = []
    options: dict[str, Any] = {"loss": "hinge", "bias": "none", "C": 10.0, "emit": said.append}
    result = bigsvm.fit((X, y), **options)
    assert result.status == "converged"
    handed = next(k for k, e in enumerate(said) if isinstance(e, Warned) and "working sets take over" in e.message)
    assert len([event for event in said[handed:] if isinstance(event, EpochEnd)]) <= 4


def test_dcd_comes_back_only_where_it_may_be_there_first(tmp_path: Path) -> None:
    """Working sets have as much work as dcd still needed, five of whose passes are worth one."""
    state = bench(tmp_path, "hinge").state
    ctx: Any = SimpleNamespace(tol=1e-3, resident=False)
    state.passes = 4
    assert dcd_is_nearer(state, ctx)  # nobody has tried it
    for left, turn in ((20.0, 4), (100.0, 20), (1e9, TOO_MANY), (np.inf, TOO_MANY)):
        state.left = left
        for state.passes in (turn - 1, turn):
            assert dcd_is_nearer(state, ctx) == (state.passes == turn)
    state.passes, state.stuck = 4, STUCK + 1
    assert dcd_is_nearer(state, ctx)  # nothing moves here


def test_working_sets_stand_where_neither_the_gap_nor_the_objective_falls(tmp_path: Path) -> None:
    """Of several models one that comes nearer is enough; a fall of P counts for a while, and where D cannot tell."""
    gaps = [np.array([0.9, 0.5, 1e-5])] * 3
    assert not does_not_fall(gaps, 3, 1e-4)  # not seen for long enough
    assert does_not_fall([*gaps, np.array([0.9, 0.3, 1e-6])], 3, 1e-4)  # one that is done does not count
    assert not does_not_fall([*gaps, np.array([0.9, 0.2, 1e-5])], 3, 1e-4)
    state, smooth = (bench(tmp_path / loss, loss).state for loss in ("hinge", "squared_hinge"))
    for last, expected in (([10.0, 4.0], True), ([9.91, 4.0], True), ([9.9, 4.0], False)):
        state.primals = smooth.primals = [np.array([10.0, 4.0]), np.array([9.95, 4.0]), np.array(last)]
        state.passes = smooth.passes = 5
        assert stands(state) == expected
        assert stands(smooth)
        state.passes = TOO_MANY
        assert stands(state)
    state.passes, state.gaps = 5, [*gaps, gaps[0]]
    assert not stands(state)  # an earlier version saved gaps alone


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("opening", ["none", "dcd"])
def test_a_gap_that_stays_and_then_falls_at_once_is_waited_for(opening: str) -> None:
    """Whatever the seed: an eighth of the rows is kept, and D lies far below 0 until these are about the right ones."""
    X, y = unscaled(700)
    store = bigsvm.open_store((X, y))
    stayed = 0
    for seed in range(6):
        said: list[Any] = []
        options: Any = {"opening": opening}
        config = FitConfig.of(
            loss="hinge", C=10.0, memory="64MiB", max_passes=40, seed=seed, solver="newton-ws", solver_options=options
        )
        result = fit_store(store, config, said.append)
        assert result.status == "converged"
        assert result.figures["passes"] <= 22
        assert not any("dcd goes on" in event.message for event in said if isinstance(event, Warned))
        gaps = np.array([event.gap_estimate for event in said if isinstance(event, EpochEnd)])
        gaps = gaps[8:] if opening == "dcd" else gaps
        stayed += bool(np.any(gaps[3:] > 0.5 * gaps[:-3]))
    assert stayed >= 3


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("options", [{}, {"fallback": False}, {"opening": "dcd"}])
def test_working_sets_that_lead_nowhere_end_at_the_limit(options: dict[str, Any]) -> None:
    """What is written is the point that was reached, with the gap that it has."""
    X, y = unscaled(700)
    own = {"working_rows": 12, **options}
    fit: dict[str, Any] = {"loss": "hinge", "C": 10.0, "memory": "64MiB", "max_passes": 20, "solver": "newton-ws"}
    result = bigsvm.fit((X, y), **fit, solver_options=own)
    assert (result.status, result.figures["passes"] <= 20.0) == ("stopped", True)
    signs = np.where(y == result.model.classes[1], 1.0, -1.0)
    scores = X @ result.model.coef[0] + result.model.intercept[0]
    square = float((result.model.coef**2).sum() + result.model.intercept[0] ** 2)
    primal = 0.5 * square + 10.0 * float(np.maximum(1.0 - signs * scores, 0.0).sum())
    assert result.figures["objective"] == pytest.approx(primal, rel=1e-9)
    assert 0.1 < result.figures["relative_gap"] <= 1.0


@pytest.mark.usefixtures("streaming")
def test_neither_hands_over_twice() -> None:
    """Rows of three noisy classes, unscaled, of which few fit: dcd, working sets, and dcd at most once more."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((900, 5)) * np.array([1.0, 10.0, 100.0, 30.0, 3.0])
    y = np.digitize(X @ (1.0 / np.array([1.0, 10.0, 100.0, 30.0, 3.0])) + 2.0 * rng.standard_normal(900), [-1.0, 1.0])
    said: list[Any] = []
    options = {"solver": "newton-ws", "solver_options": {"opening": "dcd", "working_rows": 40}, "memory": "64MiB"}
    result = bigsvm.fit((X, y), loss="hinge", tol=1e-3, max_passes=60, emit=said.append, **options)
    messages = [event.message for event in said if isinstance(event, Warned) and "newton-ws" in event.message]
    assert sum("working sets take over" in message for message in messages) == 1
    assert sum("dcd goes on" in message for message in messages) <= 1
    assert result.figures["passes"] <= 61


@pytest.mark.parametrize("solver", ["auto", "dcd", "newton-ws"])
@pytest.mark.parametrize("bias", ["augmented", "none"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_classes_that_rest_come_back_whoever_trains_them(loss: str, bias: str, solver: str) -> None:
    """Those whose own gap is small rest in dcd, also where it goes first, until a proof says that they are not done."""
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 60
    X = (rng.random((600, 80)) < 0.1) * rng.random((600, 80)) / 2
    X[np.arange(600), labels] += 0.5
    options: dict[str, Any] = {"solver_options": {"opening": "dcd"}} if solver == "newton-ws" else {}
    result = bigsvm.fit((X, labels), solver=solver, loss=loss, bias=bias, **options)
    assert result.status == "converged"
    assert result.figures["relative_gap"] <= 1e-3


def counts_of_cells() -> tuple[sp.csr_array, np.ndarray]:
    """1500 x 300 counts of three classes, as they come: dcd hardly moves, and working sets count as dear."""
    X = sp.random_array((1500, 300), density=0.1, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    X.data = np.ceil(X.data * 20)
    return X, np.argmax(X[:, :10] @ np.random.default_rng(5).standard_normal((10, 3)), axis=1)


def test_working_sets_take_over_before_dcd_is_called_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit ended as stalled with a gap of 0.8 after half a second, where working sets take three epochs."""
    monkeypatch.setattr(hand_over, "_STEPS_OF_ALL", 1e6)
    monkeypatch.setattr(slow_sweeps, "_EPOCHS", math.inf)  # with momentum dcd arrives, after 2,150 epochs
    rows, said = counts_of_cells(), []
    result = bigsvm.fit(rows, loss="hinge", memory="64MiB", emit=said.append)
    assert (result.model.about["plan"]["solver"], result.status) == ("newton-ws", "converged")
    taken = [event.message for event in said if isinstance(event, Warned)]
    assert "newton-ws: dcd would not reach the tolerance: working sets take over" in taken
    alone = bigsvm.fit(rows, loss="hinge", memory="64MiB", solver="newton-ws")
    assert result.figures["objective"] == pytest.approx(alone.figures["objective"], rel=2e-3)


def test_working_sets_that_take_over_have_a_limit_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where dcd had used up the limit of work, the fit ended after one working set, as stalled."""
    monkeypatch.setattr(loop, "IN_MEMORY", Limits(most=300, patience=math.inf))
    assert bigsvm.fit(counts_of_cells(), loss="hinge", memory="64MiB").status == "converged"


def test_a_fit_that_was_given_up_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    comes_to_the_same(open_store(counts_of_cells()), FitConfig.of(loss="hinge", memory="64MiB"), tmp_path, 9)
