"""A running fit as metrics: text for node_exporter's textfile collector, also valid as OpenMetrics.

All metrics are gauges, the current state of a run.  A metric that is not known yet is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from bigsvm.report.facts import printable
from bigsvm.report.watch.snapshot import Snapshot

STATUSES = (
    "starting", "running", "converged", "paper_rule", "kkt", "stopped", "stalled", "interrupted", "died", "error",
)  # fmt: skip
GAUGES = (
    ("passes", "Bytes read over bytes of the data.", "passes"),
    ("epochs", "Row visits over rows.", "epochs"),
    ("active_rows", "Rows that the next step visits.", "active_rows"),
    ("objective", "Objective of the last proof.", "objective"),
    ("dual_objective", "Best dual value.", "dual_objective"),
    ("relative_gap", "Proved relative duality gap.", "relative_gap"),
    ("relative_gap_estimate", "Relative gap as estimated by the solver.", "gap_estimate"),
    ("tolerance", "Relative gap that was asked for.", "tol"),
    ("elapsed_seconds", "Seconds since the process began, or its duration.", "elapsed_s"),
    ("training_seconds", "Seconds of training, all processes together.", "training_s"),
    ("last_event_age_seconds", "Seconds since the last event.", "age_s"),
    ("memory_budget_bytes", "Memory budget.", "budget_bytes"),
    ("memory_reserved_bytes", "Reserved part of the memory budget.", "reserved_bytes"),
    ("starts", "Processes that worked on the run.", "n_starts"),
    ("checkpoints", "Checkpoints in the record.", "checkpoints"),
)


def metrics(now: Snapshot) -> str:
    """The file: samples of one run, labelled by its path, and the end mark that OpenMetrics requires."""
    return "\n".join([*_lines(now), "# EOF"]) + "\n"


def _lines(now: Snapshot) -> Iterator[str]:
    run = f'run="{_escaped(now.path)}"'
    named = f'{run},store="{_escaped(now.store or "")}",solver="{_escaped(now.solver or "")}"'
    yield from _head("info", "Identity of the run.")
    yield f"bigsvm_fit_info{{{named}}} 1"
    yield from _head("status", "1 for the current status of the run.")
    for status in STATUSES:
        yield f'bigsvm_fit_status{{{run},status="{status}"}} {int(now.status == status)}'
    for name, said, field in GAUGES:
        value = getattr(now, field)
        if value is not None:
            yield from _head(name, said)
            yield f"bigsvm_fit_{name}{{{run}}} {value!r}"
    yield from _head("warnings", "Warnings of the run.")
    yield f"bigsvm_fit_warnings{{{run}}} {len(now.warnings)}"


def _head(name: str, said: str) -> list[str]:
    return [f"# HELP bigsvm_fit_{name} {said}", f"# TYPE bigsvm_fit_{name} gauge"]


def _escaped(text: str) -> str:
    """A label value, escaped as both formats require."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
