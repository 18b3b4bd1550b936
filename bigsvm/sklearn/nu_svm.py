"""NuSVC, NuSVR and OneClassSVM: LIBSVM's problems that nu shapes, with scikit-learn's names and a proof."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _num_samples

from bigsvm.sklearn.estimator import all_or_nothing, epochs_of, errors_of_scikit_learn, take_width
from bigsvm.sklearn.kernel import Kernelised
from bigsvm.sklearn.rows import alone, checked_X, is_source, open_source, row_weights
from bigsvm.sklearn.svm import SVC, SVR
from bigsvm.store.formats.opener import open_store

_NU = [Interval(Real, 0.0, 1.0, closed="right")]


def _constraints(of: type[Kernelised], *without: str) -> dict[str, list[Any]]:
    known = {name: found for name, found in of._parameter_constraints.items() if name not in without}
    return {**known, "nu": _NU}


class _FromZero:
    """What says why there is no `warm_start`, where scikit-learn would only say that the name is unknown."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        cls._check(options)
        return super().__new__(cls)

    def set_params(self, **options: Any) -> Any:
        """Of scikit-learn's estimators."""
        self._check(options)
        return super().set_params(**options)  # type: ignore[misc]  # of scikit-learn's classes

    @classmethod
    def _check(cls, options: dict[str, Any]) -> None:
        """Raise TypeError where `warm_start` is among the options."""
        if "warm_start" in options:
            why = "the duals of other rows, or of another nu, do not add up to what this nu asks of these"
            raise TypeError(f"{cls.__name__} has no warm_start: {why}; every fit starts anew, so leave it out")


class NuSVC(_FromZero, SVC):
    """Support vector classification where nu takes the place of C: `sklearn.svm.NuSVC` with a proof.

    Parameters
    ----------
    nu : float, default=0.5
        above 0, at most 1: at most this share of the rows lies within the margin, at least this share are support
        vectors; ValueError where it is infeasible, or leaves no margin
    kernel : 'linear', 'poly', 'rbf', 'sigmoid', 'precomputed' or callable, default='rbf'
        positive semidefinite ones; a function of two sets of rows gives the matrix of their kernel values
    degree : int, default=3
        of 'poly'
    gamma : 'scale', 'auto' or float, default='scale'
        of 'rbf', 'poly' and 'sigmoid': 1 / (n_features * X.var()), 1 / n_features, or a number above 0; 'scale' of a
        store reads it once more
    coef0 : float, default=0.0
        of 'poly' and 'sigmoid'
    shrinking : bool, default=True
        leave rows out of the search while they are far from moving; changes no result
    probability : bool, default=False
        True is refused: sklearn.calibration.CalibratedClassifierCV gives probabilities
    tol : float, default=1e-3
        stands for a relative duality gap of tol / 100, which is proved where the kernel is positive semidefinite
    cache_size : float, default=200
        MiB of kernel rows kept in memory; where `memory` is given that decides instead
    class_weight : dict, 'balanced' or None, default=None
        {label: weight of the rows of that class}; scikit-learn's ignores it
    verbose : bool, default=False
        lines on stderr
    max_iter : int, default=-1
        -1: as long as it takes; else as much work as so many steps of LIBSVM on each pair
    decision_function_shape : 'ovr' or 'ovo', default='ovr'
        scores for each class, or for each pair, where there are more than two classes
    break_ties : bool, default=False
        of classes with as many votes the one with the largest score, not the first; with 'ovr' alone
    random_state : int, RandomState or None, default=None
        None is seed 0: a fit is the same each time
    memory : int, str or None, default=None
        what the fit may hold on top of the process as it is: bytes, '2GiB', or '25%' of the memory limit in force;
        None: half of what that limit leaves
    threads : int or None, default=None
        for reading, and for work whose result does not depend on them; None: the cores this process may use

    Attributes
    ----------
    all of them : as `SVC` has them
        the certificate is of 1/2 alpha'Q alpha, as LIBSVM prints it
    """

    nu: float
    _parameter_constraints: dict[str, list[Any]] = _constraints(SVC, "C", "warm_start")

    def __init__(
        self, *, nu: float = 0.5, kernel: Any = "rbf", degree: int = 3, gamma: Any = "scale", coef0: float = 0.0,
        shrinking: bool = True, probability: Any = False, tol: float = 1e-3, cache_size: float = 200,
        class_weight: Any = None, verbose: bool = False, max_iter: int = -1, decision_function_shape: str = "ovr",
        break_ties: bool = False, random_state: Any = None, memory: str | int | None = None, threads: int | None = None,
    ) -> None:  # fmt: skip
        self.nu, self.kernel, self.degree, self.gamma, self.coef0 = nu, kernel, degree, gamma, coef0
        self.shrinking, self.probability, self.tol, self.cache_size = shrinking, probability, tol, cache_size
        self.class_weight, self.verbose, self.max_iter = class_weight, verbose, max_iter
        self.decision_function_shape, self.break_ties = decision_function_shape, break_ties
        self.random_state, self.memory, self.threads = random_state, memory, threads

    @property
    def _cost(self) -> float:
        return 1.0

    def _loss(self) -> dict[str, Any]:
        return {"loss": "nu_svc", "nu": float(self.nu)}


class NuSVR(_FromZero, SVR):
    """Support vector regression where nu sets the width of the tube: `sklearn.svm.NuSVR` with a proof.

    Parameters
    ----------
    nu : float, default=0.5
        above 0, at most 1: at most this share of the rows lies outside the tube, at least this share are support
        vectors
    C : float, default=1.0
        above 0; the sum of losses is multiplied by it
    kernel : 'linear', 'poly', 'rbf', 'sigmoid', 'precomputed' or callable, default='rbf'
        a function of two sets of rows gives the matrix of their kernel values
    degree : int, default=3
        of 'poly'
    gamma : 'scale', 'auto' or float, default='scale'
        of 'rbf', 'poly' and 'sigmoid': 1 / (n_features * X.var()), 1 / n_features, or a number above 0; 'scale' of a
        store reads it once more
    coef0 : float, default=0.0
        of 'poly' and 'sigmoid'
    shrinking : bool, default=True
        leave rows out of the search while they are far from moving; changes no result
    tol : float, default=1e-3
        stands for a relative duality gap of tol / 100, which is proved where the kernel is positive semidefinite
    cache_size : float, default=200
        MiB of kernel rows kept in memory; where `memory` is given that decides instead
    verbose : bool, default=False
        lines on stderr
    max_iter : int, default=-1
        -1: as long as it takes; else as much work as so many steps of LIBSVM
    memory : int, str or None, default=None
        what the fit may hold on top of the process as it is: bytes, '2GiB', or '25%' of the memory limit in force;
        None: half of what that limit leaves
    threads : int or None, default=None
        for reading, and for work whose result does not depend on them; None: the cores this process may use

    Attributes
    ----------
    all of them : as `SVR` has them
    """

    nu: float
    _parameter_constraints: dict[str, list[Any]] = _constraints(SVR, "epsilon", "warm_start")

    def __init__(
        self, *, nu: float = 0.5, C: float = 1.0, kernel: Any = "rbf", degree: int = 3, gamma: Any = "scale",
        coef0: float = 0.0, shrinking: bool = True, tol: float = 1e-3, cache_size: float = 200, verbose: bool = False,
        max_iter: int = -1, memory: str | int | None = None, threads: int | None = None,
    ) -> None:  # fmt: skip
        self.nu, self.C, self.kernel, self.degree, self.gamma, self.coef0 = nu, C, kernel, degree, gamma, coef0
        self.shrinking, self.tol, self.cache_size, self.verbose = shrinking, tol, cache_size, verbose
        self.max_iter, self.memory, self.threads = max_iter, memory, threads

    def _loss(self) -> dict[str, Any]:
        return {"loss": "nu_svr", "nu": float(self.nu)}


class OneClassSVM(_FromZero, Kernelised, OutlierMixin, BaseEstimator):
    """Rows that are unlike those fitted: `sklearn.svm.OneClassSVM` with a proof.

    Parameters
    ----------
    kernel : 'linear', 'poly', 'rbf', 'sigmoid', 'precomputed' or callable, default='rbf'
        positive semidefinite ones; a function of two sets of rows gives the matrix of their kernel values
    degree : int, default=3
        of 'poly'
    gamma : 'scale', 'auto' or float, default='scale'
        of 'rbf', 'poly' and 'sigmoid': 1 / (n_features * X.var()), 1 / n_features, or a number above 0; 'scale' of a
        store reads it once more
    coef0 : float, default=0.0
        of 'poly' and 'sigmoid'
    tol : float, default=1e-3
        stands for a relative duality gap of tol / 100, which is proved where the kernel is positive semidefinite
    nu : float, default=0.5
        above 0, at most 1: at most this share of the rows is called unlike, at least this share are support vectors
    shrinking : bool, default=True
        leave rows out of the search while they are far from moving; changes no result
    cache_size : float, default=200
        MiB of kernel rows kept in memory; where `memory` is given that decides instead
    verbose : bool, default=False
        lines on stderr
    max_iter : int, default=-1
        -1: as long as it takes; else as much work as so many steps of LIBSVM
    memory : int, str or None, default=None
        what the fit may hold on top of the process as it is: bytes, '2GiB', or '25%' of the memory limit in force;
        None: half of what that limit leaves
    threads : int or None, default=None
        for reading, and for work whose result does not depend on them; None: the cores this process may use

    Attributes
    ----------
    offset_ : float64, (1,)
        the score below which a row is unlike
    all others : as `SVR` has them
    """

    nu: float
    n_iter_: int
    random_state = None
    _parameter_constraints: dict[str, list[Any]] = _constraints(Kernelised, "C", "random_state")

    def __init__(
        self, *, kernel: Any = "rbf", degree: int = 3, gamma: Any = "scale", coef0: float = 0.0, tol: float = 1e-3,
        nu: float = 0.5, shrinking: bool = True, cache_size: float = 200, verbose: bool = False, max_iter: int = -1,
        memory: str | int | None = None, threads: int | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.degree, self.gamma, self.coef0, self.tol, self.nu = kernel, degree, gamma, coef0, tol, nu
        self.shrinking, self.cache_size, self.verbose, self.max_iter = shrinking, cache_size, verbose, max_iter
        self.memory, self.threads = memory, threads

    @property
    def _cost(self) -> float:
        return 1.0

    @property
    def score(self) -> Any:
        """There are no labels to be right about."""
        raise AttributeError("OneClassSVM has no score: score_samples gives one for each row")

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OneClassSVM:
        """Fit rows, or a store, whose labels count for nothing.

        X : array, sparse matrix or frame, (n_samples, n_features), or (n_samples, n_samples) kernel values; or path,
            URI or open store;  y : ignored
        sample_weight : (n_samples,); rows whose weight is not positive take no part
        """
        if is_source(X):
            with errors_of_scikit_learn():
                rows, X = open_source(alone(X, None, sample_weight)), None
            take_width(self, rows)
        else:
            X, values = self._own_rows(X)
            weights = row_weights(sample_weight, values)
            with errors_of_scikit_learn():
                rows = open_store((values, np.zeros(values.shape[0]), weights), task="regression")
        result = self._trained(rows, X, {"loss": "one_class", "nu": float(self.nu)})
        self.offset_ = -self.intercept_
        self.n_iter_ = epochs_of([result])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores, float64, (n_samples,), of an array or of the rows of a store; above 0 is like those fitted."""
        return self._scores(X)[:, 0]

    def score_samples(self, X: Any) -> np.ndarray:
        """Scores without the offset, float64, (n_samples,)."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """1 for rows like those fitted, -1 for others, int64, (n_samples,)."""
        return np.where(self.decision_function(X) > 0, 1, -1)

    def _own_rows(self, X: Any) -> tuple[Any, Any]:
        """(X as it is scored later, what rows are made of)."""
        if callable(self.kernel) or self.kernel == "precomputed":
            X, values, _ = self._array_rows(X, np.zeros(_num_samples(X)))
            return X, values
        X = checked_X(self, X, dtype=(np.float64, np.float32))
        return X, X
