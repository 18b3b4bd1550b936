"""Rows that come later: `partial_fit` and `warm_start` end at the optimum of all rows, sooner."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

from sklearn.base import clone

from bigsvm.sklearn import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM

CLASSES = ["a", "b", "c", "d"]


def rows(n: int = 330, d: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, y of three classes, the third only among the last rows, weights)."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n, d)).astype(np.float32)
    y = np.array(CLASSES[:3])[np.argmax(X[:, :3] + 0.5 * random.standard_normal((n, 3)), axis=1)]
    order = np.argsort(y == "c", kind="stable")
    return X[order], y[order], random.random(n) + 0.1


def same_optimum(ours: Any, fresh: Any) -> None:
    assert ours.certificate_.kind == fresh.certificate_.kind == "proved"
    worse = max(ours.relative_gap_, fresh.relative_gap_)
    np.testing.assert_allclose(ours.certificate_.primal, fresh.certificate_.primal, rtol=2 * worse)


def test_a_tenth_more_rows_that_stream_take_half_the_passes() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((44_000, 40)).astype(np.float32)
    y = np.where(X @ random.standard_normal(40) / 6 + 0.5 * random.standard_normal(len(X)) > 0, 1, -1)
    fresh = LinearSVC(loss="hinge", solver="dcd", memory="10MiB", tol=0.1).fit(X, y)
    ours = clone(fresh).partial_fit(X[:40_000], y[:40_000], classes=[-1, 1]).partial_fit(X[40_000:], y[40_000:])
    assert fresh.passes_ > 1.5  # they do stream
    assert ours.passes_ <= 0.5 * fresh.passes_
    same_optimum(ours, fresh)


@pytest.mark.parametrize(
    ("kind", "solver", "class_weight"),
    [(np.asarray, "dcd", None), (np.asarray, "dcd", "balanced"), (scipy.sparse.csr_array, "auto", None)],
    ids=["dense", "weighted classes", "sparse"],
)
def test_pieces_give_what_all_rows_give(kind: Any, solver: str, class_weight: Any) -> None:
    X, y, weights = rows()
    X = X.astype(np.float64) if solver == "auto" else X
    ours = LinearSVC(solver=solver, tol=1e-2, class_weight=class_weight)
    known = np.searchsorted(y == "c", True)  # no row of the third class yet
    ours.partial_fit(kind(X[:known]), y[:known], classes=CLASSES, sample_weight=weights[:known])
    assert ours.classes_.tolist() == ["a", "b"]
    ours = pickle.loads(pickle.dumps(ours))
    for part in (slice(known, 310), slice(310, None)):
        ours.partial_fit(kind(X[part]), y[part], sample_weight=weights[part])
    fresh = clone(ours).fit(kind(X), y, sample_weight=weights)
    same_optimum(ours, fresh)
    assert ours.classes_.tolist() == fresh.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(ours.coef_, fresh.coef_, atol=1e-2)
    assert not hasattr(fresh, "_seen")
    assert len(pickle.dumps(fresh)) < 5_000 < len(pickle.dumps(ours))


def test_regression_in_pieces_of_a_buffer_that_is_filled_anew() -> None:
    X, _, weights = rows()
    y = X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 1.0
    ours, buffer = LinearSVR(solver="dcd", tol=1e-2), np.empty((110, X.shape[1]), np.float32)
    for number, part in enumerate((slice(0, 110), slice(110, 220), slice(220, 330))):
        buffer[:] = X[part]
        ours.partial_fit(buffer, y[part], sample_weight=weights[part] if number else None)
    weights[:110] = 1.0
    same_optimum(ours, clone(ours).fit(X, y, sample_weight=weights))
    assert ours.coef_.shape == (8,)


def test_a_second_fit_starts_where_the_first_ended() -> None:
    X, y, _ = rows()
    warm = LinearSVC(loss="hinge", solver="dcd", tol=0.1, warm_start=True).fit(X[:300], y[:300])
    fresh = clone(warm).fit(X, y)
    again = pickle.loads(pickle.dumps(warm)).fit(X[:300], y[:300])
    assert again.n_iter_ < warm.n_iter_
    assert warm.fit(X, y).n_iter_ <= fresh.n_iter_
    same_optimum(warm, fresh)
    # Rows that are others: duals belong to rows, so it is a fit from 0.
    other = fresh.fit(X[::-1], y[::-1])
    np.testing.assert_array_equal(other.coef_, clone(other).fit(X[::-1], y[::-1]).coef_)
    # And with fewer classes, or features.
    assert warm.fit(X[:300], np.where(y[:300] == "a", "a", "b")).coef_.shape == (1, 8)
    assert warm.fit(X[:, :5], y).coef_.shape == (3, 5)


def test_what_cannot_be_added_is_refused_and_changes_nothing() -> None:
    X, y, _ = rows(90)
    new = LinearSVC(solver="dcd", tol=1e-2)
    ours = clone(new).partial_fit(X, y, classes=CLASSES)
    cases = [
        (new, (X, y), {}, "classes must be passed on the first call"),
        (new, (X, y), {"classes": ["a", "b"]}, "y has the class 'c', which is not among the `classes`"),
        (new, (X[:1], y[:1]), {"classes": CLASSES}, "rows of at least 2 classes in its first call"),
        (new, ("rows.zarr", y), {}, "partial_fit takes arrays"),
        (ours, (X, y), {"classes": ["a", "b", "c"]}, "is not the same as on last call"),
        (ours, (X, np.arange(90) % 3), {}, "Mix of label input types"),
        (ours, (X[:, :3], y), {}, "X has 3 features, but LinearSVC is expecting 8"),
        (ours, (scipy.sparse.csr_array(X), y), {}, "given sparse rows, and those before are dense"),
        (ours, (X, np.where(y == "a", "z", y)), {}, "y has the class 'z'"),
    ]
    before = pickle.dumps(ours)
    for estimator, arrays, options, said in cases:
        with pytest.raises(ValueError, match=said) as caught:
            clone(estimator).partial_fit(*arrays, **options) if estimator is new else estimator.partial_fit(
                *arrays, **options
            )
        assert "\n" not in str(caught.value)
    assert pickle.dumps(ours) == before


def test_after_fit_it_begins_anew_and_says_so() -> None:
    X, y, _ = rows()
    ours = LinearSVC(solver="dcd", tol=1e-2).fit(X, y)
    with pytest.warns(UserWarning, match="partial_fit after fit begins anew with these rows alone"):
        ours.partial_fit(X[:300], y[:300])
    same_optimum(ours.partial_fit(X[300:], y[300:]), clone(ours).fit(X, y))


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])
def test_kernels_take_pieces_and_a_second_fit_starts_where_the_first_ended(kind: Any) -> None:
    X, y, weights = rows(200)
    X = X.astype(np.float64)
    known = np.searchsorted(y == "c", True)
    ours = SVC(gamma=0.1, tol=1e-3, class_weight="balanced")
    ours.partial_fit(kind(X[:known]), y[:known], classes=CLASSES, sample_weight=weights[:known])
    assert ours.classes_.tolist() == ["a", "b"]
    ours = pickle.loads(pickle.dumps(ours)).partial_fit(kind(X[known:]), y[known:], sample_weight=weights[known:])
    fresh = clone(ours).fit(kind(X), y, sample_weight=weights)
    same_optimum(ours, fresh)
    assert ours.support_vectors_.shape[0] == len(ours.support_)
    np.testing.assert_allclose(ours.decision_function(X[:9]), fresh.decision_function(X[:9]), atol=1e-3)
    warm = SVC(gamma=0.1, tol=1e-3, warm_start=True).fit(kind(X), y)
    first = warm.n_iter_[0]
    assert pickle.loads(pickle.dumps(warm)).fit(kind(X), y).n_iter_[0] < first


def test_targets_with_a_kernel_in_pieces() -> None:
    X, _, _ = rows(200)
    X = X.astype(np.float64)
    y = X[:, 0] * X[:, 1]
    ours = SVR(gamma=0.1, tol=1e-3).partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    same_optimum(ours, clone(ours).fit(X, y))


def test_kernels_that_cannot_go_on_say_so_or_have_no_such_method() -> None:
    X, y, _ = rows(60)
    with pytest.raises(ValueError, match="does not support precomputed and callable kernels"):
        SVC(kernel="precomputed").partial_fit(X @ X.T, y, classes=CLASSES)
    with pytest.raises(ValueError, match="classes must be passed"):
        SVC().partial_fit(X, y)
    for estimator in (NuSVC(), NuSVR(), OneClassSVM()):
        assert not hasattr(estimator, "partial_fit")
        assert "warm_start" not in estimator.get_params()
        with pytest.raises(TypeError, match=f"{type(estimator).__name__} has no warm_start: nu fixes the sum"):
            type(estimator)(warm_start=True)
        with pytest.raises(TypeError, match="has no warm_start"):
            estimator.set_params(warm_start=True)
        assert estimator.set_params(nu=0.25).nu == 0.25
    fitted = SVC(gamma=0.1, tol=1e-3).fit(X.astype(np.float64), y)
    with pytest.warns(UserWarning, match="partial_fit after fit begins anew"):
        fitted.partial_fit(X.astype(np.float64), y)


def test_one_loss_of_all_classes_in_pieces() -> None:
    X, y, weights = rows()
    X = X.astype(np.float64)
    ours = LinearSVC(multi_class="crammer_singer", C=0.1, tol=1e-2)
    ours.partial_fit(X[:300], y[:300], classes=CLASSES, sample_weight=weights[:300])
    ours.partial_fit(X[300:], y[300:], sample_weight=weights[300:])
    same_optimum(ours, clone(ours).fit(X, y, sample_weight=weights))
