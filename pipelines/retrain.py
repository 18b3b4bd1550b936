"""A retraining job from start to end: `python -m pipelines.retrain --config JOB.toml`.

Exit 0: promoted, or nothing to do; 4: not converged; 65: data refused; 75: interrupted; 76: a gate refused. Except
after a promotion, the current model is unchanged.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take seconds
    from pipelines.early_signals import end_at_once_on_signals

    end_at_once_on_signals()

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import click

from bigsvm.cli.failures import failure_of
from bigsvm.cli.interrupts import unwinding_on_signals
from bigsvm.cli.session import Session, say, write_failure
from bigsvm.errors import BigSVMError, one_line
from bigsvm.files.standard_output import silence_standard_output
from bigsvm.machine import check_address_space
from bigsvm.model import versions as registry
from bigsvm.run.fit.plan import make_plan
from bigsvm.units import counted
from pipelines import journal, steps
from pipelines.config import Job, read_job
from pipelines.gates.profile import forget_profiles

NOT_CONVERGED, GATE_REFUSED = 4, 76
_WOULD = {
    "trained": "train", "resumed": "continue the fit that was stopped", "kept": "judge the existing candidate",
}  # fmt: skip
_CODES = {"promoted": 0, "unchanged": 0, "not_converged": NOT_CONVERGED, "refused": GATE_REFUSED}


def retrain(job: Job, session: Session, force: bool = False, accept_drift: bool = False) -> dict[str, Any]:
    """Run the steps of a job; returns the outcome, with `status` and `exit_code`.

    Raises BigSVMError if the data are bad, the plan refuses, or something cannot be written.
    """
    began = time.monotonic()
    with steps.alone(job):
        document: dict[str, Any] = {"status": "error", "store": job.store, "registry": str(job.registry)}
        try:
            document.update(_run(job, session, force, accept_drift))
        except BaseException as error:
            document.update(exit_code=failure_of(error).code, error=str(error) or type(error).__name__)
            raise
        finally:
            document["seconds"] = round(time.monotonic() - began, 3)
            told = _tell(job, document, session)
        if document["status"] == "promoted" and told:
            _tidy(job, document, session)
    return document


def _tell(job: Job, document: dict[str, Any], session: Session) -> bool:
    """Report the outcome of a night; returns whether that was completed.  A promotion stands in any case."""
    try:
        for failure in steps.tell(job, document):
            session.warn(failure)
    except KeyboardInterrupt:
        if document["status"] != "promoted":
            raise
        session.warn("promoted, but interrupted during the report: the next night repeats the report")
        return False
    return True


def _tidy(job: Job, document: dict[str, Any], session: Session) -> None:
    """After a reported promotion: delete old versions if the job says so, and end the night."""
    try:
        journal.forget_candidate(job.folder)  # first, because as long as it exists, the next night reports it again
        forget_profiles(job.folder, document["problem"])
        if job.keep_versions is not None:
            with session.watching() as emit:
                document["deleted_versions"] = registry.prune(job.registry, job.keep_versions, emit)
    except (BigSVMError, OSError, KeyboardInterrupt) as error:
        session.warn(f"promoted, and then: {error or 'interrupted'}")


def _run(job: Job, session: Session, force: bool, accept_drift: bool) -> dict[str, Any]:
    with session.watching() as emit:
        registry.settle(job.registry, emit)
        added = steps.arrive(job, emit)
    found = steps.detect(job)
    session.warn_of(found.store)
    about: dict[str, Any] = {"reason": found.reason, "store_fingerprint": found.store.fingerprint, "version": None}
    about.update(problem=found.problem, added=added)
    if (version := steps.promoted_already(job, found)) is not None:
        about["reason"] = "the run before promoted it, and was killed before it could report that"
        return {**about, "version": version, **_ended("promoted")}
    if not found.changed and not force:
        return {**about, **_ended("unchanged")}
    rows = steps.look(job, found)
    if accept_drift:
        rows.accept_drift()
    about["gates"] = [dataclasses.asdict(gate) for gate in rows.gates]
    if rows.refusals:
        return {**about, **_ended("refused")}
    with session.watching() as emit:
        candidate = steps.fit(job, found, emit)
        about["fit"], about["fitted"] = candidate.result, candidate.how
        if candidate.status != "converged" and not _good_enough(job, candidate):
            return {**about, **_ended("not_converged"), "fit_status": candidate.status}
    about["fit_status"], seen = candidate.status, about["gates"]
    for chance in range(1, steps.CHANCES + 1):
        with session.watching() as emit:
            verdict = steps.judge(job, found, candidate.path, emit)
        if accept_drift:
            verdict.accept_drift()
        about["gates"] = seen + [dataclasses.asdict(gate) for gate in verdict.gates]
        about["metrics"] = verdict.metrics
        if not verdict.passed:
            return {**about, **_ended("refused")}
        try:
            with session.watching() as emit:
                version = steps.promote(job, found, candidate.path, verdict, emit)
            return {**about, "version": version, **_ended("promoted")}
        except registry.CurrentMoved as error:  # somebody has promoted or rolled back meanwhile
            if chance == steps.CHANCES:
                raise
            session.warn(f"{error.what}: it is judged again")
        except KeyboardInterrupt:
            version = steps.promoted_already(job, found)
            if version is None:
                raise
            return {**about, "version": version, **_ended("promoted")}
    raise AssertionError("a candidate is promoted, refused, or its promotion fails")


def would(job: Job, session: Session, force: bool) -> dict[str, Any]:
    """A description of what a run would do now; nothing is written, and only a few labels of the rows are read.

    Raises what a run would raise: bad data, a plan that refuses.  Waiting files are not read, so the fingerprint, the
    plan and the start of the fit are those of the store as it is.
    """
    waiting = [str(path) for path in steps.waiting(job)]
    found = steps.detect(job)
    session.warn_of(found.store)
    about: dict[str, Any] = {"reason": found.reason, "store": job.store, "registry": str(job.registry)}
    about.update(rows=found.store.n_samples, current=registry.current_version(job.registry), would_add=waiting)
    if waiting:
        about["reason"] = f"files wait to be added: {len(waiting)}"
    elif (version := steps.promoted_already(job, found)) is not None:
        return {**about, "would": "report a promotion", "version": version}
    elif not found.changed and not force:
        return {**about, "would": "nothing"}
    doing = "trained" if waiting else steps.stands_at(job, found)
    start = steps.start_of(job, found)
    about["starts_from"] = "0" if start.model is None else start.model
    if start.why_not:
        about["starts_from_0_since"] = start.why_not
    plan = make_plan(found.store, start.applied(job.fit), begun_with=steps.begun_with(job, doing)).document()
    told = [name for name in ("command", "url", "url_env") if getattr(job.notify, name)]
    about.update(plan=plan, checks=_asked(job), tells=told, on=list(job.notify.on) if told else [])
    about["logs_to"] = None if job.mlflow is None else job.mlflow.experiment
    return {**about, "would": _WOULD[doing], "keep_versions": job.keep_versions}


def _asked(job: Job) -> list[str]:
    """The limits that a candidate would be compared with: those that always hold, and those of the job."""
    always = ["sound", *([] if job.gates.allow_other_shape else ["shape"]), f"gap <= {job.max_relative_gap:g}"]
    return always + [
        f"{table}.{name} = {value}"
        for table, limits in (("gates", job.gates), ("drift", job.drift))
        for name, value in limits.model_dump(exclude_defaults=True).items()
    ]


def _ended(status: str) -> dict[str, Any]:
    return {"status": status, "exit_code": _CODES[status]}


def _good_enough(job: Job, candidate: steps.Candidate) -> bool:
    """Whether the fit stopped before its tolerance, but the job explicitly accepts a wider gap.

    If no gap can be proved, a gate decides, and can say why.
    """
    if candidate.status == "kkt":
        return True
    asked = job.gates.max_relative_gap
    return asked is not None and candidate.result["relative_gap"] <= asked


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.option("--config", required=True, type=click.Path(path_type=Path), metavar="JOB.toml", help="The job.")
@click.option("--force", is_flag=True, help="Continue even if nothing has changed.")
@click.option("--accept-drift", is_flag=True, help="Accept the drift of the rows; later rows are compared with these.")
@click.option("--dry-run", is_flag=True, help="Say what a run would do, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Exactly one JSON document on standard output.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error but failures.")
def command(config: Path, force: bool, accept_drift: bool, dry_run: bool, as_json: bool, quiet: bool) -> int:
    check_address_space()
    session = Session("retrain", as_json=as_json, quiet=quiet, progress=False)
    if dry_run:
        document = would(read_job(config), session, force)
        return session.finish(document, _foreseen(document), "dry_run")
    document = retrain(read_job(config), session, force, accept_drift)
    status, code = document.pop("status"), document.pop("exit_code")
    if code:
        say(f"bigsvm: error: {one_line(_complaint(status, document))}")
    try:
        return session.finish(document, _sentence(status, document), status, code)
    except BrokenPipeError:  # nobody reads it, and the outcome stands
        silence_standard_output()
        return code


def _foreseen(document: dict[str, Any]) -> str:
    """What a run would do, as lines of text."""
    adds = f"add {counted(len(document['would_add']), 'file')}, then " if document["would_add"] else ""
    lines = [f"would: {adds}{document['would']} ({document['reason']})"]
    if "checks" in document:
        lines.append(f"fit: {document['plan']['solver']} on {document['rows']} rows, from {document['starts_from']}")
        if why := document.get("starts_from_0_since"):
            lines[-1] += f" ({why})"
        lines.append(f"gates: {', '.join(document['checks'])}")
    if document.get("tells"):
        lines.append(f"notified by {', '.join(document['tells'])}: {', '.join(document['on'])}")
    if document.get("logs_to"):
        lines.append(f"logged to MLflow: {document['logs_to']}")
    return "\n".join(lines)


def _sentence(status: str, document: dict[str, Any]) -> str:
    if status == "promoted":
        return f"promoted version {document['version']} to {document['registry']} ({document['reason']})"
    return f"nothing to do: {document['reason']}" if status == "unchanged" else ""


def _complaint(status: str, document: dict[str, Any]) -> str:
    kept = "the current model stays"
    if status == "not_converged":
        return f"{document['fit_status']} at a relative gap of {document['fit']['relative_gap']:.3g}; {kept}"
    gates = [gate for gate in document["gates"] if not gate["passed"]]
    said = "; ".join(
        f"{gate['name']}: {gate['message']}" + (f", limit {gate['limit']:.6g}" if gate["limit"] is not None else "")
        for gate in gates
    )
    return f"refused by gate {said}; {kept}"


def main(args: list[str] | None = None, to_the_end: bool = False) -> int:
    """Run the command line; the exit code.

    to_the_end : the process ends after it
    """
    args = sys.argv[1:] if args is None else args
    with unwinding_on_signals(to_the_end):
        try:
            with command.make_context("retrain", list(args)) as context:
                return int(command.invoke(context))
        except click.exceptions.Exit as end:  # --help
            return end.exit_code
        except (Exception, KeyboardInterrupt) as error:
            failure = failure_of(error)
            said = f"{failure.said}; the current model stays" if failure.said == "interrupted" else failure.said
            write_failure("retrain", failure.code, said, failure.hint, "--json" in args)
            return failure.code


if __name__ == "__main__":
    sys.exit(main(to_the_end=True))
