"""What a config means on a store: models, costs, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.errors import DataError, Unsupported, UsageError
from bigsvm.problem.loss import loss_named
from bigsvm.problem.problem import make_problem
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.problems import random_problem


def store(n_classes: int = 2):
    return open_store(random_problem(30, 4, seed=1, n_classes=n_classes))


def test_two_classes_are_one_model_and_the_last_class_is_positive() -> None:
    problem = make_problem(FitConfig(), store())
    assert problem.classes.tolist() == [-1, 1]
    assert problem.positive.tolist() == [1]
    assert problem.box.bias == 1.0


def test_three_classes_are_three_models() -> None:
    problem = make_problem(FitConfig(bias="none", C=2.0), store(3))
    assert problem.positive.tolist() == [0, 1, 2]
    assert problem.C.tolist() == [2.0, 2.0, 2.0]
    assert problem.constant_feature == 0.0


def test_lambda_is_one_over_c_n() -> None:
    assert make_problem(FitConfig(lam=0.01), store()).C[0] == pytest.approx(1 / (0.01 * 30))


def test_class_weights_by_name_and_balanced() -> None:
    for name in ("1", "+1", "1.0"):
        assert make_problem(FitConfig(class_weight={name: 5.0}), store()).class_weight.tolist() == [1.0, 5.0]
    balanced = make_problem(FitConfig(class_weight="balanced"), store(), np.array([20, 10]))
    np.testing.assert_allclose(balanced.class_weight, [0.75, 1.5])


def test_balanced_weights_of_three_classes_are_scikit_learns() -> None:
    class_weight = pytest.importorskip("sklearn.utils.class_weight")
    labels = np.repeat([0, 1, 2], [4, 9, 17])
    expected = class_weight.compute_class_weight("balanced", classes=np.arange(3), y=labels)
    problem = make_problem(FitConfig(class_weight="balanced"), store(3), np.bincount(labels))
    np.testing.assert_allclose(problem.class_weight, expected, rtol=1e-15)


def test_gamma_auto_is_one_over_the_features() -> None:
    assert make_problem(FitConfig.of(kernel="rbf"), store()).kernel.gamma == 0.25
    assert make_problem(FitConfig.of(kernel="rbf", gamma=0.7), store()).kernel.gamma == 0.7


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"loss": "squared_epsilon_insensitive"}, DataError, "needs targets"),
        ({"loss": "epsilon_insensitive"}, DataError, "needs targets"),
        ({"class_weight": {"7": 1.0}}, UsageError, "no class"),
        ({"class_weight": {"1": -1.0}}, UsageError, "negative"),
        ({"class_weight": "heavy"}, UsageError, "balanced"),
    ],
)
def test_refusals_name_the_value(options: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        make_problem(FitConfig(**options), store())


def test_a_loss_that_is_none_names_those_there_are() -> None:
    with pytest.raises(Unsupported, match="not available"):
        loss_named("logistic")


def test_one_class_cannot_be_fitted() -> None:
    with pytest.raises(DataError, match="one class only"):
        make_problem(FitConfig(), open_store((np.ones((3, 2)), np.ones(3))))


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "logistic"},
        {"C": 0.0},
        {"C": float("nan")},
        {"tol": -1.0},
        {"threads": 0},
        {"seed": -1},
        {"stop": "x"},
    ],
)
def test_config_refuses_nonsense_at_once(options: dict) -> None:
    with pytest.raises(UsageError):
        FitConfig(**options)


def test_config_names_unknown_options() -> None:
    with pytest.raises(UsageError, match="unknown option 'Cost'"):
        FitConfig.of(Cost=1)


def test_a_precomputed_kernel_is_square() -> None:
    with pytest.raises(DataError, match=r"column for each row, and the store is 4 x 3"):
        make_problem(FitConfig.of(kernel="precomputed"), open_store((np.ones((4, 3)), np.array([0, 1, 0, 1]))))


@pytest.mark.parametrize("kind", ["two", "rest", "pairs", "labels", "targets"])
def test_signs_of_a_model_are_a_column_of_all_signs(kind: str) -> None:
    rng = np.random.default_rng(0)
    X, y = random_problem(30, 4, seed=1, n_classes=2 if kind == "two" else 4)
    rows = (X, rng.integers(0, 2, (30, 3))) if kind == "labels" else (X, y)
    config = FitConfig()
    if kind == "pairs":
        config = FitConfig.of(loss="hinge", bias="free", solver="smo", multi_class="ovo")
    elif kind == "targets":
        config = FitConfig.of(loss="epsilon_insensitive")
    data = open_store(rows, **({"task": "regression"} if kind == "targets" else {}))
    problem = make_problem(config, data)
    codes = problem.y_of(data.read(data.refs(30)[0]))
    columns = [problem.signs_of(codes, m) for m in range(problem.n_models)]
    np.testing.assert_array_equal(np.stack(columns, axis=1), problem.signs(codes))
