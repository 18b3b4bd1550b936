"""A run from its folder: its record, its events, and whether its process is alive."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.locks import signed_by
from bigsvm.files.paths import check_own_files
from bigsvm.observe.jsonl import read_events
from bigsvm.observe.run_files import EVENTS, LOCK, RUN, is_run, no_run_here, read_record
from bigsvm.report.facts import is_number

_NUMBERS = {
    "EpochEnd": ("at_s", "epochs", "passes", "active_rows", "gap_estimate", "wall_s"),
    "CertificateMade": ("at_s", "epochs", "passes", "objective", "dual_objective", "relative_gap", "wall_s"),
    "BudgetReport": ("limit_bytes",),
}
_OBJECTS = {"FitStarted": ("plan", "config", "versions"), "FitEnded": ("result",)}
_MAY_BE_NULL = ("gap_estimate", "relative_gap", "objective", "dual_objective")  # null stands for NaN or an infinity
OVER = ("converged", "paper_rule", "kkt", "stopped", "stalled")
"""The statuses of a run that wrote a model."""


@dataclass
class Run:
    """The record of a run.

    record : run.json; empty if it is not written yet
    events : all events, each with the number of its line, from 0, as `line`
    """

    folder: Path
    record: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)

    def of_kind(self, name: str) -> list[dict[str, Any]]:
        """Events of one kind, oldest first."""
        return [event for event in self.events if event["event"] == name]

    @property
    def started(self) -> dict[str, Any]:
        """The FitStarted event of the last process; empty if there is none yet."""
        return (self.of_kind("FitStarted") or [{}])[-1]

    @property
    def certificates(self) -> list[dict[str, Any]]:
        """Certificates with a gap, in order; if a killed run was resumed, work that was repeated is left out."""
        return _no_step_back([e for e in self.of_kind("CertificateMade") if e.get("relative_gap") is not None])

    @property
    def estimates(self) -> list[dict[str, Any]]:
        """Steps with an estimate of the gap, in order."""
        return _no_step_back([e for e in self.of_kind("EpochEnd") if e.get("gap_estimate") is not None])

    @property
    def result(self) -> dict[str, Any]:
        """The `result` object; empty if there is none yet.

        If a run was killed after its fit and before it wrote run.json, its last event has the result.
        """
        found = self.record.get("result")
        if not found and self.events and self.events[-1]["event"] == "FitEnded":
            found = self.events[-1].get("result")
        return found if isinstance(found, dict) else {}

    @property
    def config(self) -> dict[str, Any]:
        """The options that were asked for."""
        found = self.started.get("config") or (self.record.get("job") or {}).get("config")
        return found if isinstance(found, dict) else {}

    @property
    def plan(self) -> dict[str, Any]:
        """The plan of the last process."""
        found = self.started.get("plan")
        return found if isinstance(found, dict) else {}

    @property
    def status(self) -> str:
        """The status in run.json; before that 'running' or 'died' by its process, or 'starting' without any record."""
        status = str(self.record.get("status", ""))
        if status in OVER:
            return status
        holder = signed_by(self.folder / LOCK)
        if (
            holder is not None and not holder.gone
        ):  # if the run is being resumed, run.json still has the status of the former stop
            return "running" if self.events and status in ("", "running") else "starting"
        if status not in ("", "running"):
            return status
        # A lock disappears with its process, unless that was killed; the record may have been written since.
        last = str(read_record(self.folder).get("status", "")) if holder is None else ""
        return "died" if last in ("", "running") else last

    @property
    def holder(self) -> str:
        """The process that works on the run, for messages; empty if there is none."""
        found = signed_by(self.folder / LOCK)
        return "" if found is None else found.who


def read_run(folder: Path) -> Run:
    """Read the record of a run that has ended, is running, or has died.

    Raises
    ------
    MissingInput : there is no record.  DataError : it is damaged.
    """
    if not is_run(folder):
        raise no_run_here(folder)
    check_own_files(folder, "run")
    record = read_record(folder)
    _check_record(record, str(folder / RUN))
    events = []
    if (folder / EVENTS).exists():
        for line, event in enumerate(read_events(folder / EVENTS)):
            _check_event(event, f"{folder / EVENTS}:{line + 1}")
            events.append({**event, "line": line})
    return Run(folder, record, events)


def _check_record(record: dict[str, Any], where: str) -> None:
    """Raise DataError unless the used parts of run.json have the form that a fit writes."""
    result, job = record.get("result", {}), record.get("job", {})
    for name, found in (("result", result), ("job", job)):
        if not isinstance(found, dict):
            raise DataError(f"{name} is not an object", where, "this is not the record of a fit")
    for name, found, kind in (
        ("job.config", job.get("config", {}), dict),
        ("result.rule", result.get("rule", {}), dict),
        ("result.models", result.get("models", []), list),
        ("result.classes", result.get("classes", []), list),
    ):
        if not isinstance(found, kind):
            raise DataError(f"{name} is not {'a list' if kind is list else 'an object'}", where)
    if not all(isinstance(entry, dict) for entry in result.get("models", [])):
        raise DataError("result.models has an entry that is not an object", where)


def _check_event(event: dict[str, Any], where: str) -> None:
    """Raise DataError unless the used fields of an event are valid."""
    if not isinstance(event["event"], str):
        raise DataError("the kind of the event is not a name", where)
    for name in _NUMBERS.get(event["event"], ()):
        if not is_number(event.get(name)) and not (name in _MAY_BE_NULL and event.get(name, 0) is None):
            raise DataError(f"{name} of {event['event']} is not a number", where)
    for name in _OBJECTS.get(event["event"], ()):
        if not isinstance(event.get(name), dict):
            raise DataError(f"{name} of {event['event']} is not an object", where)
    holders = event.get("holders", [])
    if event["event"] == "BudgetReport" and not (
        isinstance(holders, list)
        and all(isinstance(held, list) and len(held) == 2 and is_number(held[1]) for held in holders)
    ):
        raise DataError("holders of BudgetReport are not names and bytes", where)


def _no_step_back(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events without those that a resumed process repeated: time must not go back."""
    kept: list[dict[str, Any]] = []
    for event in events:
        while kept and kept[-1]["wall_s"] > event["wall_s"]:
            kept.pop()
        kept.append(event)
    return kept
