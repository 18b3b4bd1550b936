"""Gathered rows stay for a whole pass where memory is unused; whether they stay changes no byte of a model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.kernel.values.support import Support
from bigsvm.compiled.kernel.values.tile import LANES
from bigsvm.config import KERNELS
from bigsvm.solvers.kernel.values import data, row_buffer
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.testing.problems import random_problem
from tests.products import pairs_of

OF_KERNEL = {"rbf": {"gamma": 0.3}, "poly": {"gamma": 0.3, "coef0": 1.0}, "sigmoid": {"gamma": 0.05}}
TASKS: dict[str, dict[str, Any]] = {
    "two classes": {},
    "one against one": {},
    "regression": {"loss": "epsilon_insensitive"},
}


@pairs_of(kernel=KERNELS, task=TASKS, layout=["dense", "csr"], tol=[1e-2, 1e-4])
def test_the_same_bytes_from_fewer_gathered_rows(
    kernel: str, task: str, layout: str, tol: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tol 1e-4 : kernel values are float64"""
    monkeypatch.setattr(row_buffer, "GATHERED", 0)  # a tile at a time
    monkeypatch.setattr(data, "_CHUNK", LANES)  # several blocks
    calls: list[int] = []
    gather = Gram.support

    def counted(self: Gram, X: Any, rows: np.ndarray) -> Support:
        calls.append(len(rows))
        return gather(self, X, rows)

    monkeypatch.setattr(Gram, "support", counted)
    X, y = random_problem(5 * LANES + 7, 4, 0.6, seed=45)
    target = y if task == "two classes" else np.arange(len(y)) % 3 if task == "one against one" else X[:, 0] + y
    rows: Any = X @ X.T if kernel == "precomputed" else X.astype(np.float32)
    rows = sparse.csr_array(rows) if layout == "csr" else rows
    models, gathered = [], []
    for share in (1 << 62, row_buffer._KEPT_SHARE):  # a tile stays, all stay
        monkeypatch.setattr(row_buffer, "_KEPT_SHARE", share)
        calls.clear()
        given = {"kernel": kernel, **OF_KERNEL.get(kernel, {}), **TASKS[task]}
        result = bigsvm.fit((rows, target), solver="smo", working_set=64, tol=tol, max_passes=30, **given)
        result.save_model(tmp_path / str(share))
        models.append({p.name: p.read_bytes() for p in sorted((tmp_path / str(share)).iterdir())})
        gathered.append(len(calls))
    assert models[0] == models[1]
    assert kernel == "precomputed" or gathered[1] < gathered[0]


class _Budget(NamedTuple):
    free: int


class _Lent(NamedTuple):
    """What the counts of rows look at in a `Context`."""

    data: Any
    budget: _Budget


@pairs_of(dtype=["u1", "i2", "f4", "f8"], layout=["dense", "csr"], models=[1, 45], free=[0, 1 << 20, 1 << 30])
def test_gathered_rows_take_what_was_counted(dtype: str, layout: str, models: int, free: int) -> None:
    """Rows of bytes too, which grow when they are gathered: a number has 4 bytes in float32 and 8 in float64."""
    n, entries = 1000, 50
    data = SimpleNamespace(
        layout=layout, n_samples=n, n_features=entries, nnz=n * entries, dtype=np.dtype(dtype), has_weights=False,
        index_dtype=np.dtype(np.int32),
    )  # fmt: skip
    ctx: Any = _Lent(data, _Budget(free))
    both = entries * (4 + 8) + (2 * entries * 4 if layout == "csr" else 0)
    assert row_buffer.support_rows(ctx) * both <= 2 * row_buffer.GATHERED
    more = row_buffer.kept_rows(ctx, models) > row_buffer.support_rows(ctx)
    assert more == (free == 1 << 30)
    assert not more or row_buffer.kept_rows(ctx, models) * (both + 8 * models) <= free // 4
