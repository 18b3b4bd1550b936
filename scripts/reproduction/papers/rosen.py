"""Lopez and Dorronsoro: Rosen's gradient projection and SMO."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from reproduction import rosen, rosen_report
from reproduction.catalogue import Item, Number, Paper, of_two_means
from reproduction.sets import Partitioned, made_up, open_folder, rosen_sets


def options(group: argparse._ArgumentGroup) -> None:
    """The partitions."""
    group.add_argument("--partitions", type=int, default=100, help="of sets without published ones")


def run(asked: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Six sets, as many random partitions as --partitions says of those that have no published ones."""
    if asked.smoke:
        sets = [Partitioned(made_up(90, 3, k, name), 60) for k, name in enumerate(("heart", "thyroid"))]
        return rosen.run(sets, rosen.Protocol(partitions=3, fewer=2, most=5000, slow=2000), say)
    return rosen.run(rosen_sets(open_folder(asked.data)), rosen.Protocol(asked.partitions), say, asked.parts)


def iterations(at: str) -> Callable[[dict[str, Any]], list[Number]]:
    """Iterations of SMO (rule 1) and of Rosen's method, at a precision."""

    def numbers(found: dict[str, Any]) -> list[Number]:
        by = {one["name"]: one for one in found["sets"]}
        listed = []
        for name, paper in rosen.PAPER.items():
            printed = paper.at_3 if at == "1e-03" else paper.at_6
            for method, key, (mean, sd) in zip(("SMO", "Rosen"), ("wss1", "rosen"), printed, strict=True):
                some = by[name][key][at] if name in by else {"mean": None}
                close = None if some["mean"] is None else of_two_means(sd, 100, some["sd"], some["n"])
                listed.append(Number(f"{name}, {method}: iterations", mean, some["mean"], close))
        return listed

    return numbers


PAPER = Paper(
    name="rosen",
    title=rosen.TITLE,
    items=(
        Item("Table 1", "iterations at eps = 1e-3", 12, iterations("1e-03"), rule="sampling error"),
        Item("Table 2", "iterations at eps = 1e-6", 12, iterations("1e-06"), rule="sampling error"),
    ),
    run=run,
    section=rosen_report.section,
    draw=rosen_report.draw,
    options=options,
    cheap=False,
)
