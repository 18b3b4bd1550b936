"""Liu, Liu and Gu 2009: Rosenbrock's method in the primal."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from reproduction import rosenbrock, rosenbrock_report
from reproduction.catalogue import Claim, Item, Number, Paper
from reproduction.rosenbrock import METHODS
from reproduction.sets import made_up, open_folder, rosenbrock_sets


def options(group: argparse._ArgumentGroup) -> None:
    """The splits."""
    group.add_argument("--splits", type=int, default=20, help="of the rows in 4/5 and 1/5")


def run(asked: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """20 splits of each set, unless --splits says otherwise."""
    if asked.smoke:
        sets = [made_up(80, 3, 1, "balance, L and R"), made_up(80, 4, 2, "heart")]
        few = rosenbrock.Protocol(splits=2, folds=2, costs=(0.01, 1.0), searches=(0.1,))
        return rosenbrock.run(sets, few, say)
    return rosenbrock.run(rosenbrock_sets(open_folder(asked.data)), rosenbrock.Protocol(asked.splits), say)


def table(found: dict[str, Any]) -> list[Number]:
    """Parameters, accuracy and seconds."""
    by = {(one["set"], one["method"]): one for one in found["accuracy"]}
    listed = []
    for kind, methods in rosenbrock.PAPER.items():
        name = {"balance": "balance, L or not", "monks": "monks-1"}.get(kind, kind)
        for method, (C, eps1, eps2, accuracy, seconds) in methods.items():
            one, of = by.get((name, method)), f"{kind}, {METHODS[method]}"
            for key, value in (("C", C), ("eps1", eps1), ("eps2", eps2)):
                listed.append(Number(f"{of}: {key}", value, one and one["chosen"][key], 0.0))
            sd = one["accuracy"]["sd"] if one else 0.0
            listed.append(Number(f"{of}: accuracy, %", accuracy, one and one["accuracy"]["mean"], 2.6 * sd))
            listed.append(Number(f"{of}: s", seconds, one and one["seconds"], None))
    return listed


def fast_end(found: dict[str, Any]) -> list[Claim]:
    """What Fig. 1 shows, with exact line searches."""

    def reached(one: dict[str, Any], method: str) -> int:
        norms = one["lines"][f"{method}, exact"]["norms"]
        return next((k for k, norm in enumerate(norms) if norm < 1e-6), len(norms))

    faster = all(reached(one, "rosenbrock") < reached(one, "cd") for one in found["steps"])
    return [Claim("the step length of R falls below 1e-6 in fewer outer iterations than that of CD", faster)]


PAPER = Paper(
    name="rosenbrock",
    title=rosenbrock.TITLE,
    items=(
        Item("Tables 1 and 2", "parameters, test accuracy and seconds of R, CD and SSVM", 60, table,
             rule="parameters as chosen, accuracy within 2.6 standard deviations of a split; seconds not compared",
             why="one split of a few hundred rows cannot tell most of the grid apart"),
        Item("Fig. 1", "length of a step against time", claims=fast_end),
    ),
    run=run,
    section=rosenbrock_report.section,
    draw=rosenbrock_report.draw,
    options=options,
)  # fmt: skip
