"""The tables of a job file beside [fit]: what a candidate must be, how far rows may drift, who is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bigsvm.errors import UsageError
from bigsvm.units import parse_seconds

METRICS = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision")
"""Of a model of classes: the more the better, at most 1."""
ERRORS = ("mse", "mae")
"""Of regression, beside r2: the less the better."""
Metric = Literal["accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "r2"]
Share = Annotated[float, Field(ge=0, le=1)]


def _seconds(value: Any) -> Any:
    """A duration as people write it."""
    if not isinstance(value, str):
        return value
    try:
        return parse_seconds(value)
    except UsageError as error:
        raise ValueError(str(error)) from error


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Gates(Strict):
    """What a candidate must be before it replaces the current model."""

    max_relative_gap: float | None = Field(default=None, gt=0)
    """(P - D) / P, at most; None: the tolerance of the fit."""
    recertify: bool = True
    """Prove the gap again from the saved model and the rows, one pass, instead of taking the run's word."""
    allow_unproved: bool = False
    """Accept a model of a kernel for which no gap can be proved, such as sigmoid: its optimality conditions hold."""
    allow_other_shape: bool = False
    """Accept other classes or another number of features than the current model has."""
    # on the holdout rows, of classes; each between 0 and 1; None: not asked
    min_accuracy: Share | None = None
    min_balanced_accuracy: Share | None = None
    min_f1: Share | None = None
    min_roc_auc: Share | None = None
    min_average_precision: Share | None = None
    # on the holdout rows, of regression
    min_r2: float | None = Field(default=None, le=1)
    max_mse: float | None = Field(default=None, ge=0)
    max_mae: float | None = Field(default=None, ge=0)
    # of both
    max_drop: Share | None = None
    """The candidate's `drop_metric` may lie this far below the current model's, both on the same holdout rows."""
    drop_metric: Metric | None = None
    """None: balanced_accuracy of classes, r2 of regression."""

    def minima(self) -> dict[str, float]:
        """Metric -> least value, of those that are asked for."""
        return self._asked("min", (*METRICS, "r2"))

    def maxima(self) -> dict[str, float]:
        """Metric -> largest value, of those that are asked for."""
        return self._asked("max", ERRORS)

    def _asked(self, side: str, metrics: tuple[str, ...]) -> dict[str, float]:
        limits = {metric: getattr(self, f"{side}_{metric}") for metric in metrics}
        return {metric: limit for metric, limit in limits.items() if limit is not None}

    @property
    def metrics(self) -> list[str]:
        """Every metric that a gate asks for by name."""
        return [*self.minima(), *self.maxima(), *([] if self.drop_metric is None else [self.drop_metric])]

    @property
    def need_holdout(self) -> bool:
        return bool(self.minima() or self.maxima()) or self.max_drop is not None
