"""The reproductions as Markdown, JSON and SVG, the same bytes for the same figures."""

from __future__ import annotations

import json
import platform
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.small_svg import plotting
from bench.small_svg import save as save_plot

import bigsvm
from reproduction.journal import total

_BOUND = 4 * 60.0
_RUNS = {"wss": "the thinned grid, large sets", "wss-ways": "selections and ways", "wss-full": "the whole grid",
         "wss-kept": "final trainings anew"}  # fmt: skip
INTRO = """# Published numbers beside ours

Each section of this page is written by one command. The command leaves its figures as JSON beside the plots
(`docs/reproduction/`). Seconds are those of one core of the machine that ran the command. Only their ratios can be
compared with those of the papers. "Paper" stands for what is printed. Where a number of ours differs from it by more
than rounding, the page gives the reason, or says that the reason is not known.

## Every table and figure, and what has become of it

Each table of a paper has a rule by which its numbers are said to agree with ours. The list below states the rule. It is
that the printed digits are the same, that the numbers differ by no more than the sampling error of what was drawn at
random, or that they differ by no more than a margin, which says less. Seconds are not compared.
`scripts/reproduction/reproduce.py --list` prints the same list.
"""


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines] + [""]


def paragraph(text: str) -> str:
    """Text in lines as long as the house's; what begins with "* " is indented like an item of a list."""
    words = " ".join(text.split())
    indent = "  " if words.startswith("* ") else ""
    return textwrap.fill(words, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def save(folder: Path, name: str, document: dict[str, Any]) -> None:
    """<folder>/<name>.json: what was found, and what computed it; the versions of today unless it has some."""
    import numpy

    versions = {"bigsvm": bigsvm.__version__, "numpy": numpy.__version__, "python": platform.python_version()}
    folder.mkdir(parents=True, exist_ok=True)
    keys = ("command", "versions", "cost", "printed", "found")
    whole = {key: {"versions": versions, "cost": {}, **document}[key] for key in keys}
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")


def write_page(page: Path, folder: Path, sections: dict[str, Callable[[dict[str, Any], str], list[str]]]) -> None:
    """The page of all papers whose figures are in `folder`; `sections` turns those of each into Markdown."""
    kept = {name: json.loads(p.read_text()) for name in sections if (p := folder / f"{name}.json").exists()}
    lines = [INTRO, *table(["paper", "what", "state", "numbers", "compared", "agree"], _states(kept)), *_why(kept)]
    for name, section in sections.items():
        if name in kept:
            document = kept[name]
            lines += section(document["found"], f"{folder.name}/{name}.svg")
            lines += [f"Made by `{document['command']}`; figures in `{folder.name}/{name}.json`.", ""]
    lines += _costs(kept)
    page.write_text("\n".join(lines))


def _states(kept: dict[str, dict[str, Any]]) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, document in kept.items():
        for item, one in document["printed"].items():
            verdicts = [number["agrees"] for number in one["numbers"]]
            compared = [verdict for verdict in verdicts if verdict is not None]
            counts = [len(verdicts), len(compared), sum(compared)] if verdicts else ["", "", ""]
            rows.append([name, item, one["state"], *counts])
    return rows


def _why(kept: dict[str, dict[str, Any]]) -> list[str]:
    """By which rule, and why what differs does."""
    items = [(name, item, one["why"]) for name, document in kept.items() for item, one in document["printed"].items()]
    return [*(paragraph(f"* **{name}, {item}.** {why}") for name, item, why in items if why), ""]


def _costs(kept: dict[str, dict[str, Any]]) -> list[str]:
    """What a run of each paper takes, and all of them together."""
    rows: list[list[object]] = []
    sums = {"parts": 0.0, "seconds": 0.0, "cpu_seconds": 0.0}
    for name, document in kept.items():
        for journal, kinds in document.get("cost", {}).items():
            one = total({journal: kinds})
            sums = {key: sums[key] + one[key] for key in sums}
            rows.append([name, _RUNS.get(journal, "the run"), f"{one['parts']:.0f}",
                         f"{one['cpu_seconds']:.0f}", f"{one['seconds']:.0f}"])  # fmt: skip
    if not rows:
        return []
    minutes = sums["cpu_seconds"] / 60.0
    unknown = [name for name, document in kept.items() if not document.get("cost")]
    bound = f"the {_BOUND / 60:.0f} hours that were set for it on two cores"
    verdict = f"That is {'less' if minutes < _BOUND else 'more'} than {bound}."
    if unknown:
        verdict = f"""That does not include {", ".join(unknown)}, whose last run was before costs were written down. So
            it is not shown that {bound} are enough."""
    text = paragraph(f"""
        `scripts/reproduction/reproduce.py all` runs everything. If it was stopped, it continues where it stopped. Each
        of the {sums["parts"]:.0f} parts was measured when it ran. Others used the machine at the same time, so seconds
        are more than CPU seconds. Together the parts took {minutes:.0f} minutes of one core, and
        {sums["seconds"] / 60.0:.0f} minutes by the clock. {verdict}""")
    return ["## What a run takes", "", text, "", *table(["paper", "run", "parts", "CPU s", "s"], rows)]


def figure(path: Path, panels: int, draw: Callable[[Any], None], width: float = 3.7) -> None:
    """Axes side by side, drawn on by `draw`."""
    with plotting(path) as pyplot:
        drawn, axes = pyplot.subplots(1, panels, figsize=(width * panels, 3.4), squeeze=False)
        draw(axes[0])
        save_plot(drawn, path)


def spread(values: Sequence[float], digits: int) -> str:
    """The median, and from where to where the values go."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2] if len(ordered) % 2 else sum(ordered[len(ordered) // 2 - 1 :][:2]) / 2
    low, high = f"{ordered[0]:.{digits}f}", f"{ordered[-1]:.{digits}f}"
    return low if low == high else f"{middle:.{digits}f} ({low} to {high})"
