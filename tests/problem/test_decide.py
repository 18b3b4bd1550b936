"""Labels from scores: signs, the largest, votes of pairs with their ties, values."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.multiclass import _ovr_decision_function

from bigsvm.errors import DataError
from bigsvm.model.decide import models_of, n_models_of
from bigsvm.model.linear_model import LinearModel, load_model
from tests.model_documents import rewrite


def pairs_model(n_classes: int = 4, n_features: int = 3) -> LinearModel:
    rng, n = np.random.default_rng(0), n_models_of(n_classes, True)
    coef = rng.standard_normal((n, n_features))
    return LinearModel(coef, rng.standard_normal(n), np.arange(n_classes) * 10, {}, *models_of(n_classes, True))


def by_hand(scores: np.ndarray, n_classes: int) -> int:
    """LIBSVM's rule of one row, as its text has it: most votes, the first of several."""
    votes = [0] * n_classes
    for score, (i, j) in zip(scores, itertools.combinations(range(n_classes), 2), strict=True):
        votes[i if score > 0 else j] += 1
    return votes.index(max(votes))


def test_pairs_vote_as_in_libsvm() -> None:
    model = pairs_model()
    scores = np.random.default_rng(1).integers(-1, 2, (300, 6)).astype(float)  # zeros, and many ties
    expected = [by_hand(row, 4) for row in scores]
    assert model.codes(scores).tolist() == expected
    assert len(set(expected)) == 4
    # A circle: each of three classes wins once, and the first is taken.
    circle = LinearModel(np.zeros((3, 1)), np.zeros(3), np.arange(3), {}, *models_of(3, True))
    assert circle.codes(np.array([[1.0, -1.0, 1.0]])).tolist() == [0]


def test_a_score_of_zero_is_the_negative_class() -> None:
    model = LinearModel(np.ones((1, 2)), np.zeros(1), np.array([3, 8]))
    X = np.array([[1.0, -1.0], [0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert model.predict(X).tolist() == [3, 3, 8, 3]


def test_class_scores_of_pairs_are_scikit_learns() -> None:
    model, scores = pairs_model(), np.random.default_rng(2).standard_normal((50, 6))
    expected = _ovr_decision_function(scores < 0, -scores, 4)
    np.testing.assert_allclose(model.class_scores(scores), expected, rtol=1e-14)


def test_as_many_pairs_as_classes_are_told_apart_by_name(tmp_path: Path) -> None:
    """Three classes have three pairs: the shape of the arrays cannot say which they are."""
    made = pairs_model(3)
    assert made.multi_class == "ovo"
    made.save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert back.pairs
    assert back.about["problem"] == {"multi_class": "ovo", "regression": False}
    rest = LinearModel(made.coef, made.intercept, made.classes)
    assert not rest.pairs
    X = np.random.default_rng(3).standard_normal((100, 3))
    np.testing.assert_array_equal(back.predict(X), made.predict(X))
    assert np.any(back.predict(X) != rest.predict(X))
    assert back.decision_function(X).shape == (100, 3)


def test_a_linear_regression_gives_values(tmp_path: Path) -> None:
    made = LinearModel(np.array([[1.0, -2.0]]), np.array([0.5]), np.empty(0), {"problem": {"loss": "epsilon"}})
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    made.save(tmp_path / "m", np.array([[0.5, -0.5]]))
    back = load_model(tmp_path / "m")
    assert (back.regression, back.n_models, back.multi_class) == (True, 1, "")
    assert back.predict(X).tolist() == [1.5, -1.5]
    assert back.decision_function(X).tolist() == [1.5, -1.5]
    assert back.codes(back.scores(X)).tolist() == [0, 0]


def test_no_classes_and_no_word_of_regression_is_no_model(tmp_path: Path) -> None:
    LinearModel(np.ones((1, 2)), np.ones(1), np.array([0, 1])).save(tmp_path / "m")
    rewrite(tmp_path / "m", classes=[])
    with pytest.raises(DataError, match="neither all strings nor all numbers"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_models_are_counted_as_they_are_made(n_classes: int) -> None:
    for pairs in (False, True):
        positive, negative = models_of(n_classes, pairs)
        assert len(positive) == len(negative) == n_models_of(n_classes, pairs)
    positive, negative = models_of(n_classes, True)
    if n_classes > 2:
        assert list(zip(positive, negative, strict=True)) == list(itertools.combinations(range(n_classes), 2))
