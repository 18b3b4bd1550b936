"""What rounding takes from a sum, with which sums have twice the digits of float64."""

from __future__ import annotations

from bigsvm.compiled.shared.compile import part_of_loop


@part_of_loop
def lost_in_sum(a, b, total):
    """What rounding has taken from total = a + b, exactly (Knuth's TwoSum).  Of numbers, or in Python of arrays."""
    b_there = total - a
    return (a - (total - b_there)) + (b - b_there)
