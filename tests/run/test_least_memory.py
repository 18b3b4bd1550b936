"""The smallest memory that a plan names: a fit that is given it must not be refused, whatever the other memory was."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.fit.sizes import FIXED, Sizes
from bigsvm.store.blocks import RowBlocks, StoreBase
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.units import MIB
from tests.products import pairs_of


class _LargeChunks:
    """Rows of a store whose chunks take 40 MiB once decoded."""

    def __init__(self, store: RowBlocks) -> None:
        self._store, self.chunk_nbytes = store, 40 * MIB

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Metadata(StoreBase):
    """What a plan asks a store for."""

    uri, layout, has_weights, classes = "metadata", "csr", False, np.array([-1, 1])
    dtype, index_dtype = np.dtype(np.float32), np.dtype(np.int32)


@pytest.mark.parametrize("given", ["1MiB", "1GiB"])
@pytest.mark.parametrize("large", [False, True])
@pairs_of(
    n_rows__n_features=[(12, 134), (600, 12), (20_000, 12), (1500, 3000)],
    loss=["hinge", "squared_hinge"],
    bias=["none", "augmented", "free"],
    C=[0.1, 1000.0],
    n_classes=[2, 3],
    kernel=["linear", "rbf"],
    stage=["auto", "none"],
)
def test_the_least_memory_is_enough(
    n_rows: int, n_features: int, loss: str, bias: str, C: float, n_classes: int, kernel: str, stage: str, large: bool,
    given: str,
) -> None:  # fmt: skip
    X = np.zeros((n_rows, n_features), np.float32)
    store: Any = ArrayRows(X, np.arange(n_rows) % n_classes)
    if large:
        store = _LargeChunks(store)
    if kernel != "linear":
        loss, bias = "hinge", "free"
    options = {"loss": loss, "bias": bias, "C": C, "kernel": kernel, "stage": stage}
    if given == "1MiB":
        with pytest.raises(PlanRefused) as refused:
            make_plan(store, FitConfig.of(memory=given, **options))
        least = refused.value.min_memory_bytes
        assert least is not None
    else:
        least = make_plan(store, FitConfig.of(memory=given, **options)).min_memory_bytes
    plan = make_plan(store, FitConfig.of(memory=least, **options))
    assert plan.min_memory_bytes <= least


@pytest.mark.parametrize("n_models", [1, 500, 3000])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("folded", [False, True])
def test_chunks_that_the_copy_was_made_of_are_not_counted_beside_training(
    n_models: int, loss: str, folded: bool
) -> None:
    """The store lets go of them before training begins: where that holds more, their size asks for nothing."""
    rows: Any = ArrayRows(np.zeros((50_000, 3000), np.float32), np.arange(50_000) % 2)
    config = FitConfig.of(memory="4GiB", loss=loss, solver="dcd")
    config = dataclasses.replace(config, C_path=[1.0] * n_models, no_dual=True)
    chunks: Any = _LargeChunks(rows)
    small, large = (make_plan(store, config, folded=folded).min_memory_bytes for store in (rows, chunks))
    copying = FIXED + int(2.5 * chunks.chunk_nbytes)
    assert large <= max(small, copying) + 8 * MIB
    assert (large == small) == (n_models == 3000), "only where training holds most"


@pytest.mark.parametrize("stage", ["auto", "none"])
@pytest.mark.parametrize("n_rows", [12, 20_000, 400_000_000])
@pytest.mark.parametrize("n_features", [3, 134, 3_000_000])
def test_the_least_memory_is_that_of_a_search_through_all_budgets(
    n_rows: int, n_features: int, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search looks at one of the budgets whose groups are the largest; all others would say the same."""
    plain, met = Sizes.least_memory, []

    def looked(sizes: Sizes) -> int:
        low, high = 0, 1 << 50
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if sizes.fixed_bytes(middle, False) <= middle else (middle + 1, high)
        met.append(low)
        assert plain(sizes) == -(-min(low, sizes.resident_bytes()) // MIB) * MIB
        return plain(sizes)

    monkeypatch.setattr(Sizes, "least_memory", looked)
    rows: Any = _Metadata()
    rows.n_samples, rows.n_features, rows.nnz = n_rows, n_features, n_rows * min(n_features, 50)
    for loss in ("hinge", "squared_hinge"):
        make_plan(rows, FitConfig.of(memory="900TiB", loss=loss, stage=stage, solver="dcd"))
    assert met
