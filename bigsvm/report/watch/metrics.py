"""A running fit as metrics: the text that node_exporter's textfile collector reads, valid as OpenMetrics too.

All are gauges: what a run says of itself now.  A metric that is not known yet is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    ("relative_gap_estimate", "Relative gap as the solver guesses it.", "gap_estimate"),
    ("tolerance", "Relative gap that was asked for.", "tol"),
    ("elapsed_seconds", "Seconds since the process began, or that it took.", "elapsed_s"),
    ("training_seconds", "Seconds of training, all processes together.", "training_s"),
    ("last_event_age_seconds", "Seconds since the last event.", "age_s"),
    ("memory_budget_bytes", "The memory budget.", "budget_bytes"),
    ("memory_reserved_bytes", "What of the budget is reserved.", "reserved_bytes"),
    ("starts", "Processes that worked on the run.", "n_starts"),
    ("checkpoints", "Checkpoints in the record.", "checkpoints"),
)


def metrics(now: Snapshot) -> str:
    """The file: samples of one run, told from others by its path, and the mark of an end that OpenMetrics wants."""
    return "\n".join([*_lines(now), "# EOF"]) + "\n"


def _lines(now: Snapshot) -> Iterator[str]:
    run = f'run="{_escaped(now.path)}"'
    named = f'{run},store="{_escaped(now.store or "")}",solver="{_escaped(now.solver or "")}"'
    yield from _head("info", "What the run is.")
    yield f"bigsvm_fit_info{{{named}}} 1"
    yield from _head("status", "1 for the status that the run has.")
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
    """A label's value, as both formats escape it; what is no UTF-8 (of paths) is replaced."""
    whole = text.encode("utf-8", "replace").decode()
    return whole.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
