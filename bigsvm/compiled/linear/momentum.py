"""Loops for the momentum of `dcd` (docs/mathematics.md 4.5): sums along a direction, what the box would clip, the step.

alpha, before : float64, shape (n_rows, n_models)   alpha now and before the last pass; the direction is the difference
cost : float64, shape (n_rows,) or (0,) for ones    class weight times sample weight
C : float64, shape (n_models,)
run : work space, float64, zeros before and after, in the shape of the sums
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop

# columns of `sums`
ALPHA, SQUARES, RISE, CROSS, BEND, LENGTH = 0, 1, 2, 3, 4, 5
N_SUMS = 6
_RUN = 128  # rows whose terms are added before they join the total: keeps the rounding error of long sums small


@inner_loop
def line_sums(alpha, before, cost, C, diag_factor, run, sums):
    """Add to sums, float64, (n_models, 6), the sums over rows of alpha, D alpha^2 / 2, d, D alpha d, D d^2 and |d|.

    d = alpha - before, and D_i = diag_factor / C_i with C_i = cost[i] C[m].
    """
    n, models = alpha.shape
    for i in range(n):
        c = cost[i] if cost.shape[0] else 1.0
        if c > 0.0:
            for m in range(models):
                a = alpha[i, m]
                d = a - before[i, m]
                diag = diag_factor / (c * C[m])
                run[m, 0] += a
                run[m, 1] += 0.5 * diag * a * a
                run[m, 2] += d
                run[m, 3] += diag * a * d
                run[m, 4] += diag * d * d
                run[m, 5] += abs(d)
        if i % _RUN == _RUN - 1 or i == n - 1:
            for m in range(models):
                for k in range(sums.shape[1]):
                    sums[m, k] += run[m, k]
                    run[m, k] = 0.0


@inner_loop
def clipped(alpha, before, cost, C, upper_factor, steps, sums):
    """sums[k, m] += sum over rows of the distance of alpha + steps[k, m] (alpha - before) from [0, upper_factor C_i].

    steps, sums : float64, (n_steps, n_models); a model whose first step is 0 is left out
    """
    n, models = alpha.shape
    for i in range(n):
        c = cost[i] if cost.shape[0] else 1.0
        for m in range(models):
            if steps[0, m] != 0.0 and c > 0.0:
                a, upper = alpha[i, m], upper_factor * (c * C[m])
                d = a - before[i, m]
                for k in range(steps.shape[0]):
                    ahead = a + steps[k, m] * d
                    sums[k, m] += max(max(-ahead, ahead - upper), 0.0)


@inner_loop
def leap(now, before, theta):
    """Move `now` to now + theta (now - before), and set `before` to what `now` was.

    now, before : alpha, or w in the shape (n_features + 1, n_models);  theta : float64, (n_models,)
    """
    n, models = now.shape
    for i in range(n):
        for m in range(models):
            a = now[i, m]
            now[i, m] = a + theta[m] * (a - before[i, m])
            before[i, m] = a


@inner_loop
def products(w, before, run, out):
    """out[m] += (w.w, w.d, d.d) of each model, with d = w - before.

    w, before : float32 or float64, (n_features + 1, n_models);  out : float64, (n_models, 3)
    """
    n, models = w.shape
    for j in range(n):
        for m in range(models):
            a = np.float64(w[j, m])
            d = a - np.float64(before[j, m])
            run[m, 0] += a * a
            run[m, 1] += a * d
            run[m, 2] += d * d
        if j % _RUN == _RUN - 1 or j == n - 1:
            for m in range(models):
                for k in range(3):
                    out[m, k] += run[m, k]
                    run[m, k] = 0.0
