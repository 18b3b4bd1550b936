"""`search`: a grid search over C for a linear estimator, with all models trained on the same passes over the rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bigsvm.config import JOINT_RULE
from bigsvm.run.tune.search import tune
from bigsvm.sklearn.classes import by_label
from bigsvm.sklearn.collections import is_large, on_disk, take_names
from bigsvm.sklearn.estimator import UNCONVERGED, errors_of_scikit_learn, relative_gap_for, seed_of
from bigsvm.sklearn.linear import LinearSVC, LinearSVR
from bigsvm.sklearn.rows import SMALL, alone, checked_X, is_source, open_source, refuse_hidden, row_weights


class Search:
    """The result of `search`.

    cv_results_ : as that of GridSearchCV, for one metric; also `relative_gap`, the largest of a candidate's models
    best_index_, best_score_, best_params_ : the candidate with the best mean score;  n_splits_ : number of folds
    best_estimator_ : fitted on all rows with best_params_; missing if refit=False
    result_ : the TuneResult of `bigsvm.tune`
    """

    def __init__(self, result: Any, fixed: Any = ()) -> None:
        self.result_ = result
        apart = {f"param_{name}" for name in fixed}
        self.cv_results_ = {name: found for name, found in result.cv_results_.items() if name not in apart}
        self.n_splits_ = result.folds.n_folds
        self.best_index_ = result.chosen
        self.best_score_ = float(self.cv_results_["mean_test_score"][result.chosen])
        searched = [name for name in ("C", "class_weight") if f"param_{name}" in self.cv_results_]
        for params in self.cv_results_["params"]:
            for name in {*params} - {*searched}:
                del params[name]
        self.best_params_ = dict(self.cv_results_["params"][result.chosen])

    def predict(self, X: Any) -> np.ndarray:
        """The labels or values that the best estimator predicts."""
        return self.best_estimator_.predict(X)

    best_estimator_: Any


def search(
    estimator: LinearSVC | LinearSVR,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    Cs: Any = "1e-3:1e3:7",
    class_weights: Any = None,
    cv: Any = 5,
    groups: Any = None,
    scoring: str | None = None,
    refit: bool = True,
) -> Search:
    """Cross-validation of a LinearSVC or LinearSVR over C and class weights, on one set of passes over the rows.

    Parameters
    ----------
    estimator : has the other parameters; it is not changed
    X, y, sample_weight : as for its `fit`, so also a path or a store; a dask array is written to the scratch disk for
        the duration of the search.  Weights count in the scores, too, which GridSearchCV leaves unweighted
    Cs : as for `bigsvm.tune`
    class_weights : as for `bigsvm.tune`; None: that of the estimator.  For two classes, or for several with
        multi_class='crammer_singer'
    cv : number of folds (None: 5), which are chosen by a hash of the row number; an array (n_samples,) with the fold of
        each row; or splits (train, test), or a splitter, whose test sets are disjoint and together hold all rows
    groups : array (n_samples,), or column of a store: rows of one group are in one fold
    scoring : accuracy (default), balanced_accuracy, f1, roc_auc, average_precision; r2 for a LinearSVR

    Raises ValueError if the search is not supported; the message says what is.

    Example
    -------
    >>> from sklearn.datasets import make_classification
    >>> from bigsvm.sklearn import LinearSVC, search
    >>> X, y = make_classification(200, random_state=0)
    >>> found = search(LinearSVC(), X, y, Cs=[0.01, 1.0])
    >>> sorted(found.best_params_)
    ['C']
    """
    if not isinstance(estimator, LinearSVC | LinearSVR):
        what = type(estimator).__name__
        raise ValueError(f"search is for LinearSVC and LinearSVR, not {what}: bigsvm.tune searches kernels, too")
    classifies = isinstance(estimator, LinearSVC)
    if is_large(X, y) and getattr(estimator, "class_weight", None) is None:
        labels = np.asarray(y)
        if not isinstance(cv, int | np.integer) and hasattr(cv, "split"):
            cv = list(cv.split(np.zeros((len(labels), 1)), labels))
        with on_disk(estimator, X, y, sample_weight, not classifies) as stored:
            asked = {"Cs": Cs, "class_weights": class_weights, "cv": cv, "groups": groups, "scoring": scoring}
            searched = search(estimator, stored, **asked, refit=refit)
            if refit:
                take_names(searched.best_estimator_, stored, X)
            return searched
    if class_weights is not None and not classifies:
        raise ValueError("class_weights are for classes, and LinearSVR has none: leave them out")
    estimator._validate_params()
    refuse_hidden(X=X, y=y, sample_weight=sample_weight, groups=groups, cv=cv)
    problem = estimator._searched()
    # If the weights are the estimator's own, they do not appear among the parameters that were searched.
    own = ["class_weight"] if class_weights is None else []
    if own and classifies:
        class_weights = by_label(estimator.class_weight)
    joint = problem.get("multi_class") == JOINT_RULE
    with errors_of_scikit_learn():
        rows = _rows(estimator, X, y, sample_weight, classifies)
        _check_class_weights(class_weights, rows, joint)
        fold = _folds(cv, X, y, groups, rows.n_samples)
        smooth = problem["loss"].startswith("squared")
        bias: dict[str, Any] = {"bias": "augmented", "bias_scale": float(estimator.intercept_scaling)}
        found = tune(
            rows, Cs=Cs, class_weights=class_weights, metric=scoring, group=groups, **fold,
            **problem, solver=estimator.solver, tol=relative_gap_for(estimator.tol, smooth),
            memory=estimator.memory, threads=estimator.threads, seed=seed_of(estimator.random_state),
            max_passes=float(max(estimator.max_iter, 1)), **(bias if estimator.fit_intercept else {"bias": "none"}),
        )  # fmt: skip
    if found.status in UNCONVERGED:
        ended = sorted({status for row in found.rows for status in row.statuses if status != "converged"})
        gap = max(max(row.gaps) for row in found.rows)
        said = f"some models of the search did not reach tol={estimator.tol:g} ({', '.join(ended)}): "
        warnings.warn(
            f"{said}the largest relative duality gap is {gap:.2g}; cv_results_['relative_gap'] has each candidate's",
            ConvergenceWarning, stacklevel=2,
        )  # fmt: skip
    result = Search(found, own)
    if refit:
        best = clone(estimator).set_params(**result.best_params_)
        result.best_estimator_ = best.fit(X) if is_source(X) else best.fit(X, y, sample_weight)
    return result


def _check_class_weights(class_weights: Any, rows: Any, joint: bool) -> None:
    """Raise ValueError for class weights with which a search would train other models than the estimator.

    joint : one loss couples all classes (multi_class='crammer_singer')
    """
    if class_weights is not None and rows.classes is not None and len(rows.classes) > 2 and not joint:
        raise ValueError(
            "class weights of more than two classes are not supported: bigsvm.tune applies them in all models"
        )
    if rows.has_weights and "balanced" in (class_weights if isinstance(class_weights, list) else [class_weights]):
        # The estimator balances the sums of weights, a search the numbers of rows.
        raise ValueError("class weight 'balanced' does not go with weights of rows: give {label: weight}, or none")


def _rows(estimator: Any, X: Any, y: Any, sample_weight: Any, classifies: bool) -> Any:
    task: Any = "classification" if classifies else "regression"
    if is_source(X):
        return open_source(alone(X, y, sample_weight), task)
    from bigsvm.store.formats.opener import open_store

    X, y = checked_X(clone(estimator), X, y, dtype=SMALL, **({} if classifies else {"y_numeric": True}))
    y = y if classifies else np.asarray(y, np.float64)
    return open_store((X, y, row_weights(sample_weight, X)), task=task)


def _folds(cv: Any, X: Any, y: Any, groups: Any, n_samples: int) -> dict[str, Any]:
    """The option `folds` or `fold` of `tune`.  Raises ValueError if splits are not a partition of the rows."""
    cv = 5 if cv is None else cv
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        return {"folds": int(cv)}
    if groups is not None:
        raise ValueError("groups need folds that search makes: give a number of folds, such as cv=5")
    if hasattr(cv, "split"):
        try:
            cv = list(cv.split(np.zeros((n_samples, 1)) if is_source(X) else X, y))
        except (ValueError, TypeError) as error:
            if is_source(X):
                raise ValueError(
                    "a splitter that looks at labels is not supported for a store: give cv=5, or the fold of each row"
                ) from error
            raise
    if not np.iterable(cv):
        raise ValueError(f"cv must be a number of folds, a splitter, splits, or the fold of each row, not {cv!r}")
    values = cv if isinstance(cv, np.ndarray) else list(cv)
    if len(values) == n_samples and not isinstance(values[0], tuple | list):
        return {"fold": np.asarray(values)}
    fold = np.full(n_samples, -1)
    for number, (_, test) in enumerate(values):
        if np.any(fold[test] >= 0):
            raise ValueError("a row is in two test sets: search needs folds, as KFold and StratifiedKFold make them")
        fold[test] = number
    if np.any(fold < 0):
        raise ValueError("a row is in no test set: search needs folds, as KFold and StratifiedKFold make them")
    return {"fold": fold}
