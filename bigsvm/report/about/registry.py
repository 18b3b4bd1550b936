"""Sections about a registry: all versions with their metrics, who promoted or rolled back which, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigsvm.model.versions import VERSIONS, current_version, history, is_there
from bigsvm.report.facts import (
    Chart,
    Curve,
    Report,
    Section,
    Source,
    Table,
    Told,
    count,
    is_number,
    number,
    small,
)
from bigsvm.units import counted

_PREFERRED = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "r2", "mse", "mae", "relative_gap")
_CHARTS = 6


def is_registry(folder: Path) -> bool:
    """Whether a folder is a registry of models."""
    return (folder / VERSIONS).is_dir()


def registry_report(root: Path) -> Report:
    """The report on a registry.  Raises DataError if its history is damaged."""
    entries, current = history(root), current_version(root)
    source = Source("history", entries)
    promoted = [k for k, entry in enumerate(entries) if entry["action"] == "promote"]
    report = Report("registry", str(root), f"The registry {root.name}", _lead(source, current), "good")
    if current is not None and not is_there(root, current):
        gone = Told(f"The current version {current} is missing: roll back to another one.")
        report = Report("registry", str(root), f"The registry {root.name}", (gone,), "bad")
    if current is None:
        report = Report("registry", str(root), f"The registry {root.name}", (Told("Nothing is current."),), "bad")
    report.sections.append(Section("Versions", tables=[_versions(root, source, promoted, current)]))
    report.sections.append(Section("What happened, newest first", tables=[_happened(source)]))
    charts = _charts(entries, promoted, current)
    if charts:
        report.sections.append(Section("Metrics by version", charts=charts))
    return report


def _lead(source: Source, current: int | None) -> tuple[Told, ...]:
    entries = source.document
    made = [k for k, entry in enumerate(entries) if entry["version"] == current]
    if not made:
        return (Told(f"Version {current} is current, but the history is missing."),)
    entry = entries[made[-1]]
    how = "promoted" if entry["action"] == "promote" else "made current again"
    why = f": {entry['note']}" if entry.get("note") else ", without a note"
    said = f"is current. It was {how} on {_day(entry)} by {entry.get('by')}{why}."
    return (Told("Version"), source.told(f"{made[-1]}.version", count), Told(said))


def _metrics(entries: list[dict[str, Any]]) -> list[str]:
    """The metrics that any promotion recorded, the common ones first."""
    found: dict[str, None] = {}
    for entry in entries:
        for name, value in (entry.get("metrics") or {}).items():
            if is_number(value):
                found[name] = None
    return [name for name in _PREFERRED if name in found] + sorted(set(found) - set(_PREFERRED))


def _versions(root: Path, source: Source, promoted: list[int], current: int | None) -> Table:
    """A table of versions, the newest first; gap and problem come from each model."""
    metrics = [name for name in _metrics(source.document) if name != "relative_gap"]
    rows = []
    for k in reversed(promoted):
        entry = source.document[k]
        version = entry["version"]
        model = _model(root, version)
        here = "current" if version == current else "" if model.document else "removed"
        gaps = model.get("certificate.relative_gap") or []
        worst = max(range(len(gaps)), key=lambda m: gaps[m]) if gaps else 0
        rows.append(
            [
                source.told(f"{k}.version", count),
                Told(here),
                Told(_day(entry)),
                Told(str(entry.get("by") or "-")),
                Told(str(entry.get("note") or "-")),
                model.told(f"certificate.relative_gap.{worst}", small),
                model.told("n_samples", count),
                *(source.told(f"{k}.metrics.{name}", number) for name in metrics),
                *_change(source, k, metrics),
            ]
        )
    first = f"{metrics[0].replace('_', ' ')}, change" if metrics else None
    head = ["version", "now", "promoted", "by", "why", "relative gap", "rows", *(m.replace("_", " ") for m in metrics)]
    return Table([*head, *([first] if first else [])], rows, counted(len(rows), "version"))


def _change(source: Source, k: int, metrics: list[str]) -> list[Told]:
    """The change of the first metric, compared with the version that was current before."""
    if not metrics:
        return []
    entries = source.document
    before = [e for e in entries[:k] if e["action"] == "promote" and e["version"] == entries[k].get("from")]
    now = source.get(f"{k}.metrics.{metrics[0]}")
    was = (before[-1].get("metrics") or {}).get(metrics[0]) if before else None
    return [Told(f"{now - was:+.3g}" if is_number(now) and is_number(was) else "-")]


def _happened(source: Source) -> Table:
    """The history as a table."""
    rows = []
    for k in range(len(source.document) - 1, -1, -1):
        entry = source.document[k]
        was = entry.get("from")
        rows.append(
            [
                Told(_day(entry)),
                Told(entry["action"]),
                source.told(f"{k}.version", count),
                source.told(f"{k}.from", count) if was is not None else Told("-"),
                Told(str(entry.get("by") or "-")),
                Told(str(entry.get("note") or "-")),
            ]
        )
    return Table(["when", "what", "version", "before", "by", "why"], rows)


def _charts(entries: list[dict[str, Any]], promoted: list[int], current: int | None) -> list[Chart]:
    """Charts of metrics over versions, for metrics with at least two values."""
    charts = []
    for name in _metrics(entries):
        points = [
            (float(entries[k]["version"]), float(entries[k]["metrics"][name]))
            for k in promoted
            if is_number((entries[k].get("metrics") or {}).get(name))
        ]
        if len(points) > 1 and not name.startswith(("current_", "holdout_")):
            xs, ys = [x for x, _ in points], [y for _, y in points]
            shown = name.replace("_", " ")
            marks = [("current", x, y) for x, y in points if x == current]
            told = "The ringed dot is the current version." if marks else ""
            charts.append(Chart(shown, "version", shown, [Curve(shown, xs, ys)], marks=marks, whole_x=True, told=told))
    return charts[:_CHARTS]


def _model(root: Path, version: int) -> Source:
    """model.json of a version; empty if it is missing or damaged."""
    name = f"model of version {version}"
    try:
        document = json.loads((root / VERSIONS / f"{version:06d}" / "model.json").read_bytes())
    except (OSError, ValueError):
        return Source(name, {})
    return Source(name, document if isinstance(document, dict) else {})


def _day(entry: dict[str, Any]) -> str:
    return str(entry.get("at") or "-").replace("T", " ").replace("+00:00", " UTC")
