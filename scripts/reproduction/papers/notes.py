"""Wang Jialin 2016: simplified SMO, Platt's SMO and DCD on heart_scale."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from reproduction import notes, notes_report
from reproduction.catalogue import Item, Number, Paper
from reproduction.journal import journal_of
from reproduction.notes import OURS
from reproduction.sets import made_up, notes_set, open_folder


def run(asked: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """heart_scale."""
    if asked.smoke:
        data, protocol = made_up(40, 3, 1), notes.Protocol(repeats=1, seeds=2)
    else:
        data, protocol = notes_set(open_folder(asked.data)), notes.Protocol()
    return notes.run(data, protocol, journal_of(asked, "notes", asdict(protocol)), say)


def table(found: dict[str, Any]) -> list[Number]:
    """Accuracy and milliseconds of each code; ours is the rule that the text of the source describes."""
    by = {(one["solver"], one["kernel"], one["rule"]): one for one in found["lines"]}
    numbers = []
    for line in notes.PAPER:
        if line.code in OURS:
            rule, solver = OURS[line.code][0]
            ours = by[solver.name, line.kernel, rule]
        else:
            ours = found["dcd"]
        of = f"{line.code}, {line.printed}"
        numbers.append(Number(f"{of}: accuracy", line.accuracy, ours["accuracy"], 0.0005))
        numbers.append(Number(f"{of}: ms", line.ms, ours["ms"], None))
    return numbers


PAPER = Paper(
    name="notes",
    title=notes.TITLE,
    items=(
        Item(
            "the table", "accuracy and milliseconds of four codes on heart_scale", 12, table,
            rule="in the printed digits; milliseconds of two machines are not compared",
            why="""most of the accuracies are not k / 270 for any k, and 0.546 is below the share of the larger class.
            So the source's models had not converged, or its accuracies are of other rows""",
        ),
    ),
    run=run,
    section=notes_report.section,
    draw=notes_report.draw,
)  # fmt: skip
