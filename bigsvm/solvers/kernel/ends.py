"""When a model of a kernel solver is good enough, and when it is given up.

A model ends by its gap.  There are two exceptions, in which it ends by its violation of the optimality conditions:
`--stop paper`, and a kernel that is not known to be positive semidefinite, with which no gap can be proved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.solvers.base import OWN_END, Rule, SolverBase
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.nu_qp import NuQP
from bigsvm.solvers.kernel.state import KernelState, OpenModel
from bigsvm.solvers.pace import kernel_limits

_SURE = 0.8  # share of the tolerance from which a proof is asked for
_HALF = 0.5  # share of the tolerance to aim at; a violation v means a gap of at most N C v / 2
SMALLEST_EPS = 1e-13  # smallest share of the tolerance to aim at, and smallest violation where scores are near 1


def smallest_violation(qp: DualQP) -> float:
    """The smallest violation to aim at: smaller ones are within the rounding of f, whose terms are K beta and t.

    It is relative to these where they are small, as those of nu are that have rows of small weights, and those of a
    regression whose targets are small.
    """
    size = max(float(np.abs(values).max(initial=0.0)) for values in (qp.f, qp.target))
    return SMALLEST_EPS * max(min(size, 1.0), float(np.finfo(float).tiny)) if np.isfinite(size) else SMALLEST_EPS


def most_values(ctx: Context | None, n: int, usual: int) -> int:
    """The number of kernel values that one call of `step_model` may ask for.

    It is `usual`, unless the limit of a model with n rows, or what is left of the user's limit, is smaller.
    """
    usual = min(usual, max(int(kernel_limits(n).most) * n * n, 1))
    if ctx is None or ctx.sweeps_left is None:
        return usual
    return min(usual, ctx.sweeps_left * n * n)


def expired(ctx: Context | None) -> bool:
    """Whether the user's time is up, or the rows were read as often as the user's or the general limit allows."""
    return ctx is not None and (ctx.expired() or ctx.read_enough())


@dataclass(frozen=True)
class EndsOfModels(SolverBase):
    """The decisions when a model of a kernel solver is done.

    asked : the options of the fit
    """

    most_failures: ClassVar[int] = 4
    """Failed proofs of a model after which it is given up."""
    rule_factor: ClassVar[float] = 1.0
    """The rule of the solver's paper stops at a violation of this many times the tolerance."""

    asked: FitConfig = field(default=FitConfig(), repr=False, metadata={"asked": True})

    @staticmethod
    def relative(state: KernelState) -> np.ndarray:
        """gap / primal of each model by its own scores, float64, (n_models,); infinite if it is not known."""
        relative = np.full(state.n_models, np.inf)
        known = np.isfinite(state.primal)
        relative[known] = state.gap[known] / np.maximum(state.primal[known], np.finfo(float).tiny)
        return relative

    def reached(self, state: KernelState, qp: DualQP, m: int, tol: float) -> bool:
        """Whether a model is good enough: by its violation or its gap, whichever decides."""
        if self.goes_by_violation(state):
            return bool(state.violation[m] <= self.rule_factor * tol)
        return bool(state.gap[m] <= _SURE * tol * state.primal[m])

    def goes_by_violation(self, state: KernelState) -> bool:
        """Whether the violation decides when a model ends, and not the gap."""
        return self.asked.stop == "paper" or not state.problem.kernel.positive_semidefinite

    def within(self, state: KernelState, violation: np.ndarray, tol: float) -> np.ndarray:
        """bool, (n_models,): models that are as near to their optimum as asked.  violation : float64, (n_models,)"""
        if self.goes_by_violation(state):
            return violation <= self.rule_factor * tol
        return self.relative(state) <= tol

    def given_up(self, state: KernelState, tol: float) -> np.ndarray:
        """bool, (n_models,): models that are not near enough, and that their solver or failed proofs have given up."""
        ended = self.within(state, state.violation, tol) | self.ends_of_its_own(state)
        return (state.final & ~ended) | (state.failures > self.most_failures)

    def ends_of_its_own(self, state: KernelState) -> np.ndarray:
        """bool, (n_models,): models at which the algorithm of the paper has ended, if --stop paper is given."""
        return state.own_end & (self.asked.stop == "paper")

    def rule(self, state: KernelState, violation: np.ndarray, tol: float) -> Rule | None:
        """The stop rule that all models meet at these violations, float64, (n_models,).

        Either all violations are small, or, with --stop paper, the algorithm has ended.  None if neither is so, or if
        the gap decides.
        """
        if not self.goes_by_violation(state):
            return None
        within, worst = self.within(state, violation, tol), max(float(violation.max()), 0.0)
        if within.all():
            return Rule("violation of the optimality conditions", worst, self.rule_factor * tol)
        own = bool(np.all(within | self.ends_of_its_own(state)))
        return Rule.where(own, OWN_END, worst, self.rule_factor * tol)

    def look_is_due(self, state: KernelState, one: OpenModel) -> bool:
        """Whether enough work was done to make f of all rows valid, so that gap and violation are known again."""
        n = one.qp.n
        count, limits = state.asked[one.model] / n**2, kernel_limits(n)
        return bool(count >= max(2.0 * one.pace.counts[2], limits.patience) or count > limits.most)

    def is_hopeless(self, state: KernelState, one: OpenModel, ctx: Context) -> bool:
        """Whether a model has used up its limit of work, or would at the rate at which violation and gap fall."""
        n, m = one.qp.n, one.model
        count, limits = state.asked[m] / n**2, kernel_limits(n)
        margin = isinstance(one.qp, NuQP) and not one.qp.at_most
        # P of a model with a margin falls along with the gap, so that only the two together tell how far it is.
        gap, wanted = state.gap[m], _SURE * ctx.tol * state.primal[m]
        if margin:
            gap, wanted = gap / max(state.primal[m], np.finfo(float).tiny), _SURE * ctx.tol
        one.pace.see(count, np.array([state.violation[m], gap]))
        if ctx.sweeps_left is not None and ctx.resident:
            return False  # the loop holds the same work against the user's limit
        if self.asked.max_passes is not None:  # the user's limit counts reading, which work on rows in memory is not
            limits = limits.at_least(self.asked.max_passes)
        if self.goes_by_violation(state):
            targets = np.array([self.rule_factor * ctx.tol, 0.0])
        else:
            targets = np.array([0.0, wanted])
        if margin and gap >= 1.0 and count >= limits.patience and one.pace.by_ratio(targets)[1] > limits.most:
            # No bound above 0 is known, so that there may be no margin at all, and P would fall for ever.
            return True
        return bool(count > limits.most or one.pace.hopeless(targets, limits).all())

    def aim(self, state: KernelState, qp: DualQP, m: int) -> None:
        """Set `qp.eps`, the violation at which the solver may stop: small enough for the gap, if the gap decides."""
        if self.goes_by_violation(state):
            qp.eps = float(state.eps[m])
            return
        cost = float(np.maximum(qp.upper, -qp.lower).sum())
        # If P is not known yet, or not finite because kernel values overflow, the sum of C_i stands for it.
        primal = max(float(state.primal[m]), np.finfo(float).tiny) if np.isfinite(state.primal[m]) else cost
        wanted = float(state.eps[m]) * _HALF * state.data.ctx.tol * primal / max(cost, 1e-300)
        qp.eps = max(wanted, smallest_violation(qp))
