"""Where a fit with a kernel stands: one model after another on the same per-row vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsvm.kernels.block_smo import conjugate_terms
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Context, Need
from bigsvm.solvers.kernel.part import Part
from bigsvm.store.vectors import RowVector

VECTORS = {"row labels": 1, "row scores": 1, "row targets": 1, "row boxes": 2, "row costs": 1}
"""Per-row vectors beside alpha, float64, by name and width."""
_SORTED = 1 << 22  # rows up to which the best bias is found by sorting


@dataclass
class KernelState:
    """Arrays of all models and of the one in work.

    alpha : (n, n_models)   beta of each model while it is trained
    labels, scores, targets, boxes, costs : of the model in work, its rows first;  beta : its beta where there are more
    labelled : rows whose labels were read
    model : the one in work, -1 for none;  done : models that are thought to be finished
    failures : proofs of each model that did not show what its scores promised
    eps : violation to reach by each model;  scored : whose K beta - t is in `scores`, -1 for nobody's
    bias, violation, gap, primal, dual : of each model when it was last looked at
    precise : float64 kernel values
    iterations : of all models together
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
    failures: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    eps: np.ndarray = field(default_factory=lambda: np.zeros(0))
    bias: np.ndarray = field(default_factory=lambda: np.zeros(0))
    violation: np.ndarray = field(default_factory=lambda: np.zeros(0))
    gap: np.ndarray = field(default_factory=lambda: np.zeros(0))
    primal: np.ndarray = field(default_factory=lambda: np.zeros(0))
    kernel_rows: np.ndarray = field(default_factory=lambda: np.zeros(4, np.int64))
    work: Any = None
    part: Part | None = field(default=None, metadata={"derived": True})
    data: Any = field(default=None, metadata={"derived": True})
    rows: Any = field(default=None, metadata={"derived": True})
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
    n, m = ctx.data.n_samples, problem.n_models

    def vector(what: str, width: int) -> RowVector:
        return RowVector(what, n, width, np.float64, ctx.budget, ctx.workdir, on_disk=what in ctx.spilled)

    weighted = ctx.data.has_weights
    return KernelState(
        problem=problem,
        alpha=vector("alpha", m),
        vectors={name: vector(name, width) for name, width in VECTORS.items() if weighted or name != "row costs"},
        beta=vector("row coefficients", 1) if m > 1 else None,
        n_models=m,
        done=np.zeros(m, bool),
        final=np.zeros(m, bool),
        failures=np.zeros(m, np.int64),
        eps=np.full(m, eps),
        bias=np.zeros(m),
        violation=np.full(m, np.inf),
        gap=np.full(m, np.inf),
        primal=np.full(m, np.inf),
    )


def make_part(state: KernelState, model: int) -> Part:
    """The programme of a model, its vectors filled in from labels and costs; beta from alpha, f not."""
    problem = state.problem
    labels = state.vectors["row labels"].values[:, 0]
    C = np.full(len(labels), problem.C[model])
    if "row costs" in state.vectors:
        C *= state.vectors["row costs"].values[:, 0]
    rows: np.ndarray | None = None
    if problem.regression:
        t, takes = labels, C > 0
    else:
        codes = labels.astype(np.int64)
        C *= problem.class_weight[codes]
        t = np.where(codes == problem.positive[model], 1.0, -1.0)
        takes = C > 0
        if problem.negative[model] >= 0:
            takes &= (codes == problem.positive[model]) | (codes == problem.negative[model])
    if not takes.all():
        rows = np.flatnonzero(takes)
        t, C = t[rows], C[rows]
    n = len(t)
    target, f = state.vectors["row targets"].values[:n, 0], state.vectors["row scores"].values[:n, 0]
    boxes = state.vectors["row boxes"].values.reshape(-1)[: 2 * n].reshape(2, n)
    target[:] = t
    boxes[0] = -C if problem.regression else np.where(t > 0, 0.0, -C)
    boxes[1] = C if problem.regression else np.where(t > 0, C, 0.0)
    beta = state.alpha.values[:, 0] if state.beta is None else state.beta.values[:n, 0]
    if state.beta is not None or rows is not None:
        if state.beta is None:
            beta = np.ascontiguousarray(state.alpha.values[rows, 0])
        else:
            beta[:] = state.alpha.values[slice(None) if rows is None else rows, model]
    epsilon = float(getattr(problem.loss, "epsilon", 0.0))
    return Part(target, boxes[0], boxes[1], epsilon, beta, f, rows, float(state.eps[model]))


def keep_beta(state: KernelState) -> None:
    """The part's beta into alpha, which checkpoints and proofs see."""
    part = state.part
    assert part is not None
    column = state.alpha.values[:, max(state.model, 0)]
    if part.rows is not None:
        column[part.rows] = part.beta
    elif state.beta is not None:
        column[:] = part.beta


def weigh(part: Part) -> tuple[float, float, float, float]:
    """(gap, primal, dual, b): what a part's own beta and f prove, with the bias that makes the primal least.

    gap is a sum of non-negative terms (`algorithms` 1.1, 1.2); D = t'beta - epsilon |beta| - 1/2 beta'K beta.
    """
    b = best_bias(part)
    return *terms(part, b), b


def terms(part: Part, b: float) -> tuple[float, float, float]:
    """(gap, primal, dual) at bias b; the primal is 1/2 beta'K beta and the losses, no difference of large sums."""
    gap, loss = conjugate_terms(part.f, part.beta, part.lower, part.upper, part.epsilon, b)
    quadratic = float(part.beta @ part.f) + float(part.beta @ part.target)
    return gap, 0.5 * quadratic + loss, dual_value(part)


def dual_value(part: Part) -> float:
    """D(beta), of a beta whose f is known: beta'K beta = beta.(f + t)."""
    quadratic = float(part.beta @ part.f) + float(part.beta @ part.target)
    return float(part.beta @ part.target) - part.epsilon * float(np.abs(part.beta).sum()) - 0.5 * quadratic


def best_bias(part: Part) -> float:
    """b with the least sum of losses of the present f: the exact minimiser (2.5), a weighted median.

    Of very many rows the middle of b_up and b_low, which any gap may be taken with.
    """
    if part.n > _SORTED:
        b_up, b_low = part.bounds()
        return -0.5 * (b_up + b_low) if np.isfinite(b_up) and np.isfinite(b_low) else 0.0
    # As b grows, each residual -(f + b) falls: a row's coefficient goes from its upper bound to 0 and to its lower one.
    places = np.concatenate([-part.f - part.epsilon, -part.f + part.epsilon])
    jumps = np.concatenate([part.upper, -part.lower])
    moving = jumps > 0
    places, jumps = places[moving], jumps[moving]
    if not len(places):
        return 0.0
    order = np.argsort(places, kind="stable")
    places, slope = places[order], np.cumsum(jumps[order]) - float(part.upper.sum())
    k = int(np.searchsorted(slope, 0.0))
    if k >= len(places):
        return float(places[-1])
    level = 1e-12 * float(jumps.sum())
    if slope[k] <= level and k + 1 < len(places):
        # The least is a whole interval: its middle, as LIBSVM takes it.
        return 0.5 * float(places[k] + places[k + 1])
    return float(places[k])
