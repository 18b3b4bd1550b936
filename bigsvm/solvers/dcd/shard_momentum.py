r"""Momentum of the shards' shares of w: what one shard gives and others take back again need not be slow.

Let v_k = sum_{i in k} alpha_i y_i x_i, so that w = sum_k v_k.  A round is a proximal step: each shard solves its rows
against w + sigma (v - v_k).  Where rows are many and features few, each shard soon wants the same change of w, and that
is found in few rounds; but shards also differ, and what each of them lacks for itself moves w not at all.  The proximal
term holds it back all the same: of a difference e a round makes good e / (1 + sigma H), where H, the curvature of a
shard's loss, grows with its rows.  So the centre v_k is put ahead, as in the accelerated proximal method, in the
direction in which the shard left the others in the last round,

    w + sigma (v - v_k - beta e_k),    e_k = theta delta_k - (1/L) sum_j theta delta_j,    beta = r / (r + 10)

where r counts the rounds in which what shards added to beta e_k agreed with it; any other round halves r.  Alpha never
leaves its box, the line search goes along all that moved, and sum_k e_k = 0: the momentum itself moves no w.  The sum
of all changes is the change of w, which each shard sees: one number a shard and model is all that travels more.

Sources: Beck and Teboulle, SIAM J. Imaging Sciences 2009 (the method); Chambolle and Dossal, J. Optim. Theory Appl.
2015 (its slower start); O'Donoghue and Candes, Found. Comput. Math. 2015 (when it is put back).
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SLOW_START = 10.0
_TOO_FAR = 0.3  # of a step, from which on the line search takes most of it back


class MomentumSchedule:
    """Of a group of models, for all shards.  rounds : float64, (n_models,), r above."""

    def __init__(self, n_models: int) -> None:
        self.rounds = np.zeros(n_models)

    @property
    def beta(self) -> np.ndarray:
        """float64, (n_models,)"""
        return self.rounds / (self.rounds + _SLOW_START)

    def see(self, agreed: np.ndarray, theta: np.ndarray) -> None:
        """Whether a round went on in the direction of its momentum, and as far as it should.

        agreed : sum over the shards of the products of e_k with what the round added to beta e_k
        """
        self.rounds = np.where((agreed > 0.0) & (theta > _TOO_FAR), self.rounds + 1.0, self.rounds / 2.0)

    def forget(self, models: np.ndarray) -> None:
        """Of these models (bool) the direction is none any more."""
        self.rounds = np.where(models, 0.0, self.rounds)


class ShareMomentum:
    """What one shard knows of its last round; arrays as w.

    change : of w by this shard, as far as the line search let it go;  given : the w that all shards began at
    """

    def __init__(self) -> None:
        self.change: np.ndarray | None = None
        self.given: np.ndarray | None = None

    def settle(self, theta: np.ndarray) -> None:
        """The last round goes as far as `theta` of its way, model by model."""
        if self.change is not None:
            self.change *= by_model(theta, self.change)

    def remember(self, change: np.ndarray, given: np.ndarray) -> None:
        """A round changed w by `change`, and began at `given`, which nobody alters."""
        self.change, self.given = change.copy(), given

    def apart(self, W: np.ndarray, n_shards: int, afresh: np.ndarray) -> np.ndarray:
        """e_k, now that all are at W; 0 for the bias, and for models that begin anew."""
        if self.change is None or self.given is None:
            return np.zeros_like(W)
        apart: np.ndarray = self.given - W
        apart /= W.dtype.type(n_shards)
        apart += self.change
        apart[-1] = 0.0
        if afresh.any():
            (apart if apart.ndim == 2 else apart[:, None])[:, afresh] = 0.0
        return apart

    def load(self, change: Any, given: Any) -> None:
        """Take over what was saved of both; None before the first round."""
        self.change = None if change is None else np.array(change)
        self.given = None if given is None else np.asarray(given)


def by_model(values: np.ndarray, w: np.ndarray) -> Any:
    """float64 (n_models,) as factors of w, of its type."""
    return values.astype(w.dtype) if w.ndim == 2 else w.dtype.type(values[0])


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of two changes of w, without the bias; float64, (n_models,)."""
    return np.atleast_1d(np.einsum("j...,j...->...", a[:-1], b[:-1], dtype=np.float64))
