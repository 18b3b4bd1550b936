"""Template of solvers that change one coefficient at a time, in sweeps over blocks of columns, with slacks in memory.

Rows are read at the start, for their costs and classes, and once in a while to remove rounding from the slacks.  Sweeps
read only columns.  At the start of a sweep, the dual point alpha_i = C_i loss'(s_i) is stored.  Its sum
v = sum_i alpha_i y_i [x_i, bias] is added up column by column while the sweep reads them, which takes no reading of its
own and is exact.  So the best combination of all such points is known (docs/mathematics.md 2.4), one sweep late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np

from bigsvm.compiled.linear.primal_cd import EXACT, column_total, search, sweep
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import WEIGHTS, DataShape, Need, Rule, StepInfo
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

BLOCK_BYTES = MIB  # bytes of columns that are read together; the same for every budget
_STRIPE = 256 * KIB  # bytes that a read holds beside its block
_REFRESH = 100  # sweeps between two computations of the slacks from the rows
_WIDE = 6  # arrays as large as w: the point, v of the best dual point and of the sweep, and temporaries


@dataclass
class ColumnState(PrimalState):
    """The state of a primal solver with sweeps; `gradient` and `direction` are empty.

    rows.p holds alpha of the dual point with which the present sweep began.

    V : float64, shape of w        sum_i alpha_i y_i [x_i, bias] of that point, as far as it was added up
    moved : float64, (n_models,)   sum of the squared steps of the present sweep
    done : int                     blocks that the present sweep has visited
    """

    V: np.ndarray = field(default_factory=lambda: np.zeros(0))
    moved: np.ndarray = field(default_factory=lambda: np.zeros(0))
    done: int = 0


class Given(NamedTuple):
    """A `Weights` for alpha that is known already, and stored in the place of the slacks."""

    def value(self, s: np.ndarray) -> np.ndarray:
        """Not known."""
        raise NotImplementedError

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """alpha itself."""
        return s

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """Not known."""
        raise NotImplementedError


class ColumnSweeps(PrimalSolver):
    """Template.  A subclass chooses the search along a column, the start point, and the order of the columns.

    eps1 : float   rule of --stop paper: ||w_{k+1} - w_k|| < eps1 over a sweep
    """

    paper_rule: ClassVar[bool] = True
    column_access: ClassVar[bool] = True
    eps1: float

    def search_rule(self) -> tuple[int, float]:
        """(rule, eps2) of the search along a column (`compiled/linear/primal_cd.py`)."""
        raise NotImplementedError

    def first_weights(self, problem: Problem, n_features: int) -> np.ndarray:
        """The start point."""
        return zero_weights(n_features, problem.n_models)

    def refusal(self, shape: DataShape) -> str | None:
        """None: every shape is accepted."""
        return None

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Named amounts in bytes; what grows with the rows may go to disk."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        if resident:
            held = Need("columns", shape.nnz * shape.entry_bytes + 8 * (shape.n_features + 1))
        else:
            # One block is read while another is in use, and a block has at least one whole column.
            widest = min(shape.n_samples, shape.nnz) * shape.entry_bytes
            held = Need("column window", 2 * max(BLOCK_BYTES, widest) + _STRIPE)
        return [Need(WEIGHTS, wide), Need("column sums", (_WIDE - 1) * wide), held, *row_needs(shape)]

    def init(self, problem: Problem, ctx: Context) -> ColumnState:
        """Make the columns, before other memory is taken; start at the first w, alpha = 0."""
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
        """A sweep over all columns; then P, the best dual point, and the gap."""
        n = ctx.data.n_samples
        try:
            self.refresh(state, ctx)
            self.sweep(state, ctx)
        except PassLeft:
            return StepInfo.left(state.estimate, n)
        self.swept(state, ctx.tol)
        return StepInfo(
            state.estimate, n, n,
            ask_certificate=state.estimate <= ctx.tol,
            exhausted=state.stuck > 1,
            rule=Rule.where(state.step_norm < self.eps1, "length of the last step", state.step_norm, self.eps1),
            gaps=self.gaps(state), primal=state.primal,
        )  # fmt: skip

    def refresh(self, state: ColumnState, ctx: Context) -> None:
        """Before a sweep, store its dual point; before the first and every `_REFRESH`-th, compute the slacks from w."""
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

        Raises PassLeft between two blocks if the state is to be saved.
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
            del block  # memory is reserved for two blocks, and the reader is one ahead
            if state.done < len(refs) and ctx.pause():
                raise PassLeft
        if problem.bias != "none":
            self.visit_bias(state)
        state.done = 0

    def visit_bias(self, state: ColumnState) -> None:
        """Visit the bias, which is the column of the constant feature; a free one moves to its exact optimum."""
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
        """After a sweep, update P, the best dual point and the gap."""
        problem = state.problem
        state.primal = 0.5 * squared_norm(problem, state.w) + state.rows.losses(problem)
        if problem.bias != "free" or state.iteration > 0:  # before the first sweep b is far from its optimum
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
    """The constant feature as a matrix with a single column, (1, n_samples); a broadcast, which takes no memory."""
    return np.broadcast_to(np.array([[problem.constant_feature]]), (1, n_samples))


def _blocks(source: ColumnBlocks, refs: Sequence[BlockRef], ahead: bool) -> Iterator[ColumnBlock]:
    """Read one block after another.  ahead : read the next one while the caller works"""
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
