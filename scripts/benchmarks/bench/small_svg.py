"""Plots as small SVG files, the same bytes for the same curves.

A page of documentation needs no micrometres: numbers have two decimals, text is text instead of outlines, and of
markers that lie on each other one is drawn.  Lines keep all their points but for what no eye can tell apart.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MOST_BYTES = 100_000
"""Of an SVG file in docs."""
_APART_PT = 3.0  # markers nearer than this to the one before are left out
_OFF_PT = 0.3  # a line may pass a point by so much
_ATTRIBUTE = re.compile(r'(?<= )(?:d|x|y|points|transform|viewBox|width|height)="[^"]*"')
_LONG = re.compile(r"-?\d+\.\d{3,}")
_SUPERFLUOUS = re.compile(r'^ +|<!-- .*? -->\n| transform="rotate\(-?0 [^"]*"', re.MULTILINE)
_MARKERS = re.compile(r'<g((?: clip-path="[^"]*")?)>\n((?:<use [^>]* style="[^"]*"/>\n)+)</g>')
_STYLE = re.compile(r' style="[^"]*"')


@contextlib.contextmanager
def plotting(path: Path) -> Iterator[Any]:
    """matplotlib's pyplot, set for a file that is called so; whoever wants no plot does without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    settings = {
        "svg.hashsalt": path.stem, "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"],
        "path.simplify": True, "path.simplify_threshold": _OFF_PT,
    }  # fmt: skip
    with mpl.rc_context(settings):
        yield pyplot


def save(figure: Any, path: Path) -> None:
    """Write a figure that was made inside of `plotting`, without a date, and close it."""
    from matplotlib import pyplot

    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        figure.canvas.draw()  # places become known
        for axes in figure.axes:
            for line in axes.lines:
                if line.get_marker() not in ("None", "", " ", None):
                    line.set_markevery(told_apart(axes.transData.transform(line.get_xydata()), figure.dpi))
        figure.savefig(path, metadata={"Date": None})
        path.write_text(lean(path.read_text()))
    else:
        figure.savefig(path)
    pyplot.close(figure)


def told_apart(places: np.ndarray, dots_per_inch: float) -> list[int]:
    """Numbers of the points (n, 2) that get a marker: the first, then each that is not on the one before; the last."""
    kept: list[int] = []
    least = _APART_PT * dots_per_inch / 72.0
    for number, place in enumerate(places):
        if not kept or np.hypot(*(place - places[kept[-1]])) >= least:
            kept.append(number)
    return kept if not len(places) or kept[-1] == len(places) - 1 else [*kept, len(places) - 1]


def lean(text: str) -> str:
    """The SVG that matplotlib writes, to be seen as before: short numbers, and what all markers share said once."""
    text = _ATTRIBUTE.sub(lambda found: _LONG.sub(_short, found[0]), text)
    return _MARKERS.sub(_of_one_style, _SUPERFLUOUS.sub("", text))


def _of_one_style(found: re.Match[str]) -> str:
    styles = set(_STYLE.findall(found[2]))
    return f"<g{found[1]}{styles.pop()}>\n{_STYLE.sub('', found[2])}</g>" if len(styles) == 1 else found[0]


def _short(found: re.Match[str]) -> str:
    text = f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
