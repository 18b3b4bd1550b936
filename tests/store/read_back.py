"""What a store holds, read block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.testing.contracts import dense


def rows_of(store: Any) -> np.ndarray:
    """All rows, dense."""
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(7)])


def labels_of(store: Any) -> list[Any]:
    """The labels of all rows, as they were given."""
    return store.classes[np.concatenate([store.read(ref).y for ref in store.refs(7)])].tolist()
