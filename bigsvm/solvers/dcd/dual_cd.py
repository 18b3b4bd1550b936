"""`dcd`: dual coordinate descent (`compiled/linear/dual_cd.py`) on rows in memory, rows that stream, or shards.

Rows in memory are swept many times in a step, and shrunk as in LIBLINEAR.  Rows that stream are visited once in a pass;
those that violate also enter a row buffer in memory, which is swept between reads (`dual_cd_stream.py`).  Rows that
stream are not shrunk, because the cost is reading (a9a, hinge, to 1e-3: 704 passes with shrinking, 133 without).  Rows
on several shards are trained where they are, and the changes of w are added up many times in a pass
(`shards/sharded_pass.py`).

With --stop paper it ends by the rule of Hsieh et al.: the projected gradients of a sweep over all rows lie within `eps`
of one another.  Rows that stream then have neither row buffer nor momentum, because the published method has neither.

Rows in memory get momentum, too, and w in float64, once sweeps take long (`slow_sweeps.py`).  In a search by
cross-validation there is momentum from the beginning: 80 models, hinge, to 1e-6, took 7.5 s instead of 19.

Models are trained in groups that share only the reading of the rows (`groups_of_models`).  Crammer and Singer's loss
couples all models (`compiled/linear/joint.py`), so they form one group, and a row is shrunk for all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from bigsvm.compiled.linear.dual_cd import widest_spread
from bigsvm.compiled.shared.visiting import WITH_REPLACEMENT, mixed_runs_of
from bigsvm.config import JOINT_LOSS, FitConfig
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.loss import Loss, loss_named
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Keeps, Need, Point, Rule, SmallFit, SolverBase, StartsFrom, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd import rounding, slow_sweeps
from bigsvm.solvers.dcd.dual_cd_arrays import needs_of, new_state
from bigsvm.solvers.dcd.dual_cd_memory import MemorySweeps, sweeps_in_a_step
from bigsvm.solvers.dcd.dual_cd_start import DualStart
from bigsvm.solvers.dcd.dual_cd_state import FIRST_EPS, DualCDState, with_proofs
from bigsvm.solvers.dcd.dual_cd_stream import pass_sums, streamed_pass
from bigsvm.solvers.dcd.earlier_checkpoints import refuse_earlier
from bigsvm.solvers.dcd.foresight import epochs_left, foresee, work_of_another
from bigsvm.solvers.dcd.interior import begin, epochs, read, solve
from bigsvm.solvers.dcd.shards.shard_state import RESCALED
from bigsvm.solvers.dcd.shards.sharded_pass import sharded_pass
from bigsvm.solvers.dcd.slow_sweeps import let_go, speed_up
from bigsvm.solvers.tube.streamed import streamed_needs
from bigsvm.solvers.tube.tube import solves
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import Matrix
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft, side_by_side
from bigsvm.units import MIB, counted

_SHORTFALL = 2.0  # a proved gap this many times the estimate means that rows were wrongly shrunk
_MANY_SWEEPS = 16  # from so many sweeps on, a step of a search ends with a proof, which costs as much as two sweeps
_FLOAT32_FROM = 1e-4  # smallest tolerance for which w is float32
_ROOM = 1.2  # safety factor on forecasts that go by the last proof
_ROOM_ON_SHARDS = 2.0  # safety factor on forecasts that go by what the rows of shards showed
_PIECE = 1 << 16  # features updated at a time
_HANDED_PASSES = 200.0  # of a small fit that hands over: more than it needs
_NO_TARGET = -1.0  # target of the gap under --stop paper: never reached
_ASKED = 2.0  # forecast, in units of the tolerance, with which a deferred proof is asked for, but none of its own
_ENDLESS = 1e6  # epochs from which a message no longer quotes the forecast
_RULE = "largest less smallest projected gradient of a sweep"


@dataclass(frozen=True)
class DualCD(SolverBase):
    """Hyperparameters of `dcd`.

    max_sweeps_per_step : int   most sweeps over rows in memory in one step; no effect on rows that stream
    row_buffer : str     'auto': of rows that stream, those that violate stay in memory; 'off': none do
    momentum : str  'auto', 'on' or 'off': extrapolate alpha and w before a pass over rows that stream, before sweeps
                    of a search, or of another fit of rows in memory that takes long (`momentum.py`).  Only for
                    classification; on shards only without bias, weights of rows and row buffer
    order : str     'permutation': a sweep visits every row once;  'random': it draws as many rows with replacement
                    (Hsieh et al., Algorithm 2; for rows that stream, within each group of blocks).  'random' turns
                    shrinking, row buffer and momentum off, since all three need every row to be visited
    eps : float     rule of --stop paper: largest minus smallest projected gradient of a sweep over all rows <= eps
    interior_after : int   with the epsilon-insensitive loss and few features: epochs (passes, if rows stream) after
                    which an interior-point method takes over (`interior.py`); 0: as many as that is thought to cost;
                    -1: never
    takeover_after : int   of classes, and in a regression with many features, if rows are in memory: epochs after which
                    an interior-point method takes over (`interior.py`); 0: once dcd has done as much work as that is
                    thought to take, or at its rate would still need as much; -1: never.  `auto` takes 0
    asked : the options of the fit
    """

    name: ClassVar[str] = "dcd"
    losses: ClassVar[tuple[str, ...]] = (
        "hinge",
        "squared_hinge",
        "epsilon_insensitive",
        "squared_epsilon_insensitive",
        JOINT_LOSS,
    )
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none")
    can_defer: ClassVar[bool] = True
    in_shards: ClassVar[bool] = True
    in_rounds: ClassVar[bool] = True
    starts_from: ClassVar[StartsFrom] = "duals"
    paper_rule: ClassVar[bool] = True
    label_sets: ClassVar[bool] = True

    max_sweeps_per_step: int = 64
    row_buffer: str = "auto"
    momentum: str = "auto"
    order: str = "permutation"
    eps: float = 1e-3
    interior_after: int = 0
    takeover_after: int = -1
    asked: FitConfig = field(default=FitConfig(), repr=False, metadata={"asked": True})

    def __post_init__(self) -> None:
        if self.row_buffer not in ("auto", "off"):
            raise ValueError(f"row_buffer must be auto or off, not {self.row_buffer!r}")
        if self.momentum not in ("auto", "on", "off"):
            raise ValueError(f"momentum must be auto, on or off, not {self.momentum!r}")
        if self.order not in ("permutation", "random"):
            raise ValueError(f"order must be permutation or random, not {self.order!r}")
        if self.max_sweeps_per_step < 1:
            raise ValueError(f"max_sweeps_per_step must be at least 1, not {self.max_sweeps_per_step!r}")
        if not self.eps > 0:
            raise ValueError(f"eps must be above 0, not {self.eps!r}")
        if self.interior_after < -1:
            raise ValueError(f"interior_after must be a number of epochs, 0 or -1, not {self.interior_after!r}")
        if self.takeover_after < -1:
            raise ValueError(f"takeover_after must be a number of epochs, 0 or -1, not {self.takeover_after!r}")
        if self.order == "random":
            if self.momentum == "on":
                raise ValueError("order=random visits some rows not at all in a pass, which momentum=on needs")
            object.__setattr__(self, "row_buffer", "off")
            object.__setattr__(self, "momentum", "off")

    @property
    def keeps_rows(self) -> Keeps:
        """As `row_buffer` says; never under the paper's rule."""
        return "auto" if self.row_buffer == "auto" and not self._by_rule else "off"

    @property
    def _by_rule(self) -> bool:
        return self.asked.stop == "paper"

    def refusal(self, shape: DataShape) -> str | None:
        """Options that exclude each other; the shape itself does not matter.

        The paper's rule is defined for one sequence of sweeps, each of which visits every row.
        """
        on_shards = "on shards" if shape.shards > 1 else ""
        at_random = "with order=random" if self.order == "random" else ""
        ahead = "with momentum=on" if self.momentum == "on" else ""
        if self._by_rule and (how := on_shards or at_random or ahead):
            return f"solver 'dcd' {how} has no stop rule of its paper's: leave that out, or use --stop gap"
        if shape.joint and (how := on_shards or ahead):
            return f"solver 'dcd' {how} does not train Crammer and Singer's loss: leave that out"
        if self.momentum == "on" and shape.regression:
            return "solver 'dcd' has no momentum for a regression: leave out momentum=on"
        if self.order == "random" and shape.shards > 1:
            return "solver 'dcd' with order=random takes one block after another: use --shards 1"
        if self.momentum == "on" and shape.shards > 1:
            return "solver 'dcd' on shards has momentum only where it can: leave out momentum=on, or use --shards 1"
        return None

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes by name (`dual_cd_arrays.py`); per-row needs may go to disk."""
        needs = needs_of(shape, resident, self._leaps, self.row_buffer != "off")
        streams = not resident and shape.shards == 1
        handed = streams and self.may_hand_over(loss_named(self.asked.loss), shape.n_features)
        return [*needs, *(streamed_needs(shape) if handed else [])]

    @property
    def _leaps(self) -> bool:
        return self.momentum != "off" and not self._by_rule

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """One, with w of the type that `tol` asks for; 8 passes use momentum, and make both kinds of proofs.

        Another one for `interior.py`, where another method may take over.
        """
        fit = SmallFit() if resident else SmallFit(passes=8.0)
        fit = fit._replace(tol=_FLOAT32_FROM) if self.weight_bytes(tol, False) == 4 else fit
        loss = loss_named(self.asked.loss)
        classes = resident and self._foresees and not (loss.regression or loss.joint)
        if not (classes or self.may_hand_over(loss, 1)):
            return [fit]
        at_once = (("takeover_after" if classes else "interior_after", 1), ("max_sweeps_per_step", 1))
        return [fit, fit._replace(options=at_once, load=False, passes=fit.passes if resident else _HANDED_PASSES)]

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """4 if w is float32: its rounding is far below such a gap, and proofs are computed in float64.

        Regression needs float64, because residuals may be far smaller than f(x), and the gap is relative to their
        losses.  So does the paper's rule, which compares gradients.
        """
        return 4 if tol >= _FLOAT32_FROM and not regression and not self._by_rule else 8

    def init(self, problem: Problem, ctx: Context) -> DualCDState:
        """alpha = 0, w = 0, every row active."""
        dtype = np.float32 if self.weight_bytes(ctx.tol, problem.regression) == 4 else np.float64
        eps, target = (self.eps, _NO_TARGET) if self._by_rule else (FIRST_EPS, ctx.tol)
        state = new_state(problem, ctx, dtype, self._leaps, self.row_buffer != "off", eps, target)
        if self._foresees:
            state.enough = work_of_another(problem, ctx)
            state.pace.see(0.0, np.ones(1))
        return state

    def start_at(self, state: DualCDState, w: np.ndarray | None) -> list[RowVector]:
        """Put w in the state, to be proved as a primal point; `learn` then replaces it by w(alpha)."""
        first = 0
        for group in state.groups:
            models = slice(first, first + group.problem.n_models)
            first = models.stop
            if w is not None:
                columns(group.w)[...] = columns(w)[:, models]
        return [group.alpha for group in state.groups]

    def linear_start(self, state: DualCDState, known: int, by_weights: bool, ctx: Context) -> DualStart:
        """See `dual_cd_start.py`."""
        return DualStart(state, known, by_weights, ctx)

    def step(self, problem: Problem, state: DualCDState, ctx: Context) -> StepInfo:
        """One pass over rows that stream; on data in memory, up to `max_sweeps_per_step` sweeps."""
        if ctx.resident:
            message = "" if state.swept else speed_up(state, ctx, self._leaps)
            swept = StepInfo(*state.swept) if state.swept else self._sweep_memory(state, ctx)
            if math.isfinite(state.enough) and not state.swept:
                foresee(state, ctx, swept.gap_estimate, self.takeover_after)
            return self._solved(state, ctx, replace(swept, message=message))
        between = state.path is None and state.done == 0 and state.estimates[0] > ctx.tol  # two passes, not at the end
        if between and self._late(state, ctx) and self._takes_over(state):
            begin(state, ctx)
        if state.path is not None:
            return self._read(state, ctx)
        if ctx.shards > 1:
            seen = sharded_pass(state, ctx)
            if seen is None:
                return StepInfo.left(state.estimates[0], ctx.data.n_samples)
            sums, visits = seen
        else:
            if state.done == 0:
                _leap(state)
            state.done = streamed_pass(state, self._mixed_runs, ctx)
            if state.done:
                return StepInfo.left(state.estimates[0], ctx.data.n_samples)
            sums, visits = pass_sums(state.groups)
        state.sweep += 1
        newest = 0.0
        for group, (gap, loss) in zip(state.groups, (part.T for part in sums), strict=True):
            group.estimate = group.relative(gap, loss)
            newest = max(newest, group.estimate)
        state.estimates = (newest, state.estimates[0])
        message = "" if self._as_published else rounding.go_finer(state, ctx, slow_sweeps.free_bytes(state, ctx))
        rule = None
        if self._by_rule:
            widest = max(widest_spread(group.spread) for group in state.groups)
            rule = Rule.where(widest <= self.eps, _RULE, widest, self.eps)
        return StepInfo(
            newest, ctx.data.n_samples, visits, ask_certificate=False, collectable=bool(ctx.deferred), rule=rule,
            readings=self.proof_readings(state), message=message,
        )  # fmt: skip

    def proof_readings(self, state: DualCDState) -> int:
        """One, but groups of models on shards are read one after another.  A pass takes as many."""
        return 1 if state.shards is None else len(state.shards)

    def before_load(self, state: DualCDState, tree: Any, ctx: Context) -> None:
        """Allocate what a saved state has and a new one lacks: the row buffer, and statistics of an unfinished pass."""
        refuse_earlier(state, tree, ctx.data.uri)
        if tree.get("path") is not None:
            begin(state, ctx)
        if state.shrinks:
            slow_sweeps.before_load(state, tree, ctx)
        else:
            rounding.before_load(state, tree, ctx)
        if tree["row_buffer"] is not None:
            state.row_buffer = rounding.row_buffer_of(state, ctx)
        for group, saved in zip(state.groups, tree["groups"], strict=True):
            for name in ("seen", "row_buffer_stats"):
                setattr(group, name, np.empty(saved[name].shape))

    def forecast(self, state: DualCDState) -> float:
        """The relative gap that a proof of the present point is expected to show.

        On shards it is twice what the pass showed, or more if the last proof found more: during a round the rows of a
        shard do not see the changes by other shards.  Caution pays, because a proof that fails has cost a pass, and a
        deferred one costs none.  Where rounding is suspected to limit the gap, a deferred proof is asked for, to tell.
        While the interior-point method reads rows that stream the point stays as it is: proofs of it would show the
        same again and again, and so many end a fit as stalled.
        """
        if state.path is not None:
            return math.inf
        if state.shards is not None:
            forecast = _ROOM_ON_SHARDS * max(state.share, 1.0) * state.estimates[0]
        else:
            forecast = _forecast(*state.estimates, state.share)
        return min(forecast, _ASKED * state.groups[0].target) if state.rounding.suspected else forecast

    def _sweep_memory(self, state: DualCDState, ctx: Context) -> StepInfo:
        """Some sweeps over rows in memory, of all groups of models side by side."""
        n_sweeps = sweeps_in_a_step(state, ctx, self.max_sweeps_per_step)
        sweeps = MemorySweeps.of(state, ctx, n_sweeps, self._mixed_runs, self._by_rule)
        hardest_first = state.groups[::-1]  # the models of a search come in order of C, the hardest last
        done = side_by_side(sweeps.run, hardest_first, ctx.threads, "bigsvm-models")
        state.sweep += n_sweeps
        estimate = max(group.estimate for group in state.groups)
        state.estimates = (estimate, state.estimates[0])
        widest = max(swept.widest for swept in done)
        searched = state.groups[0].problem.axis is not None  # models of a search rest once they are proved
        # Of a group whose models all rest, only a proof can tell whether they come back.
        trains = [group.moves.any() for group in hardest_first]
        ended = any(swept.exhausted and moves for swept, moves in zip(done, trains, strict=True))
        return StepInfo(
            gap_estimate=estimate,
            n_active=max(swept.last_visits for swept in done),
            visits=sum(swept.visits for swept in done) // len(done),
            ask_certificate=(searched and n_sweeps >= _MANY_SWEEPS) or ended or estimate <= ctx.tol,
            exhausted=any(trains) and all(swept.exhausted for swept in done),
            rule=Rule.where(widest <= self.eps, _RULE, widest, self.eps),
        )

    def may_hand_over(self, loss: Loss, n_features: int) -> bool:
        """Whether the interior-point method takes over from sweeps that take long (`interior.py`)."""
        return solves(loss, n_features) and self.interior_after >= 0 and not self._as_published

    @property
    def _as_published(self) -> bool:
        return self._by_rule or self.order == "random"

    @property
    def _foresees(self) -> bool:
        return self.takeover_after >= 0 and not self._as_published

    def _takes_over(self, state: DualCDState) -> bool:
        """Whether another method may take over, which was not tried yet."""
        group = state.groups[0]
        able = math.isfinite(state.enough) or self.may_hand_over(group.problem.loss, len(group.w) - 1)
        return able and state.shards is None and not state.solved

    def _late(self, state: DualCDState, ctx: Context) -> bool:
        """Whether sweeps have cost about as much as the method, or would not arrive."""
        in_turn = not math.isfinite(state.enough) and state.sweep >= (self.interior_after or epochs(ctx))
        return state.hopeless or in_turn

    def _read(self, state: DualCDState, ctx: Context) -> StepInfo:
        """One reading of the interior-point method."""
        n, gap, collectable = ctx.data.n_samples, state.estimates[0], bool(ctx.deferred)
        try:
            state.solved = read(state, ctx)
        except PassLeft:
            return StepInfo.left(gap, n)
        begins = state.path is not None and state.path.begins
        message = self._message(state.sweep, "pass", gap) if begins else ""
        return StepInfo(
            state.estimates[0], n, n, ask_certificate=state.solved, collectable=collectable, message=message
        )

    @staticmethod
    def _message(sweeps: int, unit: str, gap: float, forecast: str = "") -> str:
        after = counted(sweeps, unit, "passes" if unit == "pass" else "", commas=True)
        return f"dcd: after {after} the gap is about {gap:.2g}{forecast}: an interior-point method takes over"

    def _forecast_of(self, state: DualCDState, ctx: Context) -> str:
        """The forecast that decided who goes on, and the work to come, for the message; '' if there was none."""
        if not math.isfinite(state.enough) or self.takeover_after:
            return ""
        left = epochs_left(state, ctx)
        falls = f", and would take {left:,.0f} epochs more" if left < _ENDLESS else " and hardly falls"
        return f"{falls}, while {state.enough:,.0f} epochs of work should do"

    def _solved(self, state: DualCDState, ctx: Context, info: StepInfo) -> StepInfo:
        """The report on a step, after which the method takes over if sweeps take long (`interior.py`)."""
        late = info.exhausted or self._late(state, ctx)
        if info.gap_estimate <= ctx.tol or not (late and self._takes_over(state)) or ctx.expired():
            return info
        try:
            lacking = solve(state, ctx)
        except PassLeft:  # that of a model begins again where the run is resumed, and does not depend on w and alpha
            state.swept = [info.gap_estimate, info.n_active, info.visits, info.ask_certificate, info.exhausted]
            return replace(info, paused=True)
        state.solved, state.swept = True, []
        if not (lacking or state.finished):  # --max-time is over, and the point of the sweeps stays
            return info
        if lacking:
            least = -(-(ctx.budget.limit + lacking) // MIB)
            return replace(info, message=f"dcd: sweeps take long; --memory {least}MiB has room for a faster method")
        message = self._message(state.sweep, "epoch", info.gap_estimate, self._forecast_of(state, ctx))
        return replace(info, gap_estimate=state.estimates[0], ask_certificate=True, exhausted=False, message=message)

    def change(self, state: DualCDState) -> str:
        """Let the interior-point method take over from sweeps, if the problem allows it (`_solved`, `_late`)."""
        if state.path is not None and state.path.solved > state.told:  # it goes on; of several models one after another
            state.told = state.path.solved
            solved = f"{state.told:,} of {counted(len(state.waiting), 'model', commas=True)}"
            return f"dcd: the interior-point method goes on: {solved} are solved"
        if state.hopeless or state.path is not None or not self._takes_over(state):
            return ""
        state.hopeless = True
        return "dcd: sweeps would not reach the tolerance"

    def _mixed_runs(self, X: Matrix, part: Problem) -> int:
        return WITH_REPLACEMENT if self.order == "random" else mixed_runs_of(X, part.constant_feature != 0.0)

    def points(self, state: DualCDState) -> list[Point]:
        """w and alpha of each group of models."""
        if state.shards is not None:
            groups = zip(state.groups, state.shards, strict=True)
            return [
                Point(group.problem, shards.proved, group.alpha, rescaled=RESCALED, on_shards=shards.prove)
                for group, shards in groups
            ]
        return [
            Point(group.problem, group.w, group.alpha, still=group.still)
            if (ahead := group.momentum) is None or state.shrinks
            else Point(group.problem, group.w, group.alpha, (ahead.w, ahead.alpha), rescaled=True)
            for group in state.groups
        ]

    def learn(
        self, state: DualCDState, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Remove rounding errors from w, with the help of w(alpha), and take over the proved lower bounds.

        If the proved gap is much larger than the estimate from the active rows, rows were wrongly shrunk or the margins
        were too old.  All rows become active again, and the next proof is asked for at a smaller estimate.
        """
        proved = certificate.relative_gap
        own = [group.w for group in state.groups] if state.shards is None else [one.proved for one in state.shards]
        moved = any(w is not point for w, point in zip(of, own, strict=True))
        estimate = state.estimates[1] if moved else state.estimates[0]
        if 0 < estimate < math.inf:
            state.share = proved / estimate if state.shards is not None else min(proved / estimate, 1.0)
        state.rounding.see_proof(proved)
        for place, ((group, proofs), v, w) in enumerate(zip(with_proofs(state.groups), rebuilt, of, strict=True)):
            if state.shards is not None:
                state.shards[place].learn(v, moved)
            elif w is group.w:
                group.w[...] = v
            else:
                for start in range(0, len(w), _PIECE):  # in pieces: no copy as large as w
                    piece = slice(start, start + _PIECE)
                    group.w[piece] += v[piece] - w[piece]
                if group.momentum is not None:
                    group.momentum.w[...] = v  # the next direction is measured from here
            if state.shrinks:
                slow_sweeps.see_proof(group, certificate.dual[proofs], certificate.relative_gaps[proofs])
            group.floor = np.maximum(group.floor, certificate.dual[proofs])
            group.still = state.shrinks and group.rests
            if not state.shrinks or not group.estimate > 0.0:
                continue
            if group.estimate <= group.target:
                group.target = 0.7 * min(group.target, max(group.estimate, 0.1 * group.target))
            if float(certificate.relative_gaps[proofs].max()) > _SHORTFALL * group.estimate:
                group.reactivate()

    def take_proved(self, state: DualCDState, proved: np.ndarray) -> None:
        """Models within the tolerance rest until a later proof finds them outside of it."""
        for group, proofs in with_proofs(state.groups):
            moves = (~proved[proofs]).astype(np.uint8)
            searched = group.problem.axis is not None
            if not (searched or (state.shrinks and group.rests)) or np.array_equal(moves, group.moves):
                continue
            back = moves > group.moves
            group.moves[...] = moves
            if state.shrinks and searched:
                group.reactivate()
            elif state.shrinks:
                group.bring_back(back)

    def finish(self, state: DualCDState) -> None:
        """Give back what only training needs."""
        for sharded in state.shards or ():
            sharded.finish()
        let_go(state)
        for group in state.groups:
            group.momentum = None
            group.active.close()
        state.row_buffer = None
        if state.path is not None:
            state.path.close()
        if state.sqnorm is not None:
            state.sqnorm.close()
        if state.cost is not None:
            state.cost.close()


def _leap(state: DualCDState) -> None:
    """Extrapolate alpha and w of each group of models along the last pass; before the first pass only remember them."""
    cost = np.empty(0) if state.cost is None else state.cost.values[:, 0]
    for group in state.groups:
        if group.momentum is not None and state.sweep == 0:  # there is no last pass
            group.momentum.remember(group.w, group.alpha)
        elif group.momentum is not None:
            group.momentum.leap(group.problem, group.w, group.alpha, cost)


def _forecast(newest: float, former: float, share: float) -> float:
    """The expected gap at the end of a pass.

    newest, former : gaps estimated during the pass and during the one before, from margins of that time
    share : proved gap / estimate, from the last proof; 0 before the first

    The estimate is stale: the pass went on afterwards.  Without a proof to compare with, half the progress of a pass is
    assumed.
    """
    if share > 0:
        return min(_ROOM * share, 1.0) * newest
    if not 0 < newest < former or math.isinf(former):
        return newest
    return newest * math.sqrt(newest / former)
