"""What `rosen.py` found, as Markdown and as iterations against the precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reproduction.report import figure, paragraph, table
from reproduction.rosen import TITLE
from reproduction.rosen_paper import base
from reproduction.rosen_tables import EPS, conventions, differences, ours, reached, tables

_LABELS = {
    "keerthi2": "SMO, Keerthi 2",
    "wss1": "SMO, rule 1",
    "wss2": "SMO, rule 2",
    "rosen": "rosen",
    "block": "rosen-block, passes",
}


def section(found: dict[str, Any], plot: str) -> list[str]:
    """The section of docs/reproduction.md."""
    sets = found["sets"]
    published = [one["name"] for one in sets if one["published"]]
    names = " and ".join(base(name) for name in published)
    others = "For the other sets, and again for breast-cancer, there" if published else "There"
    known = f"Of {names}, {_count(sets)} published partitions are at hand and are used. " if published else ""
    lines = [
        f"## {TITLE}",
        "",
        paragraph(f"""
            The kernel is exp(-||x - z||^2 / sigma). Features have mean 0 and variance 1 over the whole set. A method
            stops when b_low - b_up <= 2 eps. {known}{others}
            are {found["partitions"]} random partitions of the official sizes. So means and standard deviations can be
            compared with the paper's, but single runs cannot. Three kinds of SMO are compared. "Keerthi 2" is Keerthi's
            modification 2, which the paper names (`smo --wss keerthi2`). Rules 1 and 2 are run by a separate program of
            a few lines of NumPy: rule 1 takes the maximal violating pair, rule 2 the pair of the second-order choice.
            `rosen` here moves along conjugate directions inside a face, and computes f of all rows after every step
            (`full=True`)."""),
        "",
    ]
    lines += conventions(found) + tables(found) + differences(found)
    lines += [f"### Iterations against eps ({found['fewer']} partitions)", "", f"![iterations against eps]({plot})", ""]
    lines += _inside(found) + _work(found) + _last_digits(found)
    return lines


def draw(found: dict[str, Any], path: Path) -> None:
    """Mean iterations against eps, a set beside the other."""

    def panels(axes: Any) -> None:
        for one, at in zip(found["sets"], axes, strict=True):
            for k, (kind, label) in enumerate(_LABELS.items()):
                curve = one["curves"].get(kind, {})
                shown = [(float(eps), v["mean"]) for eps, v in curve.items() if v["mean"] and not v["never"]]
                if shown:
                    at.plot(*zip(*sorted(shown), strict=True), f"C{k}.-", linewidth=1.0, label=label)
            at.set(xscale="log", yscale="log", xlabel="eps", title=one["name"])
            at.invert_xaxis()
            at.grid(alpha=0.3)
        axes[0].set(ylabel="iterations")
        axes[-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))

    figure(path, len(found["sets"]), panels, width=2.8)


def _inside(found: dict[str, Any]) -> list[str]:
    head = ["set", "conjugate", "the same, one look a release", "looks", "Newton", "steepest descent (the text)"]
    lines = ["### Directions inside a face: iterations to 1e-3 / 1e-6", ""]
    rows = []
    for one in found["sets"]:
        passes = one["rosen, looks: passes"]
        looks = " / ".join(f"{passes[at]['mean']:.1f}" for at in EPS if passes.get(at))
        rows.append([
            one["name"], _both(one["rosen"], found["most"]), _both(one["rosen, looks"], found["most"]), looks,
            _both(one["newton"], found["most"]), _both(one["steepest"], found["slow"]),
        ])  # fmt: skip
    about = f"""The last two columns are of {found["fewer"]} partitions. Steepest descent takes at most
        {found["slow"]:,} steps; a star means that some runs did not end within these. "One look a release" is the
        default of `rosen`: inside a face it needs only K_JJ, and it updates f of all rows when a release seems due.
        Such an update is a *look*. It takes one pass over the data if no kernel rows are kept."""
    return [*lines, *table(head, rows), paragraph(about), ""]


def _work(found: dict[str, Any]) -> list[str]:
    head = ["set", "eps", "SMO, rule 1", "SMO, rule 2", "`rosen`, a row a step and row", "`rosen`, one look a release",
            "`rosen-block`, q = 100", "its passes"]  # fmt: skip
    rows = []
    for one in found["sets"]:
        for at in EPS:
            rows.append([
                one["name"], _eps(at),
                *(_twice(one[rule][at]) for rule in ("wss1", "wss2")),
                *(ours(one[key].get(at), 0) for key in ("rosen: naive", "rosen, looks: computed", "block: computed")),
                ours(one["block: passes"].get(at)),
            ])  # fmt: skip
    shares, naive, looks = (
        [
            one[key][at]["mean"] / (2.0 * one["wss2"][at]["mean"])
            for one in found["sets"] for at in EPS if one["wss2"][at]["mean"] and one[key][at]["mean"]
        ]
        for key in ("block: computed", "rosen: naive", "rosen, looks: computed")
    )  # fmt: skip
    passes = [one["block: passes"][at]["mean"] for one in found["sets"] for at in EPS]
    about = f"""A step of SMO needs two kernel rows. A step of Rosen's method needs a kernel row for every free row. The
        paper leaves open how many kernel operations that makes. Counted in this way, Rosen's method needs
        {min(naive):.1f} to {max(naive):.1f} times the kernel values of rule 2. If K_JJ is kept inside a face, it needs
        {min(looks):.1f} to {max(looks):.1f} times as many. Rounds that release up to q rows at once need
        {min(shares):.1f} to {max(shares):.1f} times as many, in {min(passes):.0f} to {max(passes):.0f} passes over the
        data. SMO that keeps no kernel rows makes one pass for each step."""
    return ["### Kernel operations, in rows of N values, nothing kept", "", *table(head, rows), paragraph(about), ""]


def _last_digits(found: dict[str, Any]) -> list[str]:
    head = ["set", "rule 1 to 1e-3", "then `rosen` to 1e-6", "rule 1 alone", "rule 2 to 1e-3", "then `rosen` to 1e-6",
            "rule 2 alone"]  # fmt: skip
    rows = []
    for one in found["sets"]:
        cells: list[str] = [one["name"]]
        for rule in ("wss1", "wss2"):
            cells += [ours(one["then"].get(rule)), ours(one["then"].get(f"rosen after {rule}")),
                      reached(one[rule]["1e-06"], found["most"])]  # fmt: skip
        rows.append(cells)
    return ["### SMO first, Rosen's method for the last digits: iterations", "", *table(head, rows)]


def _count(sets: list[dict[str, Any]]) -> int:
    return next(one["partitions"] for one in sets if one["published"])


def _twice(some: dict[str, Any]) -> str:
    return "-" if some["mean"] is None else f"{2.0 * some['mean']:.0f} ± {2.0 * some['sd']:.0f}"


def _both(some: dict[str, Any], most: int) -> str:
    cells = []
    for at in EPS:
        one = some[at]
        cells.append(f"> {most}" if one["mean"] is None else f"{one['mean']:.1f}" + ("*" if one["never"] else ""))
    return " / ".join(cells)


def _eps(at: str) -> str:
    return f"{float(at):.0e}".replace("e-0", "e-")
