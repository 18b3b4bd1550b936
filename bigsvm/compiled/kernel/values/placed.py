"""Rows of the data of which only some features enter the tile: those that sparse support vectors have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import register_jitable
from bigsvm.compiled.shared.rows import CSR


class Placed(NamedTuple):
    """Rows for a tile with few rows of its own: row p of the tile is for feature features[p], other features have none.

    If the rows of S have no other features than these, kernel values have the same bits as with a tile for all.

    X : dense or CSR
    features : int64, (n_rows_of_the_tile,), ascending
    table : int32, (n_features,), the tile's row of each feature, -1 for none; or (0,), and features are searched for by
        bisection.  Used for CSR only
    """

    X: np.ndarray | CSR
    features: np.ndarray
    table: np.ndarray


@register_jitable
def place(feature, features, table):
    """The tile's row of a feature, or -1.  features, table : as in `Placed`"""
    if len(table):
        return np.int64(table[feature])
    low, high = 0, len(features)
    while low < high:
        middle = (low + high) >> 1
        if features[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return low if low < len(features) and features[low] == feature else -1


def is_placed(X):
    """Whether a numba type is that of `Placed`."""
    return isinstance(X, types.BaseNamedTuple) and X.instance_class is Placed
