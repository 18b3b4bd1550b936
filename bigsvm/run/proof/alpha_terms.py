"""The terms of the gap of linear models, one against the rest or regression; the dual point is alpha."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from bigsvm.compiled.linear.gap_terms import ALPHA_DIAG, LINEAR, SPREAD
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.certificate import Accumulator, Certificate, RowsShare, RowsTerms, certify_blocks, keep_best
from bigsvm.problem.linear_rounding import rounding_of_norm
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.run.proof.terms import Alpha, SavedTerms
from bigsvm.store.blocks import BlockRef, RowBlocks, row_bytes
from bigsvm.tasks import Mapper, over_shares


class AlphaTerms(SavedTerms):
    """The terms that a running fit computes (`problem/certificate.py`), from the saved w and alpha.

    If alpha was not saved, a dual point is made from the margins; its best multiple gives the bound.
    """

    def __init__(self, model: LinearModel, problem: Problem, store: RowBlocks, alpha: Alpha) -> None:
        super().__init__(model, problem, store, alpha)
        self.w = weights_of(model, problem, store.n_features)
        self.held_bytes = (3 if problem.centre is None else 6) * self.w.nbytes
        self._total = Accumulator(problem, self.w)

    @property
    def bound(self) -> str:
        """The dual point that proves the gap, for the result."""
        if self.alpha is not None:
            return "alpha"
        return "weaker bound: no alpha was saved, so a dual point was made from the margins"

    def block_rows(self, block_bytes: int) -> int:
        """Number of rows in a block whose values take about `block_bytes`."""
        return int(min(max(block_bytes // row_bytes(self.store), 1), self.store.n_samples))

    def task_bytes(self, block_rows: int, block_bytes: int) -> int:
        """Bytes of a task: its part of v, and a block with the chunks that it is decoded from."""
        return self.w.nbytes + 2 * max(block_bytes, int(row_bytes(self.store) * block_rows))

    def results(
        self, mapper: Mapper, runs: Iterable[tuple[BlockRef, ...]], at_most: int
    ) -> Iterator[tuple[tuple[BlockRef, ...], RowsTerms]]:
        """The terms of runs of consecutive blocks."""

        def share(run: tuple[BlockRef, ...]) -> RowsShare:
            return RowsShare(self.store, run, self.problem, self._total.met, self.alpha_of(run), with_survey=True)

        return over_shares(mapper, certify_blocks, runs, share, at_most)

    def add(self, found: RowsTerms) -> None:
        """Add the result of a task; called in the order of the rows."""
        self._total.add(found)
        assert found.survey is not None
        self.survey.merge(found.survey)
        self.n_rows = self._total.n_rows

    def certificate(self, problem: Problem) -> Certificate:
        """The certificate from all rows."""
        found = self._total.finish() if self.alpha is not None else _best_scaled(self._total, problem)
        return keep_best(found, None)[0]


def _best_scaled(total: Accumulator, problem: Problem) -> Certificate:
    """The certificate for the best multiple t alpha of the dual point; D(t) is a parabola.

    D(t) = t A - t^2 (||v||^2 / 2 + sum D_i alpha_i^2 / 2), with t <= 1 if alpha is bounded.  A is sum alpha for
    classes, and sum (y alpha - epsilon |alpha|) for targets.
    """
    certificate, whole, _ = total.proof()
    if problem.bias == "free":  # a multiple does not satisfy sum y alpha = 0 any better: only alpha = 0 surely does
        dual = np.maximum(certificate.dual, 0.0)
        return dataclasses.replace(certificate, dual=dual, gap=certificate.primal - dual)
    sums = total.sums()
    v = whole if whole.ndim == 2 else whole[:, None]
    norms = np.sum(v * v, axis=0)
    norms = norms.sum(keepdims=True) if problem.joint else norms
    quadratic = 0.5 * norms + sums[:, ALPHA_DIAG]
    linear = sums[:, LINEAR]
    t = np.divide(linear, 2.0 * quadratic, out=np.zeros_like(linear), where=(quadratic > 0) & (linear > 0))
    if np.isfinite(problem.loss.upper_factor):
        t = np.minimum(t, 1.0)
    value = t * linear - t * t * quadratic
    unsure = t * t * rounding_of_norm(np.sqrt(norms), sums[:, SPREAD])
    dual = np.maximum(value - np.where(unsure > 2.0**-40 * value, unsure, 0.0), certificate.dual)
    return Certificate(
        certificate.primal, dual, certificate.primal - dual, certificate.n_rows, 0.0, certificate.n_support
    )


def weights_of(model: LinearModel, problem: Problem, n_features: int) -> np.ndarray:
    """w with its bias entry, for data with at least the model's features and at least `n_features`."""
    width = max(n_features, model.n_features)
    w = zero_weights(width, problem.n_models)
    columns = w if w.ndim == 2 else w[:, None]
    columns[: model.n_features] = model.coef.T
    if problem.centre is not None:
        columns[-1] = problem.centre.bias_of(model.coef, model.intercept)
    elif problem.constant_feature:
        columns[-1] = model.intercept / problem.constant_feature
    return w
