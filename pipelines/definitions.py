"""A retraining job as Dagster assets: `BIGSVM_JOB=JOB.toml dagster dev -m pipelines.definitions`.

rows       the training rows; the later assets do not run if nothing has changed
candidate  the fit; a retry continues from its checkpoint
verdict    all gates, as one blocking check
current    the promotion

A run belongs to one night, a partition named by its day in UTC, so the history by day shows certificates and gates. The
rows are those in the store at the time of the run, whatever the partition.

The steps share the job's folder; only small JSON values are passed between assets.  `python -m pipelines.retrain` can
perform any of the steps as well.
"""

import dataclasses
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from bigsvm.errors import BigSVMError
from bigsvm.events import WAITING, Emit, Event, WorkStarted
from bigsvm.files.atomic import file_digest
from bigsvm.model import versions as registry
from bigsvm.observe.jsonl import plain
from bigsvm.store.identity import digest_of
from pipelines import journal, steps
from pipelines.config import Job, read_job
from pipelines.gates.profile import forget_profiles
from pipelines.gates.verdict import Verdict

JOB_FILE = "BIGSVM_JOB"
_HOPELESS = (2, 65, 66, 78)
"""Exit codes of failures that a retry cannot cure."""
_RETRY = dg.RetryPolicy(max_retries=3, delay=30, backoff=dg.Backoff.EXPONENTIAL)
NIGHTS = dg.DailyPartitionsDefinition(start_date="2020-01-01", end_offset=1)
"""A partition for each day, including today."""
_CERTIFICATE = ("relative_gap", "certificate", "objective", "dual_objective", "passes", "n_support", "solver", "C")


def definitions(
    config: str | Path, cron: str = "15 2 * * *", look_every_s: int = 300, retry: dg.RetryPolicy = _RETRY
) -> dg.Definitions:
    """Assets, job, daily schedule and sensor for a job file, which every step reads anew.

    cron : schedule of the daily run, in UTC;  look_every_s : seconds between the sensor's looks for new rows
    """
    assets = _assets(Path(config), retry)
    nightly = dg.define_asset_job("nightly", selection=dg.AssetSelection.assets(*assets))

    @dg.schedule(job=nightly, cron_schedule=cron)
    def every_night(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        """A run for each day."""
        return dg.RunRequest(partition_key=night_of(context.scheduled_execution_time))

    @dg.sensor(job=nightly, minimum_interval_seconds=look_every_s)
    def new_rows(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """A run for each state of rows and options that was not promoted yet."""
        try:
            job = read_job(config)
            waiting, found = steps.waiting(job), steps.detect(job)
        except BigSVMError as error:
            return dg.SkipReason(str(error))
        # Dagster starts no second run of the same key.  Rows may be promoted again after others were.
        last = (steps.promotions(job) or [{"version": 0}])[-1]["version"]
        key = f"{last}+{found.problem}"
        if waiting:  # the store's digest does not include their rows yet
            key += f"+{digest_of({str(path): file_digest(path) for path in waiting})}"
            tags = {"bigsvm/reason": f"files wait to be added: {len(waiting)}"}
            return dg.SensorResult(
                run_requests=[dg.RunRequest(run_key=key, tags=tags, partition_key=night_of(datetime.now(UTC)))],
                cursor=key,
            )
        if not found.changed:
            return dg.SkipReason(found.reason)
        request = dg.RunRequest(
            run_key=key, tags={"bigsvm/reason": found.reason}, partition_key=night_of(datetime.now(UTC))
        )
        return dg.SensorResult(run_requests=[request], cursor=key)

    return dg.Definitions(assets=assets, jobs=[nightly], schedules=[every_night], sensors=[new_rows])


def night_of(at: datetime) -> str:
    """The partition of a time: its day in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d")


def _assets(config: Path, retry: dg.RetryPolicy) -> list[dg.AssetsDefinition]:
    @dg.asset(output_required=False, retry_policy=retry, group_name="nights", partitions_def=NIGHTS)
    def rows(context: dg.AssetExecutionContext) -> Iterator[Any]:
        """Rows and options that differ from those of the last promotion."""
        job = _job(config)
        with _said(), steps.alone(job):
            registry.settle(job.registry, waits_told(context))
            added = steps.arrive(job)
            found = steps.detect(job)
            version = steps.promoted_already(job, found)
            if version is not None:
                _over(job, found.problem)
            if version is not None or not found.changed:
                context.log.info("nothing to do: %s", found.reason)
                return
            looked = steps.look(job, found)
        about = {"rows": found.store.n_samples, "features": found.store.n_features, "reason": found.reason}
        about.update(fingerprint=found.store.fingerprint, rows_added=sum(added.values()))
        _refuse(job, looked, found.problem)
        yield dg.Output(found.problem, metadata=_shown({**about, **_gates(looked)}))

    @dg.asset(retry_policy=retry, group_name="nights", partitions_def=NIGHTS)
    def candidate(context: dg.AssetExecutionContext, rows: str) -> dg.Output[str]:
        """A model and its certificate."""
        job = _job(config)
        with _said(), steps.alone(job):
            found = _same(job, rows)
            made = steps.fit(job, found)
        result = made.result
        about = {name: result[name] for name in _CERTIFICATE}
        about.update(
            seconds=result["seconds"]["total"], fitted=made.how, status=made.status, attempt=context.retry_number
        )
        context.log.info("%s: %s, relative gap %s", made.how, made.status, result["relative_gap"])
        return dg.Output(rows, metadata=_shown(about))

    @dg.asset(
        retry_policy=retry,
        group_name="nights",
        partitions_def=NIGHTS,
        check_specs=[dg.AssetCheckSpec("gates", asset="verdict", blocking=True, description="All gates of the job.")],
    )
    def verdict(candidate: str) -> Iterator[Any]:
        """The candidate, read from disk, compared with the gates and the current model."""
        job = _job(config)
        with _said(), steps.alone(job):
            found = _same(job, candidate)
            judged = steps.judge(job, found, job.folder / journal.MODEL)
        document = plain(dataclasses.asdict(judged))
        yield dg.Output(document, metadata=_shown({**judged.metrics, **_gates(judged)}))
        if not judged.passed:
            _log(job, "refused", 76, found.problem, gates=document["gates"])
        said = "; ".join(f"{gate.name}: {gate.message}" for gate in judged.refusals) or "all passed"
        about = _shown({**_gates(judged), "said": said})
        yield dg.AssetCheckResult(check_name="gates", passed=judged.passed, metadata=about)

    @dg.asset(retry_policy=retry, group_name="nights", partitions_def=NIGHTS)
    def current(context: dg.AssetExecutionContext, candidate: str, verdict: dict[str, Any]) -> dg.Output[int]:
        """The model that readers load."""
        job = _job(config)
        with _said(), steps.alone(job):
            registry.settle(job.registry, waits_told(context))
            found = steps.detect(job)
            version = steps.promoted_already(job, found)
            if version is None:
                found = _same(job, candidate)
                gates = [steps.Gate(**gate) for gate in verdict["gates"]]
                judged = Verdict(gates, verdict["metrics"], verdict.get("current"))
                version = _promoted(job, found, judged, waits_told(context))
            _log(job, "promoted", 0, found.problem, version=version)
            _over(job, found.problem)
        return dg.Output(version, metadata=_shown({"version": version, "registry": str(job.registry)}))

    return [rows, candidate, verdict, current]


def waits_told(context: Any) -> Emit:
    """Events of which those go to the log of a Dagster run that say for whom it waits: nothing else shows that."""

    def emit(event: Event) -> None:
        if isinstance(event, WorkStarted) and event.what.startswith(WAITING):
            context.log.info(event.what)

    return emit


def _promoted(job: Job, found: steps.Found, judged: Verdict, emit: Emit) -> int:
    """The version of a promoted candidate, which is judged again if another model has become current meanwhile."""
    candidate = job.folder / journal.MODEL
    for _ in range(steps.CHANCES - 1):
        try:
            return steps.promote(job, found, candidate, judged, emit)
        except registry.CurrentMoved:
            judged = steps.judge(job, found, candidate)
    return steps.promote(job, found, candidate, judged, emit)


def _job(config: Path) -> Job:
    with _said():
        return read_job(config)


class _said:
    """Turns an error of bigsvm into a failure with one sentence; it is retried only if that may help."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, BigSVMError) and error.code in _HOPELESS:
            raise dg.Failure(str(error), metadata={"exit_code": error.code}, allow_retries=False) from error


def _same(job: Job, problem: str) -> steps.Found:
    """The state that the step before saw.  Fails if rows or options have changed since; the next run takes them."""
    found = steps.detect(job)
    if found.problem != problem:
        raise dg.Failure("rows or options have changed since this run began: start another", allow_retries=False)
    return found


def _refuse(job: Job, looked: Verdict, problem: str) -> None:
    """End the run if a gate on the rows refuses them."""
    if looked.refusals:
        said = "; ".join(f"{gate.name}: {gate.message}" for gate in looked.refusals)
        _log(job, "refused", 76, problem, gates=plain(dataclasses.asdict(looked))["gates"])
        about = _shown(_gates(looked))
        raise dg.Failure(f"refused by gate {said}; the current model stays", metadata=about, allow_retries=False)


def _log(job: Job, status: str, code: int, problem: str, **more: Any) -> None:
    steps.tell(
        job, {"status": status, "exit_code": code, "by": "dagster", "store": job.store, "problem": problem, **more}
    )


def _over(job: Job, problem: str) -> None:
    if job.keep_versions is not None:
        registry.prune(job.registry, job.keep_versions)
    forget_profiles(job.folder, problem)
    journal.forget_candidate(job.folder)


def _gates(verdict: Verdict) -> dict[str, Any]:
    """The gates as a table."""
    if not verdict.gates:
        return {}
    lines = [f"| {gate.name} | {'passed' if gate.passed else 'REFUSED'} | {gate.message} |" for gate in verdict.gates]
    return {"gates": dg.MetadataValue.md("\n".join(["| gate | | |", "| --- | --- | --- |", *lines]))}


def _shown(about: dict[str, Any]) -> dict[str, Any]:
    """Metadata for Dagster, without missing values."""
    return {
        name: value if isinstance(value, dg.MetadataValue) else plain(value)
        for name, value in about.items()
        if value is not None
    }


if os.environ.get(JOB_FILE):
    defs = definitions(os.environ[JOB_FILE])
else:
    defs = dg.Definitions()
