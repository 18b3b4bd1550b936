"""A fit that a short limit ends: each model is better than w = 0, whichever solver was at work."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import KERNEL_SOLVERS
from bigsvm.solvers.registry import SOLVERS as CLASSES

SOLVERS = {
    "squared_hinge": ["dcd", "newton", "newton-cg", "newton-ws", "ssvm", "pcd", "cd", "rosenbrock", "auto"],
    "hinge": ["dcd", "newton-ws", "hyperpass", "hyperpass-shrink", "pegasos", "auto", *KERNEL_SOLVERS],
    "crammer_singer": ["dcd", "auto"],
    "squared_epsilon_insensitive": ["dcd", "newton", "newton-cg", "pcd"],
    "epsilon_insensitive": ["dcd", "interior-point", "rosen"],
}
TWO_ONLY = KERNEL_SOLVERS  # their pairs of classes have objectives of their own numbers of rows
CASES = [
    (loss, solver, n_classes)
    for loss, solvers in SOLVERS.items()
    for solver in solvers
    for n_classes in ((2,) if loss.endswith("insensitive") or solver in TWO_ONLY else (2, 4))
]
LIMITS = [*(("max_time", looks) for looks in (0.5, 3.0, 7.0)), *(("max_passes", passes) for passes in (1.0, 2.0, 4.0))]
IN_SHARDS = [(loss, name, n) for loss, name, n in CASES if name == "auto" or CLASSES[name].in_shards]
C = 100.0


def clouds(n_classes: int, regression: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((90, 4))
    scores = X @ rng.standard_normal((4, n_classes)) + rng.standard_normal((90, n_classes))
    if regression:
        return X, scores[:, 0]
    return X, np.argmax(scores, axis=1) if n_classes > 2 else (scores[:, 0] > 0.0).astype(int)


def of_nothing(loss: str, y: np.ndarray) -> float:
    """P of w = 0."""
    if not loss.endswith("insensitive"):
        return C * len(y) * (2.0 if loss == "crammer_singer" and len(np.unique(y)) == 2 else 1.0)
    outside = np.maximum(np.abs(y) - 0.1, 0.0)
    return C * float((outside**2 if loss.startswith("squared") else outside).sum())


def ended(
    loss: str, solver: str, rows: tuple[np.ndarray, np.ndarray], limit: tuple[str, float],
    monkeypatch: pytest.MonkeyPatch, **options: Any,
) -> Any:  # fmt: skip
    """The result of a fit with a limit, whose clock goes on by a second with each look at it."""
    ticks = itertools.count()
    monkeypatch.setattr("bigsvm.run.fit.loop.time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    given: dict[str, Any] = {"loss": loss, "solver": solver, "C": C, "tol": 1e-12, "threads": 1, limit[0]: limit[1]}
    return bigsvm.fit(rows, **given, **options)


def check_certified(result: Any, rows: tuple[np.ndarray, np.ndarray], path: Path) -> None:
    result.save_model(path)
    proved = bigsvm.certify(path, rows)
    assert proved["objective"] == pytest.approx(result.figures["objective"])
    assert proved["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("loss", "solver", "n_classes"), CASES)
def test_each_class_is_better_than_no_weights(
    loss: str, solver: str, n_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes that Newton steps had not reached had w = 0; weights of dcd and smo had up to 100 times its P."""
    rows = clouds(n_classes, loss.endswith("insensitive"))
    biases = [b for b in ("augmented", "free") if solver != "auto" and b in CLASSES[solver].biases] or ["augmented"]
    biases = biases if n_classes == 2 and loss != "crammer_singer" else biases[:1]
    for bias, limit in itertools.product(biases, LIMITS):
        for kernel in ("linear", "rbf") if solver in KERNEL_SOLVERS else ("linear",):
            result = ended(loss, solver, rows, limit, monkeypatch, bias=bias, kernel=kernel)
            for model in result.document()["models"]:
                assert model["objective"] < of_nothing(loss, rows[1]) * (1.0 - 1e-6), (bias, limit, kernel)
            if limit[0] == "max_time":
                ended_before = (solver, limit[1]) == ("rosen-block", 7.0)  # as far as float64 leads
                assert result.status == "stopped" or ended_before, (bias, limit, kernel)
                check_certified(result, rows, tmp_path / f"{bias}{limit[1]}{kernel}")


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(("loss", "solver", "n_classes"), CASES)
def test_no_class_is_worse_than_no_weights_where_rows_stream(
    loss: str, solver: str, n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reading is left there to look for another direction; w of newton-ws on shards had 600 times the P of w = 0."""
    rows = clouds(n_classes, loss.endswith("insensitive"))
    parts = (None, 2) if (loss, solver, n_classes) in IN_SHARDS and loss != "crammer_singer" else (None,)
    for shards, limit in itertools.product(parts, LIMITS[1::2]):
        batch = {"solver_options": {"batch": 0}} if solver == "pegasos" and shards else {}
        result = ended(loss, solver, rows, limit, monkeypatch, shards=shards, **batch)
        for model in result.document()["models"]:
            assert model["objective"] <= of_nothing(loss, rows[1]) * (1.0 + 1e-9), (shards, limit)
