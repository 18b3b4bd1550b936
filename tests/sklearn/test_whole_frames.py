"""The check for whole numbers beyond 2^53: frames of one type are looked at in one, and other shapes are left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from bigsvm.errors import DataError
from bigsvm.sklearn import SVC, SVR, LinearSVC, LinearSVR
from bigsvm.store.frames.columns import check_whole_columns


def test_a_frame_of_one_type_is_not_checked_column_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking a column of pandas costs some 20 us: a row of 2000 columns took fifteen times as long to predict."""
    frame = pd.DataFrame(np.ones((2, 3), np.int64), columns=list("abc"))
    with monkeypatch.context() as patched:
        patched.setattr(pd.DataFrame, "iloc", None)
        check_whole_columns(frame)
        check_whole_columns(frame.astype(np.float64))
    frame.loc[1, "b"] = 2**60
    with pytest.raises(DataError, match=r"column 'b'.*row 1 holds"):
        check_whole_columns(frame)


@pytest.mark.parametrize("X", [np.array(2**60), np.array([2**60, 1])])
def test_other_shapes_are_refused_as_scikit_learn_does(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match="Expected 2D array"):
        LinearSVC().fit(X, [0, 1])


@pytest.mark.parametrize("in_a_frame", [False, True])
@pytest.mark.parametrize("kind", ["Int64", "UInt64", "int64[pyarrow]"])
@pytest.mark.parametrize("estimator", [LinearSVC(), LinearSVR(), SVC(), SVR()], ids=str)
def test_labels_that_float64_would_merge_are_refused(estimator: Any, kind: str, in_a_frame: bool) -> None:
    """2^60 and 2^60 + 1 were one class, beside a third label; as targets they were rounded."""
    y = pd.Series([2**60, 2**60 + 1, 5] * 10, dtype=kind)
    X = np.arange(60.0).reshape(30, 2) % 7
    with pytest.raises(ValueError, match=r"y: row 0 holds 1152921504606846976, beyond 2\^53"):
        clone(estimator).fit(X, y.to_frame() if in_a_frame else y)


def test_labels_that_are_not_rounded_stay() -> None:
    y = np.array([2**60, 2**60 + 1, 5] * 10)
    X = np.arange(60.0).reshape(30, 2) % 7
    assert LinearSVC().fit(X, pd.Series(y)).classes_.tolist() == [5, 2**60, 2**60 + 1]
