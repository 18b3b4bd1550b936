"""What a fit reports of a model, and what `certify` finds of the model just written: the same gap, however bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import DataError

_Z = np.random.default_rng(1).standard_normal((120, 5))
_Y = np.where(_Z[:, 0] + 0.3 * np.random.default_rng(2).standard_normal(120) > 0, 1, -1)


def rows(kind: str) -> np.ndarray:
    X = _Z.copy()
    if kind == "raw":
        return (X * [1, 100, 1e4, 1e3, 5] + [0, 50, 1e4, 3e3, 1]).astype(np.float32)
    if kind != "plain":
        X[3, 2] = float(kind)
    return X


LINEAR: list[tuple[str, str, str]] = [
    ("dcd", "hinge", "augmented"),
    ("pcd", "squared_hinge", "free"),
    ("newton", "squared_hinge", "free"),
    ("newton-ws", "hinge", "free"),
    ("hyperpass", "hinge", "free"),
    ("pegasos", "hinge", "none"),
]
KERNEL: list[tuple[str, str, dict[str, Any]]] = [
    ("smo", "plain", {"kernel": "linear"}),
    ("smo", "raw", {"kernel": "rbf", "gamma": 0.5}),
    ("smo", "plain", {"kernel": "poly", "gamma": 0.3, "degree": 2, "coef0": 0.5}),
    ("platt-smo", "plain", {"kernel": "rbf", "gamma": 1e-3}),
]


def agree(tmp_path: Path, X: np.ndarray, options: dict[str, Any]) -> None:
    try:
        result = bigsvm.fit((X, _Y), **options)
    except DataError:  # the objective overflows: nothing is claimed
        return
    result.save_model(tmp_path / "m")
    proof = bigsvm.certify(tmp_path / "m", (X, _Y))
    assert proof["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-6, abs=1e-9)
    assert 0.0 <= proof["relative_gap"] <= 1.0
    assert proof["dual_objective"] >= 0.0


@pytest.mark.parametrize("kind", ["plain", "raw", "1e37", "1e150"])
@pytest.mark.parametrize(("solver", "loss", "bias"), LINEAR)
def test_of_a_linear_solver_that_was_stopped_at_once(
    tmp_path: Path, solver: str, loss: str, bias: str, kind: str
) -> None:
    agree(tmp_path, rows(kind), {"solver": solver, "loss": loss, "bias": bias, "max_passes": 1})


@pytest.mark.parametrize(("solver", "kind", "kernel"), KERNEL)
def test_of_a_kernel_solver_that_was_stopped_at_once(
    tmp_path: Path, solver: str, kind: str, kernel: dict[str, Any]
) -> None:
    agree(tmp_path, rows(kind), {"solver": solver, "C": 5.0, "max_passes": 1, **kernel})
