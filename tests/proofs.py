"""What two proofs say of each other, so that no tolerance has to be chosen."""

from __future__ import annotations

from typing import Any


def same_optimum(one: Any, other: Any) -> None:
    """Results of one problem: neither's dual value is above the other's primal one, to float64's rounding.

    D <= P* <= P of each, so that their objectives differ by the larger gap at most.
    """
    for a, b in ((one.figures, other.figures), (other.figures, one.figures)):
        assert a["dual_objective"] <= b["objective"] * (1 + 1e-9)
