"""A warm start of `dcd` from the dual variables of an earlier model, while a first pass computes w(alpha).

Rows that the earlier model was trained on keep their alpha, clipped to the box of the new costs.  New rows start at
C loss'(s), where s is their slack at the earlier weights; that is much closer to their optimum than 0.  After that
mostly the rows with free alpha, and those near the margin, have to move.  They are put into the row buffer during the
pass, and swept there before training begins.  So most of the change is made without reading the rows again.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear.dual_cd import GAP, BlockRows
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.problem.certificate import Certificate, slacks_of
from bigsvm.problem.joint import alpha_of_slacks, clip_joint, joint_distance
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, SweepPart, shared_row_buffer
from bigsvm.solvers.dcd.dual_cd_state import DualCDState, ModelGroup, with_proofs
from bigsvm.solvers.dcd.dual_cd_stream import held_alpha, writable
from bigsvm.store.blocks import Block, BlockGroup, BlockRef, readonly_view

_NEAR = 0.3  # rows within this distance of the margin may be moved across it by the new rows
_MOST_SWEEPS = 100
_SETTLED = 0.1  # the buffered rows are swept until their gap is this part of the tolerance
_PASS = 1 << 40  # stands for the number of the pass in keys of random orders


class DualStart:
    """The start of one fit.  `group.w` holds the weights of the earlier model, if it had any.

    known : how many rows the earlier model was trained on; they are the first rows of the store
    by_weights : the earlier model had weights
    """

    def __init__(self, state: DualCDState, known: int, by_weights: bool, ctx: Context) -> None:
        self._state, self._known, self._by_weights, self._ctx = state, known, by_weights, ctx

    def take(self, block: Block, where: BlockRef | BlockGroup) -> None:
        """Clip alpha of the known rows to the box, set alpha of new rows, and buffer the rows that may move."""
        ctx, refs = self._ctx, where.refs if isinstance(where, BlockGroup) else (where,)
        at = np.concatenate([np.arange(ref.start, ref.stop) for ref in refs])
        new = (at if ctx.data.row_order is None else ctx.data.row_order[at]) >= self._known
        X, keeps = readonly_view(block.X), ctx.row_buffer_bytes > 0 and not ctx.resident
        wanted = np.zeros(block.n_rows, np.float32)
        for group in self._state.groups:
            problem, alpha = group.problem, group.alpha.get(where)
            y, cost = problem.y_and_cost(block)
            C, slacks = cost[:, None] * problem.C[None, :], slacks_of(problem, X, y, group.w)
            if self._by_weights:
                alpha[new] = alpha_of_slacks(problem, y[new], slacks[new], C[new])
            if problem.joint:
                clip_joint(alpha, y, C[:, 0])
            else:
                clip(problem, C, alpha)
            group.alpha.put(where, alpha)
            if keeps:
                np.maximum(wanted, _scores(problem, slacks, alpha, C, self._by_weights), out=wanted)
        if keeps:
            y = self._state.groups[0].problem.y_of(block)
            self._keep(BlockRows(X, y, writable(block.sample_weight), _sqnorm(block), at), wanted)

    def settle(self, certificate: Certificate) -> int | None:
        """Sweep the buffered rows until their gap is small, or `_MOST_SWEEPS` times.

        Returns row visits, the mean of the groups of models; None if the run was asked to stop.
        """
        ctx, row_buffer, groups = self._ctx, self._state.row_buffer, self._state.groups
        if row_buffer is None:
            return 0
        with held_alpha(self._state, ctx):
            return self._settled(row_buffer, groups, certificate)

    def _settled(self, row_buffer: ActiveRowBuffer, groups: list[ModelGroup], certificate: Certificate) -> int | None:
        ctx, visits = self._ctx, 0
        scores = np.zeros((len(groups), row_buffer.n), np.float32)
        for place, ((group, proofs), score) in enumerate(zip(with_proofs(groups), scores, strict=True)):
            enough = _SETTLED * ctx.tol * certificate.primal[proofs]
            for number in range(_MOST_SWEEPS):
                order = row_buffer.order((ctx.seed, _PASS), SweepPart(number))
                own = score if len(groups) > 1 else None
                stats = row_buffer.sweep(group.problem, group.alpha.values, group.w, order, score=own, group=place)
                visits += row_buffer.n
                if ctx.stopping():
                    return None
                if np.all(stats[:, GAP] <= enough):
                    break
        if len(groups) > 1:
            row_buffer.take_scores(scores, np.arange(row_buffer.n))
        row_buffer.end_sweep()
        return visits // len(groups)

    def _keep(self, rows: BlockRows, scores: np.ndarray) -> None:
        """Offer rows to the row buffer; when it is full, those with the smallest scores are evicted."""
        state, ctx = self._state, self._ctx
        if state.row_buffer is None:
            state.row_buffer = shared_row_buffer([group.problem for group in state.groups], ctx)
        state.row_buffer.admit(rows, np.arange(len(scores)), scores, state.groups[0].active.values[:, 0])


def clip(problem: Problem, C: np.ndarray, alpha: np.ndarray) -> None:
    """Bring alpha into the box of its costs, in place; both float64, (n_rows, n_models)."""
    loss = problem.loss
    if loss.smooth:
        np.clip(alpha, -np.inf if loss.regression else 0.0, np.inf, out=alpha)
    else:
        np.clip(alpha, loss.lower_factor * C, loss.upper_factor * C, out=alpha)
    alpha[C == 0.0] = 0.0


def _scores(problem: Problem, slacks: np.ndarray, alpha: np.ndarray, C: np.ndarray, by_weights: bool) -> np.ndarray:
    """Priority of each row for the row buffer, float32, (n_rows,): larger near the margin, 0 if it will not move."""
    distance = joint_distance(slacks)[:, None] if problem.joint else np.abs(slacks)
    if problem.regression:
        usual = float(np.mean(distance)) + problem.loss.epsilon
        distance = np.abs(distance - problem.loss.epsilon) / max(usual, np.finfo(float).tiny)
    size = np.abs(alpha)
    moves = (size > 0.0) & (problem.loss.smooth | (size < C))  # joint loss: free if several classes share the mass
    if by_weights:
        moves |= (distance < _NEAR) & (C > 0.0)
    scores = np.where(moves, 1.0 / (1e-3 + distance), 0.0)
    return np.asarray(scores.max(axis=1), np.float32)


def _sqnorm(block: Block) -> np.ndarray:
    if block.sqnorm is not None:
        return block.sqnorm
    found = np.empty(block.n_rows)
    sqnorms(readonly_view(block.X), found)
    return found
