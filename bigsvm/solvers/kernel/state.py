"""Where a fit with a kernel stands: one model after another on the same per-row vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsvm.compiled.kernel.dual_qp import fill_qp
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Context, Need
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.nu_qp import NuQP
from bigsvm.solvers.pace import Pace
from bigsvm.store.state.vectors import RowVector

VECTORS = {"row labels": 1, "row scores": 1, "row targets": 1, "row boxes": 2, "row costs": 1}
"""Per-row vectors beside alpha, float64, by name and width."""


@dataclass
class KernelState:
    """Arrays of all models and of the one in work.

    alpha : (n, n_models)   beta of each model while it is trained
    labels, scores, targets, boxes, costs : of the model in work, its rows first;  beta : its beta where there are more
    labelled : rows whose labels were read
    unsigned : `alpha` is that of an earlier model, without signs and perhaps outside its box
    model : the one in work, -1 for none;  done : models that are thought to be finished
    failures : proofs of each model that did not show what its scores promised
    no_margin : models whose w is next to 0, where nu wants a margin
    own_end : models whose solver's paper ends there, optimal or not (`Progress.final`)
    eps : violation to reach by each model;  scored : whose K beta - t is in `scores`, -1 for nobody's
    bias, epsilon, violation, gap, primal, dual : of each model when it was last looked at; epsilon where nu finds it
    precise : float64 kernel values
    iterations : of all models together
    asked : kernel values that each model's solver has asked for, whether they were computed or kept
    pace : of the violation and the gap of the model in work
    kernel_rows : int64, rows computed, found in memory, found on disk, and single values, of all models together
    """

    problem: Problem = field(metadata={"derived": True})
    alpha: RowVector
    vectors: dict[str, RowVector]
    beta: RowVector | None
    n_models: int = field(metadata={"derived": True})
    labelled: int = 0
    model: int = -1
    scored: int = -1
    precise: bool = False
    iterations: int = 0
    done: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    final: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    own_end: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    no_margin: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    failures: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    eps: np.ndarray = field(default_factory=lambda: np.zeros(0))
    bias: np.ndarray = field(default_factory=lambda: np.zeros(0))
    epsilon: np.ndarray = field(default_factory=lambda: np.zeros(0))
    violation: np.ndarray = field(default_factory=lambda: np.zeros(0))
    gap: np.ndarray = field(default_factory=lambda: np.zeros(0))
    primal: np.ndarray = field(default_factory=lambda: np.zeros(0))
    asked: np.ndarray = field(default_factory=lambda: np.zeros(0))
    pace: Pace = field(default_factory=lambda: Pace.of(2))
    kernel_rows: np.ndarray = field(default_factory=lambda: np.zeros(4, np.int64))
    work: Any = None
    qp: DualQP | None = field(default=None, metadata={"derived": True})
    data: Any = field(default=None, metadata={"derived": True})
    rows: Any = field(default=None, metadata={"derived": True})
    unsigned: bool = False
    warned: bool = field(default=False, metadata={"derived": True})


def kernel_needs(n: int, n_models: int, weighted: bool) -> list[Need]:
    """The per-row vectors of `new_kernel_state`."""
    names = [name for name in VECTORS if weighted or name != "row costs"]
    needs = [Need(name, 8 * VECTORS[name] * n, may_spill=True) for name in names]
    if n_models > 1:
        needs.append(Need("row coefficients", 8 * n, may_spill=True))
    return [Need("alpha", 8 * n * n_models, may_spill=True), *needs]


def new_kernel_state(problem: Problem, ctx: Context, eps: float) -> KernelState:
    """beta = 0 for all models, no label read yet."""
    m, weighted = problem.n_models, ctx.data.has_weights
    return KernelState(
        problem=problem,
        alpha=ctx.vector("alpha", m),
        vectors={name: ctx.vector(name, width) for name, width in VECTORS.items() if weighted or name != "row costs"},
        beta=ctx.vector("row coefficients", 1) if m > 1 else None,
        n_models=m,
        done=np.zeros(m, bool),
        final=np.zeros(m, bool),
        own_end=np.zeros(m, bool),
        no_margin=np.zeros(m, bool),
        asked=np.zeros(m),
        failures=np.zeros(m, np.int64),
        eps=np.full(m, eps),
        bias=np.zeros(m),
        epsilon=np.zeros(m),
        violation=np.full(m, np.inf),
        gap=np.full(m, np.inf),
        primal=np.full(m, np.inf),
    )


def make_qp(state: KernelState, model: int) -> DualQP:
    """The programme of a model, its vectors filled in from labels and costs; beta from alpha, f not."""
    problem, n = state.problem, len(state.alpha.values)
    labels = state.vectors["row labels"].values[:, 0]
    costs = state.vectors["row costs"].values[:, 0] if "row costs" in state.vectors else np.empty(0)
    as_targets = problem.regression or problem.one_class
    codes = int(problem.positive[model]), int(problem.negative[model]), as_targets
    given = (labels, costs, float(problem.C[model]), problem.class_weight, *codes)
    nothing, none = np.empty(0), np.empty(0, np.int64)
    found = fill_qp(*given, none, nothing, nothing, nothing)
    rows = None if found == n else np.empty(found, np.int64)
    target, f = state.vectors["row targets"].values[:found, 0], state.vectors["row scores"].values[:found, 0]
    boxes = state.vectors["row boxes"].values.reshape(-1)[: 2 * found].reshape(2, found)
    fill_qp(*given, none if rows is None else rows, target, boxes[0], boxes[1])
    if state.beta is not None:
        beta = state.beta.values[:found, 0]
        beta[:] = state.alpha.values[slice(None) if rows is None else rows, model]
    else:
        beta = state.alpha.values[:, 0]
        if rows is not None:
            beta = beta[rows]
    eps = float(state.eps[model])
    if problem.loss.nu is None:
        return DualQP(target, boxes[0], boxes[1], problem.loss.epsilon, beta, f, rows, eps)
    if problem.one_class:
        boxes[0][:] = 0.0
    if not problem.regression:
        target[:] = 0.0
    total = problem.loss.nu * float(np.maximum(boxes[1], -boxes[0]).sum())
    at = float(state.epsilon[model])
    return NuQP(target, boxes[0], boxes[1], at, beta, f, rows, eps, total, problem.regression, problem.one_class)


def keep_beta(state: KernelState) -> None:
    """The QP's beta into alpha, which checkpoints and proofs see."""
    qp = state.qp
    assert qp is not None
    column = state.alpha.values[:, max(state.model, 0)]
    if qp.rows is not None:
        column[qp.rows] = qp.beta
    elif state.beta is not None:
        column[:] = qp.beta


def gap_at_best_bias(qp: DualQP) -> tuple[float, float, float, float]:
    """(gap, primal, dual, b): what a QP's own beta and f prove, with the bias that makes the primal least."""
    gap, primal, dual, b, _ = qp.gap_at_best_bias()
    return gap, primal, dual, b


def terms(qp: DualQP, b: float) -> tuple[float, float, float]:
    """(gap, primal, dual) at bias b, of a beta whose f is known."""
    return qp.terms(b)[:3]
