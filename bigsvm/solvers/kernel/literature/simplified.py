"""`simplified-smo` and `simplified-smo-km`: each row in turn makes a step with the row of the most different error.

    for each epoch, for each row i that violates its optimality condition by more than eps:
        j = argmax_j |E_i - E_j|;  the best step of alpha_i and alpha_j in their boxes
    until an epoch takes no step

Taken literally, this stalls far from the optimum: for every i, its only candidate j may be blocked (L = H).  On
heart_scale, linear, C = 1, that happens after 58 steps, at an objective of 31.6 out of 92.47.  So, unless `second` says
otherwise, all other j are tried in random order before i is given up.

The error of row i is computed anew from a kernel row whenever i is examined, so an epoch takes n rows of n values, even
if nothing changes.  `simplified-smo-km` keeps kernel rows as far as memory allows, and makes the same steps to the bit.

Source: Wang Jialin, SVM: learning and implementing SMO & DCD, 2016 (docs/mathematics.md 10.1).  Its classes here:

| Wang 2016 | here |
|---|---|
| SVMModel (alpha, b, x, y, C, kernel; predict) | `model/linear_model.py`, and `DualQP` while it is trained |
| SVMSMO (errors E, the pair, maxEpoch, mask, epsilon) | `KernelSolver`, `SimplifiedWork`, `compiled/kernel/platt.py` |
| KernelFunction (linear, poly, Gauss) | `problem/kernel.py`; `rbf_of_sigma` for gaussSigma |
| SVMFileReader (LIBSVM text) | `store/text/svmlight.py`, behind `bigsvm ingest` |
| SimplifiedSMO | `SimplifiedSMO` |
| SimplifiedSMOWithKM (a hash map keyed "i S j") | `SimplifiedSMOWithKM`: whole rows, in an array |
| StandardSMO | `platt.py` |
| DCD | `solvers/dcd/dual_cd.py`, with order=random |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigsvm.compiled.kernel.platt import (
    ANY_ONE,
    LARGEST,
    LARGEST_THEN_ANY,
    FetchedRows,
    PairRule,
    add_row,
    simplified_scan,
)
from bigsvm.solvers.base import DataShape, Keeps, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress, middle
from bigsvm.solvers.kernel.ends import expired, most_values
from bigsvm.solvers.kernel.values.kept_rows import KeptRows, keep_rows, rows_of
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows
from bigsvm.solvers.kernel.values.row_keeping import CACHE

_VALUES = 1 << 26  # kernel values looked at in one call of advance
_TOGETHER = 1 << 20  # kernel values asked for at one time, 64 rows at most
_SECOND = {"max": LARGEST, "max-then-random": LARGEST_THEN_ANY, "random": ANY_ONE}


@dataclass
class SimplifiedWork:
    """The state of a model.

    b : float          bias
    epoch, at : int    number of the epoch, and its next row
    changed : int      steps of this epoch
    over : float       the eps with which the rule was last met; inf: never
    kept : KeptRows    kernel rows of `simplified-smo-km`, or None
    """

    b: float
    epoch: int = 0
    at: int = 0
    changed: int = 0
    over: float = math.inf
    kept: KeptRows | None = field(default=None, metadata={"derived": True})


@dataclass(frozen=True)
class SimplifiedSMO(KernelSolver):
    """Hyperparameters of `simplified-smo`.

    second : str         'max-then-random'; 'max': Wang 2016 taken literally; 'random': one random j instead of the
        argmax
    maxepoch : int       most epochs
    min_step : float     smallest change of alpha_j in a step
    """

    name: ClassVar[str] = "simplified-smo"
    losses: ClassVar[tuple[str, ...]] = ("hinge",)
    rule_factor: ClassVar[float] = 2.0

    second: str = "max-then-random"
    maxepoch: int = 5000
    min_step: float = 1e-5

    @property
    def keeps_rows(self) -> Keeps:
        return "off"

    def __post_init__(self) -> None:
        if self.second not in _SECOND:
            raise ValueError(f"second must be one of {', '.join(_SECOND)}, not {self.second!r}")
        if self.maxepoch < 1:
            raise ValueError(f"maxepoch must be at least 1, not {self.maxepoch!r}")
        if not 0.0 <= self.min_step < math.inf:
            raise ValueError(f"min_step must be a number not below 0, not {self.min_step!r}")

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> SimplifiedWork:
        """The first state: b = 0, or, after a warm start, -(b_up + b_low) / 2."""
        return SimplifiedWork(middle(qp))

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes of the kernel rows that are examined together, of one that changes f, and of an order of all rows."""
        n = shape.n_samples
        return [Need("kernel rows", 8 * n * (_at_once(n) + 2))]

    def step_model(self, qp: DualQP, work: Any, rows: KernelRows, ctx: Context) -> Progress:
        """Examine groups of rows, until an epoch makes no step, or the share of work is over.

        The rule of Wang 2016 is an epoch without a step.  There are two reasons for that.  If no row violates by more
        than qp.eps / 2 with the present b, then b_low - b_up <= qp.eps: the result is `done`, and a smaller qp.eps
        continues the fit.  If no step was found although rows violate, the result is `final`.  At the largest number of
        epochs, which is a limit and not a rule, it is `exhausted`.
        """
        n, steps, seen = qp.n, 0, 0
        programme = qp.target, qp.box, qp.point, rows.diag
        rule = PairRule(0.5 * qp.eps, self.min_step, _SECOND[self.second])
        together = _at_once(n)
        order = np.empty(n, np.int64)
        most = most_values(ctx, n, _VALUES)
        while seen < most and not self._over(qp, work) and not expired(ctx):
            stop = min(work.at + together, n)
            fetched = FetchedRows(*rows_of(rows, np.arange(work.at, stop), work.kept), work.at, stop)
            i = work.at
            while i < stop and not expired(ctx):
                i, j, change, work.b = simplified_scan(
                    fetched, i, *programme, work.b, rule, ctx.seed, work.epoch, order
                )  # fmt: skip
                if j >= 0:
                    partner, (k,) = rows_of(rows, np.array([j]), work.kept)
                    add_row(qp.f, partner[k], change)
                    work.changed += 1
                    steps += 1
                    i += 1
            seen += n * (i - work.at)
            work.at = i
            if i == n:
                if work.changed == 0:
                    work.over = qp.eps
                work.epoch, work.at, work.changed = work.epoch + 1, 0, 0
        over, violation = self._over(qp, work), qp.violation()
        done, by_rule = over and violation <= qp.eps, work.over <= qp.eps
        return Progress(done, over and not done and not by_rule, steps, steps * n, violation, by_rule and not done)

    def _over(self, qp: DualQP, work: SimplifiedWork) -> bool:
        return work.over <= qp.eps or work.epoch >= self.maxepoch


@dataclass(frozen=True)
class SimplifiedSMOWithKM(SimplifiedSMO):
    """Hyperparameters of `simplified-smo-km`, which makes the same steps as `simplified-smo`.

    kept_rows : int   most kernel rows to keep; 0: as many as half of the free memory holds
    """

    name: ClassVar[str] = "simplified-smo-km"

    kept_rows: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kept_rows < 0:
            raise ValueError(f"kept_rows must not be negative: {self.kept_rows!r}")

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Also the bytes of one kept row; the plan gives more if it can."""
        return [*super().own_needs(shape, resident), Need(CACHE, 8 * shape.n_samples)]

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> SimplifiedWork:
        """The first state, with room for kernel rows, which are not saved with the state."""
        work = super().start_model(qp, rows, ctx)
        work.kept = keep_rows(rows, ctx, self.kept_rows)
        return work

    def finish_model(self, work: Any) -> None:
        """Release the kept rows."""
        if work.kept is not None:
            work.kept.close()
        work.kept = None


def _at_once(n: int) -> int:
    """The number of kernel rows that are asked for together."""
    return min(max(_TOGETHER // max(n, 1), 1), 64)
