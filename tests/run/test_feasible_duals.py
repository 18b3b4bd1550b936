"""The alpha that a kernel fit saves is a dual point, and what was said of it is what `certify` finds."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.problem.kernel import Kernel
from bigsvm.run.proof import kernel_prover
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.smo.smo import Smo
from bigsvm.solvers.registry import SOLVERS
from bigsvm.testing.problems import random_problem

_BALANCED = 2.0**-40
KERNEL_SOLVERS = [name for name, solver in SOLVERS.items() if issubclass(solver, KernelSolver)]


def rows_far_away(n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Three classes at 1e6 from the origin: kernel values of degree 2 are 1e24, whose float64 is off by 1e8."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n, 16))
    return (X + 1.4e6).astype(np.float32), np.digitize(X[:, 0] + 0.3 * rng.normal(size=n), [-0.2, 0.5])


@pytest.mark.parametrize(
    ("solver", "rule"), [*zip(KERNEL_SOLVERS, itertools.cycle(["ovo", "ovr"]), strict=False), ("smo", "ovr")]
)
def test_alpha_of_a_hopeless_fit_is_a_dual_point(solver: str, rule: str, tmp_path: Path) -> None:
    X, y = rows_far_away()
    options: dict[str, Any] = {"kernel": "poly", "degree": 2, "coef0": 0.3, "C": 0.005, "tol": 2e-5}
    if solver != "smo":
        options["max_passes"] = 50
    result = bigsvm.fit((X, y), solver=solver, multi_class=rule, **options)
    alpha = np.concatenate([vector.values for vector in result.alpha], axis=1)
    model = result.model
    for m in range(model.n_models):
        sign = np.where(y == model.positive[m], 1.0, -1.0)
        takes = (y == model.positive[m]) | (y == model.negative[m]) | (model.negative[m] < 0)
        assert np.all((alpha[:, m] >= 0.0) & (alpha[:, m] <= 0.005 * (1 + 2.0**-44)))
        assert not alpha[~takes, m].any()
        assert abs(sign @ alpha[:, m]) <= _BALANCED * alpha[:, m].sum()
    result.save_model(tmp_path / "m")
    again = bigsvm.certify(tmp_path / "m", (X, y))
    # Sums of kernel values of 1e24 whose beta is 1e-2 know no more digits.
    assert again["objective"] == pytest.approx(result.figures["objective"], rel=1e-4)
    assert again["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-3)


@pytest.mark.parametrize("rule", ["ovo", "ovr"])
def test_proofs_that_nothing_believes_leave_every_alpha_as_it_is(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All models are done and no proof believes it: one after another is taken up again, to the same end."""
    X, y = random_problem(120, 4, seed=3, n_classes=3)
    monkeypatch.setattr(
        kernel_prover, "above_zero", lambda found: replace(found, gap=found.primal, dual=0 * found.dual)
    )
    result = bigsvm.fit((X, y), kernel="rbf", gamma=0.3, multi_class=rule, tol=1e-3)
    assert result.status == "stalled"
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", (X, y))["relative_gap"] <= 1e-3


@pytest.mark.parametrize("stop", ["gap", "paper"])
@pytest.mark.parametrize(("done", "taken"), [([True, False, False], 1), ([True, True, True], 2)])
def test_a_model_that_is_taken_up_again_is_not_done(stop: Any, done: list[bool], taken: int) -> None:
    """A proof is asked for where all are done, and fills in the programmes of all: none may be in work then."""
    gap, violation = (np.array([0.1, 0.2, 0.4]), np.zeros(3)) if stop == "gap" else (np.zeros(3), np.array([1, 2, 4.0]))
    state: Any = SimpleNamespace(
        done=np.array(done), gap=gap, violation=violation, primal=np.ones(3), n_models=3,
        problem=SimpleNamespace(kernel=Kernel("rbf", 1.0)), open=[],
    )  # fmt: skip
    assert Smo(asked=FitConfig(stop=stop))._next(state) == taken
    assert not state.done[taken]
