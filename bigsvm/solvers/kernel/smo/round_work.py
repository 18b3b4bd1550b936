"""What rounds of block SMO keep of a model and of its rows, and what they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ACTIVE, NEXT, LAST, FAR = np.uint8(1), np.uint8(2), np.uint8(4), np.uint8(8)
"""Flags of a row: it is in the active set; a candidate for the next; it was in the last working set; passes leave it
out, and its f is of an earlier beta (`far_rows.py`)."""
FLAGS, SENT = "row flags", "coefficients sent"
"""Vectors of a model in work: uint8, as above; float64, beta as all rows' f knows it."""


class Rules(NamedTuple):
    """q : rows of a working set, at most;  second : WSS2 inside it, else WSS1;  sample : rows in the first active set,
    as a share of all."""

    q: int
    second: bool
    sample: float


class Violations(NamedTuple):
    """Of some rows: by, float64, how much they violate, below 0 where they do not;  falls, bool: by that they may fall,
    else that they may rise."""

    by: np.ndarray
    falls: np.ndarray

    def of(self, which: np.ndarray) -> Violations:
        """Those of some of the rows."""
        return Violations(self.by[which], self.falls[which])


@dataclass
class SmoWork:
    """Where a model stands between two pauses.

    stage : 'choose' an active set, 'solve' it, 'pass' over the others, or bring 'far' rows back
    steps, visits : of the round so far, what was told left out;  moved : steps on this active set
    solved, values : working sets and kernel values of the share so far;  shares : on this active set
    idle : working sets in a row that nothing moved in
    target : violation to which A is solved;  middle : (b_up + b_low) / 2 of A
    rising, falling : candidates that may rise, or fall, violate more
    band : how near to violating a row is active, for the whole round: where it is left must not change it
    epsilon : of the QP, where steps find it;  largest : K_ii of active rows so far
    move : the most that f of a row has moved in the pass so far
    slack : how much farther rows may move before a far row may violate;  far_middle : `middle` when that was seen
    corrected : f of the rows that decide the violation was computed anew (`exact_scores.py`)
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
