"""The base class of the kernel estimators: fits with a kernel, support vectors, and scores."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted, column_or_1d

from bigsvm.compiled.shared.rows import CSR
from bigsvm.model.decide import models_of
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel, Model
from bigsvm.problem.kernel import PARAMETERS, Kernel
from bigsvm.run.fit.gamma import scale_gamma
from bigsvm.run.fit.outcome import FitResult
from bigsvm.sklearn.appended import Seen, seen_by
from bigsvm.sklearn.collections import is_large, on_disk, rows_at, take_names
from bigsvm.sklearn.estimator import UNCONVERGED, Certified, errors_of_scikit_learn, relative_gap_for
from bigsvm.sklearn.rows import FLOATS, checked_X
from bigsvm.sklearn.svm.dual_coef import as_libsvm, as_pairs, classes_of_support, support_of
from bigsvm.store.blocks import RowBlocks
from bigsvm.units import MIB

_POSITIVE = Interval(Real, 0.0, None, closed="neither")


class Kernelised(Certified):
    """Base class of SVC, SVR and the nu variants."""

    kernel: str | Callable[..., Any]
    degree: int
    gamma: str | float
    coef0: float
    C: float
    shrinking: bool
    cache_size: float
    support_: np.ndarray
    support_vectors_: Any
    n_support_: np.ndarray
    dual_coef_: Any
    intercept_: np.ndarray
    shape_fit_: tuple[int, ...]
    fit_status_: int
    _sparse: bool
    _gamma: float
    _kernel: Kernel
    _coef: np.ndarray | None
    _fitted_rows: Any
    _function: Callable[..., Any] | None
    _seen: Seen
    warm_start: bool = False
    _parameter_constraints: dict[str, list[Any]] = {
        **Certified._shared_constraints,
        "kernel": [StrOptions({"linear", "poly", "rbf", "sigmoid", "precomputed"}), callable],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "gamma": [StrOptions({"scale", "auto"}), _POSITIVE],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "tol": [_POSITIVE],
        "C": [_POSITIVE],
        "shrinking": ["boolean"],
        "cache_size": [_POSITIVE],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
    }

    @property
    def _cost(self) -> float:
        """The option C; 1 in the problems that have nu instead."""
        return float(self.C)

    def _rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[RowBlocks, Any]:
        """(rows with codes or targets, X as scoring will need it; None for a store)."""
        raise NotImplementedError

    def _trained(self, rows: RowBlocks, X: Any, options: dict[str, Any], seen: Seen | None = None) -> FitResult:
        """Fit `rows`, and set support vectors and coefficients.

        seen : the rows of all calls of `partial_fit`, which are kept
        """
        kernel = "precomputed" if callable(self.kernel) else str(self.kernel)
        self._gamma = self._gamma_of(rows)
        # As in scikit-learn, parameters that the kernel does not use are ignored.
        given = {"gamma": self._gamma, "degree": int(self.degree), "coef0": float(self.coef0)}
        problem: dict[str, Any] = {
            "kernel": kernel, **{name: value for name, value in given.items() if name in PARAMETERS[kernel]},
            "solver": "smo", "C": self._cost, "bias": "free", "shrinking": bool(self.shrinking),
        }  # fmt: skip
        if self.memory is None:
            problem["cache_memory"] = int(self.cache_size * MIB)
        if self.max_iter >= 0:
            # A step of LIBSVM takes two rows of kernel values; a pass of bigsvm counts all n_samples of them.
            pairs = max(len(rows.classes) - 1, 1) if rows.classes is not None else 1
            problem["max_passes"] = 2.0 * max(self.max_iter, 1) * pairs / rows.n_samples
        said = (
            f"Solver terminated early (max_iter={self.max_iter}).  Consider pre-processing your data with "
            "StandardScaler or MinMaxScaler."
        )
        wanted, keep = relative_gap_for(self.tol, smooth=False), self.warm_start or seen is not None
        (result,) = self._fit([(rows, {**problem, **options})], wanted, said, keep)
        self.__dict__.pop("_seen", None)
        if seen is not None:
            self._seen = seen
        self._kernel = Kernel(kernel, self._gamma, int(self.degree), float(self.coef0))
        self.fit_status_ = int(result.status in UNCONVERGED)
        self.shape_fit_ = (rows.n_samples, rows.n_features)
        if callable(self.kernel):  # then `rows` are kernel values
            self.shape_fit_ = getattr(X, "shape", (rows.n_samples,))
        self._take(result, rows, X)
        result.close()
        return result

    def _is_large(self, X: Any, y: Any) -> bool:
        """Whether X is a dask array or frame of features, and y its labels."""
        return is_large(X, y) and not callable(self.kernel) and self.kernel != "precomputed"

    def _trained_on_disk(
        self, X: Any, y: np.ndarray, weights: np.ndarray | None, regression: bool, options: dict[str, Any]
    ) -> FitResult:
        """`_trained` for a dask array or frame, whose rows are on disk during the fit."""
        with on_disk(self, X, y, weights, regression) as rows:
            take_names(self, rows, X)
            result = self._trained(rows, None, options)
            if not hasattr(self, "support_vectors_"):  # the model of the linear kernel has weights instead
                self.support_vectors_ = rows_at(rows, self.support_)
        return result

    def _take(self, result: FitResult, fitted: RowBlocks, X: Any) -> None:
        """Set support vectors (sorted by class, then by row), their coefficients, and intercepts."""
        model = result.model
        n_classes = 1 if fitted.classes is None or model.one_class else len(fitted.classes)
        rows, beta = support_of(result, fitted)
        codes = np.zeros(len(rows), np.int64) if n_classes == 1 else classes_of_support(beta, n_classes)
        order = np.argsort(codes, kind="stable")
        self.support_ = rows[order].astype(np.int32 if self.shape_fit_[0] < 2**31 else np.int64)
        self.n_support_ = np.bincount(codes, minlength=n_classes).astype(np.int32)
        beta, codes = beta[:, order], codes[order]
        self.dual_coef_ = beta if n_classes == 1 else as_libsvm(beta, codes, n_classes)
        self.intercept_ = model.intercept.copy()
        if not (np.isfinite(self.dual_coef_).all() and np.isfinite(self.intercept_).all()):
            raise ValueError(
                "The dual coefficients or intercepts are not finite. The input data may contain large values and need "
                "to be preprocessed."
            )
        self._sparse = scipy.sparse.issparse(X) or (X is None and isinstance(getattr(model, "support", None), CSR))
        self._coef = model.coef if isinstance(model, LinearModel) else None
        # Scores use the kernel of the fit, whatever `set_params` says of the next one.
        self._function = self.kernel if callable(self.kernel) else None
        self._fitted_rows = X if callable(self.kernel) else None
        if hasattr(self, "support_vectors_"):
            del self.support_vectors_
        if self.kernel == "precomputed" or callable(self.kernel):
            self.support_vectors_ = np.empty((0, 0))
        elif X is not None:
            self.support_vectors_ = X[self.support_]
        elif isinstance(model, KernelModel):
            self.support_vectors_ = _picked(model, order)
        if self._sparse:  # matrices also where X was a sparse array, as in scikit-learn
            if scipy.sparse.issparse(getattr(self, "support_vectors_", None)):
                self.support_vectors_ = scipy.sparse.csr_matrix(self.support_vectors_)
            self.dual_coef_ = scipy.sparse.csr_matrix(self.dual_coef_)

    def _gamma_of(self, rows: RowBlocks) -> float:
        if callable(self.kernel) or self.kernel in ("precomputed", "linear") or self.gamma == "auto":
            return 1.0 / max(rows.n_features, 1)
        if self.gamma != "scale":
            return float(self.gamma)
        with errors_of_scikit_learn():
            return scale_gamma(rows)

    def _array_rows(self, X: Any, y: Any, **options: Any) -> tuple[Any, Any, Any]:
        """Check arrays: (X as scoring will need it, features or kernel values to fit, y)."""
        if callable(self.kernel):
            check_consistent_length(X, y)
            y = column_or_1d(y, warn=True)
            if hasattr(X, "shape") and not scipy.sparse.issparse(X):
                X, y = checked_X(self, X, y, dtype=None, **options)
            return X, kernel_values(self.kernel, X, X), y
        if scipy.sparse.issparse(X) and self.kernel == "precomputed":
            raise TypeError("Sparse precomputed kernels are not supported.")
        X, y = checked_X(self, X, y, dtype=FLOATS, **options)
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            shape = f"{X.shape[0]}x{X.shape[1]}"
            raise ValueError(f"Precomputed matrix must be a square matrix. Input is a {shape} matrix.")
        return X, X, y

    def _more_rows(self, X: Any, y: Any, **options: Any) -> tuple[Seen | None, Any, Any]:
        """Check arrays for `partial_fit`: (rows of earlier calls, X, y).

        Raises ValueError for a precomputed or callable kernel, whose values between old and new rows are not known.
        """
        if callable(self.kernel) or self.kernel == "precomputed":
            raise ValueError("partial_fit does not support precomputed and callable kernels: call fit on all rows")
        seen = seen_by(self, X)
        X, y = checked_X(self, X, y, dtype=FLOATS, reset=seen is None, **options)
        return seen, X, y

    def _checked(self, X: Any) -> Any:
        if self._function is not None:
            return kernel_values(self._function, X, self._fitted_rows)
        return checked_X(self, X, reset=False, dtype=FLOATS)

    def _model(self) -> Model:
        n_classes = len(self.classes_) if hasattr(self, "classes_") else 0
        classes = self.classes_ if n_classes else np.empty(0)
        positive, negative = models_of(n_classes, True)
        if self._coef is not None:
            return LinearModel(self._coef, self.intercept_, classes, positive=positive, negative=negative)
        dual_coef = self.dual_coef_.toarray() if self._sparse else self.dual_coef_
        if n_classes:
            dual_coef = as_pairs(dual_coef, np.repeat(np.arange(n_classes), self.n_support_), n_classes)
        order = np.argsort(self.support_)
        support = None
        if self._kernel.name != "precomputed":
            found = self.support_vectors_[order]
            support = CSR(found.data, found.indices, found.indptr.astype(np.int64)) if self._sparse else found
        return KernelModel(
            kernel=self._kernel,
            support=support,
            support_rows=self.support_[order].astype(np.int64),
            dual_coef=np.ascontiguousarray(dual_coef[:, order]),
            intercept=self.intercept_,
            classes=classes,
            n_features=self.shape_fit_[1 if self._function is None else 0],
            positive=positive,
            negative=negative,
        )

    @property
    def coef_(self) -> Any:
        """Weights of the features, (n_models, n_features), of the linear kernel; read only."""
        check_is_fitted(self)
        if self._coef is None:
            raise AttributeError("coef_ is only available when using a linear kernel")
        coef: Any = scipy.sparse.csr_matrix(self._coef) if self._sparse else self._coef.copy()
        values: np.ndarray = coef.data if self._sparse else coef
        values.flags.writeable = False
        return coef

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of scikit-learn's classes
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags


def kernel_values(function: Callable[..., Any], X: Any, Z: Any) -> np.ndarray:
    """K(X, Z) of a callable kernel.  Raises ValueError if it returns another shape."""
    K = function(X, Z)
    K = np.ascontiguousarray(K.toarray() if scipy.sparse.issparse(K) else K, np.float64)
    if K.shape != (_num_samples(X), _num_samples(Z)):
        raise ValueError(f"the kernel gave {K.shape} values for {_num_samples(X)} x {_num_samples(Z)} rows")
    return K


def _picked(model: KernelModel, order: np.ndarray) -> Any:
    """The support vectors of a model in another order, dense or SciPy CSR."""
    support: Any = model.support
    if isinstance(support, CSR):
        shape = (model.n_support, model.n_features)
        return scipy.sparse.csr_matrix((support.data, support.indices, support.indptr), shape=shape)[order]
    return np.asarray(support)[order]
