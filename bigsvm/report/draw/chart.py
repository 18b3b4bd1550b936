"""Charts in the characters of a terminal: sparklines, and curves of braille dots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from bigsvm.errors import CONTROLS
from bigsvm.report.facts import Chart, Curve

_BLOCKS = "▁▂▃▄▅▆▇█"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell: four rows, two columns
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ANSI = (34, 33, 32, 35, 36, 31)


def sparkline(values: Sequence[float], width: int = 40, log: bool = False) -> str:
    """At most `width` values as blocks of eight heights; values that are not finite become spaces.

    log : heights by the logarithm; values that are not positive become spaces
    """
    shown = [_scaled(value, log) for value in _sampled(values, width)]
    finite = [value for value in shown if value is not None]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = high - low
    out = ""
    for value in shown:
        if value is None:
            out += " "
        else:
            out += _BLOCKS[round((len(_BLOCKS) - 1) * (value - low) / span)] if span > 0 else _BLOCKS[0]
    return out


def bar(share: float, width: int = 30) -> str:
    """A bar such as `█████▌      `: a share from 0 to 1, as `width` characters."""
    eighths = round(8 * width * min(max(share, 0.0), 1.0))
    full, rest = divmod(eighths, 8)
    return ("█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else "")).ljust(width)


def braille(chart: Chart, width: int = 72, height: int = 16, colour: bool = False) -> str:
    """A chart of `height` lines with at most `width` characters, with the ends of its axes and a legend.

    Curves are distinguished by colours; without colours, and if there are several, by letters instead of dots.

    colour : whether ANSI colours may be used
    """
    points = [_drawable(curve, chart) for curve in chart.curves]
    bars = [_bars(curve, chart) for curve in chart.curves]
    flat = [point for found in (*points, *(bar for of_curve in bars for bar in of_curve)) for point in found]
    if not flat:
        return f"{chart.title}\n  no points"
    x_low, x_high = min(x for x, _ in flat), max(x for x, _ in flat)
    y_low, y_high = min(y for _, y in flat), max(y for _, y in flat)
    ends = [_end(y_high, chart.log_y), _end(y_low, chart.log_y)]
    margin = max(map(len, ends))
    columns = max(8, width - margin - 2)
    cells: dict[tuple[int, int], tuple[int, int]] = {}  # (row, column) -> (dots, curve)
    drawn = [(number, part) for number, line in enumerate(points) for part in (line, *bars[number])]
    for k, found in drawn:
        placed = [
            (
                _place(x, x_low, x_high, 2 * columns - 1),
                4 * height - 1 - _place(y, y_low, y_high, 4 * height - 1),
            )
            for x, y in found
        ]
        for x, y in _joined(placed):
            at = (y // 4, x // 2)
            dots, _ = cells.get(at, (0, k))
            cells[at] = (dots | _DOTS[y % 4][x % 2], k)
    several = len(chart.curves) > 1
    lines = [chart.title]
    for row in range(height):
        said = ends[0] if row == 0 else ends[1] if row == height - 1 else ""
        line = "".join(_glyph(cells.get((row, column)), several, colour) for column in range(columns))
        lines.append(f"{said:>{margin}} ┤{line}".rstrip())
    axis = f"{_end(x_low, chart.log_x, 3)}"
    lines.append(f"{'':>{margin}} └{'─' * columns}")
    lines.append(f"{'':>{margin}}  {axis}{_end(x_high, chart.log_x, 3):>{columns - len(axis)}}")
    lines.append(f"{'':>{margin}}  {chart.x}".rstrip())
    if several:
        lines += [
            f"{'':>{margin}}  {_mark(k, colour)} {curve.name.translate(CONTROLS)}"
            for k, curve in enumerate(chart.curves)
        ]
    if chart.named_marks:
        lines += [f"{'':>{margin}}  {name}, {chart.y} {y:.4g}" for name, _, y in chart.marks]
    return "\n".join(lines)


def _scaled(value: float, log: bool) -> float | None:
    if not math.isfinite(value) or (log and value <= 0):
        return None
    return math.log10(value) if log else value


def _sampled(values: Sequence[float], most: int) -> list[float]:
    n = len(values)
    return list(values) if n <= most else [values[round(k * (n - 1) / (most - 1))] for k in range(most)]


def _drawable(curve: Curve, chart: Chart) -> list[tuple[float, float]]:
    return _shown(zip(curve.x, curve.y, strict=True), chart)


def _bars(curve: Curve, chart: Chart) -> list[list[tuple[float, float]]]:
    """The two ends of the error bar at each point."""
    if not len(curve.errors):
        return []
    ends = zip(curve.x, curve.y, curve.errors, strict=True)
    return [_shown([(x, y - error), (x, y + error)], chart) for x, y, error in ends]


def _shown(points: Iterable[tuple[float, float]], chart: Chart) -> list[tuple[float, float]]:
    """Points in the coordinates of the axes, without those that the axes cannot show."""
    pairs = ((_scaled(x, chart.log_x), _scaled(y, chart.log_y)) for x, y in points)
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _place(value: float, low: float, high: float, most: int) -> int:
    return round(most * (value - low) / (high - low)) if high > low else most // 2


def _joined(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The points, and points on the straight lines between them."""
    out = points[:1]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        out += [(round(x0 + (x1 - x0) * s / steps), round(y0 + (y1 - y0) * s / steps)) for s in range(1, steps + 1)]
    return out


def _end(value: float, log: bool, digits: int = 2) -> str:
    return f"{10**value if log else value:.{digits}g}"


def _glyph(cell: tuple[int, int] | None, several: bool, colour: bool) -> str:
    if cell is None:
        return " "
    dots, k = cell
    if several and not colour:
        return _LETTERS[k % len(_LETTERS)]
    return _coloured(chr(0x2800 + dots), k) if several else chr(0x2800 + dots)


def _mark(k: int, colour: bool) -> str:
    return _coloured("⣿", k) if colour else _LETTERS[k % len(_LETTERS)]


def _coloured(text: str, k: int) -> str:
    return f"\x1b[{_ANSI[k % len(_ANSI)]}m{text}\x1b[0m"
