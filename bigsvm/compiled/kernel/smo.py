r"""Steps of two variables on the programme of a kernel model: the choice of the pair, the step, and the update of f.

    minimise  1/2 beta' K beta - t' beta + epsilon sum_i |beta_i|     lower <= beta <= upper,  sum_i beta_i = 0

Given   f = K beta - t, float64; beta, lower, upper : float64, (n,)
        fresh : uint8, (n,), or (0,) if the choice is not limited.  A row has two variables, alpha (which raises beta)
                and alpha* (which lowers it); the bit RISES or FALLS is set if it is 0 and was never selected
        active : int64, (n,); its first n_active entries are the active rows, ascending

    F_up(k) = f_k + epsilon (beta_k >= 0) - epsilon (beta_k < 0), inf where beta_k may not rise
    F_down(k) = f_k + epsilon (beta_k > 0) - epsilon (beta_k <= 0), -inf where beta_k may not fall

If the choice is limited to fresh variables, these are f_k + epsilon for alpha_k and f_k - epsilon for alpha*_k.

Source: Fan, Chen, Lin, JMLR 6 (2005), 1889-1918; Chang and Lin, LIBSVM, section 5; docs/mathematics.md 8.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop

TAU = 1e-12
"""Takes the place of a curvature that is not positive."""
RISES, FALLS = 1, 2


@inner_loop
def up_value(k, f, beta, upper, epsilon, fresh):
    """F_up(k)."""
    if fresh.shape[0]:
        return f[k] + epsilon if fresh[k] & RISES else np.inf
    if beta[k] >= upper[k]:
        return np.inf
    return f[k] + epsilon if beta[k] >= 0.0 else f[k] - epsilon


@inner_loop
def down_value(k, f, beta, lower, epsilon, fresh):
    """F_down(k)."""
    if fresh.shape[0]:
        return f[k] - epsilon if fresh[k] & FALLS else -np.inf
    if beta[k] <= lower[k]:
        return -np.inf
    return f[k] + epsilon if beta[k] > 0.0 else f[k] - epsilon


@inner_loop
def extremes(f, beta, lower, upper, epsilon, fresh, active, n_active):
    """(i, j, F_up(i), F_down(j)): arg min F_up and arg max F_down; ties go to the lowest index, -1 if there is none."""
    i, j, b_up, b_low = -1, -1, np.inf, -np.inf
    for p in range(n_active):
        k = active[p]
        up = up_value(k, f, beta, upper, epsilon, fresh)
        if up < b_up:
            i, b_up = k, up
        down = down_value(k, f, beta, lower, epsilon, fresh)
        if down > b_low:
            j, b_low = k, down
    return i, j, b_up, b_low


@inner_loop
def curvature(i, j, k_ij, diag):
    """K_ii + K_jj - 2 K_ij, or TAU if that is not positive.

    diag must be rounded as the rows of K are, so that the curvature of two equal rows is exactly 0.
    """
    a = diag[i] + diag[j] - 2.0 * np.float64(k_ij)
    return a if a > 0.0 else TAU


@inner_loop
def second_order_partner(i, b_up, row, diag, f, beta, lower, epsilon, fresh, active, n_active):
    """(j, F_down(j) - b_up): the j whose step with i lowers the objective most if no bound cuts it.

    j maximises (F_down(j) - b_up)^2 / curvature among the rows with F_down(j) > b_up.  Ties go to the lowest index.  It
    is -1 if there is no such row, or all gains are NaN.

    row : kernel row of i
    """
    j, violation, best = -1, -np.inf, -1.0
    for p in range(n_active):
        k = active[p]
        b = down_value(k, f, beta, lower, epsilon, fresh) - b_up
        if b > 0.0:
            gain = b * b / curvature(i, k, row[k], diag)
            if gain > best:
                j, violation, best = k, b, gain
    return j, violation


@inner_loop
def cost_used_up(k, beta, lower, upper):
    """beta_k if it is at an end of its box, so that alpha_k or alpha*_k is at C (or beta_k is 0); else 0."""
    return beta[k] if beta[k] == lower[k] or beta[k] == upper[k] else 0.0


@inner_loop
def take_step(i, j, t, beta, lower, upper, epsilon, fresh):
    """Raise beta_i and lower beta_j by t, or by as much as both may move.

    Returns the changes of beta_i and beta_j, and those of their `cost_used_up`.  A variable stops at its bound, or at 0
    if epsilon > 0, and is set to that value exactly.
    """
    old_i, old_j = beta[i], beta[j]
    used_i, used_j = cost_used_up(i, beta, lower, upper), cost_used_up(j, beta, lower, upper)
    if fresh.shape[0]:
        end_i, end_j = old_i + upper[i], old_j + lower[j]
        room_i, room_j = upper[i], -lower[j]
    else:
        end_i = 0.0 if epsilon > 0.0 and old_i < 0.0 else upper[i]
        end_j = 0.0 if epsilon > 0.0 and old_j > 0.0 else lower[j]
        room_i, room_j = end_i - old_i, old_j - end_j
    t = min(t, room_i, room_j)
    # The room is rounded, so a slightly shorter step may still end a rounding error beyond the bound.
    beta[i] = end_i if t == room_i else min(old_i + t, end_i)
    beta[j] = end_j if t == room_j else max(old_j - t, end_j)
    used_i = cost_used_up(i, beta, lower, upper) - used_i
    used_j = cost_used_up(j, beta, lower, upper) - used_j
    return beta[i] - old_i, beta[j] - old_j, used_i, used_j


@inner_loop
def add_pair(f, active, n_active, row_i, row_j, change_i, change_j):
    """f += change_i K_i + change_j K_j on the active rows."""
    for p in range(n_active):
        k = active[p]
        f[k] += change_i * np.float64(row_i[k]) + change_j * np.float64(row_j[k])


@inner_loop
def add_row(f, row, change):
    """f += change row, in float64."""
    for k in range(f.shape[0]):
        f[k] += change * np.float64(row[k])


@inner_loop
def add_block(f, block, change):
    """f_r += sum_k change_k block_rk, in the order of k: the same bits as `add_row` for one column after another."""
    for r in range(f.shape[0]):
        for k in range(change.shape[0]):
            f[r] += change[k] * np.float64(block[r, k])


@inner_loop
def shrink(f, beta, lower, upper, epsilon, b_up, b_low, active, n_active):
    """Drop active rows that violate with no other active row; returns the number of rows that stay.

    These are rows at an end of their box (or at 0 if epsilon > 0) which have F_up > b_low if they may rise, and
    F_down < b_up if they may fall.  The two variables of a row of a regression leave together.  docs/mathematics.md 8.4
    """
    kept = 0
    for p in range(n_active):
        k = active[p]
        rises, falls = beta[k] < upper[k], beta[k] > lower[k]
        free = rises and falls and beta[k] != 0.0
        leaves = not free
        if rises:
            leaves = leaves and f[k] + (epsilon if beta[k] >= 0.0 else -epsilon) > b_low
        if falls:
            leaves = leaves and f[k] + (epsilon if beta[k] > 0.0 else -epsilon) < b_up
        if not leaves:
            active[kept] = k
            kept += 1
    return kept
