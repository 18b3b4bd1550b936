"""What the first reading of all rows teaches."""

from __future__ import annotations

import numpy as np

from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.survey import Survey


def test_rows_of_weight_0_are_not_counted() -> None:
    y, weight = np.array([0, 0, 1, 1, 2, 2]), np.array([1.0, 0.0, 2.0, 1.0, 0.0, 0.0])
    store = ArrayRows(np.ones((6, 2)), y, weight)
    whole, parts = Survey(), Survey()
    whole.add(store.read(store.refs(6)[0]), store.classes)
    for ref in store.refs(4):
        part = Survey()
        part.add(store.read(ref), store.classes)
        parts.merge(part)
    assert whole.class_counts(store).tolist() == [1, 2, 0]
    assert parts == whole
    assert Survey.of(whole.document()) == whole
