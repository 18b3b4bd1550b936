"""Gap against seconds and against passes, one row of axes for each problem and loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from bench.plan import Findings, Measured, lines_of

Points = list[tuple[float, float | None, float]]


@dataclass(frozen=True)
class Curve:
    """What one solver reached: (seconds, passes, gap); `estimates`: what it took its gap for, drawn thin."""

    label: str
    points: Points
    by_passes: bool = True
    estimates: Points = field(default_factory=list)


@dataclass(frozen=True)
class Panel:
    """A row of axes."""

    title: str
    curves: list[Curve]


def draw(path: Path, several: list[Findings]) -> None:
    """Write the plot; needs matplotlib."""
    draw_panels(path, [Panel(f"{one.problem.name}, {one.loss}", list(_curves(one))) for one in several])


def draw_panels(path: Path, panels: list[Panel]) -> None:
    """Write the panels, one below the other; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(len(panels), 2, figsize=(11, 3.6 * len(panels)), squeeze=False, sharey=False)
    for panel, (by_time, by_passes) in zip(panels, grid, strict=True):
        for curve in panel.curves:
            if not curve.points:
                continue
            style = {"marker": "o", "markersize": 3, "label": curve.label}
            (line,) = by_time.plot([x for x, _, _ in curve.points], [y for _, _, y in curve.points], **style)
            with_passes = [(passes, gap) for _, passes, gap in curve.points if passes]
            if with_passes and curve.by_passes:
                by_passes.plot(*zip(*with_passes, strict=True), color=line.get_color(), **style)
            thin = {"color": line.get_color(), "linewidth": 0.7, "linestyle": "--"}
            by_time.plot([x for x, _, _ in curve.estimates], [y for _, _, y in curve.estimates], **thin)
            if curve.by_passes:
                by_passes.plot([x for _, x, _ in curve.estimates], [y for _, _, y in curve.estimates], **thin)
        for axes, what in ((by_time, "seconds of training"), (by_passes, "passes over the data")):
            scale = "log" if axes.lines else "linear"  # nothing cannot be drawn on a log axis
            axes.set(xscale=scale, yscale=scale, xlabel=what)
            axes.grid(alpha=0.3)
        by_time.set(ylabel="relative gap", title=panel.title)
        if by_time.lines:
            by_time.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _curves(findings: Findings) -> list[Curve]:
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
