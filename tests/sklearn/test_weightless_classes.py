"""Where weights leave one class, what is said names it as the user does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import DataError
from bigsvm.sklearn import SVC, LinearSVC

ROWS = np.random.default_rng(0).standard_normal((40, 3))
LABELS = [("no", "yes"), (False, True), (-1, 1), (3, 7)]


@pytest.mark.parametrize(("first", "second"), LABELS)
def test_a_fit_names_the_label_that_alone_takes_part(first: Any, second: Any) -> None:
    y = np.where(ROWS[:, 0] > 0.0, second, first)
    said = f"only class {first!r} takes part"
    with pytest.raises(DataError, match=said):
        bigsvm.fit((ROWS, y), class_weight={str(second): 0.0})
    with pytest.raises(DataError, match=said):
        bigsvm.fit((ROWS, y, (y == first).astype(float)))


@pytest.mark.parametrize("estimator", [LinearSVC, SVC])
@pytest.mark.parametrize(("first", "second"), LABELS)
def test_an_estimator_names_the_label_and_not_its_code(estimator: Any, first: Any, second: Any) -> None:
    y = np.where(ROWS[:, 0] > 0.0, second, first)
    with pytest.raises(ValueError, match=f"only class {first!r} takes part"):
        estimator(class_weight={second: 0}).fit(ROWS, y)
    with pytest.raises(ValueError, match="no class takes part"):
        estimator(class_weight={first: 0, second: 0}).fit(ROWS, y)
    first_alone = np.arange(40) % 2.0
    y = np.where((np.arange(40) % 2 == 0) | (ROWS[:, 0] > 0.0), second, first)
    with pytest.raises(ValueError, match=f"only class {first!r} takes part"):  # by both kinds of weights
        estimator(class_weight={second: 0}).partial_fit(ROWS, y, classes=[first, second], sample_weight=first_alone)


def test_a_model_of_a_class_that_weighs_nothing_is_refused_by_its_label() -> None:
    y = np.array(["a", "b", "c"])[np.arange(40) % 3]
    with pytest.raises(ValueError, match="every row of class 'b' has weight 0"):
        LinearSVC(class_weight={"b": 0}).fit(ROWS, y)
    assert SVC(class_weight={"b": 0}).fit(ROWS, y).classes_.tolist() == ["a", "b", "c"]
