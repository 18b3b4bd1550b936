"""Which rows are taken where only some can be."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.solvers.selection import largest, smallest


@pytest.mark.parametrize("k", [0, 1, 7, 199, 200, 300])
def test_among_equals_the_lowest_positions_are_taken(k: int) -> None:
    """Few different values, so that nearly every cut goes through equal ones; 0.0 and -0.0 are equal."""
    values = np.random.default_rng(1).integers(-3, 4, 200) / 2 * np.random.default_rng(2).choice([-1.0, 1.0], 200)
    by_value = sorted(range(200), key=lambda i: (values[i], i))
    assert smallest(values, k).tolist() == by_value[:k]
    by_value = sorted(range(200), key=lambda i: (-values[i], i))
    assert largest(values, k).tolist() == by_value[:k]
