"""Rosenbrock's method for the squared hinge (`rosenbrock`; docs/mathematics.md 6.3), for few features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigsvm.compiled.linear.primal_cd import EXACT, GLOBAL_NEWTON, model_sweep, search
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need, Rule
from bigsvm.solvers.context import Context
from bigsvm.solvers.literature.palmer import new_directions, orthonormalised
from bigsvm.solvers.literature.rotation import rotate
from bigsvm.solvers.primal.hessian import hessian_needs, too_many_features
from bigsvm.solvers.primal.primal_state import FullGradient, PrimalState, new_state
from bigsvm.solvers.primal.row_pass import Curvature
from bigsvm.solvers.primal.row_state import row_needs
from bigsvm.solvers.primal.search_options import check_search, weights_named
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import readonly_view
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft

_RENEW = 50  # outer iterations after which the directions are made orthonormal again
_SOLVED = 1e-6  # norm of the gradient of the quadratic model, relative to that at its start, that ends its sweeps


@dataclass
class Directions:
    """The state of Rosenbrock's method beyond a `PrimalState`.

    D : float64, (n_models, n, n_features + 1)   directions, as orthonormal rows; n = n_features, plus 1 with a bias
    steps : float64, (n_models, n)   steps along the directions in the present outer iteration
    done : int     directions, over all models, that the present outer iteration has followed
    V : RowVector  products of the rows with some directions, one direction after another; not saved
    n_held : int   directions that V has room for;  held : int   the first direction in V, -1 if V is empty
    """

    D: np.ndarray
    steps: np.ndarray
    done: int = 0
    V: RowVector | None = field(default=None, metadata={"derived": True})
    n_held: int = field(default=0, metadata={"derived": True})
    held: int = field(default=-1, metadata={"derived": True})

    @property
    def flat(self) -> np.ndarray:
        """All directions, model after model, (n_models * n, n_features + 1)."""
        return self.D.reshape(-1, self.D.shape[2])

    def products(self) -> np.ndarray:
        """V as a matrix of columns, (n_held, n_samples)."""
        assert self.V is not None
        return self.V.values.reshape(self.n_held, -1)


@dataclass(frozen=True)
class Rosenbrock(FullGradient):
    """Hyperparameters of `rosenbrock`.

    An outer iteration searches along n orthonormal directions one after another, and then rotates them, so that the
    first new direction is that of the whole move.  The searches read products of the rows with the directions, not the
    rows.

    plan : 'scratch' (the same as 'auto')   compute the products with all directions of a model, in memory or on disk;
               one reading of the data for each outer iteration and model
           'groups'    compute them for as many directions at a time as fit in half of the free memory; more readings,
               the same bits
           'model'     make up to `sweeps` outer iterations on the quadratic model of the objective, then one search
               along the total move; two readings, by far the fewest for large C
    start : 'zeros', or 'ones' as in the paper
    line_search : 'exact', or 'newton' as in the paper, which ends at |phi'| < eps2 (not with plan 'model')
    eps1 : float   rule of --stop paper: ||w_{k+1} - w_k|| < eps1
    max_features : int   largest number of features; directions have n^2 numbers, products n n_samples
    """

    name: ClassVar[str] = "rosenbrock"
    losses: ClassVar[tuple[str, ...]] = ("squared_hinge",)
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none", "free")
    paper_rule: ClassVar[bool] = True
    curvature: ClassVar[Curvature] = "matrix"  # for plan 'model'

    plan: str = "auto"
    start: str = "zeros"
    line_search: str = "exact"
    eps1: float = 0.1
    eps2: float = 0.1
    sweeps: int = 100
    max_features: int = 500

    def __post_init__(self) -> None:
        check_search(self.start, self.line_search, self.eps1, self.eps2)
        if self.plan not in ("auto", "scratch", "groups", "model"):
            raise ValueError(f"plan must be auto, scratch, groups or model, not {self.plan!r}")
        if self.sweeps < 1:
            raise ValueError("sweeps must be at least 1")

    @property
    def on_model(self) -> bool:
        """Whether searches are on the quadratic model."""
        return self.plan == "model"

    def refusal(self, shape: DataShape) -> str | None:
        """Refuse too many features."""
        return too_many_features(self.name, shape, self.max_features)

    def needs_of_rows(self, shape: DataShape) -> list[Need]:
        """Needs of the vectors with an entry for each row; without the quadratic model no slopes are kept."""
        return row_needs(shape, with_slopes=self.on_model)

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Bytes of the directions, with work space to rotate those of one model, and of the Hessians or products."""
        square = 8 * (shape.n_features + 1) ** 2
        directions = Need("directions", (shape.n_models + 5) * square)
        if self.on_model:
            return [directions, *hessian_needs(shape)]
        held = 1 if self.plan == "groups" else shape.n_features + 1
        return [directions, Need("rotated rows", 8 * held * shape.n_samples, may_spill=True)]

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """Start at the first w, alpha = 0, with the axes as directions."""
        m, d, n_rows = problem.n_models, ctx.data.n_features, ctx.data.n_samples
        n = d + (problem.bias != "none")
        state = new_state(problem, ctx, with_slopes=self.on_model)
        state.w[...] = weights_named(self.start, problem, d)
        axes = np.eye(n, d + 1)
        state.extra = extra = Directions(np.stack([axes] * m), np.zeros((m, n)))
        if not self.on_model:
            what = "rotated rows"
            extra.n_held = n
            if self.plan == "groups":
                fit = 1 if what in ctx.spilled else ctx.budget.free // (16 * n_rows)
                extra.n_held = min(max(fit, 1), m * n)
            extra.V = ctx.vector(what, 1, n_rows=extra.n_held * n_rows)
        return state

    def readings(self, state: PrimalState, ctx: Context) -> int:
        """As many as there are groups of directions whose products are held at one time."""
        if self.on_model or ctx.resident:
            return super().readings(state, ctx)
        return -(-len(state.extra.flat) // state.extra.n_held)

    def read(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray | None]:
        """The pass of a look, which also computes the products with the first directions."""
        if self.on_model:
            return super().read(state, ctx)
        extra = state.extra
        extra.V.clear()
        V = rotate(ctx, state.problem, extra.flat[: extra.n_held], extra.products(), state.rows, state.w,
                   self.weights(state.problem))  # fmt: skip
        extra.held = 0
        return V, None

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """With plan 'model', set the direction to the move that Rosenbrock's method finds on the quadratic model."""
        if H is not None:
            for m in range(state.problem.n_models):
                self._on_model(state, m, H[m])

    def _on_model(self, state: PrimalState, m: int, H: np.ndarray) -> None:
        problem, extra = state.problem, state.extra
        n = H.shape[0]
        below = np.tril_indices(n, -1)
        H[below] = H.T[below]
        regularised = n - (problem.bias == "free")
        H.flat[: regularised * n : n + 1] += 1.0
        r, x = columns(state.gradient)[:, m].copy(), np.zeros(n)
        if problem.bias == "none":
            r[-1] = 0.0
        enough = _SOLVED**2 * (r * r).sum()
        D = extra.D[m]
        for number in range(1, self.sweeps + 1):
            model_sweep(H, D, r, x, extra.steps[m])
            D = new_directions(D, extra.steps[m])
            if number % _RENEW == 0:
                D = orthonormalised(D)
            if (r * r).sum() <= enough:
                break
        extra.D[m] = orthonormalised(D)
        columns(state.direction)[:, m] = x

    def move(self, state: PrimalState, ctx: Context) -> None:
        """Search along all directions in turn, then rotate them; with plan 'model', search along the move."""
        if self.on_model:
            return super().move(state, ctx)
        problem, extra = state.problem, state.extra
        while extra.done < len(extra.flat):
            first = extra.done // extra.n_held * extra.n_held
            if extra.held != first:
                before = ctx.bytes_read
                extra.V.clear()
                rotate(ctx, problem, extra.flat[first : first + extra.n_held], extra.products())
                extra.held = first
                if first == 0 or extra.done > first:  # repeated in a resumed run, where limits count it once
                    ctx.uncharge(before)
            self._follow(state, ctx)
        if problem.bias == "free":
            columns(state.w)[-1] += state.rows.settle_bias(problem) / problem.constant_feature
        self.turned(state)
        return None

    def _follow(self, state: PrimalState, ctx: Context) -> None:
        """Search along the directions whose products are in V, from the first that was not followed yet."""
        problem, rows, extra, w = state.problem, state.rows, state.extra, columns(state.w)
        rule = EXACT if self.line_search == "exact" else GLOBAL_NEWTON
        products, n = readonly_view(extra.products()), extra.D.shape[1]
        costly = len(w) - (problem.bias == "free")
        for k in range(extra.done, min(extra.held + extra.n_held, len(extra.flat))):
            d, m = extra.flat[k], k // n
            linear, quadratic = (w[:costly, m] * d[:costly]).sum(), (d[:costly] * d[:costly]).sum()
            t = search(
                products, k - extra.held, m, rows.searched(problem), linear, quadratic, rule, self.eps2
            )  # fmt: skip
            w[:, m] += t * d
            extra.steps[m, k % n] = t
            extra.done = k + 1
            if ctx.stopping() or (ctx.resident and ctx.expired()):
                raise PassLeft

    def turned(self, state: PrimalState) -> None:
        """Rotate the directions, and record the outer iteration."""
        extra = state.extra
        for m in range(len(extra.D)):
            extra.D[m] = new_directions(extra.D[m], extra.steps[m])
            if state.iteration % _RENEW == _RENEW - 1:
                extra.D[m] = orthonormalised(extra.D[m])
        extra.done, extra.held = 0, -1
        lengths = np.sqrt((extra.steps * extra.steps).sum(axis=1))
        self.arrived(state, lengths)

    def rule(self, state: PrimalState) -> Rule | None:
        """The rule of the paper: the last outer iteration moved w by less than eps1."""
        holds = state.iteration > 0 and state.step_norm < self.eps1
        return Rule.where(holds, "length of the last step", state.step_norm, self.eps1)

    def finish(self, state: PrimalState) -> None:
        """Release what only training needs."""
        super().finish(state)
        if state.extra.V is not None:
            state.extra.V.close()

    def before_load(self, state: PrimalState, tree: Any, ctx: Context) -> None:
        """Nothing to do: a new state has the same arrays as a saved one, and products are computed again."""
