"""The Python front door: ways to name rows, options that were meant otherwise, and what a notebook shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, UsageError
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.auto import preferences
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.registry import able_solvers, choose_solvers
from bigsvm.testing.problems import random_problem


def test_arrays_side_by_side_are_arrays_in_a_tuple(tmp_path: object) -> None:
    X, y = random_problem(40, 3, seed=0)
    weight = np.linspace(0.5, 1.5, 40)
    for rows in (X, sparse.csr_matrix(X)):
        apart, together = bigsvm.fit(rows, y), bigsvm.fit((rows, y))
        np.testing.assert_array_equal(apart.model.coef, together.model.coef)
        weighted = bigsvm.fit(rows, y, sample_weight=weight)
        np.testing.assert_array_equal(weighted.model.coef, bigsvm.fit((rows, y, weight)).model.coef)
        assert not np.array_equal(weighted.model.coef, apart.model.coef)
    weighted.save_model(f"{tmp_path}/m")
    assert bigsvm.certify(f"{tmp_path}/m", X, y, weight)["relative_gap"] <= 1e-3


@pytest.mark.parametrize("loss", ["squared_epsilon_insensitive", "nu_svr"])
def test_whole_numbers_are_targets_where_the_loss_wants_targets(tmp_path: Path, loss: str) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    t = np.rint(5.0 * X[:, 0]).astype(int)
    result = bigsvm.fit(X, t, loss=loss, tol=1e-3)
    assert result.model.regression
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", X, t)["relative_gap"] <= 1e-3


def test_labels_are_given_once() -> None:
    X, y = random_problem(20, 2, seed=0)
    for source in ((X, y), bigsvm.open_store((X, y))):
        with pytest.raises(UsageError, match="labels of its own"):
            bigsvm.fit(source, y)
    for place in ("x.parquet", Path("x.parquet")):  # it may have no labels, so none are said to be there
        with pytest.raises(UsageError, match=r"beside 'x\.parquet', but labels .*label='NAME'"):
            bigsvm.fit(place, y)
    with pytest.raises(UsageError, match="sample_weight without y"):
        bigsvm.fit(X, sample_weight=y)
    with pytest.raises(UsageError, match=r"pass a path, or \(X, y\) arrays"):
        bigsvm.fit(X)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("c", "C"), ("Tol", "tol"), ("gama", "gamma"), ("max_iter", "max_passes"), ("random_state", "seed"),
     ("lambda_", "lam"), ("class_weights", "class_weight"), ("n_jobs", "threads"), ("kernal", "kernel")],
)  # fmt: skip
def test_an_option_that_was_nearly_right(typed: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        FitConfig.of(**{typed: 1})
    assert str(caught.value) == f"unknown option {typed!r} (did you mean {meant}?)"
    assert meant in {field.name for field in dataclasses.fields(FitConfig)}


def test_an_option_that_is_near_to_none() -> None:
    with pytest.raises(UsageError) as caught:
        FitConfig.of(zzzz=1)
    assert all(field.name in caught.value.hint for field in dataclasses.fields(FitConfig) if field.name != "C_path")


def test_what_a_notebook_shows_is_one_line_however_large_it_is() -> None:
    X, y = random_problem(40, 3, seed=0)
    result = bigsvm.fit(X, y)
    assert repr(result).startswith("FitResult(converged: relative gap ")
    assert repr(result.model) in repr(result)
    assert "(proved)" in repr(result.model)
    assert repr(result.model).startswith("LinearModel(2 classes, 3 features, squared_hinge, relative gap ")
    large = LinearModel(np.ones((26, 100_000)), np.zeros(26), np.arange(26), {"plan": {"x": "y" * 10_000}})
    assert repr(large) == "LinearModel(26 classes, 100,000 features)"
    support = np.ones((2000, 4))
    kernel = KernelModel(Kernel("rbf", 0.5), support, np.arange(2000), np.ones((1, 2000)), np.ones(1), np.empty(0), 4)
    assert repr(kernel) == "KernelModel(values, 4 features, rbf kernel, 2,000 support vectors)"


@pytest.mark.parametrize(
    ("n", "d", "in_memory", "said"),
    [(3, 13, True, "3 rows are few for 13 features: dual coordinate descent on rows in memory"),
     (100_000, 5000, False, "5,000 features are many: dual coordinate descent on rows that stream"),
     (100_000, 13, False, "the Hessian of newton does not fit in memory: dual coordinate descent on rows that stream")],
)  # fmt: skip
def test_why_a_solver_was_chosen_is_true(n: int, d: int, in_memory: bool, said: str) -> None:
    shape = DataShape(n_samples=n, n_features=d, nnz=n * d, n_models=1)
    assert {p.name: p.why for p in preferences(FitConfig(), shape, in_memory)}["dcd"] == said


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("stop", ["gap", "paper"])
@pytest.mark.parametrize("bias", ["augmented", "free", "none"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive"])
def test_a_warm_start_is_named_where_it_alone_is_in_the_way(loss: str, bias: str, stop: str, centred: bool) -> None:
    shape = DataShape(n_samples=90, n_features=5, nnz=300, n_models=1, centred=centred, regression="epsilon" in loss)
    config = FitConfig.of(loss=loss, bias=bias, stop=stop, warm_start="m")
    if not able_solvers(config, shape):
        with pytest.raises(BigSVMError) as refused:
            choose_solvers(config, shape)
        alone = bool(able_solvers(dataclasses.replace(config, warm_start=None), shape))
        assert ("starts from 0" in str(refused.value)) == ("--warm-start" in refused.value.hint) == alone


def test_lists_are_arrays() -> None:
    X, y = random_problem(40, 3, seed=2)
    wanted = bigsvm.fit(X, y).model
    np.testing.assert_array_equal(bigsvm.fit(X.tolist(), y.tolist()).model.coef, wanted.coef)
    np.testing.assert_array_equal(wanted.predict(X.tolist()), wanted.predict(X))
    with pytest.raises(UsageError, match="rows of different lengths"):
        bigsvm.fit([[1.0, 2.0], [3.0]], [0, 1])
