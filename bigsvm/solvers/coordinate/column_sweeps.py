"""Template of the solvers that change one coefficient at a time: sweeps over blocks of columns, slacks kept.

Rows are read once at the start, for their costs and classes, and once in a while to take the rounding out of the
slacks; sweeps read columns only.  The dual point alpha_i = C_i loss'(s_i) of a sweep's beginning is kept, and its
v = sum_i alpha_i z_i is added up, column by column, while the sweep reads them: no reading of its own, and both
are exact.  So the best mixture of all such points is known (docs/mathematics.md 2.4), one sweep late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np

from bigsvm.compiled.linear.primal_cd import EXACT, column_total, search, sweep
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import DataShape, Need, Rule, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.dual_point import DualPoint, mix_dual
from bigsvm.solvers.primal.primal_state import PrimalSolver, PrimalState, start_at_costless_bias
from bigsvm.solvers.primal.row_pass import row_pass
from bigsvm.solvers.primal.row_state import new_rows, row_needs
from bigsvm.solvers.weights import columns, squared_norm
from bigsvm.store.blocks import BlockRef
from bigsvm.store.columns.column_blocks import ColumnBlock, ColumnBlocks
from bigsvm.tasks import PassLeft
from bigsvm.units import KIB, MIB

BLOCK_BYTES = MIB  # of columns that are read together; the same for every budget
_STRIPE = 256 * KIB  # what a read holds beside its block
_REFRESH = 100  # sweeps between fresh slacks
_WIDE = 6  # arrays as large as w: the point, v of the best dual point and of the sweep, and temporaries


@dataclass
class ColumnState(PrimalState):
    """A primal solver's state, amid a sweep; `gradient` and `direction` are not used and empty.

    V : float64, shape of w   sum_i alpha_i z_i of the dual point that the sweep began with, which is `rows.p`
    moved : float64, (n_models,)   squared steps of the present sweep
    done : blocks of the present sweep that have been visited
    """

    V: np.ndarray = field(default_factory=lambda: np.zeros(0))
    moved: np.ndarray = field(default_factory=lambda: np.zeros(0))
    done: int = 0


class Given(NamedTuple):
    """Weights that are there already, in the place of slacks."""

    def value(self, s: np.ndarray) -> np.ndarray:
        """Not known."""
        raise NotImplementedError

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """The given ones."""
        return s

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """Not known."""
        raise NotImplementedError


class ColumnSweeps(PrimalSolver):
    """A subclass says how a column is searched, where the first sweep starts, and in which order columns are visited.

    eps1 : float   rule of --stop paper: ||w_{k+1} - w_k|| < eps1 over a sweep
    """

    paper_rule: ClassVar[bool] = True
    column_access: ClassVar[bool] = True
    eps1: float

    def search_rule(self) -> tuple[int, float]:
        """The rule of a search along a column, and its eps2 (`compiled/linear/primal_cd.py`)."""
        raise NotImplementedError

    def first_weights(self, problem: Problem, n_features: int) -> np.ndarray:
        """Where the first sweep starts."""
        return zero_weights(n_features, problem.n_models)

    def refusal(self, shape: DataShape) -> str | None:
        """None: any shape will do."""
        return None

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes by name; per-row needs may go to disk."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        if resident:
            held = Need("columns", shape.nnz * shape.entry_bytes + 8 * (shape.n_features + 1))
        else:
            # One block is read while another is in use, and a column is read whole.
            widest = min(shape.n_samples, shape.nnz) * shape.entry_bytes
            held = Need("column window", 2 * max(BLOCK_BYTES, widest) + _STRIPE)
        return [Need("w", wide), Need("column sums", (_WIDE - 1) * wide), held, *row_needs(shape)]

    def init(self, problem: Problem, ctx: Context) -> ColumnState:
        """The first w, alpha = 0.  Makes the columns, before there is anything else to hold."""
        if ctx.columns is not None:
            ctx.columns()
        m, d = problem.n_models, ctx.data.n_features
        return ColumnState(
            problem=problem,
            w=self.first_weights(problem, d),
            rows=new_rows(problem, ctx),
            dual=DualPoint(np.zeros(m), np.zeros(m), zero_weights(d, m)),
            gradient=np.zeros(0),
            direction=np.zeros(0),
            primal=np.full(m, np.inf),
            V=zero_weights(d, m),
            moved=np.zeros(m),
        )

    def step(self, problem: Problem, state: ColumnState, ctx: Context) -> StepInfo:
        """A sweep over all columns, and what it led to."""
        n = ctx.data.n_samples
        try:
            self.refresh(state, ctx)
            self.sweep(state, ctx)
        except PassLeft:
            return StepInfo(state.estimate, n, 0, ask_certificate=False, paused=True)
        self.swept(state, ctx.tol)
        return StepInfo(
            state.estimate, n, n,
            ask_certificate=state.estimate <= ctx.tol,
            exhausted=state.stuck > 1,
            rule=Rule.where(state.step_norm < self.eps1, "length of the last step", state.step_norm, self.eps1),
            gaps=self.gaps(state), primal=state.primal,
        )  # fmt: skip

    def refresh(self, state: ColumnState, ctx: Context) -> None:
        """Slacks afresh from w, before the first sweep and now and then; the dual point that they give."""
        if state.done > 0:
            return
        problem, rows = state.problem, state.rows
        if state.iteration % _REFRESH == 0:
            row_pass(ctx, problem, rows, state.w.shape, w=state.w)
            if start_at_costless_bias(state):
                row_pass(ctx, problem, rows, state.w.shape, w=state.w)
        weights = problem.loss
        for piece in rows.pieces():
            rows.p.values[piece] = weights.alpha(rows.s.values[piece], rows.costs(problem, piece))
        state.moved[:] = 0.0

    def sweep(self, state: ColumnState, ctx: Context) -> None:
        """Visit the blocks of columns that this sweep has not visited yet, then the bias.

        Raises PassLeft between two blocks where the state is to be saved.
        """
        problem, rows, w = state.problem, state.rows, columns(state.w)
        assert ctx.columns is not None
        source = ctx.columns()
        refs = source.refs(max(source.nbytes, 1) if ctx.resident else BLOCK_BYTES)
        for block in _blocks(source, self.blocks(refs, state, ctx)[state.done :], ahead=not ctx.resident):
            sweep(
                block.X, self.order(block, state, ctx), block.start, rows.searched(problem), w,
                *self.search_rule(), rows.p.values, columns(state.V), state.moved,
            )  # fmt: skip
            state.done += 1
            ctx.charge(block.nbytes)
            del block  # before the next but one is read: two are paid for
            if state.done < len(refs) and ctx.pause():
                raise PassLeft
        if problem.bias != "none":
            self.visit_bias(state)
        state.done = 0

    def visit_bias(self, state: ColumnState) -> None:
        """The bias is one more column, of the constant feature; unregularised it goes to its best place exactly."""
        problem, rows, w = state.problem, state.rows, columns(state.w)
        free = problem.bias == "free"
        rule, eps2 = self.search_rule()
        constant = constant_column(problem, len(rows.s.values))
        for m in range(problem.n_models):
            linear, quadratic = (0.0, 0.0) if free else (w[-1, m], 1.0)
            columns(state.V)[-1, m] = column_total(constant, 0, m, rows.p.values, rows.y.values[:, 0], problem.sides)
            t = search(
                constant, 0, m, rows.searched(problem), linear, quadratic, EXACT if free else rule, eps2
            )  # fmt: skip
            w[-1, m] += t
            state.moved[m] += t * t

    def swept(self, state: ColumnState, tol: float) -> None:
        """The objective, the best dual point, and what they say of the gap, after a sweep."""
        problem = state.problem
        state.primal = 0.5 * squared_norm(problem, state.w) + state.rows.losses(problem)
        if problem.bias != "free" or state.iteration > 0:  # before the first sweep b is nowhere near its best
            began = replace(state.rows, s=state.rows.p)
            mix_dual(replace(state, rows=began), Given(), state.V, tol=tol)
        self.update_gaps(state)
        self.arrived(state, np.sqrt(state.moved))

    def blocks(self, refs: Sequence[BlockRef], state: ColumnState, ctx: Context) -> Sequence[BlockRef]:
        """All blocks, in the order of this sweep."""
        raise NotImplementedError

    def order(self, block: ColumnBlock, state: ColumnState, ctx: Context) -> np.ndarray:
        """The columns of a block, from 0, in the order of this sweep; int64."""
        raise NotImplementedError


def constant_column(problem: Problem, n_samples: int) -> np.ndarray:
    """The bias's feature as the one row of a matrix of columns; takes no memory."""
    return np.broadcast_to(np.array([[problem.constant_feature]]), (1, n_samples))


def _blocks(source: ColumnBlocks, refs: Sequence[BlockRef], ahead: bool) -> Iterator[ColumnBlock]:
    """One block after another; `ahead`: the next is read meanwhile."""
    if not ahead:
        for ref in refs:
            yield source.read(ref)
        return
    with ThreadPoolExecutor(1, "bigsvm-columns") as reader:
        coming = reader.submit(source.read, refs[0]) if len(refs) else None
        for number, ref in enumerate(refs):
            assert coming is not None
            block = coming.result()
            following = refs[number + 1] if number + 1 < len(refs) else None
            coming = None if following is None else reader.submit(source.read, following)
            yield block
            del block
            source.release(ref)
