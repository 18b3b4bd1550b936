"""`dcd`: dual coordinate descent on row blocks that stream from disk (`kernels/dual_cd.py`).

Every pass draws an order of the blocks, takes them in groups from far apart (`BlockGroup` says why) and visits
the rows of a group in a random order; all orders are functions of (seed, sweep, first row).

Data that is one block in memory is swept many times a step, and rows are shrunk away as in LIBLINEAR.  Blocks
that stream are visited whole: reading them is the cost, and a sweep that skips rows needs more passes for
the same gap (a9a, hinge, to 1e-3: 704 passes with shrinking, 133 without).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.kernels.dual_cd import GAP, LOSS, PG_MAX, PG_MIN, dual_cd_sweeps, mixed_runs_of, shuffled, widest_spread
from bigsvm.kernels.rows import sqnorms
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import Context, DataShape, Need, StepInfo, View
from bigsvm.solvers.rounds import Share, Update, rows_of, run_rounds
from bigsvm.store.blocks import BlockGroup, RowBlocks, in_groups, kernel_matrix
from bigsvm.store.vectors import RowVector

_FIRST_EPS = 0.1  # LIBLINEAR's default; it only decides when shrunk rows come back, the gap decides the end
_SMALLEST_EPS = 1e-13  # projected gradients below this are rounding
_BLOCK_ORDER = 1 << 62  # in place of a first row, in the key of the order of blocks
_SHORTFALL = 2.0  # proved gap over estimate beyond which shrunk rows are to blame
_VISITS_PER_STEP = 1 << 27  # non-zeros: about a second of work, so that a step answers to signals


@dataclass
class DualCDState:
    """All that a resumed run needs.

    w : float64, (n_features + 1,) or (n_features + 1, n_models)
    alpha : RowVector float64 (n_samples, n_models);  active : RowVector uint8;  sqnorm : RowVector float64
    thresholds : float64, (2, n_models)
    floor : float64, (n_models,)       proved lower bounds of the primal
    """

    sweep: int
    w: np.ndarray
    alpha: RowVector
    active: RowVector
    sqnorm: RowVector
    thresholds: np.ndarray
    floor: np.ndarray
    eps: float
    target: float
    estimate: float


@dataclass(frozen=True)
class DualCD:
    """Hyperparameters of `dcd`.

    max_sweeps_per_step : int   sweeps over data in memory before the loop looks up; no effect on streamed data
    """

    name: ClassVar[str] = "dcd"
    losses: ClassVar[tuple[str, ...]] = ("hinge", "squared_hinge")
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none")

    max_sweeps_per_step: int = 64

    def needs(self, shape: DataShape, problem_bias: str) -> list[Need]:
        """Bytes by name; per-row needs may go to disk."""
        n, m = shape.n_samples, shape.n_models
        return [
            Need("w", 8 * (shape.n_features + 1) * m),
            Need("alpha", 8 * n * m, may_spill=True),
            Need("active rows", n, may_spill=True),
            Need("row norms", 8 * n, may_spill=True),
        ]

    def init(self, problem: Problem, ctx: Context) -> DualCDState:
        """alpha = 0, w = 0, every row active."""
        n, m = ctx.data.n_samples, problem.n_models

        def vector(what: str, width: int, dtype: type, fill: float) -> RowVector:
            return RowVector(what, n, width, dtype, ctx.budget, ctx.workdir, fill)

        return DualCDState(
            sweep=0,
            w=zero_weights(ctx.data.n_features, m),
            alpha=vector("alpha", m, np.float64, 0),
            active=vector("active rows", 1, np.uint8, 1),
            sqnorm=vector("row norms", 1, np.float64, -1),
            thresholds=_open_thresholds(m),
            floor=np.zeros(m),
            eps=_FIRST_EPS,
            target=ctx.tol,
            estimate=math.inf,
        )

    def step(self, problem: Problem, state: DualCDState, ctx: Context) -> StepInfo:
        """One pass over the blocks with active rows; on data in memory, up to `max_sweeps_per_step` sweeps."""
        one_block = len(ctx.refs) == 1
        order = shuffled(len(ctx.refs), ctx.seed, state.sweep, _BLOCK_ORDER)
        nnz = max(ctx.data.nnz or ctx.data.n_samples, 1)
        n_sweeps = min(max(_VISITS_PER_STEP // nnz, 1), self.max_sweeps_per_step) if one_block else 1
        if ctx.sweeps_left is not None:
            n_sweeps = max(min(n_sweeps, ctx.sweeps_left), 1)
        params = (n_sweeps, one_block, state.eps, state.target)

        def share(data: RowBlocks, group: BlockGroup, w: np.ndarray, alone: bool, sigma: float) -> Share:
            local = {
                "alpha": state.alpha.get(group),
                "active": state.active.get(group),
                "sqnorm": state.sqnorm.get(group),
                "thresholds": state.thresholds,
                "floor": state.floor,
            }
            return Share(data, group, problem, local, w, alone, sigma, params, (ctx.seed, state.sweep))

        all_stats, visits, last_visits, sweeps, settled = [], 0, 0, 1, 0
        groups = in_groups(ctx.refs, order, ctx.group_blocks)
        for group, update in run_rounds(dual_cd_task, groups, share, state.w, ctx):
            state.alpha.put(group, update.local["alpha"])
            state.active.put(group, update.local["active"])
            state.sqnorm.put(group, update.local["sqnorm"])
            if one_block:
                state.thresholds[...] = update.local["thresholds"]
            all_stats.append(update.stats)
            visits += update.visits
            last_visits += update.last_visits
            sweeps, settled = update.sweeps, update.settled
        stats = _together(all_stats, problem.n_models)
        state.sweep += sweeps
        if not one_block:
            settled = int(widest_spread(stats) <= state.eps)
        primal = np.maximum(0.5 * np.atleast_1d(np.sum(state.w**2, axis=0)) + stats[:, LOSS], state.floor)
        state.estimate = float(np.max(stats[:, GAP] / np.maximum(primal, np.finfo(float).tiny)))
        exhausted = False
        if settled == 1:
            if last_visits == ctx.data.n_samples:  # no row was shrunk away: eps is met by all
                exhausted = state.eps <= _SMALLEST_EPS
                state.eps = max(state.eps * 0.1, _SMALLEST_EPS)
            self._reactivate(state)
        return StepInfo(
            gap_estimate=state.estimate,
            n_active=last_visits,
            visits=visits,
            # A step of many sweeps makes a proof cheap beside it.
            ask_certificate=n_sweeps > 1 or exhausted or state.estimate <= state.target,
            exhausted=exhausted,
        )

    def view(self, state: DualCDState) -> View:
        """w and alpha."""
        return View(state.w, state.alpha)

    def learn(self, problem: Problem, state: DualCDState, certificate: Certificate, v: np.ndarray) -> None:
        """Take over w(alpha) as the certificate rebuilt it, and its lower bounds.

        Where the proof falls far short of what the active rows promised, rows were wrongly shrunk (or margins
        too stale): all rows come back, and the next proof is asked for at a smaller estimate.
        """
        state.w[...] = v
        state.floor[...] = np.maximum(state.floor, certificate.dual)
        if state.estimate <= state.target:
            state.target = 0.7 * min(state.target, max(state.estimate, 0.1 * state.target))
        if certificate.relative_gap > _SHORTFALL * state.estimate:
            self._reactivate(state)

    @staticmethod
    def _reactivate(state: DualCDState) -> None:
        """Every row is active again and no row shrinks in the next sweep."""
        state.active.values[:] = 1
        state.thresholds[...] = _open_thresholds(state.thresholds.shape[1])


def dual_cd_task(share: Share) -> Update:
    """Task: sweep one block.  Changes the arrays of an in-process share in place; pure across processes."""
    block = rows_of(share)
    X = kernel_matrix(block.X)
    codes, cost = share.problem.codes_and_cost(block)
    local = {name: _writable(array) for name, array in share.local.items()}
    w = _writable(share.w) if share.alone else share.w.copy()
    sqnorm = local["sqnorm"][:, 0]
    if sqnorm[0] < 0:  # norms are never negative: these rows were not seen yet
        sqnorms(X, sqnorm)
    n_sweeps, whole, eps, target = share.params
    stats = np.empty((share.problem.n_models, 4))
    sweeps, visits, last_visits, settled = dual_cd_sweeps(
        X, codes, share.problem.positive, cost, share.problem.C, sqnorm, local["alpha"], w,
        local["active"][:, 0], share.problem.box, share.sigma, local["thresholds"], int(n_sweeps), bool(whole),
        mixed_runs_of(X), *share.key, share.group.start, eps, target, local["floor"], stats,
    )  # fmt: skip
    change = w if share.alone else (w - share.w) / share.sigma
    return Update(local, change, stats, visits, last_visits, sweeps, settled, block.nbytes)


def _writable(array: np.ndarray) -> np.ndarray:
    """The array itself, or a copy where it came out of a message and may not be written."""
    return array if array.flags.writeable else array.copy()


def _open_thresholds(n_models: int) -> np.ndarray:
    """Thresholds under which no row shrinks."""
    return np.array([[math.inf] * n_models, [-math.inf] * n_models])


def _together(all_stats: list[np.ndarray], n_models: int) -> np.ndarray:
    """Statistics of a pass from those of its blocks, sums taken in block order."""
    stats = np.zeros((n_models, 4))
    stats[:, PG_MAX], stats[:, PG_MIN] = -math.inf, math.inf
    for block in all_stats:
        stats[:, PG_MAX] = np.maximum(stats[:, PG_MAX], block[:, PG_MAX])
        stats[:, PG_MIN] = np.minimum(stats[:, PG_MIN], block[:, PG_MIN])
    for column in (GAP, LOSS):
        stats[:, column] = [math.fsum(block[m, column] for block in all_stats) for m in range(n_models)]
    return stats
