r"""Dual coordinate descent on L shards: a pass consists of P rounds, and each round of one sum over all shards.

In a round every shard starts from the same w, takes steps on a P-th of its rows (and on the rows in its row buffer),
and returns its change of w.  Let d = sum_k d_k be the change of w, and da that of alpha.  Along them the dual objective
is a parabola; the step length theta leads to its maximum, but not beyond d itself:

    theta = min(1, (sum_i t_i da_i - w.d - sum_i D_i alpha_i da_i) / (|d|^2 + sum_i D_i da_i^2))

so the dual never falls, and alpha stays in its box.  Shards that all push the same features go too far together.  Each
local problem is therefore made stiffer by a measured factor, |d|^2 / sum_k |d_k|^2: it is 1 for changes that have
nothing in common and L for equal ones, and differs between features (`stiffness.py`).  Changes that cancel
between shards are accelerated by momentum (`shard_momentum.py`).  With many rounds in a pass, a pass makes nearly as
much progress as on one machine.  Without a row buffer a pass begins with a step of momentum, which may leave the box
(`dcd/momentum.py`): 60,000 rows x 5,000 features on 16 shards took 24 passes instead of 30 (hinge) and 22 instead of 39
(squared hinge); 20,000 x 50 dense rows had gaps of 4e-2 instead of 0.5 after 60 passes.

The model is not the last w but the mean of w over the last quarter of the rounds of a pass.  Each round fits its own
part of the rows best, and the mean does not.  300,000 rows x 100,000 features on 16 shards, with a tenth of the rows
kept, had gaps of 9.8e-4 and 9e-4 (two seeds) after 5 passes, where the last w had 1.4e-3 and 1.6e-3; alpha was that of
the end of the pass in both cases.

L and P are functions of the data's shape, so the result does not depend on the workers.

Sources: the sum over parts and its line search: Lee and Roth, ICML 2015; safe stiffness: Ma et al., ICML 2015.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.compiled.linear.momentum import leap
from bigsvm.errors import DataError
from bigsvm.problem.certificate import RowsTerms
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.active_row_buffer import with_beside
from bigsvm.solvers.dcd.dual_cd_stream import PassSums
from bigsvm.solvers.dcd.shards.kept_states import KeptStates
from bigsvm.solvers.dcd.shards.moved_alpha import moved_bytes
from bigsvm.solvers.dcd.shards.round_messages import Found, Round
from bigsvm.solvers.dcd.shards.shard_momentum import MomentumSchedule, by_model, products
from bigsvm.solvers.dcd.shards.shard_rows import ShardRows
from bigsvm.solvers.dcd.shards.shared_bias import SharedBias
from bigsvm.solvers.dcd.shards.stiffness import StiffnessSchedule
from bigsvm.solvers.shard_reading import terms_of
from bigsvm.solvers.weights import columns
from bigsvm.tasks import ShardSum

if TYPE_CHECKING:
    from bigsvm.solvers.dcd.dual_cd_state import DualCDState, ModelGroup

_ARRAYS = ("theta", "seen")
_AVERAGED = 4  # the mean of w is over the last 1/4 of the rounds of a pass
_PIECE = 1 << 16  # features updated at a time
_BEYOND = 1e150  # values whose square overflows


def sharded_pass(state: DualCDState, ctx: Context) -> PassSums | None:
    """One pass of all groups of models, one group after another; after a pause, only rounds from `state.done` on.

    When it returns, alpha and all else that a checkpoint needs are in the arrays of this process.  Returns None if
    `ctx.pause` interrupted the pass.
    """
    assert state.shards is not None
    rounds = ctx.rounds_per_pass
    whole = rounds * len(state.groups)
    while state.done < whole:
        number, part = divmod(state.done, rounds)
        riding = ctx.deferred[number] if ctx.deferred else None
        state.shards[number].round(state.sweep, part, rounds, ctx, riding, state.rounding.exact)
        state.done += 1
        if state.done < whole and ctx.pause():
            for group in state.shards:
                group.collect()
            return None
    state.done = 0
    for group in state.shards:
        group.collect()
    found = [group.pass_sums(ctx) for group in state.shards]
    return PassSums([sums for sums, _ in found], sum(visits for _, visits in found) // len(found))


class _Line(NamedTuple):
    """The dual along the changes of a round: a step of length theta raises it by theta rise - theta^2 curvature / 2.

    Arrays are float64, (n_models,), sums over all shards.  linear, balance : as in `Found`
    gain : `rise` without the bias;  square : |d|^2 of the change d of w, with the bias if shards move it
    """

    linear: np.ndarray
    gain: np.ndarray
    rise: np.ndarray
    square: np.ndarray
    curvature: np.ndarray
    balance: np.ndarray

    def theta(self) -> np.ndarray:
        """The step length of the highest dual, but at most 1."""
        theta = np.ones(len(self.curvature))
        np.divide(self.rise, self.curvature, out=theta, where=self.curvature > 0.0)
        return np.clip(theta, 0.0, 1.0)


class ShardedGroup:
    """A group of models that is trained on shards: the side of the calling process, which has w.

    rounds : rounds since the fit began;  theta : float64, (n_models,), step length of the last round
    stiffness : of the local problems;  bias : how it moves between rounds;  momentum : of the shards' parts of w
    given : the w that the last round began at
    mean : the mean of w over the last rounds of the last pass; None before the first
    stood : the w that the present pass began at, if a deferred certificate is computed during the pass
    seen : float64, (rounds of this pass, n_models, 4)   gap and loss of the visited rows, gap and loss of the kept rows
    """

    def __init__(self, models: ModelGroup, ctx: Context, n_groups: int) -> None:
        self.models, self.rounds, self.visits = models, 0, 0
        m = models.problem.n_models
        self.theta = np.ones(m)
        self.stiffness = StiffnessSchedule(ctx.shards)
        self.bias = SharedBias(m, models.problem.constant_feature)
        self.momentum, self.given = MomentumSchedule(m), np.zeros_like(models.w)
        self.mean: np.ndarray | None = None
        self.stood: np.ndarray | None = None
        self.seen = np.empty((0, m, 4))
        self._rows = [_rows_of(number, models, ctx, n_groups) for number in range(ctx.shards)]
        self._states = KeptStates(self._rows, models, ctx)

    def round(
        self, sweep: int, part: int, parts: int, ctx: Context, riding: DeferredCertificate | None = None,
        exact: bool = False,
    ) -> None:  # fmt: skip
        """One round of all shards: w and alpha move to the maximum of the dual along their changes.

        sweep : number of the pass;  part, parts : number of the round within the pass, and of all its rounds
        riding : a deferred certificate, of the mean and alpha at the end of the last pass, to be computed in this pass
        exact : shards keep rows as they are
        """
        self._states.restore(self._shared(), riding if part else None)
        if part == 0:
            self.seen, self.visits = np.empty((0, *self.seen.shape[1:])), 0
            self.stood = None if riding is None else self.models.w.copy()
        told = self._begin_round(sweep, part, parts, riding)._replace(exact=exact)
        total = self._sent(told, riding)
        each, change = [Found(*found) for found in total.each], total.vectors[0]
        ctx.charge(sum(found.bytes_read for found in each))
        line = self._line(each, change)
        self._move(line, each, change, leapt=bool(told.ahead.any()), swept=min(ctx.row_buffer_sweeps / parts, 1.0))
        self._refuse_divergence(ctx.data.uri, line.square, line.rise, line.curvature, self.models.w[-1])
        self._see_stiffness(each, total, line.balance)
        self._average(part, parts)
        if part == parts - 1 and self.bias.judge():
            self._join_bias()
        seen = np.stack([_sum(each, name) for name in ("gap", "loss", "kept_gap", "kept_loss")], axis=1)
        self.seen = np.concatenate([self.seen, seen[None]])
        self.visits += sum(found.visits for found in each)
        self.rounds += 1
        if riding is not None and part == parts - 1:
            for terms in terms_of([found.proof for found in each if found.proof is not None], total.vectors[-1]):
                riding.take(terms)

    def _begin_round(self, sweep: int, part: int, parts: int, riding: DeferredCertificate | None) -> Round:
        """The message to the shards.  A pass begins with the models that restart, and with a step of momentum for w."""
        afresh = np.zeros(len(self.theta), bool) if part else self.bias.begin_pass()
        self.momentum.forget(afresh)
        ahead, beta = np.empty(0) if part else self._leap(sweep), self.momentum.beta
        if ahead.any():
            beta = np.zeros(len(beta))  # after a step of momentum w is no longer `given` plus the changes of the shards
        return Round(
            self.rounds, sweep, part, parts,
            stiffness=self.stiffness.by_bucket(self.bias.joined),
            theta=self.theta,
            afresh=afresh,
            beta=beta,
            proves=0 if riding is None else 2 if part else 1,
            buckets=self.stiffness.buckets if self.rounds == 1 else np.empty(0, np.uint8),
            ahead=ahead,
            point=riding.w if riding is not None and part == 0 and self._states.home else np.empty(0),
        )  # fmt: skip

    def _sent(self, told: Round, riding: DeferredCertificate | None) -> ShardSum:
        """Let all shards do a round; here, too, w of the models that restart becomes 0.  The sum of the answers."""
        self.given = self.models.w.copy()  # shards keep a reference to it
        if told.afresh.any():
            columns(self.models.w)[:, told.afresh] = 0.0
        if self._states.home:
            shard_tasks.log_round(self._states.home, told, self.given)
        elif riding is not None:
            self._states.lend(riding)
        return self._states.ask(shard_tasks.round_task, (told, self.given))

    def _line(self, each: list[Found], change: np.ndarray) -> _Line:
        """The dual along the changes of all shards, whose sum is `change`."""
        balance = _sum(each, "balance")
        square = products(change, change) + self.bias.square(balance)
        linear, curvature = _sum(each, "linear"), square + _sum(each, "square")
        gain = linear - products(self.models.w, change) - _sum(each, "cross")
        rise = gain - self._bias() * balance
        return _Line(linear, gain, rise, square, curvature, balance)

    def _move(self, line: _Line, each: list[Found], change: np.ndarray, leapt: bool, swept: float) -> None:
        """Go to the maximum of the dual along the line; then move the bias.

        leapt : the round began with a step of momentum;  swept : share of the row buffer that the round has swept
        """
        w, bias, theta = self.models.w, self.bias, line.theta()
        self.theta = theta
        w[:-1] += by_model(theta, w) * change[:-1]
        if not leapt:
            self.momentum.see(_sum(each, "agreed"), theta)
        bias.follow(theta, line.linear, line.gain, line.curvature, line.balance)
        if bias.scale:
            moved = bias.moved(self._bias(), _sum(each, "response") + swept * _sum(each, "kept_response")) / bias.scale
            w[-1] = moved if w.ndim == 2 else moved[0]

    def _see_stiffness(self, each: list[Found], total: ShardSum, balance: np.ndarray) -> None:
        """Take account of how much the changes of the shards have in common; the first round counts the features."""
        if self.rounds == 0:
            self.stiffness.sort(total.vectors[1])
            return
        pushed = sum(self.bias.square(found.balance) for found in each)
        norms = [found.norm for found in each]
        self.stiffness.see(total.vectors[0], self.bias.square(balance), norms, pushed)

    def _join_bias(self) -> None:
        """The bias has become a weight like the others: set it to its value at alpha, and forget the last rounds."""
        w = self.models.w
        self.stiffness.forget()
        self.momentum.forget(np.ones(len(self.theta), bool))
        w[-1] = self.bias.scale * (self.bias.balance if w.ndim == 2 else self.bias.balance[0])
        self.mean = w.copy()

    @property
    def proved(self) -> np.ndarray:
        """The primal point that goes with alpha as the last pass left it."""
        return self.models.w if self.mean is None else self.mean

    def _average(self, part: int, parts: int) -> None:
        """Add w, after a round, to the mean over the last rounds of the pass."""
        w, n = self.models.w, part + 1 - (parts - max(parts // _AVERAGED, 1))
        if n == 1:
            self.mean = w.copy()
        elif n > 1 and self.mean is not None:
            for start in range(0, len(w), _PIECE):  # in pieces: no copy as large as w
                piece = slice(start, start + _PIECE)
                self.mean[piece] += (w[piece] - self.mean[piece]) / w.dtype.type(n)

    def _leap(self, sweep: int) -> np.ndarray:
        """A step of momentum for w (`dcd/momentum.py`); returns its length, by which the shards move alpha, or (0,)."""
        momentum, w, alpha = self.models.momentum, self.models.w, self.models.alpha
        if momentum is None:
            return np.empty(0)
        if sweep:
            momentum.decide(self.models.problem, w, alpha, np.empty(0))
        leap(columns(w), columns(momentum.w), momentum.theta)
        if self._states.home:  # in this process the shards copy alpha themselves, into this very array
            momentum.alpha.values[:] = alpha.values
        return momentum.theta.copy()

    def _bias(self) -> np.ndarray:
        """Of each model, float64."""
        return np.atleast_1d(self.models.w[-1]).astype(np.float64) * self.models.problem.constant_feature

    def _refuse_divergence(self, where: str, *found: np.ndarray) -> None:
        """Raise DataError if some value is about to overflow: the bias oscillates ever wider (`shared_bias.py`)."""
        if all(np.all(np.abs(np.asarray(values, np.float64)) < _BEYOND) for values in found):
            return
        raise DataError(
            "the bias does not converge on shards: the costs of the rows (C times weights) differ by too much",
            where,
            "use --shards 1, or --bias none",
        )

    def pass_sums(self, ctx: Context) -> tuple[np.ndarray, int]:
        """(gap, loss) of each model as the pass saw them, (n_models, 2), and row visits."""
        cycle = max(len(self.seen) // max(ctx.row_buffer_sweeps, 1), 1)  # rounds that together sweep each kept row once
        kept = self.seen[-cycle:, :, 2:].mean(axis=0)
        sums = [[math.fsum(self.seen[:, m, k]) + kept[m, k] for k in range(2)] for m in range(len(kept))]
        return np.array(sums), self.visits

    def collect(self) -> None:
        """Apply the last step length on the shards, and copy alpha and flags to the arrays of this process."""
        self._states.collect(self.rounds, self.theta)

    def prove(self, w: np.ndarray, rescaled: bool, shortened: bool) -> list[RowsTerms]:
        """The terms of a certificate, computed by the shards on their rows.  `collect` must have been called before."""
        self._states.restore(self._shared(), None)
        total = self._states.ask(shard_tasks.ask_task, (self.rounds, (rescaled, shortened), w), may_be_left=True)
        return terms_of(total.each, total.vectors[0])

    def learn(self, rebuilt: np.ndarray, rode: bool) -> None:
        """Remove rounding errors from w and from the sum of alpha_i y_i.  The bias is left to `shared_bias.py`.

        rebuilt : w(alpha) as a proof computed it
        rode : the proof was deferred, so that its alpha is that of the beginning of the last pass
        """
        w = self.models.w
        if rode and self.stood is not None:
            drift = rebuilt[:-1] - self.stood[:-1]
            w[:-1] += np.where(self.bias.began if w.ndim == 2 else self.bias.began[0], 0.0, drift).astype(w.dtype)
            self.stood = None
            return
        w[:-1] = rebuilt[:-1]
        if self.bias.scale:
            self.bias.balance = np.atleast_1d(rebuilt[-1]).astype(np.float64) / self.bias.scale

    def dump(self) -> dict[str, Any]:
        """The state for a checkpoint, except for alpha and flags of the rows; to be called after `collect`."""
        return {
            "rounds": self.rounds,
            "visits": self.visits,
            **{name: getattr(self, name) for name in _ARRAYS},
            "stiffness": self.stiffness.dump(),
            "bias": self.bias.dump(),
            "momentum": self.momentum.rounds,
            "given": self.given,
            "mean": self.mean,
            "stood": self.stood,
            "states": self._states.dump(self.rounds),
        }

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave, also in a run with another mapper."""
        self.rounds, self.visits = int(tree["rounds"]), int(tree["visits"])
        for name in _ARRAYS:
            setattr(self, name, np.array(tree[name]))
        self.stiffness.load(tree["stiffness"])
        self.bias.load(tree["bias"])
        self.momentum.rounds, self.given = np.array(tree["momentum"]), np.array(tree["given"])
        self.mean, self.stood = (None if tree[name] is None else np.array(tree[name]) for name in ("mean", "stood"))
        self._states.load(tree["states"], self._shared())

    def finish(self) -> None:
        """Release what only training needs, here and on the workers."""
        self._states.finish()

    def _shared(self) -> dict[str, Any]:
        """The parts of a shard's state that are the same on all shards."""
        return {"given": self.given, "buckets": self.stiffness.buckets}


def _rows_of(number: int, models: ModelGroup, ctx: Context, n_groups: int) -> ShardRows:
    """The rows of a shard.  Each shard of each group of models has a row buffer of its own."""
    n, problem = len(ctx.refs), models.problem
    moved = moved_bytes(problem.n_models, ctx.data.has_weights, problem.regression, ctx.data.n_samples)
    packed = ctx.row_buffer_packed
    row_buffer = with_beside(ctx.row_buffer_bytes // (ctx.shards * n_groups), ctx.data, packed, moved)
    blocks = range(number * n // ctx.shards, (number + 1) * n // ctx.shards)
    return ShardRows(
        ctx.data, problem, number, ctx.shards, ctx.refs[0].n_rows, blocks, ctx.group_blocks, ctx.seed,
        row_buffer, packed, ctx.row_buffer_sweeps, models.momentum is not None,
    )  # fmt: skip


def _sum(each: list[Found], name: str) -> np.ndarray:
    """The sum of one field over all shards, rounded only once."""
    values = np.array([getattr(found, name) for found in each])
    return np.array([math.fsum(values[:, m]) for m in range(values.shape[1])])
