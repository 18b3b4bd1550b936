"""The template of kernel solvers: it advances models until the gap or the violation of each is small.

A kernel solver implements two methods.  `start_model` makes its own state of a model, beside the `DualQP`, and
`step_model` advances the model by a bounded number of steps.  A solver that advances several models on one reading of
the rows says how many (`most_open`), and implements `step_models` instead of `step_model`.  A model is *open* while it
is being trained.

All decisions are made here and in `ends.py`: when a model is done, at which violation its solver may stop, and when
kernel values must be float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigsvm.errors import DataError
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.kernel import KERNELS
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import WEIGHTS, DataShape, Keeps, Need, Point, SmallFit, StartsFrom, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.ends import SMALLEST_EPS, EndsOfModels, smallest_violation
from bigsvm.solvers.kernel.signed import sign_and_clip
from bigsvm.solvers.kernel.start_scores import score_all
from bigsvm.solvers.kernel.state import (
    KernelState,
    OpenModel,
    keep_beta,
    kernel_needs,
    make_qp,
    new_kernel_state,
)
from bigsvm.solvers.kernel.values.cached_rows import CachedRows
from bigsvm.solvers.kernel.values.data import MOST_THREADS, KernelData
from bigsvm.solvers.kernel.values.data_rows import DataRows
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows
from bigsvm.solvers.kernel.values.row_keeping import keep_rows, row_needs
from bigsvm.store.state.vectors import RowVector

_FLOAT64_BELOW = 1e-5  # tolerance below which kernel values are float64 from the start
_COARSE, _FINE = 1e-3, 1e-9  # tolerances of small fits with kernel values in float32, and in float64
_TIGHTER = 0.3  # factor on the violation to reach, each time that it was not small enough


def float64_values(tol: float) -> bool:
    """Whether kernel values are float64 from the start for this tolerance."""
    return tol < _FLOAT64_BELOW


@dataclass(frozen=True)
class KernelSolver(EndsOfModels):
    """Template of kernel solvers.  A solver is a dataclass whose fields are its hyperparameters, set by `--set`."""

    name: ClassVar[str] = ""
    losses: ClassVar[tuple[str, ...]] = ("hinge", "epsilon_insensitive")
    biases: ClassVar[tuple[str, ...]] = ("free",)
    kernels: ClassVar[tuple[str, ...]] = KERNELS
    proof: ClassVar[str] = "kernel"
    self_paced: ClassVar[bool] = True
    starts_from: ClassVar[StartsFrom] = "duals"
    paper_rule: ClassVar[bool] = True
    keep_sums: ClassVar[bool] = False
    """Whether the solver asks for sums over kernel rows, mostly the same rows in one step after another."""

    @property
    def keeps_rows(self) -> Keeps:
        return "always"

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> Any:
        """The solver's own state of a model: a dataclass of numbers and of arrays whose shapes do not change.

        `qp.beta` and `qp.f` are valid: 0 and -t, or those of a warm start.
        """
        raise NotImplementedError

    def step_model(self, qp: DualQP, work: Any, rows: KernelRows, ctx: Context) -> Progress:
        """Change `qp` (beta, f) and `work` in place until the violation is at most `qp.eps`, or for one share of work.

        A share is a number of steps that take about half a second.  It is never measured in seconds: the state is saved
        between two calls, and the result must not depend on where.  A share also ends once `most_values` kernel values
        were asked for, or if `ctx.expired` says so, which ends the run.
        """
        raise NotImplementedError

    def step_models(self, models: Sequence[OpenModel], shared: Any, ctx: Context) -> list[Progress]:
        """`step_model` for all open models.  If one of them is paused, all must be."""
        return [self.step_model(one.qp, one.work, one.rows, ctx) for one in models]

    def places(self, per_row: int, resident: bool) -> int:
        """How many open models a row may take part in; 1 if models are trained one after another.

        per_row : int   number of models that a row takes part in
        """
        return 1

    def most_open(self, state: KernelState, ctx: Context) -> int:
        """The largest number of models that are open at the same time."""
        return 1

    def start_sharing(self) -> Any:
        """The solver's own state that all open models share; it is saved like that of `start_model`."""
        return None

    @property
    def own_vectors(self) -> Mapping[str, type[np.generic]]:
        """The solver's own vectors of the rows of an open model, in `DualQP.own`: dtypes by name."""
        return {}

    def whole(self, qp: DualQP, work: Any, rows: KernelRows) -> bool:
        """After a stale `Progress`, make f valid for all rows, and change nothing else; False if this solver cannot."""
        return False

    def finish_model(self, work: Any) -> None:
        """Release what `start_model` reserved."""

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """The solver's own needs of memory, in bytes."""
        return []

    @property
    def caches(self) -> bool:
        """Whether the solver asks for the same kernel rows again, so that the plan gives memory to a cache."""
        return False

    def refusal(self, shape: DataShape) -> str | None:
        """None: every shape is accepted."""
        return None

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """Always float64; there is a w only for the linear kernel, at the end."""
        return 8

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """Small fits with so few rows that all may be free, and with more, some of them at each bound.

        Both float types of kernel values occur, because a failed proof asks for float64.
        """
        tols = [_FINE] if float64_values(tol) else [_COARSE, _FINE]
        return [SmallFit(n, C, tol) for tol in tols for n, C in ((4, 100.0), (48, 1.0))]

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Named amounts in bytes; what grows with the rows may go to disk."""
        tiles = Gram.workspace_bytes(shape.n_features, 4, MOST_THREADS) + Gram.workspace_bytes(
            shape.n_features, 8, MOST_THREADS
        )
        return [
            Need(WEIGHTS, 8 * (shape.n_features + 1) * (shape.n_models + 1 if self.asked.kernel == "linear" else 1)),
            Need("kernel tiles", tiles),
            *kernel_needs(shape.n_samples, shape.n_models, shape.weighted, self.places(shape.models_per_row, resident)),
            *(row_needs(shape.n_samples) if self.caches else []),
            *self.own_needs(shape, resident),
        ]

    def init(self, problem: Problem, ctx: Context) -> KernelState:
        """Start at beta = 0, before any label was read."""
        state = new_kernel_state(problem, ctx, 1.0, self.places(problem.models_per_row, ctx.resident), self.own_vectors)
        state.shared = self.start_sharing()
        if self.goes_by_violation(state):
            state.eps[:] = self.rule_factor * ctx.tol
        state.data = KernelData(problem.kernel, ctx, state.places)
        state.precise = float64_values(ctx.tol)
        state.unsigned = problem.loss.nu is not None  # beta = 0 is not feasible
        return state

    def start_at(self, state: KernelState, w: np.ndarray | None) -> list[RowVector]:
        """Start at an alpha, which gets its signs once the labels are read.  w is not used."""
        state.unsigned = True
        return [state.alpha]

    def before_load(self, state: KernelState, tree: Any, ctx: Context) -> None:
        """Open the models that were open when the state was saved, so that their arrays can be filled.

        Raises DataError if an earlier version saved the state.
        """
        if "open" not in tree:
            hint = "start again: bigsvm fit ... --overwrite"
            raise DataError("the checkpoint is of an earlier version, with one open model", ctx.data.uri, hint)
        state.vectors["row labels"].values[:] = tree["vectors"]["row labels"]
        if "row costs" in state.vectors:
            state.vectors["row costs"].values[:] = tree["vectors"]["row costs"]
        state.eps[:] = tree["eps"]
        state.alpha.values[:] = tree["alpha"]
        for one in tree["open"]:
            state.precise = one["precise"]
            self._open(state, one["model"], ctx).rows.counts.asked = 0  # the saved count includes `start_model`

    def step(self, problem: Problem, state: KernelState, ctx: Context) -> StepInfo:
        """Read the labels, if they are not known yet; then do one share of work on the open models."""
        n = state.alpha.values.shape[0]
        if state.labelled < n and not self._read_labels(state, ctx):
            return StepInfo.left(np.inf, n)
        if state.unsigned:
            sign_and_clip(state, ctx.data.uri)
        if not self._take_up(state, ctx):
            return StepInfo.left(np.inf, n)
        for one in state.open:
            self.aim(state, one.qp, one.model)
        # Kernel values that overflow float32 are infinite, and their sums NaN.  The fit then ends as stalled, with a
        # hint, and NumPy's warning would add nothing.
        with np.errstate(over="ignore", invalid="ignore"):
            told = self._work(state, ctx)
        for one, progress in told:
            keep_beta(state, one)
            state.iterations += progress.iterations
            self._count(state, one)
        if any(progress.paused for _, progress in told):
            return StepInfo.left(self._estimate(state, ctx), n)
        message, work = self._message(state), float(state.asked.sum()) / n**2
        n_active = max(int(np.count_nonzero(one.qp.beta)) for one, _ in told)
        for one, progress in told:
            self._judge(state, one, progress, ctx)
        all_done = bool(state.done.all())
        return StepInfo(
            gap_estimate=self._estimate(state, ctx),
            n_active=n_active,
            visits=sum(progress.visits for _, progress in told),
            ask_certificate=all_done,
            exhausted=all_done and bool(self.given_up(state, ctx.tol).any()),
            rule=self.rule(state, state.violation, ctx.tol) if all_done else None,
            message=message,
            work=work,
        )

    def _take_up(self, state: KernelState, ctx: Context) -> bool:
        """Open models until `most_open` are open, or none is left; False if the run is to stop before."""
        if state.places > 1 and not (state.open or state.scored.all()) and not score_all(state, ctx):
            return False
        while len(state.open) < self.most_open(state, ctx):
            model = self._next(state)
            if model is None:
                break
            self._score(state, self._open(state, model, ctx))
        return True

    def _work(self, state: KernelState, ctx: Context) -> list[tuple[OpenModel, Progress]]:
        """One share of work on each open model."""
        with_rows = [one for one in state.open if one.qp.n]
        found = iter(self.step_models(with_rows, state.shared, ctx) if with_rows else [])
        # A pair of classes whose rows all have weight 0 is done.
        empty = Progress(True, False, 0, 0, -np.inf)
        return [(one, next(found) if one.qp.n else empty) for one in state.open]

    def _judge(self, state: KernelState, one: OpenModel, progress: Progress, ctx: Context) -> None:
        """Record gap and violation of a model, and close it if it is done."""
        qp, m = one.qp, one.model
        stale = progress.stale
        if stale and self.look_is_due(state, one):
            stale = not self.whole(qp, one.work, one.rows)
        if stale:
            return
        state.gap[m], state.primal[m], _, state.bias[m], state.epsilon[m] = qp.gap_at_best_bias()
        state.violation[m] = qp.violation()
        state.no_margin[m] = qp.no_margin()
        if state.no_margin[m] and not one.precise:
            # For rows far from the origin, float32 values are too coarse to tell ||w|| from 0; decide with float64.
            state.precise, state.no_margin[m], state.scored[m] = True, False, False
            self._close(state, one)
            return
        least = qp.eps <= smallest_violation(qp) or state.eps[m] <= SMALLEST_EPS
        exhausted = progress.exhausted or state.no_margin[m] or (progress.done and least)
        over = progress.final or exhausted or self.reached(state, qp, m, ctx.tol)
        if not over and self.is_hopeless(state, one, ctx):
            over = exhausted = True
        if progress.done and not over:
            # Not of qp.eps, which `aim` makes of it: where the gap decides, the two are not of one unit.
            state.eps[m] = max(_TIGHTER * float(state.eps[m]), SMALLEST_EPS)
        if over:
            state.done[m], state.final[m], state.own_end[m] = True, progress.final or exhausted, progress.final
            self._close(state, one)

    def _read_labels(self, state: KernelState, ctx: Context) -> bool:
        """Read labels and weights of all rows; False if the run is to stop before, to go on there later."""
        labels, costs = state.vectors["row labels"].values, state.vectors.get("row costs")
        for rows in state.data.blocks(state.labelled):
            labels[rows.start : rows.stop, 0] = rows.y
            if costs is not None:
                costs.values[rows.start : rows.stop, 0] = 1.0 if rows.weight is None else rows.weight
            state.labelled = rows.stop
            if ctx.pause() and state.labelled < len(labels):
                return False
        return True

    def _next(self, state: KernelState) -> int | None:
        """The model to open next: the first that is neither done nor open; None if there is none.

        If all models are done, the proof failed, and the worst model is opened again.  It no longer counts as done,
        because a proof fills in the programmes of all models, so that none may be open during one.
        """
        waiting = ~state.done
        waiting[[one.model for one in state.open]] = False
        if waiting.any():
            return int(np.argmax(waiting))
        if state.open:
            return None
        found = int(np.argmax(state.violation if self.goes_by_violation(state) else self.relative(state)))
        state.done[found] = False
        return found

    def _open(self, state: KernelState, model: int, ctx: Context) -> OpenModel:
        """Open a model: make its QP, its kernel rows, and the solver's own state of it."""
        sides = int(state.problem.positive[model]), int(state.problem.negative[model])
        classes = sides if sides[1] >= 0 else None
        qp = make_qp(state, model)
        if not np.isfinite([qp.upper.max(initial=0.0), qp.lower.min(initial=0.0)]).all():  # no step would end there
            what = "C times the weight of a row is too large for float64"
            raise DataError(what, ctx.data.uri, "use a smaller C, or smaller weights")
        one = OpenModel(model, state.precise, qp, classes)
        data: KernelData = state.data
        rows = DataRows(data, data.exact if one.precise else data.gram, one.qp.rows)
        one.rows = keep_rows(rows, ctx, self.keep_sums) if self.caches else rows
        one.work = self.start_model(one.qp, one.rows, ctx)
        state.open.append(one)
        return one

    def _score(self, state: KernelState, one: OpenModel) -> None:
        """Compute f = K beta - t of the QP, unless it is known."""
        qp = one.qp
        if not state.scored[one.model]:
            np.negative(qp.target, out=qp.f)
            support = np.flatnonzero(qp.beta)
            if len(support):
                one.rows.update(qp.f, support, qp.beta[support])
        state.now_scored(one.model)

    def _count(self, state: KernelState, one: OpenModel) -> None:
        """Add the counts of the kernel rows of a model to the state, and reset them."""
        counts = one.rows.counts
        state.asked[one.model] += counts.asked
        state.kernel_rows += (counts.computed, counts.ram_hits, counts.disk_hits, counts.values)
        counts.computed = counts.ram_hits = counts.disk_hits = counts.values = counts.asked = 0

    def _message(self, state: KernelState) -> str:
        """The first warning of the kernel rows on disk; '' without one, or after it."""
        warnings = [one.rows.take_warning() for one in state.open if isinstance(one.rows, CachedRows)]
        warning = next(filter(None, warnings), None)
        if warning is None or state.warned:
            return ""
        state.warned = True
        return f"{self.name}: {warning}"

    def _close(self, state: KernelState, one: OpenModel) -> None:
        keep_beta(state, one)
        state.open.remove(one)
        self._let_go(one)

    def _let_go(self, one: OpenModel) -> None:
        self.finish_model(one.work)
        if isinstance(one.rows, CachedRows):
            one.rows.close()

    def _estimate(self, state: KernelState, ctx: Context) -> float:
        return float(np.max(self.relative(state)))

    def forecast(self, state: KernelState) -> float:
        """Infinite: a proof is asked for only once all models are done."""
        return np.inf

    def points(self, state: KernelState) -> list[Point]:
        """None, because there is no w; `run/proof/kernel_prover.py` proves kernel models."""
        return []

    def proof_readings(self, state: KernelState) -> int:
        """Two, for the support vectors and for the scores of all rows; models without vectors of their own come one
        after another.
        """
        return 2 * (1 if state.places > 1 else state.n_models)

    def learn(
        self, state: KernelState, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Nothing to learn; models whose proof failed are reopened by `proof_failed`."""

    def make_room(self, state: KernelState) -> None:
        """Before a proof, release memory whose content can be read again."""

    def proof_failed(self, state: KernelState, models: np.ndarray) -> None:
        """Reopen models whose proved gap was larger than the one from their own scores.

        The first time the cause is rounding in many updates of f, which the proof has computed anew.  If it happens
        again, the float32 kernel values are the cause: they become float64, and the violation to reach smaller.
        """
        for m in models.tolist():
            state.done[m] = False
            if state.failures[m] > 0:
                state.precise = True
                state.eps[m] *= _TIGHTER
            state.failures[m] += 1

    def let_threads_go(self, state: KernelState) -> None:
        state.data.close()

    def finish(self, state: KernelState) -> None:
        """Turn beta into alpha (|beta_i| for classes, alpha_i - alpha*_i for targets), and release all else."""
        if not state.problem.regression:
            np.abs(state.alpha.values, out=state.alpha.values)
        # If the run was stopped, an open QP has views of the vectors.  A memory map cannot be closed while a view of it
        # is left in any variable.
        while state.open:
            self._let_go(state.open.pop(0))
        state.shared = None
        for vector in state.vectors.values():
            vector.close()
        if state.beta is not None:
            state.beta.close()
        state.data.close()
