"""The figures of WSS-WR: accuracy and ratios by set and kernel, selections, and the ways to the optimum.

wss.svg            Figs. 3 to 10
wss-selected.svg   Fig. 1
wss-ways.svg       Figs. 11 and 12
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.small_svg import plotting
from bench.small_svg import save as save_plot

from reproduction.report import figure
from reproduction.wss_paper import ACCURACY, KERNELS

GROUPS = ("0", "1", "2", "3-5", "6-10", "11-50", "> 50")
STAND_IN = {"w8a sample": "w1a"}
_STAGES = {"selection": "ratio, parameter selection", "final": "ratio, final training"}
_COLOURS = {"3": "C0", "wr": "C3"}


def draw(found: dict[str, Any], path: Path) -> None:
    """All of them, beside one another."""
    _grid(path, 3, len(KERNELS), lambda axes: _by_set(found, axes))
    figure(path.with_name("wss-selected.svg"), 1, lambda axes: _selected(found, axes[0]), width=6.0)
    sets = list(dict.fromkeys(one["set"] for one in found["ways"]))
    _grid(path.with_name("wss-ways.svg"), len(sets), len(KERNELS), lambda axes: _ways(found, sets, axes))


def groups(counts: list[int]) -> list[float]:
    """How many variables were selected 0, 1, 2, 3 to 5, ... times, in percent."""
    bounds = [(0, 1), (1, 2), (2, 3), (3, 6), (6, 11), (11, 51), (51, len(counts))]
    return [100.0 * sum(counts[a:b]) / sum(counts) for a, b in bounds]


def _grid(path: Path, rows: int, columns: int, fill: Callable[[Any], None]) -> None:
    with plotting(path) as pyplot:
        drawn, axes = pyplot.subplots(rows, columns, figsize=(3.2 * columns, 2.3 * rows), squeeze=False)
        fill(axes)
        drawn.tight_layout()
        save_plot(drawn, path)


def _by_set(found: dict[str, Any], axes: Any) -> None:
    for k, kernel in enumerate(KERNELS):
        of = [one for one in found["small"] if one["kernel"] == kernel]
        classes = [one for one in of if not one["regression"]]
        at = axes[0][k]
        for rule, index, colour in (("wr", 0, "C3"), ("3", 1, "C0")):
            name = "WSS-WR" if rule == "wr" else "WSS3"
            at.plot([one["best"][rule]["score"] for one in classes], f"{colour}o", markersize=4, label=f"{name}, ours")
            paper = [(i, _paper(one)[index]) for i, one in enumerate(classes) if _paper(one)]
            at.plot([p[0] for p in paper], [p[1] for p in paper], f"{colour}x", markersize=5, label=f"{name}, paper")
        _name_sets(at, classes, f"{kernel}: accuracy, %")
        for row, (stage, title) in enumerate(_STAGES.items(), 1):
            at = axes[row][k]
            for number in range(5):
                values = [one["ratios"][stage][number] for one in of]
                at.plot(values, f"C{number}-", linewidth=0.9, label=f"ratio {number + 1}")
            at.axhline(1.0, color="k", linewidth=0.5)
            at.set(yscale="log")
            _name_sets(at, of, f"{kernel}: {title}")
    for row in (0, 1):
        axes[row][0].legend(fontsize=5)


def _name_sets(at: Any, of: list[dict[str, Any]], title: str) -> None:
    at.set_xticks(range(len(of)), [one["set"].split(",")[0] for one in of], fontsize=5, rotation=60, ha="right")
    at.set_title(title, fontsize=7)
    at.tick_params(axis="y", labelsize=6)
    at.grid(alpha=0.3)


def _paper(one: dict[str, Any]) -> tuple[float, ...]:
    return ACCURACY.get(STAND_IN.get(one["set"], one["set"]), {}).get(one["kernel"], ())


def _selected(found: dict[str, Any], at: Any) -> None:
    for number, one in enumerate(found["selected"]):
        for (C, counts), style in zip(one["selected"].items(), ("o-", "s:"), strict=False):
            label = f"{one['set']}, C = {C}"
            at.plot(range(len(GROUPS)), groups(counts), f"C{number}{style}", markersize=3, label=label)
    at.set_xticks(range(len(GROUPS)), GROUPS, fontsize=7)
    at.set(title="times a variable is selected, WSS3, rbf", ylabel="percent of the variables")
    at.legend(fontsize=6)


def _ways(found: dict[str, Any], sets: list[str], axes: Any) -> None:
    """What the dual value lacks of the last one of WSS3, and where there is a proof the gap."""
    for one in found["ways"]:
        at, paths = axes[sets.index(one["set"])][KERNELS.index(one["kernel"])], one["paths"]
        best = paths["3"][-1][1]
        for rule, colour in _COLOURS.items():
            steps = [p[0] for p in paths[rule]]
            at.plot(steps, [max(1.0 - p[1] / best, 1e-8) for p in paths[rule]], f"{colour}:", linewidth=1.2)
            if paths[rule][-1][2] is not None:
                at.plot(steps, [max(p[2], 1e-8) for p in paths[rule]], f"{colour}-", linewidth=1.2)
        at.plot(paths["wr"][-1][0], max(1.0 - paths["wr"][-1][1] / best, 1e-8), "C3o", markersize=4)
        at.plot(paths["limited"][0][0], max(1.0 - paths["limited"][0][1] / best, 1e-8), "k*", markersize=6)
        at.set(ylim=(1e-6, 1.5), xscale="log", yscale="log")
        at.set_title(f"{one['set']}, {one['kernel']}", fontsize=7)
        at.tick_params(labelsize=6)
        at.grid(alpha=0.3)
