"""Which point of a kernel solver is good enough, and which model is given up.

A gap is wanted, but where `--stop paper` asks for the paper's own rule or a kernel has no convex problem: there a small
violation of the optimality conditions ends a model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.solvers.base import Rule, SolverBase
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.state import KernelState, OpenModel
from bigsvm.solvers.pace import kernel_limits

_SURE = 0.8  # of the tolerance: gaps below are asked to be proved
_HALF = 0.5  # a violation v proves a gap of N C v / 2 at most: half of the tolerance is aimed at
SMALLEST_EPS = 1e-13


def most_values(ctx: Context | None, n: int, usual: int) -> int:
    """Kernel values that one call of `step_model` may ask for.

    The usual number, at most what a model is granted in all, or what the user's limit leaves of it.
    """
    usual = min(usual, max(int(kernel_limits(n).most) * n * n, 1))
    if ctx is None or ctx.sweeps_left is None:
        return usual
    return min(usual, ctx.sweeps_left * n * n)


def expired(ctx: Context | None) -> bool:
    """Whether the user's time is up, or rows were read as often as the user, or any fit, allows."""
    return ctx is not None and (ctx.expired() or ctx.read_enough())


@dataclass(frozen=True)
class EndsOfModels(SolverBase):
    """What decides when a model of a kernel solver is done.

    asked : all options of the fit; a flag needs no other way to reach a solver
    """

    most_failures: ClassVar[int] = 4
    """Proofs of a model that may send its solver back."""
    rule_factor: ClassVar[float] = 1.0
    """Times the tolerance: the violation at which the paper's own rule stops."""

    asked: FitConfig = field(default=FitConfig(), repr=False, metadata={"asked": True})

    @staticmethod
    def relative(state: KernelState) -> np.ndarray:
        """The gap of each model over its primal, as its own scores say, (n_models,); infinite where it is not known."""
        relative = np.full(state.n_models, np.inf)
        known = np.isfinite(state.primal)
        relative[known] = state.gap[known] / np.maximum(state.primal[known], np.finfo(float).tiny)
        return relative

    def reached(self, state: KernelState, qp: DualQP, m: int, tol: float) -> bool:
        """Whether a model is good enough: by its violation where a rule is asked for, else by its gap."""
        if self.goes_by_violation(state):
            return bool(state.violation[m] <= self.rule_factor * tol)
        return bool(state.gap[m] <= _SURE * tol * state.primal[m])

    def goes_by_violation(self, state: KernelState) -> bool:
        """Whether a small violation ends the fit, and not a small gap."""
        return self.asked.stop == "paper" or not state.problem.kernel.positive_semidefinite

    def within(self, state: KernelState, violation: np.ndarray, tol: float) -> np.ndarray:
        """Models that are as near to their optimum as asked, bool (n_models,), at violations of (n_models,)."""
        if self.goes_by_violation(state):
            return violation <= self.rule_factor * tol
        return self.relative(state) <= tol

    def given_up(self, state: KernelState, tol: float) -> np.ndarray:
        """Models that their solver can bring no nearer and that are not near enough, as it knows or as proofs say.

        bool, (n_models,)
        """
        ended = self.within(state, state.violation, tol) | self.ends_of_its_own(state)
        return (state.final & ~ended) | (state.failures > self.most_failures)

    def ends_of_its_own(self, state: KernelState) -> np.ndarray:
        """Models that the paper's own algorithm left, where it is asked for, bool (n_models,)."""
        return state.own_end & (self.asked.stop == "paper")

    def rule(self, state: KernelState, violation: np.ndarray, tol: float) -> Rule | None:
        """The rule that holds of all models at violations of (n_models,): theirs are small, or, where the paper's own
        algorithm is asked for, it ends there.  None where neither does, or a gap is wanted.
        """
        if not self.goes_by_violation(state):
            return None
        within, worst = self.within(state, violation, tol), max(float(violation.max()), 0.0)
        if within.all():
            return Rule("violation of the optimality conditions", worst, self.rule_factor * tol)
        own = bool(np.all(within | self.ends_of_its_own(state)))
        return Rule.where(own, "the algorithm's own end", worst, self.rule_factor * tol)

    def look_is_due(self, state: KernelState, one: OpenModel) -> bool:
        """Whether enough was done since the last look to make f of all rows valid for another."""
        n = one.qp.n
        count, limits = state.asked[one.model] / n**2, kernel_limits(n)
        return bool(count >= max(2.0 * one.pace.counts[2], limits.patience) or count > limits.most)

    def is_hopeless(self, state: KernelState, one: OpenModel, ctx: Context) -> bool:
        """Whether a model takes more than any should, or would at the rate at which violation and gap fall."""
        n, m = one.qp.n, one.model
        count, limits = state.asked[m] / n**2, kernel_limits(n)
        one.pace.see(count, np.array([state.violation[m], state.gap[m]]))
        if ctx.sweeps_left is not None and ctx.resident:
            return False  # the loop counts the same work, against the user's limit
        if self.asked.max_passes is not None:  # of the disk: work on rows that are held takes none
            limits = limits.at_least(self.asked.max_passes)
        if self.goes_by_violation(state):
            targets = np.array([self.rule_factor * ctx.tol, 0.0])
        else:
            targets = np.array([0.0, _SURE * ctx.tol * state.primal[m]])
        return bool(count > limits.most or one.pace.hopeless(targets, limits).all())

    def aim(self, state: KernelState, qp: DualQP, m: int) -> None:
        """The violation at which the solver may stop: one that proves the gap, where a gap is wanted."""
        if self.goes_by_violation(state):
            qp.eps = float(state.eps[m])
            return
        cost = float(np.maximum(qp.upper, -qp.lower).sum())
        # Not known yet, or no number, where kernel values overflow: then what the box allows says how large it may be.
        primal = max(float(state.primal[m]), np.finfo(float).tiny) if np.isfinite(state.primal[m]) else cost
        qp.eps = max(float(state.eps[m]) * _HALF * state.data.ctx.tol * primal / max(cost, 1e-300), SMALLEST_EPS)
