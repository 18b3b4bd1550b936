"""The bias of models whose rows lie on shards: held during a round, moved between two (docs/mathematics.md 4.6).

A controller brings it to B^2 sum_i alpha_i y_i, as fast as the rows of a round follow: what they answer is known of the
last rounds alone.  Where few rows cost 1e8 times what the others do, and are met once a pass, it goes by what it saw of
others, and swings ever wider.  So it is watched: a dual value that gains nothing takes the bias from it.  The bias is
then a weight like the others, which every shard moves for itself and the line search counts: no round lowers the dual.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_REMEMBERED = 10  # rounds whose answers to the bias tell that of the next
_AT_ONCE = 0.4  # of what the rows of a round would follow at once, that the bias goes in answer to what is off
_SUMMED = 0.04  # of the same, that it keeps: a quarter of the square of the former, where swings just die down
_PATIENCE = 10  # passes without a gain of the dual
_FAR = 1e3  # times its linear part, that the dual lies below 0: the best multiple of alpha is 500 times shorter
_ARRAYS = ("balance", "held", "dual", "linear", "afresh", "began")


class SharedBias:
    """Of a group of models; arrays are float64, (n_models,).

    scale : the constant feature B
    balance : sum of alpha_i y_i;  held : the bias without its answer to the last round
    dual : the dual value as rounds have moved it, with the bias that alpha gives;  linear : its part linear in alpha
    duals : dual values at the ends of the last passes
    responses : how much `balance` answers to the bias in a round, as of the last rounds
    joined : whether the bias is a weight like the others
    afresh : bool, models whose alpha the next pass forgets, because alpha = 0 is better;  began : those of this pass
    """

    def __init__(self, n_models: int, scale: float) -> None:
        self.scale, self.joined = scale, False
        self.balance, self.held = np.zeros(n_models), np.zeros(n_models)
        self.dual, self.linear = np.zeros(n_models), np.zeros(n_models)
        self.afresh, self.began = np.zeros(n_models, bool), np.zeros(n_models, bool)
        self.duals = [np.zeros(n_models)]
        self.responses: list[np.ndarray] = []

    def begin_pass(self) -> np.ndarray:
        """The models of `afresh`, bool: alpha is 0 from here."""
        self.balance = np.where(self.afresh, 0.0, self.balance)
        self.began, self.afresh = self.afresh, np.zeros(len(self.afresh), bool)
        return self.began

    def square(self, balance: np.ndarray) -> np.ndarray:
        """Of the change of the bias weight that a change of alpha brings; 0 where the controller has it."""
        return (self.scale * balance) ** 2 if self.joined else np.zeros(len(balance))

    def follow(
        self, theta: np.ndarray, linear: np.ndarray, gain: np.ndarray, curvature: np.ndarray, balance: np.ndarray
    ) -> None:
        """A round went `theta` of its way: the dual without its bias rises by theta gain - theta^2 curvature / 2."""
        before, self.balance = self.balance, self.balance + theta * balance
        if not self.joined:
            self.linear = self.linear + theta * linear
            self.dual = self.dual + theta * gain - 0.5 * theta**2 * curvature
            self.dual = self.dual - 0.5 * self.scale**2 * (self.balance**2 - before**2)

    def moved(self, bias: np.ndarray, response: np.ndarray) -> np.ndarray:
        """The bias of the next round.

        A controller with two terms: in proportion to what is off, which damps, and in proportion to its sum over the
        rounds, which is the bias in the end.  (With the second alone rows that answer in every pass swing for ever.)

        bias : of the round before;  response : what its rows would answer
        """
        if self.joined:
            return np.asarray(self.scale**2 * self.balance)
        self.responses = [*self.responses[1 - _REMEMBERED :], response]
        follow = 1.0 / self.scale**2 + sum(self.responses) / len(self.responses)
        off = bias / self.scale**2 - self.balance
        self.held = self.held - _SUMMED * off / follow
        return np.asarray(self.held - _AT_ONCE * off / follow)

    def judge(self) -> bool:
        """At the end of a pass: whether the controller led nowhere, and the bias is joined from here."""
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
