"""One retraining job, read from TOML and checked before anything is read or written.

Relative paths are taken from the folder of the file, since cron and systemd start elsewhere.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bigsvm.config import OPTIONS, TYPED, FitConfig
from bigsvm.errors import BigSVMError, MissingInput, UsageError
from bigsvm.problem.loss import LOSSES

METRICS = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision")
"""Of a model of classes: the more the better, at most 1."""
ERRORS = ("mse", "mae")
"""Of regression, beside r2: the less the better."""
Metric = Literal["accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "r2"]
Share = Annotated[float, Field(ge=0, le=1)]


def _fit_options(values: Any) -> Any:
    """Options of bigsvm fit, named as on the command line or as in Python."""
    if not isinstance(values, dict):
        return values
    options = {}
    for typed, value in values.items():
        name = typed.replace("-", "_")
        field = TYPED.get(name, name)
        options[field] = not value if field != name and OPTIONS[field].negated else value
    if "C" in options and "lam" in options:
        raise ValueError("C and lambda exclude each other: C = 1 / (lambda n_samples)")
    try:
        config = FitConfig.of(**options)
    except BigSVMError as error:
        raise ValueError(str(error)) from error
    except TypeError:
        return options  # a value of the wrong type: what follows names it
    # Every field, not what was typed: kernel solvers and papers have defaults of their own.
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Gates(_Strict):
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


class Job(_Strict):
    """One retraining job."""

    store: str
    """Rows to train on: a Zarr folder, or Parquet file, folder or glob."""
    label: str | None = None
    weight: str | None = None
    min_rows: int = Field(default=1, ge=1)
    """A store with fewer rows is refused as bad data."""
    holdout: str | None = None
    """Rows to judge on, with the same names of columns; None: no gate may ask for a metric."""
    registry: Path
    work: Path | None = None
    """Folder of the candidate, its record and the job's log; None: REGISTRY/work."""
    note: str = ""
    fit: Annotated[FitConfig, BeforeValidator(_fit_options)] = FitConfig()
    gates: Gates = Gates()

    @model_validator(mode="after")
    def _gates_can_be_met(self) -> Job:
        if self.gates.need_holdout and self.holdout is None:
            raise ValueError("the gates ask for a metric, and there is no holdout to measure it on")
        if self.holdout is not None and self.holdout == self.store:
            raise ValueError("holdout is the training store: its rows say nothing about new ones")
        strange = [metric for metric in self.gates.metrics if metric not in self.metrics]
        if strange:
            kind = "values" if self.regression else "classes"
            raise ValueError(f"the gates ask for {strange[0]}, which a model of {kind} has not got")
        return self

    @property
    def regression(self) -> bool:
        """Whether the model gives values; else it gives classes."""
        return LOSSES[self.fit.loss].regression

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is measured on the holdout."""
        return (*ERRORS, "r2") if self.regression else METRICS

    @property
    def drop_metric(self) -> str:
        """What may not fall by more than `gates.max_drop`."""
        return self.gates.drop_metric or ("r2" if self.regression else "balanced_accuracy")

    @property
    def folder(self) -> Path:
        """Where the job keeps its own files."""
        return self.work or self.registry / "work"

    @property
    def max_relative_gap(self) -> float:
        """The gap gate: as asked, else the tolerance of the fit."""
        return self.fit.tol if self.gates.max_relative_gap is None else self.gates.max_relative_gap


def read_job(path: str | Path) -> Job:
    """The job in a TOML file.

    Raises
    ------
    MissingInput : the file cannot be read. UsageError : it is not TOML, or names the first key that is
    unknown, missing or has a value that makes no sense.
    """
    file = Path(path)
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingInput(f"cannot read the job: {error.strerror}", str(file)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not TOML: {error}", str(file)) from error
    base = file.absolute().parent
    for name in ("store", "holdout", "registry", "work"):
        value = document.get(name)
        if isinstance(value, str) and "://" not in value:
            document[name] = str(base / value)
    fit = document.get("fit")
    if isinstance(fit, dict):
        for name in ("scratch", "scheduler_file", "scheduler-file"):
            if isinstance(fit.get(name), str):
                fit[name] = str(base / fit[name])
    try:
        return Job.model_validate(document)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        key = ".".join(str(part) for part in first["loc"])
        unknown = first["type"] == "extra_forbidden"
        what = f"unknown key {key!r}" if unknown else first["msg"].removeprefix("Value error, ")
        more = f"; and {len(others)} more" if others else ""
        raise UsageError(what if unknown or not key else f"{key}: {what}{more}", str(file)) from error
