"""The duality gap, computed apart from whatever solver produced the point.

P(w) - D(alpha) is evaluated as a sum of non-negative terms (see `kernels/certify.py`), with
v = sum_i alpha_i y_i x_i rebuilt from alpha in the same pass: neither rounding drift in w nor a solver's bug
can make it smaller than it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bigsvm.kernels import certify as kernel
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import BlockRef, RowBlocks, kernel_matrix


@dataclass(frozen=True)
class Certificate:
    """What one pass over all rows proved about (w, alpha); arrays have one entry a model.

    primal : float64   P(w)
    dual : float64     a dual value, never below 0 (alpha = 0) once `keep_best` has seen it
    gap : float64      primal - dual, from non-negative terms where both are of one pass
    n_rows : int       rows seen; proves nothing unless all of them
    drift : float      largest |w - w(alpha)|
    n_support : int64  rows with alpha > 0
    """

    primal: np.ndarray
    dual: np.ndarray
    gap: np.ndarray
    n_rows: int
    drift: float
    n_support: np.ndarray
    kind: Literal["proved", "estimate", "none"] = "proved"

    @property
    def relative_gaps(self) -> np.ndarray:
        """(primal - best dual) / primal of each model, 0 where both are 0."""
        return np.divide(self.gap, self.primal, out=np.zeros_like(self.gap), where=self.primal > 0)

    @property
    def relative_gap(self) -> float:
        """The largest over the models."""
        return float(self.relative_gaps.max())


class RowsShare(NamedTuple):
    """What a worker needs to certify one block."""

    data: RowBlocks
    ref: BlockRef
    problem: Problem
    w: np.ndarray
    alpha: np.ndarray | None  # None: no dual point is at hand, alpha = 0 stands in


class RowsTerms(NamedTuple):
    """A block's terms: sums (n_models, 5), v shaped like w, bytes read."""

    sums: np.ndarray
    v: np.ndarray
    n_rows: int
    bytes_read: int


def certify_block(share: RowsShare) -> RowsTerms:
    """Task: the terms of one block.  Pure."""
    block = share.data.read(share.ref)
    codes, cost = share.problem.codes_and_cost(block)
    alpha = share.alpha
    if alpha is None:
        alpha = np.zeros((block.n_rows, share.problem.n_models))
    sums = np.zeros((share.problem.n_models, kernel.N_SUMS))
    v = np.zeros_like(share.w)
    kernel.certify_rows(
        kernel_matrix(block.X),
        codes,
        share.problem.positive,
        cost,
        share.problem.C,
        alpha,
        share.w,
        v,
        share.problem.box,
        sums,
    )
    return RowsTerms(sums, v, block.n_rows, block.nbytes)


class Accumulator:
    """Adds blocks' terms in block order; `finish` is the certificate and w(alpha)."""

    def __init__(self, problem: Problem, w: np.ndarray) -> None:
        self._problem, self._w = problem, w
        self.v = np.zeros_like(w)
        self._sums: list[np.ndarray] = []
        self.n_rows = 0

    def add(self, terms: RowsTerms) -> None:
        """Add one block; call in block order."""
        self.v += terms.v
        self._sums.append(terms.sums)
        self.n_rows += terms.n_rows

    def sums(self) -> np.ndarray:
        """The blocks' sums together, float64, shape (n_models, 5)."""
        stacked = np.array(self._sums)
        models, columns = range(self._problem.n_models), range(kernel.N_SUMS)
        return np.array([[math.fsum(stacked[:, m, k]) for k in columns] for m in models])

    def finish(self) -> Certificate:
        """The certificate of everything added."""
        total = self.sums()
        difference = self._w - self.v
        primal = 0.5 * _sqnorms(self._w) + total[:, kernel.LOSS]
        gap = total[:, kernel.GAP] + 0.5 * _sqnorms(difference)
        return Certificate(
            primal=primal,
            dual=primal - gap,
            gap=gap,
            n_rows=self.n_rows,
            drift=float(np.abs(difference).max(initial=0.0)),
            n_support=total[:, kernel.SUPPORT].astype(np.int64),
        )


def _sqnorms(w: np.ndarray) -> np.ndarray:
    """Squared norm of each model's weights, shape (n_models,)."""
    return np.atleast_1d(np.sum(w * w, axis=0))


def keep_best(new: Certificate, best: Certificate | None) -> tuple[Certificate, np.ndarray]:
    """The best that is proved so far, and for which models `new` brought the better primal point.

    Any primal point and any dual value bound the optimum from their side, whichever pass they come from; 0
    is the dual value of alpha = 0.  So the gap that is reported never rises.
    """
    old_primal = np.full_like(new.primal, np.inf) if best is None else best.primal
    old_dual = np.zeros_like(new.dual) if best is None else best.dual
    better_primal, better_dual = new.primal < old_primal, new.dual > old_dual
    primal = np.where(better_primal, new.primal, old_primal)
    dual = np.where(better_dual, new.dual, old_dual)
    # Where both are this pass's own, the sum of non-negative terms stands: nothing cancels in it.
    gap = np.where(better_primal & better_dual, new.gap, primal - dual)
    together = Certificate(
        primal=primal,
        dual=dual,
        gap=gap,
        n_rows=new.n_rows,
        drift=new.drift,
        n_support=new.n_support,
        kind=new.kind,
    )
    return together, better_primal
