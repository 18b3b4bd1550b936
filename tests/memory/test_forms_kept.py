"""The memory promise for tables and AnnData files several times the budget, as they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.units import MIB
from tests.memory.test_budget_kept import BUDGET, caged


def table(path: Path) -> Path:
    """Some 70 MiB of rows: numbers and a text column."""
    rng = np.random.default_rng(0)
    values, cities = rng.normal(size=(20_000, 12)).round(4), rng.integers(0, 300, 20_000)
    rows = [f"{','.join(map(repr, x))},c{c},{int(x[0] > x[1])}" for x, c in zip(values.tolist(), cities, strict=True)]
    with open(path, "w") as file:
        file.write(",".join(f"x{j}" for j in range(12)) + ",city,label\n")
        for _ in range(25):
            file.write("\n".join(rows) + "\n")
    return path


def cells(path: Path) -> Path:
    """Some 75 MiB of rows, compressed."""
    h5py = pytest.importorskip("h5py")
    # One of every 50 columns: SciPy's `random` would draw from a permutation of all 100,000,000 places.
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 50, (20_000, 100), np.int32) + 50 * np.arange(100, dtype=np.int32)
    pointers = np.arange(0, 2_000_001, 100, dtype=np.int32)
    X = sp.csr_array((rng.random(2_000_000, np.float32), columns.reshape(-1), pointers), shape=(20_000, 5000))
    times = 5
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": [20_000 * times, 5000]})
        for name in ("data", "indices"):
            part = getattr(X, name)
            array = group.create_dataset(name, (X.nnz * times,), part.dtype, chunks=(100_000,), compression="lzf")
            for k in range(times):
                array[k * X.nnz : (k + 1) * X.nnz] = part
        ends = [X.indptr[1:].astype(np.int64) + k * X.nnz for k in range(times)]
        group["indptr"] = np.concatenate([[0], *ends])
        file["obs/label"] = np.tile(np.where(X[:, :2500].sum(axis=1) > X[:, 2500:].sum(axis=1), 1, 0).ravel(), times)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [("rows.csv", table), ("cells.h5ad", cells)])
def test_a_fit_of_a_file_as_it_lies_keeps_its_budget(name: str, make, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path / "scratch"))
    path, memory = make(tmp_path / name), f"{BUDGET}MiB"
    stop = ("--max-passes", "3", "--allow-unconverged")
    document, _ = caged("fit", str(path), "--memory", memory, "-o", str(tmp_path / "m"), *stop)
    result = document["result"]
    assert result["data_bytes"] > 2 * BUDGET * MIB
    used = result["memory"]
    assert used["peak_anon_bytes"] - used["base_bytes"] <= BUDGET * MIB
    quality, _ = caged("evaluate", str(tmp_path / "m"), str(path), "--memory", memory)
    assert quality["result"]["accuracy"] > 0.6
    used = quality["result"]["memory"]
    assert used["peak_anon_bytes"] - used["base_bytes"] <= BUDGET * MIB
