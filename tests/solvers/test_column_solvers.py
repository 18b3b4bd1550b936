"""`pcd` and `cd`: measured iteration counts, optima, corners, blocks, pauses."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.errors import UsageError
from bigsvm.events import CertificateMade
from bigsvm.solvers.coordinate import column_sweeps
from bigsvm.solvers.coordinate.coordinate_descent import CoordinateDescent
from bigsvm.solvers.coordinate.primal_cd import PrimalCD
from bigsvm.solvers.hyperpass.hyperpass import HyperPass
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from bigsvm.testing.problems import corner_problems, random_problem
from bigsvm.testing.reference import dual_value
from tests.products import pairs_of
from tests.solvers.stepping import Bench, ElsewhereMapper, paper_data, takes_iterations

OPTIMA = {
    ("heart", 0.1): 12.063203, ("heart", 10.0): 1143.361332, ("heart", 1e-3): 0.206018,
    ("diabetes", 0.1): 49.264624, ("diabetes", 10.0): 4784.8915, ("diabetes", 1e-3): 0.661344,
}  # fmt: skip
WELL_SCALED = [name for name in corner_problems() if name not in ("large values", "more features than rows")]
ONE_ROW_A_CLASS = (np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([1.0, -1.0]))


@pytest.mark.parametrize("bias", ["augmented", "free"])
@pytest.mark.parametrize("solver", [CoordinateDescent(), HyperPass(direction="steepest")], ids=lambda s: s.name)
def test_the_dual_value_that_is_known_is_that_of_alpha(solver: Any, bias: str, tmp_path: Path) -> None:
    X, y = random_problem(80, 5, seed=14, noise=0.3)
    loss, C = solver.losses[0], 0.3
    bench = Bench(solver, X, y, tmp_path, options={"C": C, "bias": bias, "loss": loss})
    for _ in range(6):
        bench.step()
        alpha = bench.state.rows.alpha.values[:, 0]
        assert alpha.min() >= 0.0
        expected = dual_value(X, y, np.full(80, C), loss, alpha, 0.0 if bias == "free" else 1.0)
        assert bench.state.dual.value(bench.problem)[0] == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert expected <= bench.state.primal[0] * (1 + 1e-12)
        if bias == "free":
            assert abs(alpha @ y) <= 1e-12 * alpha.sum()
        else:
            np.testing.assert_allclose(bench.state.dual.v[-1], alpha @ y, atol=1e-9)
    assert alpha.any()


COUNTS = [
    ("heart", 0.1, [17, 26, 45]), ("diabetes", 0.1, [14, 44, 89]), ("diabetes", 10.0, [15, 47, 86]),
    ("australian", 0.1, [67, 180, 407]),
]  # fmt: skip
"""Snapshots; a program that shares nothing with this one counted the same."""


@pytest.mark.parametrize(("name", "C", "counts"), COUNTS)
@pytest.mark.parametrize("line_search", ["exact", "newton"])
def test_snapshot_of_iterations_of_cd(
    tmp_path: Path, real_data: ModuleType, name: str, C: float, counts: list[int], line_search: str
) -> None:
    X, y = paper_data(real_data, name)
    solver = CoordinateDescent(start="ones", line_search=line_search, eps2=1e-8)
    objectives = Bench(solver, X, y, tmp_path, options={"C": C}).objectives(450)
    takes_iterations(objectives, X, y, C, counts)


@pytest.mark.parametrize("solver", ["pcd", "cd"])
@pytest.mark.parametrize(("name", "C"), OPTIMA)
def test_reference_optima(real_data: ModuleType, solver: str, name: str, C: float) -> None:
    X, y = paper_data(real_data, name)
    events: list[Any] = []
    result = bigsvm.fit((X, y), solver=solver, loss="squared_hinge", C=C, tol=5e-7, emit=events.append)
    assert result.status == "converged"
    assert result.figures["relative_gap"] <= 5e-7
    assert result.figures["objective"] == pytest.approx(OPTIMA[name, C], rel=1e-6, abs=6e-7)
    # The gap is known before it is proved.
    assert len([e for e in events if isinstance(e, CertificateMade)]) == 1


def agrees_with_newton(rows: Any, solver: str, **options: Any) -> None:
    given: dict[str, Any] = {"loss": "squared_hinge", "memory": "64MiB", "threads": 1, **options}
    result = bigsvm.fit(rows, solver=solver, tol=1e-6, max_passes=100_000, **given)
    assert result.status == "converged", result.figures["relative_gap"]
    assert 0 <= result.certificate.relative_gap <= 1e-6
    judge = bigsvm.fit(rows, solver="newton", tol=1e-10, **given)
    assert result.figures["objective"] == pytest.approx(judge.figures["objective"], rel=2e-6)
    assert result.figures["objective"] >= judge.figures["objective"] * (1 - 1e-9)


@pairs_of(
    corner=WELL_SCALED, solver=["pcd", "cd"], bias=["augmented", "none", "free"], layout=["dense", "csr"],
    C=[1e-4, 1.0, 1e3],
)  # fmt: skip
def test_corners(corner: str, solver: str, bias: str, layout: str, C: float) -> None:
    X, y = corner_problems()[corner]
    if corner in ("two rows", "duplicate rows", "separable"):
        C = min(C, 10.0)  # the number of sweeps grows in proportion where rows are too few to bend P
    agrees_with_newton((sparse.csr_array(X) if layout == "csr" else X, y), solver, bias=bias, C=C)


@pytest.mark.parametrize("solver", ["pcd", "cd"])
@pytest.mark.parametrize("bias", ["augmented", "none", "free"])
def test_weights_and_several_classes(solver: str, bias: str) -> None:
    X, y = random_problem(60, 5, seed=4, noise=0.2, n_classes=3)
    weight = np.random.default_rng(0).choice([0.0, 0.5, 2.0], 60)
    for rows in ((X, y), (sparse.csr_array(X), y)):
        agrees_with_newton((*rows, weight), solver, bias=bias, C=0.5, class_weight="balanced")
    agrees_with_newton(ONE_ROW_A_CLASS, solver, bias=bias, C=2.0, bias_scale=3.0)


def test_dense_and_csr_make_the_same_sweeps(tmp_path: Path) -> None:
    X, y = random_problem(80, 6, 0.5, seed=5)
    for solver in (PrimalCD(), CoordinateDescent()):
        dense, by_csr = (Bench(solver, rows, y, tmp_path).objectives(20) for rows in (X, sparse.csr_array(X)))
        np.testing.assert_allclose(dense, by_csr, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_blocks_of_rows_do_not_change_cd(tmp_path: Path, n_classes: int) -> None:
    X, y = random_problem(43, 6, seed=6, n_classes=n_classes)
    whole = Bench(CoordinateDescent(), X, y, tmp_path)
    whole.objectives(15)
    for lent in ({"block_rows": 1}, {"block_rows": 7}, {"block_rows": 43}, {"mapper": ElsewhereMapper()}):
        other = Bench(CoordinateDescent(), X, y, tmp_path, **lent)
        other.objectives(15)
        np.testing.assert_allclose(other.state.w, whole.state.w, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_column_copy_on_disk_gives_what_memory_gives(streaming: None, tmp_path: Path, layout: str) -> None:
    X, y = random_problem(300, 9, 0.5, seed=7)
    rows: Any = (sparse.csr_array(X) if layout == "csr" else X, y)
    for solver in ("cd", "pcd"):
        result = bigsvm.fit(rows, solver=solver, loss="squared_hinge", tol=1e-7, memory="64MiB")
        assert result.model.about["plan"]["resident"] is False
        assert result.figures["scratch_bytes"] > 0
        assert result.figures["passes"] == pytest.approx(result.figures["epochs"], rel=0.4)
        judge = bigsvm.fit(rows, solver="newton", loss="squared_hinge", tol=1e-10)
        assert result.figures["objective"] == pytest.approx(judge.figures["objective"], rel=2e-7)
        straight = bigsvm.fit(rows, solver=solver, loss="squared_hinge", tol=1e-7, stage="none", memory="64MiB")
        assert straight.figures["objective"] == pytest.approx(judge.figures["objective"], rel=2e-7)


def test_threads_do_not_change_the_bytes(streaming: None) -> None:
    X, y = random_problem(200, 7, seed=8)
    first, second = (
        bigsvm.fit((X, y), solver="pcd", loss="squared_hinge", tol=1e-6, threads=threads) for threads in (1, 4)
    )
    np.testing.assert_array_equal(first.model.coef, second.model.coef)
    other = bigsvm.fit((X, y), solver="pcd", loss="squared_hinge", tol=1e-6, seed=1)
    assert not np.array_equal(first.model.coef, other.model.coef)


@pytest.mark.parametrize("solver", [PrimalCD(), CoordinateDescent()])
@pytest.mark.parametrize("bias", ["augmented", "free"])
def test_a_run_that_was_left_in_a_sweep_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solver: Any, bias: str
) -> None:
    monkeypatch.setattr(column_sweeps, "BLOCK_BYTES", 1000)  # some blocks of columns
    X, y = random_problem(50, 8, seed=9, n_classes=3)
    options = {"bias": bias}
    straight = Bench(solver, X, y, tmp_path, 10, options)
    straight.objectives(6)
    left = Bench(solver, X, y, tmp_path, 10, options)
    left.objectives(3)
    left.ctx.control.pause = lambda: True
    for number in range(3):  # in the middle of a sweep
        assert left.solver.step(left.problem, left.state, left.ctx).paused
        assert left.state.done == number + 1
        (tmp_path / f"state{number}").mkdir()
        write_tree(tmp_path / f"state{number}", dump(left.state))
        again = Bench(solver, X, y, tmp_path, 10, options)
        tree = read_tree(tmp_path / f"state{number}")
        again.solver.before_load(again.state, tree, again.ctx)
        load(again.state, tree)
        again.ctx.control.pause = lambda: True
        left = again
    assert left.step().paused is False
    left.objectives(2)
    np.testing.assert_array_equal(left.state.w, straight.state.w)
    np.testing.assert_array_equal(left.state.rows.s.values, straight.state.rows.s.values)
    np.testing.assert_array_equal(left.state.rows.alpha.values, straight.state.rows.alpha.values)
    assert left.state.estimate == straight.state.estimate


@pytest.mark.cluster
@pytest.mark.parametrize("solver", ["cd", "rosenbrock"])
def test_worker_processes_give_the_bytes_of_none(streaming: None, tmp_path: Path, solver: str, cluster: str) -> None:
    X, y = random_problem(200, 5, seed=13, n_classes=3)
    options: dict[str, Any] = {"solver": solver, "loss": "squared_hinge", "tol": 1e-4, "memory": "64MiB"}
    here = bigsvm.fit((X, y), threads=1, **options)
    there = bigsvm.fit((X, y), scheduler=cluster, scratch=str(tmp_path / "other"), **options)
    np.testing.assert_array_equal(here.model.coef, there.model.coef)
    assert here.figures["dual_objective"] == there.figures["dual_objective"]


def test_slacks_stay_those_of_w(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_sweeps, "_REFRESH", 3)
    X, y = random_problem(60, 5, seed=10)
    bench = Bench(CoordinateDescent(), X, y, tmp_path)
    bench.objectives(8)
    w = bench.state.w
    np.testing.assert_allclose(bench.state.rows.s.values[:, 0], 1 - y * (X @ w[:-1] + w[-1]), atol=1e-13)


def test_cd_visits_features_in_the_users_order() -> None:
    ctx = SimpleNamespace(data=SimpleNamespace(feature_order=np.array([4, 2, 5, 0, 1, 3])))
    block = SimpleNamespace(start=1, stop=5)
    np.testing.assert_array_equal(CoordinateDescent().order(block, None, ctx), [2, 3, 0, 1])  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", ["pcd", "cd"])
def test_the_papers_rule_stops_at_a_short_step(solver: str) -> None:
    X, y = random_problem(80, 5, seed=11)
    ends = [
        bigsvm.fit((X, y), solver=solver, loss="squared_hinge", stop="paper", solver_options={"eps1": eps1})
        for eps1 in (1.0, 1e-3)
    ]
    assert [result.status for result in ends] == ["paper_rule", "paper_rule"]
    assert ends[0].figures["epochs"] < ends[1].figures["epochs"]


@pytest.mark.parametrize(
    "bad",
    [
        {"start": "twos"},
        {"line_search": "golden"},
        {"eps1": -1.0},
        {"eps1": float("nan")},
        {"eps1": float("inf")},
        {"eps2": 0.0},
    ],
)
def test_options_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    X, y = random_problem(20, 3, seed=12)
    with pytest.raises(UsageError):
        bigsvm.fit((X, y), solver="cd", loss="squared_hinge", solver_options=bad)


@pytest.mark.parametrize("bias", ["none", "augmented", "free"])
@pytest.mark.parametrize("solver", ["newton", "pcd", "cd"])
def test_rows_outside_the_margin_are_no_support_vectors(solver: str, bias: str) -> None:
    X, y = random_problem(900, 5, seed=3)
    result = bigsvm.fit((X, y), loss="squared_hinge", solver=solver, bias=bias, C=0.1, tol=1e-9)
    margins = y * np.asarray(result.model.decision_function(X)).reshape(-1)
    assert result.figures["n_support"] == np.count_nonzero(margins < 1.0) < len(y)
