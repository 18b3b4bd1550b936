"""Certificates of saved kernel models, pairs and regression: what the fit said, from the arrays and the rows alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.errors import DataError, PlanRefused
from bigsvm.model.linear_model import load_model
from bigsvm.problem.kernel import Kernel
from bigsvm.run.fit.outcome import FitResult
from bigsvm.store.formats.array_rows import ArrayRows
from tests.model_documents import read, renew, rewrite

KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "poly": {"kernel": "poly", "gamma": 0.3, "degree": 2, "coef0": 0.5},
    "linear": {"kernel": "linear"},
    "precomputed": {"kernel": "precomputed"},
}
TASKS = ("two", "ovo", "ovr", "regression")
N, D = 150, 5


def rows_of(task: str, kernel: str = "rbf", layout: str = "dense", dtype: Any = np.float64) -> ArrayRows:
    rng = np.random.default_rng(4)
    X = np.where(rng.random((N, D)) < 0.7, rng.standard_normal((N, D)), 0.0).astype(dtype)
    score = X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.standard_normal(N)
    weight = rng.integers(0, 4, N).astype(np.float64)  # some rows take no part
    if task == "regression":
        y = score
    else:
        y = np.searchsorted([0.6] if task == "two" else [0.1, 0.9], score)
    if kernel == "precomputed":
        X = Kernel("rbf", 0.3).matrix(X, X)
    given = sparse.csr_array(X) if layout == "csr" else X
    return ArrayRows(given, y, weight, task="regression" if task == "regression" else "classification")


def fitted(store: ArrayRows, task: str, kernel: str = "rbf", **options: Any) -> FitResult:
    if task == "regression":
        options |= {"loss": "epsilon_insensitive", "epsilon": 0.2}
    elif task != "two":
        options["multi_class"] = task
    else:
        options["class_weight"] = {"1": 2.0}
    return bigsvm.fit(store, solver="smo", C=2.0, tol=1e-3, **KERNELS.get(kernel, {"kernel": kernel}), **options)


def saved(tmp_path: Path, result: FitResult) -> Path:
    result.save_model(tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_it_proves_what_the_fit_proved(tmp_path: Path, kernel: str, task: str, layout: str) -> None:
    store = rows_of(task, kernel, layout)
    result = fitted(store, task, kernel)
    proof = bigsvm.certify(saved(tmp_path, result), store)
    assert proof["certificate"] == "proved"
    assert proof["bound"] == "alpha"
    assert 0 < proof["relative_gap"] <= 1e-3
    for name in ("objective", "dual_objective"):
        assert proof[name] == pytest.approx(result.figures[name], rel=1e-10)
    assert proof["duality_gap"] == pytest.approx(
        result.figures["duality_gap"], rel=1e-6, abs=1e-11 * proof["objective"]
    )
    assert proof["content_fingerprint"] == result.figures["content_fingerprint"]
    assert len(proof["models"]) == len(result.figures["models"])
    for mine, its in zip(proof["models"], result.figures["models"], strict=True):
        assert {k: mine.get(k) for k in ("class", "against")} == {k: its.get(k) for k in ("class", "against")}
        assert mine["objective"] == pytest.approx(its["objective"], rel=1e-10)
        assert mine["n_support"] == its["n_support"]
    if "violation" in proof:  # not of the linear solvers' certificate
        assert proof["violation"] == pytest.approx(result.figures["violation"], rel=1e-6, abs=1e-11)
        assert proof["violation"] > 0


def test_the_gap_is_primal_less_dual_by_another_arithmetic(tmp_path: Path) -> None:
    """P and D written out with a whole kernel matrix."""
    store = rows_of("regression")
    proof = bigsvm.certify(path := saved(tmp_path, fitted(store, "regression")), store)
    block = store.read(store.refs(N)[0])
    beta, b = np.load(path / "alpha.npy")[0], float(np.load(path / "intercept.npy")[0])
    K, C = Kernel("rbf", 0.3).matrix(block.X, block.X), 2.0 * block.sample_weight
    assert np.all(np.abs(beta) <= C)
    primal = 0.5 * beta @ K @ beta + C @ np.maximum(np.abs(block.y - K @ beta - b) - 0.2, 0.0)
    dual = block.y @ beta - 0.2 * np.abs(beta).sum() - 0.5 * beta @ K @ beta
    assert proof["objective"] == pytest.approx(primal, rel=1e-12)
    assert proof["dual_objective"] == pytest.approx(dual, rel=1e-12)
    assert proof["duality_gap"] == pytest.approx(primal - dual, rel=1e-8)


@pytest.mark.parametrize("task", ["two", "ovo", "regression"])
def test_without_alpha_the_coefficients_are_the_dual_point(tmp_path: Path, task: str) -> None:
    store = rows_of(task, dtype=np.float32)
    result = fitted(store, task, no_dual=True)
    proof = bigsvm.certify(saved(tmp_path, result), store)
    assert proof["bound"] == "dual_coef"
    assert proof["duality_gap"] == pytest.approx(result.figures["duality_gap"], rel=1e-6)


def test_linear_pairs_without_alpha_prove_little_and_say_so(tmp_path: Path) -> None:
    store = rows_of("ovo")
    proof = bigsvm.certify(saved(tmp_path, fitted(store, "ovo", "linear", no_dual=True)), store)
    assert "alpha = 0" in proof["bound"]
    assert proof["relative_gap"] == 1.0
    assert proof["dual_objective"] == 0.0


def test_an_indefinite_kernel_has_a_violation_and_no_gap(tmp_path: Path) -> None:
    store = rows_of("two")
    result = fitted(store, "two", "sigmoid", gamma=0.5, coef0=-0.5)
    proof = bigsvm.certify(saved(tmp_path, result), store)
    assert proof["certificate"] == "none"
    assert proof["duality_gap"] is None
    assert proof["relative_gap"] is None
    assert proof["models"][0]["relative_gap"] is None
    assert proof["objective"] == pytest.approx(result.figures["objective"], rel=1e-10)
    assert proof["violation"] == pytest.approx(result.figures["violation"], rel=1e-6)
    assert "not positive semidefinite" in proof["warnings"][0]
    json.dumps(proof)


@pytest.mark.usefixtures("forked_workers")
def test_the_same_whatever_is_read_at_one_time_and_wherever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = rows_of("ovo", dtype=np.float32)
    path = saved(tmp_path, result := fitted(store, "ovo"))
    expected = bigsvm.certify(path, store, threads=1)
    assert expected["violation"] == pytest.approx(result.figures["violation"], rel=1e-6)
    monkeypatch.setattr("bigsvm.run.proof.beta_terms._MOST_ROWS", 7)
    for options in ({"threads": 1}, {"threads": 2}, {"scheduler": "processes", "workers": 1}):
        found = bigsvm.certify(path, store, **options)
        for name in ("objective", "duality_gap", "violation"):
            assert found[name] == pytest.approx(expected[name], rel=1e-9)
    layouts = ArrayRows(sparse.csr_array(rows_of("ovo", dtype=np.float32).read(store.refs(N)[0]).X), *labels_of(store))
    assert bigsvm.certify(path, layouts)["duality_gap"] == pytest.approx(expected["duality_gap"], rel=1e-6)


def labels_of(store: ArrayRows) -> tuple[np.ndarray, np.ndarray]:
    block = store.read(store.refs(N)[0])
    assert store.classes is not None
    return store.classes[block.y], block.sample_weight


def altered(path: Path, name: str, change: Any, honest: bool = True) -> None:
    """Change an array of a model; `honest`: its digest too, as one would who wants to deceive."""
    array = np.load(path / name)
    change(array)
    np.save(path / name, array)
    if honest:
        renew(path, name)


def test_damage_and_deceit_are_found_out(tmp_path: Path) -> None:
    store = rows_of("two")
    result = fitted(store, "two")

    def fresh() -> Path:
        result.save_model(tmp_path / "m", overwrite=True)
        return tmp_path / "m"

    def half(array: np.ndarray) -> None:
        array[0, np.flatnonzero(array[0])[3]] *= 0.5

    def moved(array: np.ndarray) -> None:
        array[2] += 1.0

    def large(array: np.ndarray) -> None:
        array[0] *= 100.0

    altered(fresh(), "alpha.npy", half, honest=False)
    with pytest.raises(DataError, match=r"alpha\.npy: damaged"):
        bigsvm.certify(tmp_path / "m", store)
    altered(fresh(), "alpha.npy", half)
    with pytest.raises(DataError, match=r"disagree on row \d"):
        bigsvm.certify(tmp_path / "m", store)
    altered(fresh(), "dual_coef.npy", half)
    with pytest.raises(DataError, match=r"disagree on row \d"):
        bigsvm.certify(tmp_path / "m", store)
    altered(fresh(), "support.npy", moved)
    with pytest.raises(DataError, match="support vector among rows"):
        bigsvm.certify(tmp_path / "m", store)
    altered(fresh(), "alpha.npy", large)
    altered(tmp_path / "m", "dual_coef.npy", large)
    with pytest.raises(DataError, match="not feasible: model 0, row"):
        bigsvm.certify(tmp_path / "m", store)
    # Another bias is another model: a larger gap is proved of it.
    altered(fresh(), "intercept.npy", lambda array: np.add(array, 0.1, out=array))
    assert bigsvm.certify(tmp_path / "m", store)["duality_gap"] > 2 * result.figures["duality_gap"]
    # A dual point out of balance is worth nothing: alpha = 0 is what is left.
    altered(fresh(), "alpha.npy", half)
    altered(tmp_path / "m", "dual_coef.npy", half)
    assert bigsvm.certify(tmp_path / "m", store)["relative_gap"] == 1.0


@pytest.mark.parametrize("code", [0, 1])
def test_a_dual_point_outside_of_its_box_is_refused_on_either_side(tmp_path: Path, code: int) -> None:
    store = rows_of("two")
    path = saved(tmp_path, fitted(store, "two"))
    numbers = np.load(path / "support_rows.npy")
    of_class = np.flatnonzero(labels_of(store)[0] == code)

    def large(array: np.ndarray) -> None:
        array[0, of_class if array.shape[1] == N else np.isin(numbers, of_class)] *= 1.0 + 1e-9

    altered(path, "alpha.npy", large)
    altered(path, "dual_coef.npy", large)
    with pytest.raises(DataError, match="not feasible: model 0, row"):
        bigsvm.certify(path, store)


@pytest.mark.parametrize("which", ["another pair", "weight 0"])
def test_a_row_that_takes_no_part_has_no_alpha(tmp_path: Path, which: str) -> None:
    """Of pairs of classes, and a linear kernel: there alpha stands alone."""
    store = rows_of("ovo")
    path = saved(tmp_path, fitted(store, "ovo", "linear"))
    labels, weight = labels_of(store)
    idle = (labels == 2) & (weight > 0) if which == "another pair" else (labels == 0) & (weight == 0)
    row = int(np.flatnonzero(idle)[0])
    altered(path, "alpha.npy", lambda array: array.__setitem__((0, row), 1e-3))
    with pytest.raises(DataError, match="not feasible: model 0"):
        bigsvm.certify(path, store)


def test_pairs_of_weighed_classes_are_proved(tmp_path: Path) -> None:
    store = rows_of("ovo")
    result = fitted(store, "ovo", class_weight={"0": 3.0, "2": 0.5})
    proof = bigsvm.certify(saved(tmp_path, result), store)
    assert proof["objective"] == pytest.approx(result.figures["objective"], rel=1e-10)
    assert proof["relative_gap"] <= 1e-3


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_rows_that_were_shuffled_come_back_in_the_stores_order(tmp_path: Path, layout: str, streaming: None) -> None:
    rng = np.random.default_rng(9)
    X = rng.standard_normal((500, D))
    y = np.sort(np.where(X[:, 0] + 0.3 * rng.standard_normal(500) > 0, 1, 0))
    X[:, 0] += y  # sorted by label
    store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y)
    result = fitted(store, "two")
    assert result.working_row is not None
    path = saved(tmp_path, result)
    assert bigsvm.certify(path, store)["objective"] == pytest.approx(result.figures["objective"], rel=1e-10)
    numbers = np.load(path / "support_rows.npy")
    assert np.all(np.diff(numbers) > 0)
    if layout == "dense":
        np.testing.assert_array_equal(np.load(path / "support.npy"), X[numbers])
    coef = np.load(path / "dual_coef.npy")[0]
    assert np.all(np.sign(coef) == np.where(y[numbers] == 1, 1.0, -1.0))


def test_a_linear_model_of_pairs_is_held_to_its_own_w(tmp_path: Path) -> None:
    """P is that of coef, D that of alpha: 1/2 ||w - v||^2 is part of the gap."""
    store = rows_of("ovo")
    path = saved(tmp_path, fitted(store, "ovo", "linear"))
    before = bigsvm.certify(path, store)
    altered(path, "coef.npy", lambda array: np.multiply(array, 1.1, out=array))
    after = bigsvm.certify(path, store)
    assert after["dual_objective"] == pytest.approx(before["dual_objective"], rel=1e-12)
    assert after["duality_gap"] == pytest.approx(after["objective"] - after["dual_objective"], rel=1e-8)
    assert after["duality_gap"] > 2 * before["duality_gap"]


def test_other_data_are_refused(tmp_path: Path) -> None:
    store = rows_of("two")
    path = saved(tmp_path, fitted(store, "two"))
    block = store.read(store.refs(N)[0])
    labels, weight = labels_of(store)
    other = weight.copy()
    other[np.argmin(weight)] = 1.0
    with pytest.raises(DataError, match="not what the model was trained on"):
        bigsvm.certify(path, ArrayRows(block.X, labels, other))
    idle = np.setdiff1d(np.arange(N), load_model(path).support_rows)[0]  # type: ignore[union-attr]
    X = block.X.copy()
    X[idle, 0] += 1.0
    with pytest.raises(DataError, match="not what the model was trained on"):
        bigsvm.certify(path, ArrayRows(X, labels, weight))
    with pytest.raises(DataError, match="trained on 150 rows"):
        bigsvm.certify(path, ArrayRows(block.X[:-1], labels[:-1], weight[:-1]))
    with pytest.raises(DataError, match="classes"):
        bigsvm.certify(path, rows_of("ovo"))


def test_memory_that_is_too_small_is_refused_by_name(tmp_path: Path) -> None:
    store = rows_of("two")
    path = saved(tmp_path, fitted(store, "two"))
    with pytest.raises(PlanRefused, match="MiB would do") as refused:
        bigsvm.certify(path, store, memory="9MiB")
    proof = bigsvm.certify(path, store, memory=refused.value.min_memory_bytes)
    assert proof["certificate"] == "proved"


def any_model(tmp_path: Path, kind: str, with_alpha: bool) -> tuple[ArrayRows, Path]:
    """A store and a saved model of it: 'dcd', or a kernel of `KERNELS` with a task of `TASKS`."""
    kernel, _, task = kind.partition(" ")
    store = rows_of(task or "two", kernel)
    if kernel == "dcd":
        result = bigsvm.fit(store, solver="dcd", C=2.0, tol=1e-2, no_dual=not with_alpha)
    else:
        result = fitted(store, task, kernel, no_dual=not with_alpha)
    return store, saved(tmp_path, result)


@pytest.mark.parametrize("with_alpha", [True, False])
@pytest.mark.parametrize("kind", ["dcd", "linear two", "linear ovo", "linear regression", "rbf two", "rbf ovo"])
def test_every_kind_of_model_is_held_to_its_rows_and_memory_alike(tmp_path: Path, kind: str, with_alpha: bool) -> None:
    """Fewer rows are refused by their number before any is read; too little memory by the least that would do."""
    store, path = any_model(tmp_path, kind, with_alpha)
    block = store.read(store.refs(N)[0])
    y = block.y if store.classes is None else store.classes[block.y]
    task = "regression" if store.classes is None else "classification"
    fewer = ArrayRows(block.X[:-1], y[:-1], block.sample_weight[:-1], task=task)
    with pytest.raises(DataError, match="trained on 150 rows, but the store has 149"):
        bigsvm.certify(path, fewer)
    with pytest.raises(PlanRefused, match="MiB would do") as refused:
        bigsvm.certify(path, store, memory="1MiB")
    proof = bigsvm.certify(path, store, memory=refused.value.min_memory_bytes)
    assert proof["certificate"] == "proved"
    assert ("violation" in proof) == (kind != "dcd" and (kind != "linear two" or with_alpha))
    assert proof["bound"] == ("alpha" if with_alpha else proof["bound"])
    assert proof["n_samples"] == N


@pytest.mark.parametrize(
    "options",
    [{"kernel": "sigmoid", "gamma": 2.0, "coef0": -1.0}, {"kernel": "poly", "coef0": -1.0}, {"kernel": "precomputed"}],
    ids=lambda options: options["kernel"],
)
def test_a_model_that_calls_its_kernel_checked_is_not_believed(options: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 4))
    y = (X[:, 0] + rng.standard_normal(40) > 0).astype(int)
    if options["kernel"] == "precomputed":
        X = np.tanh(2 * X @ X.T - 1)
    bigsvm.fit(X, y, **options).save_model(tmp_path / "m")
    problem = {**read(tmp_path / "m")["problem"], "positive_semidefinite": {"how": "checked", "tolerance": 0.0}}
    rewrite(tmp_path / "m", problem=problem)
    found = bigsvm.certify(tmp_path / "m", X, y)
    assert (found["certificate"], found["relative_gap"]) == ("none", None)


@pytest.mark.parametrize("options", [{"kernel": "rbf"}, {"solver": "smo"}], ids=["rbf", "smo"])
def test_a_loss_that_no_kernel_solver_has_is_not_proved_as_another(options: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 4))
    y = (X[:, 0] > 0).astype(int)
    bigsvm.fit(X, y, **options).save_model(tmp_path / "m")
    rewrite(tmp_path / "m", problem={**read(tmp_path / "m")["problem"], "loss": "squared_hinge"})
    with pytest.raises(DataError, match="no kernel solver trains with squared_hinge"):
        bigsvm.certify(tmp_path / "m", X, y)
