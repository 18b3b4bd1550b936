"""Probabilities: scikit-learn's on the same split, kept with the model, proved as any model."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import BigSVMError, DataError, UsageError
from bigsvm.model.probability.calibration import curve_of, fault_of, probabilities
from bigsvm.run.apply.curves import Points, curve, points_of
from bigsvm.run.tune.folds import Folds
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.transforms.withheld import HashedShare, WithheldRows
from bigsvm.testing.problems import random_problem
from tests.proofs import same_optimum

N = 400


def rows_of(n_classes: int, weighted: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    X, y = random_problem(N, 5, 0.7, seed=21, n_classes=n_classes, noise=0.3)
    return X, y, np.random.default_rng(1).random(N) * 2 if weighted else None


def theirs(model: Any, method: str, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Any:
    """scikit-learn's calibration of the scores of a model that is fitted already."""
    calibration = pytest.importorskip("sklearn.calibration")
    frozen = pytest.importorskip("sklearn.frozen")
    base = pytest.importorskip("sklearn.base")

    class Scores(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[misc]
        classes_ = model.classes

        def fit(self, X: Any, y: Any) -> Any:
            return self

        def decision_function(self, X: Any) -> np.ndarray:
            scores = model.class_scores(model.scores(X))
            return scores[:, 0] if scores.shape[1] == 1 else scores

        def predict(self, X: Any) -> np.ndarray:
            return model.predict(X)

        def __sklearn_is_fitted__(self) -> bool:
            return True

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # weights are for the calibration only, as they should be
        return calibration.CalibratedClassifierCV(frozen.FrozenEstimator(Scores()), method=method).fit(X, y, weight)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize(
    ("n_classes", "weighted", "options"), [(2, True, {}), (3, False, {}), (3, True, {"kernel": "rbf"})]
)
def test_probabilities_are_scikit_learns_on_the_same_split(
    method: str, n_classes: int, weighted: bool, options: dict[str, Any]
) -> None:
    X, y, weight = rows_of(n_classes, weighted)
    result = bigsvm.fit(X, y, weight, calibrate=method, calibrate_share=0.3, seed=5, memory="64MiB", **options)
    held = HashedShare(0.3, 5).withheld(0, N)
    assert 0.2 * N < held.sum() < 0.4 * N
    want = theirs(result.model, method, X[held], y[held], None if weight is None else weight[held])
    found = result.model.predict_proba(X)
    np.testing.assert_allclose(found, want.predict_proba(X), rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert result.figures["calibration"] == {"method": method, "share": 0.3, "seed": 5, "n_rows": int(held.sum())}
    assert (result.figures["n_samples"], result.figures["n_trained"]) == (N, N - int(held.sum()))
    # The model is the one of the other rows, and of no held-out row.
    alone = bigsvm.fit(X[~held], y[~held], None if weight is None else weight[~held], memory="64MiB", **options)
    same_optimum(result, alone)


def test_a_calibrated_model_is_kept_proved_and_held_to_its_digest(tmp_path: Path) -> None:
    X, y, _ = rows_of(2, False)
    result = bigsvm.fit(X, y, calibrate="platt", memory="64MiB")
    result.save_model(tmp_path / "m")
    model = bigsvm.load_model(tmp_path / "m")
    np.testing.assert_array_equal(model.predict_proba(X), result.model.predict_proba(X))
    assert "calibration" not in json.loads((tmp_path / "m" / "model.json").read_text())
    proof = bigsvm.certify(tmp_path / "m", X, y)
    assert proof["relative_gap"] == pytest.approx(result.certificate.relative_gap, rel=1e-6)
    file = tmp_path / "m" / "calibration.json"
    file.write_text(file.read_text().replace('"A": -', '"A": '))
    with pytest.raises(DataError, match="damaged"):
        bigsvm.load_model(tmp_path / "m")


def test_the_folds_of_a_search_calibrate_the_model_of_all_rows() -> None:
    X, y, _ = rows_of(3, False)
    options: dict[str, Any] = {"tol": 1e-5, "solver": "dcd", "memory": "64MiB"}
    found = bigsvm.tune((X, y), Cs=[0.5], folds=3, refit=True, calibrate="sigmoid", **options)
    fold = Folds(3, "rows").of(0, N)
    scores = np.empty((N, 3))
    for k in range(3):
        out = fold == k
        scores[out] = bigsvm.fit((X[~out], y[~out]), C=0.5, **options).model.decision_function(X[out])
    want = [curve("sigmoid", points_of(scores[:, c], y == label, None)) for c, label in enumerate(np.unique(y))]
    assert found.refit is not None
    calibration = found.refit.model.about["calibration"]
    assert calibration["folds"]["n_rows"] == N
    for ours, their in zip(calibration["curves"], want, strict=True):
        assert ours["A"] == pytest.approx(their["A"], rel=0.02)
        assert ours["B"] == pytest.approx(their["B"], abs=0.02)
    alone = bigsvm.fit((X, y), C=0.5, **options)
    np.testing.assert_array_equal(found.refit.model.coef, alone.model.coef)


def test_scores_that_memory_does_not_hold_are_drawn_from() -> None:
    X, y, _ = rows_of(2, False)
    big = np.repeat(X, 1500, axis=0), np.repeat(y, 1500)
    result = bigsvm.fit(*big, calibrate="sigmoid", calibrate_share=0.9, memory="64MiB", tol=0.1, solver="dcd")
    assert any("because of the memory budget" in message for message in result.warnings)
    assert 0 < result.figures["calibration"]["n_rows"] * 104 <= (32 << 20) * 1.01


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"calibrate": "logistic"}, UsageError, "calibrate 'logistic'"),
        ({"calibrate": "sigmoid", "calibrate_share": 1.0}, UsageError, "below 1"),
        ({"calibrate": "sigmoid", "calibrate_share": 0.0}, UsageError, "positive"),
        ({"calibrate": "sigmoid", "calibrate_share": 1e-9}, DataError, "no row is held out"),
        ({"calibrate": "sigmoid", "loss": "epsilon_insensitive"}, UsageError, "a regression has none"),
    ],
)
def test_what_gives_no_probabilities_is_refused(options: dict[str, Any], error: type[BigSVMError], said: str) -> None:
    X, y, _ = rows_of(2, False)
    with pytest.raises(error, match=said):
        bigsvm.fit(X, y, **options)


def test_a_class_without_held_out_rows_is_named() -> None:
    X, y, _ = rows_of(2, False)
    held = HashedShare(0.2, 0).withheld(0, N)
    with pytest.raises(DataError, match="no held-out row is of class 7"):
        bigsvm.fit(X, np.where(held, 3, np.where(y == y.max(), 7, 3)), calibrate="sigmoid")


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_held_out_rows_that_all_weigh_nothing_are_refused_by_class(method: str) -> None:
    X, y = random_problem(N, 5, seed=21)
    weight = np.where(HashedShare(0.2, 0).withheld(0, N), 0.0, 1.0)
    with pytest.raises(DataError, match="no held-out row is of class 1"):
        bigsvm.fit(ArrayRows(X, y, sample_weight=weight), calibrate=method)


def test_a_model_without_calibration_says_so() -> None:
    X, y, _ = rows_of(2, False)
    with pytest.raises(UsageError, match="gives no probabilities"):
        bigsvm.fit(X, y).model.predict_proba(X)


def test_scores_too_small_to_say_anything_give_the_share_of_the_class() -> None:
    found = curve("sigmoid", points_of(np.array([-1e-310, 2e-310, 3e-310]), np.array([False, True, True]), None))
    assert found == {"A": 0.0, "B": pytest.approx(np.log(2 / 3))}


def test_curves_by_hand() -> None:
    points = points_of(np.array([2.0, -1.0, 2.0, 0.0]), np.array([True, False, False, True]), np.array([1.0, 2, 3, 0]))
    assert [column.tolist() for column in points] == [[-1.0, 2.0], [0.0, 1.0], [2.0, 3.0]]
    rising = curve("isotonic", Points(np.arange(4.0), np.array([0.0, 1, 0, 1]), np.array([1.0, 0, 1, 0])))
    assert rising == {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.0, 0.5, 0.5, 1.0]}
    np.testing.assert_allclose(curve_of("isotonic", rising, np.array([-9.0, 0.5, 9.0])), [0.0, 0.25, 1.0])
    np.testing.assert_allclose(curve_of("sigmoid", {"A": -1.0, "B": 0.0}, np.array([-1e4, 0.0, 1e4])), [0.0, 0.5, 1.0])
    nowhere = {"method": "isotonic", "curves": [{"x": [0.0], "y": [0.0]}] * 3}
    np.testing.assert_allclose(probabilities(nowhere, np.zeros((2, 3))), 1 / 3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("middle", [0.0, -1.0, 100.0, -1e6])
def test_probabilities_do_not_depend_on_where_scores_lie_nor_on_how_far_apart(
    middle: float, method: str, weighted: bool
) -> None:
    """Features that are small beside the bias make scores such as -1 + 1e-7: Newton's method ended early on them."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal(300)
    positive = z + 0.5 * rng.standard_normal(300) > 1.0
    weight = rng.random(300) if weighted else None
    wanted = curve_of(method, curve(method, points_of(z, positive, weight)), z)
    assert wanted.max() - wanted.min() > 0.9
    for spread in (1e-300, 1e-100, 1e-20, 1e-9, 1e-5, 1e-2, 1e3, 1e100, 1e300):
        if spread < 1e-8 * abs(middle):
            continue  # the scores themselves are rounded
        score = middle + spread * z
        found = curve_of(method, curve(method, points_of(score, positive, weight)), score)
        np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "beta"}, {"curves": []}, {"curves": [{"A": 1.0}]}, {"curves": [{"A": [1.0], "B": [1.0]}]},
        {"curves": [{"A": float("nan"), "B": 0.0}]}, {"method": "isotonic", "curves": [{"x": [1, 0], "y": [0, 1]}]},
    ],
)  # fmt: skip
def test_documents_that_are_no_calibration(changed: dict[str, Any]) -> None:
    sound = {"method": "sigmoid", "curves": [{"A": -1.0, "B": 0.0}]}
    assert fault_of(sound, 2) == ""
    assert fault_of({**sound, **changed}, 2)


def test_applying_a_calibration_imports_numpy_alone() -> None:
    code = "import sys, bigsvm.model.probability.calibration; "
    code += "print({m.split('.')[0] for m in sys.modules} & set(sys.argv))"
    heavy = ["scipy", "numba", "zarr", "dask", "pyarrow", "click", "sklearn"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_withheld_rows_weigh_nothing_and_are_other_rows() -> None:
    X, y, weight = rows_of(2, True)
    for given in (None, weight):
        store = ArrayRows(X, y, given)
        rows = pickle.loads(pickle.dumps(WithheldRows(store, HashedShare(0.3, 1))))
        held = HashedShare(0.3, 1).withheld(0, N)
        seen = np.concatenate([rows.read(ref).sample_weight for ref in rows.refs(7)])
        np.testing.assert_array_equal(seen, np.where(held, 0.0, 1.0 if given is None else given))
        assert rows.identity != store.identity
        assert rows.identity != WithheldRows(store, HashedShare(0.3, 2)).identity
