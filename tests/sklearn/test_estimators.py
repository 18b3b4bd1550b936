"""The four estimators on arrays of every kind: attributes, parameters, refusals, and what they leave behind."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

import sklearn.svm
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from bigsvm.errors import PlanRefused
from bigsvm.sklearn import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM, search
from bigsvm.sklearn.classes import coded
from tests.products import each_of

ALL = [LinearSVC(), LinearSVR(), SVC(), SVR(), SVC(kernel="linear"), SVR(kernel="linear")]
CLASSIFIERS = [LinearSVC(), SVC(), SVC(kernel="linear")]


def rows(n: int = 90, d: int = 6, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sparse-ish noisy rows and their classes, 0, 1, ...; a third of the entries is 0."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * (random.random((n, d)) > 1 / 3)
    return X, np.argmax(X[:, :n_classes] + 0.5 * random.standard_normal((n, n_classes)), axis=1)


def fitted(estimator: Any, *arrays: Any, **options: Any) -> Any:
    return clone(estimator).fit(*arrays, **options)


def scores(estimator: Any, X: Any) -> np.ndarray:
    return getattr(estimator, "decision_function", estimator.predict)(X)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_parameters_and_defaults_are_scikit_learns(estimator: Any) -> None:
    theirs = getattr(sklearn.svm, type(estimator).__name__)().get_params()
    ours = type(estimator)().get_params()
    assert set(theirs) <= set(ours)
    different = {name for name in theirs if theirs[name] != ours[name]}
    assert different <= {"probability"}  # 'deprecated' there
    assert set(ours) - set(theirs) <= {"memory", "threads", "solver", "warm_start"}


@pytest.mark.parametrize(
    "estimator", [LinearSVC(), LinearSVR(), SVC(), SVR(), NuSVC(), NuSVR(), OneClassSVM()], ids=str
)
def test_docstrings_tell_of_each_parameter_and_its_default(estimator: Any) -> None:
    text = inspect.getdoc(type(estimator)) or ""
    section = text[text.index("Parameters\n") : text.index("Attributes\n")]
    told = dict(re.findall(r"^(\w+) : .*, default=(.*)$", section, re.MULTILINE))
    assert {name: ast.literal_eval(value) for name, value in told.items()} == type(estimator)().get_params()


@pytest.mark.parametrize("estimator", ALL, ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_attributes_are_scikit_learns(estimator: Any, n_classes: int) -> None:
    X, y = rows(n_classes=n_classes)
    ours = fitted(estimator, X, y)
    parameters = {name: value for name, value in ours.get_params().items() if name in ("kernel",)}
    theirs = getattr(sklearn.svm, type(estimator).__name__)(**parameters).set_params(tol=1e-6)
    if isinstance(ours, LinearSVC | LinearSVR):  # of two orders in a hundred the last needs more than its 1,000 passes
        theirs.set_params(max_iter=10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(X, y)
    ours = clone(ours).set_params(tol=1e-6, max_iter=10**6).fit(X, y)
    for name in ("coef_", "intercept_", "dual_coef_", "support_", "support_vectors_", "n_support_", "classes_"):
        if hasattr(theirs, name):
            want, got = getattr(theirs, name), getattr(ours, name)
            assert np.shape(got) == np.shape(want), name
            np.testing.assert_allclose(got, want, atol=2e-3, err_msg=name)
    assert type(ours.n_iter_) is type(theirs.n_iter_)
    assert np.shape(ours.n_iter_) == np.shape(theirs.n_iter_)
    assert ours.n_features_in_ == theirs.n_features_in_
    assert not hasattr(ours, "coef_") or hasattr(theirs, "coef_")
    np.testing.assert_allclose(scores(ours, X), scores(theirs, X), atol=2e-3)
    if hasattr(ours, "classes_"):
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-3)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_what_is_proved_is_told(estimator: Any) -> None:
    X, y = rows()
    found = fitted(estimator, X, y)
    assert found.certificate_.kind == "proved"
    assert found.certificate_.n_rows == len(X)
    assert 0 <= found.relative_gap_ == found.certificate_.relative_gap <= found.tol / 100
    assert found.passes_ >= 1


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_decision_function_shape_and_ties(shape: str) -> None:
    X, y = rows(n_classes=4, n=80)
    ours = SVC(decision_function_shape=shape, tol=1e-7).fit(X, y)
    theirs = sklearn.svm.SVC(decision_function_shape=shape, tol=1e-7).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    if shape == "ovr":
        ours.set_params(break_ties=True)
        np.testing.assert_array_equal(ours.predict(X), np.argmax(ours.decision_function(X), axis=1))


def containers(X: np.ndarray) -> dict[str, Any]:
    """X in the ways that people have it, all of the same values."""
    wide = scipy.sparse.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    backwards = scipy.sparse.csr_matrix(X)
    for start, stop in zip(backwards.indptr[:-1], backwards.indptr[1:], strict=True):
        backwards.indices[start:stop] = backwards.indices[start:stop][::-1]
        backwards.data[start:stop] = backwards.data[start:stop][::-1]
    backwards.has_sorted_indices = False
    twice = scipy.sparse.coo_matrix(X)
    twice = scipy.sparse.coo_matrix(
        (np.repeat(twice.data / 2, 2), (np.repeat(twice.row, 2), np.repeat(twice.col, 2))), X.shape
    )
    return {
        "fortran": np.asfortranarray(X),
        "list": X.tolist(),
        "csr_matrix": scipy.sparse.csr_matrix(X),
        "csr_array": scipy.sparse.csr_array(X),
        "csc_array": scipy.sparse.csc_array(X),
        "int64 indices": wide,
        "unsorted": backwards,
        "repeated": twice,
    }


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_rows_in_any_container(estimator: Any) -> None:
    X, y = rows()
    estimator = clone(estimator).set_params(tol=1e-7)
    want = scores(fitted(estimator, X, y), X)
    for name, given in containers(X).items():
        found = fitted(estimator, given, y)
        np.testing.assert_allclose(scores(found, given), want, atol=2e-5, err_msg=name)
        np.testing.assert_allclose(scores(found, X), want, atol=2e-5, err_msg=name)
        if isinstance(estimator, SVC | SVR):
            assert scipy.sparse.issparse(found.dual_coef_) == scipy.sparse.issparse(given)
            assert scipy.sparse.issparse(found.support_vectors_) == scipy.sparse.issparse(given)


@each_of(estimator=ALL, dtype=["float32", "int8", "bool", "int64"])
def test_narrow_types_are_trained_as_they_are(estimator: Any, dtype: str) -> None:
    X, y = rows()
    X = (10 * X).astype(dtype)
    estimator = clone(estimator).set_params(C=0.01, tol=1e-6)
    found, wide = fitted(estimator, X, y), fitted(estimator, X.astype(np.float64), y)
    np.testing.assert_allclose(scores(found, X), scores(wide, X), atol=2e-4)
    if isinstance(estimator, SVC | SVR):
        assert found.support_vectors_.dtype == (np.float32 if dtype == "float32" else np.float64)


def test_float32_and_bytes_are_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches bigsvm is the very array."""
    from bigsvm.sklearn.linear import linear_svc

    seen, former = list[Any](), linear_svc.open_store

    def spy(source: Any, **options: Any) -> Any:
        seen.append(source[0])
        return former(source, **options)

    monkeypatch.setattr(linear_svc, "open_store", spy)
    X, y = rows()
    for dtype in (np.float32, np.int8, np.uint8, np.bool_):
        given = np.abs(10 * X).astype(dtype)
        LinearSVC().fit(given, y)
        assert seen[-1].dtype == dtype
        assert np.shares_memory(seen[-1], given)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_a_read_only_map_is_read(estimator: Any, tmp_path: Path) -> None:
    X, y = rows()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(scores(fitted(estimator, mapped, y), mapped), scores(fitted(estimator, X, y), X))


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=str)
@pytest.mark.parametrize("names", [["b", "c", "a"], [2.5, -1.0, 7.0], [True, False], [10**17, 10**17 + 1, 3]], ids=str)
def test_labels_of_any_kind(estimator: Any, names: list[Any]) -> None:
    X, y = rows(n_classes=len(names))
    if any(isinstance(name, float) for name in names):
        names = [int(10 * name) for name in names]
    labels = np.array(names)[y]
    found = fitted(estimator, X, labels)
    np.testing.assert_array_equal(found.classes_, np.unique(labels))
    assert set(found.predict(X).tolist()) <= set(names)
    assert found.score(X, labels) > 0.6
    if isinstance(names[0], str):
        as_objects = fitted(estimator, X, labels.astype(object))
        np.testing.assert_array_equal(as_objects.predict(X), found.predict(X))


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weight", [{"few": 3.0, "some": 0.5}, "balanced"], ids=str)
def test_class_weights_are_scikit_learns(estimator: Any, n_classes: int, weight: Any) -> None:
    X, y = rows(n_classes=n_classes)
    labels = np.array(["few", "some", "many"])[y]
    ours = clone(estimator).set_params(class_weight=weight, tol=1e-7)
    theirs = getattr(sklearn.svm, type(estimator).__name__)(class_weight=weight, tol=1e-8)
    theirs.set_params(**{name: getattr(estimator, name) for name in ("kernel",) if hasattr(estimator, name)})
    rows_weight = np.random.default_rng(5).integers(0, 3, len(y))
    for weights in (None, rows_weight):
        ours.fit(X, labels, sample_weight=weights)
        theirs.fit(X, labels, sample_weight=weights)
        np.testing.assert_allclose(scores(ours, X), scores(theirs, X), atol=1e-4)
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    if isinstance(estimator, SVC):
        np.testing.assert_allclose(ours.class_weight_, theirs.class_weight_)
    assert len(ours.certificate_.primal) == len(ours.intercept_)
    assert ours.relative_gap_ <= 1e-9


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_rows_without_weight_take_no_part(estimator: Any) -> None:
    X, y = rows()
    weights = np.arange(len(y)) % 3.0
    estimator = clone(estimator).set_params(tol=1e-7, **({"gamma": 0.2} if hasattr(estimator, "gamma") else {}))
    found = fitted(estimator, X, y, sample_weight=np.where(weights == 0, -1.0, weights))
    kept = weights > 0
    np.testing.assert_allclose(
        scores(found, X), scores(fitted(estimator, X[kept], y[kept], sample_weight=weights[kept]), X), atol=2e-5
    )
    with pytest.raises(ValueError, match="zero or negative weights"):
        fitted(estimator, X, y, sample_weight=np.zeros(len(y)))


@pytest.mark.parametrize("estimator", [LinearSVC(), LinearSVR()], ids=str)
def test_intercepts(estimator: Any) -> None:
    X, y = rows(n_classes=2)
    X = X + 1.0
    for options in ({"fit_intercept": False}, {"intercept_scaling": 10.0}, {"intercept_scaling": 0.1}):
        ours = clone(estimator).set_params(tol=1e-7, max_iter=10**6, **options).fit(X, y)
        theirs = getattr(sklearn.svm, type(estimator).__name__)(tol=1e-9, max_iter=10**6, **options).fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "names"),
    [
        (LinearSVC(penalty="l1", dual=False), "l1.*out of scope"),
        (LinearSVC(loss="hinge", dual=False), "Unsupported set of arguments"),
        (LinearSVC(intercept_scaling=0), "intercept_scaling"),
        (LinearSVC(solver="fastest"), "fastest"),
        (LinearSVC(solver="hyperpass"), "squared_hinge"),
        (SVC(probability=True), "CalibratedClassifierCV"),
        (SVC(C=np.inf), "'C'"),
        (SVR(kernel="cosine"), "kernel"),
        (SVC(kernel="precomputed"), "square matrix"),
        (SVC(memory="plenty"), "plenty"),
        (SVC(class_weight={7: 2.0}), "not in class_weight"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(estimator: Any, names: str) -> None:
    X, y = rows()
    with pytest.raises(ValueError, match=names) as found:
        estimator.fit(X, y)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("make", [LinearSVC, SVC, NuSVC])
@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_weight_that_is_none_is_refused_by_its_label(make: Any, weight: float, place: int) -> None:
    X, y = rows()
    names = np.array(["cat", "cow", "dog"])
    with pytest.raises(ValueError, match=f"class weight of '{names[place]}' must be finite and not negative"):
        make(class_weight={"cow": 2.0, names[place]: weight}).fit(X, names[y])


@pytest.mark.parametrize("estimator", [*ALL, NuSVC(), NuSVR(), OneClassSVM()], ids=str)
def test_one_weight_for_all_rows_and_masks(estimator: Any) -> None:
    X, y = rows(n_classes=2)
    alone, all_rows = fitted(estimator, X, y, 2.0), fitted(estimator, X, y, np.full(len(y), 2.0))
    np.testing.assert_array_equal(scores(alone, X), scores(all_rows, X))
    whole = np.ma.masked_array(X, mask=np.zeros(X.shape, bool))
    np.testing.assert_array_equal(scores(fitted(estimator, whole, y), X), scores(fitted(estimator, X, y), X))
    whole[3, 1] = np.ma.masked
    for use in (lambda: fitted(estimator, whole, y), lambda: alone.predict(whole)):
        with pytest.raises(ValueError, match="row 3 is masked"):
            use()


TAKING = [(e, name) for e in [*ALL, NuSVC(), NuSVR(), OneClassSVM()] for name in ("fit", "partial_fit", "score")
          if hasattr(e, name)]  # fmt: skip


@pytest.mark.parametrize("argument", ["X", "y", "sample_weight"])
@pytest.mark.parametrize(("estimator", "method"), TAKING, ids=str)
def test_masked_values_are_refused_wherever_they_are_given(estimator: Any, method: str, argument: str) -> None:
    X, y = rows(n_classes=2)
    given: dict[str, Any] = {"X": X, "y": y, "sample_weight": np.ones(len(y))}
    more = {"classes": np.unique(y)} if method == "partial_fit" and is_classifier(estimator) else {}
    own = clone(estimator)
    if method == "score":
        own.fit(X, y)
    nothing_masked = {name: np.ma.masked_array(value) for name, value in given.items()}
    getattr(clone(own) if method != "score" else own, method)(**nothing_masked, **more)
    hidden = np.zeros(np.shape(given[argument]), bool)
    hidden[5] = True
    given[argument] = np.ma.masked_array(given[argument], mask=hidden)
    if argument == "y" and isinstance(estimator, OneClassSVM):  # whose y is ignored
        getattr(own, method)(**given, **more)
        return
    with pytest.raises(ValueError, match=f"{argument}: row 5 is masked"):
        getattr(own, method)(**given, **more)


@pytest.mark.parametrize("estimator", [LinearSVC(), SVR(), OneClassSVM()], ids=str)
def test_a_masked_weight_and_an_argument_that_is_not_there(estimator: Any) -> None:
    X, y = rows(n_classes=2)
    with pytest.raises(ValueError, match="sample_weight: row 0 is masked"):
        clone(estimator).fit(X, y, sample_weight=np.ma.masked)
    with pytest.raises(TypeError, match=r"fit\(\) got an unexpected keyword argument 'weights'"):
        clone(estimator).fit(X, y, weights=None)


@pytest.mark.parametrize("argument", ["X", "y", "sample_weight", "groups", "cv"])
def test_a_search_refuses_masked_values(argument: str) -> None:
    X, y = rows(n_classes=2)
    given: dict[str, Any] = {"X": X, "y": y, "sample_weight": np.ones(len(y))}
    if argument in ("groups", "cv"):
        given[argument] = np.arange(len(y)) % 3
    hidden = np.zeros(np.shape(given[argument]), bool)
    hidden[5] = True
    given[argument] = np.ma.masked_array(given[argument], mask=hidden)
    with pytest.raises(ValueError, match=f"{argument}: row 5 is masked"):
        search(LinearSVC(), **given, Cs=[0.1, 1.0])


FORMS: dict[str, Any] = {
    "array": np.asarray,
    "list": lambda X: X.tolist(),
    "CSR": scipy.sparse.csr_array,
    "CSC": scipy.sparse.csc_matrix,
    "LIL": scipy.sparse.lil_matrix,
    "frame": lambda X: pd.DataFrame(X, columns=list("abc")),
    "nullable": lambda X: pd.DataFrame(X).astype("Int64" if X.dtype.kind == "i" else "UInt64"),
    "mixed": lambda X: pd.DataFrame(X, columns=list("abc")).assign(d=0.5),
}


@each_of(estimator=[LinearSVC, LinearSVR, SVC, SVR, NuSVC, NuSVR, OneClassSVM], form=FORMS, dtype=["int64", "uint64"])
def test_whole_numbers_that_float64_rounds_are_refused_as_in_files(estimator: Any, form: str, dtype: str) -> None:
    X, y = np.random.default_rng(0).integers(1, 9, (30, 3)).astype(dtype), np.arange(30) % 2
    made, what = FORMS[form], r"row 7 holds 9007199254740993, beyond 2\^53, where float64 rounds"
    fitted = estimator().set_params(tol=0.1).fit(made(X), y)
    X[7, 1], X[8, 1] = 2**53, 2**53 - 1
    fitted.predict(made(X))
    X[7, 1] += 1
    with pytest.raises(ValueError, match=what):
        fitted.predict(made(X))
    with pytest.raises(ValueError, match=what):
        estimator().fit(made(X), y)


@pytest.mark.parametrize("estimator", [LinearSVR, SVR, NuSVR])
def test_targets_that_float64_rounds_are_refused_as_in_files(estimator: Any) -> None:
    X, y = np.random.default_rng(0).random((30, 3)), np.arange(30)
    estimator().fit(X, y)
    y[7] = 2**53 + 1
    with pytest.raises(ValueError, match=r"target 9007199254740993 of row 7 is beyond 2\^53"):
        estimator().fit(X, y)


def test_one_class_and_one_weighted_class_are_refused() -> None:
    X, y = rows(n_classes=2)
    for estimator in (LinearSVC(), SVC()):
        with pytest.raises(ValueError, match="one class"):
            estimator.fit(X, np.full(len(y), "a"))
        with pytest.raises(ValueError, match="same class"):
            estimator.fit(X, y, sample_weight=(y == 1) * 1.0)
        with pytest.raises(NotFittedError):
            clone(estimator).predict(X)


def test_a_memory_that_cannot_do_is_refused_with_one_that_can() -> None:
    X, y = rows(n=1000, d=60)
    with pytest.raises(PlanRefused) as refused:
        LinearSVC(memory=1 << 20).fit(X, y)
    assert refused.value.min_memory_bytes is not None
    found = LinearSVC(memory=refused.value.min_memory_bytes).fit(X, y)
    np.testing.assert_allclose(found.coef_, LinearSVC().fit(X, y).coef_, atol=1e-3)


@pytest.mark.parametrize("estimator", [LinearSVC(loss="hinge", max_iter=1), LinearSVR(max_iter=1)], ids=str)
def test_a_fit_that_is_cut_short_warns_with_its_gap(estimator: Any) -> None:
    X, y = rows(n=300)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1.*relative duality gap is") as seen:
        estimator.fit(X, y)
    assert estimator.relative_gap_ > estimator.tol / 100
    assert f"{estimator.relative_gap_:.2g}" in str(seen[0].message)
    assert seen[0].filename == __file__


def test_steps_of_svc_are_bounded() -> None:
    X, y = rows(n=1500, n_classes=2)
    with pytest.warns(ConvergenceWarning, match=r"terminated early \(max_iter=10\).*relative duality gap"):
        found = SVC(max_iter=10, C=1000.0, gamma=1.0).fit(X, y)
    assert found.fit_status_ == 1
    assert SVC().fit(X, y).fit_status_ == 0


def test_a_fitted_kernel_stays_what_it_was() -> None:
    X, y = rows()
    for kernel in ("rbf", "linear"):
        found = SVC(kernel=kernel).fit(X, y)
        want = found.decision_function(X)
        found.set_params(kernel="poly", degree=2, coef0=1.0, gamma=3.0)
        np.testing.assert_array_equal(found.decision_function(X), want)


def test_a_kernel_without_proof_says_so() -> None:
    X, y = rows(n_classes=2)
    found = SVC(kernel="sigmoid", gamma=1.0, coef0=-1.0).fit(X, y)
    assert found.certificate_.kind == "none"
    theirs = sklearn.svm.SVC(kernel="rbf").fit(X, y)
    precomputed = SVC(kernel="precomputed").fit(np.exp(-((X[:, None] - X) ** 2).sum(axis=2) * theirs._gamma), y)
    assert precomputed.certificate_.kind == "proved"


def test_a_function_as_a_kernel() -> None:
    X, y = rows()

    def product(A: Any, B: Any) -> Any:
        return A @ B.T

    found, plain = SVC(kernel=product, tol=1e-7).fit(X, y), SVC(kernel="linear", tol=1e-7).fit(X, y)
    np.testing.assert_allclose(found.decision_function(X[:7]), plain.decision_function(X[:7]), atol=1e-4)
    sparse = scipy.sparse.csr_matrix(X)
    np.testing.assert_allclose(
        SVC(kernel=product, tol=1e-7).fit(sparse, y).decision_function(sparse), found.decision_function(X), atol=1e-4
    )
    with pytest.raises(ValueError, match="values for"):
        SVC(kernel=lambda A, B: A).fit(X, y)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_pickles_are_arrays_and_small(estimator: Any) -> None:
    X, y = rows(n=60, d=1000, n_classes=2)
    sparse = scipy.sparse.csr_array(X * (np.random.default_rng(1).random(X.shape) > 0.9))
    found = fitted(estimator, sparse, y)
    saved = pickle.dumps(found)
    assert len(saved) < 100_000
    np.testing.assert_array_equal(scores(pickle.loads(saved), sparse), scores(found, sparse))


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_nothing_is_printed_and_nothing_left(
    estimator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("BIGSVM_SCRATCH", str(scratch))
    X, y = rows()
    found = fitted(estimator, X, y)
    found.predict(X)
    found.score(X, y)
    assert capfd.readouterr() == ("", "")
    assert list(here.iterdir()) == []
    assert not scratch.exists() or list(scratch.iterdir()) == []


def test_verbose_tells_of_certificates_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    X, y = rows()
    LinearSVC(verbose=1).fit(X, y)
    out, err = capfd.readouterr()
    assert out == ""
    assert "relative gap" in err


def test_sparsify_and_weights_of_ones_own() -> None:
    X, y = rows()
    found = LinearSVC().fit(X, y)
    want = found.decision_function(X)
    found.sparsify()
    np.testing.assert_array_equal(found.decision_function(X), want)
    found.densify()
    found.coef_ = 2 * found.coef_
    found.intercept_ = 2 * found.intercept_
    np.testing.assert_allclose(found.decision_function(X), 2 * want)


def test_random_states() -> None:
    X, y = rows()
    first, again = LinearSVC().fit(X, y), LinearSVC().fit(X, y)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    for state in (7, np.random.RandomState(7)):
        np.testing.assert_allclose(LinearSVC(random_state=state).fit(X, y).coef_, first.coef_, atol=1e-3)


def test_labels_of_many_narrow_rows_take_few_bytes() -> None:
    """9.0 M x 5 of float32 has 20 bytes a row; inverses of np.unique and copies in int64 took 50 more."""
    n = 1_000_000
    y = np.random.default_rng(0).integers(3, 6, n).astype(np.int8)
    tracemalloc.start()
    try:
        classes, codes = coded(y)
        ((rows, _),) = LinearSVC()._of_arrays(np.zeros((n, 1), np.float32), codes, None, classes)
        assert rows.fingerprint
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert classes.tolist() == [3, 4, 5]
    np.testing.assert_array_equal(classes[codes], y)
    assert peak < 20 * n


@pytest.mark.parametrize("ours", [SVC, NuSVC, SVR, NuSVR, OneClassSVM])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "callable"])
def test_the_shape_of_what_was_fitted_is_scikit_learns(ours: Any, kernel: str) -> None:
    X = np.random.default_rng(0).normal(size=(29, 3)) + 3.0
    given = {"kernel": (lambda a, b: a @ b.T) if kernel == "callable" else kernel}
    name = ours.__name__
    y = () if name == "OneClassSVM" else (X[:, 0] ** 2 if name.endswith("SVR") else X[:, 0] > 3,)
    fitted, theirs = (kind(**given).fit(X, *y) for kind in (ours, getattr(sklearn.svm, name)))
    assert fitted.shape_fit_ == theirs.shape_fit_ == (29, 3)
    assert fitted.predict(X).shape == theirs.predict(X).shape
