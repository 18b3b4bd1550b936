"""Results for people: aligned lines on standard output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bigsvm.errors import CONTROLS
from bigsvm.units import plural, shortened, show_bytes, show_seconds

_WORTH_A_WORD_S = 0.01


def rows(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values in two columns, each in one line; a pair whose value is None is left out."""
    shown = [(label(name), label(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"  {name:<{width}}  {value}".rstrip() for name, value in shown)


def number(value: float | None, digits: int = 6) -> str:
    """A number for people, or a dash."""
    return "-" if value is None else f"{value:.{digits}g}"


def chosen(result: dict[str, Any]) -> str | None:
    """Of rows that a condition chose, how many; None where all were taken."""
    found = result.get("chosen")
    if not found:
        return None
    unknown = f"; of {count(found['unknown'])} it is not known" if found["unknown"] else ""
    return f"{count(found['chosen'])} of {counted(found['of'], 'row')}, where {shortened(found['rows'])}{unknown}"


def count(value: float | None) -> str:
    """12,345 or a dash."""
    return "-" if value is None else f"{value:,.0f}"


def counted(value: float | None, one: str, many: str = "") -> str:
    """12,345 rows, 1 row, or a dash and the noun."""
    return f"{count(value)} {plural(-1 if value is None else round(value), one, many)}"


def absent(n_empty: int, n_missing: int) -> str:
    """What is said of the chunks that a store does not have, after their number; nothing where it has all."""
    said = [f"{count(n_empty)} empty"] if n_empty else []
    said += [f"{count(n_missing)} missing"] if n_missing else []
    return f" ({', '.join(said)})" if said else ""


def label(value: Any) -> str:
    """A label, or a name of a column or a file, in a place where line ends and control characters have none."""
    return str(value).translate(CONTROLS)


def listed(values: Iterable[Any], most: int = 8) -> str:
    """The first few of many."""
    shown = [label(value) for value in values]
    return ", ".join(shown[:most]) + (f", ... ({len(shown)} in all)" if len(shown) > most else "")


def kernel(document: Any) -> str:
    """`rbf (gamma 0.5)`, of a kernel's name or of its name and parameters."""
    if not isinstance(document, dict):
        return str(document)
    parameters = [f"{name} {value:g}" for name, value in document.items() if name != "name"]
    return str(document.get("name")) + (f" ({', '.join(parameters)})" if parameters else "")


def memory(document: dict[str, Any] | None) -> str | None:
    """`peak 61 MiB of 64 MiB, on a base of 120 MiB`."""
    if not document:
        return None
    held = max(0, document["peak_anon_bytes"] - document["base_bytes"])
    budget = document["budget_bytes"]
    of = "" if budget is None else f" of the budget of {show_bytes(budget)}"
    return f"peak {show_bytes(held)}{of}, on a base of {show_bytes(document['base_bytes'])}"


def seconds(document: dict[str, float] | float | None) -> str | None:
    """`12.3 s (staging 1.00 s, solving 10.1 s)`; what took no time worth a word is left out."""
    if document is None or not isinstance(document, dict):
        return None if document is None else show_seconds(document)
    parts = [
        f"{name.replace('_', ' ')} {show_seconds(value)}"
        for name, value in document.items()
        if name != "total" and value >= _WORTH_A_WORD_S
    ]
    return show_seconds(document["total"]) + (f" ({', '.join(parts)})" if parts else "")
