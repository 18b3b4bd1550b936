"""The epsilon-insensitive loss by an interior-point method, on rows that stream.

An iteration takes three readings of the rows: one for the Hessian (and, before, the step that the iteration before
has found), one for the products with the predictor, and one for the longest step along the corrector.  Gondzio's
correctors, which `interior.py` adds for rows in memory, would take two readings each.

A reading that is left begins again.  Only the reading that moves the rows changes what is kept of them; it goes on
moving where it was left, and adds up all rows anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bigsvm.compiled.linear import interior as kernel
from bigsvm.compiled.linear.hessian import solve_factored, triangle_size
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.newton_ws.interior import BACK_OFF, RowCosts, most_counted
from bigsvm.solvers.newton_ws.subproblem import SLICES, Around
from bigsvm.solvers.tube.row_path import NUMBERS, Piece, Sides, piece_bytes, pieces
from bigsvm.solvers.tube.tube import (
    BALANCINGS,
    FINAL,
    balancing,
    constant_of,
    evened,
    exact_sum,
    flat_bias,
    is_balanced,
)
from bigsvm.store.blocks import tile
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft, leaving_when

ROWS = "rows on the central path"
"""Name, in plans, of the numbers that are kept for each row."""
_MOST = 100  # iterations
_UNLIMITED = 1e100  # second-order terms count in full: for rows that stream a limit was not tried
_TOGETHER = 256  # statistics of the costs of pieces that are kept apart
_EVENED = 1 << 12  # entries of alpha that are scaled at a time
READINGS = 60
"""Readings that a solution takes, about."""


def streamed_needs(shape: DataShape) -> list[Need]:
    """The memory of `StreamedTube`, in bytes."""
    wide, work = shape.n_features + 1, piece_bytes(shape.n_features, shape.weighted or shape.folded)
    return [
        Need("interior-point method", 8 * (SLICES * triangle_size(wide) + 12 * wide) + work),
        Need(ROWS, 8 * NUMBERS * shape.n_samples, may_spill=True),
    ]


@dataclass
class StreamedTube:
    """The solution of one model after another, from one reading to the next.

    rows : RowVector float64, (n_samples, NUMBERS)
    H : two triangles: the Hessian and its factor, or sums over two shares of the rows
    w, V : float64, (n_features + 1,)   the weights; and the sum of alpha [x, bias] of the dual point
    predictor, direction : float64, (n_features + 1,)   of w, in the present iteration; in a step of alpha that makes
        its sum 0, `direction` is its change of the weights
    phase : the next reading: look, step, predict, correct, settle, write, balance
    moved : working rows that a reading which was left has moved
    iteration : of the present model;  solved : models that are solved
    most : the largest C that counts;  costs : sum of C as it counts;  mu : of the corrector
    dual, primal : lengths of the step that comes next;  before : sum of alpha eta + room xi
    gap, value : gap and P of the present model
    at_bounds : alpha of rows that are clearly at a bound is put exactly there
    balanced : steps of alpha that have made its sum 0
    spread : with a free bias as in `Around`;  constant : of `constant_of`; at first that of the problem
    writes : alpha is written in each iteration, so that there is a proof if a limit ends the fit; else only at the end,
        and until then it belongs to the weights of the caller
    """

    rows: RowVector
    H: list[np.ndarray]
    w: np.ndarray
    V: np.ndarray
    predictor: np.ndarray
    direction: np.ndarray
    phase: str = "look"
    moved: int = 0
    iteration: int = 0
    solved: int = 0
    most: float = 0.0
    costs: float = 0.0
    mu: float = 0.0
    dual: float = 0.0
    primal: float = 0.0
    before: float = 0.0
    gap: float = math.inf
    value: float = math.inf
    at_bounds: bool = False
    balanced: int = 0
    spread: float = 0.0
    constant: float = 0.0
    around: Around = field(kw_only=True, metadata={"derived": True})
    writes: bool = field(default=False, kw_only=True, metadata={"derived": True})

    @classmethod
    def new(cls, problem: Problem, ctx: Context, writes: bool = False) -> StreamedTube:
        """Before the first reading."""
        wide = ctx.data.n_features + 1
        around = Around(free=problem.bias == "free", lean=np.zeros(wide), at=np.zeros(wide))
        w, V, predictor, direction = np.zeros((4, wide))
        triangles = [np.zeros(triangle_size(wide)) for _ in range(SLICES)]
        return cls(
            ctx.vector(ROWS, NUMBERS),
            triangles,
            w,
            V,
            predictor,
            direction,
            around=around,
            constant=problem.constant_feature,
            writes=writes,
        )

    @property
    def relative(self) -> float:
        """The gap of the present model over its P; infinite before it is known."""
        return self.gap / self.value if self.value > 0.0 and math.isfinite(self.value) else math.inf

    def read(self, problem: Problem, m: int, alpha: RowVector, ctx: Context) -> bool:
        """Read all rows once, for model m of the problem.

        True if the model is solved: then `w` and column m of `alpha` are the solution, and the next reading is the
        first of another model.  Raises PassLeft if the run is to stop; the reading then begins again.
        """
        before = ctx.bytes_read
        try:
            with leaving_when(ctx.stopping):
                over = getattr(self, f"_{self.phase}")(problem, m, alpha.values[:, m], ctx)
        except PassLeft:
            ctx.uncharge(before)  # limits count what an undisturbed run reads
            raise
        self.moved = 0
        if over:
            self.phase, self.iteration, self.balanced, self.gap, self.value = "look", 0, 0, math.inf, math.inf
            self.solved += 1
        return bool(over)

    @property
    def begins(self) -> bool:
        """Whether only the first of all readings was made."""
        return self.solved == 0 and self.iteration == 0 and self.phase == "step"

    def put_weights(self, problem: Problem, w: np.ndarray) -> None:
        """Put the present weights into w, float64 (n_features + 1,)."""
        w[:] = self.w
        if self.around.free:
            w[-1] *= self.constant / problem.constant_feature

    def close(self) -> None:
        """Give back what is kept of the rows."""
        self.rows.close()

    def _look(self, problem: Problem, m: int, alpha: np.ndarray, ctx: Context) -> bool:
        """Find the start: mu, the bias, and how much C counts for."""
        sides, costs = Sides(), list[RowCosts]()
        for piece in pieces(problem, m, self.constant, ctx):
            n = len(piece.tube.codes)
            sides.add(piece.tube.side[:n] + problem.loss.epsilon)
            costs.append(RowCosts.of(piece.tube))
            if len(costs) > _TOGETHER:
                costs = [_merged(costs)]
        self.w[:] = 0.0
        if sides.n == 0.0:  # no row takes part
            alpha[:] = 0.0
            return True
        if (flat := flat_bias(sides.least, sides.largest, problem)) is not None:
            self.constant = problem.constant_feature
            self.w[-1] = flat / (self.constant or 1.0)
            alpha[:] = 0.0
            return True
        self.constant = constant_of(problem, sum(part.total for part in costs))
        self.most, mu = most_counted(costs), sides.size / sides.n
        if self.around.free:
            self.w[-1] = sides.mean / self.constant
            mu = math.sqrt(sides.squares / sides.n)
            self.spread = mu / self.constant
        self.mu, self.phase = mu or 1.0, "step"
        return False

    def _step(self, problem: Problem, m: int, alpha: np.ndarray, ctx: Context) -> bool:
        """Make the step of the last iteration (before the first: put rows on the path); sum up the Hessian."""
        to = self.w + self.primal * self.direction if self.iteration else self.w
        pulled, V, rows = np.zeros(len(to)), np.zeros(len(to)), self.rows.values
        losses, linear, before, costs = 0.0, 0.0, 0.0, 0.0
        for part in self.H:
            part[:] = 0.0
        for piece in pieces(problem, m, self.constant, ctx):
            tube = piece.tube
            if piece.start >= self.moved:
                piece.keep(self._stepped(piece), rows)
                self.moved = piece.stop
            found = piece.kept(rows)._replace(s=tube.slacks(to))
            if self.writes:
                alpha[piece.at] = tube.difference(found.alpha)
            h, more, zeros = np.empty(len(tube.C)), np.empty(len(tube.C)), np.zeros(len(tube.C))
            sums = kernel.gap_sums(found.s, tube.C, found.alpha, tube.side)
            losses, linear = losses + float(sums[0]), linear + float(sums[1])
            costs += float(np.minimum(tube.C, self.most).sum())
            V += tube.pull(found.alpha)
            before += float(kernel.weigh(found, h))
            kernel.pull(found, h, kernel.Targets(zeros, zeros), more)
            pulled += tube.pull(more)
            tube.add_to_hessian(h, self.H)
        self.w[:], self.V[:], self.before, self.costs = to, V, before, costs
        self.H[0] += self.H[1]
        self.gap, self.value = self._gap(losses, linear, V)
        if self.gap <= FINAL * ctx.tol * self.value or self.iteration >= _MOST:
            self.phase = "settle"
            return False
        self.around.factor(self.H)
        self._aim(self.predictor, pulled)
        self.phase = "predict"
        return False

    def _stepped(self, piece: Piece) -> kernel.RowsOnPath:
        """The rows of a piece after the step that is due."""
        tube = piece.tube
        if self.iteration == 0:
            n = len(tube.C)
            found = kernel.RowsOnPath(tube.slacks(self.w), *(np.empty(n) for _ in range(4)))
            kernel.centre(found, tube.C, self.mu)
            return found
        found, h, targets = self._aimed(piece)
        kernel.step(found, h, tube.products(self.direction), targets, self.dual, self.primal)
        return found

    def _aimed(self, piece: Piece) -> tuple[kernel.RowsOnPath, np.ndarray, kernel.Targets]:
        """The rows of a piece before the step, with their weights and the targets of the corrector."""
        tube = piece.tube
        found = piece.kept(self.rows.values)._replace(s=tube.slacks(self.w))
        h, targets = np.empty(len(tube.C)), kernel.Targets(np.empty(len(tube.C)), np.empty(len(tube.C)))
        kernel.weigh(found, h)
        kernel.second_order(found, h, tube.products(self.predictor), tube.C, self.most, self.mu, _UNLIMITED, targets)
        return found, h, targets

    def _predict(self, problem: Problem, m: int, alpha: np.ndarray, ctx: Context) -> bool:
        """The longest step along the predictor, and what the pull of the corrector consists of."""
        dual = primal = 1.0
        after, pulled, central = np.zeros(3), np.zeros(len(self.w)), np.zeros(len(self.w))
        for piece in pieces(problem, m, self.constant, ctx):
            tube = piece.tube
            found = piece.kept(self.rows.values)._replace(s=tube.slacks(self.w))
            h, more, zeros = np.empty(len(tube.C)), np.empty(len(tube.C)), np.zeros(len(tube.C))
            kernel.weigh(found, h)
            p, nothing = tube.products(self.predictor), kernel.Targets(zeros, zeros)
            reach = kernel.reach(found, h, p, nothing)
            dual, primal = min(dual, float(reach[0])), min(primal, float(reach[1]))
            # The sum after a step is linear in the length of either, so three of its values tell all.
            lengths = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
            after += [float(kernel.products_after(found, h, p, nothing, *both)) for both in lengths]
            targets = kernel.Targets(np.empty(len(h)), np.empty(len(h)))
            kernel.second_order(found, h, p, tube.C, self.most, 0.0, _UNLIMITED, targets)
            kernel.pull(found, h, targets, more)
            pulled += tube.pull(more)
            central += tube.pull(h * np.minimum(tube.C, self.most) * (1.0 / found.room - 1.0 / found.alpha))
        first, second, both = (after - self.before).tolist()
        left = self.before + dual * first + primal * second + dual * primal * (both - first - second)
        # With costs near the smallest float64 all products may be 0, and then nothing is left to centre.
        self.mu = (left / self.before) ** 3 * self.before / (2.0 * self.costs) if self.before > 0.0 else 0.0
        self._aim(self.direction, pulled + self.mu * central)
        self.phase = "correct"
        return False

    def _correct(self, problem: Problem, m: int, alpha: np.ndarray, ctx: Context) -> bool:
        """The longest step along the corrector."""
        dual = primal = math.inf
        for piece in pieces(problem, m, self.constant, ctx):
            found, h, targets = self._aimed(piece)
            reach = kernel.reach(found, h, piece.tube.products(self.direction), targets)
            dual, primal = min(dual, float(reach[0])), min(primal, float(reach[1]))
        self.dual, self.primal = min(1.0, BACK_OFF * dual), min(1.0, BACK_OFF * primal)
        self.iteration += 1
        self.phase = "step"
        return False

    def _settle(self, problem: Problem, m: int, alpha: np.ndarray, ctx: Context) -> bool:
        """Find out whether alpha of rows that are clearly at a bound may be put exactly there."""
        linear, losses, V = 0.0, 0.0, np.zeros(len(self.w))
        for piece in pieces(problem, m, self.constant, ctx):
            tube, found = piece.tube, self._at_bounds(piece)
            sums = kernel.gap_sums(tube.slacks(self.w), tube.C, found, tube.side)
            losses, linear = losses + float(sums[0]), linear + float(sums[1])
            V += tube.pull(found)
        gap, value = self._gap(losses, linear, V)
        self.at_bounds = bool(gap <= max(2.0 * self.gap, FINAL * ctx.tol * value))
        self.phase = "write"
        return False

    def _write(self, problem: Problem, m: int, alpha: np.ndarray, ctx: Context) -> bool:
        """Write alpha."""
        alpha[:] = 0.0
        for piece in pieces(problem, m, self.constant, ctx):
            found = self._at_bounds(piece) if self.at_bounds else piece.kept(self.rows.values).alpha
            alpha[piece.at] = piece.tube.difference(found)
        self.phase = "balance"
        return not self.around.free

    def _at_bounds(self, piece: Piece) -> np.ndarray:
        """alpha of a piece, where it is clearly at a bound exactly that."""
        found = piece.kept(self.rows.values)
        kernel.at_bounds(piece.tube.C, found.xi, found.eta, found.alpha)
        return found.alpha

    def _balance(self, problem: Problem, m: int, alpha: np.ndarray, ctx: Context) -> bool:
        """With a free bias: make the step of alpha that is due, and find the next one if its sum is not 0 yet."""
        sums, any_inner = [np.zeros(2)], False
        for part in self.H:
            part[:] = 0.0
        for piece in pieces(problem, m, self.constant, ctx):
            if self.balanced and piece.start >= self.moved:
                alpha[piece.at] = piece.tube.moved(alpha[piece.at], self.direction)
                self.moved = piece.stop
            some = alpha[piece.at]
            h = piece.tube.inner(some)
            any_inner = any_inner or bool(h.any())
            sums = _added(sums, np.array([exact_sum(some), exact_sum(np.abs(some))]))
            piece.tube.add_to_hessian(h, self.H)
        total, size = (exact_sum(values) for values in zip(*sums, strict=True))
        if is_balanced(total, size):
            return True
        if not any_inner or self.balanced >= BALANCINGS:
            self._even(alpha, total, size)
            return True
        self.H[0] += self.H[1]
        wanted = np.zeros(len(self.w))
        wanted[-1] = -self.constant * total
        self.direction[:] = balancing(self.around, self.H, wanted)
        self.balanced += 1
        return False

    def even(self, alpha: np.ndarray) -> None:
        """With a free bias make the sum of alpha 0, by scaling entries of one sign.  alpha : float64, (n_rows,)"""
        if not self.around.free:
            return
        sums = [np.zeros(2)]
        for a, b in tile(len(alpha), _EVENED):
            sums = _added(sums, np.array([exact_sum(alpha[a:b]), exact_sum(np.abs(alpha[a:b]))]))
        total, size = (exact_sum(values) for values in zip(*sums, strict=True))
        if not is_balanced(total, size):
            self._even(alpha, total, size)

    @staticmethod
    def _even(alpha: np.ndarray, total: float, size: float) -> None:
        for a, b in tile(len(alpha), _EVENED):
            alpha[a:b] = evened(alpha[a:b], total, size)

    def _gap(self, losses: float, linear: float, V: np.ndarray) -> tuple[float, float]:
        """(gap, P) at w, for sums over the rows as in `interior.GapSums`."""
        w, R = self.w, self.around.regulariser
        value = 0.5 * float(w @ (R * w)) + losses
        self.around.spread = self.spread
        return value - linear + 0.5 * float(V @ (R * V)) + self.around.penalty(w, V), value

    def _aim(self, direction: np.ndarray, pulled: np.ndarray) -> None:
        """Set the Newton direction of w towards targets with such a pull."""
        solve_factored(*self.H, self.V - self.around.regulariser * self.w - pulled, direction)


def _merged(costs: Sequence[RowCosts]) -> RowCosts:
    """One statistic of the costs of many pieces: their median is that of the piece in the middle."""
    middle = sorted(costs, key=lambda part: part.middle)[len(costs) // 2].middle
    return RowCosts(sum(one.total for one in costs), middle, sum(one.positive for one in costs))


def _added(sums: list[np.ndarray], more: np.ndarray) -> list[np.ndarray]:
    """A few sums with `more` among them: those of many pieces are added up, so that they take no memory."""
    sums.append(more)
    return [np.array([exact_sum(values) for values in zip(*sums, strict=True)])] if len(sums) > _TOGETHER else sums
