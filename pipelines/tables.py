"""The tables of a job file besides [fit]: gates, drift, arrivals, MLflow, notifications."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bigsvm.errors import UsageError
from bigsvm.units import parse_seconds

METRICS = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision")
"""Metrics of classification: the larger the better, at most 1."""
ERRORS = ("mse", "mae")
"""Metrics of regression besides r2: the smaller the better."""
Metric = Literal["accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "r2"]
Outcome = Literal["promoted", "unchanged", "not_converged", "refused", "error"]
Share = Annotated[float, Field(ge=0, le=1)]


def _seconds(value: Any) -> Any:
    """Parse a duration such as 5m."""
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
    """The conditions that a candidate must meet before it replaces the current model."""

    max_relative_gap: float | None = Field(default=None, gt=0)
    """Limit of (P - D) / P; None: the tolerance of the fit."""
    recertify: bool = True
    """Prove the gap again from the saved model and the rows, in one pass, instead of trusting the run."""
    allow_unproved: bool = False
    """Accept a kernel model without a provable gap, such as sigmoid, if its optimality conditions hold."""
    allow_other_shape: bool = False
    """Accept other classes, or another number of features, than the current model's."""
    # on the holdout, for classes; each between 0 and 1; None: no gate
    min_accuracy: Share | None = None
    min_balanced_accuracy: Share | None = None
    min_f1: Share | None = None
    min_roc_auc: Share | None = None
    min_average_precision: Share | None = None
    # on the holdout, for regression
    min_r2: float | None = Field(default=None, le=1)
    max_mse: float | None = Field(default=None, ge=0)
    max_mae: float | None = Field(default=None, ge=0)
    # for both
    max_drop: Share | None = None
    """The candidate's `drop_metric` may be this much below the current model's, both on the holdout."""
    drop_metric: Metric | None = None
    """None: balanced_accuracy for classes, r2 for regression."""

    # comparison of both models on the holdout
    max_churn: Share | None = None
    """For classes: limit of the share of rows to which the candidate gives another label than the current model."""
    challenger: Literal["any", "not_worse", "better"] = "any"
    """A paired test (McNemar's for classes, t of squared errors for regression): not_worse refuses a candidate that is
    significantly worse, better refuses one that is not significantly better."""
    significance: float = Field(default=0.05, gt=0, lt=0.5)
    """One-sided significance level of that test."""
    max_calibration_error: Share | None = None
    """For classes, with `calibrate` in [fit]: limit of the mean distance, over the holdout, between the probability of
    the given label and how often it is right, in ten bins of that probability."""
    max_batch_ms: float | None = Field(default=None, gt=0)
    """Limit of the median time, in milliseconds on this machine, of labels for `batch_rows` rows of the holdout."""
    batch_rows: int = Field(default=1000, ge=1)
    # on the training rows, before the fit
    min_class_share: Share | None = None
    """Every class must have at least this share of the rows."""

    def minima(self) -> dict[str, float]:
        """Metric -> least value, for the gates that are set."""
        return self._asked("min", (*METRICS, "r2"))

    def maxima(self) -> dict[str, float]:
        """Metric -> largest value, for the gates that are set."""
        return self._asked("max", ERRORS)

    def _asked(self, side: str, metrics: tuple[str, ...]) -> dict[str, float]:
        limits = {metric: getattr(self, f"{side}_{metric}") for metric in metrics}
        return {metric: limit for metric, limit in limits.items() if limit is not None}

    @property
    def metrics(self) -> list[str]:
        """Every metric that a gate uses."""
        return [*self.minima(), *self.maxima(), *([] if self.drop_metric is None else [self.drop_metric])]

    @property
    def need_holdout(self) -> bool:
        return bool(self.minima() or self.maxima()) or self.max_drop is not None or self.asks_rows

    @property
    def asks_rows(self) -> bool:
        """Whether a gate needs predictions for each row of the holdout, or for a batch of them."""
        return self.compares or self.max_calibration_error is not None or self.max_batch_ms is not None

    @property
    def compares(self) -> bool:
        """Whether both models are compared on each row of the holdout."""
        return self.max_churn is not None or self.challenger != "any"


class Drift(Strict):
    """Limits of the change of rows and scores since the last promotion; None: no limit."""

    max_label_psi: float | None = Field(default=None, gt=0)
    """Population stability index of the shares of the classes; for regression, of the targets."""
    max_mean_shift: float | None = Field(default=None, gt=0)
    """For any feature: change of the mean, in pooled standard deviations."""
    max_zero_rate_change: Share | None = None
    """For any feature: change of the share of rows in which it is 0."""
    max_score_psi: float | None = Field(default=None, gt=0)
    """Population stability index of the scores on the holdout."""

    @property
    def of_rows(self) -> bool:
        return any(limit is not None for limit in (self.max_label_psi, self.max_mean_shift, self.max_zero_rate_change))


class Arrivals(Strict):
    """Files of new rows, each of which is appended to the store once."""

    files: str
    """A path, or a pattern such as incoming/*.svm.zst; the files are taken in the order of their names."""
    from_format: str | None = None
    """As --from of bigsvm ingest, if the names do not tell the format."""
    label: str | None = None
    weight: str | None = None
    zero_based: bool = False
    """For text: features are counted from 0."""


class Tracking(Strict):
    """The MLflow experiment to which the fits of the nights are logged."""

    experiment: str = Field(min_length=1)
    """Created if it does not exist."""
    uri: str | None = None
    """The tracking server; None: the environment's MLFLOW_TRACKING_URI, where one with a password belongs."""
    timeout: Seconds = 600.0
    """Seconds that MLflow may take in a night, including the upload of the model."""

    @model_validator(mode="after")
    def _no_secret(self) -> Tracking:
        if self.uri is not None and "@" in urlsplit(self.uri).netloc:
            raise ValueError("uri holds a user or password: leave it out, and set MLFLOW_TRACKING_URI")
        return self


class Notify(Strict):
    """Notifications about outcomes; secrets are in environment variables, which are named here."""

    command: tuple[str, ...] = ()
    """A program and its arguments, run without a shell; it gets the document of the run on standard input."""
    url: str | None = None
    """An address to which the document is posted."""
    url_env: str | None = None
    """Name of an environment variable with the address, if that is a secret itself."""
    token_env: str | None = None
    """Name of an environment variable with a bearer token."""
    on: tuple[Outcome, ...] = get_args(Outcome)
    timeout: Seconds = 10.0
    """Seconds for each attempt."""
    attempts: int = Field(default=3, ge=1, le=10)

    @model_validator(mode="after")
    def _addresses(self) -> Notify:
        if self.url is not None and self.url_env is not None:
            raise ValueError("url and url_env exclude each other")
        if self.token_env is not None and self.url is None and self.url_env is None:
            raise ValueError("token_env is for a webhook: set url or url_env")
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("url is not an http or https address")
            if parts.username is not None or parts.password is not None:
                raise ValueError("url contains a user or password: name an environment variable with url_env")
        return self
