"""The estimators among what scikit-learn's users put around them, and on stores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigsvm
from bigsvm.sklearn import SVC, SVR, LinearSVC, LinearSVR, search
from tests.sklearn.estimators import ALL, rows, scores

Stores = Callable[[Any], tuple[str, Any, np.ndarray]]
"""From an estimator to (a store, its rows, its labels)."""
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)


def iris() -> tuple[np.ndarray, np.ndarray]:
    return load_iris(return_X_y=True)


@pytest.mark.parametrize("estimator", [LinearSVC(), SVC()], ids=str)
def test_an_indicator_matrix_is_refused_as_by_scikit_learn_and_the_remedy_is_named(estimator: Any) -> None:
    X, y = iris()
    with pytest.raises(ValueError, match=r"y should be a 1d array.*bigsvm.fit\(X, Y\)"):
        estimator.fit(X, np.eye(3, dtype=int)[y])


def test_one_model_for_each_label_by_scikit_learn() -> None:
    X, y = iris()
    Y = np.column_stack([y == 0, y != 2]).astype(int)
    found = OneVsRestClassifier(LinearSVC()).fit(X, Y)
    assert found.multilabel_
    alone = LinearSVC().fit(X, Y[:, 1])
    np.testing.assert_array_equal(found.predict(X)[:, 1], alone.predict(X))


@pytest.mark.parametrize(("estimator", "values"), [(LinearSVC(), [0.1, 1.0]), (SVC(), [0.5, 2.0])], ids=str)
def test_grids_over_pipelines_and_folds(estimator: Any, values: list[float]) -> None:
    X, y = iris()
    pipeline = make_pipeline(StandardScaler(), estimator)
    name = type(estimator).__name__.lower()
    grid = GridSearchCV(pipeline, {f"{name}__C": values}, cv=FOLDS).fit(X, y)
    assert grid.best_score_ > 0.9
    assert grid.best_estimator_[-1].relative_gap_ <= estimator.tol / 100
    assert cross_val_score(clone(pipeline), X, y, cv=FOLDS).min() > 0.85
    assert cross_val_score(estimator, X, y, cv=FOLDS, scoring="accuracy").min() > 0.85


def test_joblib_processes() -> None:
    X, y = iris()
    apart = cross_val_score(LinearSVC(threads=1), X, y, cv=FOLDS, n_jobs=2)
    np.testing.assert_array_equal(apart, cross_val_score(LinearSVC(threads=1), X, y, cv=FOLDS))


@pytest.mark.parametrize("estimator", [LinearSVC(), SVC()], ids=str)
def test_probabilities_by_calibration(estimator: Any) -> None:
    X, y = iris()
    for ensemble in (True, False):
        found = CalibratedClassifierCV(estimator, cv=3, ensemble=ensemble).fit(X, y)
        np.testing.assert_allclose(found.predict_proba(X).sum(axis=1), 1.0)
        assert found.score(X, y) > 0.85


@pytest.mark.parametrize("estimator", [LinearSVC(), SVC(kernel="linear")], ids=str)
def test_one_against_the_rest_by_scikit_learn(estimator: Any) -> None:
    X, y = iris()
    found = OneVsRestClassifier(estimator).fit(X, y)
    assert len(found.estimators_) == 3
    if isinstance(estimator, LinearSVC):  # which does the same by itself
        alone = clone(estimator).fit(X, y)
        np.testing.assert_allclose(found.decision_function(X), alone.decision_function(X), atol=1e-3)


def test_sample_weights_are_routed() -> None:
    X, y = iris()
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        asked = LinearSVC().set_fit_request(sample_weight=True)
        routed = make_pipeline(scaler, asked).fit(X, y, sample_weight=weights)
        want = LinearSVC().fit(routed[0].transform(X), y, sample_weight=weights)
        np.testing.assert_array_equal(routed[-1].coef_, want.coef_)
        with pytest.raises(ValueError, match="sample_weight"):
            make_pipeline(scaler, LinearSVC()).fit(X, y, sample_weight=weights)


def test_frames_give_names_of_features() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = rows(d=4)
    frame = pandas.DataFrame(X, columns=list("abcd"))
    for estimator in ALL:
        found = clone(estimator).fit(frame, pandas.Series(y, index=frame.index[::-1]))
        assert found.feature_names_in_.tolist() == list("abcd")
        np.testing.assert_array_equal(scores(found, frame), scores(clone(estimator).fit(X, y), X))
        with pytest.raises(ValueError, match="feature names"):
            found.predict(frame[list("bacd")])


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    X, y = iris()
    frame = polars.DataFrame(X, schema=list("abcd"))
    found = LinearSVC().fit(frame, polars.Series(y))
    np.testing.assert_array_equal(found.coef_, LinearSVC().fit(X, y).coef_)
    assert found.score(frame, polars.Series(y)) > 0.9


def test_linear_fits_and_searches_leave_dask_arrays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = pytest.importorskip("dask.array")
    X, y = iris()
    weights, C = np.where(np.arange(len(y)) % 5, 1.0, -1.0), [0.1, 1.0]
    lazy, labels = array.from_array(X, chunks=(40, 4)), array.from_array(y.astype(float), chunks=40)
    plain = LinearSVC(threads=1).fit(X, y, weights)
    direct = search(LinearSVC(threads=1), X, y, Cs=C, cv=FOLDS)
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path))
    for module in ("linear.base", "linear.linear_svc", "search"):
        monkeypatch.setattr(sys.modules[f"bigsvm.sklearn.{module}"], "checked_X", None)
    found = LinearSVC(threads=1).fit(lazy, labels, weights)
    np.testing.assert_array_equal(found.coef_, plain.coef_)
    assert found.classes_.dtype == labels.dtype
    searched = search(LinearSVC(threads=1), lazy, y, Cs=C, cv=FOLDS)
    np.testing.assert_array_equal(searched.cv_results_["mean_test_score"], direct.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(searched.best_estimator_.coef_, direct.best_estimator_.coef_)
    with pytest.raises(ValueError, match="one class"):
        LinearSVC(threads=1).fit(lazy, np.zeros(len(y)))
    assert not [path for path in tmp_path.rglob("*") if "collection" in path.name]


def test_dask_arrays_are_taken_as_arrays_are() -> None:
    array = pytest.importorskip("dask.array")
    X, y = iris()
    lazy, labels = array.from_array(X, chunks=(40, 4)), array.from_array(y, chunks=40)
    for estimator in (LinearSVC(), SVC(), LinearSVR(loss="squared_epsilon_insensitive"), SVR()):
        found = clone(estimator).fit(lazy, labels)
        plain = clone(estimator).fit(X, y)
        np.testing.assert_array_equal(scores(found, lazy), scores(plain, X))
        assert found.score(lazy, labels) == plain.score(X, y)


def test_dask_frames_and_kernel_fits_leave_their_rows_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    X, y = iris()
    some = np.arange(len(y)) % 5 != 0
    plain_frame = pandas.DataFrame(X, columns=["a", "weight", "label", "d"])  # names that a table gives a meaning
    frame, labels = frames.from_pandas(plain_frame, npartitions=4), frames.from_pandas(pandas.Series(y), npartitions=4)
    weights = np.where(some, 1.0, -1.0)
    cases: list[tuple[Any, Any]] = [
        (LinearSVC(threads=1), weights), (LinearSVR(loss="squared_epsilon_insensitive", threads=1), None),
        (SVC(threads=1, class_weight="balanced"), weights), (SVC(kernel="linear", threads=1), None),
        (SVR(threads=1), weights),
    ]  # fmt: skip
    wanted = [clone(estimator).fit(plain_frame, y, given) for estimator, given in cases]
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path))
    asked = sys.modules["bigsvm.sklearn.rows"].checked_X
    for module in ("linear.base", "linear.linear_svc", "linear.linear_svr", "svm.base"):
        monkeypatch.setattr(sys.modules[f"bigsvm.sklearn.{module}"], "checked_X", None)
    found = [clone(estimator).fit(frame, labels, given) for estimator, given in cases]
    for module in ("linear.base", "linear.linear_svc", "linear.linear_svr", "svm.base"):
        monkeypatch.setattr(sys.modules[f"bigsvm.sklearn.{module}"], "checked_X", asked)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(scores(one, frame), scores(other, plain_frame), rtol=1e-9, atol=1e-9)
        assert one.feature_names_in_.tolist() == plain_frame.columns.tolist()
        assert one.score(frame, labels) == other.score(plain_frame, y)
        if hasattr(other, "support_"):
            np.testing.assert_array_equal(one.support_, other.support_)
            np.testing.assert_array_equal(one.support_vectors_, other.support_vectors_)
        if hasattr(other, "classes_"):
            np.testing.assert_array_equal(one.classes_, other.classes_)
    assert not [path for path in tmp_path.rglob("*") if "collection" in path.name]


def test_what_has_to_be_in_memory_is_refused_where_it_has_no_room() -> None:
    array, frames = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    wide = array.zeros((40_000, 500), chunks=(1000, 500))  # 160 MB, of which nothing is computed
    y = np.arange(40_000) % 3
    for call in (
        lambda: LinearSVC(memory="64MiB", class_weight={0: 2.0}).fit(wide, y),
        lambda: LinearSVC(memory="64MiB").partial_fit(wide, y, classes=[0, 1, 2]),
        lambda: SVC(memory="64MiB", kernel="precomputed").fit(wide, y),
    ):
        with pytest.raises(ValueError, match=r"153 MiB of rows.*exceed memory='64MiB'.*bigsvm\.ingest"):
            call()
    texts = frames.from_pandas(pandas.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), npartitions=1)
    for estimator in (LinearSVC(), SVC()):
        with pytest.raises(ValueError, match=r"column 'b' of type .* is not numeric"):
            estimator.fit(texts, [0, 1])


def test_dask_arrays_of_sparse_blocks() -> None:
    array = pytest.importorskip("dask.array")
    X, y = iris()
    lazy, labels = (
        array.from_array(X, chunks=(40, 4)).map_blocks(scipy.sparse.csr_matrix),
        array.from_array(y, chunks=40),
    )
    found, plain = LinearSVC().fit(lazy, labels), LinearSVC().fit(scipy.sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(found.coef_, plain.coef_)
    np.testing.assert_array_equal(found.predict(lazy), plain.predict(X))
    # A search of float32 rows is what another test compiles.
    narrow, given_at_once = lazy.astype(np.float32), scipy.sparse.csr_matrix(X.astype(np.float32))
    searched = [bigsvm.tune(*given, Cs=[0.1], folds=2, threads=1) for given in ((narrow, labels), ((narrow, labels),))]
    direct = bigsvm.tune(given_at_once, y, Cs=[0.1], folds=2, threads=1)
    assert [found.rows[0].scores for found in searched] == [direct.rows[0].scores] * 2


@pytest.fixture(params=["dense", "sparse"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Makes the store for an estimator."""

    def make(estimator: Any) -> tuple[str, Any, np.ndarray]:
        X, y = rows(n=200)
        given: Any = X if request.param == "dense" else scipy.sparse.csr_matrix(X)
        task = "classification" if hasattr(estimator, "class_weight") else "regression"
        path = tmp_path / f"{task}.zarr"
        if not path.exists():
            bigsvm.ingest((given, y), path, task=task)
        return str(path), given, y

    return make


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_a_store_is_an_array_on_disk(estimator: Any, stores: Stores) -> None:
    path, X, y = stores(estimator)
    estimator = clone(estimator).set_params(tol=1e-6, max_iter=10**6)
    found, plain = clone(estimator).fit(path), clone(estimator).fit(X, y)
    assert found.n_features_in_ == X.shape[1]
    np.testing.assert_allclose(scores(found, path), scores(plain, X), atol=2e-5)
    np.testing.assert_array_equal(scores(found, path), scores(found, X))
    np.testing.assert_array_equal(found.predict(Path(path)), found.predict(X))
    assert found.score(path) == pytest.approx(found.score(X, y), rel=1e-12)
    assert found.score(path, y) == found.score(X, y)
    for name in ("support_", "n_support_", "dual_coef_"):
        if hasattr(plain, name):
            ours, theirs = (getattr(one, name) for one in (found, plain))
            ours, theirs = (one.toarray() if scipy.sparse.issparse(one) else one for one in (ours, theirs))
            np.testing.assert_allclose(ours, theirs, atol=2e-3)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_rows_that_stream(estimator: Any, stores: Stores, streaming: None) -> None:
    path, X, y = stores(estimator)
    loose = clone(estimator).set_params(max_iter=10**6)
    found, plain = clone(loose).fit(path), clone(loose).fit(X, y)
    np.testing.assert_allclose(scores(found, path), scores(plain, X), atol=2e-2)
    assert found.passes_ > 1


def test_what_stands_beside_a_store_is_refused(stores: Stores) -> None:
    path, _, y = stores(LinearSVC())
    for estimator in ALL:
        with pytest.raises(ValueError, match="beside a store"):
            clone(estimator).fit(path, y)
        with pytest.raises(ValueError, match="beside a store"):
            clone(estimator).fit(path, sample_weight=np.ones(len(y)))
    with pytest.raises(ValueError, match="only in the model of its own class"):
        LinearSVC(class_weight="balanced").fit(path)
    with pytest.raises(ValueError, match="beside a store"):
        LinearSVC().fit(path).score(path, sample_weight=np.ones(len(y)))
    with pytest.raises(bigsvm.BigSVMError, match="no such store"):
        LinearSVC().fit(path + "x")


def test_an_open_store_names_its_labels_and_weights(tmp_path: Path) -> None:
    X, y = rows(n_classes=2)
    weights = 1.0 + np.arange(len(y)) % 3
    bigsvm.ingest((X, np.array(["no", "yes"])[y]), tmp_path / "rows.zarr", sample_weight=weights)
    rows_of = bigsvm.open_store(tmp_path / "rows.zarr")
    found = LinearSVC(class_weight={"yes": 2.0}).fit(rows_of)
    want = LinearSVC(class_weight={"yes": 2.0}).fit(X, np.array(["no", "yes"])[y], sample_weight=weights)
    np.testing.assert_allclose(found.coef_, want.coef_, atol=1e-6)
    assert found.classes_.tolist() == ["no", "yes"]
    labels = np.array(["no", "yes"])[y]
    assert found.score(rows_of) == pytest.approx(found.score(X, labels, sample_weight=weights))


def test_a_model_of_arrays_scores_a_store(tmp_path: Path) -> None:
    X, y = rows(n_classes=3)
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    for estimator in (LinearSVC(), SVC(), LogisticRegression()):
        found = clone(estimator).fit(X, y.astype(float))
        if not isinstance(found, LogisticRegression):
            assert found.score(tmp_path / "rows.zarr") == found.score(X, y)


def test_gamma_scale_of_blocks_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from bigsvm.run.fit import gamma as module

    X, y = rows(n=500)
    monkeypatch.setattr(module, "MIB", 1000)
    for given in (X + 100.0, scipy.sparse.csr_array(X)):
        dense = given.toarray() if scipy.sparse.issparse(given) else given
        found = module.scale_gamma(bigsvm.open_store((given, y)))
        assert found == pytest.approx(1.0 / (X.shape[1] * dense.var()), rel=1e-12)
    assert module.scale_gamma(bigsvm.open_store((np.ones((5, 2)), [0, 1, 0, 1, 0]))) == 1.0
