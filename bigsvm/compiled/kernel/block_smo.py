"""Sequential minimal optimisation of a working set whose kernel values are in memory (docs/mathematics.md 8.6).

A step reads two rows of K and passes over the set a few times (`shared/vectors/steps.py`).  Ties go to the lowest
index.

With nu (docs/mathematics.md 8.9), the rows with beta >= 0 that may rise and those with beta > 0 are the *positive
side*; the rows with beta < 0 and those with beta <= 0 that may fall are the *negative side*.  A step of two rows of one
side preserves the sums of both sides.  If the sum of |beta| is only bounded (nu-SVR), a step of one row of each side
may also lower both |beta|, or raise both as far as the bound allows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.shared.vectors.steps import first_of, gains_of, largest, least, move_all

LANES = 64
TAU = 1e-12  # curvature used for a pair whose own is not positive: equal rows, or an indefinite kernel
_LARGE = 2.0**60  # violation from which a gain, its square, may overflow float32
_loop = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
_vectors = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, fastmath={"contract", "nnan", "nsz"})


class StepWorkspace(NamedTuple):
    """Arrays for the steps in a working set of q rows; their content before a call is not used.

    up, down : float64, (q,)   F_up and F_down of each row
    gain : float32, (q,)       twice the decrease of the objective by a step of the first row with each row
    """

    up: np.ndarray
    down: np.ndarray
    gain: np.ndarray


@register_jitable
def _large_gains(row, diag, curvature, b_up, violation, down, gain):
    """As `gains_of`, scaled so that large gains do not overflow float32.

    b is divided by the violation, which it does not exceed, and the curvature by K_ii of the first row if that is above
    1.
    """
    tau, size = np.float32(TAU), max(curvature, 1.0)
    for t in range(len(down)):
        b = np.float32((down[t] - b_up) / violation)
        a = max(np.float32((curvature + diag[t] - 2.0 * np.float64(row[t])) / size), tau)
        gain[t] = b * b / a if b > 0 else np.float32(-1)


@register_jitable
def _place(t, epsilon, beta, lower, upper, f, up, down):
    """Set F_up and F_down of row t (`solvers/kernel/dual_qp.py`)."""
    up[t] = f[t] + (epsilon if beta[t] >= 0 else -epsilon) if beta[t] < upper[t] else np.inf
    down[t] = f[t] + (epsilon if beta[t] > 0 else -epsilon) if beta[t] > lower[t] else -np.inf


@_vectors
def solve_working_set(K, diag, box, epsilon, point, target, most, second, workspace):
    """Make steps of two variables until b_low - b_up <= target, at most `most` of them.

    Returns (steps, violation at the end).

    K : float32 or float64, (q, q), where q is a multiple of LANES; rows that fill up q have lower = upper = 0
    diag : float64, (q,), of K;  box : `Box`;  point : `DualPoint`, changed
    second : bool; choose the second row by its gain (WSS2, WSS3), else the pair that violates most (WSS1)
    workspace : `StepWorkspace`
    """
    lower, upper = box
    beta, f = point
    up, down, gain = workspace
    for t in range(len(f)):
        _place(t, epsilon, beta, lower, upper, f, up, down)
    steps, b_up, b_low = 0, least(up), largest(down)
    while True:
        violation = b_low - b_up
        if not (violation > target and violation < np.inf) or steps == most:
            break
        i = first_of(up, b_up)
        row_i = K[i]
        if not second:
            j = first_of(down, b_low)
        elif violation < _LARGE:
            j = first_of(gain, gains_of(row_i, diag, diag[i], b_up, TAU, down, gain))
        else:
            _large_gains(row_i, diag, diag[i], b_up, violation, down, gain)
            j = first_of(gain, largest(gain))
        if j == len(f):  # all gains are NaN
            break
        row_j = K[j]
        a = diag[i] + diag[j] - 2.0 * np.float64(row_i[j])
        step = (down[j] - b_up) / max(a, TAU)
        # Neither variable passes its bound, nor 0 if |beta| has its kink there.
        room_i = -beta[i] if epsilon > 0 and beta[i] < 0 else upper[i] - beta[i]
        room_j = beta[j] if epsilon > 0 and beta[j] > 0 else beta[j] - lower[j]
        step = min(step, min(room_i, room_j))
        if not step > 0.0:  # NaN, after an overflow
            break
        beta[i] = beta[i] + step if step < room_i else (0.0 if epsilon > 0 and beta[i] < 0 else upper[i])
        beta[j] = beta[j] - step if step < room_j else (0.0 if epsilon > 0 and beta[j] > 0 else lower[j])
        # Whether these two rows may rise or fall has to be found out anew, because they may be at other bounds now.
        up[i], up[j], down[i], down[j] = np.inf, np.inf, -np.inf, -np.inf
        b_up, b_low = move_all(step, row_i, row_j, f, up, down)
        for t in (i, j):
            _place(t, epsilon, beta, lower, upper, f, up, down)
            b_up, b_low = min(b_up, up[t]), max(b_low, down[t])
        steps += 1
    return steps, violation


@_vectors
def measure(point, box, epsilon, up, down):
    """Fill F_up and F_down of many rows; returns (b_up, b_low).  up, down : float64, (n,)"""
    lower, upper = box
    beta, f = point
    b_up, b_low = np.inf, -np.inf
    for t in range(len(f)):
        _place(t, epsilon, beta, lower, upper, f, up, down)
        b_up = min(b_up, up[t])
        b_low = max(b_low, down[t])
    return b_up, b_low


@_loop
def side_ends(beta, f, lower, upper):
    """The smallest f of rows that may rise and the largest of rows that may fall, on either side.

    Returns (smallest, largest) of the positive side, followed by those of the negative side; infinite if there is no
    such row.

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
    """Make steps of two variables that nu allows, until no pair violates by more than `target`, at most `most` of them.

    Returns (steps, slack at the end).

    K : float32 or float64, (q, q);  diag : float64, (q,), of K;  box : `Box`;  point : `DualPoint`, changed
    slack : float, the bound of sum |beta| minus that sum
    at_most : bool; sum |beta| is bounded, else the sums of both sides are fixed
    second : bool; choose the second row by its gain, else the pair that violates most
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
        # Choose sides for the row that rises and the row that falls: both positive, both negative, or one of each.
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
                    gain = b * b / (a if a > 0.0 else TAU)
                    if gain > best:
                        best, j = gain, t
        row_j = K[j]
        a = diag[i] + diag[j] - 2.0 * np.float64(row_i[j])
        step = (f[j] - least) / (a if a > 0.0 else TAU)
        # Neither variable passes its bound, nor 0, where its side ends.
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
