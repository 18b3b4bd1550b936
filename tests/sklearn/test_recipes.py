"""Estimators that are fitted to a store whose rows were made of others score other rows made alike."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

from sklearn.preprocessing import MaxAbsScaler, Normalizer, StandardScaler

import bigsvm
import bigsvm.sklearn as ours

MADE: dict[str, tuple[dict[str, Any], Any]] = {
    "maxabs": ({"scale": "maxabs"}, MaxAbsScaler()),
    "standard": ({"scale": "standard"}, StandardScaler()),
    "unit-norm": ({"scale": "unit-norm"}, Normalizer()),
    "log1p": ({"normalize": "log1p"}, None),
}
SOLVED = {"LinearSVR": {"loss": "squared_epsilon_insensitive"}, "LinearSVC": {}}
NAMES = [name for name in ours.__all__ if isinstance(getattr(ours, name), type) and name != "Search"]
TARGETS = ("LinearSVR", "SVR", "NuSVR")


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Columns of very different scale, so that rows that are not made alike are scored as noise."""
    rng = np.random.default_rng(3)
    X = rng.random((120, 4)) * np.array([1.0, 10.0, 100.0, 1000.0]) + 0.1
    return X, (X / X.max(axis=0)) @ np.array([1.0, -1.0, 2.0, -2.0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("made", MADE)
def test_other_rows_are_made_as_those_of_the_fit(
    name: str, made: str, rows: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    found, (X, t), (options, transformer) = getattr(ours, name), rows, MADE[made]
    y, task = (t, "regression") if name in TARGETS else (t > 0, "classification")
    bigsvm.ingest((X, y), tmp_path / "rows.zarr", task=task)
    store = bigsvm.open_store(tmp_path / "rows.zarr", task=task, **options)
    estimator = found(**SOLVED.get(name, {"kernel": "rbf", "gamma": 0.5}))
    estimator.fit(store)
    by_hand = np.log1p(X) if transformer is None else transformer.fit_transform(X)
    wanted = found(**estimator.get_params()).fit(*((by_hand,) if name == "OneClassSVM" else (by_hand, y)))
    score = "predict" if name in TARGETS else "decision_function"
    expected = getattr(wanted, score)(by_hand)
    again = pickle.loads(pickle.dumps(estimator))
    others: list[Any] = [X, tmp_path / "rows.zarr", store]
    if made != "standard" or name.startswith("Linear"):  # sparse rows cannot lose their means
        others.append(scipy.sparse.csr_array(X))
    for other in others:
        np.testing.assert_allclose(getattr(again, score)(other), expected, rtol=1e-3, atol=1e-3)
    if name != "OneClassSVM":
        assert estimator.score(tmp_path / "rows.zarr") == pytest.approx(estimator.score(X, y), abs=1e-9)
        with pytest.raises(ValueError, match="those of the model by"):
            estimator.score(bigsvm.open_store(tmp_path / "rows.zarr", task=task))
    estimator.fit(*((by_hand,) if name == "OneClassSVM" else (by_hand, y)))
    np.testing.assert_array_equal(getattr(estimator, score)(by_hand), expected)
