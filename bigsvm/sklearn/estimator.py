"""The base class of all estimators: from parameters to a fit, and from a fit to attributes."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
from sklearn.base import _fit_context, is_outlier_detector
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, Interrupted
from bigsvm.events import Emit, Event, FitStarted, Warned, silent
from bigsvm.model.linear_model import Model
from bigsvm.observe.lines import PlainLines
from bigsvm.problem.certificate import Certificate, joined
from bigsvm.python_api.told import for_python, warning_in_python
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import scored_rows
from bigsvm.run.apply.scoring import budget_of, precompile_scoring_of
from bigsvm.run.execute.signals import hand_on
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.fit.scales import foretells_long_training
from bigsvm.sklearn.kept import Kept, fit_from, folders, kept_of
from bigsvm.sklearn.parts import computed_parts
from bigsvm.sklearn.rows import is_source, open_source, refuse_hidden
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.frames.columns import told_of_weights
from bigsvm.store.ingest.collections.lazy import is_lazy

_FINEST = {True: 1e-15, False: 1e-11}
"""Whether the loss is smooth -> the smallest gap that a fit is asked for; below it rounding in float64 dominates."""


_STALLED = "The fit ended before its tolerance was reached: it made no more progress."
_LONGER, _EASIER = (
    "increase max_iter",
    "scale the features to about [-1, 1], or choose a smaller C or a larger tol",
)


_BETWEEN = ("bigsvm", "sklearn", "contextlib", "numpy")
"""Packages and modules between a user's line and ours; functions of ours are decorated by NumPy's `errstate`."""
UNCONVERGED = {"stopped", "stalled"}
"""The statuses of a fit that did not reach its tolerance."""

P = ParamSpec("P")
T = TypeVar("T")
Problem: TypeAlias = tuple[RowBlocks, dict[str, Any]]
"""Rows, and options of `bigsvm.fit`."""


class Certified:
    """An estimator that is fitted by `bigsvm.fit`, and so has a certificate.

    Parameters
    ----------
    tol : as in scikit-learn; `relative_gap_for` says which duality gap stands for it
    max_iter : limit of the work; a fit that reaches it warns, and says which gap it has
    memory : memory budget, beyond what the process already uses: bytes, '2GiB' or '25%' of the memory limit in force;
        None: half of what the limit leaves
    threads : number of threads, on which the result does not depend; None: the cores that this process may use
    random_state : int, RandomState or None; None means seed 0, so a fit gives the same result each time
    verbose : print progress on stderr

    Attributes
    ----------
    certificate_ : Certificate    primal and dual objective, gap and `kind` ('proved') of the fit
    relative_gap_ : float         (P - D) / P, the largest of all models
    passes_ : float               bytes read for training and proofs, divided by the bytes of the data
    """

    tol: float
    max_iter: int
    memory: Any
    threads: int | None
    random_state: Any
    verbose: Any
    certificate_: Certificate
    relative_gap_: float
    passes_: float
    n_features_in_: int
    classes_: np.ndarray
    _start: list[Kept]
    _made_as: dict[str, Any]
    _shared_constraints: dict[str, list[Any]] = {
        "memory": [Interval(Integral, 1, None, closed="left"), str, None],
        "threads": [Interval(Integral, 1, None, closed="left"), None],
    }

    def _model(self) -> Model:
        """The fitted model, rebuilt from the attributes."""
        raise NotImplementedError

    def _scorer(self) -> Model:
        """The fitted model with the recipe of its rows, so that other rows are normalized, scaled and encoded alike."""
        model = self._model()
        model.about.update(rows=self._made())
        return model

    def _made(self) -> dict[str, Any]:
        """The recipe of the training rows and the names of their features; empty if there is neither."""
        names = getattr(self, "feature_names_in_", None)
        return {**({} if names is None else {"features": list(names)}), **getattr(self, "_made_as", {})}

    def _checked(self, X: Any) -> Any:
        """Check rows to be scored, and convert them for the model.  Raises ValueError."""
        raise NotImplementedError

    def _fit(self, problems: list[Problem], wanted: float, too_short: str, keep: bool = False) -> list[FitResult]:
        """Fit each problem, set the attributes of the proofs, and warn if the gap was not reached.

        problems : rows and options; several if each class needs labels of its own
        wanted : relative gap;  too_short : beginning of the warning if a limit ended the fit
        keep : start from the last fit, if its rows allow that, and keep this fit for the next
        """
        emit = _Foretold(PlainLines(sys.stderr) if self.verbose else silent)
        common = {"memory": self.memory, "threads": self.threads, "seed": seed_of(self.random_state), "tol": wanted}
        earlier = getattr(self, "_start", None) if keep else None
        with errors_of_scikit_learn(), folders(earlier, len(problems)) as starts:
            results = [
                fit_from(start, rows, emit=emit, **common, **options)
                for start, (rows, options) in zip(starts, problems, strict=True)
            ]
        for name in ("_start", "_made_as"):
            self.__dict__.pop(name, None)
        if made := results[0].model.about.get("rows"):
            self._made_as = made
        if keep:
            self._start = kept_of(results)
        self.certificate_ = joined([result.certificate for result in results])
        self.relative_gap_ = float(self.certificate_.relative_gap)
        self.passes_ = float(sum(result.figures["passes"] for result in results))
        ended = {result.status for result in results}
        if ended & UNCONVERGED:
            said, hint = (too_short, _LONGER) if "stopped" in ended else (_STALLED, _EASIER)
            message = (
                f"{said} The relative duality gap is {self.relative_gap_:.2g}, and tol={self.tol:g} asks for "
                f"{wanted:.2g}: {hint}."
            )
            told = (text for result in results for text in result.warnings if text not in emit.told)
            more = map(functools.partial(warning_in_python, estimators=True), dict.fromkeys(told))
            warnings.warn(" ".join((message, *more)), ConvergenceWarning, stacklevel=level_of_the_user())
        rows = problems[0][0]  # whose warnings are of the store; most of those of the fit are part of the warning above
        names = getattr(self, "feature_names_in_", None) if rows.uri == "memory" else None
        for text in dict.fromkeys((*rows.warnings, *told_of_weights(names, in_memory=True))):
            warnings.warn(warning_in_python(text, True), UserWarning, stacklevel=level_of_the_user())
        return results

    def _scores(self, X: Any) -> np.ndarray:
        """Scores of an array, or of the rows of a store, streamed; float64, shape (n_rows, n_models)."""
        check_is_fitted(self)
        if is_lazy(X) and hasattr(X, "compute"):
            with errors_of_scikit_learn():
                return np.concatenate([self._scores(part) for part in computed_parts(self, X)])
        if not is_source(X):
            X = self._checked(X)
            with errors_of_scikit_learn():
                scores = self._scorer().decision_function(X)
            return scores.reshape(len(scores), -1)
        with errors_of_scikit_learn():
            rows, model, config = open_source(X, labelled=False, like=self._made()), self._scorer(), self._reading()
            precompile_scoring_of(rows, model, silent)
            out, budget = np.empty((rows.n_samples, model.n_models)), budget_of(config)
            with warnings_of(rows) as emit, scored_rows(model, rows, config, budget, False, emit) as blocks:
                for block in blocks:
                    out[block.start : block.start + len(block.scores)] = block.scores
        return out

    def _reading(self) -> FitConfig:
        """The options for reading a store."""
        return FitConfig.of(memory=self.memory, threads=self.threads)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean accuracy, or R^2, on arrays with labels y, or on a store with labels of its own (and its weights).

        X : array, sparse matrix, frame; or path, URI or open store, then y may be left out
        """
        refuse_hidden(X=X, y=y, sample_weight=sample_weight)
        if not is_source(X) or y is not None:
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]  # of scikit-learn's mixin
        if sample_weight is not None:
            raise ValueError("sample_weight beside a store: its own weights count, name them with open_store(weight=)")
        check_is_fitted(self)
        with errors_of_scikit_learn():
            model = self._scorer()
            rows = open_source(X, "regression" if model.regression else "classification", like=self._made())
            with warnings_of(rows) as emit:
                found = evaluate(model, rows, self._reading(), emit)
        return float(found["r2" if model.regression else "accuracy"])


def take_width(estimator: Any, rows: RowBlocks) -> None:
    """Set, from a store, the attributes that scikit-learn's `validate_data` sets from an array."""
    estimator.n_features_in_ = rows.n_features
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    # If text columns were encoded, features are not columns, and must not be compared with those of a frame.
    encoded = rows.recipe.get("encoding", {}).get("columns", ())
    if rows.feature_names is not None and all(kind == "number" for _, kind, _ in encoded):
        estimator.feature_names_in_ = np.array(rows.feature_names, dtype=object)


def relative_gap_for(tol: float, smooth: bool) -> float:
    """The relative duality gap (P - D) / P that stands for scikit-learn's `tol`.

    In LIBLINEAR and LIBSVM tol bounds the violation of the optimality conditions, in units of the score.  The gap that
    remains was measured (docs/scikit-learn.md): about tol / 100 for losses with kinks, and about tol^2 for the squared
    losses, because there the gap falls as the square of the gradient.
    """
    gap = min(tol / 100.0, tol * tol) if smooth else tol / 100.0
    return max(gap, _FINEST[smooth])


def seed_of(random_state: Any) -> int:
    """The seed for a `random_state`; 0 for None."""
    if random_state is None:
        return 0
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def epochs_of(results: list[FitResult]) -> int:
    """Row visits / n_samples, rounded up; the largest of several fits."""
    return max(1, *(math.ceil(result.figures["epochs"]) for result in results))


def all_or_nothing(fit: Callable[P, T]) -> Callable[P, T]:
    """Decorator of methods that fit: checks of parameters, no hidden values, and all attributes or none.

    If the fit fails or is interrupted, the estimator stays as it was.  Otherwise it might have the new classes beside
    the old weights.
    """
    checked = _fit_context(prefer_skip_nested_validation=True)(fit)
    names = tuple(inspect.signature(fit).parameters)

    @functools.wraps(fit)
    def fit_or_leave(estimator: Any, *args: Any, **options: Any) -> Any:
        before = dict(vars(estimator))
        ignores_y = is_outlier_detector(estimator)
        try:
            given = dict(zip(names, (estimator, *args), strict=False)) | options
            refuse_hidden(**{name: value for name, value in given.items() if name != "y" or not ignores_y})
            return checked(estimator, *args, **options)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    return cast(Callable[P, T], fit_or_leave)


@contextmanager
def warnings_of(rows: RowBlocks) -> Iterator[Emit]:
    """Collects what a store warns of while it is scored; issued as Python warnings at the end, each one once."""
    said: dict[str, None] = dict.fromkeys(rows.warnings)

    def emit(event: Event) -> None:
        if isinstance(event, Warned):
            said[event.message] = None

    yield emit
    for text in said:
        warnings.warn(warning_in_python(text, True), UserWarning, stacklevel=level_of_the_user())


class _Foretold:
    """An Emit that issues Python warnings before training that takes long because of the scales of columns or rows.

    Other warnings of a fit are of no interest where it converges.  `told` are the messages that were issued.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._plan: dict[str, Any] = {}
        self.told: set[str] = set()

    def __call__(self, event: Event) -> None:
        self._emit(event)
        if isinstance(event, FitStarted):
            self._plan = event.plan
        if not isinstance(event, Warned) or event.message in self.told:
            return
        if foretells_long_training(event.message, self._plan):
            self.told.add(event.message)
            warnings.warn(warning_in_python(event.message, True), UserWarning, stacklevel=level_of_the_user())


def level_of_the_user() -> int:
    """The `stacklevel` with which a warning names the user's line, the first outside of what calls ours for them."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals["__name__"].partition(".")[0] in _BETWEEN and frame.f_back:
        level, frame = level + 1, frame.f_back
    return level


@contextmanager
def errors_of_scikit_learn() -> Iterator[None]:
    """Raise bad data or parameters as ValueError, as users of scikit-learn expect; hand on a signal that ended a fit.

    A search takes every Exception for a fit that failed, and would go on after SIGTERM.
    """
    try:
        yield
    except Interrupted as error:
        if error.by is None:  # the cluster was lost
            raise
        hand_on(error.by)
    except BigSVMError as error:
        raise for_python(error, estimators=True) from error.__cause__
