"""The model of a kernel fit: its support vectors and coefficients, or w if the kernel is linear."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel, Model
from bigsvm.problem.problem import Problem
from bigsvm.solvers.kernel.state import KernelState
from bigsvm.solvers.kernel.values.support_rows import SupportRoom, gathered_support
from bigsvm.store.blocks import RowBlocks, tile

_PIECE_ROWS, _PIECE_BYTES = 1 << 14, 1 << 22  # most rows, and bytes of coefficients, that are copied at one time


def kernel_model(
    problem: Problem, state: KernelState, bias: np.ndarray, w: np.ndarray | None, data: RowBlocks, about: dict[str, Any]
) -> Model:
    """The model of the beta in `state.alpha`, in the rows and features of the store.

    Support vectors are kept in memory as far as the budget allows, otherwise in unnamed scratch files.

    bias : float64, (n_models,), proved together with beta
    w : float64, (n_models, n_features), proved, in the feature order of `data`; None unless the kernel is linear
    """
    intercept = bias.copy()
    codes = {"positive": problem.positive, "negative": problem.negative}
    if problem.kernel.name == "linear":
        assert w is not None
        return LinearModel(_in_store_order(w, data), intercept, problem.classes, about, **codes)
    support = _support_of(state)
    rows = support if data.row_order is None else np.asarray(data.row_order[support]).astype(np.int64)
    order = np.argsort(rows, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    room = SupportRoom(state.data.ctx)
    coefficients = room.array(state.n_models, len(support), np.float64)
    for start, stop in tile(len(support), _rows_at_once(state.n_models)):
        coefficients[:, rank[start:stop]] = state.alpha.values[support[start:stop]].T
    named = problem.kernel.name == "precomputed"
    return KernelModel(
        kernel=problem.kernel,
        support=None if named else gathered_support(state.data, support, rank, data, room),
        support_rows=rows[order],
        dual_coef=coefficients,
        intercept=intercept,
        classes=problem.classes,
        n_features=data.n_features,
        about=about,
        **codes,
    )


def _rows_at_once(n_models: int) -> int:
    """Rows whose coefficients are copied at one time."""
    return max(min(_PIECE_ROWS, _PIECE_BYTES // (8 * n_models)), 16)


def _support_of(state: KernelState) -> np.ndarray:
    """Rows with beta != 0 in any model, int64, ascending."""
    alpha = state.alpha.values
    found = [
        start + np.flatnonzero(np.any(alpha[start:stop] != 0.0, axis=1))
        for start, stop in tile(len(alpha), _rows_at_once(state.n_models))
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _in_store_order(w: np.ndarray, data: RowBlocks) -> np.ndarray:
    """Weights, (n_models, n_features), from the feature order of `data` to that of the store."""
    if data.feature_order is None:
        return w.copy()
    ordered = np.empty_like(w)
    ordered[:, data.feature_order] = w
    return ordered
