"""Sums over rows for the gap of a saved model whose dual variables beta have both signs (docs/mathematics.md 2.2).

    P - D = sum_i [ C_i loss_i - beta_i r_i + epsilon |beta_i| ] + 1/2 ||w - v||^2 - b sum_i beta_i,   r = t - f(x)

with f of the written model, v = sum_i beta_i phi(x_i), and beta = y alpha of the saved dual variables.  For a kernel
model w = v, once it is checked that every support vector is the row that it claims to be, and that its coefficient is
the beta of that row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.kernel.dual_qp import qp_sums, unsure_costs
from bigsvm.compiled.shared.rows import CSR, take_rows
from bigsvm.compiled.shared.vectors.sums import lost_in_sum
from bigsvm.errors import DataError
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import Model
from bigsvm.problem.kernel import Kernel
from bigsvm.problem.linear_rounding import UnsureWeights
from bigsvm.problem.problem import Problem
from bigsvm.problem.rounding import NEAR, Unsure, sum_and_lost, unsure_of
from bigsvm.run.proof.saved_problem import TRAINING_STORE
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.data import diagonal_of
from bigsvm.store.blocks import Block, BlockRef, Matrix, RowBlocks, blocks_of, readonly_view, tile
from bigsvm.store.content import ContentHash
from bigsvm.store.survey import Survey

_IN_BOX = 1.0 + 2.0**-44  # factor on an upper bound that tolerates the rounding of C_i
_AT_ONCE = 1 << 10  # support vectors whose K_ii are computed together
_LINEAR = Kernel()
_PIECE = 1 << 17  # limit of values of dense rows in float64 at a time
SUMS = 14
BRACKETS, LOSS, QUADRATIC, LINEAR, BALANCE, SIZE, SQUARES, COSTS, REACH, SPREAD, FIXED, ROOM, ENDS, NORMS = range(SUMS)
"""Columns of `BetaSums.sums`: brackets, C_i loss_i, beta_i (f_i - b), t_i beta_i - epsilon |beta_i|, beta_i, |beta_i|,
beta_i^2, C_i.  The following ones bound the effect of rounding (`problem/rounding.py`, `problem/linear_rounding.py`),
where K_ii is x_i.x_i for a linear model.  The last, C_i ||x_i||, is for linear models only."""


class BetaShare(NamedTuple):
    """The input of a task: a run of consecutive blocks, and what is needed to sum over their rows.

    alpha : float64, (rows of all refs, n_models); None if it was not saved
    beta_of : computes beta of the rows of a block: `beta_of_alpha` or `beta_of_support`
    with_v : compute v = sum beta_i x_i as well
    """

    data: RowBlocks
    refs: tuple[BlockRef, ...]
    problem: Problem
    model: Model
    alpha: np.ndarray | None
    beta_of: BetaOf
    with_v: bool


@dataclass
class BetaSums:
    """The sums for all models.

    sums : float64, (n_models, SUMS);  lost : float64, (n_models,), what rounding took from its column BALANCE
    n_support : int64, (n_models,), rows with beta != 0
    b_up, b_low : float64, (n_models,), the bounds in the optimality conditions
    largest : float64, the largest ||x_i|| of a row; linear models only
    v : float64, (n_models, n_features) for a linear model, otherwise without rows
    survey : the survey of the rows, with their content fingerprint
    """

    sums: np.ndarray
    n_support: np.ndarray
    b_up: np.ndarray
    b_low: np.ndarray
    largest: np.ndarray
    v: np.ndarray
    survey: Survey
    lost: np.ndarray
    n_rows: int = 0

    @classmethod
    def none(cls, model: Model, with_v: bool) -> BetaSums:
        """The sums over no rows."""
        m = model.n_models
        v = np.zeros((m, model.n_features) if with_v else (0, 0))
        bounds = np.full(m, np.inf), np.full(m, -np.inf)
        return cls(np.zeros((m, SUMS)), np.zeros(m, np.int64), *bounds, np.zeros(m), v, Survey(), np.zeros(m))

    @property
    def balance(self) -> np.ndarray:
        """sum beta of each model, of which a proof with a free bias needs more digits than a sum of blocks keeps."""
        return np.asarray(self.sums[:, BALANCE] + self.lost)

    def merge(self, other: BetaSums) -> None:
        """Add the sums over the rows that follow."""
        before = self.sums[:, BALANCE].copy()
        self.sums += other.sums
        self.lost += other.lost + lost_in_sum(before, other.sums[:, BALANCE], self.sums[:, BALANCE])
        self.n_support += other.n_support
        np.minimum(self.b_up, other.b_up, out=self.b_up)
        np.maximum(self.b_low, other.b_low, out=self.b_low)
        np.maximum(self.largest, other.largest, out=self.largest)
        self.v += other.v
        self.survey.merge(other.survey)
        self.n_rows += other.n_rows


def sums_of_blocks(share: BetaShare) -> BetaSums:
    """Task: the sums over a run of blocks.  A pure function.  Raises DataError if the model does not fit these rows."""
    model, problem = share.model, share.problem
    found = BetaSums.none(model, share.with_v)
    for block in blocks_of(share.data, share.refs):
        found.survey.add(block, share.data.classes)
        alpha = None if share.alpha is None else share.alpha[found.n_rows : found.n_rows + block.n_rows]
        beta = share.beta_of(model, problem, block, alpha, share.data.uri)
        _add_block(found, problem, model, block, beta, share.data)
        found.n_rows += block.n_rows
    return found


def _add_block(
    found: BetaSums, problem: Problem, model: Model, block: Block, beta: np.ndarray, data: RowBlocks
) -> None:
    """Add the terms of a block; beta : (n_rows, n_models)."""
    scores = model.scores(block.X)
    scores -= model.intercept
    for m in range(problem.n_models):
        qp, rows = _qp_of(problem, m, block, beta[:, m])
        outside = (qp.beta > qp.upper * _IN_BOX) | (qp.beta < qp.lower * _IN_BOX)
        apart = np.count_nonzero(beta[:, m]) - np.count_nonzero(qp.beta)
        if outside.any() or apart:
            row = block.start + int(rows[np.argmax(outside)]) if outside.any() else block.start
            what = f"the dual point is not feasible: model {m}, row {row}, has beta outside its bounds"
            raise DataError(what, data.uri, TRAINING_STORE)
        product = scores[rows, m]
        np.subtract(product, qp.target, out=qp.f)
        brackets, loss, _, beta_t, size = qp_sums(
            qp.f, qp.beta, qp.lower, qp.upper, qp.target, qp.epsilon, float(model.intercept[m])
        )
        quadratic, (balance, lost) = float(qp.beta @ product), sum_and_lost(qp.beta)
        squares = float(qp.beta @ qp.beta)
        costs = float(np.maximum(qp.upper, -qp.lower).sum())
        before = float(found.sums[m, BALANCE])
        found.sums[m, :REACH] += (brackets, loss, quadratic, beta_t - qp.epsilon * size, balance, size, squares, costs)
        found.lost[m] += lost + lost_in_sum(before, balance, float(found.sums[m, BALANCE]))
        if model.kind == "kernel":
            found.sums[m, REACH:NORMS] += _unsure(qp, float(model.intercept[m]), problem.kernel, data, block, rows)
        else:
            weights, ends = _unsure_weights(qp, float(model.intercept[m]), data, block, rows)
            found.sums[m, [REACH, SPREAD, ROOM, ENDS, NORMS]] += (
                weights.spread, weights.inside, weights.room, ends, weights.costs,
            )  # fmt: skip
            found.largest[m] = max(found.largest[m], weights.largest)
        found.n_support[m] += np.count_nonzero(qp.beta)
        b_up, b_low = qp.bounds()
        found.b_up[m], found.b_low[m] = min(found.b_up[m], b_up), max(found.b_low[m], b_low)
    if len(found.v):
        _add_rows(found.v, block.X, beta)


def _unsure(qp: DualQP, b: float, kernel: Kernel, data: RowBlocks, block: Block, rows: np.ndarray) -> tuple[float, ...]:
    """The bounds of the effect of rounding in the scores of some rows, as in the last columns of `sums`.

    rows : indices within the block
    """
    ends, _ = unsure_costs(qp.f, qp.beta, qp.lower, qp.upper, qp.target, qp.epsilon, b, NEAR)
    found = Unsure()
    X, support = readonly_view(block.X), np.flatnonzero(qp.beta)
    for start, stop in tile(len(support), _AT_ONCE):
        these = support[start:stop]
        diagonal = diagonal_of(kernel, data, X, rows[these], block.start + rows[these])
        found.add(unsure_of(qp.beta[these], qp.lower[these], qp.upper[these], qp.target[these], diagonal))
    return float(found.reach), float(found.spread), float(found.fixed), float(found.room), ends


def _unsure_weights(
    qp: DualQP, b: float, data: RowBlocks, block: Block, rows: np.ndarray
) -> tuple[UnsureWeights, float]:
    """The bounds of the effect of rounding in a linear model, and the costs of rows on their kink.

    rows : indices within the block
    """
    ends, _ = unsure_costs(qp.f, qp.beta, qp.lower, qp.upper, qp.target, qp.epsilon, b, NEAR)
    found = UnsureWeights()
    for start, stop in tile(len(rows), _AT_ONCE):
        some = slice(start, stop)
        diagonal = diagonal_of(_LINEAR, data, readonly_view(block.X), rows[some], block.start + rows[some])
        found.add(qp.beta[some], qp.lower[some], qp.upper[some], diagonal)
    return found, float(ends)


def _qp_of(problem: Problem, m: int, block: Block, beta: np.ndarray) -> tuple[DualQP, np.ndarray]:
    """(the dual problem of a model without its f, indices of its rows) for the rows of a block that take part."""
    C = np.full(block.n_rows, problem.C[m])
    if block.sample_weight is not None:
        C *= block.sample_weight
    if problem.one_class:
        t, takes = np.zeros(block.n_rows), C > 0
    elif problem.regression:
        t, takes = block.y.astype(np.float64), C > 0
    else:
        codes = block.y.astype(np.int64)
        C *= problem.class_weight[codes]
        t, takes = _signs(problem, m, codes), C > 0
        if problem.negative[m] >= 0:
            takes &= (codes == problem.positive[m]) | (codes == problem.negative[m])
    rows = np.flatnonzero(takes)
    t, C = t[rows], C[rows]
    lower = -C if problem.regression else np.where(t >= 0, 0.0, -C)
    upper = C if problem.regression else np.where(t >= 0, C, 0.0)
    epsilon = problem.loss.epsilon
    return DualQP(t, lower, upper, epsilon, np.ascontiguousarray(beta[rows]), np.empty(len(rows))), rows


def _signs(problem: Problem, m: int, codes: np.ndarray) -> np.ndarray:
    """y of a model for class codes, float64."""
    return np.where(codes == problem.positive[m], 1.0, -1.0)


def _signed(problem: Problem, block: Block, alpha: np.ndarray) -> np.ndarray:
    """beta = y alpha; for regression beta is what was saved."""
    if problem.regression or problem.one_class:
        return alpha
    codes = block.y.astype(np.int64)
    return np.stack([_signs(problem, m, codes) * alpha[:, m] for m in range(problem.n_models)], axis=1)


BetaOf = Callable[[Any, Problem, Block, np.ndarray | None, str], np.ndarray]
"""Computes beta, float64 (n_rows, n_models), from (model, problem, block, its rows of alpha, name of the store)."""


def beta_of_alpha(model: Model, problem: Problem, block: Block, alpha: np.ndarray | None, where: str) -> np.ndarray:
    """beta of a block from the saved alpha; 0 if it was not saved.  For models that do not hold beta themselves."""
    return np.zeros((block.n_rows, problem.n_models)) if alpha is None else _signed(problem, block, alpha)


def beta_of_support(
    model: KernelModel, problem: Problem, block: Block, alpha: np.ndarray | None, where: str
) -> np.ndarray:
    """beta of a block, (n_rows, n_models), from the coefficients of the model.

    Raises DataError unless its support vectors are rows of the store, and its coefficients agree with alpha.
    """
    first, last = (bisect_left(model.support_rows, row) for row in (block.start, block.stop))
    at = model.support_rows[first:last] - block.start
    beta = np.zeros((block.n_rows, problem.n_models))
    beta[at] = np.array(model.dual_coef[:, first:last]).T
    if alpha is not None:
        differs = np.any(_signed(problem, block, alpha) != beta, axis=1)
        if differs.any():
            row = block.start + int(np.argmax(differs))
            raise DataError(f"alpha.npy and dual_coef.npy disagree on row {row}", where, TRAINING_STORE)
    if model.support is not None and len(at):
        given = take_rows(model.support, first, last)
        here: Matrix = CSR(*map(np.array, given)) if isinstance(given, CSR) else np.array(given)
        if _content(here) != _content(picked_rows(block.X, at)):
            raise DataError(
                f"a support vector among rows {block.start} to {block.stop} is not the row of that number",
                where,
                "certify with the training store",
            )
    return beta


def _content(X: Matrix) -> int:
    """A hash of rows that is the same in every layout."""
    digest = ContentHash()
    n = len(X.indptr) - 1 if isinstance(X, CSR) else len(X)
    digest.add_bits(X, np.zeros(n, np.uint64), None, 0)
    return digest.total


def _add_rows(v: np.ndarray, X: Matrix, beta: np.ndarray) -> None:
    """v[m] += sum_i beta[i, m] x_i; rows with beta = 0 are skipped."""
    for rows in _pieces(np.flatnonzero(np.any(beta != 0.0, axis=1)), v.shape[1]):
        picked = picked_rows(X, rows)
        if isinstance(picked, CSR):
            entry = np.repeat(np.arange(len(rows)), np.diff(picked.indptr))
            values = picked.data.astype(np.float64)
            for m in range(len(v)):
                np.add.at(v[m], picked.indices, values * beta[rows[entry], m])
        else:
            v[:, : picked.shape[1]] += beta[rows].T @ picked.astype(np.float64)


def _pieces(rows: np.ndarray, width: int) -> Iterator[np.ndarray]:
    step = max(_PIECE // max(width, 1), 16)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
