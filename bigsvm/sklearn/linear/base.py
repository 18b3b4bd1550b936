"""The base class of the linear estimators: fits without a kernel, coefficients and intercepts."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils._param_validation import Interval, StrOptions

from bigsvm.model.linear_model import LinearModel
from bigsvm.run.fit.outcome import FitResult
from bigsvm.sklearn.appended import Seen
from bigsvm.sklearn.estimator import Certified, Problem, epochs_of, relative_gap_for
from bigsvm.sklearn.rows import SMALL, checked_X

_POSITIVE = Interval(Real, 0.0, None, closed="neither")


class Linear(Certified):
    """Base class of LinearSVC and LinearSVR."""

    C: float
    loss: str
    dual: Any
    fit_intercept: bool
    intercept_scaling: float
    solver: str
    warm_start: bool
    coef_: Any
    intercept_: Any
    n_iter_: int
    _seen: Seen
    _parameter_constraints: dict[str, list[Any]] = {
        **Certified._shared_constraints,
        "dual": ["boolean", StrOptions({"auto"})],
        "tol": [_POSITIVE],
        "C": [_POSITIVE],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [_POSITIVE],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "solver": [str],
        "warm_start": ["boolean"],
    }

    def _trained(self, problems: list[Problem], seen: Seen | None = None) -> list[FitResult]:
        """Fit each problem, and set the attributes.  seen : rows of all calls of `partial_fit`, which are kept"""
        bias = {"bias": "augmented", "bias_scale": float(self.intercept_scaling)}
        loss = self._loss()
        problem = {"loss": loss, "C": float(self.C), **(bias if self.fit_intercept else {"bias": "none"})}
        how = {"solver": self.solver, "max_passes": float(max(self.max_iter, 1))}
        wanted = relative_gap_for(self.tol, loss.startswith("squared"))
        said = f"{type(self).__name__} did not converge within max_iter={self.max_iter}."
        keep = self.warm_start or seen is not None
        results = self._fit([(rows, {**problem, **how, **options}) for rows, options in problems], wanted, said, keep)
        self.__dict__.pop("_seen", None)
        if seen is not None:
            self._seen = seen
        models = [result.model for result in results if isinstance(result.model, LinearModel)]
        self.coef_ = models[0].coef if len(models) == 1 else np.concatenate([model.coef for model in models])
        self.intercept_ = np.concatenate([model.intercept for model in models]) if self.fit_intercept else 0.0
        self.n_iter_ = epochs_of(results)
        for result in results:
            result.close()
        return results

    def _loss(self) -> str:
        """The name of bigsvm's loss."""
        return self.loss

    def _checked(self, X: Any) -> Any:
        return checked_X(self, X, reset=False, dtype=SMALL)

    def _linear_model(self, classes: np.ndarray) -> LinearModel:
        coef = self.coef_.toarray() if scipy.sparse.issparse(self.coef_) else self.coef_
        coef = np.atleast_2d(np.asarray(coef, np.float64))
        intercept = np.broadcast_to(np.asarray(self.intercept_, np.float64), (len(coef),))
        return LinearModel(coef, intercept, classes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of scikit-learn's classes
        tags.input_tags.sparse = True
        return tags
