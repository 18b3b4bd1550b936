"""The chart of a search: the held-out metric of each candidate against C, and the chosen one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bigsvm.report.facts import Chart, Curve


def search_chart(names: Sequence[str], searches: Sequence[dict[str, Any]]) -> Chart:
    """Means over the folds with error bars of one standard error; a curve for each class weight and gamma.

    searches : documents of `bigsvm.run.tune.result.TuneResult`; the metric of the first one names the axis.  The best
        mean and the one-standard-error choice of each are marked
    """
    curves, marks = [], []
    for name, found in zip(names, searches, strict=True):
        metric, candidates = found["metric"], found["candidates"]
        prefix = f"{name}, " if len(searches) > 1 else ""
        for said in dict.fromkeys(_beside_C(candidate) for candidate in candidates):
            points = sorted(
                (candidate["C"], scores["mean"], scores["standard_error"] or 0.0)
                for candidate in candidates
                if _beside_C(candidate) == said and (scores := candidate["scores"][metric])["mean"] is not None
            )
            label = f"{prefix}{said or metric}" + (f" ({metric})" if metric != searches[0]["metric"] else "")
            Cs, means, errors = ([point[k] for point in points] for k in range(3))
            curves.append(Curve(label, Cs, means, errors=errors))
        for said, number in (("best mean", found["best"]), ("one standard error", found["one_se"])):
            mean = candidates[number]["scores"][metric]["mean"]
            if mean is not None:
                marks.append((f"{prefix}{said}: C = {candidates[number]['C']:g}", candidates[number]["C"], mean))
    metric = searches[0]["metric"]
    title = f"Held-out {metric.replace('_', ' ')} against C"
    return Chart(title, "C", metric, curves, marks=marks, log_x=True, named_marks=True)


def _beside_C(candidate: dict[str, Any]) -> str:
    """The parameters of a candidate other than C, as text; '' if there are none."""
    weight, gamma = candidate["class_weight"], candidate["gamma"]
    if isinstance(weight, dict):
        weight = ",".join(f"{label}={value:g}" for label, value in weight.items())
    said = [f"weights {weight}"] if weight is not None else []
    if gamma is not None:
        said.append(f"gamma {gamma:g}" if isinstance(gamma, float | int) else f"gamma {gamma}")
    return ", ".join(said)
