r"""How much stiffer a shard's problem is made, feature by feature: by what the shards were seen to have in common.

All shards push the weights of frequent features at once, and each knows them well from its own rows: the sum of what
they find goes too far by up to L.  The rows of different shards seldom share a rare feature.  One number for both must
be that of the frequent ones, and holds back all others: 60,000 rows x 5,000 features on 16 shards, a tenth of the rows
kept, hinge, then took 19 passes in place of 7.  So features are put in buckets by how many rows have them: those of
bucket k are in more than one part in 2^(k+1) of the rows that the most frequent one is in.  In each

    sigma_k = 1 + 2 (r_k - 1),     r_k = sum |d|_k^2 / sum sum_j |d_j|_k^2      between 1 and L,

over the last rounds, where d_j is what shard j added to the features of bucket k, and d the sum over the shards.
r_k is 1 for changes that have nothing in common and L for equal ones.

The rows of the first round are counted, in every shard, and added up beside its change of w.  Rows that are dense have
one bucket, and there sigma = 1.2 r: twice the excess took 54 passes in place of 35 for 6,000 rows of 10 features on 16
shards, squared hinge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsvm.compiled.linear.dual_cd import Stiffness
from bigsvm.csr import CSR
from bigsvm.store.blocks import Matrix, tile

N_BUCKETS = 16
_REMEMBERED = 10  # rounds whose changes tell the stiffness of the next
_ROOM = 2.0  # over what was measured in excess of 1
_ROOM_OF_ONE = 1.2  # over what was measured, where one bucket has all features: nothing is hidden in it by others
_PIECE = 1 << 16  # features


class FeatureCounts:
    """How many rows have each feature.  values : float64, (n_features,)"""

    def __init__(self, n_features: int) -> None:
        self.values = np.zeros(n_features)

    def add(self, X: Matrix) -> None:
        """Count rows."""
        if isinstance(X, CSR):
            np.add.at(self.values, X.indices, 1.0)
        else:
            self.values += np.count_nonzero(X, axis=0)


class StiffnessSchedule:
    """Of a group of models, for all shards.

    buckets : uint8, (n_features,), of each feature; (0,) before they were counted
    seen : of the last rounds, float64 (2, n_models, N_BUCKETS + 1): |d|^2 and sum |d_j|^2; the last is of the bias
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self.buckets = np.empty(0, np.uint8)
        self.seen: list[np.ndarray] = []

    def sort(self, counts: np.ndarray) -> None:
        """Put features in buckets by how many rows have them."""
        most = float(counts.max(initial=0.0))
        bounds = most / 2.0 ** np.arange(1, N_BUCKETS)
        self.buckets = (N_BUCKETS - 1 - np.searchsorted(bounds[::-1], counts)).astype(np.uint8)

    def see(self, change: np.ndarray, bias: np.ndarray, apart: Sequence[np.ndarray], pushed: Any) -> None:
        """A round changed w by `change`.

        bias, pushed : (n_models,), |d|^2 and sum |d_j|^2 of the bias
        apart : of each shard, (n_models, N_BUCKETS), the squared norms of its share
        """
        together = np.column_stack([by_bucket(change, self.buckets), bias])
        alone = np.column_stack([np.sum(apart, axis=0), pushed])
        self.seen = [*self.seen[1 - _REMEMBERED :], np.stack([together, alone])]

    def forget(self) -> None:
        """What was seen holds no more."""
        self.seen = []

    def by_bucket(self, bias: bool) -> np.ndarray:
        """Of the next round, float64 (N_BUCKETS + 1,): of each bucket the largest of all models, and of the bias.

        bias : whether shards move it; else 0
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
        """Whether all features are in one bucket."""
        return len(self.buckets) > 0 and bool(np.all(self.buckets == self.buckets[0]))

    def dump(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"buckets": self.buckets, "seen": list(self.seen)}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.buckets, self.seen = np.array(tree["buckets"]), [np.array(one) for one in tree["seen"]]


def of_features(stiffness: np.ndarray, buckets: np.ndarray, n_features: int) -> Stiffness:
    """As the rows of a shard take it; before features were counted all are of the first bucket."""
    values = stiffness[:-1].astype(np.float32)
    features = values[buckets] if len(buckets) else np.full(n_features, values[0])
    return Stiffness(features, float(stiffness[-1]))


def by_feature(stiffness: Stiffness, w: np.ndarray) -> np.ndarray:
    """As factors of w without its bias."""
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
