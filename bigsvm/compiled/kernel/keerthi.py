"""The selection of pairs in Keerthi's modification 2: sweeps over all rows, and extremes of rows inside their boxes.

The programme, F_up and F_down are those of `compiled/kernel/smo.py`.  The *inner set* has the rows strictly inside
their boxes and the two rows of the last pair.

Source: Keerthi, Shevade, Bhattacharyya, Murthy, Neural Computation 13 (2001), 637-649; docs/mathematics.md 8.5.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.kernel.smo import down_value, up_value
from bigsvm.compiled.shared.compile import inner_loop


@inner_loop
def inside(k, beta, lower, upper):
    """Whether beta_k is strictly inside its box and not 0."""
    return beta[k] > lower[k] and beta[k] < upper[k] and beta[k] != 0.0


@inner_loop
def inner_extremes(f, beta, lower, upper, epsilon, none, pair, bounds):
    """Find arg min F_up and arg max F_down over the inner set; ties go to the lowest index.

    f, beta, lower, upper : float64, (n,)
    none : uint8, (0,), the `fresh` of `smo.py`: the choice is not limited
    pair : int64, (2,)        the last pair; replaced by the two rows found
    bounds : float64, (2,)    filled with their values, b_up and b_low
    """
    i, j, b_up, b_low = -1, -1, np.inf, -np.inf
    for k in range(f.shape[0]):
        if inside(k, beta, lower, upper) or k == pair[0] or k == pair[1]:
            up = up_value(k, f, beta, upper, epsilon, none)
            if up < b_up:
                i, b_up = k, up
            down = down_value(k, f, beta, lower, epsilon, none)
            if down > b_low:
                j, b_low = k, down
    pair[0], pair[1], bounds[0], bounds[1] = i, j, b_up, b_low


@inner_loop
def sweep_to_violator(start, f, beta, lower, upper, epsilon, none, eps, pair, bounds):
    """Go on with a sweep over all rows at row `start`, up to the next pair that violates by more than eps.

    Returns (i, j, row): i rises, j falls, and `row` is the row at which the sweep stopped; (-1, -1, n) if the sweep
    ends without a pair.  A row outside of the inner set with a smaller F_up or larger F_down than b_up or b_low
    replaces it in `pair` and `bounds`.  Of its two possible partners a row takes the one with the larger violation.
    """
    n = f.shape[0]
    for k in range(start, n):
        up = up_value(k, f, beta, upper, epsilon, none)
        down = down_value(k, f, beta, lower, epsilon, none)
        if not inside(k, beta, lower, upper):
            if up < bounds[0]:
                pair[0], bounds[0] = k, up
            if down > bounds[1]:
                pair[1], bounds[1] = k, down
        rising, falling = bounds[1] - up, down - bounds[0]
        if rising > eps and rising >= falling:
            return k, pair[1], k
        if falling > eps:
            return pair[0], k, k
    return -1, -1, n
