"""What all kernel solvers share: models are advanced until the gap or the violation of each is small.

A solver of a kernel writes two methods: `start_model` makes what it keeps of a model beside the `DualQP`, and
`step_model` works on it for a bounded number of steps.  One that can work on several models at a time, so that one
reading of the rows serves them all, says how many (`most_open`) and writes `step_models` in the place of `step_model`.
Everything that decides belongs here: when a model is done and leaves, at what violation its solver may stop, when
values must be float64, what the proof may expect.
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
from bigsvm.solvers.base import DataShape, Keeps, Need, Point, SmallFit, StartsFrom, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.ends import SMALLEST_EPS, EndsOfModels
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

_FLOAT64_BELOW = 1e-5  # tolerances from which kernel values are float64
_COARSE, _FINE = 1e-3, 1e-9  # tolerances of small fits: kernel values in float32, and in float64
_TIGHTER = 0.3  # times the violation aimed at, each time a proof failed or it was not enough


def float64_values(tol: float) -> bool:
    """Whether a tolerance wants kernel values in float64 from the beginning."""
    return tol < _FLOAT64_BELOW


@dataclass(frozen=True)
class KernelSolver(EndsOfModels):
    """Template.  Hyperparameters are fields of the dataclass that a solver is; `--set` sets those of the solver."""

    name: ClassVar[str] = ""
    losses: ClassVar[tuple[str, ...]] = ("hinge", "epsilon_insensitive")
    biases: ClassVar[tuple[str, ...]] = ("free",)
    kernels: ClassVar[tuple[str, ...]] = KERNELS
    proof: ClassVar[str] = "kernel"
    self_paced: ClassVar[bool] = True
    starts_from: ClassVar[StartsFrom] = "duals"
    paper_rule: ClassVar[bool] = True
    keep_sums: ClassVar[bool] = False
    """It asks for rows in sums, step after step over much the same ones."""

    @property
    def keeps_rows(self) -> Keeps:
        return "always"

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> Any:
        """What the solver keeps of a model: a dataclass of arrays and numbers whose shapes stay as they are.

        `qp.beta` and `qp.f` are valid: 0 and -t, or a warm start.
        """
        raise NotImplementedError

    def step_model(self, qp: DualQP, work: Any, rows: KernelRows, ctx: Context) -> Progress:
        """Work on `qp` (beta, f) and `work` in place until the violation is at most `qp.eps`, or for one share.

        A share is a number of steps, never of seconds (about half a second's worth): between two calls the state is
        saved, and what is computed may not depend on where.  It is over, too, when `most_values` were asked for; and
        when `ctx.expired` says so, which ends the run.
        """
        raise NotImplementedError

    def step_models(self, models: Sequence[OpenModel], shared: Any, ctx: Context) -> list[Progress]:
        """As `step_model`, of all models in work; where one is paused, all are."""
        return [self.step_model(one.qp, one.work, one.rows, ctx) for one in models]

    def places(self, per_row: int, resident: bool) -> int:
        """Places of models in work for each row: 1 where they are trained one after another.

        per_row : models that a row takes part in
        """
        return 1

    def most_open(self, state: KernelState, ctx: Context) -> int:
        """Models that are in work at one time."""
        return 1

    def start_sharing(self) -> Any:
        """What the solver keeps of all models in work together, saved like what `start_model` gives."""
        return None

    @property
    def own_vectors(self) -> Mapping[str, type[np.generic]]:
        """What it keeps of each row of a model in work, in `DualQP.own`: types by name."""
        return {}

    def whole(self, qp: DualQP, work: Any, rows: KernelRows) -> bool:
        """Make f valid for all rows where a `Progress` was stale, and nothing else; False where that cannot be."""
        return False

    def finish_model(self, work: Any) -> None:
        """Give back what `start_model` reserved."""

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes of the solver's own, by name."""
        return []

    @property
    def caches(self) -> bool:
        """It fetches whole rows again and again: the plan gives memory to keep them."""
        return False

    def refusal(self, shape: DataShape) -> str | None:
        """None: any shape will do."""
        return None

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """There is no w but where the kernel is linear, at the end."""
        return 8

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """Of so few rows that all may be free at once, and of more, some of them at each bound; with both float types
        of kernel values, since a proof that fails asks for float64."""
        tols = [_FINE] if float64_values(tol) else [_COARSE, _FINE]
        return [SmallFit(n, C, tol) for tol in tols for n, C in ((4, 100.0), (48, 1.0))]

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes by name; per-row needs may go to disk."""
        tiles = Gram.workspace_bytes(shape.n_features, 4, MOST_THREADS) + Gram.workspace_bytes(
            shape.n_features, 8, MOST_THREADS
        )
        return [
            Need("w", 8 * (shape.n_features + 1) * (shape.n_models + 1 if self.asked.kernel == "linear" else 1)),
            Need("kernel tiles", tiles),
            *kernel_needs(shape.n_samples, shape.n_models, shape.weighted, self.places(shape.models_per_row, resident)),
            *(row_needs(shape.n_samples) if self.caches else []),
            *self.own_needs(shape, resident),
        ]

    def init(self, problem: Problem, ctx: Context) -> KernelState:
        """beta = 0; no label is read yet."""
        state = new_kernel_state(problem, ctx, 1.0, self.places(problem.models_per_row, ctx.resident), self.own_vectors)
        state.shared = self.start_sharing()
        if self.goes_by_violation(state):
            state.eps[:] = self.rule_factor * ctx.tol
        state.data = KernelData(problem.kernel, ctx, state.places)
        state.precise = float64_values(ctx.tol)
        state.unsigned = problem.loss.nu is not None  # beta = 0 is not feasible
        return state

    def start_at(self, state: KernelState, w: np.ndarray | None) -> list[RowVector]:
        """alpha has no signs until the labels are read; w is not asked for."""
        state.unsigned = True
        return [state.alpha]

    def before_load(self, state: KernelState, tree: Any, ctx: Context) -> None:
        """Make the QPs that a saved state was working on, so that their arrays can be filled.

        Raises DataError where an earlier version saved it.
        """
        if "open" not in tree:
            hint = "start again: bigsvm fit ... --overwrite"
            raise DataError("the checkpoint is of an earlier version, with one model in work", ctx.data.uri, hint)
        state.vectors["row labels"].values[:] = tree["vectors"]["row labels"]
        if "row costs" in state.vectors:
            state.vectors["row costs"].values[:] = tree["vectors"]["row costs"]
        state.eps[:] = tree["eps"]
        state.alpha.values[:] = tree["alpha"]
        for one in tree["open"]:
            state.precise = one["precise"]
            self._open(state, one["model"], ctx).rows.counts.asked = 0  # of `start_model`: it is in the saved count

    def step(self, problem: Problem, state: KernelState, ctx: Context) -> StepInfo:
        """Labels first; then one share of work on the models in work."""
        n = state.alpha.values.shape[0]
        if state.labelled < n and not self._read_labels(state, ctx):
            return StepInfo(np.inf, n, 0, ask_certificate=False, paused=True)
        if state.unsigned:
            sign_and_clip(state, ctx.data.uri)
        if not self._take_up(state, ctx):
            return StepInfo(np.inf, n, 0, ask_certificate=False, paused=True)
        for one in state.open:
            self.aim(state, one.qp, one.model)
        # Kernel values that float32 has no room for are infinite, and their sums no numbers.  That ends a fit as
        # stalled, with a hint, and needs no warning of NumPy's beside it.
        with np.errstate(over="ignore", invalid="ignore"):
            told = self._work(state, ctx)
        for one, progress in told:
            keep_beta(state, one)
            state.iterations += progress.iterations
            self._count(state, one)
        if any(progress.paused for _, progress in told):
            return StepInfo(self._estimate(state, ctx), n, 0, ask_certificate=False, paused=True)
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
        """Open models until as many are in work as may be, or are left; False where the run is to stop before."""
        if state.places > 1 and not (state.open or state.scored.all()) and not score_all(state, ctx):
            return False
        while len(state.open) < self.most_open(state, ctx):
            model = self._next(state)
            if model is None:
                break
            self._score(state, self._open(state, model, ctx))
        return True

    def _work(self, state: KernelState, ctx: Context) -> list[tuple[OpenModel, Progress]]:
        """One share of work on each model that is open."""
        with_rows = [one for one in state.open if one.qp.n]
        found = iter(self.step_models(with_rows, state.shared, ctx) if with_rows else [])
        # A pair of classes whose rows all weigh nothing is done.
        empty = Progress(True, False, 0, 0, -np.inf)
        return [(one, next(found) if one.qp.n else empty) for one in state.open]

    def _judge(self, state: KernelState, one: OpenModel, progress: Progress, ctx: Context) -> None:
        """Take note of where a model stands, and close it where it is done."""
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
            # Far from the origin float32 values do not know ||w|| to the digits that this takes: float64 ones decide.
            state.precise, state.no_margin[m], state.scored[m] = True, False, False
            self._close(state, one)
            return
        exhausted = (
            progress.exhausted or state.no_margin[m] or (progress.done and min(qp.eps, state.eps[m]) <= SMALLEST_EPS)
        )
        over = progress.final or exhausted or self.reached(state, qp, m, ctx.tol)
        if not over and self.is_hopeless(state, one, ctx):
            over = exhausted = True
        if progress.done and not over:
            # Never wider: where P is many times the costs, `aim` makes a large violation of a small share.
            state.eps[m] = max(_TIGHTER * min(qp.eps, float(state.eps[m])), SMALLEST_EPS)
        if over:
            state.done[m], state.final[m], state.own_end[m] = True, progress.final or exhausted, progress.final
            self._close(state, one)

    def _read_labels(self, state: KernelState, ctx: Context) -> bool:
        """Labels and costs of all rows; False where the run is to stop, and it begins again there."""
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
        """The model to take up: the first that is neither done nor in work, None where there is none.  Where all are
        done and no proof believes it, the worst.

        It is not done from here: a proof fills in the programmes of all models, and none may be in work then.
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
        """Take up a model: its QP, its rows of kernel values, and what the solver keeps."""
        sides = int(state.problem.positive[model]), int(state.problem.negative[model])
        classes = sides if sides[1] >= 0 else None
        one = OpenModel(model, state.precise, make_qp(state, model), classes)
        data: KernelData = state.data
        rows = DataRows(data, data.exact if one.precise else data.gram, one.qp.rows)
        one.rows = keep_rows(rows, ctx, self.keep_sums) if self.caches else rows
        one.work = self.start_model(one.qp, one.rows, ctx)
        state.open.append(one)
        return one

    def _score(self, state: KernelState, one: OpenModel) -> None:
        """f = K beta - t of the QP, unless it is there."""
        qp = one.qp
        if not state.scored[one.model]:
            np.negative(qp.target, out=qp.f)
            support = np.flatnonzero(qp.beta)
            if len(support):
                one.rows.update(qp.f, support, qp.beta[support])
        state.now_scored(one.model)

    def _count(self, state: KernelState, one: OpenModel) -> None:
        """Take over what the rows have counted."""
        counts = one.rows.counts
        state.asked[one.model] += counts.asked
        state.kernel_rows += (counts.computed, counts.ram_hits, counts.disk_hits, counts.values)
        counts.computed = counts.ram_hits = counts.disk_hits = counts.values = counts.asked = 0

    def _message(self, state: KernelState) -> str:
        """What went wrong with rows on disk, the first time that it does."""
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
        """A proof is asked for when all models are done, and not before."""
        return np.inf

    def points(self, state: KernelState) -> list[Point]:
        """None: there is no w (`run/proof/kernel_prover.py` proves these)."""
        return []

    def learn(
        self, state: KernelState, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Models whose proof failed go on: nearer to their optimum, and in float64 when that happens again."""

    def make_room(self, state: KernelState) -> None:
        """A proof comes: let go of what can be had again."""

    def proof_failed(self, state: KernelState, models: np.ndarray) -> None:
        """Take up models again whose proof did not show what their own scores promised.

        Their scores had gathered the rounding of float32 values; computed anew they go on from the truth.  Where that
        happens again the values are to blame.
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
        """alpha in the place of beta: alpha_i = |beta_i| for classes, alpha_i - alpha*_i for targets."""
        if not state.problem.regression:
            np.abs(state.alpha.values, out=state.alpha.values)
        # A QP in work, where a run was stopped, looks into the vectors: a map cannot be closed before it is gone, from
        # every variable, too.
        while state.open:
            self._let_go(state.open.pop(0))
        state.shared = None
        for vector in state.vectors.values():
            vector.close()
        if state.beta is not None:
            state.beta.close()
        state.data.close()
