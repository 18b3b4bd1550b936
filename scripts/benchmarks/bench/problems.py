"""Problems of the benchmarks: one folder of .npy files each (what the peers read), and a bigsvm store of the same rows.

data.npy, indices.npy, indptr.npy  (or X.npy), float32;  y.npy: class codes, or -1 and 1
store.zarr                          the same rows, made here; its time is ingest, not training
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from scipy import sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.ingest.demo_rows import BLOCK_ROWS, N_FEATURES, SEED, make_block
from bigsvm.store.ingest.zarr_writer import ZarrWriter

REAL = ("kddcup99", "20news", "mnist", "w8a")
MADE = {
    "sparse": ["--rows", "2000000", "--features", "1000000", "--nnz", "100", "--seed", "1"],
    "dense": ["--kind", "dense", "--rows", "2000000", "--features", "100", "--seed", "2"],
}
TINY_ROWS = 3000
_PIECE_ROWS = 50_000
Matrix = sparse.csr_matrix | np.ndarray


@dataclass(frozen=True)
class Problem:
    """Where a problem lies, and its size."""

    name: str
    folder: Path
    n_samples: int
    n_features: int
    nnz: int
    data_bytes: int  # of X as float32 with int32 indices and int64 row pointers
    labels: tuple[float, ...]

    @property
    def store(self) -> Path:
        return self.folder / "store.zarr"

    @property
    def n_models(self) -> int:
        return 1 if len(self.labels) == 2 else len(self.labels)

    def signs(self, y: np.ndarray) -> np.ndarray:
        """(rows, n_models) of -1 and 1: the larger of two labels, or each class, against the rest."""
        positive = self.labels[1:] if len(self.labels) == 2 else self.labels
        return np.where(y[:, None] == np.array(positive), 1.0, -1.0)

    def pieces(self) -> Iterator[tuple[Matrix, np.ndarray]]:
        """(X, y) in pieces of rows; little memory at a time."""
        parts = Arrays(self.folder, self.n_features, mapped=True)
        for start in range(0, self.n_samples, _PIECE_ROWS):
            yield parts.rows(start, min(start + _PIECE_ROWS, self.n_samples))


class Arrays:
    """The .npy files of a problem, in memory or mapped."""

    def __init__(self, folder: Path, n_features: int, mapped: bool) -> None:
        self.n_features = n_features
        mode = "r" if mapped else None
        self.y = np.load(folder / "y.npy")
        names = ["X"] if (folder / "X.npy").exists() else ["data", "indices", "indptr"]
        self._parts = [np.load(folder / f"{name}.npy", mmap_mode=mode) for name in names]

    def rows(self, start: int, stop: int) -> tuple[Matrix, np.ndarray]:
        """Rows [start, stop)."""
        if len(self._parts) == 1:
            return self._parts[0][start:stop], self.y[start:stop]
        data, indices, indptr = self._parts
        a, b = int(indptr[start]), int(indptr[stop])
        pointers = np.asarray(indptr[start : stop + 1]) - a
        shape = (stop - start, self.n_features)
        return sparse.csr_matrix((data[a:b], indices[a:b], pointers), shape=shape, copy=False), self.y[start:stop]

    def whole(self) -> tuple[Matrix, np.ndarray]:
        """All rows."""
        return self.rows(0, len(self.y))


def open_problem(folder: Path, name: str, work: Path) -> Problem:
    """The problem of a folder of .npy files, linked into `work`, with its store."""
    here = work / name
    here.mkdir(parents=True)
    for file in folder.glob("*.npy"):
        (here / file.name).symlink_to(file.resolve())
    return _finish(here, name, _width(folder))


def make_problem(name: str, generator: Path, rows: int | None, work: Path) -> Problem:
    """One of `MADE`, by a generator program that takes --out DIR and writes the .npy files."""
    arguments = [*MADE[name], *([] if rows is None else ["--rows", str(rows)])]  # the last --rows wins
    made = work / f"{name}-arrays"
    subprocess.run([sys.executable, str(generator), "--out", str(made), *arguments], check=True, stdout=sys.stderr)
    return open_problem(made, name, work)


def demo_problem(rows: int, work: Path, classes: int = 1) -> Problem:
    """Built in: sparse rows like text; a planted direction, or as many as classes (the largest score wins)."""
    rng = np.random.default_rng(SEED)
    directions = rng.standard_normal((N_FEATURES, max(classes, 1)))
    blocks, labels = [], []
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        rows_here = min(BLOCK_ROWS, rows - start)
        X, y = make_block(number, rows_here, directions[:, 0])
        block = sparse.csr_matrix(tuple(X), shape=(rows_here, N_FEATURES))
        if classes > 1:
            y = np.argmax(block @ directions, axis=1)
            wrong = np.random.default_rng([SEED, number, classes]).random(rows_here) < 0.03
            y[wrong] = (y[wrong] + 1) % classes
        blocks.append(block)
        labels.append(y)
    name = "demo" if classes == 1 else f"planted-{classes}"
    return _save(sparse.vstack(blocks, format="csr"), np.concatenate(labels), name, work)


def tiny_problem(work: Path, rows: int = TINY_ROWS, n_features: int = 20) -> Problem:
    """Built in: dense, few features, a planted direction with noise; what a smoke test takes."""
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((rows, n_features)) / np.sqrt(n_features)
    score = X @ rng.standard_normal(n_features) + 0.3 * rng.standard_normal(rows)
    return _save(X, np.where(score > 0, 1, -1), "tiny", work)


def real_problem(name: str, data_dir: Path, work: Path) -> Problem:
    """A real set, scaled as its comment says; all its classes."""
    X, y = _loader(data_dir).load(name)
    X = sparse.csr_matrix(X)
    if name == "kddcup99":  # columns reach 7e8: largest absolute value 1
        largest = np.abs(X).max(axis=0).toarray().ravel()
        X = X @ sparse.diags(1 / np.where(largest > 0, largest, 1))
    elif name == "20news":  # unit rows
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        X = sparse.diags(1 / np.where(norms > 0, norms, 1)) @ X
    elif name == "mnist":  # pixels
        X = X / 255
    return _save(sparse.csr_matrix(X), y, name, work)


def against_rest(problem: Problem, work: Path) -> Problem:
    """The first class against the rest, of the same rows."""
    here = work / f"{problem.name}-one"
    here.mkdir(parents=True)
    for file in problem.folder.glob("*.npy"):
        if file.name != "y.npy":
            (here / file.name).symlink_to(file.resolve())
    y = np.load(problem.folder / "y.npy")
    np.save(here / "y.npy", np.where(y == problem.labels[0], 1, -1).astype(np.int8))
    return _finish(here, here.name, problem.n_features)


def excerpt(problem: Problem, work: Path, rows: int = 2000) -> Problem:
    """A few rows from all over a problem: same types and classes.  What kernels are compiled with."""
    X, y = Arrays(problem.folder, problem.n_features, mapped=True).whole()
    some = np.unique(np.linspace(0, problem.n_samples - 1, rows).astype(np.int64))
    some = np.union1d(some, [np.flatnonzero(y == label)[0] for label in problem.labels])
    return _save(X[some], y[some], f"{problem.name}-warm", work)


def _loader(data_dir: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bigsvm_real_data", data_dir / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _save(X: Matrix, y: np.ndarray, name: str, work: Path) -> Problem:
    here = work / name
    here.mkdir(parents=True)
    if sparse.issparse(X):
        np.save(here / "data.npy", X.data.astype(np.float32))
        np.save(here / "indices.npy", X.indices.astype(np.int32))
        np.save(here / "indptr.npy", X.indptr.astype(np.int64))
    else:
        np.save(here / "X.npy", X.astype(np.float32))
    np.save(here / "y.npy", y.astype(np.int8))
    return _finish(here, name, X.shape[1])


def _width(folder: Path) -> int:
    if (folder / "X.npy").exists():
        return int(np.load(folder / "X.npy", mmap_mode="r").shape[1])
    if (folder / "meta.json").exists():
        return int(json.loads((folder / "meta.json").read_text())["features"])
    return int(np.load(folder / "indices.npy", mmap_mode="r").max()) + 1


def _finish(folder: Path, name: str, n_features: int) -> Problem:
    """Sizes, and the store."""
    y = np.load(folder / "y.npy")
    dense = (folder / "X.npy").exists()
    nnz = len(y) * n_features if dense else len(np.load(folder / "data.npy", mmap_mode="r"))
    data_bytes = 4 * nnz if dense else 8 * nnz + 8 * (len(y) + 1)
    labels = tuple(float(label) for label in np.unique(y))
    problem = Problem(name, folder, len(y), n_features, nnz, data_bytes, labels)
    width = {"layout": "dense" if dense else "csr", "n_features": n_features}
    with ZarrWriter(problem.store, dtype=np.float32, **width) as writer:
        for X, labels_here in problem.pieces():
            writer.append(CSR(X.data, X.indices, X.indptr) if sparse.issparse(X) else X, labels_here)
        writer.finish()
    return problem
