"""Logs the fit of a night and its outcome to MLflow; any failure is a warning."""

from __future__ import annotations

from typing import Any

from bigsvm.observe.jsonl import plain
from bigsvm.report.track import not_tracked, track
from pipelines import journal
from pipelines.config import Job


def tell(job: Job, document: dict[str, Any]) -> list[str]:
    """Log the fit that the outcome is about; if it was logged before, add the outcome.  Returns failures as sentences.

    document : the document of the run of the job, as from `retrain`

    Nothing is logged for a night without a fit.  Nothing is raised, because the outcome stands even if it was not
    logged.
    """
    problem = document.get("problem")
    if job.mlflow is None or problem is None or journal.noted_candidate(job.folder, problem) is None:
        return []
    gates = {gate["name"]: gate for gate in document.get("gates") or ()}
    tags = {"outcome": document["status"], "reason": document.get("reason", ""), "registry": str(job.registry)}
    tags |= {f"gate.{name}": "passed" if gate["passed"] else gate["message"] for name, gate in gates.items()}
    if document.get("version") is not None:
        tags["version"] = str(document["version"])
    metrics = {"gate": {name: gate["value"] for name, gate in gates.items()}, "holdout": document.get("metrics") or {}}
    name = f"{job.registry.name}: {document['status']}"
    run, about = job.folder / journal.RUN, {"name": name, "tags": tags, "metrics": plain(metrics)}
    failed = track(run, job.mlflow.experiment, job.mlflow.timeout, job.mlflow.uri, about)
    return [not_tracked(run, job.mlflow.experiment, failed)] if failed else []
