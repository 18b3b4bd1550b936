"""Rows that `partial_fit` has seen, and what each further call may add to them."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from bigsvm.sklearn.rows import is_source


class Seen(NamedTuple):
    """Rows of all calls so far, in their order.

    X : dense, or SciPy CSR;  y : codes of classes, or targets, (n_samples,);  weights : float64, or None for ones
    """

    X: Any
    y: np.ndarray
    weights: np.ndarray | None


def seen_by(estimator: Any, X: Any) -> Seen | None:
    """What `partial_fit` has seen; None before its first call, and after `fit`, of which it warns: that keeps no rows.

    Raises ValueError where X is a store.
    """
    if is_source(X):
        raise ValueError(
            "partial_fit takes arrays: bigsvm.ingest(new, STORE, append=True) adds rows to a store, and fit(STORE) "
            "with warm_start=True goes on from the last fit"
        )
    seen: Seen | None = getattr(estimator, "_seen", None)
    if seen is None and hasattr(estimator, "certificate_"):
        warnings.warn(
            "partial_fit after fit begins anew with these rows alone, since fit keeps none: give all pieces to "
            "partial_fit, or all rows to fit with warm_start=True",
            UserWarning,
            stacklevel=5,
        )
    return seen


def appended(seen: Seen | None, X: Any, y: np.ndarray, weights: np.ndarray | None) -> Seen:
    """Rows behind those seen; copies, since a caller may fill the same array anew.

    Raises ValueError for sparse rows behind dense ones, or the reverse.
    """
    if seen is None:
        return Seen(X.copy(), np.array(y), None if weights is None else weights.copy())
    sparse = scipy.sparse.issparse(X)
    if sparse != scipy.sparse.issparse(seen.X):
        said = ("sparse", "dense") if sparse else ("dense", "sparse")
        raise ValueError("partial_fit was given {} rows, and those before are {}: convert them".format(*said))
    both = None
    if weights is not None or seen.weights is not None:
        both = np.concatenate([_or_ones(seen.weights, len(seen.y)), _or_ones(weights, len(y))])
    X = scipy.sparse.vstack([seen.X, X], format="csr") if sparse else np.concatenate([seen.X, X])
    return Seen(X, np.concatenate([seen.y, y]), both)


def several_classes(seen: Seen, declared: np.ndarray) -> np.ndarray:
    """Codes of the classes that came so far, int64, ascending.  Raises ValueError where there is one only."""
    present = np.unique(seen.y)
    if len(present) < 2:
        raise ValueError(
            f"partial_fit needs rows of at least 2 classes in its first call, and all are of class "
            f"{declared[present].tolist()[0]!r}"
        )
    return present


def _or_ones(weights: np.ndarray | None, n: int) -> np.ndarray:
    return np.ones(n) if weights is None else weights


def declared_classes(estimator: Any, classes: Any) -> np.ndarray:
    """All labels that may come, ascending: those of the first call, or of a `fit` before it.

    Raises ValueError as scikit-learn does.
    """
    declared: np.ndarray | None = getattr(estimator, "_declared", None)
    if classes is None:
        declared = getattr(estimator, "classes_", None) if declared is None else declared
        if declared is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return declared
    given = unique_labels(classes)
    if declared is not None and not np.array_equal(given, declared):
        raise ValueError(
            f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {declared.tolist()}"
        )
    return given


def declared_codes(y: Any, declared: np.ndarray) -> np.ndarray:
    """The code of each label among the declared classes, int64.  Raises ValueError naming one that is not."""
    check_classification_targets(y)
    new = np.setdiff1d(unique_labels(declared, y), declared)
    if len(new):
        raise ValueError(
            f"y has the class {new.tolist()[0]!r}, which is not among the `classes` of the first call to partial_fit: "
            f"{declared.tolist()}"
        )
    return np.searchsorted(declared, y).astype(np.int64)
