"""Rows in a tile that has no row for most features: what sparse support vectors need of the rows to score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import register_jitable
from bigsvm.compiled.shared.rows import CSR


class Placed(NamedTuple):
    """Rows in a tile that has no row for most features: feature features[p] has row p, others have none.

    Values are those of all features, bit by bit, where rows of S have none but these.

    X : dense or CSR;  features : int64, ascending
    table : int32, the row of each feature, -1 for none; empty: they are searched for.  Of CSR alone
    """

    X: np.ndarray | CSR
    features: np.ndarray
    table: np.ndarray


@register_jitable
def place(feature, features, table):
    """The tile's row of a feature, or -1."""
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
    return isinstance(X, types.BaseNamedTuple) and X.instance_class is Placed
