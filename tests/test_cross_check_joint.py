"""The judge of one loss of all classes: what is right passes, what is wrong is seen; old cases stay as they were."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from cross.case import Case, Step, make_case
from cross.definition import Real
from cross.judge import Outcome
from cross.judge_joint import judge_joint
from cross.models import asked
from cross.options import TOGETHER, Options
from cross.saved import Saved


def found(wrong: str = "") -> set[str]:
    """Kinds of what is found of the optimum, made without bigsvm, with one thing wrong."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 3))
    y = np.digitize(X[:, 0] + 0.4 * rng.normal(size=30), [-0.5, 0.5])
    step = Step("label", None, Options("dcd", "hinge", "augmented", 0.7, 1e-3, multi_class=TOGETHER))
    case = Case(
        seed=0, X=X, sparse=False, form="arrays", stream="resident", labels={"label": y}, targets={}, weights={},
        steps=[step], chunk=10, codec="none", categorical=False, explicit_zeros=False,
    )  # fmt: skip
    wanted = asked(case, step)
    programme = wanted.joint
    assert programme is not None
    lower, upper = programme.bounds()
    assert 0 < lower <= upper <= lower * (1 + Real(1e-9))
    alpha = programme.near_optimum()
    assert alpha is not None
    alpha = alpha * Real(0.99) if wrong == "claim" else alpha
    v = programme.space.X.T @ alpha
    P = (v * v).sum() / 2 + programme.losses(programme.space.X @ v).sum()
    gap = float(P - programme.dual(alpha)) * (0.5 if wrong == "claim" else 1.0)
    told = float(P) * (1 + 1e-6 * (wrong == "objective"))
    alpha[0, 0] += 0.01 * (wrong == "dual")
    model = {"objective": told, "duality_gap": gap, "relative_gap": gap / told}
    document: dict[str, Any] = {
        "classes": [0, 1, 2], "n_samples": 30, "n_features": 3, "objective": told, "certificate": "proved",
        "relative_gap": gap / told, "models": [model],
    }  # fmt: skip
    saved = Saved({"classes": [0, 1, 2]}, v[-1], v[:-1].T, None, None, None, alpha.T)
    kinds, _ = judge_joint(case, step, wanted, Outcome(0, "converged", document), saved)
    return {finding.kind for finding in kinds}


def test_what_is_right_is_found_right() -> None:
    assert found() == set()


@pytest.mark.parametrize("wrong", ["objective", "dual", "claim"])
def test_what_is_wrong_is_found(wrong: str) -> None:
    assert wrong in found(wrong)


@pytest.mark.parametrize("seed", [70010, 70003])
def test_a_loss_of_all_classes_comes_last(seed: int) -> None:
    *others, last = make_case(seed).steps
    assert last.options.together
    assert others
    assert not any(step.options.together for step in others)
