"""Tables of docs/cluster.md: what was measured on a few workers, and what was computed for many."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]


def cluster_computed(document: Document) -> list[str]:
    """Times to a gap of 1e-3, by nominal prices, and with what programs cost."""
    lines = []
    rows = [row for row in document["rows"] if row["kind"] == "computed"]
    most = max(row["workers"] for row in rows)
    for row in rows:
        if row["used"] < row["workers"] < most:  # as with fewer
            continue
        one = row["nominal"]["pass"]
        cells = [
            f"{row['data_bytes'] / 1e12:g} TB", f"{row['features']:,}", f"{row['workers']:,}", f"{row['used']:,}",
            f"{row['passes']:.1f}", f"{one['parts']:.0f} + {one['sums']:.0f} + {one['saves']:.0f}",
        ]  # fmt: skip
        for name in ("nominal", "programs"):
            cells += [_said(row[name]["seconds"]), *map(_said, row[name]["lost"].values())]
        lines.append(cells)
    lost = [f"each lost every {float(h):g} h" for h in rows[0]["nominal"]["lost"]]
    head = [
        "rows", "features", "workers", "with shards", "passes", "seconds of a pass: parts + sums + saves",
        "no losses", *lost, "with costs of programs", *lost,
    ]  # fmt: skip
    prices, passes = document["prices"], document["passes"]
    text = f"""**Computed, not measured**: {passes["one"]:g} passes of one machine, times 1 + {passes["a"]:.2f} L / P
        for L shards and P rounds; rows of {document["row_bytes"]} bytes. Nominal prices in seconds:
        {_priced(prices["nominal"])}. With costs of programs: {_priced(prices["programs"])}."""
    return [*_table(head, lines), "", *_paragraph(text)]


def cluster_foretold(document: Document) -> list[str]:
    """Passes that were measured beside what prices of fewer workers foretell."""
    lines = [
        [
            " and ".join(map(str, row["from"])), row["workers"], row["shards"], row["rounds"],
            f"{row['data_bytes'] / 1e6:.0f} MB", f"{row['weight_bytes'] / 1e6:.2g} MB", f"{row['measured_s']:.1f} s",
            f"{row['foretold_s']:.1f} s", f"{100 * row['off']:+.0f} %",
        ]
        for row in document["rows"]
        if row["kind"] == "compared"
    ]  # fmt: skip
    head = ["prices of", "workers", "shards", "rounds", "rows of data", "w", "a pass", "foretold", "off"]
    return [*_table(head, lines), ""] if lines else []


def _said(seconds: float | None) -> str:
    if seconds is None:
        return "never ends"
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _priced(prices: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2g}" for name, value in prices.items() if value)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)
