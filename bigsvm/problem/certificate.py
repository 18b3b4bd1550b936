"""The duality gap, computed apart from whatever solver produced the point.

P(w) - D(alpha) is evaluated as a sum of non-negative terms (see `compiled/linear/gap_terms.py`), with
v = sum_i alpha_i y_i x_i rebuilt from alpha in the same pass: neither rounding drift in w nor a solver's bug
can make it smaller than it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from bigsvm.compiled.linear import gap_terms as kernel
from bigsvm.compiled.linear.joint import certify_joint_rows
from bigsvm.compiled.shared.losses import DualModels, JointModels
from bigsvm.compiled.shared.rows import decision
from bigsvm.errors import DataError
from bigsvm.problem.joint import alpha_of_slacks, joint_slacks
from bigsvm.problem.linear_rounding import LinearRounding, linear_rounding
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import Block, BlockRef, Matrix, RowBlocks, blocks_of, readonly_view
from bigsvm.store.survey import Survey

_ROUNDING = 2.0**-50  # of sums in float64, relative
_BALANCED = 2.0**-44  # of sum y alpha against sum alpha, where the dual wants it 0
_ROUNDED = 2.0**-40  # of sum beta against sum |beta|, of a dual point that steps of two variables made
# Multiples of w that are tried beside w itself.  Coordinate descent of the dual nears the optimum in direction sooner
# than in length; the best multiple of w then has half the gap (docs/measurements.md 4.1).
_SCALES = np.array([0.7, 0.9, 0.97, 0.99, *(1.0 + 2.0 ** np.arange(-13, 1))])
_AT_MOST_SUMS = (
    4096  # of one model, kept apart block by block; more are added up: lists grow with neither data nor models
)
_LEAST_SUMS = 16  # blocks, however many models there are


@dataclass(frozen=True)
class Certificate:
    """What one pass over all rows proved about (w, alpha); arrays have one entry a model (one of all of a joint loss).

    primal : float64   P(w)
    dual : float64     a dual value, never below 0 (alpha = 0) once `keep_best` has seen it
    gap : float64      primal - dual, from non-negative terms where both are of one pass
    n_rows : int       rows seen; proves nothing unless all of them
    drift : float      largest |w - w(alpha)|
    n_support : int64  rows with alpha != 0
    """

    primal: np.ndarray
    dual: np.ndarray
    gap: np.ndarray
    n_rows: int
    drift: float
    n_support: np.ndarray
    kind: Literal["proved", "estimate", "none"] = "proved"

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Certificate:
        """The certificate whose fields a saved `tree` holds (`store/state/state_files.py`)."""
        arrays = {name: np.array(tree[name]) for name in ("primal", "dual", "gap", "n_support")}
        return cls(n_rows=tree["n_rows"], drift=tree["drift"], kind=tree["kind"], **arrays)

    @property
    def relative_gaps(self) -> np.ndarray:
        """(primal - best dual) / primal of each model, 0 where both are 0; infinite where either is no number."""
        ratio = np.divide(self.gap, self.primal, out=np.zeros_like(self.gap), where=self.primal != 0)
        return np.where(np.isfinite(self.primal) & np.isfinite(self.gap), ratio, np.inf)

    @property
    def relative_gap(self) -> float:
        """The largest over the models."""
        return float(self.relative_gaps.max())


class Proof(NamedTuple):
    """What was found of a point (w, alpha): the certificate of (scale w, alpha).

    v : float64, shape of w   w(alpha);  scale : float64, (n_models,)   1 where no multiple of w was asked for
    """

    certificate: Certificate
    v: np.ndarray
    scale: np.ndarray


class RowsShare(NamedTuple):
    """What a worker needs to certify a run of blocks that follow one another.

    Several blocks a task, because each task gives back a part of v as large as w.
    """

    data: RowBlocks
    refs: tuple[BlockRef, ...]
    problem: Problem
    w: np.ndarray
    alpha: np.ndarray | None  # (rows of all refs, n_models); None: the one that the margins give
    with_survey: bool = False  # also hash the content, for those who do not know yet what they read


class RowsTerms(NamedTuple):
    """The terms of some rows: sums (n_models, 10), v shaped like w, bytes read, survey if asked for."""

    sums: np.ndarray
    v: np.ndarray
    n_rows: int
    bytes_read: int
    survey: Survey | None


def certify_blocks(share: RowsShare) -> RowsTerms:
    """Task: the terms of a run of blocks.  Pure."""
    terms, n_rows = no_terms(share.problem, share.w), 0
    survey = Survey() if share.with_survey else None
    for block in blocks_of(share.data, share.refs):
        alpha = None if share.alpha is None else share.alpha[n_rows : n_rows + block.n_rows]
        terms = with_block(terms, share.problem, share.w, alpha, block)
        if survey is not None:
            survey.add(block, share.data.classes)
        n_rows += block.n_rows
    return terms._replace(survey=survey)


def no_terms(problem: Problem, w: np.ndarray) -> RowsTerms:
    """Of no rows."""
    return RowsTerms(np.zeros((problem.n_proofs, kernel.N_SUMS)), np.zeros(w.shape), 0, 0, None)


def with_block(terms: RowsTerms, problem: Problem, w: np.ndarray, alpha: np.ndarray | None, block: Block) -> RowsTerms:
    """The terms with those of a block's rows; adds to the arrays of `terms`.

    alpha : float64, (n_rows, n_models), or None: the one that the margins give
    """
    X, (y, cost) = readonly_view(block.X), problem.y_and_cost(block)
    if alpha is None:
        alpha = _alpha_of_margins(problem, X, y, cost, w)
    add_terms(X, y, cost, problem.models_on(block), alpha, w, terms.v, _SCALES[:0], terms.sums)
    return terms._replace(n_rows=terms.n_rows + block.n_rows, bytes_read=terms.bytes_read + block.nbytes)


def add_terms(
    X: Matrix, y: np.ndarray, cost: np.ndarray, models: DualModels | JointModels, alpha: np.ndarray, w: np.ndarray,
    v: np.ndarray, scales: np.ndarray, sums: np.ndarray,
) -> None:  # fmt: skip
    """Add the terms of some rows to v and sums, as `gap_terms.certify_rows` says."""
    if isinstance(models, JointModels):
        assert not len(scales)
        certify_joint_rows(X, y, cost, models, alpha, w, v, sums)
    else:
        kernel.certify_rows(X, y, cost, models, alpha, w, v, scales, sums)


def _alpha_of_margins(problem: Problem, X: Matrix, y: np.ndarray, cost: np.ndarray, w: np.ndarray) -> np.ndarray:
    """alpha_i = C_i loss'(s_i): in the box always, and tight at the optimum of the squared losses."""
    return alpha_of_slacks(problem, y, slacks_of(problem, X, y, w), cost[:, None] * problem.C[None, :])


def slacks_of(problem: Problem, X: Matrix, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """s_i of some rows at w, float64, (n_rows, n_models); of a joint loss 0 of a row's own class."""
    W = w if w.ndim == 2 else w[:, None]
    n_columns = X.shape[1] if isinstance(X, np.ndarray) else len(W) - 1
    scores = np.empty((len(y), problem.n_models))
    decision(X, np.ascontiguousarray(W[:n_columns]), scores)
    scores += problem.constant_feature * W[-1]
    if problem.regression:
        return y[:, None] - scores
    if problem.joint:
        return joint_slacks(scores, y)
    return np.asarray(1.0 - problem.signs(y) * scores)


class Accumulator:
    """Adds blocks' terms in block order; `finish` is the certificate of everything added.

    rescaled : bool   of the best multiple of w, among some, instead of w
    met : what rows as they are stored are met with, w as a rule;  v : what they sum up to
    """

    def __init__(self, problem: Problem, w: np.ndarray, rescaled: bool = False) -> None:
        self._problem, self._w = problem, w
        self.met = problem.met(w)
        self.scales = _SCALES if rescaled else _SCALES[:0]
        self.v = np.zeros(w.shape)
        self._sums: list[np.ndarray] = []
        self.n_rows = 0

    def no_sums(self) -> np.ndarray:
        """Of no rows, as `certify_rows` takes them."""
        return np.zeros((self._problem.n_proofs, kernel.N_SUMS + 2 * len(self.scales)))

    def add(self, terms: RowsTerms) -> None:
        """Add one task's terms; call in the order of the rows."""
        self.v += terms.v
        self.count(terms.sums, terms.n_rows)

    def count(self, sums: np.ndarray, n_rows: int) -> None:
        """Add the sums of rows whose part of v is in `v` already."""
        self._sums.append(sums)
        if len(self._sums) > max(_AT_MOST_SUMS // len(sums), _LEAST_SUMS):
            self._sums = [self.sums()]
        self.n_rows += n_rows

    def dump(self) -> dict[str, Any]:
        """What was added so far, for a checkpoint."""
        sums = np.array(self._sums).reshape(-1, *self.no_sums().shape)
        return {"v": self.v, "sums": sums, "n_rows": self.n_rows}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave.  Raises DataError where an earlier version gave it, with fewer sums."""
        if tree["sums"].shape[1:] != self.no_sums().shape:
            hint = "the version that began the fit ends it; or begin it again, in another --run"
            raise DataError("the checkpoint is of an earlier version, whose proofs kept fewer sums", hint=hint)
        self.v[...] = tree["v"]
        self._sums = [np.array(part) for part in tree["sums"]]
        self.n_rows = tree["n_rows"]

    def sums(self) -> np.ndarray:
        """The blocks' sums together, float64, shape (n_proofs, 10) and more where multiples of w are looked at."""
        if not self._sums:
            return self.no_sums()
        # A model after the other: all of them stacked would be a copy of everything.
        models = range(len(self._sums[0]))
        return np.array(
            [[math.fsum(column) for column in np.array([part[m] for part in self._sums]).T] for m in models]
        )

    def finish(self) -> Certificate:
        """The certificate of everything added."""
        return self.proof().certificate

    def proof(self) -> Proof:
        """The certificate with the multiple of w that it speaks of."""
        total = self.sums()
        free = self._problem.bias == "free"
        scale, v = np.ones(self._problem.n_models), self._problem.summed(self.v)
        norms = self._norms(scale, v)
        if len(self.scales):
            scale = self._choose_scales(total, norms[:, 0])
            norms = self._norms(scale, v)
        primal = 0.5 * norms[:, 0] + total[:, kernel.LOSS]
        gap = total[:, kernel.GAP] + 0.5 * norms[:, 1]
        rounding = self._rounding(scale, total, norms[:, 1])
        off = rounding.taken(gap, primal)
        added = rounding.added(gap, primal)
        gap = gap + added
        if free:
            gap += self._infeasible(total[:, kernel.SIZE], total[:, kernel.REACH])
        certificate = Certificate(
            primal=primal,
            dual=primal - gap - np.maximum(off - added, 0.0),
            gap=gap,
            n_rows=self.n_rows,
            drift=float(norms[:, 2].max()),
            n_support=total[:, kernel.SUPPORT].astype(np.int64),
        )
        return Proof(certificate, v, scale)

    def _rounding(self, scale: np.ndarray, total: np.ndarray, apart: np.ndarray) -> LinearRounding:
        """What rounding may be worth.  apart : float64, (n_proofs,)   ||scale w - v||^2"""
        squares = scale**2 * np.atleast_1d(np.einsum("j...,j...->...", self.met, self.met, dtype=np.float64))
        if self._problem.joint:
            squares = squares.sum(keepdims=True)
        return linear_rounding(
            np.sqrt(squares), np.sqrt(apart), total[:, kernel.GAP], total[:, kernel.LOSS], total[:, kernel.SPREAD],
            total[:, kernel.SLOPES], total[:, kernel.COSTS], squared=self._problem.loss.diag_factor > 0.0,
        )  # fmt: skip

    def _norms(self, scale: np.ndarray, v: np.ndarray) -> np.ndarray:
        norms = np.zeros((self._problem.n_models, 3))
        kernel.distances(self._w, scale, v, norms, 1 if self._problem.bias == "free" else 0)
        if self._problem.joint:
            return np.array([[*norms[:, :2].sum(axis=0), norms[:, 2].max()]])
        return norms

    def _choose_scales(self, total: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """The multiples of w with the smallest P; moves their brackets and losses to the front of `total`.

        norms : float64, (n_models,)   ||w||^2
        """
        scale = np.ones(len(norms))
        lowest = 0.5 * norms + total[:, kernel.LOSS]
        for k, t in enumerate(self.scales):
            gap, loss = total[:, kernel.N_SUMS + 2 * k], total[:, kernel.N_SUMS + 2 * k + 1]
            primal = 0.5 * t * t * norms + loss
            better = primal < lowest
            scale[better], lowest[better] = t, primal[better]
            total[better, kernel.GAP], total[better, kernel.LOSS] = gap[better], loss[better]
        return scale

    def _infeasible(self, size: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """What sum y alpha != 0 costs each model where the bias is free: -b sum y alpha, or all of the proof.

        size, reach : float64, (n_models,)   sums of |alpha|, and of the most that it is worth in the dual's linear part

        Rounding is forgiven: to scale the alphas of one sign of y alpha by as little changes the dual value by no more
        than is added here.
        """
        unbalanced = np.atleast_1d(self.v[-1]) / self._problem.constant_feature
        b = np.atleast_1d(self._w[-1]) * self._problem.constant_feature
        rounding = np.abs(unbalanced) <= _BALANCED * size
        norms = np.atleast_1d(np.einsum("j...,j...->...", self.v[:-1], self.v[:-1]))
        cost = np.abs(b * unbalanced) + _BALANCED * (reach + norms)
        return np.where(size == 0.0, 0.0, np.where(rounding, cost, np.inf))


def cost_of_imbalance(b: np.ndarray, total: np.ndarray, size: np.ndarray, quadratic: np.ndarray) -> np.ndarray:
    """What sum beta != 0 adds to the gap of each model of a kernel: its price where it is rounding, else all of it.

    total, size : sum beta and sum |beta|;  quadratic : beta'K beta.  -b sum beta is what the brackets leave out.  The
    betas of the heavier sign, made smaller by a factor 1 - d with d <= 2 |total| / size, would be balanced: D is then
    lower by no more than d (size + quadratic).
    """
    share = np.divide(np.abs(total), size, out=np.zeros_like(size), where=size > 0)
    cost = np.abs(b * total) + 2.0 * share * (size + np.abs(quadratic))
    return np.where(share <= _ROUNDED, cost, np.inf)


def above_zero(found: Certificate) -> Certificate:
    """What is proved of a dual point with kernel values: the dual value is never below 0, whatever this one is worth.

    beta = 0 has that value, whatever the kernel is, where a bias is free or not, and where nu bounds the sum of |beta|
    (nu-SVR).  Where nu wants a sum (nu-SVC, one-class) beta = 0 is not feasible; but what is bounded from below is
    1/2 ||w||^2 there, and that is not below 0 either.

    found : primal and dual value, and as `gap` the sum of non-negative terms, which counts where the kernel's kind is
        'proved'; of other kinds the gap is the difference alone
    """
    if found.kind != "proved":
        dual = np.maximum(found.dual, 0.0)
        return replace(found, dual=dual, gap=found.primal - dual)
    gap = np.minimum(found.gap, found.primal)
    return replace(found, dual=np.where(gap < found.primal, found.dual, 0.0), gap=gap)


def joined(certificates: Sequence[Certificate]) -> Certificate:
    """One certificate of several groups of models, trained and proved apart."""
    if len(certificates) == 1:
        return certificates[0]
    return Certificate(
        primal=np.concatenate([c.primal for c in certificates]),
        dual=np.concatenate([c.dual for c in certificates]),
        gap=np.concatenate([c.gap for c in certificates]),
        n_rows=min(c.n_rows for c in certificates),
        drift=max(c.drift for c in certificates),
        n_support=np.concatenate([c.n_support for c in certificates]),
    )


def part_of(whole: Certificate, models: slice) -> Certificate:
    """The certificate of some of the models."""
    names = ("primal", "dual", "gap", "n_support")
    return replace(whole, **{name: getattr(whole, name)[models] for name in names})


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
    # Elsewhere two sums are subtracted, and nothing below their rounding is proved.
    gap = np.where(better_primal & better_dual, new.gap, np.maximum(primal - dual, _ROUNDING * np.abs(primal)))
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


def of_written(new: Certificate, best: Certificate, better_primal: np.ndarray) -> Certificate:
    """What is proved of the best primal point and the dual point of the last proof, whose alpha is written.

    The best dual value may belong to an alpha that is gone: a bound of the optimum, but nothing that anybody could
    prove again from the model.

    new : of the last proof;  best, better_primal : as `keep_best` gave them of it
    """
    dual = np.maximum(new.dual, 0.0)
    own = np.where(new.dual < 0.0, new.primal, new.gap)
    apart = np.maximum(best.primal - dual, _ROUNDING * np.abs(best.primal))
    return replace(best, dual=dual, gap=np.where(better_primal, own, apart))
