"""The certificate: a proof of the duality gap of (w, alpha), computed independently of the solver.

P(w) - D(alpha) is evaluated as a sum of non-negative terms (`compiled/linear/gap_terms.py`).  The vector
v = sum_i alpha_i y_i x_i is rebuilt from alpha in the same pass, so neither rounding in the solver's w nor a bug of the
solver can make the gap look smaller than it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

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
from bigsvm.store.join import parts_for
from bigsvm.store.survey import Survey

_ROUNDING = 2.0**-50  # relative rounding error of sums in float64
_BALANCED = 2.0**-44  # |sum y alpha| / sum |alpha| up to which a dual point counts as feasible with a free bias
_UNKNOWN = 2.0**-80  # share of sum |alpha| to which sum y alpha is known: it is summed with twice the digits
_UNSURE = 2.0**-50  # the same of sum beta, generously
_ROUNDED = 2.0**-40  # the same for |sum beta| / sum |beta|, after steps of two variables
# Multiples of w that are tried beside w itself.  Dual coordinate descent has the direction of the optimum sooner than
# its length; the best multiple of w then has half the gap (docs/measurements.md 4.1).
_SCALES = np.array([0.7, 0.9, 0.97, 0.99, *(1.0 + 2.0 ** np.arange(-13, 1))])
# The same for a fit that a limit ends: as long as w is far too long P may be many times that of w = 0.  The best
# multiple is no worse than w = 0, and tells the classes apart as w does.
_SHORT_SCALES = np.concatenate([4.0 ** np.arange(-24, -2), 2.0 ** np.arange(-4, 0), _SCALES])
SHORTENED = _SHORT_SCALES[_SHORT_SCALES < 1.0]
"""The same of dual points, which would leave their boxes if they were longer."""
NOTHING = 4.0**-14
"""A best multiple with a factor below this is as good as w = 0: P rises along w, or falls nowhere."""
# Sums of blocks that are kept apart (for one model); beyond that they are added up, so that memory does not grow with
# the data or the number of models.
_AT_MOST_SUMS = 4096
_LEAST_SUMS = 16  # the same for many models


Kind = Literal["proved", "estimate", "none"]
"""What a certificate claims, the strongest first."""


@dataclass(frozen=True)
class Certificate:
    """What one pass over all rows proved about (w, alpha).

    Arrays have one entry for each model, or a single one if the loss couples all models.

    primal : float64, (n_proofs,)   P(w)
    dual : float64, (n_proofs,)     a dual value; after `keep_best` never below 0, the value of alpha = 0
    gap : float64, (n_proofs,)      primal - dual, as a sum of non-negative terms if both are from one pass
    n_rows : int                    rows seen; nothing is proved unless these are all rows
    drift : float                   largest |w_j - w(alpha)_j|
    n_support : int64, (n_proofs,)  rows with alpha != 0
    kind : str                      'proved'; 'estimate' or 'none' if the kernel may be indefinite
    """

    primal: np.ndarray
    dual: np.ndarray
    gap: np.ndarray
    n_rows: int
    drift: float
    n_support: np.ndarray
    kind: Kind = "proved"

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Certificate:
        """The certificate whose fields a saved `tree` holds (`store/state/state_files.py`)."""
        arrays = {name: np.array(tree[name]) for name in ("primal", "dual", "gap", "n_support")}
        return cls(n_rows=tree["n_rows"], drift=tree["drift"], kind=tree["kind"], **arrays)

    @property
    def relative_gaps(self) -> np.ndarray:
        """gap / primal of each model; 0 if both are 0, and infinite if one of them is not finite."""
        ratio = np.divide(self.gap, self.primal, out=np.zeros_like(self.gap), where=self.primal != 0)
        return np.where(np.isfinite(self.primal) & np.isfinite(self.gap), ratio, np.inf)

    @property
    def relative_gap(self) -> float:
        """The largest relative gap of all models."""
        return float(self.relative_gaps.max())


class Proof(NamedTuple):
    """The result of a proof of (w, alpha): the certificate of (scale w, alpha).

    v : float64, shape of w         w(alpha)
    scale : float64, (n_models,)    the best multiples of w; 1 if they were not asked for
    """

    certificate: Certificate
    v: np.ndarray
    scale: np.ndarray


class RowsShare(NamedTuple):
    """The input of a task that certifies a run of consecutive blocks.

    A task has several blocks, because its result contains a part of v as large as w.
    """

    data: RowBlocks
    refs: tuple[BlockRef, ...]
    problem: Problem
    w: np.ndarray
    alpha: np.ndarray | None  # (rows of all refs, n_models); None: alpha is computed from the slacks
    with_survey: bool = False  # also hash the content, to find out which data these are
    scales: np.ndarray = _SCALES[:0]  # multiples of w to try


class RowsTerms(NamedTuple):
    """The terms of some rows: sums, float64, (n_proofs, N_SUMS); v, shape of w; counts; and a survey if asked for."""

    sums: np.ndarray
    v: np.ndarray
    n_rows: int
    bytes_read: int
    survey: Survey | None


def certify_blocks(share: RowsShare) -> RowsTerms:
    """Task: the terms of a run of blocks.  Pure."""
    terms, n_rows = no_terms(share.problem, share.w, len(share.scales)), 0
    survey = Survey() if share.with_survey else None
    blocks = blocks_of(share.data, share.refs)
    # Computing alpha takes several arrays of (rows, models).
    for block in blocks if share.alpha is not None else parts_for(blocks, share.problem.n_models):
        alpha = None if share.alpha is None else share.alpha[n_rows : n_rows + block.n_rows]
        terms = with_block(terms, share.problem, share.w, alpha, block, share.scales)
        if survey is not None:
            survey.add(block, share.data.classes)
        n_rows += block.n_rows
    return terms._replace(survey=survey)


def no_terms(problem: Problem, w: np.ndarray, n_scales: int = 0) -> RowsTerms:
    """The terms of no rows, for w and for some multiples of it."""
    return RowsTerms(np.zeros((problem.n_proofs, kernel.N_SUMS + 2 * n_scales)), np.zeros(w.shape), 0, 0, None)


def with_block(
    terms: RowsTerms, problem: Problem, w: np.ndarray, alpha: np.ndarray | None, block: Block,
    scales: np.ndarray = _SCALES[:0],
) -> RowsTerms:  # fmt: skip
    """Add the terms of a block of rows; the arrays of `terms` change in place.

    alpha : float64, (n_rows, n_models), or None: alpha is computed from the slacks
    scales : the multiples of w that are tried beside w
    """
    X, (y, cost) = readonly_view(block.X), problem.y_and_cost(block)
    if alpha is None:
        alpha = _alpha_of_margins(problem, X, y, cost, w)
    add_terms(X, y, cost, problem.models_on(block), alpha, w, terms.v, scales, terms.sums)
    return terms._replace(n_rows=terms.n_rows + block.n_rows, bytes_read=terms.bytes_read + block.nbytes)


def add_terms(
    X: Matrix, y: np.ndarray, cost: np.ndarray, models: DualModels | JointModels, alpha: np.ndarray, w: np.ndarray,
    v: np.ndarray, scales: np.ndarray, sums: np.ndarray,
) -> None:  # fmt: skip
    """Add the terms of some rows to v and sums; see `gap_terms.certify_rows`."""
    if isinstance(models, JointModels):
        certify_joint_rows(X, y, cost, models, alpha, w, v, scales, sums)
    else:
        kernel.certify_rows(X, y, cost, models, alpha, w, v, scales, sums)


def _alpha_of_margins(problem: Problem, X: Matrix, y: np.ndarray, cost: np.ndarray, w: np.ndarray) -> np.ndarray:
    """alpha_i = C_i loss'(s_i): always feasible, and for the squared losses optimal if w is."""
    return alpha_of_slacks(problem, y, slacks_of(problem, X, y, w), cost[:, None] * problem.C[None, :])


def slacks_of(problem: Problem, X: Matrix, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Slacks of some rows at w, float64, (n_rows, n_models); with a joint loss the own class of a row has slack 0."""
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
    """Adds up the terms of blocks, in their order; `finish` gives the certificate.

    rescaled : bool   prove the best of some multiples of w instead of w
    shortened : bool  try much shorter ones, too
    met : float64, shape of w   weights for stored rows (`Problem.met`), usually w
    v : float64, shape of w     sum of alpha_i y_i x_i over stored rows
    """

    def __init__(self, problem: Problem, w: np.ndarray, rescaled: bool = False, shortened: bool = False) -> None:
        self._problem, self._w = problem, w
        self.met = problem.met(w)
        self.scales = (_SHORT_SCALES if shortened else _SCALES) if rescaled else _SCALES[:0]
        self.v = np.zeros(w.shape)
        self._sums: list[np.ndarray] = []
        self.n_rows = 0

    def no_sums(self) -> np.ndarray:
        """The sums over no rows, for `certify_rows`."""
        return np.zeros((self._problem.n_proofs, kernel.N_SUMS + 2 * len(self.scales)))

    def add(self, terms: RowsTerms) -> None:
        """Add the terms of one task; tasks must come in the order of the rows."""
        self.v += terms.v
        self.count(terms.sums, terms.n_rows)

    def count(self, sums: np.ndarray, n_rows: int) -> None:
        """Add sums of rows whose part of v was added to `v` already."""
        self._sums.append(sums)
        if len(self._sums) > max(_AT_MOST_SUMS // len(sums), _LEAST_SUMS):
            self._sums = [self.sums()]
        self.n_rows += n_rows

    def dump(self) -> dict[str, Any]:
        """Everything added so far, for a checkpoint."""
        sums = np.array(self._sums).reshape(-1, *self.no_sums().shape)
        return {"v": self.v, "sums": sums, "n_rows": self.n_rows}

    def load(self, tree: dict[str, Any]) -> None:
        """Restore what `dump` returned.  Raises DataError if an earlier version wrote it, with fewer sums."""
        sums = tree["sums"]
        if self._problem.bias != "free" and sums.shape[2] == self.no_sums().shape[1] - 1:
            sums = np.insert(sums, kernel.LOST, 0.0, axis=2)  # the sum that was added last is for a free bias only
        if sums.shape[1:] != self.no_sums().shape:
            hint = "the version that began the fit ends it; or begin it again, in another --run"
            raise DataError("the checkpoint is of an earlier version, whose proofs kept fewer sums", hint=hint)
        self.v[...] = tree["v"]
        self._sums = [np.array(part) for part in sums]
        self.n_rows = tree["n_rows"]

    def sums(self) -> np.ndarray:
        """The sums over all blocks, float64, (n_proofs, N_SUMS), with two more columns for each multiple of w."""
        if not self._sums:
            return self.no_sums()
        # One model at a time, because stacking all of them would copy everything.
        models = range(len(self._sums[0]))
        return np.array([_added(np.array([part[m] for part in self._sums])) for m in models])

    def finish(self) -> Certificate:
        """The certificate of everything added."""
        return self.proof().certificate

    def proof(self) -> Proof:
        """The certificate, with v and the multiples of w that it is about."""
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
            gap += _linear_imbalance(total, primal, norms[:, 1])
        # Where a bound overflows, all that is known of the optimum is D = 0, the value of alpha = 0.
        known = np.isfinite(off) & ~np.isnan(gap)
        certificate = Certificate(
            primal=primal,
            dual=np.where(known, primal - gap - np.maximum(off - added, 0.0), 0.0),
            gap=np.where(known, gap, primal),
            n_rows=self.n_rows,
            drift=float(norms[:, 2].max()),
            n_support=total[:, kernel.SUPPORT].astype(np.int64),
        )
        return Proof(certificate, v, scale)

    def _rounding(self, scale: np.ndarray, total: np.ndarray, apart: np.ndarray) -> LinearRounding:
        """How much rounding may change the gap and P.  apart : float64, (n_proofs,)   ||scale w - v||^2"""
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
        """The multiples of w with the smallest P.  Their brackets and losses replace those of w in `total`.

        norms : float64, (n_models,)   ||w||^2
        """
        scale = np.ones(len(norms))  # one for all models if the loss couples them
        lowest = 0.5 * norms + total[:, kernel.LOSS]
        for k, t in enumerate(self.scales):
            gap, loss = total[:, kernel.N_SUMS + 2 * k], total[:, kernel.N_SUMS + 2 * k + 1]
            primal = 0.5 * t * t * norms + loss
            better = primal < lowest
            scale[better], lowest[better] = t, primal[better]
            total[better, kernel.GAP], total[better, kernel.LOSS] = gap[better], loss[better]
        return np.broadcast_to(scale, self._problem.n_models).copy()


def _added(parts: np.ndarray) -> list[float]:
    """The sums of the columns of `parts`; what rounding takes from sum y alpha goes to LOST, since parts may follow."""
    total = [math.fsum(column) for column in parts.T]
    if math.isfinite(total[kernel.BALANCE]):
        total[kernel.LOST] = math.fsum([*parts[:, kernel.LOST], *parts[:, kernel.BALANCE], -total[kernel.BALANCE]])
    return total


def _linear_imbalance(total: np.ndarray, primal: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """`cost_of_imbalance` of linear models; float64, (n_models,).

    total : float64, (n_models, N_SUMS or more);  primal, apart : float64, (n_models,), P and ||w - v||^2
    """
    size = total[:, kernel.SIZE]
    off = np.abs(total[:, kernel.BALANCE] + total[:, kernel.LOST]) + _UNKNOWN * size
    cost = cost_of_imbalance(off, size, primal, np.sqrt(apart), total[:, kernel.SPREAD], total[:, kernel.ALPHA_DIAG])
    return np.where(off <= _BALANCED * size, cost, np.inf)


def beta_imbalance(
    total: np.ndarray, size: np.ndarray, primal: np.ndarray, apart: np.ndarray, spread: np.ndarray
) -> np.ndarray:
    """`cost_of_imbalance` of models whose beta has both signs; float64, (n_models,).

    total : sum beta, in float64;  the others as there
    """
    off = np.abs(total) + _UNSURE * size
    cost = cost_of_imbalance(off, size, primal, apart, spread, np.zeros_like(size))
    return np.where(off <= _ROUNDED * size, cost, np.inf)


def cost_of_imbalance(
    off: np.ndarray, size: np.ndarray, primal: np.ndarray, apart: np.ndarray, spread: np.ndarray, squares: np.ndarray
) -> np.ndarray:
    """What is added to the gap with a free bias if sum y alpha is not 0; float64, (n_models,).

    The proof is that of another dual point, which is feasible: the entries of the heavier sign of y alpha are scaled by
    1 - d, so that the sum is 0.  That adds to the gap d times the sum over these rows of alpha_i s_i - D_i alpha_i^2,
    at most P, and d (w - v).u + d^2 / 2 (||u||^2 + sum of D_i alpha_i^2), where u is their part of v
    (docs/mathematics.md 2.6).  It is not enough to count v, which may be small where its parts of both signs are large.

    off, size : |sum y alpha|, or more, and sum |alpha|;  primal, apart : P and ||w - v||
    spread, squares : sum of |alpha_i| ||x_i||, and of D_i alpha_i^2 / 2
    """
    d = np.divide(2.0 * off, size, out=np.zeros_like(size), where=size > 0.0)  # the heavier sign has half at least
    u = d * spread
    return np.where(size > 0.0, d * primal + apart * u + 0.5 * u * u + d * d * squares, 0.0)


def above_zero(found: Certificate) -> Certificate:
    """The certificate `found` of a kernel model, with 0 as the dual value if its own is below 0.

    0 is always a lower bound.  It is the value of beta = 0, which is feasible with or without a free bias, and if nu
    only bounds the sum of |beta| (nu-SVR).  If nu fixes that sum (nu-SVC, one-class), beta = 0 is not feasible, but the
    objective is 1/2 ||w||^2, which is never below 0.

    found : its `gap` is the sum of non-negative terms.  That sum is used if its kind is 'proved'; for other kinds the
        gap becomes primal - dual
    """
    if found.kind != "proved":
        dual = np.fmax(found.dual, 0.0)
        return replace(found, dual=dual, gap=found.primal - dual)
    gap = np.fmin(found.gap, found.primal)  # which is not NaN where the gap is
    return replace(found, dual=np.where(gap < found.primal, found.dual, 0.0), gap=gap)


def joined(certificates: Sequence[Certificate]) -> Certificate:
    """One certificate for several groups of models that were trained and proved separately: the weakest kind of all."""
    if len(certificates) == 1:
        return certificates[0]
    names = ("primal", "dual", "gap", "n_support")
    return Certificate(
        n_rows=min(c.n_rows for c in certificates),
        drift=max(c.drift for c in certificates),
        kind=max((c.kind for c in certificates), key=get_args(Kind).index),
        **{name: np.concatenate([getattr(c, name) for c in certificates]) for name in names},
    )


def part_of(whole: Certificate, models: slice) -> Certificate:
    """The certificate of some of the models."""
    names = ("primal", "dual", "gap", "n_support")
    return replace(whole, **{name: getattr(whole, name)[models] for name in names})


def keep_best(new: Certificate, best: Certificate | None) -> tuple[Certificate, np.ndarray]:
    """The best certificate so far; and bool, (n_proofs,): whether the primal value of `new` is the better one.

    Every primal value is an upper bound of the optimum, and every dual value a lower bound, whichever pass they come
    from.  So the best of each are combined (0 is the dual value of alpha = 0), and the reported gap never rises.
    """
    old_primal = np.full_like(new.primal, np.inf) if best is None else best.primal
    old_dual = np.zeros_like(new.dual) if best is None else best.dual
    better_primal, better_dual = new.primal < old_primal, new.dual > old_dual
    primal = np.where(better_primal, new.primal, old_primal)
    dual = np.where(better_dual, new.dual, old_dual)
    # If both values are from this pass, the gap is its sum of non-negative terms, in which nothing cancels.
    # Otherwise two sums are subtracted, and nothing below their rounding is proved.
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
    """The certificate of what is written: the best primal point, and alpha of the last proof.

    The best dual value may belong to an earlier alpha that is not kept.  It is a valid bound, but it could not be
    proved again from the model alone.

    new : certificate of the last proof;  best, better_primal : what `keep_best` returned for it
    """
    dual = np.maximum(new.dual, 0.0)
    own = np.where(new.dual < 0.0, new.primal, new.gap)
    apart = np.maximum(best.primal - dual, _ROUNDING * np.abs(best.primal))
    return replace(best, dual=dual, gap=np.where(better_primal, own, apart))
