"""NuSVC, NuSVR and OneClassSVM: LIBSVM's problems that nu shapes, with scikit-learn's names and a proof."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _num_samples

from bigsvm.sklearn.classes import check_nu
from bigsvm.sklearn.estimator import all_or_nothing, epochs_of, errors_of_scikit_learn, take_width
from bigsvm.sklearn.rows import alone, checked_X, is_source, open_source, row_weights
from bigsvm.sklearn.svm import SVC, SVR
from bigsvm.sklearn.svm.base import Kernelised
from bigsvm.store.formats.opener import open_store

_NU = [Interval(Real, 0.0, 1.0, closed="right")]


def _constraints(of: type[Kernelised], *without: str) -> dict[str, list[Any]]:
    known = {name: found for name, found in of._parameter_constraints.items() if name not in without}
    return {**known, "nu": _NU}


class _FromZero:
    """Refuses `warm_start` with the reason; scikit-learn would only say that there is no such parameter."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        cls._check(options)
        return super().__new__(cls)

    def set_params(self, **options: Any) -> Any:
        """As scikit-learn's, after the check."""
        self._check(options)
        return super().set_params(**options)  # type: ignore[misc]  # of scikit-learn's classes

    @classmethod
    def _check(cls, options: dict[str, Any]) -> None:
        """Raise TypeError where `warm_start` is among the options."""
        if "warm_start" in options:
            why = "nu fixes the sum of the dual variables, and those of other rows or another nu do not have it"
            raise TypeError(f"{cls.__name__} has no warm_start: {why}; leave it out, every fit starts anew")


class NuSVC(_FromZero, SVC):
    """Support vector classification where nu takes the place of C: `sklearn.svm.NuSVC` with a proof.

    Parameters
    ----------
    nu : float, default=0.5
        above 0, at most 1: at most this share of the rows lies within the margin, and at least this share are support
        vectors.  ValueError if it is infeasible, or leaves no margin
    kernel : 'linear', 'poly', 'rbf', 'sigmoid', 'precomputed' or callable, default='rbf'
        must be positive semidefinite; a callable takes two sets of rows and returns the matrix of their kernel values
    degree : int, default=3
        exponent of 'poly'
    gamma : 'scale', 'auto' or float, default='scale'
        factor of 'rbf', 'poly' and 'sigmoid'.  'scale': 1 / (n_features * X.var()), which reads a store once more;
        'auto': 1 / n_features; a number must be above 0
    coef0 : float, default=0.0
        constant term of 'poly' and 'sigmoid'
    shrinking : bool, default=True
        skip rows that are unlikely to change for a while; the optimum is the same
    probability : bool, default=False
        True is refused; use sklearn.calibration.CalibratedClassifierCV for probabilities
    tol : float, default=1e-3
        the fit ends at a relative duality gap of tol / 100, which is proved if the kernel is positive semidefinite
    cache_size : float, default=200
        MiB of memory for kernel rows; not used if `memory` is given
    class_weight : dict, 'balanced' or None, default=None
        {label: weight of the rows of that class}; scikit-learn's ignores it
    verbose : bool, default=False
        print progress on stderr
    max_iter : int, default=-1
        limit of the work, in steps of LIBSVM for each pair of classes; -1: no limit
    decision_function_shape : 'ovr' or 'ovo', default='ovr'
        with more than two classes, scores for each class ('ovr') or for each pair ('ovo')
    break_ties : bool, default=False
        among classes with equally many votes predict the one of largest score, not the first; only with 'ovr'
    random_state : int, RandomState or None, default=None
        None means seed 0, so a fit gives the same result each time
    memory : int, str or None, default=None
        memory budget of the fit, beyond what the process already uses: bytes, '2GiB', or '25%' of the memory limit in
        force; None: half of what that limit leaves
    threads : int or None, default=None
        number of threads, on which the result does not depend; None: the cores that this process may use

    Attributes
    ----------
    all of them : as in `SVC`
        the objective in the certificate is 1/2 alpha'Q alpha, as LIBSVM prints it
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

    def _check_classes(
        self, of_classes: np.ndarray, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
    ) -> None:
        super()._check_classes(of_classes, classes, codes, weights)
        check_nu(float(self.nu), of_classes, classes, codes, weights)

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
        weight of the sum of losses; above 0
    kernel : 'linear', 'poly', 'rbf', 'sigmoid', 'precomputed' or callable, default='rbf'
        a callable takes two sets of rows and returns the matrix of their kernel values
    degree : int, default=3
        exponent of 'poly'
    gamma : 'scale', 'auto' or float, default='scale'
        factor of 'rbf', 'poly' and 'sigmoid'.  'scale': 1 / (n_features * X.var()), which reads a store once more;
        'auto': 1 / n_features; a number must be above 0
    coef0 : float, default=0.0
        constant term of 'poly' and 'sigmoid'
    shrinking : bool, default=True
        skip rows that are unlikely to change for a while; the optimum is the same
    tol : float, default=1e-3
        the fit ends at a relative duality gap of tol / 100, which is proved if the kernel is positive semidefinite
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

    Attributes
    ----------
    all of them : as in `SVR`
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
    """Novelty detection, rows that are unlike the training rows: `sklearn.svm.OneClassSVM` with a proof.

    Parameters
    ----------
    kernel : 'linear', 'poly', 'rbf', 'sigmoid', 'precomputed' or callable, default='rbf'
        must be positive semidefinite; a callable takes two sets of rows and returns the matrix of their kernel values
    degree : int, default=3
        exponent of 'poly'
    gamma : 'scale', 'auto' or float, default='scale'
        factor of 'rbf', 'poly' and 'sigmoid'.  'scale': 1 / (n_features * X.var()), which reads a store once more;
        'auto': 1 / n_features; a number must be above 0
    coef0 : float, default=0.0
        constant term of 'poly' and 'sigmoid'
    tol : float, default=1e-3
        the fit ends at a relative duality gap of tol / 100, which is proved if the kernel is positive semidefinite
    nu : float, default=0.5
        above 0, at most 1: at most this share of the rows is called an outlier, at least this share are support vectors
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

    Attributes
    ----------
    offset_ : float64, (1,)
        score_samples of an inlier is above it
    all others : as in `SVR`
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
        """Not available, since there are no labels."""
        raise AttributeError("OneClassSVM has no score: score_samples gives one for each row")

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OneClassSVM:
        """Fit rows, or a store; labels are ignored.

        X : array, sparse matrix or frame, (n_samples, n_features), or (n_samples, n_samples) kernel values; or path,
            URI or open store;  y : ignored
        sample_weight : (n_samples,); rows whose weight is not positive are left out
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
        """Scores, float64, (n_samples,), of an array or of the rows of a store; above 0 for inliers."""
        return self._scores(X)[:, 0]

    def score_samples(self, X: Any) -> np.ndarray:
        """Scores without the offset, float64, (n_samples,)."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """1 for inliers, -1 for outliers, int64, (n_samples,)."""
        return np.where(self.decision_function(X) > 0, 1, -1)

    def _own_rows(self, X: Any) -> tuple[Any, Any]:
        """(X as `decision_function` will need it, values to fit)."""
        if callable(self.kernel) or self.kernel == "precomputed":
            X, values, _ = self._array_rows(X, np.zeros(_num_samples(X)))
            return X, values
        X = checked_X(self, X, dtype=(np.float64, np.float32))
        return X, X
