"""The bias of models that are trained on shards: fixed during a round, moved between rounds (docs/mathematics.md 4.6).

At the optimum the bias is B^2 sum_i alpha_i y_i.  A controller moves it there, as fast as the rows can follow: how much
alpha responds to a change of the bias is estimated from the last rounds.  If a few rows cost 1e8 times as much as the
others, and are visited once in a pass, the estimate comes from other rows, and the bias may oscillate ever wider.  So
the dual value is watched.  When it gains nothing, the controller is given up, and the bias becomes a weight like the
others: every shard moves it for itself, and the line search includes it, so that no round lowers the dual.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_REMEMBERED = 10  # rounds from which the response of alpha to the bias is estimated
# Gains of the controller, relative to the change that would cancel the error if rows responded at once.  The integral
# gain is a quarter of the square of the proportional one, which is critical damping.
_AT_ONCE = 0.4  # proportional
_SUMMED = 0.04  # integral
_PATIENCE = 10  # passes without a gain of the dual after which the controller is given up
_FAR = 1e3  # also if the dual is below -1e3 times its linear part: alpha is then more than 500 times too long
_ARRAYS = ("balance", "held", "dual", "linear", "afresh", "began")


class SharedBias:
    """The bias of a group of models; arrays are float64, (n_models,).

    scale : the constant feature B
    balance : sum of alpha_i y_i
    held : the integral part of the bias
    dual : the dual value of alpha, updated round by round;  linear : the part of it that is linear in alpha
    duals : dual values at the ends of the last passes
    responses : of each of the last rounds, how much `balance` falls when the bias rises by 1
    joined : the controller was given up, and the bias is a weight like the others
    afresh : bool, models that the next pass restarts at alpha = 0, because that is better than alpha
    began : bool, models that the present pass restarted
    """

    def __init__(self, n_models: int, scale: float) -> None:
        self.scale, self.joined = scale, False
        self.balance, self.held = np.zeros(n_models), np.zeros(n_models)
        self.dual, self.linear = np.zeros(n_models), np.zeros(n_models)
        self.afresh, self.began = np.zeros(n_models, bool), np.zeros(n_models, bool)
        self.duals = [np.zeros(n_models)]
        self.responses: list[np.ndarray] = []

    def begin_pass(self) -> np.ndarray:
        """The models that restart at alpha = 0 with this pass, bool (n_models,)."""
        self.balance = np.where(self.afresh, 0.0, self.balance)
        self.began, self.afresh = self.afresh, np.zeros(len(self.afresh), bool)
        return self.began

    def square(self, balance: np.ndarray) -> np.ndarray:
        """Squared change of the bias weight that goes with a change of `balance`; 0 while the controller moves it."""
        return (self.scale * balance) ** 2 if self.joined else np.zeros(len(balance))

    def follow(
        self, theta: np.ndarray, linear: np.ndarray, gain: np.ndarray, curvature: np.ndarray, balance: np.ndarray
    ) -> None:
        """Update `balance`, and `dual` with its linear part, after a round of step length `theta`.

        linear, balance : change of these sums for theta = 1
        gain, curvature : without the bias the dual rises by theta gain - theta^2 curvature / 2
        """
        before, self.balance = self.balance, self.balance + theta * balance
        if not self.joined:
            self.linear = self.linear + theta * linear
            self.dual = self.dual + theta * gain - 0.5 * theta**2 * curvature
            self.dual = self.dual - 0.5 * self.scale**2 * (self.balance**2 - before**2)

    def moved(self, bias: np.ndarray, response: np.ndarray) -> np.ndarray:
        """The bias of the next round: a proportional-integral controller.

        The integral of the error becomes the bias in the end; the proportional term damps.  (Without it, rows that
        respond in every pass oscillate for ever.)

        bias : that of the last round;  response : how much `balance` would have fallen, had it been larger by 1
        """
        if self.joined:
            return np.asarray(self.scale**2 * self.balance)
        self.responses = [*self.responses[1 - _REMEMBERED :], response]
        follow = 1.0 / self.scale**2 + sum(self.responses) / len(self.responses)
        off = bias / self.scale**2 - self.balance
        self.held = self.held - _SUMMED * off / follow
        return np.asarray(self.held - _AT_ONCE * off / follow)

    def judge(self) -> bool:
        """At the end of a pass, give the controller up if the dual gains nothing.  True if that happened now."""
        if self.joined or not self.scale:
            return False
        self.duals = [*self.duals, self.dual][-_PATIENCE - 1 :]
        stuck = (self.dual <= self.duals[0]) & (len(self.duals) > _PATIENCE)
        lost = self.dual < -_FAR * np.abs(self.linear)
        if not np.any(stuck | lost):
            return False
        self.joined, self.afresh = True, ~(self.dual >= 0.0)
        return True

    def dump(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        lists = {"responses": list(self.responses), "duals": list(self.duals)}
        return {**{name: getattr(self, name) for name in _ARRAYS}, **lists, "joined": self.joined}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        for name in _ARRAYS:
            setattr(self, name, np.array(tree[name]))
        self.responses = [np.array(response) for response in tree["responses"]]
        self.duals, self.joined = [np.array(value) for value in tree["duals"]], bool(tree["joined"])
