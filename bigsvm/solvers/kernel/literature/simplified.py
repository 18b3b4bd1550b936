"""`simplified-smo` and `simplified-smo-km`: rows in turn, each with the partner of the most different error.

    for each epoch, for each row i that violates its optimality condition by more than eps:
        j = argmax_j |E_i - E_j|;  the best step of alpha_i and alpha_j in their boxes
    until an epoch takes no step

Taken literally this stalls: the one candidate j may be blocked (L = H) for every i, far from the optimum.  On
heart_scale, linear, C = 1, that is after 58 steps, at 31.6 of 92.47.  So, unless `second` says otherwise, all other j
are tried in random order before i is given up.

Row i's error is computed afresh, from a row of kernel values, whenever i is examined: an epoch is n rows of n values,
whatever it changes.  `simplified-smo-km` keeps the rows that it has seen, as far as memory goes, and takes the same
steps to the last bit.

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
    """Where it stands.

    b : bias;  epoch, at : the row to be examined next;  changed : steps of this epoch
    over : the eps with which the rule was last met; inf: never
    kept : of `simplified-smo-km`
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

    second : str         'max-then-random'; 'max': Wang 2016 taken literally; 'random': one random j, no argmax
    maxepoch : int       epochs at most
    min_step : float     a step must change alpha_j by so much
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
        """b = 0, of a warm start the middle of b_up and b_low."""
        return SimplifiedWork(middle(qp))

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Rows that are examined, one that changes f, and an order of all."""
        n = shape.n_samples
        return [Need("kernel rows", 8 * n * (_at_once(n) + 2))]

    def step_model(self, qp: DualQP, work: Any, rows: KernelRows, ctx: Context) -> Progress:
        """Whole groups of rows, until an epoch takes no step or enough were examined; see `Progress`.

        The rule of Wang 2016 is an epoch without a step.  Where no row violates by more than qp.eps / 2 with the b
        that is kept, b_low - b_up is at most qp.eps: then it is `done`, and goes on with a smaller qp.eps.  An
        epoch may also take no step because none was found; then it is over, and `final`.  The last epoch that is
        allowed is a limit, and no rule: then it is `exhausted`.
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
    """Hyperparameters of `simplified-smo-km`: those of `simplified-smo`, whose iterates it has.

    kept_rows : int   kernel rows kept at most; 0: as many as half of the free memory holds
    """

    name: ClassVar[str] = "simplified-smo-km"

    kept_rows: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kept_rows < 0:
            raise ValueError(f"kept_rows must not be negative: {self.kept_rows!r}")

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """One kept row at least; the plan gives more."""
        return [*super().own_needs(shape, resident), Need(CACHE, 8 * shape.n_samples)]

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> SimplifiedWork:
        """As `simplified-smo`, with room for rows.  What is kept is no part of a saved state."""
        work = super().start_model(qp, rows, ctx)
        work.kept = keep_rows(rows, ctx, self.kept_rows)
        return work

    def finish_model(self, work: Any) -> None:
        """Let the rows go."""
        if work.kept is not None:
            work.kept.close()
        work.kept = None


def _at_once(n: int) -> int:
    """Rows whose kernel values are asked for together."""
    return min(max(_TOGETHER // max(n, 1), 1), 64)
