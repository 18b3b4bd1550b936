"""What the papers print, table by table and figure by figure, and what has become of it here.

A paper is a file in `papers/`: its options, its run, and its items.  Of each item there is a list of the numbers that
the paper prints, each beside ours and with the rule by which the two are compared, and a list of its claims.  From
those follows its state; nobody types it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

REPRODUCED = "reproduced"
DIFFERENT = "reproduced, but different"
IMPOSSIBLE = "not possible"
ABSENT = "absent"
"""The states; an item is `ABSENT` that has neither figures of ours nor a reason."""
ERRORS = 2.6
"""How many standard errors two means may lie apart: one in a hundred of equal ones is further."""


class Number(NamedTuple):
    """A printed number and ours.

    of : whose it is;  paper : as printed;  ours : None where there is none
    within : they agree when they are no further apart; None where they cannot be compared, as seconds of two machines
    """

    of: str
    paper: float
    ours: float | None
    within: float | None

    @property
    def agrees(self) -> bool | None:
        """None where they are not to be compared."""
        if self.within is None or self.ours is None:
            return None
        return abs(self.ours - self.paper) <= self.within


class Claim(NamedTuple):
    """What a figure shows or a text says, and whether it is so here."""

    text: str
    holds: bool


def _none(found: dict[str, Any]) -> list[Any]:
    return []


@dataclass(frozen=True)
class Item:
    """A table or a figure.

    name : as the paper has it;  about : what it shows;  prints : how many of its numbers are at hand
    numbers, claims : what it says and what we found, of the paper's figures
    rule : how numbers are compared;  why : where ours differ, why they do
    missing : why what is not there can never be there;  not_at_hand : which printed numbers we do not have
    Texts have no full stop at their end.
    """

    name: str
    about: str
    prints: int = 0
    numbers: Callable[[dict[str, Any]], list[Number]] = _none
    claims: Callable[[dict[str, Any]], list[Claim]] = _none
    rule: str = ""
    why: str = ""
    missing: str = ""
    not_at_hand: str = ""

    def state(self, found: dict[str, Any] | None) -> tuple[str, str]:
        """One of the four states, and why it is that one."""
        numbers, claims = (self.numbers(found), self.claims(found)) if found else ([], [])
        there = [number for number in numbers if number.ours is not None]
        if not there and not claims:
            return (IMPOSSIBLE, _sentence(self.missing)) if self.missing else (ABSENT, "")
        compared = [number for number in there if number.agrees is not None]
        agree = sum(bool(number.agrees) for number in compared)
        said = []
        if compared:
            said.append(f"{agree} of {len(compared)} numbers agree ({self.rule})")
        if len(there) > len(compared):
            said.append(f"{len(there) - len(compared)} cannot be compared{'' if compared else f' ({self.rule})'}")
        if len(there) < len(numbers):
            said.append(f"{len(numbers) - len(there)} are not possible: {self.missing}")
        for holds, verdict in ((True, "holds here"), (False, "does not hold here")):
            if texts := [claim.text for claim in claims if claim.holds == holds]:
                said.append(f"{verdict}: {'; '.join(texts)}")
        shown = bool(compared or claims) and all(claim.holds for claim in claims)
        same = shown and agree == len(compared) and len(there) == len(numbers)
        if not same and self.why:
            said.append(self.why)
        if self.not_at_hand:
            said.append(f"we do not have {self.not_at_hand}")
        return (REPRODUCED if same else DIFFERENT), " ".join(map(_sentence, said))


def _sentence(text: str) -> str:
    """A text with a capital letter at its beginning and a full stop at its end."""
    words = " ".join(text.split())
    return f"{words[:1].upper()}{words[1:]}."


@dataclass(frozen=True)
class Paper:
    """All that `reproduce.py` knows of a paper.

    options : adds its options to the command line;  run : the figures, as JSON
    section, draw : Markdown and plot of them;  cheap : a run takes some minutes
    within : of figures, by the name that leads to them, how far two runs may be apart where it is not by rounding alone
    clock : where figures of time are that no name tells of, as a regular expression
    """

    name: str
    title: str
    items: tuple[Item, ...]
    run: Callable[[argparse.Namespace, Callable[[str], None]], dict[str, Any]]
    section: Callable[[dict[str, Any], str], list[str]]
    draw: Callable[[dict[str, Any], Path], None]
    options: Callable[[argparse._ArgumentGroup], None] = lambda group: None
    cheap: bool = True
    within: Callable[[dict[str, Any]], dict[str, float]] = lambda found: {}
    clock: str = ""


def printed(paper: Paper, found: dict[str, Any]) -> dict[str, Any]:
    """By item: its state and every number that it prints, beside ours; what stands in the paper's JSON file."""
    tables = {}
    for item in paper.items:
        state, why = item.state(found)
        tables[item.name] = {
            "state": state, "why": why,
            "numbers": [
                {"of": number.of, "paper": number.paper, "ours": number.ours, "agrees": number.agrees}
                for number in item.numbers(found)
            ],
        }  # fmt: skip
    return tables


def half_a_digit(text: str) -> float:
    """Half of the last digit's unit: how far a rounded number may be from what was rounded.

    >>> half_a_digit("5.0695504")
    5e-08
    """
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int)
    return 0.5 * 10.0**exponent


def of_two_means(sd_a: float, n_a: int, sd_b: float, n_b: int) -> float:
    """How far apart the means of n_a and n_b random values may lie: `ERRORS` standard errors of their difference."""
    return float(ERRORS * (sd_a**2 / n_a + sd_b**2 / n_b) ** 0.5)


def of_two_deviations(sd_a: float, n_a: int, sd_b: float, n_b: int) -> float:
    """The same of standard deviations, those of normal values."""
    return float(ERRORS * (sd_a**2 / (2 * n_a - 2) + sd_b**2 / (2 * n_b - 2)) ** 0.5)
