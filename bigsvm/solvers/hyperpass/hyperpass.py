"""HyperPass: descent along a line that crosses hyperplanes, with an exact search (docs/mathematics.md 7.1 to 7.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need, Rule, SmallFit
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import Gathered
from bigsvm.solvers.hyperpass.bins import N_BINS, new_bins
from bigsvm.solvers.hyperpass.lbfgs import Pairs, conjugate, dot, new_pairs
from bigsvm.solvers.hyperpass.min_norm import best_of
from bigsvm.solvers.hyperpass.near_rows import NearRows, Neighbourhood, near_needs, no_near_rows
from bigsvm.solvers.hyperpass.near_shards import NearOnShards, NearShard
from bigsvm.solvers.hyperpass.read_again import can_read_some
from bigsvm.solvers.primal.dual_point import mix_dual
from bigsvm.solvers.primal.primal_state import FullGradient, PrimalState
from bigsvm.solvers.primal.row_pass import BinnedSums
from bigsvm.solvers.primal.shards.shard_state import PrimalShard
from bigsvm.solvers.primal.shards.sharded_rows import ShardedRows, sums_need
from bigsvm.solvers.weights import columns, inner, regularised, squared_norm
from bigsvm.store.state.vectors import RowVector
from bigsvm.units import MIB

DIRECTIONS = ("lbfgs", "steepest", "cg")
_REFRESH = 20  # iterations between two recomputations of the slacks, during a pass that is made anyway
_SHORT = 1e-12  # rule of --stop paper: length of the shortest subgradient, relative to w
_NOISE = 1e-15  # length of a subgradient, relative to w, up to which it is rounding
_MOST_BINS = 4 * MIB  # bytes of two sets of bins up to which bins are used
_BINNED = 5  # sets of bins in memory: the sums, and those of tasks
_FEW = 24  # rows of the small fit: all may be near, and sweeps over the near rows of 48 took seconds
_STALLED = 1e-3  # decrease of P, relative to the gap, below which a way to choose directions has stalled
SMOOTH, SHORTEST = 0, 1  # two ways to choose a direction


@dataclass
class HyperPassState:
    """The state of `hyperpass` beyond a `PrimalState`.

    near : NearRows            rows on or near their hyperplanes, which take part in the choice of the direction
    keys : uint64, (n_samples, 1)   hashes of the rows
    pairs : Pairs              of lbfgs
    former_w, former_gradient : float64, (n_features + 1, n_models)   the point and its smooth gradient before the move
    former_primal : float64, (n_models,)   P before the move
    way : int64, (n_models,)   SMOOTH or SHORTEST: how the present direction was chosen
    crossed : int64, (n_models,)    rows that crossed their hyperplane in the last step
    V : float64, (n_features + 1, n_models)   sum of C_i y_i [x_i, bias] over the rows that violate
    length : float64, (n_models,)   length of the last step
    foreseen : bool            V is the forecast by bins, and must be corrected for single rows
    signs : uint8, (n_samples, n_models)   rows that count as violating in that forecast
    short : float              largest length, over the models, of the shortest subgradient relative to w
    """

    near: NearRows
    keys: RowVector
    pairs: Pairs
    former_w: np.ndarray
    former_gradient: np.ndarray
    former_primal: np.ndarray
    way: np.ndarray
    crossed: np.ndarray
    V: np.ndarray
    length: np.ndarray
    signs: RowVector
    foreseen: bool = False
    short: float = np.inf


@dataclass(frozen=True)
class HyperPass(FullGradient):
    """Hyperparameters of `hyperpass`.

    An iteration takes two passes: one for the products with the direction, followed by an exact line search that ends
    on a hyperplane or between two; and one for the gradient.  `steepest` with eps_act = 0 is the method of the paper.
    It zig-zags, because hardly more than one row lies exactly on its hyperplane.  The other directions switch to the
    shortest subgradient where that gains more, so that they too converge to the optimum.

    direction : 'lbfgs' | 'steepest' | 'cg'
    eps_act : float   rows with |s_i| <= eps_act take part in the choice of the direction
    near : int        most rows that do, the nearest ones
    pairs : int       pairs of lbfgs
    fused : bool      with few features, replace the second pass by bins and a reading of a few rows, if that costs less
    """

    name: ClassVar[str] = "hyperpass"
    losses: ClassVar[tuple[str, ...]] = ("hinge",)
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none", "free")
    paper_rule: ClassVar[bool] = True
    patience: ClassVar[int] = 4
    centres: ClassVar[bool] = True
    in_shards: ClassVar[bool] = True
    shard: ClassVar[type[PrimalShard]] = NearShard

    direction: str = "lbfgs"  # type: ignore[assignment]  # an option here; `look` chooses, not the template
    eps_act: float = 0.5
    near: int = 400
    pairs: int = 10
    fused: bool = True

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {', '.join(DIRECTIONS)}, not {self.direction!r}")
        if not (self.eps_act >= 0 and self.near >= 1 and self.pairs >= 1):
            raise ValueError("eps_act must not be negative, near and pairs must be at least 1")

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """One, of so few rows that their small problems, one a model and step, are solved at once."""
        return [SmallFit(n_samples=_FEW)]

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Bytes of the pairs, of near rows and their small problem, of vectors of rows, and of bins."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        bins = _bins_bytes(wide)
        return [
            Need("pairs", (2 * self._n_pairs() + 2) * wide),
            *near_needs(shape, self.near),
            Need("row keys", 8 * shape.n_samples, may_spill=True),
            Need("signs", shape.n_samples * shape.n_models, may_spill=True),
            *([Need("bins", _BINNED * bins, held="worker"), *sums_need(shape, bins)] if self._bins(wide) else []),
        ]

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """w = 0, alpha = 0."""
        state, m = super().init(problem, ctx), problem.n_models
        width, n = len(state.w), ctx.data.n_samples
        here = None if ctx.shards == 1 else 0  # rows of vectors that shards have of their own
        state.extra = HyperPassState(
            near=no_near_rows(m, min(self.near, n)),
            keys=ctx.vector("row keys", 1, np.uint64, n_rows=here),
            pairs=new_pairs(m, self._n_pairs(), width),
            former_w=np.zeros((width, m)),
            former_gradient=np.zeros((width, m)),
            former_primal=np.full(m, np.inf),
            way=np.full(m, SHORTEST if self.direction == "steepest" else SMOOTH),
            crossed=np.zeros(m, np.int64),
            V=np.zeros((width, m)),
            length=np.zeros(m),
            signs=ctx.vector("signs", m, np.uint8, n_rows=here),
        )
        return state

    def look(self, state: PrimalState, ctx: Context) -> None:
        """Gradient and shares at w, what they prove, and the direction to follow next."""
        around = neighbourhood(state)
        found = around.find(self.eps_act)
        gather = Gathered(np.unique(found.rows[found.rows >= 0]))
        extra = state.extra
        again = around.read_again(ctx, found, gather, extra.V, extra.signs) if extra.foreseen else None
        if again is None:
            V = columns(around.read(ctx, state.w.shape, found, gather, with_keys=state.iteration == 0))
        else:
            V, seen = again
            state.visits += seen - ctx.data.n_samples  # which the template adds
        around.take(found)
        extra.near = found
        self.settle(state, V, gather, around)

    def settle(self, state: PrimalState, V: np.ndarray, gather: Gathered, around: Neighbourhood) -> None:
        """Complete a look, given the sum V over violating rows, and the near rows: primal and dual value, direction."""
        problem, extra, w = state.problem, state.extra, columns(regularised(state.problem, state.w))
        extra.V[...], extra.foreseen = V, False
        state.primal = 0.5 * squared_norm(problem, state.w) + state.rows.losses(problem)
        found = best_of(around, gather, w, V, state.primal, linear=self.eps_act > 0.0, closer=state.stuck > 0)
        # Before the first move a free bias is far from its optimum.
        balanced = found.balanced and (problem.bias != "free" or state.iteration > 0)
        around.tell_shares()
        if balanced:
            mix_dual(state, self.weights(problem), found.V.reshape(state.w.shape), around)
        gap = self.update_gaps(state)
        shortest, gradient = found.V - w, w - found.half
        if problem.bias == "free" and balanced:
            shortest[-1] = found.level / problem.constant_feature
        columns(state.gradient)[...] = -shortest
        norms, reach = np.sqrt((shortest * shortest).sum(axis=0)), np.sqrt((w * w).sum(axis=0))
        extra.short = float(np.divide(norms, reach, out=np.where(norms > 0, np.inf, 0.0), where=reach > 0).max())
        shortest[:, norms <= _NOISE * reach] = 0.0  # it is rounding
        self._judge(state, gap)
        for m in range(problem.n_models):
            columns(state.direction)[:, m] = self._direction(state, m, shortest[:, m], gradient[:, m])
        extra.former_w[...], extra.former_gradient[...] = columns(state.w), gradient
        state.moving = True

    def _judge(self, state: PrimalState, gap: np.ndarray) -> None:
        """Choose for each model whether the shortest subgradient or a smooth direction is followed next.

        The shortest subgradient accounts exactly for the near rows, and not at all for the others.  So it is followed
        if no more rows crossed their hyperplane in the last step than there are near rows.  If the way that was
        followed has stalled, the other one is.
        """
        extra = state.extra
        if state.iteration > 0 and self.direction != "steepest":
            few = extra.crossed <= extra.near.count.sum(axis=1)
            stalled = extra.former_primal - state.primal < _STALLED * np.maximum(gap, 0.0)
            extra.way = np.where(stalled, 1 - extra.way, np.where(few, SHORTEST, SMOOTH))
        extra.former_primal = state.primal.copy()

    def _direction(self, state: PrimalState, m: int, shortest: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        extra = state.extra
        if self.direction == "steepest":
            return shortest
        if state.iteration > 0 and self.direction == "lbfgs":
            extra.pairs.take(m, columns(state.w)[:, m] - extra.former_w[:, m], gradient - extra.former_gradient[:, m])
        if extra.way[m] == SHORTEST:
            return shortest
        if self.direction == "lbfgs":
            smooth = extra.pairs.direction(m, gradient)
        else:
            smooth = conjugate(gradient, extra.former_gradient[:, m], columns(state.direction)[:, m])
        return smooth if dot(smooth, gradient) < 0.0 else -gradient

    def move(self, state: PrimalState, ctx: Context) -> None:
        """Measure the direction, make the exact step along it, and then move the bias to its optimum."""
        problem, d, around = state.problem, state.direction, neighbourhood(state)
        extra, anew = state.extra, state.iteration % _REFRESH == _REFRESH - 1
        wide = 8 * len(columns(d)) * problem.n_models
        binned = None
        if self._bins(wide) and not anew and np.all(extra.length > 0.0) and can_read_some(ctx, extra.near.rows.size):
            binned = new_bins(problem, len(d), extra.length, extra.near.reach)
        around.measure(ctx, d, state.w if anew else None, binned)
        self.follow(state, binned, around)

    def follow(self, state: PrimalState, binned: BinnedSums | None, around: Neighbourhood) -> None:
        """Make the exact step along a direction whose products are known."""
        problem, rows, d = state.problem, state.rows, state.direction
        for m in np.flatnonzero(state.extra.way == SHORTEST).tolist():
            around.hold_products(m)
        steps = rows.search(problem, inner(problem, state.w, d), squared_norm(problem, d))
        lengths = np.array([step.length for step in steps])
        state.extra.crossed = around.crossings(lengths)
        if binned is not None:
            around.foresee(binned, lengths, state.extra.V, state.extra.signs)
            state.extra.foreseen = True
        state.extra.length = lengths
        rows.advance(steps)
        columns(state.w)[...] += columns(d) * lengths
        if problem.bias == "free":
            columns(state.w)[-1] += rows.settle_bias(problem) / problem.constant_feature
        elif problem.bias == "augmented" and self.eps_act > 0.0:
            settle_augmented(state)
        self.moved(state, lengths)

    def finish(self, state: PrimalState) -> None:
        """Give back what only training needs."""
        state.extra.keys.close()
        state.extra.signs.close()
        super().finish(state)

    def rule(self, state: PrimalState) -> Rule | None:
        """The rule of the paper: the shortest subgradient is 0, up to rounding."""
        short = state.extra.short
        return Rule.where(short <= _SHORT, "shortest subgradient, relative to w", short, _SHORT)

    def _bins(self, wide: int) -> bool:
        return self.fused and 2 * _bins_bytes(wide) <= _MOST_BINS

    def _n_pairs(self) -> int:
        return self.pairs if self.direction == "lbfgs" else 1


def neighbourhood(state: PrimalState) -> Neighbourhood:
    """The near rows, with the vectors of all rows; here or on shards."""
    rows, extra = state.rows, state.extra
    if isinstance(rows, ShardedRows):
        return NearOnShards(state.problem, rows, extra.keys, extra.near)
    return Neighbourhood(state.problem, rows, extra.keys, extra.near)


def settle_augmented(state: PrimalState) -> None:
    """Move the bias of each model to the minimum of P along it alone.

    This takes no pass, and is the steepest direction if the rows are far from their mean.
    """
    problem, rows, w = state.problem, state.rows, columns(state.w)
    bias = problem.constant_feature
    for m in range(problem.n_models):
        for way in (bias, -bias):
            step = rows.search_bias(problem, m, way, float(w[-1, m]) * way / bias, 1.0)
            if step.length > 0.0:
                w[-1, m] += step.length * way / bias
                rows.shift(problem, m, way, step)
                break


def _bins_bytes(wide: int) -> int:
    """Bytes of one set of bins.  wide : bytes of w"""
    return N_BINS * wide
