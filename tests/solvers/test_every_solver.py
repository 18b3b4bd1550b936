"""Every solver on every problem that it solves: proved, and at the optimum that an independent solver finds."""

from __future__ import annotations

import functools
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import KERNEL_SOLVERS, FitConfig
from bigsvm.problem.loss import LOSSES
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import corner_problems, random_problem
from bigsvm.testing.reference import optimum
from tests.classifiers import CLASSIFIERS
from tests.products import each_of, pairs_of_kinds

CORNERS = corner_problems()
TOL = 1e-6
APPROXIMATE = ("ssvm", "pegasos", "simplified-smo", "simplified-smo-km", "platt-smo")
LARGEST_C = {"newton": 1e6}
SWEEPS_GROW_WITH_C = ("pcd", "cd")  # in proportion, where rows are too few to bend P: 150,000 at C = 1000
FEW_ROWS = ("more features than rows", "duplicate rows")
CASES = [
    (name, loss, bias)
    for name, solver in SOLVERS.items()
    for loss in solver.losses
    for bias in solver.biases
    if name != "dcd" and loss in LOSSES and not LOSSES[loss].regression  # these have files of their own
]


@pytest.mark.parametrize("name", SOLVERS)
def test_the_table_of_solvers_says_what_their_classes_are(name: str) -> None:
    assert SOLVERS[name].name == name
    assert issubclass(SOLVERS[name], KernelSolver) == (name in KERNEL_SOLVERS)


@functools.cache
def expected(corner: str, loss: str, bias: str, C: float) -> float:
    X, y = CORNERS[corner]
    return optimum(X, y, np.full(len(y), C), loss, bias)


@pairs_of_kinds(itemgetter(0), name__loss__bias=CASES, corner=CORNERS, layout=["dense", "csr"], C=[1e-4, 1.0, 1e3])
def test_every_corner_is_proved_and_optimal(
    name: str, loss: str, bias: str, corner: str, layout: str, C: float
) -> None:
    X, y = CORNERS[corner]
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    if C > 1.0:
        C = LARGEST_C.get(name, C)
        if name in SWEEPS_GROW_WITH_C and corner in FEW_ROWS:
            C = 10.0
    limit = 50 if name in APPROXIMATE else 100_000
    result = bigsvm.fit(
        (rows, y), solver=name, loss=loss, bias=bias, C=C, tol=TOL, threads=1, max_passes=limit, memory="64MiB"
    )
    figures, best = result.figures, expected(corner, loss, bias, C)
    assert 0 <= figures["relative_gap"] < np.inf
    assert figures["objective"] >= best * (1 - 1e-6)
    assert figures["dual_objective"] <= best * (1 + 1e-6)
    if name in APPROXIMATE:
        assert result.exit_code() == (0 if figures["relative_gap"] <= TOL else 4)
    else:
        assert result.status == "converged", figures["relative_gap"]
        assert figures["relative_gap"] <= TOL
        assert figures["objective"] == pytest.approx(best, rel=2 * TOL)


@each_of(name__loss__bias=CASES, layout=["dense", "csr"])
def test_streamed_rows_have_the_same_optimum(
    tmp_path: Path, name: str, loss: str, bias: str, layout: str, streaming: None
) -> None:
    X, y = random_problem(200, 6, 0.7, seed=41, noise=0.2)
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    tol = 1e-2 if name in APPROXIMATE else 1e-4
    options: dict[str, Any] = {"solver": name, "loss": loss, "bias": bias, "C": 0.1, "tol": tol, "max_passes": 3000}
    result = bigsvm.fit((rows, y), **options)
    assert not result.model.about["plan"]["resident"]
    assert result.status == "converged"
    assert result.figures["passes"] > 1
    assert result.figures["objective"] == pytest.approx(optimum(X, y, np.full(200, 0.1), loss, bias), rel=1.1 * tol)


@pytest.mark.parametrize(("name", "loss", "bias"), CASES)
def test_weights_are_repeated_rows_and_a_weight_of_0_takes_no_part(name: str, loss: str, bias: str) -> None:
    X, y = random_problem(80, 4, seed=42, noise=0.2)
    weight = np.random.default_rng(43).integers(0, 4, 80).astype(float)
    tol = 1e-2 if name in APPROXIMATE else 1e-7
    result = bigsvm.fit(ArrayRows(X, y, weight), solver=name, loss=loss, bias=bias, C=0.1, tol=tol, max_passes=100_000)
    best = optimum(X, y, 0.1 * weight, loss, bias)
    assert result.status == "converged"
    assert result.figures["objective"] == pytest.approx(best, rel=2 * tol)
    assert result.alpha[0].values[weight == 0].max() == 0


@each_of(name__loss__bias=CASES, stream=[False, True])
def test_classes_trained_together_are_each_class_alone(
    name: str, loss: str, bias: str, stream: bool, request: pytest.FixtureRequest
) -> None:
    if stream:
        request.getfixturevalue("streaming")
    X, y = random_problem(120, 5, seed=44, n_classes=3)
    tol = 1e-2 if name in APPROXIMATE else 1e-5
    options: dict[str, Any] = {"solver": name, "loss": loss, "bias": bias, "multi_class": "ovr"}
    result = bigsvm.fit((X, y), **options, C=0.1, tol=tol, max_passes=20_000)
    assert result.status == "converged"
    for m in range(3):
        best = optimum(X, np.where(y == m, 1.0, -1.0), np.full(120, 0.1), loss, bias)
        assert result.figures["models"][m]["objective"] == pytest.approx(best, rel=1.1 * tol)


@each_of(name=[name for name in CLASSIFIERS if name != "dcd"], stream=[False, True])
def test_same_bytes_with_any_number_of_threads(
    tmp_path: Path, name: str, stream: bool, request: pytest.FixtureRequest
) -> None:
    if stream:
        request.getfixturevalue("streaming")
    # Those that fetch row after row of K read all rows for each.
    n = 120 if name in KERNEL_SOLVERS and name != "smo" else 200
    X, y = random_problem(n, 6, 0.6, seed=45)
    rows = (sparse.csr_array(X.astype(np.float32)), y)
    options: dict[str, Any] = {"solver": name, "loss": SOLVERS[name].losses[0], "tol": 1e-3, "max_passes": 200}
    found = []
    for number, changed in enumerate(({"threads": 1}, {"threads": 3}, {"scheduler": "serial"})):
        bigsvm.fit(rows, **options, **changed).save_model(tmp_path / str(number))
        found.append({p.name: p.read_bytes() for p in sorted((tmp_path / str(number)).iterdir())})
    assert found[0] == found[1] == found[2]


@pytest.mark.cluster
@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name != "dcd"])
def test_two_worker_processes_give_the_bytes_of_none(tmp_path: Path, name: str, streaming: None, cluster: str) -> None:
    X, y = random_problem(200, 5, seed=46)
    options: dict[str, Any] = {"solver": name, "loss": SOLVERS[name].losses[0], "tol": 1e-2, "max_passes": 100}
    found = []
    for number, changed in enumerate(({"threads": 1}, {"scheduler": cluster})):
        result = bigsvm.fit((X, y), **options, **changed, scratch=str(tmp_path / f"scratch{number}"))
        result.save_model(tmp_path / str(number))
        found.append({p.name: p.read_bytes() for p in sorted((tmp_path / str(number)).iterdir())})
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name != "dcd"])
def test_labels_one_class_a_block_and_blocks_of_1_7_and_all_rows(
    name: str, streaming: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bigsvm.run.fit import sizes as planning

    n = 24  # a block of one row takes as long as one of hundreds
    X, y = random_problem(n, 5, seed=47, noise=0.2)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    loss = SOLVERS[name].losses[0]
    tol = 1e-2 if name in APPROXIMATE else 1e-6
    bias = SOLVERS[name].biases[0]
    best = optimum(X, y, np.full(n, 0.5), loss, bias)
    for rows in (1, 7, n):
        monkeypatch.setattr(planning, "_COPY_BLOCK", rows * 48)
        monkeypatch.setattr(planning, "BLOCK_BYTES", rows * 48)
        config = FitConfig(solver=name, loss=loss, bias=bias, C=0.5, tol=tol, max_passes=20_000)
        result = fit_store(ArrayRows(X, y), config)
        assert result.status == "converged"
        assert result.model.about["plan"]["block_rows"] == rows
        assert result.figures["objective"] == pytest.approx(best, rel=1.1 * tol)
