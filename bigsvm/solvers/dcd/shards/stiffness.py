r"""The stiffness of a shard's local problem (a damping of its steps), estimated for buckets of features.

All shards change the weights of frequent features at once, and each learns them from its own rows.  The sum of their
changes is too large by a factor of up to L.  Rare features are seldom shared by shards, and need no damping.  With one
stiffness for all features, that of the frequent ones, everything is slow: 60,000 rows x 5,000 features on 16 shards,
hinge, with a tenth of the rows kept, took 19 passes instead of 7.  So features are put in buckets by the number of rows
that have them: bucket k holds the features that occur in more than 1 / 2^(k+1) of the rows that have the most frequent
one (and are in no bucket before).  Its stiffness is

    sigma_k = 1 + 2 (r_k - 1),     r_k = sum |d|_k^2 / sum sum_j |d_j|_k^2      between 1 and L,

with sums over the last rounds, where d_j is the change that shard j added to the features of bucket k, and d the sum
over the shards.  r_k is 1 for changes that have nothing in common and L for equal ones.

Every shard counts features in the rows of its first round, and the counts are added up with the changes of w.  Dense
rows have all features in one bucket, and then sigma = 1.2 r: twice the excess over 1 took 54 passes instead of 35 for
6,000 rows of 10 features on 16 shards, squared hinge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsvm.compiled.linear.dual_cd import Stiffness
from bigsvm.csr import CSR
from bigsvm.store.blocks import Matrix, tile

N_BUCKETS = 16
_REMEMBERED = 10  # rounds from which the stiffness is estimated
_ROOM = 2.0  # safety factor on the measured excess over 1
_ROOM_OF_ONE = 1.2  # safety factor on the measured value if one bucket holds all features
_PIECE = 1 << 16  # features squared at a time


class FeatureCounts:
    """The number of rows that have each feature.  values : float64, (n_features,)"""

    def __init__(self, n_features: int) -> None:
        self.values = np.zeros(n_features)

    def add(self, X: Matrix) -> None:
        """Count rows."""
        if isinstance(X, CSR):
            np.add.at(self.values, X.indices, 1.0)
        else:
            self.values += np.count_nonzero(X, axis=0)


class StiffnessSchedule:
    """The stiffness that all shards use, for a group of models.

    buckets : uint8, (n_features,), the bucket of each feature; (0,) before features are counted
    seen : for each of the last rounds |d|^2 and sum |d_j|^2, float64 (2, n_models, N_BUCKETS + 1); the last column is
        that of the bias
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self.buckets = np.empty(0, np.uint8)
        self.seen: list[np.ndarray] = []

    def sort(self, counts: np.ndarray) -> None:
        """Put features in buckets.  counts : float64, (n_features,), rows that have each feature"""
        most = float(counts.max(initial=0.0))
        bounds = most / 2.0 ** np.arange(1, N_BUCKETS)
        self.buckets = (N_BUCKETS - 1 - np.searchsorted(bounds[::-1], counts)).astype(np.uint8)

    def see(self, change: np.ndarray, bias: np.ndarray, apart: Sequence[np.ndarray], pushed: Any) -> None:
        """Take account of a round.

        change : the change of w;  apart : for each shard (n_models, N_BUCKETS), the squared norms of its change
        bias, pushed : (n_models,), |d|^2 and sum |d_j|^2 of the bias
        """
        together = np.column_stack([by_bucket(change, self.buckets), bias])
        alone = np.column_stack([np.sum(apart, axis=0), pushed])
        self.seen = [*self.seen[1 - _REMEMBERED :], np.stack([together, alone])]

    def forget(self) -> None:
        """Forget the last rounds, after the problem of the shards has changed."""
        self.seen = []

    def by_bucket(self, bias: bool) -> np.ndarray:
        """The stiffness for the next round, float64 (N_BUCKETS + 1,): for each bucket, then for the bias.

        It is the largest over the models.  bias : shards move the bias; if not, its stiffness is 0
        """
        stiff = np.full(N_BUCKETS + 1, float(self._shards))
        if self.seen:
            together, alone = np.sum(self.seen, axis=0)
            common = np.divide(together, alone, out=np.ones_like(alone), where=alone > 0.0)
            most = common.max(axis=0)
            room = _ROOM_OF_ONE * most if self._alike() else 1.0 + _ROOM * (most - 1.0)
            stiff = np.clip(room, 1.0, float(self._shards))
        if not bias:
            stiff[-1] = 0.0
        return stiff

    def _alike(self) -> bool:
        """Whether one bucket holds all features."""
        return len(self.buckets) > 0 and bool(np.all(self.buckets == self.buckets[0]))

    def dump(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"buckets": self.buckets, "seen": list(self.seen)}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.buckets, self.seen = np.array(tree["buckets"]), [np.array(one) for one in tree["seen"]]


def of_features(stiffness: np.ndarray, buckets: np.ndarray, n_features: int) -> Stiffness:
    """Stiffness by bucket as stiffness by feature; before features are counted, all are in the first bucket."""
    values = stiffness[:-1].astype(np.float32)
    features = values[buckets] if len(buckets) else np.full(n_features, values[0])
    return Stiffness(features, float(stiffness[-1]))


def by_feature(stiffness: Stiffness, w: np.ndarray) -> np.ndarray:
    """Stiffness as factors of the rows of w, without the bias."""
    return stiffness.features if w.ndim == 1 else stiffness.features[:, None]


def by_bucket(change: np.ndarray, buckets: np.ndarray) -> np.ndarray:
    """Squared norms of a change of w in the features of each bucket, (n_models, N_BUCKETS); 0 without buckets."""
    of_model = change[:, None] if change.ndim == 1 else change
    sums = np.zeros((of_model.shape[1], N_BUCKETS))
    if len(buckets) == 0:
        return sums
    for start, stop in tile(len(of_model) - 1, _PIECE):  # in pieces: no copy as large as w
        squares = np.square(of_model[start:stop], dtype=np.float64)
        for m, column in enumerate(squares.T):
            sums[m] += np.bincount(buckets[start:stop], weights=column, minlength=N_BUCKETS)
    return sums
