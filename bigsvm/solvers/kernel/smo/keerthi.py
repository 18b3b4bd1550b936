"""Keerthi's modification 2 of SMO: it alternates sweeps over all rows with steps of the worst pair of inner rows.

Inner rows are those strictly inside their boxes, and those of the last pair; b_up and b_low are kept over them.  A
sweep makes a step for each row that violates by more than eps together with the row of b_up or b_low.  Then these two
rows make steps until b_low - b_up <= eps.  Both are repeated until a sweep changes nothing.  eps is the violation asked
for, which is 2 tol in the paper.

Source: Keerthi, Shevade, Bhattacharyya, Murthy, Neural Computation 13 (2001), 637-649; docs/mathematics.md 8.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.kernel.keerthi import inner_extremes, sweep_to_violator
from bigsvm.compiled.kernel.smo import add_pair, curvature, extremes, take_step
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.ends import expired
from bigsvm.solvers.kernel.smo.rounding import resolution
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows

_NONE = np.empty(0, np.uint8)


@dataclass
class KeerthiWork:
    """The state of a model between two calls.

    pair : int64, (2,)      the rows of b_up and b_low;  bounds : float64, (2,)   b_up and b_low
    sweeping : bool         a sweep is under way, not steps of the pair
    at : int                next row of the sweep;  changed : int   steps since it began
    everything : int64, (n,), 0 ... n - 1;  selected : see `TextbookWork`
    """

    pair: np.ndarray
    bounds: np.ndarray
    sweeping: bool
    at: int
    changed: int
    everything: np.ndarray
    selected: np.ndarray


def keerthi_begin(qp: DualQP, selected: np.ndarray) -> KeerthiWork:
    """The first state: the worst pair of all rows, before a sweep.  (Any row of each class would do.)"""
    everything = np.arange(qp.n)
    i, j, b_up, b_low = extremes(qp.f, qp.beta, qp.lower, qp.upper, qp.epsilon, _NONE, everything, qp.n)
    return KeerthiWork(np.array([i, j]), np.array([b_up, b_low]), True, 0, 0, everything, selected)


def keerthi_advance(
    qp: DualQP, work: KeerthiWork, rows: KernelRows, diag: np.ndarray, steps: int, ctx: Context | None
) -> Progress:
    """Make at most `steps` steps, fewer if the user's time is up; see `Textbook.step_model`."""
    done = 0
    programme = (qp.f, qp.beta, qp.lower, qp.upper, qp.epsilon, _NONE)
    while done < steps and not expired(ctx):
        if work.sweeping:
            i, j, row = sweep_to_violator(work.at, *programme, qp.eps, work.pair, work.bounds)
            if i < 0:
                if work.changed == 0:
                    violation = qp.violation()
                    # If a violation is left that no step could reduce, float64 allows no further progress.
                    return Progress(violation <= qp.eps, violation > qp.eps, done, done * qp.n, violation)
                work.sweeping = False
                continue
            work.at = row + 1
        elif work.bounds[1] - work.bounds[0] > qp.eps:
            i, j = (int(k) for k in work.pair)
        else:
            work.sweeping, work.at, work.changed = True, 0, 0
            continue
        if _step(qp, work, rows, diag, i, j):
            done += 1
            work.changed += 1
        elif not work.sweeping:
            work.sweeping, work.at, work.changed = True, 0, 0
    violation = float(work.bounds[1] - work.bounds[0])
    # A small violation of the inner rows says nothing about the others, so that of all rows is computed.
    exhausted = qp.violation() <= resolution(qp, diag)
    return Progress(False, exhausted, done, done * qp.n, violation)


def _step(qp: DualQP, work: KeerthiWork, rows: KernelRows, diag: np.ndarray, i: int, j: int) -> bool:
    """Raise beta_i, lower beta_j, and update b_up and b_low over the inner rows.  False if nothing changed."""
    violation = float(qp.down(np.array([j]))[0] - qp.up(np.array([i]))[0])
    if violation <= 0.0:  # possible by rounding of f; a step would then lead out of the box
        return False
    row_i, row_j = rows.fetch(np.array([i, j]))
    rising, falling = int(qp.beta[i] < 0.0), int(qp.beta[j] <= 0.0)
    step = violation / curvature(i, j, row_i[j], diag)
    change_i, change_j, *_ = take_step(i, j, step, qp.beta, qp.lower, qp.upper, qp.epsilon, _NONE)
    if change_i == 0.0 and change_j == 0.0:
        return False
    add_pair(qp.f, work.everything, qp.n, row_i, row_j, change_i, change_j)
    if work.selected.shape[1]:
        work.selected[rising, i] += 1
        work.selected[falling, j] += 1
    work.pair[:] = i, j
    inner_extremes(qp.f, qp.beta, qp.lower, qp.upper, qp.epsilon, _NONE, work.pair, work.bounds)
    return True
