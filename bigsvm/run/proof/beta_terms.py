"""The terms of the gap of kernel models, pairs of classes and some regressions, whose beta = y alpha has both signs.

f is computed by other code than in training.  Nothing is kept of a block of rows but sums (`beta_sums.py`).
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.errors import DataError
from bigsvm.files.packed_text import text_bytes
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.certificate import Certificate, above_zero, beta_imbalance
from bigsvm.problem.definite import whole_bytes
from bigsvm.problem.linear_rounding import UnsureWeights
from bigsvm.problem.nu import NuTotals, imbalance_of_tube, priced
from bigsvm.problem.problem import Problem
from bigsvm.problem.rounding import Unsure, rounding_cost
from bigsvm.run.fit.sizes import FIXED
from bigsvm.run.proof.beta_sums import (
    BRACKETS,
    COSTS,
    ENDS,
    LINEAR,
    LOSS,
    NORMS,
    QUADRATIC,
    REACH,
    ROOM,
    SIZE,
    SPREAD,
    SQUARES,
    BetaOf,
    BetaShare,
    BetaSums,
    beta_of_alpha,
    beta_of_support,
    sums_of_blocks,
)
from bigsvm.run.proof.kernel_check import check_needs, checked_kernel, quadratic_refutes, refuted
from bigsvm.run.proof.terms import Alpha, SavedTerms
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks, blocks_of, row_bytes
from bigsvm.tasks import Mapper, over_shares
from bigsvm.units import MIB

_MOST_ROWS = 4096  # limit of the rows of a block, so that there are enough blocks for all threads
_A_MODEL = 12  # float64 values for each row and model: alpha, beta, scores, and the arrays of one model's dual problem


class BetaTerms(SavedTerms):
    """The common part for kernel models and linear models.

    scoring_bytes : bytes that a task needs to score a block;  with_v : compute v = sum beta_i x_i as well
    """

    def __init__(self, model: Any, problem: Problem, store: RowBlocks, alpha: Alpha) -> None:
        super().__init__(model, problem, store, alpha)
        self.scoring_bytes = 0
        self.with_v = False
        self.total = BetaSums.none(model, False)

    def block_rows(self, block_bytes: int) -> int:
        """Number of rows in a block whose values, for all its models, take about `block_bytes`."""
        a_row = row_bytes(self.store) + self._value_bytes
        return int(min(max(block_bytes // a_row, 1), self.store.n_samples, _MOST_ROWS))

    def task_bytes(self, block_rows: int, block_bytes: int) -> int:
        """Bytes of a task: a block, its support vectors once more, and temporary values of its rows."""
        return int(3 * row_bytes(self.store) * block_rows) + self._value_bytes * block_rows + self.scoring_bytes

    @property
    def _value_bytes(self) -> int:
        return 8 * _A_MODEL * self.problem.n_models

    @property
    @abstractmethod
    def beta_of(self) -> BetaOf:
        """The function that computes beta of the rows of a block."""

    def results(
        self, mapper: Mapper, runs: Iterable[tuple[BlockRef, ...]], at_most: int
    ) -> Iterator[tuple[tuple[BlockRef, ...], BetaSums]]:
        """The sums over runs of consecutive blocks."""

        def share(run: tuple[BlockRef, ...]) -> BetaShare:
            alpha = self.alpha_of(run)
            return BetaShare(self.store, run, self.problem, self.model, alpha, self.beta_of, self.with_v)

        return over_shares(mapper, sums_of_blocks, runs, share, at_most)

    def add(self, found: BetaSums) -> None:
        """Add the result of a task; called in the order of the rows."""
        self.total.merge(found)
        self.survey, self.n_rows = self.total.survey, self.total.n_rows

    def certificate(self, problem: Problem) -> Certificate:
        """P, D and their gap from the sums over all rows, of terms that are not negative (docs/mathematics.md 2.1)."""
        total, sums = self.total, self.total.sums
        w_sq, v_sq, apart = self.norms()
        if problem.loss.nu is not None:
            return self._nu_certificate(problem, v_sq, apart)
        primal, dual = 0.5 * w_sq + sums[:, LOSS], sums[:, LINEAR] - 0.5 * v_sq
        cost = beta_imbalance(total.balance, sums[:, SIZE], primal, np.sqrt(apart), sums[:, REACH])
        gap = sums[:, BRACKETS] + 0.5 * apart + cost
        gap = gap + self._rounding(primal, gap, v_sq, apart)
        drift, kind = float(np.sqrt(apart.max())), problem.kernel.certificate
        return above_zero(Certificate(primal, dual, gap, total.n_rows, drift, total.n_support, kind))

    def _nu_certificate(self, problem: Problem, v_sq: np.ndarray, apart: np.ndarray) -> Certificate:
        """The certificate of a nu problem; a model that was saved without alpha cannot be proved.

        The model of nu-SVC is scaled to margin 1 and C = 1 / rho, so w of the original problem is rho times that.
        """
        if self.with_alpha_missing:
            raise DataError("the model was saved without alpha, and without alpha no gap of a nu problem can be proved")
        total, sums, m = self.total, self.total.sums, problem.n_models
        b, epsilon = self.model.intercept, np.full(m, problem.loss.epsilon)
        totals = NuTotals((problem.loss.nu or 0.0) * sums[:, COSTS], problem.regression, problem.one_class)
        beta_t = sums[:, LINEAR] + epsilon * sums[:, SIZE] if problem.regression else np.zeros(m)
        level = epsilon if problem.regression or problem.one_class else epsilon - 1.0
        found = priced(
            totals,
            sums[:, BRACKETS],
            sums[:, LOSS],
            v_sq,
            beta_t,
            total.balance,
            sums[:, SIZE],
            b,
            level,
            sums[:, REACH],
        )
        unit = np.ones(m) if problem.regression or problem.one_class else 1.0 / problem.C**2
        gap, primal, dual = found
        if problem.regression:
            gap = gap + imbalance_of_tube(total.balance, sums[:, SIZE], primal, sums[:, REACH], epsilon)
        gap, primal, dual = (unit * part for part in (gap + self._rounding(primal, gap, v_sq, apart), primal, dual))
        # The objective is computed from the w of the rows; the distance of the written w adds to the gap.
        gap = gap + 0.5 * unit * apart
        if problem.regression:
            primal = primal + 0.5 * (self.norms()[0] - v_sq)
        else:
            dual = np.subtract(primal, gap, out=np.zeros(m), where=np.isfinite(gap))
        drift, kind = float(np.sqrt(apart.max())), problem.kernel.certificate
        return above_zero(Certificate(primal, dual, gap, total.n_rows, drift, total.n_support, kind))

    def _rounding(self, primal: np.ndarray, gap: np.ndarray, v_sq: np.ndarray, apart: np.ndarray) -> np.ndarray:
        """The amount that rounding of scores, or of w and its scores, adds to the gap of each model.

        v_sq, apart : ||v||^2 and ||w - v||^2
        """
        sums, b = self.total.sums, self.model.intercept
        if self.model.kind == "linear":
            weights = UnsureWeights(
                sums[:, REACH], sums[:, SPREAD], sums[:, ROOM], sums[:, NORMS], sums[:, COSTS], self.total.largest
            )
            return weights.rounding(np.sqrt(v_sq), b, sums[:, ENDS], np.sqrt(apart)).added(gap, primal)
        unsure = Unsure(*sums[:, REACH:ENDS].T)
        level = np.abs(b) + abs(self.problem.loss.epsilon)
        return rounding_cost(unsure, sums[:, ENDS], sums[:, COSTS], sums[:, SIZE], level, primal, gap)

    @property
    def with_alpha_missing(self) -> bool:
        """Whether there is no saved dual point."""
        return self.alpha is None and self.model.kind != "kernel"

    @abstractmethod
    def norms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """||w||^2, ||v||^2 and ||w - v||^2 of each model, float64, (n_models,)."""

    def said(self) -> dict[str, Any]:
        """The violation b_low - b_up of the worst model, at least 0; a model whose beta are all fixed has none."""
        b_up, b_low = self.total.b_up, self.total.b_low
        known = np.isfinite(b_up) & np.isfinite(b_low)
        return {"violation": float(np.max(b_low[known] - b_up[known], initial=0.0))}


class SignedLinearTerms(BetaTerms):
    """The terms of linear models for pairs of classes, and for regression: w is compared with v."""

    def __init__(self, model: LinearModel, problem: Problem, store: RowBlocks, alpha: Alpha) -> None:
        super().__init__(model, problem, store, alpha)
        self.held_bytes = 3 * model.coef.nbytes
        self.scoring_bytes = 2 * model.coef.nbytes + 2 * MIB
        self.with_v = alpha is not None
        self.total = BetaSums.none(model, self.with_v)

    @property
    def bound(self) -> str:
        """The dual point that proves the gap, for the result."""
        return "alpha" if self.alpha is not None else "weaker bound: no alpha was saved, alpha = 0 was used"

    @property
    def beta_of(self) -> BetaOf:
        """The function that computes beta from the saved alpha."""
        return beta_of_alpha

    def norms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The norms for w = coef, and for v from the rows and alpha."""
        w = self.model.coef
        v = self.total.v if len(self.total.v) else np.zeros(w.shape)
        apart = np.einsum("mj,mj->m", w - v, w - v)
        return np.einsum("mj,mj->m", w, w), np.einsum("mj,mj->m", v, v), apart


class KernelTerms(BetaTerms):
    """The terms of kernel models, where w = v once every support vector is checked to be a row of the store.

    If the kernel is not positive semidefinite, there is no gap, and the violation of the optimality conditions is
    reported instead.  A precomputed kernel is checked as in a fit, in a pass of its own.
    """

    def __init__(self, model: KernelModel, problem: Problem, store: RowBlocks, alpha: Alpha) -> None:
        super().__init__(model, problem, store, alpha)
        self.scoring_bytes = model.scoring_bytes
        self.blocks_per_task = 1

    @property
    def bound(self) -> str:
        """The dual point that proves the gap, for the result."""
        return "alpha" if self.alpha is not None else "dual_coef"

    @property
    def beta_of(self) -> BetaOf:
        """The function that computes beta from the coefficients, after comparing these with alpha."""
        return beta_of_support

    def norms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The norms, which are beta'K beta for both w and v."""
        quadratic = self.total.sums[:, QUADRATIC]
        return quadratic, quadratic, np.zeros(len(quadratic))

    def checked(self, refs: Sequence[BlockRef], budget: int) -> Problem:
        """The problem with what rows and dual point tell about the kernel; K is factorised if it fits the memory."""
        kernel, store = self.problem.kernel, self.store
        if kernel.by_construction:
            return self.problem
        n = store.n_samples
        needs = sum(need.nbytes for need in check_needs(kernel, n)) + int(3 * row_bytes(store) * refs[0].n_rows)
        needs += store.chunk_nbytes * 2 + FIXED + text_bytes(store.feature_names)
        decide = kernel.name == "precomputed" and needs + whole_bytes(n) <= budget

        def reading() -> Iterator[tuple[int, Matrix]]:
            for block in blocks_of(store, refs):
                yield block.start, block.X

        kernel = checked_kernel(kernel, store, reading, MemoryBudget(budget), decide)
        for m in range(len(self.total.sums)):
            if kernel.definite.how in ("checked", "refuted"):
                break
            quadratic, squares, size = self.total.sums[m, [QUADRATIC, SQUARES, SIZE]].tolist()
            why = quadratic_refutes(kernel, quadratic, squares, size)
            if why and kernel.definite.how == "assumed":
                raise refuted(why, store.uri)
            if why:
                kernel = kernel.refuted_by(why)
        return dataclasses.replace(self.problem, kernel=kernel)
