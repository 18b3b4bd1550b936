"""What `rosen` and `rosen-block` share: options, multipliers of all rows, and the update of f after beta has changed.

Both move a set W of rows with K_WW in memory (`compiled/kernel/rosen.py`), and then update f of all rows by one
`rows.update`, which is a pass over the data unless the kernel rows are cached (docs/mathematics.md 9.4, 9.5).
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
REFRESH = 1000  # updates of f after which it is computed anew
BETTER = 0.9  # a violation below this many times the smallest one so far is progress
FALLS = 1e-12  # decrease of the objective, relative to its total decrease, that is progress
DRIFT = 1e-14  # |sum beta| / sum |beta| up to which the sum counts as 0
N_COUNTS = 5  # length of `FaceWork.counts`


def paper_eps(qp: DualQP) -> float:
    """eps of Lopez and Dorronsoro, whose rule is b_low - b_up <= 2 eps.

    `qp.eps` is the violation itself.  For `--stop paper` the caller sets qp.eps = 2 tol.
    """
    return 0.5 * qp.eps


@dataclass
class FaceWork:
    """The state of a model beside its `DualQP`.

    direction : float64, (n,)   the last conjugate direction, used if memory[1] > 0
    memory : float64, (2,)      r.r of the last step inside the face, and the number of steps since the last restart
    counts : int64, (5,)        numbers of face steps, releases and pair steps; of kernel rows that these would read one
        by one (times n: the paper's count of kernel operations); and of multiplications (`compiled/kernel/rosen.py`)
    updates : int    updates of f;  stale : int   updates since f was computed anew
    gain : float     total decrease of the objective
    best : float     smallest violation so far;  waited : int   updates since it was found
    mark : float     `gain` at that time;  stalls : int   how often there was no progress
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
        """The number of steps of all kinds."""
        return int(self.counts[:3].sum())


def new_work(n: int) -> FaceWork:
    """The first state of a model with n rows."""
    return FaceWork(np.zeros(n), np.zeros(2), np.zeros(N_COUNTS, np.int64))


class Look(NamedTuple):
    """The optimality conditions of a `DualQP`, from f of all rows.

    up, down : float64, (n,)   `DualQP.up`, `DualQP.down`
    i_up, i_low : int   the most violating pair
    violation : float   b_low - b_up; -inf if no beta may move
    free : int64        the free rows J
    mu : float          mean of F over J;  worst : float   max |mu - F| over J
    p : int             the bound row whose multiplier is the most negative, -1 if none is
    multiplier : float  its absolute value
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
    """The optimality conditions of `qp`, which must have at least one row.  O(n), without kernel values."""
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
    """The rows to allocate for m rows: a quarter more, not twice as many, because the arrays are square."""
    return m + m // 4 + 32


@dataclass
class Workspace:
    """Work space of `descend`, which grows with the rows.  Its content is not used after a call of `step_model`."""

    e: np.ndarray = field(default_factory=lambda: np.zeros(0))
    r: np.ndarray = field(default_factory=lambda: np.zeros(0))
    z: np.ndarray = field(default_factory=lambda: np.zeros(0))
    square: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def of(self, m: int, inner: int) -> tuple[np.ndarray, DescentWorkspace]:
        """(e, other arrays) for m rows."""
        if len(self.e) < m:
            self.e, self.r, self.z = (np.zeros(grown(m)) for _ in range(3))
        shape = (m + 2, m) if inner == NEWTON else (0, 0)
        if len(self.square) < shape[0] * shape[1]:
            self.square = np.zeros((grown(m) + 2) * grown(m))
        # Contiguous for every m, because strided arrays have another type, for which numba would compile again.
        square = self.square[: shape[0] * shape[1]].reshape(shape)
        return self.e[:m], DescentWorkspace(self.r[:m], self.z[:m], square)


def move(
    qp: DualQP, work: FaceWork, W: np.ndarray, point: DualPoint, K: np.ndarray, largest: float, workspace: Workspace,
    how: Descent,
) -> int:  # fmt: skip
    """Move beta and f of the rows W (int64, distinct), whose kernel values are K.

    Returns
    -------
    reason : why it ended; see `descend`
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
    """f += K (beta - before), in one pass; returns the number of rows whose beta has changed."""
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
    """Compute f = K beta - t anew, because rounding accumulates in many updates."""
    np.negative(qp.target, out=qp.f)
    support = np.flatnonzero(qp.beta)
    rows.update(qp.f, support, qp.beta[support])
    work.updates += 1
    work.stale = 0


def balance(qp: DualQP) -> None:
    """Make sum beta 0 again after rounding (in moves to bounds, and long sums), by the free row with the most room."""
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
    """Whether floating point allows no more progress: there was none twice, the second time after f was computed anew.

    Progress is a smaller violation, or, with very small steps, a lower objective.
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
    """Raise ValueError for an invalid option."""
    if inner not in INNER:
        raise ValueError(f"inner must be one of {', '.join(INNER)}, not {inner!r}")
    if not 0.0 < theta < np.inf:
        raise ValueError(f"theta must be a positive number, not {theta!r}")
