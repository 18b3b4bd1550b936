"""What travels in a round: the message that all shards receive, and the answer of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Round(NamedTuple):
    """The message that all shards receive with a round.

    number : of the round since the fit began;  sweep : of the pass;  part : of the round within its pass of `parts`
    stiffness : float64, (N_BUCKETS + 1,)   factors for the local problems, by bucket of features; the last: the bias
    theta : float64, (n_models,)   step length of the round before
    afresh : bool, (n_models,)   models that restart at alpha = 0 with this round
    beta : float64, (n_models,)   momentum of the shards' parts of w (`shard_momentum.py`)
    proves : 1 in the first round, and 2 in the other rounds, of a pass that computes a deferred certificate; else 0
    buckets : uint8, (n_features,)   bucket of each feature, if it is new with this round; else (0,)
    ahead : float64, (n_models,)   in the first round of a pass, the length of the step of momentum that was made in w
        and that the shard makes in its alpha; (0,) in other rounds, and without momentum
    point : the w to be proved, in the first round of a pass that computes a deferred certificate; else (0,)
    exact : the row buffer keeps values as they are, not rounded to 16 bits; with the first such round it begins anew
    """

    number: int
    sweep: int
    part: int
    parts: int
    stiffness: np.ndarray
    theta: np.ndarray
    afresh: np.ndarray
    beta: np.ndarray
    proves: int = 0
    buckets: np.ndarray = np.empty(0, np.uint8)
    ahead: np.ndarray = np.empty(0)
    point: np.ndarray = np.empty(0)
    exact: bool = False

    def tree(self) -> dict[str, Any]:
        """The round as the log saves it."""
        return self._asdict()


class Found(NamedTuple):
    """The answer of a shard to a round, for the line search and the estimate of the gap.  float64, (n_models,) unless
    said otherwise.

    gap, loss : sums over the visited rows, as they showed them when visited
    kept_gap, kept_loss : the same for the row buffer, extrapolated from the part that was swept
    linear, cross, square : sums over i of t_i d_i - epsilon (|new_i| - |old_i|), of D_i old_i d_i, and of D_i d_i^2,
        where d is the change of alpha, t the target (1 for classes) and D the diagonal of the dual
    balance : sum of y_i d_i, the change of sum alpha_i y_i (y is 1 for regression)
    response, kept_response : how much `balance` would rise at once if the bias fell by 1: the sum of
        1 / (|x_i|^2 + D_i) over the rows that moved or are inside their box, of visited and of kept rows
    norm : (n_models, N_BUCKETS), for each bucket of features the squared norm of change - beta e (`shard_momentum.py`)
    agreed : inner product of change - beta e with e
    visits, bytes_read : int
    proof : with the last round of a pass that computes a deferred certificate, its sums, as `terms_of` takes them
    """

    gap: np.ndarray
    loss: np.ndarray
    kept_gap: np.ndarray
    kept_loss: np.ndarray
    linear: np.ndarray
    cross: np.ndarray
    square: np.ndarray
    balance: np.ndarray
    response: np.ndarray
    kept_response: np.ndarray
    norm: np.ndarray
    agreed: np.ndarray
    visits: int
    bytes_read: int
    proof: tuple[np.ndarray, int, int] | None = None
