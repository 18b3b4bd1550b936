"""Plots as small SVG files, the same bytes for the same curves.

A page of documentation needs no micrometres: numbers have two decimals, text is text instead of outlines, and points
of a line that nobody would miss are left out, as are markers that lie on each other.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
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
_SUPERFLUOUS = re.compile(r'^ +|<!-- .*? -->\n|(?<=<g) id="[^"]*"| transform="rotate\(-?0 [^"]*"', re.MULTILINE)
_MARKERS = re.compile(r'<g((?: clip-path="[^"]*")?)>\n((?:<use [^>]* style="[^"]*"/>\n)+)</g>')
_STYLE = re.compile(r' style="[^"]*"')


@contextlib.contextmanager
def plotting(path: Path) -> Iterator[Any]:
    """matplotlib's pyplot, set for a file that is called so; whoever wants no plot does without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    settings = {"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
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
            for axis in (axes.xaxis, axes.yaxis):
                if len(axis.get_majorticklocs()) > 3:  # of these at least two are to be seen
                    axis.minorticks_off()
            for line in axes.lines:
                if line.get_transform() == axes.transData:
                    _thin(line, figure.dpi / 72.0)
        figure.savefig(path, metadata={"Date": None})
        path.write_text(lean(path.read_text()))
    else:
        figure.savefig(path)
    pyplot.close(figure)


def _thin(line: Any, dots_in_pt: float) -> None:
    """Leave those points of a line that can be seen; its axes keep their limits."""
    places = line.get_transform().transform(line.get_xydata()) / dots_in_pt
    kept = on_the_way(places, _OFF_PT)
    if line.get_marker() not in ("None", "", " ", None):
        marked = told_apart(places, _APART_PT)
        kept = sorted({*kept, *marked})
        line.set_markevery([kept.index(number) for number in marked])
    line.set_data(*line.get_xydata()[kept].T)


def on_the_way(places: np.ndarray, off: float) -> list[int]:
    """Numbers of points (n, 2): a line through these alone passes the others at most `off` away (Douglas, Peucker)."""
    kept = {0, len(places) - 1} if len(places) else set()
    parts = [(0, len(places) - 1)]
    while parts:
        first, last = parts.pop()
        if last - first < 2:
            continue
        begin, way = places[first], places[last] - places[first]
        length = max(float(way @ way), 1e-12)
        inside = places[first + 1 : last] - begin
        share = np.clip(inside @ way / length, 0.0, 1.0)
        distances = np.hypot(*(inside - share[:, None] * way).T)
        if distances.max() > off:
            middle = first + 1 + int(distances.argmax())
            kept.add(middle)
            parts += [(first, middle), (middle, last)]
    return sorted(kept)


def told_apart(places: np.ndarray, apart: float) -> list[int]:
    """Numbers of points (n, 2): the first, then each that is `apart` from the one before; and the last."""
    kept: list[int] = []
    for number, place in enumerate(places):
        if not kept or np.hypot(*(place - places[kept[-1]])) >= apart or number == len(places) - 1:
            kept.append(number)
    return kept


def lean(text: str) -> str:
    """The SVG that matplotlib writes, to be seen as before: short numbers, and what many elements share said once."""
    text = _ATTRIBUTE.sub(lambda found: _LONG.sub(_short, found[0]), text)
    text = _MARKERS.sub(_of_one_style, _SUPERFLUOUS.sub("", text))
    return _with_classes("\n".join(_merged(_without_idle_groups(text.splitlines()))) + "\n")


def _with_classes(text: str) -> str:
    """Styles that stand twice, as classes."""
    times = Counter(_STYLE.findall(text))
    names = {style: f"s{number}" for number, style in enumerate(s for s, n in times.items() if n > 1)}
    text = _STYLE.sub(lambda found: f' class="{names[found[0]]}"' if found[0] in names else found[0], text)
    rules = "".join(f"\n.{name}{{{style.split(chr(34))[1]}}}" for style, name in names.items())
    return text.replace("</style>", f"{rules}</style>", 1)


def _without_idle_groups(lines: list[str]) -> list[str]:
    """The lines but for those that open and close groups without attributes; each of these is a line of its own."""
    kept: list[str] = []
    opened: list[bool] = []
    for line in lines:
        if line.startswith("<g") and not line.endswith("/>"):
            opened.append(line != "<g>")
        idle = line == "<g>" or (line == "</g>" and not opened[-1])
        if line == "</g>":
            opened.pop()
        if not idle:
            kept.append(line)
    return kept


def _merged(lines: list[str]) -> list[str]:
    """The lines, of neighbouring groups with the same attributes one group made."""
    kept: list[str] = []
    opened: list[str] = []
    for line in lines:
        if line.startswith("<g") and not line.endswith("/>"):
            if kept and kept[-1] == f"</g>{line}":
                kept.pop()
                opened.append(line)
                continue
            opened.append(line)
        kept.append(f"</g>{opened.pop()}" if line == "</g>" else line)  # says what it closes until all are here
    return ["</g>" if line.startswith("</g>") else line for line in kept]


def _of_one_style(found: re.Match[str]) -> str:
    styles = set(_STYLE.findall(found[2]))
    return f"<g{found[1]}{styles.pop()}>\n{_STYLE.sub('', found[2])}</g>" if len(styles) == 1 else found[0]


def _short(found: re.Match[str]) -> str:
    text = f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
