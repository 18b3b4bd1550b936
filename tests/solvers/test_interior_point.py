"""The interior-point method of a regression: on rows that stream, after `dcd`, and with any form of the bias."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.proof.certify import certify_model
from bigsvm.solvers.context import RunControl
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.solvers.tube import in_memory, streamed
from bigsvm.solvers.tube.interior_point import InteriorPoint
from bigsvm.solvers.tube.tube import evened, tube_of
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from bigsvm.testing.reference import dual_value, primal_value
from tests.products import each_of, pairs_of
from tests.run.test_checkpoint import comes_to_the_same
from tests.solvers.stepping import Bench
from tests.solvers.test_linear_regression import rows
from tests.solvers.test_tube import TAKES_OVER, AskedTo, as_they_come

LOSS, EPSILON = "epsilon_insensitive", 0.1
SOLVERS = [
    ("auto", "augmented"),
    ("auto", "none"),
    ("auto", "free"),
    *[("interior-point", b) for b in ("augmented", "none")],
]


def far_from_0() -> tuple[np.ndarray, np.ndarray]:
    """Targets far from 0, on columns as they come, one of them far from 0 too."""
    X, y = as_they_come()
    return X + np.array([0, 0, 1e4, 0, 0, 0]), y + 1e4


FORMS = {"one scale": lambda: rows()[:2], "scales": as_they_come, "far": far_from_0}


def bounds(X: np.ndarray, y: np.ndarray, C: np.ndarray, bias: str, result: Any) -> tuple[float, float]:
    """(P, D) of a model straight from their definitions, which bound the optimum on both sides."""
    constant, alpha = 0.0 if bias == "none" else 1.0, result.alpha[0].values[:, 0]
    assert np.all(np.abs(alpha) <= C)
    w = result.model.coef[0] if bias == "none" else np.append(result.model.coef[0], result.model.intercept[0])
    primal = primal_value(X, y, C, LOSS, w, constant, EPSILON) - (0.5 * w[-1] ** 2 if bias == "free" else 0.0)
    if bias == "free":
        assert abs(alpha.sum()) <= 1e-12 * np.abs(alpha).sum()
    return primal, dual_value(X, y, C, LOSS, alpha, 1.0 if bias == "augmented" else 0.0, EPSILON)


@pairs_of(
    solver__bias=SOLVERS, stream=[False, True], form=list(FORMS), C=[1e-3, 1.0, 1e4], layout=["dense", "csr"],
    weighted=[False, True],
)  # fmt: skip
def test_it_is_proved_whatever_the_scales_and_C_are(
    solver: str, bias: str, stream: bool, form: str, C: float, layout: str, weighted: bool, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if stream:
        request.getfixturevalue("streaming")
    X, y = FORMS[form]()
    weight = rows()[2] if weighted else None
    store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, weight, task="regression")
    config = FitConfig.of(solver=solver, loss=LOSS, bias=bias, C=C, epsilon=EPSILON, tol=1e-4, threads=1)
    result = fit_store(store, config)
    assert result.model.about["plan"]["resident"] != stream
    assert result.status == "converged"
    assert result.figures["passes"] < 200
    primal, dual = bounds(X, y, C * (np.ones(len(y)) if weight is None else weight), bias, result)
    assert primal - dual <= 1.01e-4 * primal
    result.save_model(tmp_path / "m")
    assert certify_model(tmp_path / "m", store, FitConfig())["relative_gap"] <= 1e-4


def one_far_away() -> tuple[np.ndarray, np.ndarray]:
    """One target so far from the others that their losses are nothing beside its own."""
    X, y = rows()[:2]
    return X, np.where(np.arange(len(y)) == 3, 1e9, y)


def as_large_as_epsilon() -> tuple[np.ndarray, np.ndarray]:
    """All targets lie within epsilon of 0, the largest exactly at it."""
    X, y = rows()[:2]
    return X, EPSILON * y / np.abs(y).max()


EXTREMES = {
    "far target": (one_far_away, 1.0),
    "far target, C": (one_far_away, 1e-12),
    "no loss": (as_large_as_epsilon, 1.0),
    "no loss, scales": (lambda: (as_they_come()[0], as_large_as_epsilon()[1]), 1e4),
    "tiny C": (lambda: rows()[:2], 1e-25),
    "tiniest C": (lambda: rows()[:2], 1e-300),
}


@pairs_of(
    bias=["augmented", "none", "free"], stream=[False, True], form=list(EXTREMES), layout=["dense", "csr"],
    scale=[1.0, 8.0],
)  # fmt: skip
def test_it_is_proved_at_the_extremes(
    bias: str, stream: bool, form: str, layout: str, scale: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A free bias stalled with a gap of 1 where one loss was far above the others, and where C was below 1e-16.

    A loss of 0 was never reached, in the 100 iterations that are the most: it stalled, or took 300 readings.
    """
    if stream:
        request.getfixturevalue("streaming")
    made, C = EXTREMES[form]
    X, y = made()
    store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, None, task="regression")
    options: dict[str, Any] = {} if bias == "none" else {"bias_scale": scale}
    config = FitConfig.of(
        solver="interior-point", loss=LOSS, bias=bias, C=C, epsilon=EPSILON, tol=1e-4, threads=1, **options
    )
    result = fit_store(store, config)
    assert result.status == "converged"
    assert result.figures["passes"] < 80
    if bias == "free" or scale == 1.0:
        primal, dual = bounds(X, y, C * np.ones(len(y)), bias, result)
        assert primal - dual <= 1.01e-4 * primal
    result.save_model(tmp_path / "m")
    assert certify_model(tmp_path / "m", store, FitConfig())["relative_gap"] <= 1e-4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "instead"), [("BALANCINGS", 0), ("evened", lambda alpha, total, size: alpha)], ids=["evened", "balanced"]
)
def test_either_way_makes_the_sum_of_alpha_0(
    stream: bool, name: str, instead: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stream:
        request.getfixturevalue("streaming")
    for module in (in_memory, streamed):
        monkeypatch.setattr(module, name, instead)
    X, y = one_far_away()
    config = FitConfig.of(solver="interior-point", loss=LOSS, bias="free", tol=1e-4, threads=1)
    assert fit_store(ArrayRows(X, y, task="regression"), config).status == "converged"


def test_alpha_at_the_ends_of_all_boxes_is_balanced() -> None:
    for alpha in (np.array([1.0, -1.0, -1.0, 0.0]), np.array([2.0, 1.0, -1e-3]), np.array([1.0, 1.0]), np.zeros(2)):
        found = evened(alpha, float(alpha.sum()), float(np.abs(alpha).sum()))
        assert abs(found.sum()) <= 1e-15
        assert np.all(np.abs(found) <= np.abs(alpha))
        assert np.all(found * alpha >= 0.0)


@each_of(bias=["augmented", "none", "free"], form=list(FORMS), layout=["dense", "csr"], weighted=[False, True])
def test_a_limit_ends_it_with_the_best_proof_so_far(
    bias: str, form: str, layout: str, weighted: bool, streaming: None, tmp_path: Path
) -> None:
    """alpha was written by the last reading alone, so that any limit ended it with a gap of 1."""
    X, y = FORMS[form]()
    weight, made = rows()[2] if weighted else None, sparse.csr_array(X) if layout == "csr" else X
    store = ArrayRows(made, y, weight, task="regression")
    options = {"solver": "interior-point", "loss": LOSS, "bias": bias, "tol": 1e-4, "threads": 1}
    needed = int(fit_store(store, FitConfig.of(**options)).figures["passes"])
    gaps = []
    for passes in (2, 8, needed // 2, needed - 4):
        result = fit_store(store, FitConfig.of(**options, max_passes=passes))
        gaps.append(float(result.figures["relative_gap"]))
        done = gaps[-1] <= 1e-4  # where it is near the end, the proof may be good enough
        assert (result.status, result.figures["passes"] <= passes) == ("converged" if done else "stopped", True)
        assert done or any("use a larger --max-passes" in text for text in result.warnings)
        result.save_model(tmp_path / str(passes))
        found = certify_model(tmp_path / str(passes), store, FitConfig())
        assert found["relative_gap"] == pytest.approx(gaps[-1], rel=1e-9)
        primal, dual = bounds(X, y, np.ones(len(y)) if weight is None else weight, bias, result)
        assert primal - max(dual, 0.0) <= primal * gaps[-1] * (1.0 + 1e-9)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] == 1.0 > gaps[1]
    assert gaps[2] < 0.1 > 100.0 * gaps[3]
    assert fit_store(store, FitConfig.of(**options, max_passes=needed + 2)).warnings == []


@pytest.mark.parametrize("bias", ["augmented", "free"])
@pytest.mark.parametrize("asked", [0, 100, 160])
def test_time_ends_a_solution_in_memory_with_the_best_proof_so_far(bias: str, asked: int, tmp_path: Path) -> None:
    """It was asked between two models alone, and a single one was solved to its end."""
    X, y = as_they_come()
    given: dict[str, Any] = {"options": {"loss": LOSS, "bias": bias}, "task": "regression", "tol": 1e-6}
    control = RunControl(expired=AskedTo(asked))
    bench = Bench(InteriorPoint(), X, y, tmp_path, control=control, **given)
    info = bench.solver.step(bench.problem, bench.state, bench.ctx)
    assert (info.paused, info.ask_certificate, bench.state.solved) == (False, False, 0)
    w, alpha = bench.state.w, bench.state.alpha.values[:, 0]
    lacks = 0.5 * w[-1] ** 2 if bias == "free" else 0.0
    primal = primal_value(X, y, np.ones(len(y)), LOSS, w, 1.0, EPSILON) - lacks
    dual = dual_value(X, y, np.ones(len(y)), LOSS, alpha, 1.0 if bias == "augmented" else 0.0, EPSILON)
    assert bias == "augmented" or abs(alpha.sum()) <= 1e-12 * np.abs(alpha).sum()
    assert (primal - dual) / primal <= {0: np.inf, 100: 0.2, 160: 0.01}[asked]
    result = bigsvm.fit((X, y), solver="interior-point", loss=LOSS, bias=bias, max_time=1e-9)
    assert result.status == "stopped"


@pytest.mark.parametrize("bias", ["augmented", "free"])
def test_streams_and_memory_have_the_same_optimum(bias: str, streaming: None) -> None:
    X, y = as_they_come()
    store = ArrayRows(X, y, task="regression")
    options = {"solver": "interior-point", "loss": LOSS, "bias": bias, "tol": 1e-7}
    there = fit_store(store, FitConfig.of(**options)).figures["objective"]
    with pytest.MonkeyPatch.context() as patch:
        from bigsvm.run.fit import sizes as planning

        patch.setattr(planning.Sizes, "resident_from", lambda self: 0)
        here = fit_store(store, FitConfig.of(**options))
    assert here.model.about["plan"]["resident"]
    assert there == pytest.approx(here.figures["objective"], rel=2e-7)


@each_of(bias=["augmented", "none", "free"], costs=[None, [0.1, 10.0]], layout=["dense", "csr"], threads=[1, 2])
def test_a_reading_that_is_left_anywhere_comes_to_the_same_bytes(
    bias: str, costs: list[float] | None, layout: str, threads: int, tmp_path: Path
) -> None:
    """Each reading is left once, a piece later each time, and goes on from a saved state."""
    X, y = far_from_0()
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    given: dict[str, Any] = {"options": {"loss": LOSS, "bias": bias}, "costs": costs, "task": "regression", "tol": 1e-6}

    def bench(control: RunControl, threads: int) -> Bench:
        return Bench(InteriorPoint(), rows, y, tmp_path, block_rows=40, control=control, threads=threads, **given)

    whole = bench(RunControl(), 1)
    while not whole.step().ask_certificate:
        pass
    one, number, left = bench(RunControl(), threads), 0, 0
    done = False
    while not done:
        number += 1
        one.ctx.control.stopping = AskedTo((3 * number) % 19)  # of a reading that asks up to 12 times
        info = one.solver.step(one.problem, one.state, one.ctx)
        if info.paused:
            left += 1
            (tmp_path / str(number)).mkdir()
            write_tree(tmp_path / str(number), dump(one.state))
            one = bench(RunControl(), threads)
            tree = read_tree(tmp_path / str(number))
            one.solver.before_load(one.state, tree, one.ctx)
            load(one.state, tree)
        done = info.ask_certificate
    assert left > 20
    np.testing.assert_array_equal(one.state.w, whole.state.w)
    np.testing.assert_array_equal(one.state.alpha.values, whole.state.alpha.values)


@pytest.mark.parametrize("stream", [False, True])
def test_a_free_bias_is_balanced_and_w_of_alpha_stays(stream: bool, tmp_path: Path) -> None:
    X, y = as_they_come()
    bench = Bench(
        InteriorPoint(), X, y, tmp_path, block_rows=40, options={"loss": LOSS, "bias": "free"}, task="regression",
        tol=1e-6,
    )  # fmt: skip
    while not bench.step().ask_certificate:
        pass
    problem, path, alpha = bench.problem, bench.state.path, bench.state.alpha
    off = alpha.values[:, 0].copy()
    inner = np.minimum(np.abs(off), 1.0 - np.abs(off))
    off[np.argsort(inner)[-3:]] += 1e-7
    if stream:
        path.phase, path.balanced, alpha.values[:, 0] = "balance", 0, off
        while not path.read(problem, 0, alpha, bench.ctx):
            pass
        found = alpha.values[:, 0]
    else:
        tube = tube_of(problem, [X[:75], X[75:]], y, np.ones(len(y)), X.shape[1] + 1, 1.0)
        found = in_memory._balanced(tube, np.zeros(X.shape[1] + 1), off, False)
    assert abs(off.sum()) > 1e-9
    assert abs(found.sum()) <= 1e-13 * np.abs(found).sum()
    scaled = np.where(off > 0, off * (off[off < 0].sum() / -off[off > 0].sum()), off)
    assert np.abs(X.T @ (found - off)).max() < 0.01 * np.abs(X.T @ (scaled - off)).max()


@pytest.mark.parametrize(
    ("solver", "bias", "options"), [("dcd", "augmented", {"interior_after": 2}), ("auto", "free", {})]
)
def test_an_interrupted_fit_comes_to_the_same_bytes(
    solver: str, bias: str, options: dict[str, int], tmp_path: Path, streaming: None
) -> None:
    X, y = as_they_come()
    config = FitConfig.of(solver=solver, loss=LOSS, bias=bias, tol=1e-3, solver_options=options)
    comes_to_the_same(ArrayRows(X, y, task="regression"), config, tmp_path, 25)


def test_the_number_of_threads_and_the_scheduler_change_no_byte(tmp_path: Path, streaming: None) -> None:
    X, y = as_they_come()
    for solver, bias in (("interior-point", "free"), ("dcd", "none")):
        found = []
        ways: list[dict[str, Any]] = [{"threads": 1}, {"threads": 3}, {"scheduler": "serial"}]
        for number, changed in enumerate(ways):
            folder = tmp_path / f"{solver}{number}"
            bigsvm.fit((X, y), solver=solver, bias=bias, loss=LOSS, **changed).save_model(folder)
            found.append({p.name: p.read_bytes() for p in sorted(folder.iterdir())})
        assert found[0] == found[1] == found[2]


def test_sweeps_of_rows_that_stream_hand_over_once(streaming: None) -> None:
    X, y = as_they_come()
    result = bigsvm.fit((X, y), loss=LOSS, tol=1e-4)
    said = [text for text in result.warnings if TAKES_OVER in text]
    assert len(said) == 1
    assert "after 60 passes" in said[0]
    assert not [text for text in result.warnings if "dual coordinate descent" in text]  # no columns do harm
    alone = bigsvm.fit((X, y), loss=LOSS, tol=1e-4, solver="dcd", solver_options={"interior_after": -1}, max_passes=300)
    assert alone.status == "stopped"
    assert alone.figures["relative_gap"] > 1e-2


def test_models_of_a_path_that_stream_are_solved_one_after_another(streaming: None) -> None:
    X, y = as_they_come()
    costs = [1e-2, 1.0, 1e2]
    for bias in ("augmented", "free"):
        alone = [bigsvm.fit((X, y), loss=LOSS, bias=bias, C=C, tol=1e-5).figures["objective"] for C in costs]
        together = bigsvm.fit_path((X, y), costs, loss=LOSS, bias=bias, tol=1e-5)
        assert [result.status for result in together] == ["converged"] * 3
        np.testing.assert_allclose([result.figures["objective"] for result in together], alone, rtol=2e-5)


def test_a_hopeless_fit_that_streams_is_taken_over_and_goes_on_model_by_model(tmp_path: Path) -> None:
    X, y = as_they_come()
    bench = Bench(
        DualCD(interior_after=10_000), X, y, tmp_path, block_rows=40, options={"loss": LOSS}, costs=[0.1, 1.0],
        task="regression", tol=1e-3,
    )  # fmt: skip
    bench.step()
    assert "sweeps would not" in bench.solver.change(bench.state)
    bench.step()
    said = []
    while bench.state.path is not None:
        said += [bench.solver.change(bench.state), bench.solver.change(bench.state)]
        bench.state.estimates = (0.9 * bench.ctx.tol, 1.0)  # however small the gap is thought to be,
        assert bench.solver.forecast(bench.state) == math.inf  # the same point is proved once
        info = bench.step()
    assert [text[-24:] for text in said if text] == [f"{n} of 2 models are solved" for n in (0, 1)]
    assert info.ask_certificate
    assert bench.solver.change(bench.state) == ""


def test_too_many_features_are_refused() -> None:
    X, y, _ = rows()
    with pytest.raises(UsageError, match="5 is its limit"):
        bigsvm.fit((X, y), loss=LOSS, solver="interior-point", solver_options={"max_features": 5})
