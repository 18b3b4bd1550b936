"""What the trainings of `wss.py` come to: sums and medians over folds and grid points."""

from __future__ import annotations

from typing import Any

import numpy as np

RULES = ("wr", "3")
ALL = (*RULES, "limited")


def summary(one: dict[str, Any], limit: int) -> dict[str, Any]:
    """A set and a kernel: the best points, sums over the grid, ratios WR / WSS3 of time by cache and of steps."""
    runs = [fold for point in one["selection"] for fold in point["runs"]]
    timed = [fold for point in one["selection"] for fold in point["timed"]]
    totals = {
        setting: {rule: np.sum([fold[rule][setting] for fold in timed], axis=0).tolist() for rule in RULES}
        for setting in timed[0]["wr"]
    }
    final = {setting: {rule: one["final"][rule][setting] for rule in RULES} for setting in totals}
    iterations = {rule: sum(fold[rule]["iterations"] for fold in runs) for rule in RULES}
    convex = [fold for fold in runs if fold["wr"]["gap"] is not None]
    better = [
        fold["limited"]["dual"] > fold["wr"]["dual"] * (1 + 1e-9)
        for fold in convex
        if abs(fold["limited"]["dual"] - fold["wr"]["dual"]) > 1e-9 * abs(fold["wr"]["dual"])
    ]
    return {
        "set": one["set"], "kernel": one["kernel"], "regression": one["regression"], "points": len(one["points"]),
        "best": {rule: {"point": one["best"][rule], "score": _best(one, rule)} for rule in ALL},
        "iterations": iterations, "trainings": len(runs),
        "capped": sum(fold["3"]["iterations"] >= limit for fold in runs),
        "limited_differs": len(better), "limited_better": int(np.sum(better)),
        "selection": totals, "final": final,
        "ratios": {
            "selection": [*_ratios(totals), _over(iterations["wr"], iterations["3"])],
            "final": [*_ratios(final), _over(*(final["100 MB"][rule][1] for rule in RULES))],
        },
    }  # fmt: skip


def refreshed(one: dict[str, Any], trainings: dict[str, Any]) -> dict[str, Any]:
    """A summary with other final trainings, by rule and setting."""
    final = {setting: {rule: trainings[rule][setting] for rule in RULES} for setting in one["final"]}
    ratios = [*_ratios(final), _over(*(final["100 MB"][rule][1] for rule in RULES))]
    return {**one, "final": final, "ratios": {**one["ratios"], "final": ratios}}


def gaps(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By kernel and C: smallest, median and largest gap over the primal, where the kernel allows a proof."""
    by: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for one in found:
        for point, result in zip(one["points"], one["selection"], strict=True):
            if not one["regression"] and result["runs"][0]["wr"]["gap"] is not None:
                by.setdefault((one["kernel"], point[0]), []).extend(result["runs"])
    return [
        {
            "kernel": kernel, "C": C, "trainings": len(runs),
            **{rule: _spread([fold[rule]["gap"] for fold in runs]) for rule in ALL},
        }
        for (kernel, C), runs in by.items()
    ]  # fmt: skip


def large(one: dict[str, Any]) -> dict[str, Any]:
    """A grid point of a large set: steps, seconds, rows of each setting, and gaps."""
    settings = {name: one[name] for name in one if isinstance(one[name], dict) and "wr" in one[name]}
    first = settings["300 MB"]
    return {
        "set": one["set"], "rows": one["rows"], "kernel": one["kernel"], "point": one["point"],
        "settings": {
            name: {rule: [runs[rule]["seconds"], runs[rule]["iterations"], *runs[rule]["rows"]] for rule in RULES}
            for name, runs in settings.items()
        },
        "gap": {"wr": first["wr"]["gap"], "3": first["3"]["gap"], "limited": one["limited"]["gap"]},
        "dual": {"wr": first["wr"]["dual"], "3": first["3"]["dual"], "limited": one["limited"]["dual"]},
    }  # fmt: skip


def _best(one: dict[str, Any], rule: str) -> float:
    scores = [point["score"][rule] for point in one["selection"]]
    return min(scores) if one["regression"] else max(scores)


def _ratios(totals: dict[str, dict[str, list[float]]]) -> list[float | None]:
    return [_over(runs["wr"][0], runs["3"][0]) for runs in totals.values()]


def _over(a: float, b: float) -> float | None:
    return a / b if b else None


def _spread(values: list[float]) -> list[float]:
    return [min(values), float(np.median(values)), max(values)]
