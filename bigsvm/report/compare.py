"""Comparison of runs: certified gaps against passes and against seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bigsvm.report.facts import Chart, Curve, is_number
from bigsvm.report.runs import Run

_FIELDS = ("passes", "epochs", "wall_s", "relative_gap")


def names_of(runs: Sequence[Run]) -> list[str]:
    """The name of each run: its folder's name without .run, or the whole path if two runs share that name."""
    short = [run.folder.name.removesuffix(".run") for run in runs]
    often = Counter(short)
    return [name if often[name] == 1 else str(run.folder) for name, run in zip(short, runs, strict=True)]


def comparison(runs: Sequence[Run]) -> list[Chart]:
    """A chart against passes over the data, and one against seconds.

    If a run kept its rows in memory, which are read only once, epochs replace passes.  If a run has no certificate yet,
    the estimates of its solver are shown.
    """
    names = names_of(runs)
    by_passes = all(len({event["passes"] for event in _events(run)}) > 1 for run in runs if len(_events(run)) > 1)
    axes = [("passes", "passes over the data")] if by_passes else [("epochs", "epochs (row visits / rows)")]
    tolerances = {run.config.get("tol") for run in runs}
    tol = tolerances.pop() if len(tolerances) == 1 else None
    level = ("asked for", float(tol)) if is_number(tol) and tol is not None else None
    return [
        Chart(
            f"Relative gap against {said}",
            said,
            "relative gap",
            [_curve(run, name, field) for run, name in zip(runs, names, strict=True)],
            log_y=True,
            level=level,
        )
        for field, said in [*axes, ("wall_s", "seconds of training")]
    ]


def points_of(run: Run) -> list[dict[str, Any]]:
    """The certificates of a run, as JSON."""
    return [{name: event[name] for name in _FIELDS} for event in run.certificates]


def _events(run: Run) -> list[dict[str, Any]]:
    return run.certificates or run.estimates


def _curve(run: Run, name: str, field: str) -> Curve:
    gap = "relative_gap" if run.certificates else "gap_estimate"
    shown = [event for event in _events(run) if event[gap] > 0]
    name = name if run.certificates else f"{name} (guessed)"
    return Curve(name, [event[field] for event in shown], [event[gap] for event in shown])
