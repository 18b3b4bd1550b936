"""The judgement of a saved candidate by the gates, independently of the run that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigsvm.errors import DataError, MissingInput
from bigsvm.events import Emit, silent
from bigsvm.model import versions as registry
from bigsvm.model.model_rows import check_alike
from bigsvm.model.versions.whole_models import check_model, shape_difference
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.scoring import budget_of
from bigsvm.run.proof.certify import certify_model
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.delegated import check_chunks
from bigsvm.store.formats.opener import open_store
from bigsvm.store.labels import Task
from pipelines.config import Job
from pipelines.fitting import Found
from pipelines.gates import drift, profile
from pipelines.gates.latency import batch_ms
from pipelines.gates.paired import Paired, compare
from pipelines.gates.verdict import Verdict


def judge(job: Job, found: Found, candidate: Path, emit: Emit = silent) -> Verdict:
    """Judge a saved model; expensive gates are evaluated only if the cheap ones are passed.

    The model is read from disk, its gap is proved again (`gates.recertify`), and its metrics and those of the current
    model are measured on the holdout.  Nothing is taken from the run that made it.

    Raises
    ------
    DataError : the store, the holdout or the current model is damaged.
    """
    verdict, gates = Verdict(), job.gates
    try:
        model = check_model(candidate)
    except (DataError, MissingInput) as error:
        verdict.ask("sound", False, None, None, str(error))
        return verdict
    verdict.ask("sound", True, None, None, "it loads, its digests match, its numbers are finite")
    current_path = registry.current(job.registry)
    verdict.current = None if current_path is None else int(current_path.name)
    current = None if current_path is None else check_model(current_path)
    if current is not None and not gates.allow_other_shape:
        difference = shape_difference(model, current)
        text = difference or "features and classes are the current model's"
        others = (
            model.n_features != current.n_features
        )  # if the numbers of features differ, column numbers cannot be compared
        ours, theirs = (model.n_features, current.n_features) if others or difference is None else (None, None)
        if not verdict.ask("shape", difference is None, ours, theirs, text):
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
    if verdict.passed and job.holdout is not None and (job.gates.asks_rows or job.drift.max_score_psi is not None):
        _judge_rows(job, found, verdict, model, current)
    return verdict


def look(job: Job, found: Found) -> Verdict:
    """The gates on the training rows, before anything is trained; nothing is read if there are none.

    The profile of the rows is kept in WORK/profiles, for comparison in later nights.

    Raises
    ------
    DataError : rows are bad.  BudgetExceeded : the sums for each feature do not fit fit.memory.
    """
    verdict = Verdict()
    if not job.profiled:
        return verdict
    path = profile.path_of(job.folder, found.problem)
    now = profile.Profile.load(path)
    if now is None:
        now = profile.profile_of(found.store, budget_of(job.fit))
        now.save(path)
    else:
        check_chunks(found.store)
    drift.ask_of_rows(job, verdict, _former(job), now)
    return verdict


def _former(job: Job) -> profile.Profile | None:
    """The profile of the rows of the last promotion, if that run made one."""
    problem = _last_problem(job)
    return profile.Profile.load(profile.path_of(job.folder, problem)) if problem else None


def _last_problem(job: Job) -> str | None:
    """The digest of the rows and options of the last promotion."""
    return (promotions(job) or [{"metrics": {}}])[-1]["metrics"].get("problem")


def promotions(job: Job) -> list[dict[str, Any]]:
    """The entries of the history about promotions by a job, including one that was killed before its entry.

    Manual changes, by a rollback or `bigsvm promote`, are not included, because they say nothing about the rows that
    were seen.
    """
    entries = registry.history(job.registry)
    return [entry for entry in entries if entry["action"] != "rollback" and "problem" in entry.get("metrics", {})]


def _judge_rows(job: Job, found: Found, verdict: Verdict, model: Any, current: Any) -> None:
    """The gates that compare both models on each row of the holdout, and those on scores, probabilities and time."""
    assert job.holdout is not None
    holdout = open_rows(job, job.holdout, model)
    theirs = None if current is None else _as_theirs(job, model, current)
    rival = None if theirs is None else current
    # If both models read the same features, which is usual, the rows are read once.
    alike = theirs is None or _made_so(theirs) == _made_so(holdout)
    paired = compare(model, rival, holdout, budget_of(job.fit), None if alike else theirs)
    if rival is not None:
        _ask_paired(job, verdict, paired)
    _ask_service(job, verdict, model, holdout, paired.calibration_error)
    if job.drift.max_score_psi is not None:
        drift.ask_of_scores(job, verdict, _former(job), paired.scores)
        path = profile.path_of(job.folder, found.problem)
        now = profile.Profile.load(path)
        if now is not None and found.problem != _last_problem(job):  # otherwise this profile is the reference itself
            now.scores = paired.scores
            now.save(path)


def _ask_service(job: Job, verdict: Verdict, model: Any, holdout: RowBlocks, error: float | None) -> None:
    """The gates on a prediction service: probabilities, and time."""
    gates = job.gates
    if gates.max_calibration_error is not None:
        passed = error is not None and error <= gates.max_calibration_error
        verdict.metrics["calibration_error"] = error
        text = f"probabilities of the labels given are {_shown(error)} away from how often they are right"
        text = "the model gives no probabilities" if error is None else text
        verdict.ask("max_calibration_error", passed, error, gates.max_calibration_error, text)
    if gates.max_batch_ms is not None:
        taken, rows = batch_ms(model, holdout, gates.batch_rows, budget_of(job.fit))
        verdict.metrics["batch_ms"] = taken
        text = f"labels of {rows} rows take {taken:.3g} ms"
        verdict.ask("max_batch_ms", taken <= gates.max_batch_ms, taken, gates.max_batch_ms, text)


def _ask_paired(job: Job, verdict: Verdict, paired: Paired) -> None:
    gates = job.gates
    if gates.max_churn is not None:
        text = f"{paired.changed} of {paired.n_rows} rows of the holdout get another label"
        verdict.metrics["churn"] = paired.churn
        verdict.ask("max_churn", paired.churn <= gates.max_churn, paired.churn, gates.max_churn, text)
    if gates.challenger == "any":
        return
    better = gates.challenger == "better"
    chance = paired.chance(better)
    verdict.metrics[f"p_{'better' if better else 'worse'}"] = chance
    if paired.regression:
        counted = f"the mean squared error is {abs(paired.mean):.6g} {'smaller' if paired.mean > 0 else 'larger'}"
    else:
        counted = f"{paired.won} rows only the candidate gets right, {paired.lost} only the current model"
    passed = chance < gates.significance if better else chance >= gates.significance
    said = f"{'no better' if better else 'worse'} beyond chance" if not passed else "as asked"
    text = f"{said}: {counted}, one-sided p {chance:.4g}"
    verdict.ask("challenger", passed, chance, gates.significance, text)


def _made_so(rows: RowBlocks) -> tuple[Any, ...]:
    """The properties in which the rows of two models may differ."""
    return rows.recipe, list(rows.feature_names or []), rows.n_features


def _as_theirs(job: Job, model: Any, current: Any) -> RowBlocks | None:
    """The holdout with the rows as the current model needs them; None if that is impossible."""
    if current.regression != model.regression:
        return None
    assert job.holdout is not None
    try:
        rows = open_rows(job, job.holdout, current)
        check_alike(current.about.get("rows", {}), rows)
    except DataError:
        if not job.gates.allow_other_shape:
            raise
        return None  # it has features that no longer exist
    return None if rows.layout == "dense" and current.n_features != rows.n_features else rows


def open_rows(job: Job, path: str, model: Any = None) -> RowBlocks:
    """Open a store of the job; for a regression, labels are targets even if they are few whole numbers.

    model : read the features in the order of this model, by their names; labels and weights are those of the job, so
        that two models are measured alike
    """
    kept = {} if model is None else model.about.get("rows", {})
    like = {name: value for name, value in kept.items() if name not in ("label_column", "weight_column")} or None
    task: Task = "regression" if job.regression else "auto"
    return open_store(path, label=job.label, weight=job.weight, task=task, like=like)


def _gap(job: Job, found: Found, candidate: Path, about: dict[str, Any], emit: Emit) -> tuple[float | None, str]:
    """(relative gap, kind of certificate) of a saved model."""
    if job.gates.recertify:
        try:
            proof = certify_model(candidate, found.store, job.fit, emit)
        except DataError as error:
            return None, f"no proof on {job.store}: {error}"
        return proof["relative_gap"], proof["certificate"]
    claim = about.get("certificate") or {}
    gaps = claim.get("relative_gap") or [None]
    return (None if None in gaps else float(max(gaps))), str(claim.get("kind"))


def _judge_metrics(job: Job, verdict: Verdict, model: Any, current: Any, emit: Emit) -> None:
    """The gates on metrics of the holdout."""
    assert job.holdout is not None
    holdout = open_rows(job, job.holdout, model)
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
    theirs = _as_theirs(job, model, current)
    if theirs is None:  # allow_other_shape: the metrics of the current model cannot be compared
        return
    metric = job.drop_metric
    value, former = measured[metric], evaluate(current, theirs, job.fit, emit)[metric]
    verdict.metrics[f"current_{metric}"] = former
    # A metric that is undefined for the current model cannot have fallen; one that is undefined for the candidate has.
    fine = former is None or (value is not None and value >= former - job.gates.max_drop)
    limit = None if former is None else former - job.gates.max_drop
    text = f"{metric} {_shown(value)}, the current model's {_shown(former)}"
    verdict.ask("max_drop", fine, value, limit, text)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
