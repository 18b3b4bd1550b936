"""What solvers with a matrix of (n_features + 1)^2 entries share: whom they refuse, its bytes, Newton's equations."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear.hessian import solve_symmetric
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.primal.primal_state import PrimalState
from bigsvm.solvers.primal.shards.sharded_rows import sums_need
from bigsvm.solvers.weights import columns
from bigsvm.tasks import PassLeft, asked_to_leave

HESSIANS = 6  # the sum, its factor, and parts of tasks


def newton_direction(state: PrimalState, H: np.ndarray, resting: np.ndarray | None = None) -> None:
    """state.direction = -(R + H)^-1 gradient for each model, R the regulariser's identity.  H is left as it was.

    resting : bool, (n_models,), models that get the direction 0

    Raises PassLeft between two models, if the caller asks to leave (`tasks.leaving_when`).
    """
    n = H.shape[1]
    last = n - (state.problem.bias == "free")
    if state.problem.constant_feature == 0.0:
        last = n  # the unused bias entry is kept at 0 by its own 1
    U, x = np.empty((n, n)), np.empty(n)
    for m, (g, d) in enumerate(zip(columns(state.gradient).T, columns(state.direction).T, strict=True)):
        if asked_to_leave():
            raise PassLeft
        if resting is not None and resting[m]:
            d[:] = 0.0
            continue
        diagonal = H[m].diagonal().copy()
        H[m].flat[: last * n : n + 1] += 1.0
        solve_symmetric(H[m], np.ascontiguousarray(g), U, x)
        H[m].flat[:: n + 1] = diagonal
        d[:] = -x


def hessian_needs(shape: DataShape) -> list[Need]:
    """Bytes of the Hessians of all models, of the parts that tasks hold, and of sums of the triangles of shards."""
    triangle = 4 * (shape.n_features + 1) * (shape.n_features + 2)
    return [
        Need("Hessian", 8 * (shape.n_features + 1) ** 2 * (HESSIANS * shape.n_models), held="worker"),
        *sums_need(shape, triangle * shape.n_models),
    ]


def too_many_features(name: str, shape: DataShape, most: int) -> str | None:
    """Why a solver that is quadratic in the features refuses; None where it does not."""
    if shape.n_features <= most:
        return None
    return (
        f"solver {name!r} works with a matrix of {shape.n_features:,} x {shape.n_features:,} features; "
        f"{most:,} is its limit (--set max_features={shape.n_features} lifts it)"
    )
