"""What `rosen` and `rosen-block` share: their options, the look over all rows, and how f is kept true to beta.

Both move a few rows W with K_WW at hand (`compiled/kernel/rosen.py`), and then bring f up to date for all rows with one
`rows.update`, a pass over the data where K is not kept: docs/mathematics.md 9.4, 9.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.dual_qp import Box, DualPoint
from bigsvm.compiled.kernel.rosen import (
    CONJUGATE,
    NEWTON,
    STEEPEST,
    Descent,
    DescentWorkspace,
    LastDirection,
    descend,
)
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows

INNER = {"cg": CONJUGATE, "steepest": STEEPEST, "newton": NEWTON}
REFRESH = 1000  # updates of f after which it is computed from nothing
BETTER = 0.9  # a violation so many times the least one seen is progress
FALLS = 1e-12  # of all that the objective fell by, between two looks
DRIFT = 1e-14  # of sum |beta|, in sum beta
N_COUNTS = 5


def paper_eps(qp: DualQP) -> float:
    """eps of Lopez and Dorronsoro, whose rule is b_low - b_up <= 2 eps: the one place where that 2 stands.

    `qp.eps` is the violation itself.  For `--stop paper` the caller sets qp.eps = 2 tol.
    """
    return 0.5 * qp.eps


@dataclass
class FaceWork:
    """What is kept of a model beside the `DualQP`.

    direction : float64, (n,)   the last conjugate direction, of use where memory[1] > 0
    memory : float64, (2,)   r.r of the last step inside the face, and how many there were since the last restart
    counts : int64, (5,)   as `compiled/kernel/rosen.py` numbers them: face steps, releases, pair steps, kernel rows
        that these would read one by one (times n: the paper's count of kernel operations), multiplications
    updates : of f, that is passes;  stale : of them since f was computed from nothing
    gain : what the objective fell by
    best, waited, mark, stalls : the least violation seen, updates since, the gain then, how often it has stood still
    """

    direction: np.ndarray
    memory: np.ndarray
    counts: np.ndarray
    updates: int = 0
    stale: int = 0
    gain: float = 0.0
    best: float = np.inf
    waited: int = 0
    mark: float = 0.0
    stalls: int = 0

    @property
    def steps(self) -> int:
        """Steps of all kinds."""
        return int(self.counts[:3].sum())


def new_work(n: int) -> FaceWork:
    """Nothing done yet, n rows."""
    return FaceWork(np.zeros(n), np.zeros(2), np.zeros(N_COUNTS, np.int64))


class Look(NamedTuple):
    """Where a `DualQP` stands, from f of all rows.

    up, down : float64, (n,)   `Part.up`, `Part.down`
    i_up, i_low : the most violating pair;  violation : b_low - b_up, -inf where nothing may move
    free : int64   J
    mu : mean of F over J;  worst : max |mu - F| over J
    p : the bound row whose multiplier has the wrong sign most, -1 where none has
    multiplier : by how much
    """

    up: np.ndarray
    down: np.ndarray
    i_up: int
    i_low: int
    violation: float
    free: np.ndarray
    mu: float
    worst: float
    p: int
    multiplier: float

    @property
    def centre(self) -> float:
        return 0.5 * (float(self.up[self.i_up]) + float(self.down[self.i_low]))


def look(qp: DualQP) -> Look:
    """O(n), no kernel values; `qp` has at least one row."""
    up, down = qp.up(), qp.down()
    i_up, i_low = int(np.argmin(up)), int(np.argmax(down))
    b_up, b_low = float(up[i_up]), float(down[i_low])
    violation = b_low - b_up if np.isfinite(b_up) and np.isfinite(b_low) else -np.inf
    free = np.flatnonzero(qp.free())
    mu, worst, p, multiplier = np.nan, 0.0, -1, 0.0
    if len(free):
        F = up[free]
        mu = float(F.mean())
        worst = float(np.abs(F - mu).max())
        wrong = np.maximum(mu - up, down - mu)
        wrong[free] = -np.inf
        p = int(np.argmax(wrong))
        multiplier = float(wrong[p])
        if not multiplier > 0.0:
            p, multiplier = -1, 0.0
    return Look(up, down, i_up, i_low, violation, free, mu, worst, p, multiplier)


def grown(m: int) -> int:
    """Room for m rows and some to come: a quarter more, for square arrays are the largest things there are."""
    return m + m // 4 + 32


@dataclass
class Workspace:
    """Work space of `descend` for at most so many rows; nothing of it outlives a call of `step_model`."""

    e: np.ndarray = field(default_factory=lambda: np.zeros(0))
    r: np.ndarray = field(default_factory=lambda: np.zeros(0))
    z: np.ndarray = field(default_factory=lambda: np.zeros(0))
    square: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def of(self, m: int, inner: int) -> tuple[np.ndarray, DescentWorkspace]:
        """e, and the rest, for m rows."""
        if len(self.e) < m:
            self.e, self.r, self.z = (np.zeros(grown(m)) for _ in range(3))
        shape = (m + 2, m) if inner == NEWTON else (0, 0)
        if len(self.square) < shape[0] * shape[1]:
            self.square = np.zeros((grown(m) + 2) * grown(m))
        # Without gaps between its rows, whatever m is: another type of array would be compiled for anew.
        square = self.square[: shape[0] * shape[1]].reshape(shape)
        return self.e[:m], DescentWorkspace(self.r[:m], self.z[:m], square)


def move(
    qp: DualQP, work: FaceWork, W: np.ndarray, point: DualPoint, K: np.ndarray, largest: float, workspace: Workspace,
    how: Descent,
) -> int:  # fmt: skip
    """Move beta and f of the rows W (int64, distinct), whose kernel values are K.

    Returns
    -------
    reason : as `descend` gives it
    """
    e, rest = workspace.of(len(W), how.inner)
    e[:] = work.direction[W]
    reason, gain = descend(
        K, largest, W, point, Box(qp.lower[W], qp.upper[W]), qp.epsilon, how, LastDirection(e, work.memory), rest,
        work.counts,
    )  # fmt: skip
    work.direction[W] = e
    work.gain += gain
    return int(reason)


def bring_up_to_date(qp: DualQP, before: np.ndarray, work: FaceWork, rows: KernelRows) -> int:
    """f += K (beta - before), one pass; the number of rows whose beta has changed."""
    balance(qp)
    changed = np.flatnonzero(qp.beta != before)
    if len(changed):
        rows.update(qp.f, changed, qp.beta[changed] - before[changed])
        work.updates += 1
        work.stale += 1
        if work.stale >= REFRESH:
            refresh(qp, work, rows)
    return len(changed)


def refresh(qp: DualQP, work: FaceWork, rows: KernelRows) -> None:
    """f = K beta - t from nothing: sums of many updates drift."""
    np.negative(qp.target, out=qp.f)
    support = np.flatnonzero(qp.beta)
    rows.update(qp.f, support, qp.beta[support])
    work.updates += 1
    work.stale = 0


def balance(qp: DualQP) -> None:
    """Rounding errors of sum beta, from snaps to bounds and long sums, go to the free row with the most room."""
    total = float(qp.beta.sum())
    free = np.flatnonzero(qp.free())
    if abs(total) <= DRIFT * float(np.abs(qp.beta).sum()) or not len(free):
        return
    beta = qp.beta[free]
    bound = np.where(beta > 0.0, qp.upper[free], qp.lower[free])
    space = np.minimum(np.abs(beta), np.abs(bound - beta))
    k = int(np.argmax(space))
    if space[k] > 2.0 * abs(total):
        qp.beta[free[k]] -= total


def stands_still(qp: DualQP, work: FaceWork, rows: KernelRows, violation: float, moved: bool, patience: int) -> bool:
    """Whether floating point allows no more, after an update: twice no progress, the second time with a fresh f.

    Progress is a smaller violation, or, of steps that crawl, an objective that still falls.
    """
    work.waited += 1
    if violation <= BETTER * work.best:
        work.best, work.waited, work.mark, work.stalls = violation, 0, work.gain, 0
    if moved and work.waited > patience and work.gain - work.mark > FALLS * work.gain:
        work.waited, work.mark = 0, work.gain
    if moved and work.waited <= patience:
        return False
    work.stalls += 1
    work.waited = 0
    if work.stalls > 1:
        return True
    refresh(qp, work, rows)
    return False


def check(theta: float, inner: str) -> None:
    """ValueError for an option that is none."""
    if inner not in INNER:
        raise ValueError(f"inner must be one of {', '.join(INNER)}, not {inner!r}")
    if not 0.0 < theta < np.inf:
        raise ValueError(f"theta must be a positive number, not {theta!r}")
