"""`smo`: sequential minimal optimisation with working sets of many rows; the same loop for rows in memory and on disk.

    active set A = a sample of the rows, in memory
    repeat: solve the programme of A until its violation is a fraction of that of all rows (`block_smo.py`)
            one pass over the other rows: f_i += sum_j K_ij (change of beta_j) over the rows j of A that moved
            A = the free rows, and those that violate the optimality conditions or nearly do
    until the violation of all rows is small

One such round is in `active_set.py`.  For rows in memory A does what shrinking does in LIBSVM.  For rows on disk it
saves reading: 4 to 6 passes, where working sets of 4096 rows without an active set need 71 (docs/measurements.md 7.3).
The rules of the papers, which move two rows in a step, are in `textbook.py`.  A linear regression that takes long is
handed over to an interior-point method (`interior.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bigsvm.config import NU_LOSSES
from bigsvm.problem.loss import Loss, loss_named
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need, SmallFit, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.smo.active_set import Round, RoundWork, active_rows
from bigsvm.solvers.kernel.smo.block_smo import BlockSMO
from bigsvm.solvers.kernel.smo.interior import enough, solve
from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.smo.round_work import FLAGS, SENT, Rules, SmoWork
from bigsvm.solvers.kernel.smo.textbook import Textbook, TextbookWork
from bigsvm.solvers.kernel.state import KernelState, OpenModel
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows
from bigsvm.solvers.kernel.values.row_buffer import GATHERED, LEAST_ROWS, RowBuffer
from bigsvm.solvers.tube.tube import solves
from bigsvm.tasks import PassLeft
from bigsvm.units import MIB

_Q = 1024  # default rows of a working set
_SORTED = 48  # bytes for each row while scores are sorted for the quantiles of nu
_SAMPLE = 0.1  # share of the rows in the first active set
_VALUES = 1 << 32  # kernel values in one share of work, at most
_ROWS_A_MODEL = 512  # rows of each open model that the row buffer must hold, which limits how many models are open


@dataclass(frozen=True)
class Smo(KernelSolver):
    """Hyperparameters of `smo`; the options `--wss` and `--working-set` choose its rule and the size of a working set.

    sample : float   share of the rows in the first active set
    interior_after : int   in a linear regression with few features: passes (as many kernel values as rows squared)
        after which an interior-point method takes over, if they are in memory; 0: as many as ten of its solutions
        are thought to cost;  -1: never
    """

    name: ClassVar[str] = "smo"
    losses: ClassVar[tuple[str, ...]] = (*KernelSolver.losses, *NU_LOSSES)
    sample: float = _SAMPLE
    interior_after: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.sample <= 1.0:
            raise ValueError(f"sample must be above 0 and at most 1, not {self.sample!r}")
        if self.interior_after < -1:
            raise ValueError(f"interior_after must be a number of passes, 0 or -1, not {self.interior_after!r}")

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes of the matrix of a working set (counted in float64), of the row buffer, and of two vectors of rows."""
        n, stored = shape.n_samples, shape.nnz * (shape.entry_bytes + 8) // max(shape.n_samples, 1)
        if self.by_pairs:
            return [Need(FLAGS, 8 * n), Need(SENT, 8 * n)]
        places = self.places(shape.models_per_row, resident)
        return [
            Need("working set", BlockSMO.workspace_bytes(self._rows_of_set(n), 8) + self._rows_of_set(n) * 2 * stored),
            Need("active rows", RowBuffer.least_bytes(shape, places) + 2 * GATHERED),
            Need(FLAGS, places * n, may_spill=True),
            Need(SENT, 8 * places * n, may_spill=True),
            *([Need("order of scores", _SORTED * n)] if self.asked.loss in NU_LOSSES else []),
        ]

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """The small fits of kernel solvers; for rows that stream, also fits with more rows than memory holds."""
        fits = super().small_fits(tol, resident)
        if resident and self.may_hand_over(loss_named(self.asked.loss), 1):
            return [*fits, *(fit._replace(options=(("interior_after", 1),), load=False) for fit in fits[1:2])]
        if resident or self.by_pairs:
            return fits
        n = LEAST_ROWS + 64
        return [*fits, *(SmallFit(n, 1.0, tol) for tol in dict.fromkeys(fit.tol for fit in fits))]

    def _rows_of_set(self, n: int) -> int:
        return min(self.asked.working_set or _Q, max(n, 2))

    @property
    def _textbook(self) -> Textbook:
        return Textbook(wss=self.asked.wss, shrinking=self.asked.shrinking)

    @property
    def by_pairs(self) -> bool:
        """Whether a step moves two rows, as in the papers: `--working-set 2`, or a rule that is defined only so."""
        return self.asked.working_set == 2 or self.asked.wss in ("keerthi2", "wr", "wr+3")

    @property
    def caches(self) -> bool:
        """Whether kernel rows are cached: steps of two rows ask for the same rows again, working sets do not."""
        return self.by_pairs

    @property
    def own_vectors(self) -> Mapping[str, type[np.generic]]:
        return {} if self.by_pairs else {FLAGS: np.uint8, SENT: np.float64}

    def places(self, per_row: int, resident: bool) -> int:
        """All models at a time if rows stream; one after another with nu, whose models each begin with a reading."""
        together = not (resident or self.by_pairs or self.asked.loss in NU_LOSSES)
        return per_row if together else 1

    def most_open(self, state: KernelState, ctx: Context) -> int:
        """The number of models that fit in the row buffer if each holds `_ROWS_A_MODEL` random rows."""
        n = ctx.data.n_samples
        capacity, rows = RowBuffer.capacity_for(ctx, state.places), min(_ROWS_A_MODEL, n)
        if state.places == 1:
            return 1
        if capacity >= n or rows == n:
            return state.n_models
        return max(int(math.log1p(-active_rows(capacity) / n) / math.log1p(-rows / n)), 1)

    def start_sharing(self) -> Any:
        """What all open models share: where a pass goes on, and the row buffer."""
        return RoundWork()

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> Any:
        """Start with f = K beta - t for all rows, so that no change of beta is outstanding."""
        if self.by_pairs:
            return self._textbook.start_model(qp, rows, ctx)
        qp.own[FLAGS][:] = 0
        qp.own[SENT][:] = qp.beta
        return SmoWork(epsilon=qp.epsilon)

    def make_room(self, state: KernelState) -> None:
        """Release the row buffer; the next round reads its rows again."""
        if isinstance(state.shared, RoundWork):
            state.shared.row_buffer = None

    def whole(self, qp: DualQP, work: Any, rows: KernelRows) -> bool:
        """Make f valid for rows that were shrunk; only steps of two rows can.  Whether that was done."""
        if self.by_pairs:
            self._textbook.whole(qp, work, rows)
        return self.by_pairs

    def may_hand_over(self, loss: Loss, n_features: int) -> bool:
        """Whether the interior-point method may take over from steps that take long (`interior.py`)."""
        steps_alone = self.interior_after < 0 or self.by_pairs or self.asked.stop == "paper"
        return self.asked.kernel == "linear" and solves(loss, n_features) and not steps_alone

    def step(self, problem: Problem, state: KernelState, ctx: Context) -> StepInfo:
        """As in all kernel solvers, until the interior-point method takes over."""
        if state.slow and not state.solved:
            return self._solve(state, ctx)
        info = super().step(problem, state, ctx)
        if info.paused or not ctx.resident or not self._is_slow(state, ctx):
            return info
        state.slow = True
        return replace(info, ask_certificate=False, exhausted=False)

    def _is_slow(self, state: KernelState, ctx: Context) -> bool:
        """Whether a model that is not near enough has taken long, or was given up."""
        if state.solved or not self.may_hand_over(state.problem.loss, ctx.data.n_features):
            return False
        slow = ~state.done & (state.asked >= self._enough(ctx))
        return bool(np.any(slow | self.given_up(state, ctx.tol)))

    def _enough(self, ctx: Context) -> float:
        """Kernel values that a model may ask for before it is slow."""
        return self.interior_after * ctx.data.n_samples**2 or enough(ctx)

    def _solve(self, state: KernelState, ctx: Context) -> StepInfo:
        """Let the interior-point method take over."""
        while state.open:
            self._close(state, state.open[0])
        self.make_room(state)
        n, lost, before = ctx.data.n_samples, self.given_up(state, ctx.tol), self._estimate(state, ctx)
        n_passes = float(state.asked.sum()) / n**2
        try:
            lacking = solve(state, np.flatnonzero(~state.done | lost), ctx)
        except PassLeft:
            return StepInfo.left(before, n)
        state.solved, done = True, bool(state.done.all())
        if lacking:
            least = -(-(ctx.budget.limit + lacking) // MIB)
            message = f"smo: steps take long; --memory {least}MiB has room for a faster method"
        elif ctx.expired() and not done:
            message = ""
        else:
            gap = f" the gap is about {before:.2g}" if np.isfinite(before) else " the gap is not known"
            message = f"smo: after {n_passes:.2g} passes of kernel values{gap}: an interior-point method takes over"
        return StepInfo(
            self._estimate(state, ctx), n, 0, ask_certificate=done, exhausted=done and bool(lacking and lost.any()),
            work=n_passes, message=message,
        )  # fmt: skip

    def step_model(self, qp: DualQP, work: Any, rows: KernelRows, ctx: Context) -> Progress:
        """Steps of two rows for one model.  Working sets are in `step_models`."""
        progress = self._textbook.step_model(qp, work, rows, ctx)
        stale = not progress.done and isinstance(work, TextbookWork) and work.n_active < qp.n
        return progress._replace(stale=stale and not progress.final)

    def step_models(self, models: Sequence[OpenModel], shared: Any, ctx: Context) -> list[Progress]:
        """One round of all open models: an active set for each, and one pass over the other rows."""
        if self.by_pairs:
            return super().step_models(models, shared, ctx)
        q = self._rows_of_set(ctx.data.n_samples)
        values = _VALUES  # a share of work ends where the interior-point method may take over
        if self.may_hand_over(loss_named(self.asked.loss), ctx.data.n_features):
            values = min(values, int(self._enough(ctx)))
        rules = Rules(q, self.asked.wss != "1", self.sample, values)
        return Round([Member(one, ctx, rules) for one in models], shared).run()
