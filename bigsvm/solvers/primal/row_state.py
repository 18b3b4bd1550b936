"""The vectors of primal solvers with an entry for each row: slacks, products with a direction, alpha; maybe on disk.

Functions here read two or three numbers for each row, piece by piece in the order of the rows, and never the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bigsvm.compiled.linear.line_search import RUN
from bigsvm.compiled.linear.primal_cd import SearchRows
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need, Point
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.line_search import Pieces, Step, exact_step
from bigsvm.store.blocks import tile
from bigsvm.store.state.vectors import RowVector

if TYPE_CHECKING:
    from bigsvm.solvers.primal.dual_point import Mixing

_PIECE = 1 << 14  # most rows in a piece
_PIECE_BYTES = 1 << 20  # most bytes of an array with a number for each row of a piece and each model
_LEAST_PIECE = 1 << 9  # rows in a piece however many models there are: short pieces take long
_HELD = 1 << 16  # numbers in sums over pieces that wait to be added up
_Y = "row labels"  # name, in plans, of class codes or targets


class Smoothed(Protocol):
    """A loss that replaces that of the problem in a line search."""

    def value(self, s: np.ndarray) -> np.ndarray: ...


@dataclass
class RowState:
    """Vectors with an entry for each row of the data, in working order.

    s : float64, (n_samples, n_models)       slacks at w, 1 - y f(x) or y - f(x)
    p : float64, (n_samples, n_models)       y (x.d + bias d_last), for the last direction d
    alpha : float64, (n_samples, n_models)   the best dual point
    cost : float64, (n_samples, 1)           class weight times sample weight
    y : int32 or float64, (n_samples, 1)     class codes, or targets
    inside : uint8, (n_samples, n_models)    1 for rows in the Hessian that is kept (`kept_hessian`); None without one
    """

    s: RowVector
    p: RowVector
    alpha: RowVector
    cost: RowVector
    y: RowVector
    inside: RowVector | None = None

    def pieces(self) -> Iterator[slice]:
        """Ranges of rows, so short that arrays of (rows, models) stay small."""
        for start, stop in tile(len(self.s.values), self._piece_rows):
            yield slice(start, stop)

    def long_pieces(self) -> Iterator[slice]:
        """Ranges of rows for arrays of one model, which stay small in longer pieces; each is one or more of `pieces`.

        Sums over them have the same bits: where they would not, because a piece ends amid a run, they are `pieces`.
        """
        rows = self._piece_rows
        for start, stop in tile(len(self.s.values), rows if rows % RUN else _PIECE // rows * rows):
            yield slice(start, stop)

    @property
    def _piece_rows(self) -> int:
        return min(max(_PIECE_BYTES // (8 * self.s.values.shape[1]), _LEAST_PIECE), _PIECE)

    def costs(self, problem: Problem, rows: slice) -> np.ndarray:
        """C_i of some rows, float64, (n_rows, n_models)."""
        return self.cost.values[rows] * problem.C

    def signs(self, problem: Problem, rows: slice) -> np.ndarray:
        """y_i of some rows, float64, (n_rows, n_models); 1 for targets."""
        return problem.signs(self.y.values[rows, 0])

    def signs_of(self, problem: Problem, rows: slice, m: int) -> np.ndarray:
        """y_i of some rows for model m, float64, (n_rows,); 1 for targets."""
        return problem.signs_of(self.y.values[rows, 0], m)

    def losses(self, problem: Problem) -> np.ndarray:
        """sum_i C_i loss(s_i) of each model, float64, (n_models,)."""
        return self.losses_at(problem, [])

    def losses_at(self, problem: Problem, steps: list[Step]) -> np.ndarray:
        """The losses after steps along p, which `advance` has not made yet; with no steps at the present slacks."""

        def losses(rows: slice) -> np.ndarray:
            s = self.s.values[rows]
            if steps:
                s = s.copy()
                _move(s, self.p.values[rows], steps)
            return np.asarray((self.costs(problem, rows) * problem.loss.value(s)).sum(axis=0))

        return total_of(map(losses, self.pieces()), (problem.n_models,))

    def search(
        self, problem: Problem, linear: np.ndarray, quadratic: np.ndarray, longest: float = np.inf
    ) -> list[Step]:
        """The exact step of each model along the direction of p.

        linear, quadratic : float64, (n_models,)   w.d and d.d of the regulariser
        longest : no step is longer
        """
        return [
            self._search(problem, m, float(linear[m]), float(quadratic[m]), longest) for m in range(problem.n_models)
        ]

    def _search(self, problem: Problem, m: int, linear: float, quadratic: float, longest: float) -> Step:
        step = exact_step(
            self.along(problem, m), float(problem.C[m]), problem.loss.one_sided, linear, quadratic, longest
        )
        return off_kink(problem, step)

    def along(self, problem: Problem, m: int, way: float = 0.0) -> Pieces:
        """The input of a line search of model m: along p, or, if `way` (1 or -1) is not 0, along the bias that way."""

        def pieces() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for rows in self.long_pieces():
                s = self.s.values[rows, m]
                p = way * self.signs_of(problem, rows, m) if way else self.p.values[rows, m]
                yield from _one_sided(problem, s, p, self.cost.values[rows, 0])

        return pieces

    def advance(self, steps: list[Step]) -> None:
        """s -= t p for the step t of each model.  A row at whose breakpoint the step ends gets a slack of exactly 0."""
        for rows in self.pieces():
            _move(self.s.values[rows], self.p.values[rows], steps)

    def searched(self, problem: Problem) -> SearchRows:
        """The rows for searches along columns, which change s in place."""
        return SearchRows(
            self.s.values, self.y.values[:, 0], problem.sides, self.cost.values[:, 0], problem.C,
            problem.loss.epsilon,
        )  # fmt: skip

    def costless_bias(self, problem: Problem) -> float:
        """A free bias with which w = 0 has P = 0, if there is one; else 0.  The slacks must be those of w = 0.

        Line searches would end within rounding of that optimum, where P is 1e-30 and no relative gap is small.
        """
        if not (problem.regression and problem.bias == "free"):
            return 0.0
        return middle_of(problem, *self.span())

    def span(self) -> tuple[float, float]:
        """The smallest and the largest slack of the rows with a positive cost."""
        low, high = math.inf, -math.inf
        for rows in self.pieces():
            s = self.s.values[rows, 0][self.cost.values[rows, 0] > 0.0]
            if len(s):
                low, high = min(low, float(s.min())), max(high, float(s.max()))
        return low, high

    def losses_after(self, problem: Problem, weights: Smoothed, t: np.ndarray, total: np.ndarray) -> np.ndarray:
        """`total` plus sum_i C_i value(s_i - t p_i) of each model, with `weights.value`; float64, (n_models,)."""
        for rows in self.pieces():
            s = self.s.values[rows] - t * self.p.values[rows]
            total = total + (self.costs(problem, rows) * weights.value(s)).sum(axis=0)
        return total

    def settle_bias(self, problem: Problem) -> np.ndarray:
        """Move a free bias of each model to its exact optimum (docs/mathematics.md 3.3); s follows.

        Returns the changes of b, float64, (n_models,).
        """
        moved = np.zeros(problem.n_models)
        for m in range(problem.n_models):
            for way in (1.0, -1.0):
                found = self.search_bias(problem, m, way)
                if found.length > 0.0:
                    moved[m] = way * found.length
                    self.shift(problem, m, way, found)
                    break
        return moved

    def search_bias(
        self, problem: Problem, m: int, way: float, linear: float = 0.0, quadratic: float = 0.0
    ) -> Step:  # fmt: skip
        """The exact step of model m along the bias in the direction `way`, 1 or -1.

        linear, quadratic : slope and curvature of the regulariser
        """
        C, code = float(problem.C[m]), problem.loss.one_sided
        return off_kink(problem, exact_step(self.along(problem, m, way), C, code, linear, quadratic))

    def shift(self, problem: Problem, m: int, way: float, step: Step) -> None:
        """Update s of model m after its bias has moved by `step` in the direction `way`, 1 or -1."""
        for rows in self.long_pieces():
            s = self.s.values[rows, m]
            p = way * self.signs_of(problem, rows, m)
            kinks = step.on_kink & (s / p == step.length)
            s -= step.length * p
            s[kinks] = 0.0

    def point(self, problem: Problem, w: np.ndarray) -> Point:
        """w with alpha of these rows, for a proof."""
        return Point(problem, w, self.alpha)

    def mixing(self) -> Mixing | None:
        """What mixes two dual points of rows on shards; None for rows in this process (`RowMixing` does)."""
        return None

    def end_step(self) -> None:
        """To be called after each step.  Rows in this process are saved with the solver's state: nothing to do."""

    def begin_again(self) -> None:
        """To be called if a step is left before it has changed slacks or alpha.  Nothing to do in this process."""

    def close(self) -> None:
        """Release all vectors but alpha."""
        for vector in (self.s, self.p, self.cost, self.y, self.inside):
            if vector is not None:
                vector.close()


def _move(s: np.ndarray, p: np.ndarray, steps: list[Step]) -> None:
    """See `RowState.advance`.  s, p : float64, (n_rows, n_models); s is changed in place"""
    t, on_kink = np.array([step.length for step in steps]), np.array([step.on_kink for step in steps])
    if not on_kink.any():
        s -= t * p
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        kinks = on_kink & (s / p == t)
    s -= t * p
    s[kinks] = 0.0


def total_of(parts: Iterable[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The sum of arrays of this shape, float64, such as sums over pieces of rows.

    It is rounded only once, unless there are so many numbers that they must not all wait in memory.
    """
    held: list[np.ndarray] = []
    for part in parts:
        held.append(np.ravel(part))
        if len(held) * held[0].size >= _HELD:
            held = [_rounded_sum(held)]
    return _rounded_sum(held).reshape(shape) if held else np.zeros(shape)


def _rounded_sum(parts: list[np.ndarray]) -> np.ndarray:
    return np.array([math.fsum(column) for column in np.transpose(parts)])


def row_needs(shape: DataShape, with_slopes: bool = True) -> list[Need]:
    """Named amounts in bytes for the vectors of `new_rows`; all may go to disk."""
    n, m = shape.n_samples, shape.n_models
    return [
        Need("slacks", 8 * n * m, may_spill=True),
        *([Need("slopes", 8 * n * m, may_spill=True)] if with_slopes else []),
        Need("alpha", 8 * n * m, may_spill=True),
        Need("row costs", 8 * n, may_spill=True),
        Need(_Y, (8 if shape.regression else 4) * n, may_spill=True),
    ]


def y_vector(problem: Problem, ctx: Context, width: int = 1) -> RowVector:
    """A vector for class codes or targets of the rows; empty if `width` is 0."""
    return ctx.vector(_Y, width, np.float64 if problem.regression else np.int32)


def new_rows(problem: Problem, ctx: Context, with_slopes: bool = True) -> RowState:
    """The vectors at w = 0, before any row was read; slacks are 1, those of classes.  Without slopes, p is empty."""
    m = problem.n_models
    return RowState(
        s=ctx.vector("slacks", m, fill=1.0),
        p=ctx.vector("slopes", m, n_rows=None if with_slopes else 0),
        alpha=ctx.vector("alpha", m),
        cost=ctx.vector("row costs", 1),
        y=y_vector(problem, ctx),
    )


def _one_sided(
    problem: Problem, s: np.ndarray, p: np.ndarray, cost: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(slacks, slopes, costs) of the one-sided losses, max(0, s) or its square, whose sum the loss is."""
    if not problem.regression:
        yield s, p, cost
        return
    for sign, shift in problem.loss.sides:
        yield sign * s - shift, sign * p, cost


def off_kink(problem: Problem, step: Step) -> Step:
    """The step without `on_kink` for a regression, whose rows have two kinks: which one it was is not known."""
    return step._replace(on_kink=False) if problem.regression else step


def middle_of(problem: Problem, low: float, high: float) -> float:
    """The free bias with which targets from `low` to `high` have no loss, if there is one; else 0."""
    return low + 0.5 * (high - low) if 0.0 <= high - low <= 2.0 * problem.loss.epsilon else 0.0
