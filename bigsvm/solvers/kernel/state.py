"""The state of a fit with a kernel: the open models (those being trained), and their vectors of rows.

Models are trained one after another, or all at the same time.  In the first case they share the same part of each
vector.  In the second their parts lie one behind the other.  A pair of classes has only the rows of these two, so k
classes need k - 1 places for each row, however many pairs there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.kernel.dual_qp import fill_qp
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.nu_qp import NuQP
from bigsvm.solvers.pace import Pace
from bigsvm.store.state.vectors import RowVector

_OF_ROWS = ("row labels", "row costs")
_OF_MODELS = {"row scores": 1, "row targets": 1, "row boxes": 2}
"""Vectors of open models, float64, by name, with the numbers for each row."""


@dataclass(eq=False)
class OpenModel:
    """A model that is being trained.

    model : int        its number
    precise : bool     its kernel values are float64
    qp : DualQP        its programme
    classes : codes of its positive and its negative class; None if it has the rows of all classes
    work : the solver's own state of it
    pace : Pace        rates at which its violation and its gap fall
    rows : KernelRows  kernel rows of its programme
    """

    model: int
    precise: bool
    qp: DualQP = field(metadata={"derived": True})
    classes: tuple[int, int] | None = field(default=None, metadata={"derived": True})
    work: Any = None
    pace: Pace = field(default_factory=lambda: Pace.of(2))
    rows: Any = field(default=None, metadata={"derived": True})


@dataclass
class KernelState:
    """The state of all models, and of those that are open.  Arrays without a shape are (n_models,).

    alpha : float64, (n, n_models)   beta of each model, until `finish`
    vectors : labels and costs of rows; and for open models scores, targets, boxes, and the solver's own vectors
    beta : beta of open models; None if there is only one model, whose beta is in alpha
    places : how many open models a row may take part in; 1 if models are trained one after another
    own : names of the solver's own vectors;  shared : the solver's own state that open models share
    labelled : rows whose labels were read
    unsigned : alpha is that of an earlier model, without signs and perhaps outside its box
    open : open models, ascending
    done : models that are believed to be finished
    final : models that ended for good, by their algorithm or because no progress was possible
    own_end : models whose algorithm ended by its own rule, optimal or not (`Progress.final`)
    no_margin : models whose w is 0 or nearly so, although nu asks for a margin
    failures : failed proofs of each model, in which the gap was larger than by its own scores
    eps : violation that each model is to reach;  scored : models whose f = K beta - t is in the row scores
    bias, epsilon, violation, gap, primal : values of each model when they were last known; epsilon if nu finds it
    precise : new models get float64 kernel values
    iterations : steps of all models together
    asked : kernel values that each model has asked for, computed or from a cache
    slow, solved : steps take too long;  the interior-point method was tried (`smo/interior.py`)
    kernel_rows : int64, (4,)   rows computed, found in memory, found on disk, and single values, of all models
    """

    problem: Problem = field(metadata={"derived": True})
    alpha: RowVector
    vectors: dict[str, RowVector]
    beta: RowVector | None
    n_models: int = field(metadata={"derived": True})
    places: int = field(default=1, metadata={"derived": True})
    own: tuple[str, ...] = field(default=(), metadata={"derived": True})
    shared: Any = None
    labelled: int = 0
    open: list[OpenModel] = field(default_factory=list)
    scored: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
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
    kernel_rows: np.ndarray = field(default_factory=lambda: np.zeros(4, np.int64))
    data: Any = field(default=None, metadata={"derived": True})
    unsigned: bool = False
    slow: bool = False
    solved: bool = False
    warned: bool = field(default=False, metadata={"derived": True})
    firsts: np.ndarray | None = field(default=None, metadata={"derived": True})

    def first_of(self, model: int) -> int:
        """Where the rows of a model begin in the vectors of open models."""
        if self.places == 1:
            return 0
        if self.firsts is None:
            nothing = _NoRows()
            counts = [fill_qp(*_given(self, m), *nothing) for m in range(self.n_models)]
            self.firsts = np.cumsum([0, *counts])
        return int(self.firsts[model])

    def now_scored(self, model: int) -> None:
        """Record that f of a model is in the row scores; it may have replaced that of another model."""
        if self.places == 1:
            self.scored[:] = False
        self.scored[model] = True


def kernel_needs(n: int, n_models: int, weighted: bool, places: int) -> list[Need]:
    """Memory for the vectors of `new_kernel_state`, except the solver's own."""
    needs = [Need(name, 8 * n, may_spill=True) for name in _OF_ROWS if weighted or name != "row costs"]
    needs += [Need(name, 8 * width * places * n, may_spill=True) for name, width in _OF_MODELS.items()]
    if n_models > 1:
        needs.append(Need("row coefficients", 8 * places * n, may_spill=True))
    if places > 1:
        needs.append(Need("row numbers", 8 * places * n, may_spill=True))
    return [Need("alpha", 8 * n * n_models, may_spill=True), *needs]


def new_kernel_state(
    problem: Problem, ctx: Context, eps: float, places: int, own: Mapping[str, type[np.generic]]
) -> KernelState:
    """The state at beta = 0, before any label was read.

    eps : violation to reach;  places : see `KernelState`;  own : dtypes of the solver's own vectors, by name
    """
    m, weighted = problem.n_models, ctx.data.has_weights
    vectors = {name: ctx.vector(name, 1) for name in _OF_ROWS if weighted or name != "row costs"}
    vectors |= {name: ctx.vector(name, width * places) for name, width in _OF_MODELS.items()}
    vectors |= {name: ctx.vector(name, places, dtype) for name, dtype in own.items()}
    if places > 1:
        vectors["row numbers"] = ctx.vector("row numbers", places, np.int64)
    return KernelState(
        problem=problem,
        alpha=ctx.vector("alpha", m),
        vectors=vectors,
        beta=ctx.vector("row coefficients", places) if m > 1 else None,
        n_models=m,
        places=places,
        own=tuple(own),
        scored=np.zeros(m, bool),
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


class _NoRows(NamedTuple):
    """Empty outputs for `fill_qp`, which then only counts rows."""

    rows: np.ndarray = np.empty(0, np.int64)
    target: np.ndarray = np.empty(0)
    lower: np.ndarray = np.empty(0)
    upper: np.ndarray = np.empty(0)


def _given(state: KernelState, model: int) -> tuple[Any, ...]:
    """The inputs of `fill_qp` for a model."""
    problem = state.problem
    labels = state.vectors["row labels"].values[:, 0]
    costs = state.vectors["row costs"].values[:, 0] if "row costs" in state.vectors else np.empty(0)
    codes = int(problem.positive[model]), int(problem.negative[model]), problem.regression or problem.one_class
    return labels, costs, float(problem.C[model]), problem.class_weight, *codes


def make_qp(state: KernelState, model: int) -> DualQP:
    """The programme of a model: target and box from labels and costs, beta from alpha; f is not computed."""
    problem, n, given, nothing = state.problem, len(state.alpha.values), _given(state, model), _NoRows()
    found, first = fill_qp(*given, *nothing), state.first_of(model)
    place = slice(first, first + found)
    flat = {name: vector.values.reshape(-1) for name, vector in state.vectors.items() if name not in _OF_ROWS}
    if "row numbers" in flat:
        numbers = flat["row numbers"][place]
    else:
        numbers = np.empty(0 if found == n else found, np.int64)
    target, f = flat["row targets"][place], flat["row scores"][place]
    boxes = flat["row boxes"][2 * first : 2 * (first + found)].reshape(2, found)
    fill_qp(*given, numbers, target, boxes[0], boxes[1])
    rows = None if found == n else numbers
    if state.beta is not None:
        beta = state.beta.values.reshape(-1)[place]
        beta[:] = state.alpha.values[slice(None) if rows is None else rows, model]
    else:
        beta = state.alpha.values[:, 0]
        if rows is not None:
            beta = beta[rows]
    eps, own = float(state.eps[model]), {name: flat[name][place] for name in state.own}
    if problem.loss.nu is None:
        return DualQP(target, boxes[0], boxes[1], problem.loss.epsilon, beta, f, rows, eps, own)
    if problem.one_class:
        boxes[0][:] = 0.0
    if not problem.regression:
        target[:] = 0.0
    total = problem.loss.nu * float(np.maximum(boxes[1], -boxes[0]).sum())
    at = float(state.epsilon[model])
    return NuQP(target, boxes[0], boxes[1], at, beta, f, rows, eps, own, total, problem.regression, problem.one_class)


def keep_beta(state: KernelState, one: OpenModel) -> None:
    """Copy beta of an open model to alpha, where checkpoints and proofs read it."""
    column = state.alpha.values[:, one.model]
    if one.qp.rows is not None:
        column[one.qp.rows] = one.qp.beta
    elif state.beta is not None:
        column[:] = one.qp.beta


def gap_at_best_bias(qp: DualQP) -> tuple[float, float, float, float]:
    """(gap, primal, dual, b) of beta and f of a QP, with the bias b that minimises P."""
    gap, primal, dual, b, _ = qp.gap_at_best_bias()
    return gap, primal, dual, b


def terms(qp: DualQP, b: float) -> tuple[float, float, float]:
    """(gap, primal, dual) of beta and f of a QP at bias b."""
    return qp.terms(b)[:3]
