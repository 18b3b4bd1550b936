"""What `rosen.py` found, as Markdown and as iterations against the precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reproduction.report import figure, paragraph, table
from reproduction.rosen import PAPER, TITLE

EPS = ("1e-03", "1e-06")
_LABELS = {"wss1": "SMO, rule 1", "wss2": "SMO, rule 2", "rosen": "rosen", "block": "rosen-block, passes"}


def section(found: dict[str, Any], plot: str) -> list[str]:
    """The section of docs/reproduction.md."""
    sets = found["sets"]
    published = [one["name"] for one in sets if one["published"]]
    known = f"The {_count(sets)} published partitions of {', '.join(published)} are used. " if published else ""
    lines = [
        f"## {TITLE}",
        "",
        paragraph(f"""
            Kernel exp(-||x - z||^2 / sigma), features with mean 0 and variance 1 over the whole set, stop where
            b_low - b_up <= 2 eps. {known}{"Of the others" if published else "There are"} {found["partitions"]} random
            partitions of the official sizes: means and standard deviations can be compared, single runs cannot. SMO
            is a separate program in a few lines of NumPy: rule 1 is the maximal violating pair, rule 2 the
            second-order choice. `rosen` here moves along conjugate directions inside a face and looks at all rows
            after every step (`full=True`)."""),
        "",
        "### Table 1: support vectors and test accuracy at eps = 1e-3",
        "",
    ]
    head = ["set", "train rows, C, sigma", "partitions", "SV, SMO: paper", "ours", "SV, Rosen: paper", "ours",
            "accuracy %, SMO", "Rosen", "rank-sum p"]  # fmt: skip
    rows = []
    for one in sets:
        paper = PAPER[one["name"]].sv
        note = "" if one["smo"] == "wss1" else " (rule 2)"
        p = one["rank_sum_p"]
        rows.append([
            one["name"], f"{one['train']}, {one['C']:g}, {one['sigma']:g}", one["partitions"], _pair(paper[0]),
            _ours(one["sv"].get(one["smo"])) + note, _pair(paper[1]), _ours(one["sv"].get("rosen")),
            _ours(one["accuracy"].get(one["smo"]), 2) + note, _ours(one["accuracy"].get("rosen"), 2),
            "-" if p is None else f"{p:.2f}",
        ])  # fmt: skip
    lines += table(head, rows)
    lines += ["### Table 2: iterations", ""]
    head = ["set", "eps", "SMO: paper", "rule 1", "rule 2", "Rosen: paper", "`rosen`", "of them releases and pairs",
            "ratio: paper", "rule 1 / `rosen`"]  # fmt: skip
    rows = []
    for one in sets:
        for at, paper in zip(EPS, PAPER[one["name"]][1:], strict=True):
            smo, rosen = one["wss1"][at]["mean"], one["rosen"][at]["mean"]
            rows.append([
                one["name"], _eps(at), _pair(paper[0]), _reached(one["wss1"][at], found["most"]),
                _reached(one["wss2"][at], found["most"]), _pair(paper[1]), _reached(one["rosen"][at], found["most"]),
                _ours(one["rosen: moves"].get(at)), f"{paper[0][0] / paper[1][0]:.2f}",
                "-" if smo is None or rosen is None else f"{smo / rosen:.2f}",
            ])  # fmt: skip
    lines += table(head, rows)
    lines += _differences(found)
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
    about = f"""The last two are of {found["fewer"]} partitions; of steepest descent at most {found["slow"]:,} steps, a
        star where some did not get there. "One look a release" is the default of `rosen`: inside a face it works with
        K_JJ alone, and f of all rows is brought up to date when a release seems due, which is one pass over the data
        where no kernel rows are kept."""
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
                *(_ours(one[key].get(at), 0) for key in ("rosen: naive", "rosen, looks: computed", "block: computed")),
                _ours(one["block: passes"].get(at)),
            ])  # fmt: skip
    shares = [
        one["block: computed"][at]["mean"] / (2.0 * one["wss2"][at]["mean"])
        for one in found["sets"] for at in EPS if one["wss2"][at]["mean"]
    ]  # fmt: skip
    about = f"""A step of SMO needs two kernel rows, one of Rosen's method a row for every free one: the question of
        kernel operations that the paper leaves open. Counted that way it needs several times SMO's. With K_JJ at hand
        inside a face the factor falls; and rounds that release up to q rows at once need {min(shares):.1f} to
        {max(shares):.1f} times the kernel values of rule 2, in a few passes over the data; SMO makes one a step."""
    return ["### Kernel operations, in rows of N values, nothing kept", "", *table(head, rows), paragraph(about), ""]


def _last_digits(found: dict[str, Any]) -> list[str]:
    head = ["set", "rule 1 to 1e-3", "then `rosen` to 1e-6", "rule 1 alone", "rule 2 to 1e-3", "then `rosen` to 1e-6",
            "rule 2 alone"]  # fmt: skip
    rows = []
    for one in found["sets"]:
        cells: list[str] = [one["name"]]
        for rule in ("wss1", "wss2"):
            cells += [_ours(one["then"].get(rule)), _ours(one["then"].get(f"rosen after {rule}")),
                      _reached(one[rule]["1e-06"], found["most"])]  # fmt: skip
        rows.append(cells)
    return ["### SMO first, Rosen's method for the last digits: iterations", "", *table(head, rows)]


def _differences(found: dict[str, Any]) -> list[str]:
    inside, outside = [], []
    for one in found["sets"]:
        for at, paper in zip(EPS, PAPER[one["name"]][1:], strict=True):
            ours = one["wss1"][at]
            if ours["mean"] is None or not ours["n"]:
                continue
            error = (ours["sd"] ** 2 / ours["n"] + paper[0][1] ** 2 / 100) ** 0.5
            text = f"{one['name']} at {_eps(at)}"
            (inside if abs(ours["mean"] - paper[0][0]) <= 2.6 * error else outside).append(text)
    grows = [one["rosen"]["1e-06"]["mean"] / one["rosen"]["1e-03"]["mean"] for one in found["sets"]]
    ratios = [
        [one["wss1"][at]["mean"] / one["rosen"][at]["mean"] for one in found["sets"] if one["wss1"][at]["mean"]]
        for at in EPS
    ]
    spans = [f"{min(some):.1f} to {max(some):.1f} at {_eps(at)}" for some, at in zip(ratios, EPS, strict=True) if some]
    reasons = [
        f"""* **SMO.** The paper's columns are those of rule 1: within sampling error (2.6 standard errors of the
        difference of two means) for {len(inside)} of {len(inside) + len(outside)} figures.
        {"Not for " + ", ".join(outside) + "." if outside else ""}""",
        f"""* **Rosen.** From 1e-3 to 1e-6 the count grows by a factor of {min(grows):.2f} to {max(grows):.2f}: the
        claim that it hardly depends on eps {"stands" if max(grows) < 1.25 else "does not show"};
        SMO needs {", ".join(spans)} times as many iterations. Steepest
        descent inside the faces, which is what the text describes, does not have this property (below). How the paper
        counts its iterations is not known: for some sets the count of all steps is near to it, for heart and diabetes
        that of releases and pair steps, and no single count fits all six.""",
        f"""* **Accuracy.** The paper finds no difference by the rank-sum test at the level 0.1; here
        {sum((one["rank_sum_p"] or 0.0) >= 0.1 for one in found["sets"])} of {len(found["sets"])} sets show none.""",
    ]
    if any(one["name"] == "titanic" for one in found["sets"]):
        reasons.append(f"""* **titanic.** It has 14 distinct rows, most with both labels, so that alpha is not unique
            and support vectors can be counted differently. With C = 1e5, which goes with the benchmark, rule 1 takes
            steps of length O(1) towards 1e5 and is not done after {found["most"]:,}; the paper's 143.5 would need a C
            between 1 and 10. A dash stands where no partition got there.""")
    return ["Why they differ:", "", *(paragraph(reason) for reason in reasons), ""]


def _count(sets: list[dict[str, Any]]) -> int:
    return next(one["partitions"] for one in sets if one["published"])


def _pair(value: tuple[float, float]) -> str:
    return f"{value[0]:g} ± {value[1]:g}"


def _ours(some: dict[str, Any] | None, digits: int = 1) -> str:
    if some is None or some["mean"] is None:
        return "-"
    return f"{some['mean']:.{digits}f} ± {some['sd']:.{digits}f}"


def _reached(some: dict[str, Any], most: int) -> str:
    if some["mean"] is None:
        return f"> {most}"
    return _ours(some) + (f", {some['never']} of {some['n'] + some['never']} > {most}" if some["never"] else "")


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
