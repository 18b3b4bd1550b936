"""The TOML file of a retraining job, checked before anything else is read or written.

Relative paths are relative to the folder of the file, because cron and systemd start in another folder.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from bigsvm.config import OPTIONS, TYPED, FitConfig
from bigsvm.errors import BigSVMError, MissingInput, UsageError
from bigsvm.files.paths import check_here
from pipelines.tables import ERRORS, METRICS, Arrivals, Drift, Gates, Notify, Seconds, Strict, Tracking


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
        return options  # keep a value of the wrong type: the validation names it
    # Every field, including defaults that depend on the solver.
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


class Job(Strict):
    """One retraining job."""

    store: str
    """Rows to train on: a Zarr folder, or Parquet file, folder or glob."""
    label: str | None = None
    weight: str | None = None
    min_rows: int = Field(default=1, ge=1)
    """A store with fewer rows is refused as bad data."""
    holdout: str | None = None
    """Rows to judge on, with the same column names; None: no gate may use a metric."""
    registry: Path
    work: Path | None = None
    """Folder of the candidate, its record and the job's log; None: REGISTRY/work."""
    note: str = ""
    checkpoint_every: Seconds = 60.0
    """Seconds, or a duration such as 5m, between two checkpoints of the fit."""
    keep_versions: int | None = Field(default=None, ge=1)
    """Versions that stay in the registry, beside the current one and the one a rollback goes to; None: all."""
    warm_start: bool = False
    """Start the fit from the current model, if its training rows are the first rows of the store; else from zero."""
    arrivals: Arrivals | None = None
    fit: Annotated[FitConfig, BeforeValidator(_fit_options)] = FitConfig()
    gates: Gates = Gates()
    drift: Drift = Drift()
    notify: Notify = Notify()
    mlflow: Tracking | None = None

    @model_validator(mode="after")
    def _gates_can_be_met(self) -> Job:
        if self.gates.need_holdout and self.holdout is None:
            raise ValueError("the gates use a metric, but there is no holdout to measure it on")
        if self.drift.max_score_psi is not None and self.holdout is None:
            raise ValueError("drift.max_score_psi needs a holdout, and there is none")
        if self.regression and (self.gates.max_churn is not None or self.gates.min_class_share is not None):
            raise ValueError("max_churn and min_class_share need classes, but the model is a regression")
        if self.gates.max_calibration_error is not None and self.fit.calibrate is None:
            raise ValueError("max_calibration_error needs probabilities: set calibrate in [fit]")
        if self.warm_start and self.fit.warm_start is not None:
            raise ValueError("warm_start starts from the current model, but [fit] names another one")
        if self.holdout is not None and self.holdout == self.store:
            raise ValueError("holdout is the training store: its rows cannot show how the model does on new ones")
        strange = [metric for metric in self.gates.metrics if metric not in self.metrics]
        if strange:
            kind = "values" if self.regression else "classes"
            raise ValueError(f"the gates use {strange[0]}, which is not defined for a model of {kind}")
        return self

    @property
    def regression(self) -> bool:
        """Whether the model is a regression; otherwise it has classes."""
        return self.fit.regression

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that are measured on the holdout."""
        return (*ERRORS, "r2") if self.regression else METRICS

    @property
    def drop_metric(self) -> str:
        """The metric that may not fall by more than `gates.max_drop`."""
        return self.gates.drop_metric or ("r2" if self.regression else "balanced_accuracy")

    @property
    def folder(self) -> Path:
        """The folder of the job's own files."""
        return self.work or self.registry / "work"

    @property
    def checkpoint_every_s(self) -> float:
        """Seconds between two checkpoints of the fit."""
        return self.checkpoint_every

    @property
    def profiled(self) -> bool:
        """Whether the training rows are read once for their drift or class balance."""
        return self.drift.of_rows or self.drift.max_score_psi is not None or self.gates.min_class_share is not None

    @property
    def max_relative_gap(self) -> float:
        """The limit of the gap gate: as configured, else the tolerance of the fit."""
        return self.fit.tol if self.gates.max_relative_gap is None else self.gates.max_relative_gap


def read_job(path: str | Path) -> Job:
    """Read a job from a TOML file.

    Raises
    ------
    MissingInput : the file cannot be read.
    UsageError : it is not TOML; or a key is unknown, missing or has an invalid value (names the first).
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
        elif isinstance(value, str) and name in ("registry", "work"):
            check_here(value)
    arrivals = document.get("arrivals")
    if isinstance(arrivals, dict) and isinstance(arrivals.get("files"), str):
        arrivals["files"] = os.path.join(glob.escape(str(base)), arrivals["files"])
    fit = document.get("fit")
    if isinstance(fit, dict):
        for name in ("scratch", "scheduler_file", "scheduler-file", "warm_start", "warm-start"):
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
