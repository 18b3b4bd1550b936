"""What `reproduce.py` says of the catalogue: the list of all tables and figures, and what two runs differ in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

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
            lines.append(paragraph(f"* {item.name} ({item.about}{count}): {state}.{f' {why}' if why else ''}"))
        lines.append("")
    return lines, absent


def differences(
    kept: Any, found: Any, at: str = "", within: dict[str, float] | None = None, clock: str = ""
) -> list[str]:  # fmt: skip
    """Where two JSON values differ, times left out; numbers may differ in what libraries of sums round.

    within : of what stands below a key, how far two numbers may be apart
    clock : the places of further times, as a regular expression of all of a path such as 'small/0/final/wr/0'
    """
    return list(_Comparison(within or {}, re.compile(clock or r"(?!)")).of(kept, found, at, 1e-12))


class _Comparison(NamedTuple):
    within: dict[str, float]
    clock: re.Pattern[str]

    def of(self, kept: Any, found: Any, at: str, apart: float) -> Iterator[str]:
        if self.clock.fullmatch(at.lstrip("/")):
            return
        if isinstance(kept, dict) and isinstance(found, dict):
            for key in {**kept, **found}:
                if not key.endswith(_OF_THE_CLOCK):
                    near = self.within.get(key, apart)
                    yield from self.of(kept.get(key), found.get(key), f"{at}/{key}", near)
        elif isinstance(kept, list) and isinstance(found, list):
            for k, (one, other) in enumerate(zip_longest(kept, found)):
                yield from self.of(one, other, f"{at}/{k}", apart)
        elif isinstance(kept, float) and isinstance(found, float):
            if not math.isclose(kept, found, rel_tol=1e-9, abs_tol=apart):
                yield f"{at.lstrip('/')} is {found!r}, not {kept!r}"
        elif kept != found:
            yield f"{at.lstrip('/')} is {found!r}, not {kept!r}"
