"""Compile the kernels of a run before its clock and its memory count.

numba's cache folder must not be filled by two processes at once, so compilation happens under a lock; with
a filled cache this takes milliseconds.
"""

from __future__ import annotations

import dataclasses
import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bigsvm.events import silent
from bigsvm.kernels import cache_folder
from bigsvm.kernels.arena import evict
from bigsvm.kernels.certify import N_SUMS, certify_rows, distances
from bigsvm.kernels.dual_cd import DualBox, dual_cd_sweeps, dual_cd_visit
from bigsvm.kernels.fingerprint import content_hash, first_bad_value
from bigsvm.kernels.rows import CSR, decision, sqnorms
from bigsvm.kernels.visiting import shuffled
from bigsvm.problem.problem import zero_weights
from bigsvm.run.local import SerialMapper
from bigsvm.run.plan import Plan
from bigsvm.run.staging import staged
from bigsvm.solvers.arena import make_arena
from bigsvm.solvers.dual_cd import groups_of_models
from bigsvm.store.array_rows import ArrayRows
from bigsvm.store.blocks import BlockGroup, Matrix, RowBlocks, kernel_matrix
from bigsvm.store.working_order import MANY_FEATURES

_MANY_ROWS = 4096  # enough for a sample to tell that they are sorted


@contextmanager
def compile_lock() -> Iterator[None]:
    """One compiling process at a time; a dead one never blocks."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "compile.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def warm(store: RowBlocks, plan: Plan | None = None, n_models: int = 1) -> None:
    """Compile, or load, every kernel that a fit (with its plan), certificate or prediction on `store` will call."""
    warm_for(store.layout, store.dtype, store.index_dtype, n_models if plan is None else plan.shape.n_models)
    if plan is not None:
        warm_training(store, plan)
    if plan is not None and plan.mode == "staged":
        warm_staging(store)


def warm_for(layout: str, dtype: np.dtype, index_dtype: np.dtype, n_models: int) -> None:
    """What a certificate or a prediction calls, for a kind of matrix."""
    X = _two_rows(layout, dtype, index_dtype)
    codes, positive, cost = np.array([0, 1], np.int32), np.ones(n_models, np.int32), np.ones(2)
    C, w, alpha = np.ones(n_models), zero_weights(1, n_models), np.zeros((2, n_models))
    box = DualBox(0, 1.0, 0.0, 1.0)
    with compile_lock():
        certify_rows(X, codes, positive, cost, C, alpha, w, w.copy(), box, np.zeros((n_models, N_SUMS)))
        distances(w, w.copy(), np.zeros((n_models, 3)))
        decision(X, np.zeros((1, n_models)), np.empty((2, n_models)))
        content_hash(X, np.zeros(2, np.uint64), cost, 0)
        first_bad_value(np.ones(2, dtype))


def warm_training(store: RowBlocks, plan: Plan) -> None:
    """What training by `plan` calls: a step on two rows, streamed or in memory as the plan has it."""
    width = 1 if store.layout == "csr" else store.n_features
    X = _two_rows(store.layout, store.dtype, store.index_dtype, width)
    codes, cost, classes = np.array([0, 1], np.int32), np.ones(2), np.ones(2)
    weights = np.ones(2 if store.has_weights else 0)
    sqnorm, box = np.ones((2, 1)), DualBox(0, 1.0, 0.0, 1.0)
    wide = np.float32 if plan.shape.weight_bytes == 4 else np.float64
    for models in groups_of_models(plan.shape.n_models, plan.parallel):
        m = models.stop - models.start
        C, positive, alpha, W = np.ones(m), np.ones(m, np.int32), np.zeros((2, m)), zero_weights(width, m, wide)
        stats, thresholds, active = np.zeros((m, 4)), np.zeros((2, m)), np.ones((2, 1), np.uint8)[:, 0]
        with compile_lock():
            shuffled(2, 0, 0, 0)
            sqnorms(X, sqnorm[:, 0])
            certify_rows(X, codes, positive, cost, C, alpha, W, np.zeros(W.shape), box, np.zeros((m, N_SUMS)))
            distances(W, np.zeros(W.shape), np.zeros((m, 3)))
            if plan.resident:
                if m > 8:
                    active = active.astype(np.uint64)
                dual_cd_sweeps(
                    X, codes, classes, weights, positive, C, sqnorm[:, 0], alpha, W, active, box, 1.0, thresholds, 1,
                    True, 1, 0, 0, 0, 0.0, 0.0, np.zeros(m), stats,
                )  # fmt: skip
                continue
            sqnorms(X, sqnorm.ravel())
            order, score, at = np.zeros(2, np.int64), np.ones(2, np.float32), np.arange(2)
            dual_cd_visit(
                X, codes, classes, weights, positive, C, sqnorm.ravel(), alpha, at, W, active, box, 1.0, 1, 0, 0, 0,
                order, stats, score,
            )  # fmt: skip
            if plan.arena_bytes:
                part = dataclasses.replace(plan.problem, C=C, positive=positive, class_weight=classes)
                arena = make_arena(4096, store, plan.arena_packed, at_least=2)
                arena.admit(X, codes, weights, sqnorm.ravel(), at, order, score, active)
                arena.sweep(part, alpha, W, (0, 0), 0)
                evict(arena.rows, arena.slots, arena.n, 0.0, active, np.empty(1, np.uint16))


def warm_staging(store: RowBlocks) -> None:
    """What making a working copy calls: a small one is made, of sorted rows with many features, once a kind of data.

    Nothing is done where the kernel cache says that it was: loading them takes next to no memory.
    """
    kind = (store.layout, store.dtype.name, store.index_dtype.name, "weights" if store.has_weights else "plain")
    done = cache_folder() / f"staging-{'-'.join(kind)}"
    if done.exists():
        return
    n, width = _MANY_ROWS, 2 if store.layout == "dense" else MANY_FEATURES + 2
    X: Matrix
    if store.layout == "csr":
        X = CSR(np.ones(n, store.dtype), np.arange(n, dtype=store.index_dtype) % width, np.arange(n + 1))
    else:
        X = np.ones((n, width), store.dtype)
    y = np.arange(n) >= n // 2
    weight = np.ones(n) if store.has_weights else None
    small = ArrayRows(X, y.astype(np.int64), weight, n_features=width)
    with (
        compile_lock(),
        tempfile.TemporaryDirectory(prefix="bigsvm-") as folder,
        staged(small, Path(folder), n // 4, n // 4, 1 << 20, None, SerialMapper(), silent) as copy,
    ):
        refs = copy.refs(n // 4)
        copy.read_group(BlockGroup((refs[0], refs[1])), copy.group_buffers(2))
    done.touch()


def _two_rows(layout: str, dtype: np.dtype, index_dtype: np.dtype, width: int = 1) -> Matrix:
    if layout == "csr":
        return kernel_matrix(CSR(np.ones(2, dtype), np.zeros(2, index_dtype), np.arange(3)))
    return kernel_matrix(np.ones((2, width), dtype))
