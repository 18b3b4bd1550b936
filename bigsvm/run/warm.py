"""Compile the kernels of a run before its clock and its memory count.

numba's cache folder must not be filled by two processes at once, so compilation happens under a lock; with
a filled cache this takes milliseconds.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bigsvm.kernels import cache_folder
from bigsvm.kernels.certify import N_SUMS, certify_rows
from bigsvm.kernels.dual_cd import DualBox, dual_cd_sweeps, next_thresholds, shuffled, widest_spread
from bigsvm.kernels.fingerprint import content_hash, first_bad_value
from bigsvm.kernels.rows import CSR, decision, sqnorms
from bigsvm.problem.problem import zero_weights
from bigsvm.store.blocks import Matrix, RowBlocks, kernel_matrix


@contextmanager
def compile_lock() -> Iterator[None]:
    """One compiling process at a time; a dead one never blocks."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "compile.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def warm(store: RowBlocks, n_models: int) -> None:
    """Compile, or load, every kernel that a fit, certificate or prediction on `store` will call."""
    warm_for(store.layout, store.dtype, store.index_dtype, n_models)


def warm_for(layout: str, dtype: np.dtype, index_dtype: np.dtype, n_models: int) -> None:
    """As `warm`, for a kind of matrix."""
    X: Matrix
    if layout == "csr":
        X = CSR(np.ones(2, dtype), np.zeros(2, index_dtype), np.arange(3))
    else:
        X = np.ones((2, 1), dtype)
    X = kernel_matrix(X)
    codes, positive, cost = np.array([0, 1], np.int32), np.ones(n_models, np.int32), np.ones(2)
    C, w, alpha = np.ones(n_models), zero_weights(1, n_models), np.zeros((2, n_models))
    active, box = np.ones((2, 1), np.uint8)[:, 0], DualBox(0, 1.0, 0.0, 1.0)
    norms, stats, thresholds = np.empty((2, 1))[:, 0], np.empty((n_models, 4)), np.zeros((2, n_models))
    with compile_lock():
        sqnorms(X, norms)
        dual_cd_sweeps(
            X, codes, positive, cost, C, norms, alpha, w, active, box, 1.0, thresholds, 1, True, 1, 0, 0, 0, 0.0, 0.0,
            np.zeros(n_models), stats,
        )  # fmt: skip
        shuffled(2, 0, 0, 0)
        widest_spread(stats)
        next_thresholds(stats, thresholds)
        certify_rows(X, codes, positive, cost, C, alpha, w, w.copy(), box, np.zeros((n_models, N_SUMS)))
        decision(X, np.zeros((1, n_models)), np.empty((2, n_models)))
        content_hash(X, np.zeros(2, np.uint64), cost, 0)
        first_bad_value(np.ones(2, dtype))
