"""A bar that was measured: what, how much, and whether it is kept."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def bar(name: str, what: str, figure: str, measured: float, limit: float, least: bool = False) -> Row:
    """A row of docs/figures/cluster.json.

    what : on what it was measured;  figure : of what
    limit : that it may have at most, or with `least` at least
    """
    measured = float(measured)  # JSON knows no numbers of NumPy
    kept = measured >= limit if least else measured <= limit
    return {
        "bar": name, "what": what, "figure": figure, "measured": measured, "limit": limit, "least": least, "kept": kept,
    }  # fmt: skip
