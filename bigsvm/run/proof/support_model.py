"""The model of a fit with a kernel: its support vectors and coefficients, or w where the kernel is linear."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel, Model
from bigsvm.problem.problem import Problem
from bigsvm.solvers.gathered import picked_rows, stacked
from bigsvm.solvers.kernel.state import KernelState
from bigsvm.solvers.kernel.values.data import KernelData
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer
from bigsvm.store.blocks import Matrix, RowBlocks


def kernel_model(
    problem: Problem, state: KernelState, bias: np.ndarray, w: np.ndarray | None, data: RowBlocks, about: dict[str, Any]
) -> Model:
    """The model of the beta in `state.alpha`, in the store's rows and features.

    Support vectors are gathered a number at a time, as the memory allows.

    bias : float64, (n_models,), that was proved with beta
    w : float64, (n_models, n_features), that was proved, where the kernel is linear; in the order of `data`
    """
    support = np.flatnonzero(np.any(state.alpha.values != 0.0, axis=1))
    intercept = bias.copy()
    codes = {"positive": problem.positive, "negative": problem.negative}
    if problem.kernel.name == "linear":
        assert w is not None
        return LinearModel(_in_store_order(w, data), intercept, problem.classes, about, **codes)
    rows = support if data.row_order is None else np.asarray(data.row_order[support]).astype(np.int64)
    order = np.argsort(rows, kind="stable")
    return KernelModel(
        kernel=problem.kernel,
        support=None if problem.kernel.name == "precomputed" else _support(state.data, support, order, data),
        support_rows=rows[order],
        dual_coef=np.ascontiguousarray(state.alpha.values[support[order]].T),
        intercept=intercept,
        classes=problem.classes,
        n_features=data.n_features,
        about=about,
        **codes,
    )


def _in_store_order(w: np.ndarray, data: RowBlocks) -> np.ndarray:
    """Weights, (n_models, n_features), of the data's features as weights of the store's."""
    if data.feature_order is None:
        return w.copy()
    ordered = np.empty_like(w)
    ordered[:, data.feature_order] = w
    return ordered


def _support(data: KernelData, support: np.ndarray, order: np.ndarray, store: RowBlocks) -> Matrix:
    """Rows `support` of the data in the order of the store's rows, with the store's feature numbers."""
    parts: list[Matrix] = []
    at_once = RowBuffer.capacity_for(data.ctx, data.places)
    for start in range(0, max(len(support), 1), at_once):
        numbers = support[start : start + at_once]
        X, at = data.take(numbers) if len(numbers) else (_none(store), numbers)
        parts.append(picked_rows(X, at))
    X = parts[0] if len(parts) == 1 else stacked(parts)
    del parts
    if not np.array_equal(order, np.arange(len(order))):
        X = picked_rows(X, order)
    if store.feature_order is None:
        return X
    if not isinstance(X, CSR):
        ordered = np.empty_like(X)
        ordered[:, store.feature_order] = X
        return ordered
    indices = np.asarray(store.feature_order[X.indices]).astype(X.indices.dtype)
    row = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
    ascending = np.lexsort((indices, row))
    return CSR(X.data[ascending], indices[ascending], X.indptr)


def _none(store: RowBlocks) -> Matrix:
    if store.layout == "dense":
        return np.empty((0, store.n_features), store.dtype)
    return CSR(np.empty(0, store.dtype), np.empty(0, store.index_dtype), np.zeros(1, np.int64))
