"""LinearSVC: LIBLINEAR's classification with scikit-learn's names, solved to a proved duality gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.linear_model._base import LinearClassifierMixin, SparseCoefMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_y

from bigsvm.config import JOINT_LOSS, JOINT_RULE
from bigsvm.model.linear_model import LinearModel
from bigsvm.sklearn.appended import appended, declared_classes, declared_codes, seen_by, several_classes
from bigsvm.sklearn.classes import (
    by_code,
    check_classes_weigh,
    check_weighted_classes,
    coded,
    of_store,
    present_codes,
    weights_of_classes,
)
from bigsvm.sklearn.collections import is_large, on_disk, take_names
from bigsvm.sklearn.estimator import Problem, all_or_nothing, errors_of_scikit_learn, take_width
from bigsvm.sklearn.linear.base import Linear
from bigsvm.sklearn.rows import SMALL, alone, checked_X, is_source, open_source, row_weights
from bigsvm.store.formats.opener import open_store


class LinearSVC(Linear, LinearClassifierMixin, SparseCoefMixin, BaseEstimator):
    """Linear support vector classification, each class against the rest or all together: `sklearn.svm.LinearSVC` with
    a proof.

    min_w 1/2 ||w||^2 + C sum_i weight_i loss(1 - y_i f(x_i)), f(x) = w.x + b, where ||w||^2 includes
    (b / intercept_scaling)^2.

    Parameters
    ----------
    penalty : 'l2', default='l2'
        'l1' is refused
    loss : 'squared_hinge' or 'hinge', default='squared_hinge'
    dual : bool or 'auto', default='auto'
        no effect, since both problems have the same optimum; False with 'hinge' is refused, as in scikit-learn
    tol : float, default=1e-4
        the fit ends at a proved relative duality gap: tol / 100 with 'hinge', otherwise the smaller of that and
        tol ** 2
    C : float, default=1.0
        weight of the sum of losses; above 0
    multi_class : 'ovr' or 'crammer_singer', default='ovr'
        each class against the rest, or one hinge loss of all classes, as LIBLINEAR's -s 4.  With 'crammer_singer'
        loss, penalty and dual have no effect, as in scikit-learn; class weights apply to the rows of their class; and
        for two classes the problem, and the certificate, are those of hinge with twice the C
    fit_intercept : bool, default=True
    intercept_scaling : float, default=1
        value of the constant feature whose weight gives the intercept; that weight is regularised as all others
    class_weight : dict, 'balanced' or None, default=None
        {label: factor of C}.  With more than two classes each weight applies only in the model of its own class, as in
        LIBLINEAR
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
    coef_ : float64, (1, n_features), or (n_classes, n_features)
    intercept_ : float64, (1,) or (n_classes,)
        0.0 without an intercept
    classes_ : (n_classes,)
        ascending
    n_iter_ : int
        row visits / n_samples, rounded up; the most of several fits
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

    penalty: str
    multi_class: str
    class_weight: Any
    _declared: np.ndarray
    _parameter_constraints: dict[str, list[Any]] = {
        **Linear._parameter_constraints,
        "penalty": [StrOptions({"l1", "l2"})],
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        "multi_class": [StrOptions({"ovr", "crammer_singer"})],
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }

    def __init__(
        self, penalty: str = "l2", loss: str = "squared_hinge", *, dual: Any = "auto", tol: float = 1e-4,
        C: float = 1.0, multi_class: str = "ovr", fit_intercept: bool = True, intercept_scaling: float = 1,
        class_weight: Any = None, verbose: int = 0, random_state: Any = None, max_iter: int = 1000,
        solver: str = "auto", memory: str | int | None = None, threads: int | None = None, warm_start: bool = False,
    ) -> None:  # fmt: skip
        self.penalty, self.loss, self.dual, self.tol, self.C = penalty, loss, dual, tol, C
        self.multi_class, self.class_weight = multi_class, class_weight
        self.fit_intercept, self.intercept_scaling = fit_intercept, intercept_scaling
        self.verbose, self.random_state, self.max_iter = verbose, random_state, max_iter
        self.solver, self.memory, self.threads, self.warm_start = solver, memory, threads, warm_start

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> LinearSVC:
        """Fit rows and labels, or a store with labels of its own.

        X : array, sparse matrix or frame, (n_samples, n_features); or path, URI or open store, without y and weights.
            Rows of a dask array or frame are on the scratch disk during the fit; with class_weight of more than two
            classes they are in memory, and refused where they exceed `memory`
        y : labels, (n_samples,);  sample_weight : (n_samples,); rows whose weight is not positive are left out
        """
        self._refuse()
        if is_large(X, y):
            y = _check_y(np.asarray(y), estimator=self)
            classes, codes = coded(y)
            # With weights of more than two classes each model is fitted by itself, on rows in memory (`_of_arrays`).
            if self.class_weight is None or len(classes) == 2 or self._joint:
                return self._fit_large(X, classes, codes, row_weights(sample_weight, codes))
        if is_source(X):
            with errors_of_scikit_learn():
                rows = open_source(alone(X, y, sample_weight), "classification")
            alone_in_its_own = self.class_weight is not None and not self._joint
            if alone_in_its_own and rows.classes is not None and len(rows.classes) > 2:
                raise ValueError(
                    "class_weight with more than two classes is not supported for a store: scikit-learn applies each "
                    "weight only in the model of its own class; bigsvm.fit(X, class_weight=) applies it in every model"
                )
            take_width(self, rows)
            (result,) = self._trained(
                [(rows, {"class_weight": of_store(self.class_weight, rows, weighted=True), **self._rule})]
            )
            self.__dict__.pop("_declared", None)
            self.classes_ = result.model.classes
            return self
        X, y = checked_X(self, X, y, dtype=SMALL)
        classes, codes = coded(y)
        problems = self._of_arrays(X, codes, row_weights(sample_weight, X), classes)
        self.__dict__.pop("_declared", None)
        self.classes_ = classes
        self._trained(problems)
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> LinearSVC:
        """Add rows to those of earlier calls, and fit all of them: the optimum is that of `fit` on all rows.

        Training continues from the dual variables (or the weights, for some solvers) of the call before.  The estimator
        and its pickles hold all rows so far, and every call trains on all of them, although in fewer passes than from
        the start (docs/append.md).  So give it a few large pieces, not many small ones.

        X : array, sparse matrix or frame, (n_samples, n_features), dense or sparse as in the first call; no store
        y : labels, (n_samples,);  sample_weight : (n_samples,); rows whose weight is not positive are left out
        classes : all labels that may occur; needed in the first call.  `classes_` has those that did, as after `fit`

        After `fit`, which keeps no rows, it warns, and trains on the rows of this call alone.

        Raises ValueError: a label that is not among the classes; rows of one class only so far.
        """
        self._refuse()
        seen = seen_by(self, X)
        declared = declared_classes(self, classes)
        X, y = checked_X(self, X, y, dtype=SMALL, reset=seen is None)
        codes = declared_codes(y, declared)
        seen = appended(seen, X, codes, row_weights(sample_weight, X))
        present = several_classes(seen, declared)
        problems = self._of_arrays(*seen, declared)
        self._trained(problems, seen)
        self._declared, self.classes_ = declared, declared[present]
        return self

    def _fit_large(self, X: Any, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> LinearSVC:
        """Fit rows of a dask array or frame, whose labels are classes[codes]."""
        check_weighted_classes(codes, weights)
        of_classes = weights_of_classes(self.class_weight, classes, codes, weights)
        check_classes_weigh(of_classes, classes, codes, weights)
        class_weight = by_code(of_classes)
        with on_disk(self, X, codes, weights, regression=False) as rows:
            take_names(self, rows, X)
            self._trained([(rows, {"class_weight": class_weight, **self._rule})])
        self.__dict__.pop("_declared", None)
        self.classes_ = classes
        return self

    def _of_arrays(self, X: Any, codes: np.ndarray, weights: np.ndarray | None, classes: np.ndarray) -> list[Problem]:
        """The problems to fit: one, or one for each class if each weight applies only in the model of its class.

        codes : index of each row's class in `classes`; some classes may not occur
        """
        check_weighted_classes(codes, weights)
        present, dense = present_codes(codes)
        of_classes = weights_of_classes(self.class_weight, classes[present], dense, weights, classes)
        parts = [(codes, by_code(of_classes, present))]
        apart = len(of_classes) > 2 and parts[0][1] is not None and not self._joint
        check_classes_weigh(of_classes, classes[present], dense, weights, each=apart)
        if apart:
            # As in LIBLINEAR: in the model of a class its rows have its weight, and all other rows weigh 1.
            parts = [((dense == m).astype(np.int64), by_code(np.array([1.0, w]))) for m, w in enumerate(of_classes)]
        with errors_of_scikit_learn():
            return [
                (open_store((X, y, weights), task="classification"), {"class_weight": weight, **self._rule})
                for y, weight in parts
            ]

    @property
    def _joint(self) -> bool:
        return self.multi_class == "crammer_singer"

    @property
    def _rule(self) -> dict[str, Any]:
        return {"multi_class": JOINT_RULE if self._joint else "ovr"}

    def _loss(self) -> str:
        return JOINT_LOSS if self._joint else self.loss

    def _searched(self) -> dict[str, Any]:
        """The problem as options of `bigsvm.tune`, except for C and the bias.  Raises ValueError if not supported."""
        self._refuse()
        return {"loss": self._loss(), **self._rule}

    def _refuse(self) -> None:
        why = ""
        if self._joint:
            return
        if self.penalty == "l1":
            why = "the penalty l1 is out of scope: sklearn.svm.LinearSVC has it"
        elif self.loss == "hinge" and self.dual is False:
            why = "The combination of penalty='l2' and loss='hinge' are not supported when dual=False"
        if why:
            given = f"penalty={self.penalty!r}, loss={self.loss!r}, dual={self.dual!r}"
            raise ValueError(f"Unsupported set of arguments: {why}, Parameters: {given}")

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of an array or a store, float64: (n_samples,) for two classes, otherwise (n_samples, n_classes)."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Labels, (n_samples,), of an array or of the rows of a store."""
        scores = self._scores(X)
        return self.classes_[self._model().codes(scores)]

    def _model(self) -> LinearModel:
        return self._linear_model(self.classes_)
