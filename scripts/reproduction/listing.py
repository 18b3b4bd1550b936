"""What `reproduce.py` says of the catalogue: the list of all tables and figures, and what two runs differ in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from reproduction.catalogue import ABSENT, Paper
from reproduction.report import paragraph

_OF_THE_CLOCK = ("seconds", "ms", "machine")
"""What figures of time, and of the machine's speed, are called; they differ from run to run."""


def listing(papers: Sequence[Paper], documents: dict[str, dict[str, Any] | None]) -> tuple[list[str], int]:
    """A paragraph for each item, of the JSON documents by paper; and how many items are absent without a reason."""
    lines, absent = [], 0
    for paper in papers:
        document = documents[paper.name]
        lines += [paper.title, ""]
        for item in paper.items:
            state, why = item.state(document["found"] if document else None)
            absent += state == ABSENT
            count = f", {item.prints} numbers" if item.prints else ""
            lines.append(paragraph(f"* {item.name} ({item.about}{count}): {state}{f': {why}' if why else ''}."))
        lines.append("")
    return lines, absent


def differences(kept: Any, found: Any, at: str = "", within: dict[str, float] | None = None) -> list[str]:
    """Where two JSON values differ, times left out; numbers may differ in what libraries of sums round.

    within : of what stands below a key, how far two numbers may be apart
    """
    return list(_differences(kept, found, at, within or {}, 1e-12))


def _differences(kept: Any, found: Any, at: str, within: dict[str, float], apart: float) -> Iterator[str]:
    if isinstance(kept, dict) and isinstance(found, dict):
        for key in {**kept, **found}:
            if not key.endswith(_OF_THE_CLOCK):
                near = within.get(key, apart)
                yield from _differences(kept.get(key), found.get(key), f"{at}/{key}", within, near)
    elif isinstance(kept, list) and isinstance(found, list):
        for k, (one, other) in enumerate(zip_longest(kept, found)):
            yield from _differences(one, other, f"{at}/{k}", within, apart)
    elif isinstance(kept, float) and isinstance(found, float):
        if not math.isclose(kept, found, rel_tol=1e-9, abs_tol=apart):
            yield f"{at.lstrip('/')} is {found!r}, not {kept!r}"
    elif kept != found:
        yield f"{at.lstrip('/')} is {found!r}, not {kept!r}"
