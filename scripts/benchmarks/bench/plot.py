"""Gap against seconds and against passes, one row of axes for each problem and loss.

What is drawn is kept as a JSON file beside the plot, a curve a line, so that the plot can be drawn again.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.record import write_figures
from bench.small_svg import plotting, save

if TYPE_CHECKING:  # figures.py draws without bigsvm, which those import
    from bench.plan import Findings, Measured

Points = list[tuple[float, float | None, float]]
_COLOURS = (*(f"C{number}" for number in range(10)), "black", "gold", "navy", "lime")


@dataclass(frozen=True)
class Curve:
    """What one solver reached: (seconds, passes, gap); `estimates`: what it took its gap for, drawn thin."""

    label: str
    points: Points
    by_passes: bool = True
    estimates: Points = field(default_factory=list)


@dataclass(frozen=True)
class Panel:
    """A row of axes; `gaps`: from where to where they go, if that is not to follow the curves."""

    title: str
    curves: list[Curve]
    gaps: tuple[float, float] | None = None


def draw(path: Path, several: list[Findings]) -> None:
    """Write the plot; needs matplotlib."""
    draw_panels(path, [Panel(f"{one.problem.name}, {one.loss}", list(_curves(one))) for one in several])


def draw_panels(path: Path, panels: list[Panel]) -> None:
    """Write the plot and, beside it, NAME.curves.json, of which it can be drawn again; needs matplotlib."""
    rows = [
        {
            "panel": panel.title, **({"gaps": panel.gaps} if panel.gaps else {}), "label": curve.label,
            "by_passes": curve.by_passes, "points": _digits(curve.points), "estimates": _digits(curve.estimates),
        }
        for panel in panels
        for curve in panel.curves
    ]  # fmt: skip
    kept = path.with_suffix(".curves.json")
    write_figures(kept, rows)
    draw_again(kept, path)


def draw_again(kept: Path, path: Path) -> None:
    """The plot of what `draw_panels` has kept."""
    panels: dict[str, Panel] = {}
    for row in json.loads(kept.read_text())["rows"]:
        panel = panels.setdefault(row["panel"], Panel(row["panel"], [], row.get("gaps")))
        panel.curves.append(Curve(row["label"], row["points"], row["by_passes"], row["estimates"]))
    with plotting(path) as pyplot:
        rows = max(len(panels), 1)
        figure, grid = pyplot.subplots(rows, 2, figsize=(11, 3.6 * rows), squeeze=False, sharey="row")
        labels = dict.fromkeys(curve.label for panel in panels.values() for curve in panel.curves)
        styles = {
            label: {"color": _COLOURS[number % len(_COLOURS)], "marker": "o", "markersize": 3, "label": label}
            for number, label in enumerate(labels)
        }
        for panel, axes in zip(panels.values(), grid, strict=False):
            _draw_panel(panel, *axes, styles)
        save(figure, path)


def _draw_panel(panel: Panel, by_time: Any, by_passes: Any, styles: dict[str, dict[str, Any]]) -> None:
    for curve in panel.curves:
        style = styles[curve.label]
        if curve.points or curve.estimates:  # without points for the label
            by_time.plot([x for x, _, _ in curve.points], [y for _, _, y in curve.points], **style)
        with_passes = [(passes, gap) for _, passes, gap in curve.points if passes]
        if with_passes and curve.by_passes:
            by_passes.plot(*zip(*with_passes, strict=True), **style)
        thin = {"color": style["color"], "linewidth": 0.7, "linestyle": "--"}
        if curve.estimates:
            by_time.plot([x for x, _, _ in curve.estimates], [y for _, _, y in curve.estimates], **thin)
        if curve.estimates and curve.by_passes:
            by_passes.plot([x for _, x, _ in curve.estimates], [y for _, _, y in curve.estimates], **thin)
    for axes, what in ((by_time, "seconds of training"), (by_passes, "passes over the data")):
        scale = "log" if axes.lines else "linear"  # nothing cannot be drawn on a log axis
        axes.set(xscale=scale, yscale=scale, xlabel=what)
        if panel.gaps and axes.lines:
            axes.set_ylim(panel.gaps)
        axes.grid(alpha=0.3)
    by_time.set(ylabel="relative gap", title=panel.title)
    if by_time.lines:
        by_time.legend(fontsize=7)


def _digits(points: Points) -> list[list[float | None]]:
    """Four digits, more than a plot shows."""
    return [[None if value is None else float(f"{value:.4g}") for value in point] for point in points]


def _curves(findings: Findings) -> list[Curve]:
    from bench.plan import lines_of

    curves = []
    for solver, cores in lines_of(findings):
        points = [p for p in findings.points if (p.solver, p.cores, p.repeat) == (solver, cores, 0)]
        if points:
            label = f"{solver}, {cores} core{'s' * (cores > 1)}"
            curves.append(Curve(label, _curve(findings, points), solver != "bigsvm, in memory"))
    return curves


def _curve(findings: Findings, points: list[Measured]) -> Points:
    """(seconds, passes, gap): the proofs of bigsvm's tightest run, the settings of a peer."""
    if "trace" in points[0].about:
        tightest = min(points, key=lambda point: point.rung)
        return [(seconds, passes, gap) for seconds, passes, gap in tightest.about["trace"] if gap > 0]
    found = [(point.seconds, point.passes, findings.gap(point)) for point in points]
    return sorted(one for one in found if 0 < one[2] < math.inf)
