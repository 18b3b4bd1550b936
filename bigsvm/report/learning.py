"""The chart of a learning curve: the held-out metric against the number of training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bigsvm.report.facts import Chart, Curve


def learning_chart(names: Sequence[str], curves: Sequence[dict[str, Any]]) -> Chart:
    """Means over the folds, with faint lines at one standard error on either side.

    curves : documents of `bigsvm.run.tune.sizes.LearningCurve`; the metric of the first one names the axis
    """
    drawn = []
    for name, found in zip(names, curves, strict=True):
        metric = found["metric"]
        label = name if metric == curves[0]["metric"] else f"{name} ({metric})"
        points = [
            (round(point["n_rows"]), point["scores"][metric]["mean"], point["scores"][metric]["standard_error"] or 0.0)
            for point in found["sizes"]
            if point["scores"][metric]["mean"] is not None
        ]
        rows, means = [n for n, _, _ in points], [mean for _, mean, _ in points]
        drawn.append(Curve(label, rows, means))
        for sign, side in ((-1.0, "less"), (1.0, "more")):
            around = [mean + sign * error for _, mean, error in points]
            drawn.append(Curve(f"{label}, one standard error {side}", rows, around, faint=True))
    title = f"Held-out {curves[0]['metric'].replace('_', ' ')} against training rows"
    return Chart(title, "training rows", curves[0]["metric"], drawn, whole_x=True)
