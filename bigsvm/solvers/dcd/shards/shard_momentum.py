r"""Momentum of the shards' parts of w: faster convergence of changes that cancel between the shards.

Let v_k = sum_{i in k} alpha_i y_i x_i be the part of shard k, so that w = sum_k v_k.  A round is a proximal step: each
shard solves its rows against w + sigma (v - v_k).  If rows are many and features few, the change of w that all shards
want alike is found in few rounds.  But the parts also have to change in ways that cancel in w, and the proximal term
slows these down: of a remaining difference e a round removes e / (1 + sigma H), where H, the curvature of a shard's
loss, grows with its rows.  So the centre v_k is extrapolated, as in the accelerated proximal method, in the direction
in which the shard's last change differed from the mean,

    w + sigma (v - v_k - beta e_k),    e_k = theta delta_k - (1/L) sum_j theta delta_j,    beta = r / (r + 10)

where delta_j is the change of w by shard j in the last round, and theta the step length of that round.  r counts the
rounds in which the shards went on in the direction of beta e_k; a round in which they did not halves r.  Alpha never
leaves its box, and sum_k e_k = 0, so momentum by itself does not move w.  Each shard knows the sum of all changes, the
change of w, so only one more number for each shard and model travels.

Sources: Beck and Teboulle, SIAM J. Imaging Sciences 2009 (the method); Chambolle and Dossal, J. Optim. Theory Appl.
2015 (its slower start); O'Donoghue and Candes, Found. Comput. Math. 2015 (when it is put back).
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SLOW_START = 10.0
_TOO_FAR = 0.3  # a step length up to this means that the line search took most of the round back


class MomentumSchedule:
    """The momentum that all shards use, for a group of models.  rounds : float64, (n_models,), r above"""

    def __init__(self, n_models: int) -> None:
        self.rounds = np.zeros(n_models)

    @property
    def beta(self) -> np.ndarray:
        """float64, (n_models,), beta above."""
        return self.rounds / (self.rounds + _SLOW_START)

    def see(self, agreed: np.ndarray, theta: np.ndarray) -> None:
        """Update r after a round of step length `theta`.

        agreed : float64, (n_models,)   sum over the shards of <e_k, change of the round - beta e_k>
        """
        self.rounds = np.where((agreed > 0.0) & (theta > _TOO_FAR), self.rounds + 1.0, self.rounds / 2.0)

    def forget(self, models: np.ndarray) -> None:
        """Start r anew.  models : bool, (n_models,), whose last direction is worthless"""
        self.rounds = np.where(models, 0.0, self.rounds)


class ShareMomentum:
    """The last round of one shard; arrays are shaped as w, None before the first round.

    change : the shard's change of w, times the step length;  given : the w at which the round began
    """

    def __init__(self) -> None:
        self.change: np.ndarray | None = None
        self.given: np.ndarray | None = None

    def settle(self, theta: np.ndarray) -> None:
        """Apply the step length of the last round.  theta : float64, (n_models,)"""
        if self.change is not None:
            self.change *= by_model(theta, self.change)

    def remember(self, change: np.ndarray, given: np.ndarray) -> None:
        """Keep a round: its `change` is copied, `given` is kept as it is and must not be altered."""
        self.change, self.given = change.copy(), given

    def apart(self, W: np.ndarray, n_shards: int, afresh: np.ndarray) -> np.ndarray:
        """e_k.  W : the w that the last round led to;  afresh : bool, models that restart, for which e_k is 0."""
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
        """Restore both from a checkpoint."""
        self.change = None if change is None else np.array(change)
        self.given = None if given is None else np.asarray(given)


def by_model(values: np.ndarray, w: np.ndarray) -> Any:
    """values, float64 (n_models,), as factors of the columns of w, in its dtype."""
    return values.astype(w.dtype) if w.ndim == 2 else w.dtype.type(values[0])


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Inner products of two changes of w without the bias, one for each model; float64, (n_models,)."""
    return np.atleast_1d(np.einsum("j...,j...->...", a[:-1], b[:-1], dtype=np.float64))
