"""Do and Artieres: HyperPass and Pegasos on MNIST."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from reproduction import hyperpass, hyperpass_report
from reproduction.catalogue import Claim, Item, Number, Paper
from reproduction.hyperpass import EQUAL_WORK, METHODS, PRECISIONS, WORK_TO
from reproduction.journal import journal_of
from reproduction.sets import made_up, mnist_zero, open_folder

_PRIMAL, _ERROR = 0.5e-7 * 1.01, 0.005 * 1.01  # half of the last printed digit, and the rounding of that


def options(group: argparse._ArgumentGroup) -> None:
    """The seeds."""
    group.add_argument("--seeds", type=int, default=5, help="of the mini-batches")


def run(asked: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """MNIST, as many seeds of the mini-batches as --seeds says."""
    if asked.smoke:
        train, test, protocol = made_up(400, 5, 1), made_up(100, 5, 1), hyperpass.Protocol(seeds=2, shorter=20)
    else:
        (train, test), protocol = mnist_zero(open_folder(asked.data)), hyperpass.Protocol(asked.seeds)
    return hyperpass.run(train, test, protocol, journal_of(asked, "hyperpass", asdict(protocol)), say)


def within(found: dict[str, Any]) -> dict[str, float]:
    """The curves are of P - P*, which is known as well as the optimum is."""
    return {"curves": hyperpass.excess_within(found)}


def equal_work(found: dict[str, Any]) -> list[Number]:
    """Primal and error after 28 passes; random methods: the first seed."""
    numbers = []
    for name, (primal, error) in EQUAL_WORK.items():
        ours = (found["equal_work"].get(name) or [None])[0]
        numbers += _both(METHODS[name].label, primal, error, ours)
    return numbers


def work_to(found: dict[str, Any]) -> list[Number]:
    """Passes, primal and error at each precision; random methods: the first seed."""
    numbers = []
    for name, lines in WORK_TO.items():
        for precision, (passes, primal, error), ours in zip(
            PRECISIONS, lines, found["work_to"][name][0], strict=True
        ):  # fmt: skip
            of = f"{METHODS[name].label}, {precision:.0e}"
            done = None if ours is None else hyperpass_report.passes(name, ours)
            numbers.append(Number(f"{of}: passes", passes, done, 0.5))
            numbers += _both(of, primal, error, ours)
    return numbers


def _both(of: str, primal: float, error: float, ours: dict[str, float] | None) -> list[Number]:
    return [
        Number(f"{of}: primal", primal, None if ours is None else ours["primal"], _PRIMAL),
        Number(f"{of}: error, %", error, None if ours is None else ours["error"], _ERROR),
    ]


def fewer(found: dict[str, Any]) -> list[Claim]:
    """HyperPass is the first at the smallest precision."""
    at = {name: some[0][-1]["work"] if some[0][-1] else float("inf") for name, some in found["work_to_optimum"].items()}
    others = [at[name] for name in WORK_TO]
    return [Claim("HyperPass with shrinking needs fewer passes to 1e-5 than Pegasos of any batch",
                  "shrink" in at and at["shrink"] < min(others))]  # fmt: skip


_WHY = """the paper does not say how mini-batches are drawn, how many runs it shows, and which rows count as lying on
their hyperplane. For Pegasos on all rows the primal agrees, but not all test errors at the same iterates do"""
PAPER = Paper(
    name="hyperpass",
    title=hyperpass.TITLE,
    items=(
        Item("Table 1", "primal and test error after 28 passes", 8, equal_work, rule="in the printed digits", why=_WHY),
        Item("Table 2", "passes to four precisions", 36, work_to, rule="in the printed digits", why=_WHY),
        Item("Fig. 3", "primal against passes", claims=fewer),
    ),
    run=run,
    section=hyperpass_report.section,
    draw=hyperpass_report.draw,
    options=options,
    within=within,
)
