"""SVR: LIBSVM's regression with scikit-learn's names, solved to a proved duality gap."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_y

from bigsvm.sklearn.appended import appended
from bigsvm.sklearn.estimator import all_or_nothing, epochs_of, errors_of_scikit_learn, take_width
from bigsvm.sklearn.rows import alone, as_real, is_source, open_source, row_weights
from bigsvm.sklearn.svm.base import Kernelised
from bigsvm.store.formats.opener import open_store


class SVR(Kernelised, RegressorMixin, BaseEstimator):
    """Epsilon support vector regression with a kernel: `sklearn.svm.SVR` with a proof.

    Parameters
    ----------
    kernel : 'linear', 'poly', 'rbf', 'sigmoid', 'precomputed' or callable, default='rbf'
        a callable takes two sets of rows and returns the matrix of their kernel values
    degree : int, default=3
        exponent of 'poly'
    gamma : 'scale', 'auto' or float, default='scale'
        factor of 'rbf', 'poly' and 'sigmoid'.  'scale': 1 / (n_features * X.var()), which reads a store once more;
        'auto': 1 / n_features; a number must be above 0
    coef0 : float, default=0.0
        constant term of 'poly' and 'sigmoid'
    tol : float, default=1e-3
        the fit ends at a relative duality gap of tol / 100, which is proved if the kernel is positive semidefinite
    C : float, default=1.0
        weight of the sum of losses; above 0
    epsilon : float, default=0.1
        errors up to it cost nothing; in units of y
    shrinking : bool, default=True
        skip rows that are unlikely to change for a while; the optimum is the same
    cache_size : float, default=200
        MiB of memory for kernel rows; not used if `memory` is given
    verbose : bool, default=False
        print progress on stderr
    max_iter : int, default=-1
        limit of the work, in steps of LIBSVM; -1: no limit
    memory : int, str or None, default=None
        memory budget of the fit, beyond what the process already uses: bytes, '2GiB', or '25%' of the memory limit in
        force; None: half of what that limit leaves
    threads : int or None, default=None
        number of threads, on which the result does not depend; None: the cores that this process may use
    warm_start : bool, default=False
        start from the last fit, if its rows (compared by content) are the first rows now, otherwise from 0.  The
        optimum is the same.  The estimator and its pickles then hold the model, and 8 bytes for each row

    Attributes
    ----------
    support_ : int, (n_support,)
        rows that are support vectors, ascending
    support_vectors_ : (n_support, n_features), dense or CSR
        empty for kernel values; missing after a store was fitted with the linear kernel
    n_support_ : int32, (1,)
    dual_coef_ : float64, (1, n_support)
        CSR for sparse rows
    intercept_ : float64, (1,)
    coef_ : float64, (1, n_features)
        linear kernel only
    fit_status_ : int
        0, or 1 if the fit ended before it reached its tolerance
    shape_fit_ : (int, int)
        shape of the rows fitted
    n_iter_ : int
        row visits / n_samples, rounded up
    certificate_ : Certificate
        primal and dual objective, gap and `kind` of the fit: 'proved', or 'none' if the kernel is not positive
        semidefinite, so that there is no proof
    relative_gap_ : float
        (P - D) / P, the largest of all models
    passes_ : float
        bytes read for training and proofs, divided by the bytes of the data
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,), object
        if the columns of X have names, and all of them are strings
    """

    epsilon: float
    n_iter_: int
    _parameter_constraints: dict[str, list[Any]] = {
        **{name: found for name, found in Kernelised._parameter_constraints.items() if name != "random_state"},
        "epsilon": [Interval(Real, 0.0, None, closed="left")],
        "warm_start": ["boolean"],
    }
    random_state = None

    def __init__(
        self, *, kernel: Any = "rbf", degree: int = 3, gamma: Any = "scale", coef0: float = 0.0, tol: float = 1e-3,
        C: float = 1.0, epsilon: float = 0.1, shrinking: bool = True, cache_size: float = 200, verbose: bool = False,
        max_iter: int = -1, memory: str | int | None = None, threads: int | None = None, warm_start: bool = False,
    ) -> None:  # fmt: skip
        self.kernel, self.degree, self.gamma, self.coef0, self.tol = kernel, degree, gamma, coef0, tol
        self.C, self.epsilon, self.shrinking, self.cache_size = C, epsilon, shrinking, cache_size
        self.verbose, self.max_iter, self.memory, self.threads = verbose, max_iter, memory, threads
        self.warm_start = warm_start

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SVR:
        """Fit rows and targets, or a store with targets of its own.

        X : array, sparse matrix or frame, (n_samples, n_features), or (n_samples, n_samples) kernel values; or path,
            URI or open store, without y and weights.  The scratch disk holds a dask array or frame meanwhile
        y : targets, (n_samples,);  sample_weight : (n_samples,); rows whose weight is not positive are left out
        """
        if is_source(X):
            with errors_of_scikit_learn():
                rows, X = open_source(alone(X, y, sample_weight), "regression"), None
            take_width(self, rows)
            result = self._trained(rows, X, self._loss())
        elif self._is_large(X, y):
            y = as_real(_check_y(np.asarray(y), y_numeric=True, estimator=self)).astype(np.float64)
            result = self._trained_on_disk(X, y, row_weights(sample_weight, y), True, self._loss())
        else:
            X, values, y = self._array_rows(X, y, y_numeric=True)
            weights = row_weights(sample_weight, values)
            with errors_of_scikit_learn():
                rows = open_store((values, np.asarray(y, np.float64), weights), task="regression")
            result = self._trained(rows, X, self._loss())
        self.n_iter_ = epochs_of([result])
        return self

    @available_if(lambda estimator: "warm_start" in estimator.get_params(deep=False))
    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> SVR:
        """Add rows to those of earlier calls, and fit all of them: the optimum is that of `fit` on all rows.

        Training continues from the dual variables of the call before.  The estimator and its pickles hold all rows so
        far, and every call trains on all of them, although with fewer kernel values than from the start
        (docs/append.md).  So give it a few large pieces, not many small ones.  gamma='scale' uses all rows so far.

        X : array, sparse matrix or frame, (n_samples, n_features), dense or sparse as in the first call; no store, and
            no kernel values
        y : targets, (n_samples,);  sample_weight : (n_samples,); rows whose weight is not positive are left out

        After `fit`, which keeps no rows, it warns, and trains on the rows of this call alone.
        """
        before, X, y = self._more_rows(X, y, y_numeric=True)
        seen = appended(before, X, np.asarray(y, np.float64), row_weights(sample_weight, X))
        with errors_of_scikit_learn():
            rows = open_store(tuple(seen), task="regression")
        result = self._trained(rows, seen.X, self._loss(), seen)
        self.n_iter_ = epochs_of([result])
        return self

    def _loss(self) -> dict[str, Any]:
        """The options of `bigsvm.fit` for the loss."""
        return {"loss": "epsilon_insensitive", "epsilon": float(self.epsilon)}

    def predict(self, X: Any) -> np.ndarray:
        """Values, float64, (n_samples,), of an array or of the rows of a store."""
        return self._scores(X)[:, 0]
