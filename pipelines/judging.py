"""A saved candidate held against the gates and the current model: nothing is taken from the run that made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError, MissingInput
from bigsvm.events import Emit, silent
from bigsvm.model import versions as registry
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.proof.certify import certify_model
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats.opener import open_store
from pipelines.config import Job
from pipelines.fitting import Found


@dataclass(frozen=True)
class Gate:
    """One demand on a candidate."""

    name: str
    passed: bool
    value: Any
    limit: Any
    message: str


@dataclass
class Verdict:
    """All gates that were looked at, and the figures behind them."""

    gates: list[Gate] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.gates) and all(gate.passed for gate in self.gates)

    @property
    def refusals(self) -> list[Gate]:
        return [gate for gate in self.gates if not gate.passed]

    def ask(self, name: str, passed: bool, value: Any, limit: Any, message: str) -> bool:
        """Add a gate; whether it was passed."""
        self.gates.append(Gate(name, passed, value, limit, message))
        return passed


def judge(job: Job, found: Found, candidate: Path, emit: Emit = silent) -> Verdict:
    """Hold a saved model against the gates; the dearer ones are asked only where the cheaper ones are passed.

    Nothing is taken from the run that made it: the model is read from disk, its gap is proved again
    (`gates.recertify`) and its metrics are measured on the holdout, as are the current model's.

    Raises
    ------
    DataError : the store, the holdout or the current model is bad.
    """
    verdict, gates = Verdict(), job.gates
    try:
        model = registry.check_model(candidate)
    except (DataError, MissingInput) as error:
        verdict.ask("sound", False, None, None, str(error))
        return verdict
    verdict.ask("sound", True, None, None, "it loads, its digests match, its numbers are finite")
    current_path = registry.current(job.registry)
    current = None if current_path is None else registry.check_model(current_path)
    if current is not None and not gates.allow_other_shape:
        difference = registry.shape_difference(model, current)
        text = difference or "features and classes are the current model's"
        if not verdict.ask("shape", difference is None, model.n_features, current.n_features, text):
            return verdict
    gap, kind = _gap(job, found, candidate, model.about, emit)
    verdict.metrics["relative_gap"] = gap
    passed = kind == "proved" and isinstance(gap, float) and 0 <= gap <= job.max_relative_gap
    text = f"relative gap {_shown(gap)} ({kind})"
    if kind != "proved" and model.about.get("status") == "kkt":
        passed = gates.allow_unproved
        text = "no gap can be proved for this kernel; the optimality conditions hold"
        text += "" if passed else ", which allow_unproved = true would accept"
    if not verdict.ask("gap", passed, gap, job.max_relative_gap, text):
        return verdict
    if job.holdout is not None:
        _judge_metrics(job, verdict, model, current, emit)
    return verdict


def open_rows(job: Job, path: str) -> RowBlocks:
    """A store of the job's; few whole numbers are values where the model is one of values."""
    return open_store(path, label=job.label, weight=job.weight, task="regression" if job.regression else "auto")


def _gap(job: Job, found: Found, candidate: Path, about: dict[str, Any], emit: Emit) -> tuple[float | None, str]:
    """(relative gap, what it is worth) of a saved model."""
    if job.gates.recertify:
        try:
            proof = certify_model(candidate, found.store, job.fit, emit)
        except DataError as error:
            return None, f"no proof: {error}"
        return proof["relative_gap"], proof["certificate"]
    claim = about.get("certificate") or {}
    gaps = claim.get("relative_gap") or [None]
    return (None if None in gaps else float(max(gaps))), str(claim.get("kind"))


def _judge_metrics(job: Job, verdict: Verdict, model: Any, current: Any, emit: Emit) -> None:
    """The gates that are measured on the holdout."""
    assert job.holdout is not None
    holdout = open_rows(job, job.holdout)
    measured = evaluate(model, holdout, job.fit, emit)
    verdict.metrics.update({metric: measured[metric] for metric in job.metrics})
    verdict.metrics["holdout_rows"] = measured["n_rows"]
    verdict.metrics["holdout_fingerprint"] = holdout.fingerprint
    for metric, least in job.gates.minima().items():
        value = measured[metric]
        verdict.ask(f"min_{metric}", value is not None and value >= least, value, least, f"{metric} {_shown(value)}")
    for metric, most in job.gates.maxima().items():
        value = measured[metric]
        verdict.ask(f"max_{metric}", value is not None and value <= most, value, most, f"{metric} {_shown(value)}")
    if job.gates.max_drop is None or current is None:
        return
    other_columns = holdout.layout == "dense" and current.n_features != holdout.n_features
    if current.regression != model.regression or other_columns:  # allow_other_shape: nothing of theirs can be compared
        return
    metric = job.drop_metric
    value, former = measured[metric], evaluate(current, holdout, job.fit, emit)[metric]
    verdict.metrics[f"current_{metric}"] = former
    # A metric that the current model has not got cannot fall; one that the candidate has not got has fallen.
    fine = former is None or (value is not None and value >= former - job.gates.max_drop)
    limit = None if former is None else former - job.gates.max_drop
    text = f"{metric} {_shown(value)}, the current model's {_shown(former)}"
    verdict.ask("max_drop", fine, value, limit, text)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
