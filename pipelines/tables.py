"""The tables of a job file beside [fit]: what a candidate must be, how far rows may drift, who is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bigsvm.errors import UsageError
from bigsvm.units import parse_seconds

METRICS = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision")
"""Of a model of classes: the more the better, at most 1."""
ERRORS = ("mse", "mae")
"""Of regression, beside r2: the less the better."""
Metric = Literal["accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "r2"]
Outcome = Literal["promoted", "unchanged", "not_converged", "refused", "error"]
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

    # of both models on the same holdout rows
    max_churn: Share | None = None
    """Of classes: the share of rows to which the candidate gives another label than the current model."""
    challenger: Literal["any", "not_worse", "better"] = "any"
    """A paired test (McNemar's of classes, t of squared errors): not_worse refuses a candidate that is worse beyond
    chance, better refuses one that is not better beyond chance."""
    significance: float = Field(default=0.05, gt=0, lt=0.5)
    """One-sided level of that test."""
    max_calibration_error: Share | None = None
    """Of classes, with `calibrate` in [fit]: the mean distance, over the rows of the holdout, between the probability
    of the label that is given and how often it is right, in ten bins of that probability."""
    max_batch_ms: float | None = Field(default=None, gt=0)
    """The median time, in milliseconds on this machine, of labels for `batch_rows` rows of the holdout."""
    batch_rows: int = Field(default=1000, ge=1)
    # on the rows to train on, before the fit
    min_class_share: Share | None = None
    """Every class has at least this share of them."""

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
        return bool(self.minima() or self.maxima()) or self.max_drop is not None or self.asks_rows

    @property
    def asks_rows(self) -> bool:
        """Whether something is asked of each row of the holdout, or of a batch of them."""
        return self.compares or self.max_calibration_error is not None or self.max_batch_ms is not None

    @property
    def compares(self) -> bool:
        """Whether both models are asked about each row of the holdout."""
        return self.max_churn is not None or self.challenger != "any"


class Drift(Strict):
    """How far rows and scores may move from those of the last promotion; None: not looked at."""

    max_label_psi: float | None = Field(default=None, gt=0)
    """Population stability index of the shares of the classes; of regression, of the values."""
    max_mean_shift: float | None = Field(default=None, gt=0)
    """Of any feature: the mean moved by so many standard deviations (pooled)."""
    max_zero_rate_change: Share | None = None
    """Of any feature: the share of rows in which it is 0 changed by this."""
    max_score_psi: float | None = Field(default=None, gt=0)
    """Population stability index of the scores on the holdout."""

    @property
    def of_rows(self) -> bool:
        return any(limit is not None for limit in (self.max_label_psi, self.max_mean_shift, self.max_zero_rate_change))


class Arrivals(Strict):
    """Files of new rows, each of which is put behind those of the store once."""

    files: str
    """A path, or a pattern such as incoming/*.svm.zst; taken in the order of their names."""
    from_format: str | None = None
    """As --from of bigsvm ingest, where the names do not tell."""
    label: str | None = None
    weight: str | None = None
    zero_based: bool = False
    """Of text: features are counted from 0."""


class Tracking(Strict):
    """Where MLflow keeps the fits of the nights."""

    experiment: str = Field(min_length=1)
    """Made where there is none."""
    uri: str | None = None
    """Of the tracking server; None: MLFLOW_TRACKING_URI of the environment, where one with a password belongs."""
    timeout: Seconds = 600.0
    """Seconds that MLflow may take in a night, the copying of the model included."""

    @model_validator(mode="after")
    def _no_secret(self) -> Tracking:
        if self.uri is not None and "@" in urlsplit(self.uri).netloc:
            raise ValueError("uri holds a user or password: leave it out, and set MLFLOW_TRACKING_URI")
        return self


class Notify(Strict):
    """Who is told of each outcome; a secret is named here and lies in the environment."""

    command: tuple[str, ...] = ()
    """A program and its arguments, no shell; it gets the document of the run on standard input."""
    url: str | None = None
    """The document is posted there."""
    url_env: str | None = None
    """Name of an environment variable with the address, where that is a secret itself."""
    token_env: str | None = None
    """Name of an environment variable with a bearer token."""
    on: tuple[Outcome, ...] = get_args(Outcome)
    timeout: Seconds = 10.0
    """Of each attempt, in seconds."""
    attempts: int = Field(default=3, ge=1, le=10)

    @model_validator(mode="after")
    def _addresses(self) -> Notify:
        if self.url is not None and self.url_env is not None:
            raise ValueError("url and url_env exclude each other")
        if self.token_env is not None and self.url is None and self.url_env is None:
            raise ValueError("token_env is for a webhook: say url or url_env")
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("url is no http or https address")
            if parts.username is not None or parts.password is not None:
                raise ValueError("url holds a user or password: name an environment variable with url_env")
        return self
