"""Steps of two variables that keep sums of both signs of beta, as nu-SVC, nu-SVR and one-class SVMs want it.

The rows with beta >= 0 that may rise and those with beta > 0 are the *positive side*, the rows with beta < 0 and those
with beta <= 0 that may fall are the *negative side* (docs/mathematics.md 8.9).  A pair of one side keeps the sums of
both sides.  Where only the sum of |beta| is bounded (nu-SVR), a pair of both sides may also lower both, or raise both by
what the bound leaves.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import njit

_loop = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
_TAU = 1e-12  # stands for a curvature that is not positive


@_loop
def side_ends(beta, f, lower, upper):
    """(least f that may rise, largest that may fall) of the positive side, and of the negative one; infinite where none.

    beta, f, lower, upper : float64, (n,)
    """
    up_plus, down_plus, up_minus, down_minus = np.inf, -np.inf, np.inf, -np.inf
    for t in range(len(f)):
        if beta[t] < 0.0:
            up_minus = min(up_minus, f[t])
        elif beta[t] < upper[t]:
            up_plus = min(up_plus, f[t])
        if beta[t] > 0.0:
            down_plus = max(down_plus, f[t])
        elif beta[t] > lower[t]:
            down_minus = max(down_minus, f[t])
    return up_plus, down_plus, up_minus, down_minus


@_loop
def solve_sides(K, diag, box, point, slack, at_most, target, most, second):
    """Steps of two variables until no pair violates by more than `target`, or `most` steps: (steps, slack).

    K : float32 or float64, (q, q);  diag : float64, (q,);  box : `Box`;  point : `DualPoint`, moved
    slack : what a bound of sum |beta| leaves;  at_most : there is such a bound, else both sums are kept
    second : the second row by its gain; else the maximal violating pair
    """
    lower, upper = box
    beta, f = point
    n, steps = len(f), 0
    while steps < most:
        up_plus, down_plus, up_minus, down_minus = np.inf, -np.inf, np.inf, -np.inf
        i_plus, j_plus, i_minus, j_minus = -1, -1, -1, -1
        for t in range(n):
            if beta[t] < 0.0:
                if f[t] < up_minus:
                    up_minus, i_minus = f[t], t
            elif beta[t] < upper[t] and f[t] < up_plus:
                up_plus, i_plus = f[t], t
            if beta[t] > 0.0:
                if f[t] > down_plus:
                    down_plus, j_plus = f[t], t
            elif beta[t] > lower[t] and f[t] > down_minus:
                down_minus, j_minus = f[t], t
        # Which row rises and which falls: of the positive side both, of the negative both, or one of each.
        violation, i, j, falls_plus, by_slack = down_plus - up_plus, i_plus, j_plus, True, 0.0
        if down_minus - up_minus > violation:
            violation, i, j, falls_plus = down_minus - up_minus, i_minus, j_minus, False
        if at_most and down_plus - up_minus > violation:
            violation, i, j, falls_plus, by_slack = down_plus - up_minus, i_minus, j_plus, True, 2.0
        if at_most and slack > 0.0 and down_minus - up_plus > violation:
            violation, i, j, falls_plus, by_slack = down_minus - up_plus, i_plus, j_minus, False, -2.0
        if not violation > target:
            break
        row_i, least = K[i], f[i]
        if second:
            best = -1.0
            for t in range(n):
                falls = beta[t] > 0.0 if falls_plus else beta[t] <= 0.0 and beta[t] > lower[t]
                b = f[t] - least
                if falls and b > 0.0:
                    a = diag[i] + diag[t] - 2.0 * np.float64(row_i[t])
                    gain = b * b / (a if a > 0.0 else _TAU)
                    if gain > best:
                        best, j = gain, t
        row_j = K[j]
        a = diag[i] + diag[j] - 2.0 * np.float64(row_i[j])
        step = (f[j] - least) / (a if a > 0.0 else _TAU)
        # Neither passes its bound, nor 0, which is the end of its side.
        end_i = 0.0 if beta[i] < 0.0 else upper[i]
        end_j = 0.0 if beta[j] > 0.0 else lower[j]
        room_i, room_j = end_i - beta[i], beta[j] - end_j
        step = min(step, min(room_i, room_j))
        if by_slack < 0.0 and step >= 0.5 * slack:
            step, slack = 0.5 * slack, 0.0
        else:
            slack += by_slack * step
        beta[i] = beta[i] + step if step < room_i else end_i
        beta[j] = beta[j] - step if step < room_j else end_j
        for t in range(n):
            f[t] += step * (np.float64(row_i[t]) - np.float64(row_j[t]))
        steps += 1
    return steps, slack
