"""The elements of a report: sections of facts, tables, bars and curves; and the source of every number.

A number is never written directly: it is taken from a document by its path (`Source.told`).  So a reader can look up
every number of a page, and a test does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bigsvm.units import show_bytes, show_seconds


def printable(text: str) -> str:
    """The text with a question mark for each byte of a path that is not UTF-8."""
    return text.encode("utf-8", "replace").decode()


class Told(NamedTuple):
    """A value as text, and where it came from.

    source : `DOCUMENT:path.to.value` for a number from a document; empty for words and derived values
    value : the number in the document
    """

    text: str
    source: str = ""
    value: float | None = None


class Fact(NamedTuple):
    """A line of a section: its name and its values."""

    name: str
    values: tuple[Told, ...]


@dataclass(frozen=True)
class Table:
    """Rows under a head.

    shades : for each cell the share of the darkest shade, 0 to 1; empty for none
    folded : hide the rows until the reader asks, if the medium allows that
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Told]]
    caption: str = ""
    shades: Sequence[Sequence[float]] = ()
    folded: bool = False


class Part(NamedTuple):
    """A part of a bar: its name, its length and its text."""

    name: str
    size: float
    told: Told


@dataclass(frozen=True)
class Bar:
    """Consecutive parts of a whole.

    whole : length of the whole bar; the part that is left stays empty
    """

    title: str
    whole: float
    parts: Sequence[Part]


@dataclass(frozen=True)
class Curve:
    """A named line through points, or steps."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    points: bool = False
    """Draw points without a line between them."""
    faint: bool = False
    errors: Sequence[float] = ()
    """Half the length of the error bar at each point; empty for none."""


@dataclass(frozen=True)
class Chart:
    """Curves over axes.

    kind : 'lines', or 'bars': each curve gives heights y of bars with edges x (one more than y)
    marks : (name, x, y) of single points to be marked, such as the decision of a model
    level : (name, y) of a horizontal line, such as the tolerance
    told : the curves in one sentence, for readers who cannot see them
    """

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_y: bool = False
    kind: str = "lines"
    marks: Sequence[tuple[str, float, float]] = ()
    level: tuple[str, float] | None = None
    unit_square: bool = False
    whole_x: bool = False
    """x is a count."""
    log_x: bool = False
    named_marks: bool = False
    """Include the marks in the legend."""
    told: str = ""


@dataclass(frozen=True)
class Section:
    """A section of a report: one subject."""

    title: str
    facts: Sequence[Fact] = ()
    bars: Sequence[Bar] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    note: str = ""


@dataclass(frozen=True)
class Report:
    """A report on one run, model or registry.

    lead : the most important sentence
    tone : 'good', 'so-so', 'bad' or 'open', of the lead
    """

    kind: str
    name: str
    title: str
    lead: tuple[Told, ...]
    tone: str
    sections: list[Section] = field(default_factory=list)
    warnings: Sequence[str] = ()


def number(value: float, digits: int = 4) -> str:
    """Such as 0.0001235, 12,345.7 or 1.2e-05: `digits` significant digits, and all digits before the point."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 10**digits:
        return f"{value:,.1f}"
    return f"{value:.{digits}g}"


def exact(value: float) -> str:
    """A number to ten digits."""
    return f"{value:,.10g}"


def count(value: float) -> str:
    """12,345"""
    return f"{value:,.0f}"


def small(value: float) -> str:
    """Three digits: 7.73e-05"""
    return f"{value:.3g}"


def seconds(value: float) -> str:
    """A duration; below a tenth of a second in milliseconds."""
    return f"{1000 * value:.3g} ms" if 0 < value < 0.1 else show_seconds(value)


SHOWS: tuple[Callable[[float], str], ...] = (number, exact, count, small, show_bytes, seconds)
"""All formats of numbers from documents."""


class Source:
    """A document from which numbers are taken by their paths.

    name : name of the document: run, event, model, data, history
    """

    def __init__(self, name: str, document: Any) -> None:
        self.name, self.document = name, document

    def get(self, path: str) -> Any:
        """The value at a path such as `result.models.0.objective`; None if there is none."""
        found = self.document
        for part in path.split("."):
            if isinstance(found, dict):
                found = found.get(part)
            elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
                found = found[int(part)]
            else:
                return None
        return found

    def size(self, path: str) -> float:
        """The value as a number that can be drawn; 0 if there is none."""
        found = self.get(path)
        return float(found) if is_number(found) else 0.0

    def told(self, path: str, show: Callable[[float], str] = number) -> Told:
        """The value as text, with its source; words stay words, and a missing value becomes a dash."""
        found = self.get(path)
        if is_number(found):
            return Told(show(found), f"{self.name}:{path}", found)
        return Told("-" if found is None else str(found))

    def fact(self, name: str, path: str, show: Callable[[float], str] = number) -> list[Fact]:
        """A line with the value; none if the document does not have it."""
        return [] if self.get(path) is None else [Fact(name, (self.told(path, show),))]


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def words(name: str, text: object) -> list[Fact]:
    """A line of words; none if the text is empty."""
    return [] if text in (None, "") else [Fact(name, (Told(str(text)),))]


def thinned(n: int, most: int) -> list[int]:
    """At most `most` of the numbers from 0 to n - 1, evenly spaced, including the first and the last."""
    if n <= most:
        return list(range(n))
    return sorted({round(k * (n - 1) / (most - 1)) for k in range(most)})


def joined(values: Iterable[Any], most: int = 8) -> str:
    """The first `most` values, separated by commas, and the total number if there are more."""
    shown = [str(value) for value in values]
    return ", ".join(shown[:most]) + (f", … ({len(shown)} in all)" if len(shown) > most else "")


def in_line(values: Sequence[Told], write: Callable[[Told], str] = lambda told: told.text) -> str:
    """Values one after another; punctuation follows without a space."""
    out = ""
    for told in values:
        out += ("" if not out or told.text.startswith((".", ",", ")")) else " ") + write(told)
    return out
