"""SVC: LIBSVM's classification with scikit-learn's names, solved to a proved duality gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Hidden, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_y, check_is_fitted

from bigsvm.run.fit.outcome import FitResult
from bigsvm.sklearn.appended import appended, declared_classes, declared_codes, several_classes
from bigsvm.sklearn.classes import (
    by_code,
    check_classes_weigh,
    check_weighted_classes,
    coded,
    of_store,
    present_codes,
    weights_of_classes,
)
from bigsvm.sklearn.estimator import all_or_nothing, epochs_of, errors_of_scikit_learn, take_width
from bigsvm.sklearn.rows import alone, is_source, open_source, row_weights
from bigsvm.sklearn.svm.base import Kernelised
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats.opener import open_store


class SVC(Kernelised, ClassifierMixin, BaseEstimator):
    """Support vector classification with a kernel, a model for each pair of classes: `sklearn.svm.SVC` with a proof.

    Parameters
    ----------
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
    probability : bool, default=False
        True is refused; use sklearn.calibration.CalibratedClassifierCV for probabilities
    tol : float, default=1e-3
        the fit ends at a relative duality gap of tol / 100, which is proved if the kernel is positive semidefinite
    cache_size : float, default=200
        MiB of memory for kernel rows; not used if `memory` is given
    class_weight : dict, 'balanced' or None, default=None
        {label: factor of C for the rows of that class}
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
    warm_start : bool, default=False
        start from the last fit, if its rows (compared by content) are the first rows now, otherwise from 0.  The
        optimum is the same.  The estimator and its pickles then hold the model, and 8 bytes for each row and pair

    Attributes
    ----------
    support_ : int, (n_support,)
        rows that are support vectors, by class and then ascending
    support_vectors_ : (n_support, n_features), dense or CSR
        empty for kernel values; missing after a store was fitted with the linear kernel
    n_support_ : int32, (n_classes,)
        how many support vectors each class has
    dual_coef_ : float64, (n_classes - 1, n_support)
        LIBSVM's layout; CSR for sparse rows
    intercept_ : float64, (n_pairs,)
        n_pairs = n_classes (n_classes - 1) / 2
    coef_ : float64, (n_pairs, n_features)
        linear kernel only
    classes_ : (n_classes,)
        ascending
    class_weight_ : float64, (n_classes,)
        what C was multiplied by
    fit_status_ : int
        0, or 1 if the fit ended before it reached its tolerance
    shape_fit_ : (int, int)
        shape of the rows fitted
    n_iter_ : int32, (n_pairs,)
        row visits / n_samples, rounded up, of the whole fit: pairs share it
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

    class_weight: Any
    decision_function_shape: str
    break_ties: bool
    probability: Any
    class_weight_: np.ndarray
    _declared: np.ndarray
    n_iter_: np.ndarray
    _parameter_constraints: dict[str, list[Any]] = {
        **Kernelised._parameter_constraints,
        "probability": ["boolean", Hidden(StrOptions({"deprecated"}))],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
        "break_ties": ["boolean"],
        "warm_start": ["boolean"],
    }

    def __init__(
        self, *, C: float = 1.0, kernel: Any = "rbf", degree: int = 3, gamma: Any = "scale", coef0: float = 0.0,
        shrinking: bool = True, probability: Any = False, tol: float = 1e-3, cache_size: float = 200,
        class_weight: Any = None, verbose: bool = False, max_iter: int = -1, decision_function_shape: str = "ovr",
        break_ties: bool = False, random_state: Any = None, memory: str | int | None = None, threads: int | None = None,
        warm_start: bool = False,
    ) -> None:  # fmt: skip
        self.C, self.kernel, self.degree, self.gamma, self.coef0 = C, kernel, degree, gamma, coef0
        self.shrinking, self.probability, self.tol, self.cache_size = shrinking, probability, tol, cache_size
        self.class_weight, self.verbose, self.max_iter = class_weight, verbose, max_iter
        self.decision_function_shape, self.break_ties = decision_function_shape, break_ties
        self.random_state, self.memory, self.threads = random_state, memory, threads
        self.warm_start = warm_start

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SVC:
        """Fit rows and labels, or a store with labels of its own.

        X : array, sparse matrix or frame, (n_samples, n_features), or (n_samples, n_samples) kernel values; or path,
            URI or open store, without y and weights.  The scratch disk holds a dask array or frame meanwhile
        y : labels, (n_samples,);  sample_weight : (n_samples,); rows whose weight is not positive are left out
        """
        self._refuse()
        if is_source(X):
            with errors_of_scikit_learn():
                rows = open_source(alone(X, y, sample_weight), "classification")
            take_width(self, rows)
            result = self._trained(
                rows, None, {"class_weight": of_store(self.class_weight, rows, weighted=False), **self._loss()}
            )
            classes = result.model.classes
        elif self._is_large(X, y):
            classes, codes = coded(_check_y(np.asarray(y), estimator=self))
            weights = row_weights(sample_weight, codes)
            check_weighted_classes(codes, weights)
            of_classes = weights_of_classes(self.class_weight, classes, codes, None)
            self._check_classes(of_classes, classes, codes, weights)
            options = {"class_weight": by_code(of_classes), **self._loss()}
            result = self._trained_on_disk(X, codes, weights, False, options)
        else:
            X, values, y = self._array_rows(X, y)
            classes, codes = coded(y)
            rows, options = self._of_arrays(values, codes, row_weights(sample_weight, values), classes)
            result = self._trained(rows, X, options)
        self.__dict__.pop("_declared", None)
        return self._took(result, classes)

    @available_if(lambda estimator: "warm_start" in estimator.get_params(deep=False))
    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> SVC:
        """Add rows to those of earlier calls, and fit all of them: the optimum is that of `fit` on all rows.

        Training continues from the dual variables of the call before.  The estimator and its pickles hold all rows so
        far, and every call trains on all of them, although with fewer kernel values than from the start
        (docs/append.md).  So give it a few large pieces, not many small ones.  gamma='scale' uses all rows so far.

        X : array, sparse matrix or frame, (n_samples, n_features), dense or sparse as in the first call; no store, and
            no kernel values
        y : labels, (n_samples,);  sample_weight : (n_samples,); rows whose weight is not positive are left out
        classes : all labels that may occur; needed in the first call.  `classes_` has those that did, as after `fit`

        After `fit`, which keeps no rows, it warns, and trains on the rows of this call alone.

        Raises ValueError: a label that is not among the classes; rows of one class only so far; kernel values.
        """
        self._refuse()
        declared = declared_classes(self, classes)
        before, X, y = self._more_rows(X, y)
        seen = appended(before, X, declared_codes(y, declared), row_weights(sample_weight, X))
        present = several_classes(seen, declared)
        rows, options = self._of_arrays(*seen, declared)
        result = self._trained(rows, seen.X, options, seen)
        self._declared = declared
        return self._took(result, declared[present])

    def _of_arrays(
        self, values: Any, codes: np.ndarray, weights: np.ndarray | None, classes: np.ndarray
    ) -> tuple[RowBlocks, dict[str, Any]]:
        """The rows and options of the fit.  codes : index of each row's class in `classes`; some may not occur"""
        check_weighted_classes(codes, weights)
        present, dense = present_codes(codes)
        of_classes = weights_of_classes(self.class_weight, classes[present], dense, None, classes)
        self._check_classes(of_classes, classes[present], dense, weights)
        with errors_of_scikit_learn():
            rows = open_store((values, codes, weights), task="classification")
        return rows, {"class_weight": by_code(of_classes, present), **self._loss()}

    def _check_classes(
        self, of_classes: np.ndarray, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
    ) -> None:
        """Raise ValueError where these rows cannot be fitted because of their classes."""
        check_classes_weigh(of_classes, classes, codes, weights)

    def _took(self, result: FitResult, classes: np.ndarray) -> SVC:
        """Set the attributes that only classifiers have."""
        self.classes_ = classes
        self.class_weight_ = np.array(result.model.about["problem"]["class_weight"])
        self.n_iter_ = np.full(len(self.intercept_), epochs_of([result]), np.int32)
        return self

    def _refuse(self) -> None:
        if self.probability is True:
            raise ValueError(
                "probability=True is not offered: sklearn.calibration.CalibratedClassifierCV(SVC(), ensemble=False) "
                "gives probabilities"
            )

    def _loss(self) -> dict[str, Any]:
        """The options of `bigsvm.fit` for the loss."""
        return {"loss": "hinge"}

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores, float64: (n_samples,) for two classes, otherwise (n_samples, n_classes) or (n_samples, n_pairs).

        X : array, or a store
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return scores[:, 0]
        return self._model().class_scores(scores) if self.decision_function_shape == "ovr" else scores

    def predict(self, X: Any) -> np.ndarray:
        """Labels, (n_samples,), of an array or of the rows of a store."""
        check_is_fitted(self)
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        scores, model = self._scores(X), self._model()
        if self.break_ties and len(self.classes_) > 2:
            return self.classes_[np.argmax(model.class_scores(scores), axis=1)]
        return self.classes_[model.codes(scores)]
