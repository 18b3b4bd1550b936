"""Several models with a kernel on rows that stream: one reading serves all of them, and each is what it is alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.problem.kernel import Kernel
from bigsvm.run.fit import sizes as planning
from bigsvm.solvers.kernel.smo import active_set
from bigsvm.solvers.kernel.smo import smo as smo_module
from bigsvm.solvers.kernel.smo.smo import Smo
from bigsvm.solvers.kernel.state import OpenModel
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.products import each_of
from tests.run.test_checkpoint import comes_to_the_same, same_folder

pytestmark = pytest.mark.usefixtures("streaming")

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.3, "C": 2.0, "tol": 1e-5, "memory": "64MiB"}


@pytest.fixture(autouse=True)
def _programmes_are_not_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are active, so that the others need the pass."""
    monkeypatch.setattr(active_set, "_SMALL", 16)


def problem(n: int = 360, classes: int = 4, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    return random_problem(n, 5, seed=seed, noise=0.2, n_classes=classes)


def pairs_of(y: np.ndarray) -> list[tuple[Any, Any]]:
    labels = np.unique(y).tolist()
    return [(a, b) for k, a in enumerate(labels) for b in labels[k + 1 :]]


def is_each_alone(
    result: Any, X: Any, y: np.ndarray, options: dict[str, Any], weight: np.ndarray | None = None
) -> None:
    """Each model's gap is proved, and it is of the programme that its rows alone make."""
    rest = result.model.about["problem"]["multi_class"] == "ovr"
    sides = [(a, None) for a in np.unique(y).tolist()] if rest else pairs_of(y)
    assert result.status == "converged"
    for (a, b), found in zip(sides, result.figures["models"], strict=True):
        rows = np.flatnonzero((y == a) | (y == b)) if b is not None else np.arange(len(y))
        labels = np.where(y[rows] == a, 1.0, -1.0)
        given = ArrayRows(X[rows], labels, sample_weight=None if weight is None else weight[rows])
        kept = {name: value for name, value in options.items() if name != "multi_class"}
        if "class_weight" in kept:
            of = kept["class_weight"]
            kept["class_weight"] = {"1": of.get(f"{a:g}", 1.0), "-1": of.get(f"{b:g}", 1.0)}
        alone = bigsvm.fit(given, solver="smo", **kept).figures
        assert found["relative_gap"] <= options["tol"]
        assert alone["dual_objective"] <= found["objective"] * (1 + 1e-9)
        assert found["objective"] - found["duality_gap"] <= alone["objective"] * (1 + 1e-9)


def readings(y: np.ndarray, X: np.ndarray, options: dict[str, Any]) -> float:
    """Passes of the pair that takes most, alone."""
    found = []
    for a, b in pairs_of(y):
        rows = np.flatnonzero((y == a) | (y == b))
        found.append(bigsvm.fit((X[rows], np.where(y[rows] == a, 1, -1)), **options).figures["passes"])
    return float(max(found))


@each_of(
    multi_class=["ovo", "ovr"],
    layout=["dense", "csr"],
    kernel__shape=[("rbf", {}), ("poly", {"degree": 2, "coef0": 1.0}), ("linear", {})],
)
def test_each_model_is_that_of_its_rows_alone(
    multi_class: str, layout: str, kernel: str, shape: dict[str, Any]
) -> None:
    X, y = problem()
    given: Any = sparse.csr_array(X) if layout == "csr" else X
    options = {**RBF, **shape, "kernel": kernel, "multi_class": multi_class}
    is_each_alone(bigsvm.fit((given, y), solver="smo", **options), given, y, options)


@pytest.mark.parametrize("classes", [3, 6])
def test_all_pairs_take_the_readings_of_few(classes: int) -> None:
    """However many classes there are: some more than the hardest pair alone takes, and none a pair."""
    X, y = problem(120 * classes, classes)
    assert bigsvm.fit((X, y), **RBF).figures["passes"] <= 2.0 * readings(y, X, RBF)


def test_a_store_of_kernel_values() -> None:
    X, y = problem(200)
    K = Kernel("rbf", 0.3).matrix(X, X)
    options = {"solver": "smo", "C": 2.0, "tol": 1e-5, "memory": "64MiB"}
    given = bigsvm.fit((K, y), kernel="precomputed", assume_psd=True, **options)
    computed = bigsvm.fit((X, y), kernel="rbf", gamma=0.3, **options)
    assert given.status == computed.status == "converged"
    assert given.figures["dual_objective"] <= computed.figures["objective"] * (1 + 1e-6)
    assert computed.figures["dual_objective"] <= given.figures["objective"] * (1 + 1e-6)


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_weights_of_rows_and_of_classes(multi_class: str) -> None:
    """Rows of weight 0 take part in no model."""
    X, y = problem()
    weight = np.random.default_rng(4).choice([0.0, 0.5, 1.0, 3.0], len(y))
    options = {**RBF, "class_weight": {"0": 2.0, "2": 0.5}, "multi_class": multi_class}
    if multi_class == "ovr":  # the rest has rows of several classes
        del options["class_weight"]
    result = bigsvm.fit(ArrayRows(X, y, sample_weight=weight), **options)
    is_each_alone(result, X, y, options, weight)


def test_a_class_without_weight_leaves_its_pairs_at_zero() -> None:
    X, y = problem()
    weight = np.where(y == 2, 0.0, 1.0)
    result = bigsvm.fit(ArrayRows(X, y, sample_weight=weight), **RBF)
    assert result.status == "converged"
    of_pair = {pair: found["n_support"] for pair, found in zip(pairs_of(y), result.figures["models"], strict=True)}
    assert of_pair[(0.0, 1.0)] > 0


@pytest.mark.parametrize("order", ["sorted", "rare"])
def test_classes_that_do_not_occur_in_most_blocks(order: str) -> None:
    """Rows in the order of their classes; and classes of one row each, which are a pair of two rows."""
    X, y = problem()
    if order == "sorted":
        by_class = np.argsort(y, kind="stable")
        X, y = X[by_class], y[by_class]
    else:
        y[100], y[300] = 7.0, 8.0
    options = {**RBF, "stage": "none"}
    is_each_alone(bigsvm.fit((X, y), **options), X, y, options)


def test_the_same_bytes_whatever_the_threads(tmp_path: Path) -> None:
    X, y = problem(1500)
    for threads in (1, 2):
        bigsvm.fit((X, y), threads=threads, **RBF).save_model(tmp_path / str(threads))
    assert same_folder(tmp_path / "1", tmp_path / "2")


@each_of(multi_class=["ovo", "ovr"], every=[3, 9])
def test_interrupted_anywhere_it_comes_to_the_same_bytes(multi_class: str, every: int, tmp_path: Path) -> None:
    X, y = problem(300)
    config = FitConfig.of(**RBF, solver="smo", multi_class=multi_class)
    comes_to_the_same(bigsvm.open_store((X, y)), config, tmp_path, every)


def few_places(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    """A row buffer for a part of the rows, and for a few models at a time."""
    monkeypatch.setattr("bigsvm.solvers.kernel.values.row_buffer.LEAST_ROWS", 24)
    monkeypatch.setattr(planning.Sizes, "row_buffer", lambda self, *_: int(self.data_bytes) // share)


@each_of(rows_a_model=[20, 60, 1], order=["mixed", "sorted"])
def test_more_rows_than_memory_holds(rows_a_model: int, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models share what room there is, a tenth of the rows: all at a time, or some after others.

    In the order of their classes, where blocks are of one side, too.
    """
    X, y = problem(300, 4)
    if order == "sorted":
        by_class = np.argsort(y, kind="stable")
        X, y = X[by_class], y[by_class]
    options = {**RBF, "stage": "none", "tol": 1e-2, "max_passes": 2000}
    with_room = bigsvm.fit((X, y), **options)
    few_places(monkeypatch, 6)
    monkeypatch.setattr(smo_module, "_ROWS_A_MODEL", rows_a_model)
    scarce = bigsvm.fit((X, y), **options)
    assert scarce.status == "converged"
    assert scarce.model.n_support > 60
    for one, other in zip(with_room.figures["models"], scarce.figures["models"], strict=True):
        assert other["relative_gap"] <= 1e-2
        assert one["objective"] - one["duality_gap"] <= other["objective"] * (1 + 1e-9)
        assert other["objective"] - other["duality_gap"] <= one["objective"] * (1 + 1e-9)


def test_some_models_after_others_come_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    few_places(monkeypatch, 6)
    monkeypatch.setattr(smo_module, "_ROWS_A_MODEL", 8)
    config = FitConfig.of(**{**RBF, "tol": 1e-2}, solver="smo")
    comes_to_the_same(bigsvm.open_store(problem(200, 4)), config, tmp_path, 12)


def test_models_that_are_done_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes that overlap and two far away: what is done does not work on with the hard pairs."""
    X, y = problem(400, 2, seed=3)
    y = np.where(y > 0, 1.0, 0.0)
    X[:100, 0] += 50.0
    X[100:200, 0] -= 50.0
    y[:100], y[100:200] = 2.0, 3.0
    step_models, in_work = Smo.step_models, []

    def watched(self: Smo, models: Sequence[OpenModel], *others: Any) -> Any:
        in_work.append([one.model for one in models])
        return step_models(self, models, *others)

    monkeypatch.setattr(Smo, "step_models", watched)
    result = bigsvm.fit((X, y), **{**RBF, "C": 100.0, "tol": 1e-6})
    assert result.status == "converged"
    ours = in_work[in_work.index(list(range(6))) :]  # small fits that compile come before
    assert len(ours[-1]) < 6
    assert all(set(after) <= set(before) for before, after in itertools.pairwise(ours))


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_a_warm_start_reads_for_all_models_at_once(multi_class: str, tmp_path: Path) -> None:
    X, y = problem(600, 5)
    options = {**RBF, "multi_class": multi_class}
    bigsvm.fit((X, y), **{**options, "C": 1.5}).save_model(tmp_path / "m")
    cold = bigsvm.fit((X, y), **options)
    warm = bigsvm.fit((X, y), warm_start=str(tmp_path / "m"), **options)
    assert warm.status == "converged"
    assert warm.figures["dual_objective"] <= cold.figures["objective"] * (1 + 1e-9)
    assert cold.figures["dual_objective"] <= warm.figures["objective"] * (1 + 1e-9)
    assert warm.figures["passes"] <= cold.figures["passes"] + 6.0


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_a_limit_of_passes_ends_all_models(multi_class: str) -> None:
    """The proof at the end is of all of them, wherever they stand."""
    X, y = problem(600, 5)
    result = bigsvm.fit((X, y), **{**RBF, "tol": 1e-9}, multi_class=multi_class, max_passes=6)
    assert result.status == "stopped"
    assert result.figures["passes"] <= 7.0
    assert all(found["relative_gap"] < 1.0 for found in result.figures["models"])
