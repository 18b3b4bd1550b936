"""The state of a run at this instant, from its folder alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bigsvm.observe.run_files import EVENTS
from bigsvm.report.draw.chart import sparkline
from bigsvm.report.facts import is_number, seconds
from bigsvm.report.runs import OVER, Run
from bigsvm.units import show_bytes

LIVE = ("starting", "running")
_WIDTH = 40


@dataclass(frozen=True)
class Snapshot:
    """The state of a run; None stands for values that are not known yet.

    age_s : seconds since the last event
    elapsed_s : seconds since the process began, or its duration
    training_s : seconds of training, all processes together
    work : name of the current piece of work, such as staging
    gaps : certified gaps so far, or estimates while there is no certificate
    """

    path: str
    status: str
    store: str | None
    solver: str | None
    holder: str
    n_starts: int
    age_s: float | None
    elapsed_s: float | None
    training_s: float | None
    work: str | None
    passes: float | None
    epochs: float | None
    active_rows: int | None
    n_samples: int | None
    objective: float | None
    dual_objective: float | None
    relative_gap: float | None
    gap_estimate: float | None
    tol: float | None
    budget_bytes: int | None
    reserved_bytes: int | None
    checkpoints: int
    warnings: Sequence[str]
    error: str | None
    gaps: Sequence[float]

    @property
    def live(self) -> bool:
        return self.status in LIVE

    @property
    def resumable(self) -> bool:
        return self.status in ("died", "interrupted")

    def document(self) -> dict[str, Any]:
        """The state as JSON."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "gaps"}
        return {**found, "warnings": list(self.warnings)}

    def lines(self) -> list[tuple[str, str]]:
        """The state as rows of a table: (name, text)."""
        rows: list[tuple[str, str | None]] = [
            ("status", self.status + (f" ({self.error})" if self.error else "")),
            ("process", self.holder if self.live else None),
            ("store", self.store),
            ("solver", self.solver),
            ("work", self.work if self.live else None),
            ("elapsed", None if self.elapsed_s is None else seconds(self.elapsed_s)),
            ("training", None if self.training_s is None else seconds(self.training_s)),
            ("passes", None if self.passes is None else f"{self.passes:.1f}"),
            ("epochs", None if self.epochs is None else f"{self.epochs:.1f}"),
            ("active rows", self._active()),
            ("objective", None if self.objective is None else f"{self.objective:.10g}"),
            ("relative gap", self._gap()),
            ("estimate", None if self.gap_estimate is None else f"{self.gap_estimate:.2e}"),
            ("so far", sparkline(self.gaps, _WIDTH, log=True) or None),
            ("reserved", self._reserved()),
            ("checkpoints", str(self.checkpoints) if self.checkpoints else None),
            ("last event", f"{seconds(self.age_s)} ago" if self.live and self.age_s is not None else None),
            ("warnings", f"{len(self.warnings)}: {self.warnings[-1]}" if self.warnings else None),
        ]
        return [(name, value) for name, value in rows if value is not None]

    def _active(self) -> str | None:
        if self.active_rows is None:
            return None
        return f"{self.active_rows:,}" + (f" of {self.n_samples:,}" if self.n_samples is not None else "")

    def _gap(self) -> str | None:
        if self.relative_gap is None:
            return None
        return f"{self.relative_gap:.2e}" + (f" (asked: {self.tol:g})" if self.tol is not None else "")

    def _reserved(self) -> str | None:
        if self.reserved_bytes is None or self.budget_bytes is None:
            return None
        return f"{show_bytes(self.reserved_bytes)} of {show_bytes(self.budget_bytes)}"


def snapshot(run: Run) -> Snapshot:
    """The current state of a run."""
    result, status = run.result, run.status
    step = (run.of_kind("EpochEnd") or [{}])[-1]
    proof = (run.certificates or [{}])[-1]
    last = max(step, proof, key=lambda event: event.get("line", -1))
    reported = (run.of_kind("BudgetReport") or [{}])[-1]
    plan, config = run.plan, run.config
    final = result if status in OVER else {}
    training = max((event["wall_s"] for event in (step, proof) if "wall_s" in event), default=None)
    curve = [e["relative_gap"] for e in run.certificates] or [e["gap_estimate"] for e in run.estimates]
    budget = reported.get("limit_bytes", plan.get("budget_bytes"))
    return Snapshot(
        path=str(run.folder),
        status=status,
        store=_text(run.record.get("store")),
        solver=_text(final.get("solver") or plan.get("solver")),
        holder=run.holder,
        n_starts=len(run.of_kind("FitStarted")),
        age_s=_age(run),
        elapsed_s=_elapsed(run, status),
        training_s=training,
        work=_work(run),
        passes=_number(final.get("passes", last.get("passes"))),
        epochs=_number(final.get("epochs", last.get("epochs"))),
        active_rows=step.get("active_rows"),
        n_samples=_whole(plan.get("n_samples")),
        objective=_number(final.get("objective", proof.get("objective"))),
        dual_objective=_number(final.get("dual_objective", proof.get("dual_objective"))),
        relative_gap=_number(final.get("relative_gap", proof.get("relative_gap"))),
        gap_estimate=_number(step.get("gap_estimate")),
        tol=_number(config.get("tol")),
        budget_bytes=_whole(budget),
        reserved_bytes=sum(int(held[1]) for held in reported["holders"]) if "holders" in reported else None,
        checkpoints=len(run.of_kind("CheckpointSaved")),
        warnings=[str(event.get("message")) for event in run.of_kind("Warned")],
        error=_text(run.record.get("error")) if status in ("error", "interrupted") else None,
        gaps=curve,
    )


def _age(run: Run) -> float | None:
    try:
        return max(0.0, time.time() - (run.folder / EVENTS).stat().st_mtime)
    except OSError:
        return None


def _elapsed(run: Run, status: str) -> float | None:
    """Seconds from the start of the last process to its end, or to now while it runs."""
    spent = run.result.get("seconds")
    if status in OVER and isinstance(spent, dict) and is_number(spent.get("total")):
        return float(spent["total"])
    try:
        began = datetime.fromisoformat(str(run.record["began"]))
        end = datetime.now(UTC) if status in LIVE else datetime.fromisoformat(str(run.record["ended"]))
        return max(0.0, (end - began).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None


def _work(run: Run) -> str | None:
    """The piece of work that began last and has not ended; work of former processes does not count."""
    begun: dict[str, None] = {}
    for event in run.events:
        if event["event"] == "FitStarted":
            begun.clear()
        elif event["event"] == "WorkStarted":
            begun[str(event.get("what"))] = None
        elif event["event"] == "WorkEnded":
            begun.pop(str(event.get("what")), None)
    return list(begun)[-1] if begun else None


def _number(value: Any) -> float | None:
    return value if is_number(value) else None


def _whole(value: Any) -> int | None:
    return int(value) if is_number(value) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
