"""The demonstration's data: a function of block numbers alone, of unit rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bigsvm.cli.main import run
from bigsvm.errors import UsageError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.demo_rows import HELD_OUT, N_FEATURES, ROW_BYTES, make_block, write_problem


def test_blocks_repeat_and_differ() -> None:
    direction = np.random.default_rng(0).standard_normal(N_FEATURES)
    X, y = make_block(3, 400, direction)
    again, same = make_block(3, 400, direction)
    np.testing.assert_array_equal(X.data, again.data)
    np.testing.assert_array_equal(y, same)
    other, _ = make_block(HELD_OUT, 400, direction)
    assert len(other.data) != len(X.data) or not np.array_equal(other.data, X.data)
    norms = np.sqrt(np.add.reduceat(X.data.astype(np.float64) ** 2, X.indptr[:-1]))
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
    steps = np.diff(X.indices)
    ends = X.indptr[1:-1] - 1
    assert (np.delete(steps, ends) > 0).all()  # ascending in each row, no feature twice
    assert set(y.tolist()) == {-1.0, 1.0}


def test_the_row_size_that_plans_the_demonstration_is_right() -> None:
    X, _ = make_block(0, 2000, np.zeros(N_FEATURES))
    assert len(X.data) * 8 / 2000 + 16 == pytest.approx(ROW_BYTES, rel=0.05)


def test_a_store_of_it(tmp_path: Path) -> None:
    summary = write_problem(tmp_path / "a.zarr", 9000)
    assert summary["n_samples"] == 9000
    store = open_store(str(tmp_path / "a.zarr"))
    assert (store.n_samples, store.n_features) == (9000, N_FEATURES)
    with pytest.raises(UsageError, match="at least 10"):
        write_problem(tmp_path / "b.zarr", 3)


@pytest.mark.slow
def test_the_demonstration_comes_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """As a newcomer runs it, with its own sizes: every step must fit the budget of the first."""
    assert run(["demo"]) == 0
    said = capsys.readouterr().out
    for part in ("5. Use: rows that the fit never saw.", "of the optimum, proved.", "accuracy 0.9"):
        assert part in said
