"""Proofs of kernel models: f is computed anew from beta and the rows, then the gap as a sum of non-negative terms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.model.linear_model import Model
from bigsvm.problem.certificate import SHORTENED, Certificate, above_zero
from bigsvm.problem.linear_rounding import UnsureWeights
from bigsvm.problem.problem import Problem
from bigsvm.problem.rounding import Unsure
from bigsvm.run.proof.fresh_scores import Programme, scores_of
from bigsvm.run.proof.kernel_check import quadratic_refutes, refuted
from bigsvm.run.proof.linear_scores import linear_scores_of
from bigsvm.run.proof.prover import Prover
from bigsvm.run.proof.support_model import kernel_model
from bigsvm.solvers.base import Rule
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.signed import keep_point, make_feasible
from bigsvm.solvers.kernel.state import KernelState, make_qp
from bigsvm.store.blocks import RowBlocks


class KernelProver(Prover):
    """Proves all models of a kernel solver: together if they are trained together, else one after another.

    certificate : that of the last proof
    bias : float64, (n_models,), the biases in that proof;  epsilon : float64, (n_models,), found by nu
    violation : float64, (n_models,), of the optimality conditions
    kernel : Kernel, with what the dual points have shown about it
    w : float64, (n_models, n_features), the weights in the last proof if the kernel is linear, else None
    """

    def __init__(self, solver: KernelSolver, state: KernelState, ctx: Context) -> None:
        super().__init__(solver, state, ctx)
        self.kernel = state.problem.kernel
        self.bias, self.epsilon = state.bias, state.epsilon
        self.violation = np.full(state.n_models, np.inf)
        self.alpha = [state.alpha]
        linear = self.kernel.name == "linear"
        self._w = np.zeros((state.n_models if linear else 0, ctx.data.n_features + 1))

    @property
    def w(self) -> np.ndarray | None:
        return self._w[:, :-1] if len(self._w) else None

    @property
    def written(self) -> Certificate | None:
        """The certificate of the points in the last proof."""
        return self.certificate

    def _prove(self) -> Certificate:
        state, m = self._state, self._state.n_models
        found, support = np.empty((m, 3)), np.empty(m, np.int64)
        self._solver.make_room(state)
        # Models that have vectors of their own share one reading.
        for models in [range(m)] if state.places > 1 else [range(k, k + 1) for k in range(m)]:
            qps = [make_qp(state, model) for model in models]
            for model, qp, unsure in zip(models, qps, self._scored(models, qps), strict=True):
                if self._shortened(model, qp):
                    (unsure,) = self._scored(range(model, model + 1), [qp])
                b = float(state.bias[model])
                terms = qp.terms(b)
                gap = terms.gap + qp.imbalance(terms, unsure)
                found[model] = gap + qp.rounding(b, terms, unsure), terms.primal, terms.dual
                self._look_at(qp, terms.quadratic, terms.made_of)
                support[model] = np.count_nonzero(qp.beta)
                self.violation[model] = qp.violation()
                state.now_scored(model)
        self._refuse_overflow(found[:, 1:])
        self.bias, self.epsilon = state.bias.copy(), state.epsilon.copy()
        gap, primal, dual = found.T.copy()
        n_rows = self._ctx.data.n_samples
        self.certificate = above_zero(Certificate(primal, dual, gap, n_rows, 0.0, support, self.kernel.certificate))
        self._judge(self.certificate)
        return self.certificate

    def _shortened(self, model: int, qp: DualQP) -> bool:
        """Whether beta was shortened, where a limit ends the fit and its P is above that of beta = 0.

        Such a beta is far too long: after a few steps of two rows their scores are right, and those of all others not.
        With nu the length of beta is given.
        """
        state = self._state
        if not self.at_limit or state.problem.loss.nu is not None or state.unsigned or not qp.shorten(SHORTENED):
            return False
        keep_point(state, qp, model)
        state.primal[model] = np.inf  # the bias that the solver knew was that of the longer beta
        return True

    def _scored(self, models: Sequence[int], qps: Sequence[DualQP]) -> Sequence[Unsure | UnsureWeights]:
        """Compute f of some models anew, and choose the bias of each at which its gap is computed.

        Returns the sums that bound the effect of rounding.
        """
        state, nu = self._state, self._state.problem.loss.nu is not None
        programmes, known = [], []
        for model, qp in zip(models, qps, strict=True):
            moved = not nu and not state.unsigned and make_feasible(state, qp, model)
            known.append(bool(np.isfinite(state.primal[model])) and self.w is None and not nu and not moved)
            programmes.append(Programme(qp, float(state.bias[model]) if known[-1] else None, state.precise))
        found: Sequence[Unsure | UnsureWeights]
        if self.w is None:
            found = scores_of(programmes, state.data)
        else:
            found = linear_scores_of(qps, state.data, self._w[models[0] : models[-1] + 1])
        for model, qp, is_known in zip(models, qps, known, strict=True):
            if not is_known:
                state.bias[model], state.epsilon[model] = qp.best_bias(), qp.epsilon
        return found

    def _look_at(self, qp: DualQP, quadratic: float, size: float) -> None:
        """Record that a beta refutes the kernel.  Raises DataError if the user vouches for the kernel.

        quadratic : beta'K beta;  size : size of the sums of which it was computed
        """
        kernel = self.kernel
        if kernel.by_construction or kernel.definite.how not in ("undecided", "assumed"):
            return
        squares = float(np.einsum("i,i", qp.beta, qp.beta))
        why = quadratic_refutes(kernel, quadratic, squares, size)
        if why and kernel.definite.how == "assumed":
            raise refuted(why, self._ctx.data.uri)
        if why:
            self.kernel = kernel.refuted_by(why)

    def _judge(self, certificate: Certificate) -> None:
        """Let the solver go on with models whose proof shows a larger gap or violation than it had computed."""
        state, solver, tol = self._state, self._solver, self._ctx.tol
        self.rejected = False
        if not bool(state.done.all()) or solver.given_up(state, tol).any():
            return
        if solver.asked.stop == "paper" or not state.problem.kernel.positive_semidefinite:
            failed = self.violation > solver.rule_factor * tol
        else:
            failed = certificate.relative_gaps > tol
        state.failures[failed & (state.failures == solver.most_failures)] += 1  # given up
        failed &= state.failures < solver.most_failures
        if failed.any():
            self.rejected = True
            solver.proof_failed(state, np.flatnonzero(failed))

    @property
    def anywhere(self) -> bool:  # type: ignore[override]
        """Beta is valid in the middle of a step too, once all labels are known."""
        return self._state.labelled == len(self._state.alpha.values)

    def judged(self, ending: str, rule: Rule | None) -> tuple[str, Rule | None]:
        """As in `Prover`; a rule must hold for the violations that the last proof computed."""
        held = self._solver.rule(self._state, self.violation, self._ctx.tol)
        if held is not None:
            return "paper_rule" if self._solver.asked.stop == "paper" else "kkt", held
        return ("stalled", None) if ending in ("paper_rule", "kkt") else (ending, rule)

    def checked(self, problem: Problem) -> Problem:
        """The problem with what the dual points have shown about the kernel, and with the C or epsilon that nu found.

        Raises DataError if nu-SVC or one-class has found no margin.
        """
        problem = dataclasses.replace(problem, kernel=self.kernel)
        if problem.loss.nu is None:
            return problem
        if problem.regression:
            return dataclasses.replace(problem, loss=dataclasses.replace(problem.loss, epsilon=float(self.epsilon[0])))
        other = "a larger --gamma" if self.kernel.name == "rbf" else "the rbf kernel"
        hint = f"choose a {'smaller' if problem.one_class else 'larger'} --nu, or {other}"
        if np.any(self._state.no_margin):
            overlap = "the rows lie around the origin" if problem.one_class else "the classes overlap"
            what = f"nu = {problem.loss.nu:g} leaves no margin: {overlap} so far that w = 0 is best"
            raise DataError(what, self._ctx.data.uri, hint)
        if np.any(self.epsilon >= 0.0):
            what = "the fit has ended before it found a margin: there is no model to write"
            hint = f"where --max-passes or --max-time ended it, give it more; else {hint}, or scale the features"
            raise DataError(what, self._ctx.data.uri, hint)
        if problem.one_class:
            return problem
        return dataclasses.replace(problem, C=-1.0 / self.epsilon)

    def figures(self) -> dict[str, Any]:
        """Entries of the result that only kernel solvers have."""
        computed, ram_hits, disk_hits, values = self._state.kernel_rows.tolist()
        return {
            **({} if self.kernel.by_construction else {"positive_semidefinite": self.kernel.definite.how}),
            **{name: value for name, value in self.kernel.document().items() if name != "name"},
            "iterations": self._state.iterations,
            "violation": float(max(self.violation.max(), 0.0)),
            "kernel_rows": {"computed": computed, "ram_hits": ram_hits, "disk_hits": disk_hits},
            "kernel_values": values,
        }

    def model(self, problem: Problem, data: RowBlocks, about: dict[str, Any]) -> Model:
        """The model of the beta in the last proof: support vectors and coefficients, or w if the kernel is linear."""
        bias, w = self.bias, self.w
        if problem.one_class:
            bias = bias + self.epsilon
        elif problem.loss.nu is not None and not problem.regression:
            # LIBSVM's scale: a margin of 1, which makes the model the hinge's with C = 1 / rho.
            rho = np.where(self.epsilon < 0.0, -self.epsilon, 1.0)
            self._state.alpha.values[:] /= rho
            bias, w = bias / rho, None if w is None else w / rho[:, None]
        found = kernel_model(problem, self._state, bias, w, data, about)
        self._solver.finish(self._state)
        return found

    def _dump(self) -> dict[str, Any]:
        return {
            "bias": self.bias,
            "epsilon": self.epsilon,
            "violation": self.violation,
            "rejected": self.rejected,
            "w": self.w,
        }

    def _load(self, tree: dict[str, Any]) -> None:
        self.bias, self.violation = np.array(tree["bias"]), np.array(tree["violation"])
        self.epsilon = np.array(tree["epsilon"])
        self.rejected = tree["rejected"]
        if tree["w"] is not None:
            self._w[:, :-1] = tree["w"]
