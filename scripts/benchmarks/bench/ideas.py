"""The table of docs/ideas.md: what a run of bench_ideas.py found."""

from __future__ import annotations

from typing import Any


def cells(row: dict[str, Any], tols: list[str]) -> list[str]:
    """Passes and seconds to each gap; where it was not reached, what was."""
    found = []
    for tol in tols:
        to = row["to"].get(tol)
        if to is None:
            found.append("")
        elif to["reached"]:
            found.append(f"{_short(to['passes'])} passes, {_short(to['seconds'])} s")
        else:
            found.append(f"ends at {to['gap']:.0e}, {_short(to['passes'])} passes")
    return found


def digits(row: dict[str, Any]) -> str:
    """Digits of the objective that the best of its fits proved, 15 at most."""
    from math import floor, log10

    least = min((to["gap"] for to in row["to"].values()), default=1.0)
    return str(min(max(floor(-log10(least)), 0), 15)) if least > 0 else "15"


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"
