"""`platt-smo`: Platt's sequential minimal optimization, with errors kept for all rows.

    examine_all = 1
    while the last sweep took a step or examine_all:
        sweep over all rows (examine_all) or over those inside their box: of each row i2 that violates its
        optimality condition by more than eps, try partners i1 in Platt's order until one takes a step
        after a sweep over all: examine_all = 0;  after another one without a step: examine_all = 1

Given qp.beta and qp.f = K beta - y, the errors are E_i = f_i + b.  The two heuristics are in
`compiled/kernel/platt.py`.  The random starts are a function of (seed, sweep, i2).  For a linear kernel Platt keeps w;
here errors are kept for every kernel.  A step takes two kernel rows, and those used last are cached.

Source: Platt 1998, in the form of StandardSMO of Wang 2016 (docs/mathematics.md 10.2; `simplified.py` for its classes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigsvm.compiled.kernel.platt import add_row, next_violator, platt_examine
from bigsvm.solvers.base import DataShape, Keeps, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress, middle
from bigsvm.solvers.kernel.ends import expired, most_values
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows

_VALUES = 1 << 25  # work of one call: rows examined, with a weight of 4 n for each one that violates


@dataclass
class PlattWork:
    """The state of a model.

    b : float         bias;  sweep, at : int   number of the sweep, and its next row
    all_rows : bool   this sweep is over all rows;  whole : int   such sweeps that are complete
    changed : int     steps of this sweep;  over : float   the eps with which the rule was last met; inf: never
    """

    b: float
    sweep: int = 0
    whole: int = 0
    at: int = 0
    all_rows: bool = True
    changed: int = 0
    over: float = math.inf


@dataclass(frozen=True)
class PlattSMO(KernelSolver):
    """Hyperparameters of `platt-smo`.

    eps : float      a step must change alpha_2 by at least eps (alpha_2' + alpha_2 + eps), as in Platt's takeStep
    maxepoch : int   most sweeps over all rows
    """

    name: ClassVar[str] = "platt-smo"
    losses: ClassVar[tuple[str, ...]] = ("hinge",)
    rule_factor: ClassVar[float] = 2.0

    eps: float = 1e-3
    maxepoch: int = 5000

    @property
    def keeps_rows(self) -> Keeps:
        return "off"

    def __post_init__(self) -> None:
        if not 0.0 < self.eps < 1.0:
            raise ValueError(f"eps must be between 0 and 1, not {self.eps!r}")
        if self.maxepoch < 1:
            raise ValueError(f"maxepoch must be at least 1, not {self.maxepoch!r}")

    @property
    def caches(self) -> bool:
        """True, because rows inside their boxes are fetched in every sweep."""
        return True

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> PlattWork:
        """The first state: b = 0, or, after a warm start, -(b_up + b_low) / 2."""
        return PlattWork(middle(qp))

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes of the two kernel rows of a step."""
        return [Need("kernel rows", 16 * shape.n_samples)]

    def step_model(self, qp: DualQP, work: Any, rows: KernelRows, ctx: Context) -> Progress:
        """Examine row after row, until a sweep over all rows makes no step, or the share of work is over.

        Platt's rule is a sweep over all rows without a step.  There are two reasons for that.  If no row violates by
        more than qp.eps / 2 with the present b, then b_low - b_up <= qp.eps: the result is `done`, and a smaller qp.eps
        continues the fit.  If all possible steps are too small, the result is `final`.  At the largest number of
        sweeps, which is a limit and not a rule, it is `exhausted`.
        """
        n, steps, seen = qp.n, 0, 0
        programme = qp.target, qp.lower, qp.upper, qp.beta, qp.f
        most = most_values(ctx, n, _VALUES)
        while seen < most and not self._over(qp, work) and not expired(ctx):
            begun = work.at
            i2 = next_violator(*programme, work.b, 0.5 * qp.eps, begun, not work.all_rows)
            seen += i2 - begun + 1
            if i2 == n:
                self._next_sweep(qp, work)
                continue
            row = rows.fetch(np.array([i2]))[0]
            i1, change, work.b = platt_examine(
                row, i2, *programme, rows.diag, work.b, self.eps, ctx.seed, work.sweep
            )  # fmt: skip
            if i1 >= 0:
                add_row(qp.f, rows.fetch(np.array([i1]))[0], change)
                work.changed += 1
                steps += 1
            work.at = i2 + 1
            seen += 4 * n
        over, violation = self._over(qp, work), qp.violation()
        done, by_rule = over and violation <= qp.eps, work.over <= qp.eps
        return Progress(done, over and not done and not by_rule, steps, steps * n, violation, by_rule and not done)

    def _next_sweep(self, qp: DualQP, work: PlattWork) -> None:
        if work.all_rows:
            work.whole += 1
            if work.changed == 0:
                work.over = qp.eps
        # After the rule was met, a smaller eps begins with all rows again.
        work.all_rows = work.changed == 0
        work.sweep, work.at, work.changed = work.sweep + 1, 0, 0

    def _over(self, qp: DualQP, work: PlattWork) -> bool:
        return work.over <= qp.eps or work.whole >= self.maxepoch
