"""A fit whose --max-time is short: each class has a model better than w = 0, whichever solver was at work."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bigsvm

SOLVERS = {
    "squared_hinge": ["dcd", "newton", "newton-cg", "newton-ws", "ssvm", "pcd", "cd", "rosenbrock", "auto"],
    "hinge": ["dcd", "newton-ws", "hyperpass", "hyperpass-shrink", "pegasos", "auto"],
    "squared_epsilon_insensitive": ["dcd", "newton", "newton-cg", "pcd"],
    "epsilon_insensitive": ["dcd"],
}
CASES = [
    (loss, solver, n_classes)
    for loss, solvers in SOLVERS.items()
    for solver in solvers
    for n_classes in ((2,) if loss.endswith("insensitive") else (2, 4))  # a regression has one model
]
SLOW = ("pegasos", "rosenbrock")  # first steps of the one lead uphill, and the other trains class after class
C = 100.0


def clouds(n_classes: int, regression: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((90, 4))
    scores = X @ rng.standard_normal((4, n_classes)) + rng.standard_normal((90, n_classes))
    if regression:
        return X, scores[:, 0]
    return X, np.argmax(scores, axis=1) if n_classes > 2 else (scores[:, 0] > 0.0).astype(int)


@pytest.mark.parametrize(("loss", "solver", "n_classes"), CASES)
def test_each_class_is_better_than_no_weights(
    loss: str, solver: str, n_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes that Newton steps had not reached had w = 0; weights of dcd and pegasos had up to 100 times its P."""
    regression = loss.endswith("insensitive")
    X, y = clouds(n_classes, regression)
    for limit in (0.5, 3.0, 7.0):  # in looks at the clock
        ticks = itertools.count()
        monkeypatch.setattr("bigsvm.run.fit.loop.time", SimpleNamespace(monotonic=lambda t=ticks: float(next(t))))
        given: dict[str, Any] = {"loss": loss, "solver": solver, "C": C, "tol": 1e-12, "threads": 1}
        result = bigsvm.fit((X, y), max_time=limit, **given)
        assert result.status == "stopped"
        for model in result.document()["models"]:
            if loss == "squared_epsilon_insensitive":
                nothing = C * float((np.maximum(np.abs(y) - 0.1, 0.0) ** 2).sum())
            elif regression:
                nothing = C * float(np.maximum(np.abs(y) - 0.1, 0.0).sum())
            else:
                nothing = C * len(y)
            assert model["objective"] < nothing * (1.0 + (1e-5 if solver in SLOW else -1e-6))
        result.save_model(tmp_path / f"{limit}")
        proved = bigsvm.certify(tmp_path / f"{limit}", (X, y))
        assert proved["objective"] == pytest.approx(result.figures["objective"])
        assert proved["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-6, abs=1e-9)
