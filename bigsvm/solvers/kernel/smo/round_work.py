"""The state that rounds of block SMO keep for each model and each row, and their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ACTIVE, NEXT, LAST, FAR = np.uint8(1), np.uint8(2), np.uint8(4), np.uint8(8)
"""Flags of a row: ACTIVE: it is in the active set; NEXT: it is a candidate for the next one; LAST: it was in the last
working set; FAR: passes do not update its f (`far_rows.py`)."""
FLAGS, SENT = "row flags", "coefficients sent"
"""Vectors of an open model: the flags, uint8; and beta as of the last pass, float64, which f of all rows includes."""


class Rules(NamedTuple):
    """Options of a round.

    q : int          most rows of a working set
    second : bool    WSS2 inside a working set, else WSS1
    sample : float   share of the rows in the first active set
    values : int     kernel values in one share of work, at most
    """

    q: int
    second: bool
    sample: float
    values: int


class Violations(NamedTuple):
    """Violations of some rows.

    by : float64, (n,)    how much they violate; negative if they do not
    falls : bool, (n,)    True: on the side where beta may fall;  False: where it may rise
    """

    by: np.ndarray
    falls: np.ndarray

    def of(self, which: np.ndarray) -> Violations:
        """The violations of some of the rows."""
        return Violations(self.by[which], self.falls[which])


@dataclass
class SmoWork:
    """The state of a model between two pauses.

    stage : 'choose' an active set, 'solve' it, 'pass' over the other rows, or bring 'far' rows back
    target : violation to which the active set is solved
    middle : (b_up + b_low) / 2 of the active set
    rising, falling : violation that a candidate on that side must exceed
    violation : the last one that was reported
    rounds : rounds that are complete;  stuck : reports in a row in which nothing moved and the violation stayed
    steps, visits : steps, and rows whose f was updated, since the last report
    moved : steps on this active set;  shares : shares of work on it
    solved, values : working sets and kernel values of the present share of work
    idle : consecutive working sets in which nothing moved
    band : how near to violating an active row is; fixed for a round, so that an interruption changes nothing
    epsilon : of the QP, if steps change it;  largest : largest K_ii of active rows so far
    corrected : f of the rows that decide the violation was computed anew (`exact_scores.py`)
    move : largest change of f of a row in the pass so far
    slack : how much scores may still change before a far row may violate
    far_middle : `middle` when `slack` was last updated
    """

    stage: str = "choose"
    target: float = 0.0
    middle: float = 0.0
    rising: float = -np.inf
    falling: float = -np.inf
    violation: float = np.inf
    rounds: int = 0
    stuck: int = 0
    steps: int = 0
    moved: int = 0
    visits: int = 0
    solved: int = 0
    values: int = 0
    shares: int = 0
    idle: int = 0
    band: float = 0.0
    epsilon: float = 0.0
    largest: float = 0.0
    corrected: bool = False
    move: float = 0.0
    slack: float = np.inf
    far_middle: float = 0.0
