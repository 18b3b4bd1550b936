"""Charts by matplotlib, as files or as SVG elements that take their colours from a page.

Only `Figure` is used, never pyplot: no window opens, and other users of matplotlib in the process are not affected.
"""

from __future__ import annotations

import io
import logging
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bigsvm.errors import UsageError
from bigsvm.report.facts import Chart, Curve, printable

WIDTH, HEIGHT = 4.4, 3.1  # inches: legible in a phone's width, and two stand beside each other on a desk
SERIES = 8
# Placeholder colours, which a page replaces by its own (`var(--ink)`), light or dark.
_INK, _FAINT, _GRID = "#01fe01", "#01fe02", "#01fe03"
_COLOURS = [f"#01fe1{k}" for k in range(SERIES)]
_NAMES = {_INK: "ink", _FAINT: "faint", _GRID: "grid", **{c: f"c{k}" for k, c in enumerate(_COLOURS)}}
_DASHES: Sequence[Any] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
"""Line styles, so that lines can be distinguished without colours."""
# Okabe and Ito's palette for the colour-blind, with a darker yellow for white pages.
_ON_WHITE = {
    "ink": "#1b1f24", "faint": "#5b6470", "grid": "#d9dee4",
    "c0": "#0072b2", "c1": "#d55e00", "c2": "#009e73", "c3": "#cc79a7",
    "c4": "#e69f00", "c5": "#56b4e9", "c6": "#7a5195", "c7": "#1b1f24",
}  # fmt: skip


def check_matplotlib() -> None:
    """Raise UsageError if matplotlib is not installed."""
    try:
        with _without_advice():
            import matplotlib.figure  # noqa: F401
    except ImportError as error:
        hint = "install bigsvm[report], which is matplotlib; --text needs nothing"
        raise UsageError("curves are drawn by matplotlib, which is not installed", hint=hint) from error


@contextmanager
def _without_advice() -> Iterator[None]:
    """Around an import of matplotlib.

    If it cannot write its folder in the user's home, it takes a temporary one, which is all that is wanted.  Its lines
    about that, and about its fonts, would stand among ours, also with --quiet.
    """
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def inline_svg(chart: Chart, number: int) -> str:
    """A chart as an <svg> element for a page that defines --ink, --faint, --grid and --c0 to --c7.

    number : number of the chart on its page, which makes the ids in the drawing unique
    """
    text = _drawn([chart], "svg", f"chart{number}").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"#01fe[01][0-9]", lambda found: f"var(--{_NAMES[found[0]]})", text)
    # Ids are unique only within a drawing.
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>chart{number}-", text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    head = re.sub(r' (?:width|height)="[\d.]+pt"', "", text[: text.index(">")])
    return f'{head} role="img" aria-label="{_escaped(chart.title)}"{text[text.index(">") :]}'


def picture(charts: Sequence[Chart], form: str) -> bytes:
    """Charts side by side, as a file.

    form : 'svg' or 'png'
    """
    return _drawn(charts, form, "bigsvm")


def _drawn(charts: Sequence[Chart], form: str, salt: str) -> bytes:
    with _without_advice():
        from matplotlib import rc_context, rcdefaults, rcParams
        from matplotlib.figure import Figure

    inline = salt != "bigsvm"
    settings: Any = {
        "svg.fonttype": "none" if inline else "path",
        "svg.hashsalt": salt,
        "font.size": 9.5,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _FAINT,
        "xtick.color": _FAINT,
        "ytick.color": _FAINT,
        "axes.unicode_minus": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.parse_math": False,  # do not parse $ as mathematics, because a class may be called so
    }
    colours: dict[str, str] = {} if inline else {name: _ON_WHITE[_NAMES[name]] for name in _NAMES}
    settings = {name: colours.get(str(value), value) for name, value in settings.items()}
    with rc_context(), warnings.catch_warnings():
        rcdefaults()  # ignore the user's own style
        rcParams.update(settings)
        # The page is shown in the reader's fonts, so letters that matplotlib's font lacks do not matter.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = Figure(figsize=(WIDTH * len(charts), HEIGHT), layout="constrained")
        figure.patch.set_alpha(0.0 if inline else 1.0)
        for axes, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
            _draw(axes, chart, colours)
            if not inline:
                axes.set_title(printable(chart.title), fontsize=10)
        out = io.BytesIO()
        figure.savefig(out, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
    return out.getvalue()


def _draw(axes: Any, chart: Chart, colours: dict[str, str]) -> None:
    def of(name: str) -> str:
        return colours.get(name, name)

    axes.patch.set_alpha(0.0)
    axes.grid(True, color=of(_GRID), linewidth=0.6)
    axes.set_axisbelow(True)
    k = 0
    for curve in chart.curves:
        colour = of(_FAINT) if curve.faint else of(_COLOURS[k % SERIES])
        if chart.kind == "bars":
            axes.stairs(curve.y, curve.x, fill=True, alpha=0.35, color=colour)
            axes.stairs(curve.y, curve.x, color=colour, label=_named(curve), linestyle=_dash(k), linewidth=1.4)
        else:
            _line(axes, curve, colour, k)
        k += not curve.faint
    if chart.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e+"))
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    if chart.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
    if chart.level is not None and (chart.level[1] > 0 or not chart.log_y):
        axes.axhline(
            chart.level[1], color=of(_FAINT), linewidth=1.0, linestyle=(0, (2, 2)), label=printable(chart.level[0])
        )
    for k, (name, x, y) in enumerate(chart.marks):
        if chart.named_marks:  # open circles, so that two marks at the same point are both visible
            axes.plot(
                [x],
                [y],
                "os"[k % 2],
                color="none",
                markeredgecolor=of(_INK),
                markersize=8 + 4 * (k % 2),
                label=printable(name),
            )
        else:
            axes.plot([x], [y], "o", color=of(_COLOURS[k % SERIES]), markeredgecolor=of(_INK), markersize=6)
    if chart.log_y:
        _show_decades(axes)
    if chart.unit_square:
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
    if chart.whole_x:
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    named = [name for name in axes.get_legend_handles_labels()[1] if name]
    if len(named) > 1 or chart.level is not None:
        axes.legend(frameon=False, fontsize=8.5, ncols=2 if len(named) > 5 else 1)


def _show_decades(axes: Any) -> None:
    """Widen an axis that spans fewer than two powers of ten, because only these have labels."""
    low, high = (math.log10(limit) for limit in axes.get_ylim())
    if math.floor(high) - math.ceil(low) < 1:
        axes.set_ylim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))


def _line(axes: Any, curve: Curve, colour: str, k: int) -> None:
    name = _named(curve)
    if curve.points:
        size = 5.0 if len(curve.x) <= 50 else 1.5
        axes.plot(curve.x, curve.y, "o", color=colour, markersize=size, label=name, alpha=1.0 if size > 2 else 0.6)
        return
    marker = "o" if len(curve.x) <= 30 and not curve.faint else ""
    dashes = (0, (1.5, 1.5)) if curve.faint else _dash(k)
    axes.plot(curve.x, curve.y, color=colour, linestyle=dashes, marker=marker, markersize=3.2, linewidth=1.6,
              label=name)  # fmt: skip
    if len(curve.errors):
        axes.errorbar(curve.x, curve.y, curve.errors, fmt="none", ecolor=colour, elinewidth=1.0, capsize=2.5)


def _named(curve: Curve) -> str:
    """The name of a curve for a legend; matplotlib would leave out a name that begins with an underscore."""
    return printable(f"\u200b{curve.name}" if curve.name.startswith("_") else curve.name)


def _dash(k: int) -> Any:
    """The style of the k-th line; lines with the same colour get different styles."""
    return _DASHES[(k + k // SERIES) % len(_DASHES)]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
