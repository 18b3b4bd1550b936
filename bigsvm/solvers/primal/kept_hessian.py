"""The Hessian of a piecewise quadratic loss, which is kept from one step to the next.

Most of the time of a step went into summing it up again, and after the first few steps hardly a row crosses its
hyperplane.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.linear.hessian import LEFT, add_hessian
from bigsvm.problem.loss import Loss
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.primal_state import PrimalState
from bigsvm.solvers.primal.row_pass import pass_refs, row_pass
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.blocks import BlockRef, RowBlocks, blocks_of, readonly_view
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import over_shares

_DONE = 0.5  # share of the gap that is asked for with which a model waits for the others
_MOST_KEPT = 256 << 20  # bytes of Hessians that are kept: each checkpoint has them
_INSIDE, _KEPT = "rows inside the margin", "Hessian of the last step"  # names, in plans, of what is kept


@dataclass
class KeptHessian:
    """The Hessian of the last look at all rows.  The next look adds the rows that have crossed, or takes them away.

    With rows in memory several models take turns at reading all rows: their matrices together do not fit in a cache.

    H : float64, (n_models, (n_features + 1)^2)   upper triangles of the sums over the rows inside (`RowState.inside`)
    most : float64, (n_models, n_features + 1)   the largest diagonal entries since H was 0
    rests : bool, (n_models,)   models that do not move in the next step, because they are done and others are not
    rested : a model did not move in the last step
    tol : relative gap that is asked for
    """

    H: RowVector
    most: np.ndarray
    rests: np.ndarray
    tol: float = field(metadata={"derived": True})
    rested: bool = False

    @classmethod
    def new(cls, problem: Problem, rows: RowState, ctx: Context) -> KeptHessian | None:
        """No row is inside, and H is 0.  Adds `inside` to the rows.  None if no Hessian is kept."""
        n, m = ctx.data.n_features + 1, problem.n_models
        if ctx.shards > 1 or _kept_bytes(ctx.data.n_features, m) > _MOST_KEPT:
            return None
        rows.inside = ctx.vector(_INSIDE, m, np.uint8)
        return cls(ctx.vector(_KEPT, n * n, n_rows=m), np.zeros((m, n)), np.zeros(m, bool), ctx.tol)

    @property
    def matrices(self) -> np.ndarray:
        """H as matrices, (n_models, n_features + 1, n_features + 1)."""
        return self.H.values.reshape(len(self.most), self.most.shape[1], self.most.shape[1])

    def look(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray]:
        """The pass of a look at w; V and H.  Raises PassLeft, and then H has not changed."""
        problem, rows, H = state.problem, state.rows, self.matrices
        in_turns = ctx.resident and len(H) > 1
        V, sums = row_pass(
            ctx, problem, rows, state.w.shape, w=state.w, weights=problem.loss,
            curvature="none" if in_turns else "change",
        )  # fmt: skip
        for m, change in (self._of_models(problem, rows, ctx) if sums is None else dict(enumerate(sums))).items():
            H[m] += change
        self.most = np.maximum(self.most, self._diagonals)
        inside = _inside_of(rows)
        for some in rows.pieces():
            inside[some] = _curvature(problem, rows, some) > 0.0
        return V, H

    def _of_models(self, problem: Problem, rows: RowState, ctx: Context) -> dict[int, np.ndarray]:
        """What has to be added to the Hessian of each model; zeros are left out."""
        refs, inside, found = tuple(pass_refs(ctx)), _inside_of(rows), dict[int, np.ndarray]()

        def share(m: int) -> ModelShare:
            return ModelShare(
                ctx.data, refs, problem.loss, float(problem.C[m]), problem.constant_feature, rows.s.values[:, m],
                rows.cost.values[:, 0], inside[:, m],
            )  # fmt: skip

        alike = _are_alike(problem, rows)
        models = range(1 if alike else problem.n_models)
        for m, sums in over_shares(
            ctx.mapper, model_hessian, models, share, ctx.pass_workers, account=ctx, may_leave=True
        ):
            if sums.H is not None:
                found[m] = sums.H if problem.centre is None else problem.centre.hessian(sums.H[None])[0]
        return dict.fromkeys(range(problem.n_models), found[0]) if alike and found else found

    def decide(self, problem: Problem, rows: RowState) -> None:
        """Set H of a model to 0, after a step, if that is less work for the next look or if too little is left of H."""
        self.rested = bool(self.rests.any())
        inside, changed = _inside_of(rows), np.zeros(problem.n_models, np.int64)
        now_inside = changed.copy()
        for some in rows.pieces():
            now = _curvature(problem, rows, some) > 0.0
            changed += np.count_nonzero(now != inside[some], axis=0)
            now_inside += np.count_nonzero(now, axis=0)
        enough = (self._diagonals >= LEFT * self.most) & np.isfinite(self.most)
        anew = (changed > now_inside) | ~enough.all(axis=1)
        self.H.values[anew] = 0.0
        self.most[anew] = 0.0
        for some in rows.pieces() if anew.any() else ():
            inside[some, anew] = 0

    def let_rest(self, gaps: np.ndarray, primal: np.ndarray) -> None:
        """Decide which models rest.  gaps, primal : float64, (n_models,)"""
        done = gaps <= _DONE * self.tol * primal
        self.rests = done & ~done.all()

    def close(self) -> None:
        """Release H."""
        self.H.close()

    @property
    def _diagonals(self) -> np.ndarray:
        return np.diagonal(self.matrices, axis1=1, axis2=2)


def _inside_of(rows: RowState) -> np.ndarray:
    assert rows.inside is not None
    return rows.inside.values


def _are_alike(problem: Problem, rows: RowState) -> bool:
    """Whether all models have one Hessian to be summed up, as at w = 0."""
    return bool(np.all(problem.C[0] == problem.C)) and all(
        not _inside_of(rows)[some].any() and np.all(rows.s.values[some] == rows.s.values[some, :1])
        for some in rows.pieces()
    )


class ModelShare(NamedTuple):
    """The input of a task: all rows, and what they are in one model.

    s : float64, (n_samples,), slacks;  cost : float64, (n_samples,)
    inside : uint8, (n_samples,), rows that have a part in the Hessian
    """

    data: RowBlocks
    refs: tuple[BlockRef, ...]
    loss: Loss
    C: float
    bias: float
    s: np.ndarray
    cost: np.ndarray
    inside: np.ndarray


class ModelHessian(NamedTuple):
    """The result of a task.  H : float64, (n_features + 1, n_features + 1), upper triangle; None if it is 0"""

    H: np.ndarray | None
    bytes_read: int


def model_hessian(share: ModelShare) -> ModelHessian:
    """Task: what has to be added to the Hessian of one model.  Pure."""
    n, bytes_read = share.data.n_features + 1, 0
    H: np.ndarray | None = None
    for ref, block in zip(share.refs, blocks_of(share.data, share.refs), strict=True):
        C = share.cost[ref.start : ref.stop] * share.C
        h = share.loss.curvature(share.s[ref.start : ref.stop], C)
        h -= (C / share.loss.diag_factor) * share.inside[ref.start : ref.stop]
        if h.any():
            H = np.zeros((n, n)) if H is None else H
            add_hessian(readonly_view(block.X), h, share.bias, H)
        bytes_read += block.nbytes
    return ModelHessian(H, bytes_read)


def _curvature(problem: Problem, rows: RowState, some: slice) -> np.ndarray:
    return problem.loss.curvature(rows.s.values[some], rows.costs(problem, some))


def _kept_bytes(n_features: int, n_models: int) -> int:
    return 8 * (n_features + 1) ** 2 * n_models


def kept_needs(shape: DataShape) -> list[Need]:
    """Bytes of a `KeptHessian` and of `RowState.inside`; none if no Hessian is kept."""
    nbytes = _kept_bytes(shape.n_features, shape.n_models)
    if shape.shards > 1 or nbytes > _MOST_KEPT:
        return []
    return [Need(_KEPT, nbytes, may_spill=True), Need(_INSIDE, shape.n_samples * shape.n_models, may_spill=True)]
