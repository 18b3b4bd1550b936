"""What a row takes: one arithmetic for all who plan with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.store.blocks import bytes_per_row, entries, row_bytes
from bigsvm.store.formats.array_rows import ArrayRows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_a_store_are_as_long_as_their_blocks_say(dtype: type) -> None:
    X = sparse.random_array((40, 30), density=0.2, rng=np.random.default_rng(3), dtype=dtype, format="csr")
    for rows in (ArrayRows(X, np.arange(40) % 2), ArrayRows(X.toarray(), np.arange(40) % 2)):
        block = rows.read(rows.refs(40)[0])
        stored = rows.dtype.itemsize + (rows.index_dtype.itemsize if rows.layout == "csr" else 0)
        of_rows = 8 + 8 * (rows.layout == "csr")  # a label, and a row pointer
        held = block.nbytes - block.y.nbytes + 8 * 40  # codes are narrower than the labels of a plan
        assert held == pytest.approx(40 * bytes_per_row(rows, stored, of_rows), rel=1e-12)
        assert row_bytes(rows) == pytest.approx(bytes_per_row(rows, stored, of_rows), rel=1e-12)


def test_what_nobody_has_counted_is_assumed() -> None:
    wide: Any = SimpleNamespace(n_samples=10, n_features=5000, nnz=None)
    narrow: Any = SimpleNamespace(n_samples=10, n_features=20, nnz=None)
    empty: Any = SimpleNamespace(n_samples=0, n_features=20, nnz=0)
    assert [entries(rows) for rows in (wide, narrow, empty)] == [1280, 200, 0]
    assert [bytes_per_row(rows, 2.5, 7) for rows in (wide, narrow, empty)] == [327.0, 57.0, 7.0]
