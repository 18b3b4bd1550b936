"""Problems of the kernel benchmark: two classes, rbf; each one an .npz of a CSR matrix that every child reads."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Case:
    """name : as asked for;  data : set;  rows : the first so many, None for all;  gamma : None for 1 / n_features"""

    name: str
    data: str
    C: float
    gamma: float | None = None
    rows: int | None = None


CASES = (
    Case("a9a", "a9a", 1.0),
    Case("w8a", "w8a", 1.0),
    Case("ijcnn1", "ijcnn1", 1.0),
    Case("a9a-100", "a9a", 100.0),
    Case("ijcnn1-100", "ijcnn1", 100.0, 1.0),
    Case("mnist-10k", "mnist", 10.0, 1.0 / 784.0, 10_000),
    Case("mnist-30k", "mnist", 10.0, 0.02, 30_000),
)
TINY = Case("tiny", "tiny", 1.0)


def threads_of(solver: str) -> int:
    """Threads, and cores, of a solver by its name."""
    return 2 if solver == "bigsvm-2" else 1


def make_case(case: Case, data_dir: Path, work: Path) -> dict[str, Any]:
    """Write <work>/<name>.npz, and say where it is and what it holds."""
    X, y = _tiny() if case.data == "tiny" else _load(case.data, data_dir)
    X = sparse.csr_matrix(X)
    if case.data == "mnist":
        X, y = X / 255.0, np.where(y % 2 == 1, 1.0, -1.0)  # odd and even
    if case.rows is not None:
        X, y = X[: case.rows], y[: case.rows]
    X.sort_indices()
    y = np.where(y > 0, 1.0, -1.0)
    path = work / f"{case.name}.npz"
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)
    n, d = X.shape
    gamma = 1.0 / d if case.gamma is None else case.gamma
    return {"path": str(path), "rows": n, "features": d, "nnz": int(X.nnz), "C": case.C, "gamma": gamma}


def read_case(path: str) -> tuple[sparse.csr_matrix, np.ndarray]:
    """What `make_case` wrote: float64 CSR, and y of -1 and 1."""
    with np.load(path) as stored:
        X = sparse.csr_matrix((stored["data"], stored["indices"], stored["indptr"]), shape=tuple(stored["shape"]))
        return X, stored["y"]


def _load(name: str, data_dir: Path) -> tuple[Any, np.ndarray]:
    spec = importlib.util.spec_from_file_location("bench_kernel_data", data_dir / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(name)


def _tiny() -> tuple[np.ndarray, np.ndarray]:
    """Random rows, half of them zeros; a curved border, a tenth of the labels wrong."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 10)) * (rng.random((400, 10)) < 0.5)
    y = np.where((X * X).sum(axis=1) > 5.0, 1.0, -1.0)
    y[rng.random(400) < 0.1] *= -1.0
    return X, y
