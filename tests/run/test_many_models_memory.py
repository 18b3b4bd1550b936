"""Streamed fits of many models on short rows stay within their memory, whichever solver: a block of a few features has
many rows, and arrays of (rows, models) are then much larger than the block."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.shared.rows import CSR
from bigsvm.config import FitConfig
from bigsvm.run.fit.plan import make_plan
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.blocks import Block
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.join import join_blocks, parts_for
from bigsvm.units import MIB
from tests.classifiers import CLASSIFIERS
from tests.products import pairs_of

N, D, K = 120_000, 2, 16
LINEAR = [name for name, solver in CLASSIFIERS.items() if solver.proof == "linear"]
CASES = [
    *((name, "hinge" if "hinge" in SOLVERS[name].losses else "squared_hinge", 1) for name in LINEAR),
    *(("newton-ws", "squared_hinge", shards) for shards in (1, 3)),
    ("newton-cg", "squared_hinge", 3),
    ("dcd", "hinge", 3),
]


@pytest.fixture(scope="module")
def short_rows() -> ArrayRows:
    rng = np.random.default_rng(17)
    X = rng.standard_normal((N, D), np.float32)
    scores = X @ rng.standard_normal((D, K)) + rng.standard_normal((N, K))
    return ArrayRows(X, np.argmax(scores, axis=1))


def peak_of(rows: ArrayRows, **options: Any) -> tuple[int, int]:
    """(bytes that a fit allocates at most at one time, its budget), in the smallest budget that is not refused."""
    least = make_plan(rows, FitConfig.of(memory="1GiB", **options)).min_memory_bytes
    plan = make_plan(rows, FitConfig.of(memory=least, **options))
    assert not plan.resident
    given = {**options, "memory": least, "threads": 1}
    return traced_peak(rows, **given), least


def traced_peak(rows: ArrayRows, **options: Any) -> int:
    """Bytes that two passes of a fit allocate at most at one time."""
    bigsvm.fit(rows, max_passes=1, **options)  # loads compiled code, which no plan counts
    tracemalloc.start()
    try:
        bigsvm.fit(rows, max_passes=2, **options)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("solver", "loss", "shards"), CASES)
def test_a_fit_stays_within_its_memory(solver: str, loss: str, shards: int, short_rows: ArrayRows) -> None:
    peak, budget = peak_of(short_rows, solver=solver, loss=loss, shards=shards)
    assert peak <= budget


@pytest.mark.parametrize(
    ("solver", "loss"),
    [("newton", "squared_hinge"), ("newton-cg", "squared_hinge"), ("newton-ws", "hinge"), ("hyperpass", "hinge")],
)
def test_a_fit_of_hundreds_of_models_in_memory_stays_within_it(solver: str, loss: str) -> None:
    """Beside the vectors of all rows there are arrays of a piece of them, with a number for each row and model."""
    rng = np.random.default_rng(17)
    n = 8_000  # arrays of all rows in place of a piece take 1.1 times the least memory of hyperpass, 1.3 of newton-ws
    rows = ArrayRows(rng.standard_normal((n, D), np.float32), rng.integers(0, 200, n))
    options: dict[str, Any] = {"solver": solver, "loss": loss, "threads": 1}
    least = make_plan(rows, FitConfig.of(memory="1GiB", **options)).min_memory_bytes
    assert make_plan(rows, FitConfig.of(memory=least, **options)).resident
    assert traced_peak(rows, memory=least, **options) <= least


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("bias", ["free", "none"])
def test_pieces_of_rows_of_many_models_are_small(bias: str, shards: int) -> None:
    """The memory of a fit with so many features is little, and beside it several arrays of a piece would show."""
    rng = np.random.default_rng(17)
    rows = ArrayRows(rng.standard_normal((60_000, 40), np.float32), rng.integers(0, 60, 60_000))
    peak, least = peak_of(rows, solver="newton-cg", loss="squared_hinge", bias=bias, shards=shards)
    assert peak <= least


def test_the_model_of_many_pairs_of_classes_is_made_within_the_memory() -> None:
    """Its coefficients have a number for each pair and support vector, as alpha has, and are in memory once."""
    rng, k = np.random.default_rng(0), 90
    y = np.concatenate([np.arange(k), rng.integers(0, k, 3000 - k)])
    rows = ArrayRows((rng.standard_normal((3000, 400)) + 2.0 * rng.standard_normal((k, 400))[y]).astype(np.float32), y)
    options: dict[str, Any] = {"kernel": "rbf", "tol": 0.1, "threads": 1}
    least = make_plan(rows, FitConfig.of(memory="2GiB", **options)).min_memory_bytes
    assert traced_peak(rows, memory=least, **options) <= least


@pytest.mark.parametrize(("solver", "loss"), [("newton", "squared_hinge"), ("dcd", "hinge")])
def test_a_model_of_many_classes_is_saved_within_the_memory(solver: str, loss: str, tmp_path: Path) -> None:
    """The rows are sorted by class, so a fit shuffles them, and alpha comes back to their order as it is saved."""
    rng = np.random.default_rng(17)
    rows = ArrayRows(rng.standard_normal((120_000, 40), np.float32), np.sort(rng.integers(0, 60, 120_000)))
    options: dict[str, Any] = {"solver": solver, "loss": loss, "threads": 1}
    least = make_plan(rows, FitConfig.of(memory="1GiB", **options)).min_memory_bytes
    result = bigsvm.fit(rows, memory=least, max_passes=1, **options)
    assert result.working_row is not None  # or the test would show nothing
    tracemalloc.start()
    try:
        result.save_model(tmp_path / "m")
        assert tracemalloc.get_traced_memory()[1] <= least
    finally:
        tracemalloc.stop()
    ordered = [np.concatenate(list(vector.in_store_order(result.working_row))) for vector in result.alpha]
    np.testing.assert_array_equal(np.load(tmp_path / "m" / "alpha.npy"), np.hstack(ordered).T)


@pytest.mark.parametrize("no_dual", [False, True])
def test_a_proof_of_many_models_stays_within_its_memory(no_dual: bool, tmp_path: Path) -> None:
    """alpha of the rows in work is in memory once; where it was not saved, the arrays that it is computed from, too."""
    rng, memory = np.random.default_rng(17), 160 * MIB
    rows = ArrayRows(rng.standard_normal((80_000, D), np.float32), rng.integers(0, 200, 80_000))
    fitted = bigsvm.fit(rows, solver="newton", loss="squared_hinge", memory="1GiB", max_passes=1, no_dual=no_dual)
    fitted.save_model(tmp_path / "m")
    bigsvm.certify(tmp_path / "m", rows, memory=memory, threads=1)  # loads compiled code, which no plan counts
    tracemalloc.start()
    try:
        bigsvm.certify(tmp_path / "m", rows, memory=memory, threads=1)
        assert tracemalloc.get_traced_memory()[1] <= memory
    finally:
        tracemalloc.stop()


@pairs_of(layout=["dense", "csr"], weights=[False, True], n_models=[1, 20, 4096], n_rows=[1, 64, 6_600, 150_000])
def test_parts_are_all_rows_once(layout: str, weights: bool, n_models: int, n_rows: int) -> None:
    rng = np.random.default_rng(3)
    X: Any = (rng.random((n_rows, 2)) < 0.5) * rng.standard_normal((n_rows, 2))
    rows = ArrayRows(
        sparse.csr_array(X) if layout == "csr" else X, np.arange(n_rows) % 2,
        sample_weight=rng.random(n_rows) if weights else None,
    )  # fmt: skip
    (block,) = (rows.read(ref) for ref in rows.refs(n_rows))
    parts = list(parts_for([block], n_models))
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop) == (block.start, block.stop)
    assert all(8 * n_models * part.n_rows <= 1 << 20 or part.n_rows <= 64 for part in parts)
    assert sum(part.nbytes for part in parts) == block.nbytes
    joined = join_blocks(parts)
    for name in ("y", "sample_weight"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(block, name))
    for one, other in zip(arrays_of(joined), arrays_of(block), strict=True):
        np.testing.assert_array_equal(one, other)


def arrays_of(block: Block) -> list[np.ndarray]:
    return list(block.X) if isinstance(block.X, CSR) else [block.X]
