"""What is told, and where each number of it was read: sections of facts, tables, bars and curves.

A number is never typed: it is taken from a document by its path (`Source.told`), so that whoever reads a page can look
every one of them up, and a test does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bigsvm.units import show_bytes, show_seconds


class Told(NamedTuple):
    """A value for people.

    source : `DOCUMENT:path.to.value` of a number that stands in a document; empty for words and for what is derived
    value : the number as the document has it
    """

    text: str
    source: str = ""
    value: float | None = None


class Fact(NamedTuple):
    """A line: what it is, and what it says (several values stand one after the other)."""

    name: str
    values: tuple[Told, ...]


@dataclass(frozen=True)
class Table:
    """Rows under a head.

    shades : share of the darkest shade, 0 to 1, of each cell of each row; empty for none
    folded : shown only when asked for, where there is a way to ask
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Told]]
    caption: str = ""
    shades: Sequence[Sequence[float]] = ()
    folded: bool = False


class Part(NamedTuple):
    """A piece of a bar: its name, its length and what is said of that."""

    name: str
    size: float
    told: Told


@dataclass(frozen=True)
class Bar:
    """Pieces of a whole, one after the other.

    whole : length of all of it; what the pieces leave is empty
    """

    title: str
    whole: float
    parts: Sequence[Part]


@dataclass(frozen=True)
class Curve:
    """A line through points, or steps, by name."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    points: bool = False
    """Points without a line between them."""
    faint: bool = False
    errors: Sequence[float] = ()
    """Half the length of an upright bar at each point; empty for none."""


@dataclass(frozen=True)
class Chart:
    """Curves over axes.

    kind : 'lines', or 'bars': each curve gives heights y of bars whose edges are x (one more than y)
    marks : (name, x, y) of single points to be seen, such as where a model works
    level : (name, y) of a horizontal line, such as the tolerance
    told : the curves in one sentence, for those who cannot see them
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
    """x counts things."""
    log_x: bool = False
    named_marks: bool = False
    """The legend has the marks, too."""
    told: str = ""


@dataclass(frozen=True)
class Section:
    """One subject."""

    title: str
    facts: Sequence[Fact] = ()
    bars: Sequence[Bar] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    note: str = ""


@dataclass(frozen=True)
class Report:
    """All that is told of one thing.

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
    """0.0001235, 12,345.7 or 1.2e-05: so many digits, and of large numbers all before the point."""
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
    """A duration, of less than a tenth of a second in milliseconds."""
    return f"{1000 * value:.3g} ms" if 0 < value < 0.1 else show_seconds(value)


SHOWS: tuple[Callable[[float], str], ...] = (number, exact, count, small, show_bytes, seconds)
"""All ways in which a number of a document is written."""


class Source:
    """A document of which numbers are told by their paths.

    name : what the document is called: run, event, model, data, history
    """

    def __init__(self, name: str, document: Any) -> None:
        self.name, self.document = name, document

    def get(self, path: str) -> Any:
        """The value at a path such as `result.models.0.objective`; None where there is none."""
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
        """A number that can be drawn; 0 where there is none."""
        found = self.get(path)
        return float(found) if is_number(found) else 0.0

    def told(self, path: str, show: Callable[[float], str] = number) -> Told:
        """A number for people, with its source; of words the words, of nothing a dash."""
        found = self.get(path)
        if is_number(found):
            return Told(show(found), f"{self.name}:{path}", found)
        return Told("-" if found is None else str(found))

    def fact(self, name: str, path: str, show: Callable[[float], str] = number) -> list[Fact]:
        """A line, or nothing where the document does not have it."""
        return [] if self.get(path) is None else [Fact(name, (self.told(path, show),))]


def is_number(value: Any) -> bool:
    """Whether it is a finite number (and no truth value)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def words(name: str, text: object) -> list[Fact]:
    """A line of words, or nothing where there are none."""
    return [] if text in (None, "") else [Fact(name, (Told(str(text)),))]


def thinned(n: int, most: int) -> list[int]:
    """At most so many of the numbers from 0 to n - 1, evenly, the first and the last among them."""
    if n <= most:
        return list(range(n))
    return sorted({round(k * (n - 1) / (most - 1)) for k in range(most)})


def joined(values: Iterable[Any], most: int = 8) -> str:
    """The first few of many."""
    shown = [str(value) for value in values]
    return ", ".join(shown[:most]) + (f", … ({len(shown)} in all)" if len(shown) > most else "")


def in_line(values: Sequence[Told], write: Callable[[Told], str] = lambda told: told.text) -> str:
    """Values one after the other; what closes a sentence stands close to what it closes."""
    out = ""
    for told in values:
        out += ("" if not out or told.text.startswith((".", ",", ")")) else " ") + write(told)
    return out
