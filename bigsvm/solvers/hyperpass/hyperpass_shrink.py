"""HyperPass with shrinking: a cycle of steps, each on half as many rows as the last (docs/mathematics.md 7.4).

A row far from its hyperplane cannot cross it soon, so it is left out; if it violates, its part of the gradient and of
the line search is kept as a constant.  When fewer than ten rows are active, the cycle ends, and all rows are read
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bigsvm.compiled.linear.primal import add_rows
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need, Rule, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import Gathered, picked_rows
from bigsvm.solvers.hyperpass.active_rows import ActiveRows, compacted
from bigsvm.solvers.hyperpass.lbfgs import dot
from bigsvm.solvers.hyperpass.min_norm import best_of
from bigsvm.solvers.hyperpass.near_rows import NearRows, Neighbourhood, near_needs, no_near_rows
from bigsvm.solvers.primal.dual_point import mix_dual
from bigsvm.solvers.primal.primal_state import FullGradient, PrimalState, new_state
from bigsvm.solvers.primal.row_pass import row_pass
from bigsvm.solvers.weights import columns, squared_norm
from bigsvm.store.blocks import RowBlocks, bytes_per_row, readonly_view
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft
from bigsvm.units import MIB

_FEWEST = 10  # active rows below which a cycle ends
_REACH = 0.5  # largest |s_i| of near rows that get their own share in the dual point
_COPIED = 4 * MIB  # bytes of copies of active rows that every budget has room for
_SPARE = 6  # copies may also take one part in this many of what the budget has beyond all needs
_BESIDE = 16 * MIB  # bytes of that which are left free
_ENTRY = 12  # bytes of an entry of a copied row
_NOISE = 1e-15  # change of w, relative to w, up to which it is rounding
_LITTLE = 1e-3  # decrease of P, relative to the gap, below which a cycle has failed and a single step follows
_ENOUGH = 0.1  # the same for a single step, below which a cycle follows again
_SHORT = 1e-12  # rule of --stop paper: length of the shortest subgradient, relative to w


@dataclass
class ShrinkState:
    """The state of `hyperpass-shrink` beyond a `PrimalState`.

    near, keys : see `HyperPassState`
    norms : float64, (n_samples, 1)   squared norms of the rows
    active : uint8, (n_samples, n_models)   active rows; work space of a cycle
    V : float64, (n_features + 1, n_models)   sum of C_i y_i [x_i, bias] over the rows that violate at w
    on_plane : int64, (n_models, most)   rows exactly on their hyperplane at w, ascending, then -1
    mixed : bool     near rows at w have had their shares in the dual point
    shortest : float64, (n_features + 1, n_models)   minus the shortest subgradient at w, if `mixed`
    short : float    largest length of it, relative to w
    careful : bool, (n_models,)   the last cycle failed: the next is a single step along the shortest subgradient
    capacity : int   bytes of active rows up to which they are copied to memory
    """

    near: NearRows
    keys: RowVector
    norms: RowVector
    active: RowVector
    V: np.ndarray
    shortest: np.ndarray
    on_plane: np.ndarray
    careful: np.ndarray
    mixed: bool = False
    short: float = np.inf
    capacity: int = field(default=_COPIED, metadata={"derived": True})


@dataclass(frozen=True)
class HyperPassShrink(FullGradient):
    """Hyperparameters of `hyperpass-shrink`.

    A step of the solver is a cycle.  It reads all rows at its start, for the products with the first direction, and at
    its end, for slacks and gradient.  In between it reads them once or more, until the active rows fit in memory.  The
    objective may rise within a cycle, because a row that was left out may cross its hyperplane after all.  A cycle that
    gains next to nothing is followed by a single step on all rows along the shortest subgradient, which always
    descends.

    safe : bool      limit steps so that no row left out can cross its hyperplane; about twice the work
    eps_act : float  rows with |s_i| <= eps_act take part in the choice of the direction
    near : int       most rows that do, and most rows with a share of their own in the dual point
    """

    name: ClassVar[str] = "hyperpass-shrink"
    losses: ClassVar[tuple[str, ...]] = ("hinge",)
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none")
    paper_rule: ClassVar[bool] = True
    patience: ClassVar[int] = 2

    safe: bool = False
    eps_act: float = 0.5
    near: int = 400

    def __post_init__(self) -> None:
        if not (self.eps_act >= 0 and self.near >= 1):
            raise ValueError("eps_act must not be negative and near at least 1")

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Bytes of near rows, of copies of active rows, and of the additional vectors of rows."""
        n, m = shape.n_samples, shape.n_models
        return [
            *near_needs(shape, self.near),
            Need("active rows", 2 * min(_copied_bytes(shape), _COPIED)),
            Need("row keys", 8 * n, may_spill=True),
            Need("row norms", 8 * n, may_spill=True),
            Need("active flags", n * m, may_spill=True),
        ]

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """w = 0, alpha = 0."""
        state, n, m = new_state(problem, ctx), ctx.data.n_samples, problem.n_models
        state.extra = ShrinkState(
            near=no_near_rows(m, min(self.near, n)),
            keys=ctx.vector("row keys", 1, np.uint64),
            norms=ctx.vector("row norms", 1, np.float64),
            active=ctx.vector("active flags", m, np.uint8),
            V=np.zeros((len(state.w), m)),
            shortest=np.zeros((len(state.w), m)),
            on_plane=np.full((m, min(self.near, n)), -1, np.int64),
            careful=np.zeros(m, bool),
        )
        # A copy is made from the previous one, so two exist at a time.
        spare = max(ctx.budget.free - _BESIDE - 8 * state.w.nbytes, 0) // _SPARE
        state.extra.capacity = min(_copied_bytes(ctx.data), max(_COPIED, spare))
        return state

    @np.errstate(over="ignore", invalid="ignore")  # values whose squares overflow are found by the proof
    def step(self, problem: Problem, state: PrimalState, ctx: Context) -> StepInfo:
        """A cycle from the present point, followed by a look at all rows; the first step is only a look."""
        n, start, read = ctx.data.n_samples, state.w.copy(), ctx.bytes_read
        held = state.extra.on_plane.copy()
        try:
            if state.moving:
                self._cycle(state, ctx)
                self._went(state, start)
        except PassLeft:
            # The repeated cycle computes the slacks anew from w, to the same bits.
            state.w[...], state.extra.on_plane[...], state.visits = start, held, 0
            ctx.uncharge(read)
            return StepInfo.left(state.estimate, n)
        try:
            self.look(state, ctx)
        except PassLeft:
            return StepInfo.left(state.estimate, n)
        visits, state.visits = state.visits + n, 0
        return StepInfo(
            state.estimate, n, visits,
            ask_certificate=state.estimate <= ctx.tol,
            exhausted=state.stuck > self.patience,
            rule=Rule.where(
                state.extra.short <= _SHORT, "shortest subgradient, relative to w", state.extra.short, _SHORT
            ),
            gaps=self.gaps(state), primal=state.primal, readings=self.readings(state, ctx),
        )  # fmt: skip

    def readings(self, state: PrimalState, ctx: Context) -> int:
        """The products with the first direction, those with the shortest subgradient if it is followed, and the look.

        `_may_go_on` says whether there may be more.
        """
        return 2 + int(state.extra.careful.any())

    def look(self, state: PrimalState, ctx: Context) -> None:
        """Compute slacks and gradient at w, P, and a dual point."""
        problem, extra, weights = state.problem, state.extra, state.problem.loss
        first = state.iteration == 0
        gather = Gathered(np.unique(extra.on_plane[extra.on_plane >= 0]))
        V, _ = row_pass(
            ctx, problem, state.rows, state.w.shape, w=state.w, weights=weights, gather=gather,
            keys=extra.keys if first else None, norms=extra.norms if first else None,
        )  # fmt: skip
        self._hold(state, columns(V), gather)
        extra.V[...], extra.mixed, former = columns(V), False, state.primal
        state.primal = 0.5 * squared_norm(problem, state.w) + state.rows.losses(problem)
        mix_dual(state, weights, V)
        gaps = self.update_gaps(state)
        extra.careful = ~(former - state.primal > np.where(extra.careful, _ENOUGH, _LITTLE) * gaps) ^ extra.careful
        state.moving = True

    def _hold(self, state: PrimalState, V: np.ndarray | None = None, gather: Gathered | None = None) -> None:
        """Set the slacks of rows known to lie exactly on their hyperplane to 0, and remove their part from V."""
        problem, rows, X = state.problem, state.rows, None if gather is None else gather.matrix()
        for m in range(problem.n_models):
            numbers = state.extra.on_plane[m][state.extra.on_plane[m] >= 0]
            if X is not None and V is not None and gather is not None and len(numbers):
                part = readonly_view(picked_rows(X, np.searchsorted(gather.wanted, numbers)))
                alpha = np.where(rows.s.values[numbers, m] > 0.0, rows.cost.values[numbers, 0] * problem.C[m], 0.0)
                total, codes = np.zeros(len(V)), np.ascontiguousarray(rows.y.values[numbers, 0])
                add_rows(part, codes, problem.positive[m : m + 1], alpha[:, None], problem.constant_feature, total)
                V[:, m] -= total
            rows.s.values[numbers, m] = 0.0

    def _cycle(self, state: PrimalState, ctx: Context) -> None:
        """Make steps on N, N/2, N/4, ... active rows.  w moves; slacks of rows left out become out of date."""
        problem, extra, w = state.problem, state.extra, columns(state.w)
        extra.active.values[:] = state.rows.cost.values > 0.0
        table = ActiveRows(
            problem, None, state.rows, extra.keys, extra.norms.values, extra.active.values, np.zeros(w.shape)
        )  # fmt: skip
        left = np.full(problem.n_models, int(np.count_nonzero(extra.active.values[:, 0])))
        reach, going, drops = np.full(len(left), np.inf), np.ones(len(left), bool), _Drops(self.safe)
        D, read = extra.V - w, 1
        self._first_products(state, ctx, D)
        if extra.careful.any():
            read += 1
            D[:, extra.careful] = extra.shortest[:, extra.careful]
            row_pass(ctx, problem, state.rows, state.w.shape, d=D.reshape(state.w.shape))
            state.visits += ctx.data.n_samples
            for m in np.flatnonzero(extra.careful).tolist():
                table.around(extra.near).hold_products(m)
        while True:
            state.visits += int(left[going].max())
            going_on = _may_go_on(ctx, read, state.visits + int(left[going].max()), in_memory=table.X is not None)
            for m in np.flatnonzero(going).tolist():
                norm = np.sqrt(dot(D[:, m], D[:, m]))
                step = table.search(m, w[:, m], D[:, m], reach[m] / norm if norm > 0.0 else np.inf)
                table.advance(m, step)
                w[:, m] += step.length * D[:, m]
                left[m] //= 2
                reach[m] = drops.reach(m, w[:, m], *table.halve(m, int(left[m])))
                going[m] = left[m] >= _FEWEST and reach[m] > 0.0 and going_on and not extra.careful[m]
                if not going[m]:
                    held = table.on_plane(m)[: extra.on_plane.shape[1]]
                    extra.on_plane[m] = -1
                    extra.on_plane[m, : len(held)] = held
            table.active[:, ~going] = 0
            if not going.any():
                return
            state.visits += int(left[going].max())
            read += 0 if table.X is not None else 1
            table, D = self._descend(state, ctx, table, going)
            read += 0 if table.X is not None else 1

    def _first_products(self, state: PrimalState, ctx: Context, D: np.ndarray) -> None:
        """Compute p of all rows.  The same pass gathers the near rows, which give a better dual point."""
        problem, extra = state.problem, state.extra
        around = Neighbourhood(problem, state.rows, extra.keys, extra.near)
        found = around.find(_REACH) if not extra.mixed else extra.near
        gather = None if extra.mixed else Gathered(np.unique(found.rows[found.rows >= 0]))
        row_pass(ctx, problem, state.rows, state.w.shape, w=state.w, d=D.reshape(state.w.shape), gather=gather)
        self._hold(state)
        if gather is None:
            return
        around.take(found)
        extra.near = found
        best = best_of(around, gather, columns(state.w), extra.V, state.primal, linear=True, closer=state.stuck > 0)
        mix_dual(state, problem.loss, best.V.reshape(state.w.shape), around)
        extra.shortest[...] = best.V - columns(state.w)
        shortest, reach = (np.sqrt((a * a).sum(axis=0)) for a in (extra.shortest, columns(state.w)))
        extra.short = float(np.divide(shortest, reach, out=np.where(shortest > 0, np.inf, 0.0), where=reach > 0).max())
        extra.mixed = True

    def _descend(
        self, state: PrimalState, ctx: Context, table: ActiveRows, going: np.ndarray
    ) -> tuple[ActiveRows, np.ndarray]:
        """Go to the next, smaller set of active rows: the table (copied to memory if it fits), and its direction.

        The products with the direction are computed too.
        """
        problem, weights, w = state.problem, state.problem.loss, columns(state.w)
        n_active = table.n_wanted()
        fits = table.X is not None or n_active * _row_bytes(ctx.data) <= state.extra.capacity
        numbers = table.wanted() if fits else np.empty(0, np.int64)  # not needed if the rows do not fit
        if table.X is not None:
            table = compacted(table, numbers, picked_rows(table.X, numbers), table.sums(weights), weights)
        most = min(self.near, n_active)
        around = table.around(no_near_rows(len(going), most))
        found = around.find(self.eps_act, table.active)
        gather = Gathered(np.unique(found.rows[found.rows >= 0]))
        if table.X is None:
            everything = Gathered(numbers) if fits else gather
            V, _ = row_pass(ctx, problem, table.rows, state.w.shape, weights=weights, gather=everything)
            V = columns(V)
            X = everything.matrix() if fits else None
            if X is not None:
                gather.add([picked_rows(X, np.searchsorted(numbers, gather.wanted))])
                table = compacted(table, numbers, X, V, weights)
                found.rows[found.rows >= 0] = np.searchsorted(numbers, found.rows[found.rows >= 0])
                gather.wanted = np.searchsorted(numbers, gather.wanted)
                around = table.around(around.near)
        else:
            V = table.sums(weights)
            if len(gather.wanted):
                gather.add([picked_rows(table.X, gather.wanted)])
        around.take(found)
        best = best_of(around, gather, w, V, state.primal, linear=self.eps_act > 0.0, closer=False)
        D = best.V - w
        D[:, ~going | (np.sqrt((D * D).sum(axis=0)) <= _NOISE * np.sqrt((w * w).sum(axis=0)))] = 0.0
        if table.X is None:
            row_pass(ctx, problem, table.rows, state.w.shape, d=D.reshape(state.w.shape))
        else:
            table.products(D)
        for m in np.flatnonzero(going).tolist():
            around.hold_products(m)
        return table, D

    def _went(self, state: PrimalState, start: np.ndarray) -> None:
        change, reach = (np.sqrt((columns(a) ** 2).sum(axis=0)) for a in (state.w - start, start))
        state.step_norm = float(change.max())
        state.stuck = 0 if np.any(change > _NOISE * reach) else state.stuck + 1
        state.iteration += 1
        state.moving = False

    def finish(self, state: PrimalState) -> None:
        """Give back what only training needs."""
        for vector in (state.extra.keys, state.extra.norms, state.extra.active):
            vector.close()
        super().finish(state)


def _may_go_on(ctx: Context, read: int, visits: int, in_memory: bool) -> bool:
    """Whether the limit of passes has room for a smaller set of active rows, the look after it, and a proof.

    read, visits : readings of the cycle so far, and rows that it will have visited after the next set
    in_memory : the active rows are in memory;  otherwise choosing and measuring a direction may read all rows twice
    """
    if ctx.sweeps_left is None:
        return True
    if ctx.resident:
        return visits + ctx.data.n_samples <= ctx.sweeps_left * ctx.data.n_samples
    return in_memory or read + 4 <= ctx.sweeps_left


class _Drops:
    """A bound of how far w may move before a row that was left out can cross its hyperplane."""

    def __init__(self, safe: bool) -> None:
        self.safe = safe
        self._seen: list[tuple[int, float, np.ndarray]] = []

    def reach(self, m: int, w: np.ndarray, kept: float, dropped: float) -> float:
        """The bound at w, after rows were dropped; without `safe`, simply the largest distance kept.

        kept, dropped : largest distance of a row kept, and smallest distance of a row dropped, at w
        """
        if not self.safe:
            return kept
        self._seen.append((m, dropped, w.copy()))
        return max(min(far - np.sqrt(dot(w - at, w - at)) for k, far, at in self._seen if k == m), 0.0)


def _row_bytes(shape: DataShape | RowBlocks) -> float:
    """Bytes of a copied row: its entries, and its values in vectors of rows."""
    return bytes_per_row(shape, _ENTRY, 64)


def _copied_bytes(shape: DataShape | RowBlocks) -> int:
    """The most bytes of copies: those of half of all rows."""
    return int(_row_bytes(shape) * (shape.n_samples + 1) / 2)
