"""Gap against seconds and against passes, one row of axes for each problem and loss."""

from __future__ import annotations

import math
from pathlib import Path

from bench.plan import Findings, Measured, lines_of


def draw(path: Path, several: list[Findings]) -> None:
    """Write the plot; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(len(several), 2, figsize=(11, 3.6 * len(several)), squeeze=False, sharey=False)
    for findings, (by_time, by_passes) in zip(several, grid, strict=True):
        for solver, cores in lines_of(findings):
            points = [p for p in findings.points if (p.solver, p.cores, p.repeat) == (solver, cores, 0)]
            if not points:
                continue
            curve = _curve(findings, points)
            if not curve:
                continue
            style = {"marker": "o", "markersize": 3, "label": f"{solver}, {cores} core{'s' * (cores > 1)}"}
            (line,) = by_time.plot([x for x, _, _ in curve], [y for _, _, y in curve], **style)
            with_passes = [(passes, gap) for _, passes, gap in curve if passes]
            if with_passes and solver != "bigsvm, in memory":
                by_passes.plot(*zip(*with_passes, strict=True), color=line.get_color(), **style)
        for axes, what in ((by_time, "seconds of training"), (by_passes, "passes over the data")):
            scale = "log" if axes.lines else "linear"  # nothing cannot be drawn on a log axis
            axes.set(xscale=scale, yscale=scale, xlabel=what)
            axes.grid(alpha=0.3)
        by_time.set(ylabel="relative gap", title=f"{findings.problem.name}, {findings.loss}")
        by_time.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


def _curve(findings: Findings, points: list[Measured]) -> list[tuple[float, float | None, float]]:
    """(seconds, passes, gap): the proofs of bigsvm's tightest run, the settings of a peer."""
    if "trace" in points[0].about:
        tightest = min(points, key=lambda point: point.rung)
        return [(seconds, passes, gap) for seconds, passes, gap in tightest.about["trace"] if gap > 0]
    found = [(point.seconds, point.passes, findings.gap(point)) for point in points]
    return sorted(one for one in found if 0 < one[2] < math.inf)
