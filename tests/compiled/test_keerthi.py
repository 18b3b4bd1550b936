"""The sweep of modification 2: what it finds, and what it keeps of the rows that it passes."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.kernel.keerthi import inner_extremes, sweep_to_violator

NONE = np.empty(0, np.uint8)
LOWER, UPPER = np.array([-1.0, 0.0, -1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0])  # labels -1, +1, -1, +1


def test_a_row_that_beats_the_best_is_a_partner_of_those_after_it() -> None:
    f, beta = np.array([1.0, 0.9985, 0.5, 2.0]), np.zeros(4)
    pair, bounds = np.array([3, 2]), np.array([0.9995, 0.5])
    found = sweep_to_violator(0, f, beta, LOWER, UPPER, 0.0, NONE, 1e-3, pair, bounds)
    assert found == (1, 0, 1), "row 1 rises against row 0, which violated nothing when it was passed"
    assert pair.tolist() == [1, 0]
    assert bounds.tolist() == [0.9985, 1.0]
    assert sweep_to_violator(2, f, beta, LOWER, UPPER, 0.0, NONE, 1e-3, pair, bounds) == (-1, -1, 4)


def test_a_row_inside_takes_the_worse_of_its_partners() -> None:
    f, beta = np.array([2.0, 1.7, 0.0, 0.0]), np.array([0.0, 0.5, 0.0, 0.0])
    pair, bounds = np.array([3, 0]), np.array([0.0, 2.0])
    assert sweep_to_violator(1, f, beta, LOWER, UPPER, 0.0, NONE, 1e-3, pair, bounds) == (3, 1, 1)
    f[1] = 0.3
    assert sweep_to_violator(1, f, beta, LOWER, UPPER, 0.0, NONE, 1e-3, pair, bounds) == (1, 0, 1)


def test_the_inner_rows_are_those_inside_and_the_last_pair() -> None:
    f, beta = np.array([5.0, -5.0, 0.3, 0.1]), np.array([0.0, 0.0, -0.5, 0.5])
    pair, bounds = np.array([3, 2]), np.zeros(2)
    inner_extremes(f, beta, LOWER, UPPER, 0.0, NONE, pair, bounds)
    assert (pair.tolist(), bounds.tolist()) == ([3, 2], [0.1, 0.3])
    pair[:] = 1, 0
    inner_extremes(f, beta, LOWER, UPPER, 0.0, NONE, pair, bounds)
    assert (pair.tolist(), bounds.tolist()) == ([1, 0], [-5.0, 5.0])
