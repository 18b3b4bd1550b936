"""What the tests of searches ask for."""

from __future__ import annotations

from typing import Any

from bigsvm.run.tune.grid import Candidate

CS = [0.1, 1.0, 10.0]
K = 3
"""How many folds."""


def candidate(C: float, class_weight: Any = None) -> Candidate:
    return Candidate(C, class_weight, None)
