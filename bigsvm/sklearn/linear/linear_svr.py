"""LinearSVR: LIBLINEAR's regression with scikit-learn's names, solved to a proved duality gap."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_y

from bigsvm.model.linear_model import LinearModel
from bigsvm.sklearn.appended import appended, seen_by
from bigsvm.sklearn.collections import is_large, on_disk, take_names
from bigsvm.sklearn.estimator import all_or_nothing, errors_of_scikit_learn, take_width
from bigsvm.sklearn.linear.base import Linear
from bigsvm.sklearn.rows import SMALL, alone, as_real, checked_X, is_source, open_source, row_weights
from bigsvm.store.formats.opener import open_store


class LinearSVR(Linear, RegressorMixin, BaseEstimator):
    """Linear support vector regression: `sklearn.svm.LinearSVR` with a proof.

    min_w 1/2 ||w||^2 + C sum_i weight_i loss(y_i - f(x_i)), f(x) = w.x + b, where ||w||^2 includes
    (b / intercept_scaling)^2, and errors up to epsilon cost nothing.

    Parameters
    ----------
    epsilon : float, default=0.0
        errors up to it cost nothing; in units of y
    tol : float, default=1e-4
        the fit ends at a proved relative duality gap: tol / 100, or the smaller of that and tol ** 2 with the
        squared loss
    C : float, default=1.0
        weight of the sum of losses; above 0
    loss : 'epsilon_insensitive' or 'squared_epsilon_insensitive', default='epsilon_insensitive'
    fit_intercept : bool, default=True
    intercept_scaling : float, default=1.0
        value of the constant feature whose weight gives the intercept; that weight is regularised as all others
    dual : bool or 'auto', default='auto'
        no effect, since both problems have the same optimum
    verbose : int, default=0
        print progress on stderr
    random_state : int, RandomState or None, default=None
        None means seed 0, so a fit gives the same result each time
    max_iter : int, default=1000
        most passes over the rows; a fit that reaches this limit warns, and says which gap it has
    solver : str, default='auto'
        name of a bigsvm solver; 'auto' chooses by loss, shape of the data and memory
    memory : int, str or None, default=None
        memory budget of the fit, beyond what the process already uses: bytes, '2GiB', or '25%' of the memory limit in
        force; None: half of what that limit leaves
    threads : int or None, default=None
        number of threads, on which the result does not depend; None: the cores that this process may use
    warm_start : bool, default=False
        start from the last fit, if its rows (compared by content) are the first rows now, otherwise from 0.  The
        optimum is the same.  The estimator and its pickles then hold 8 bytes for each row and model

    Attributes
    ----------
    coef_ : float64, (n_features,)
    intercept_ : float64, (1,)
        0.0 without an intercept
    n_iter_ : int
        row visits / n_samples, rounded up
    certificate_ : Certificate
        primal and dual objective, gap and `kind` ('proved') of the fit
    relative_gap_ : float
        (P - D) / P, the largest of all models
    passes_ : float
        bytes read for training and proofs, divided by the bytes of the data
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,), object
        if the columns of X have names, and all of them are strings
    """

    epsilon: float
    _parameter_constraints: dict[str, list[Any]] = {
        **Linear._parameter_constraints,
        "epsilon": [Interval(Real, 0.0, None, closed="left")],
        "loss": [StrOptions({"epsilon_insensitive", "squared_epsilon_insensitive"})],
    }

    def __init__(
        self, *, epsilon: float = 0.0, tol: float = 1e-4, C: float = 1.0, loss: str = "epsilon_insensitive",
        fit_intercept: bool = True, intercept_scaling: float = 1.0, dual: Any = "auto", verbose: int = 0,
        random_state: Any = None, max_iter: int = 1000, solver: str = "auto", memory: str | int | None = None,
        threads: int | None = None, warm_start: bool = False,
    ) -> None:  # fmt: skip
        self.epsilon, self.tol, self.C, self.loss, self.dual = epsilon, tol, C, loss, dual
        self.fit_intercept, self.intercept_scaling = fit_intercept, intercept_scaling
        self.verbose, self.random_state, self.max_iter = verbose, random_state, max_iter
        self.solver, self.memory, self.threads, self.warm_start = solver, memory, threads, warm_start

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> LinearSVR:
        """Fit rows and targets, or a store with targets of its own.

        X : array, sparse matrix or frame, (n_samples, n_features); or path, URI or open store, without y and weights.
            Rows of a dask array or frame are on the scratch disk during the fit
        y : targets, (n_samples,);  sample_weight : (n_samples,); rows whose weight is not positive are left out
        """
        if is_large(X, y):
            y = as_real(_check_y(np.asarray(y), y_numeric=True, estimator=self))
            with on_disk(self, X, y.astype(np.float64), row_weights(sample_weight, y), regression=True) as rows:
                take_names(self, rows, X)
                self._trained([(rows, {"epsilon": float(self.epsilon)})])
            self.coef_ = self.coef_.ravel()
            return self
        if is_source(X):
            with errors_of_scikit_learn():
                rows = open_source(alone(X, y, sample_weight), "regression")
            take_width(self, rows)
        else:
            X, y = checked_X(self, X, y, dtype=SMALL, y_numeric=True)
            weights = row_weights(sample_weight, X)
            with errors_of_scikit_learn():
                rows = open_store((X, np.asarray(y, np.float64), weights), task="regression")
        self._trained([(rows, {"epsilon": float(self.epsilon)})])
        self.coef_ = self.coef_.ravel()
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearSVR:
        """Add rows to those of earlier calls, and fit all of them: the optimum is that of `fit` on all rows.

        Training continues from the dual variables (or the weights, for some solvers) of the call before.  The estimator
        and its pickles hold all rows so far, and every call trains on all of them, although in fewer passes than from
        the start (docs/append.md).  So give it a few large pieces, not many small ones.

        X : array, sparse matrix or frame, (n_samples, n_features), dense or sparse as in the first call; no store
        y : targets, (n_samples,);  sample_weight : (n_samples,); rows whose weight is not positive are left out

        After `fit`, which keeps no rows, it warns, and trains on the rows of this call alone.
        """
        seen = seen_by(self, X)
        X, y = checked_X(self, X, y, dtype=SMALL, y_numeric=True, reset=seen is None)
        seen = appended(seen, X, np.asarray(y, np.float64), row_weights(sample_weight, X))
        with errors_of_scikit_learn():
            rows = open_store(tuple(seen), task="regression")
        self._trained([(rows, {"epsilon": float(self.epsilon)})], seen)
        self.coef_ = self.coef_.ravel()
        return self

    def _searched(self) -> dict[str, Any]:
        """The problem as options of `bigsvm.tune`, except for C and the bias."""
        return {"loss": self.loss, "epsilon": float(self.epsilon)}

    def predict(self, X: Any) -> np.ndarray:
        """Values, float64, (n_samples,), of an array or of the rows of a store."""
        return self._scores(X)[:, 0]

    def _model(self) -> LinearModel:
        return self._linear_model(np.empty(0))
