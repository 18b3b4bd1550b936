"""The judge of problems that nu shapes, and what labels are called: right answers pass, each wrong one is seen."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from cross.case import MUST, Case, Step
from cross.definition import Real
from cross.judge import Outcome
from cross.judge_nu import foresee_nu, judge_nu, refused_rightly
from cross.labels import renamed
from cross.models import asked
from cross.nu import near_optimum, nu_bounds
from cross.options import Options
from cross.saved import Saved

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3))
NOISY = X[:, 0] + 0.3 * RNG.normal(size=40)


class Right:
    """A case with its right answer, made without bigsvm."""

    def __init__(self, loss: str, nu: float = 0.4) -> None:
        y, targets = np.where(NOISY > 0.2, 1, -1), 3.0 * X[:, 1] + NOISY
        options = Options("smo", loss, "free", 1.0, 1e-3, kernel={"name": "rbf", "gamma": 0.4}, nu=nu)
        self.step = Step("target_label" if loss == "nu_svr" else "label", None, options)
        self.case = Case(
            seed=0, X=X, sparse=False, form="arrays", stream="resident", labels={"label": y},
            targets={"label": targets}, weights={}, steps=[self.step], chunk=10, codec="none", categorical=False,
            explicit_zeros=False,
        )  # fmt: skip
        self.asked = asked(self.case, self.step)
        (wanted,) = self.asked.models
        programme: Any = wanted.programme
        beta = programme.in_place(near_optimum(programme, wanted.space.gram()).astype(Real))
        f, w_sq = wanted.space.of_beta(beta)
        b, width = programme.best(f)
        P, D = programme.objective(w_sq, f, b, width), programme.below(beta, w_sq, f, b, width)
        scale = width if loss == "nu_svc" else Real(1)
        classes = [] if loss == "nu_svr" else [-1, 1]
        self.saved = Saved(
            document={"classes": classes, "problem": {"C": [float(1 / scale)], "epsilon": float(width)}},
            intercept=np.array([-width if loss == "one_class" else b / scale]), coef=None, support=X.astype(Real),
            support_rows=np.arange(40), dual_coef=(beta / scale)[None, :],
            alpha=(beta / scale if loss == "nu_svr" else np.abs(beta) / scale)[None, :],
        )  # fmt: skip
        gap = float(max(P - D, 0))
        model = {"class": 1, "objective": float(P), "duality_gap": gap, "relative_gap": gap / float(P)}
        self.document: dict[str, Any] = {
            "classes": classes, "n_samples": 40, "n_features": 3, "objective": float(P), "relative_gap": gap / float(P),
            "certificate": "proved", "models": [model],
        }  # fmt: skip

    def kinds(self) -> set[str]:
        """Kinds of what the judge finds."""
        outcome = Outcome(0, "converged", self.document)
        return {found.kind for found in judge_nu(self.case, self.step, self.asked, outcome, self.saved)[0]}


LOSSES = pytest.mark.parametrize("loss", ["nu_svc", "one_class", "nu_svr"])


@LOSSES
def test_what_is_right_is_found_right_and_is_the_optimum(loss: str) -> None:
    right = Right(loss)
    assert right.kinds() == set()
    (wanted,) = right.asked.models
    programme: Any = wanted.programme
    lower, upper = nu_bounds(programme, wanted.space)
    assert 0 <= upper - lower <= 1e-9 * upper
    for _ in range(20):  # no dual point is beyond it, and no model is better
        beta = programme.in_place(RNG.normal(size=40).astype(Real))
        assert programme.outside(beta) < 1e-15
        f, w_sq = wanted.space.of_beta(beta)
        b, width = programme.best(f)
        assert programme.objective(w_sq, f, b, width) >= lower
        assert programme.below(beta, w_sq, f, b, width) <= upper


@LOSSES
def test_what_is_wrong_is_found(loss: str) -> None:
    def found(**changed: Any) -> set[str]:
        right = Right(loss)
        for name, value in changed.items():
            setattr(right.saved, name, value(getattr(right.saved, name)))
        return right.kinds()

    assert found(intercept=lambda b: b * 1.2 + 0.1) & {"claim", "gap", "objective"}
    assert "dual" in found(alpha=lambda alpha: 1.2 * alpha)
    smaller = Right(loss)
    smaller.document["models"][0]["objective"] *= 0.9
    assert "objective" in smaller.kinds()
    far = Right(loss)  # a feasible point that is not the optimum, with a gap of 0 said of it
    other = Right(loss, nu=0.7)
    other.step, other.asked = far.step, far.asked
    assert other.kinds() & {"claim", "dual"}


def test_an_infeasible_nu_must_be_refused_and_no_margin_may_be() -> None:
    right = Right("nu_svc")
    step = dataclasses.replace(right.step, options=dataclasses.replace(right.step.options, nu=1.0))
    foresee_nu(step, asked(right.case, step))
    assert step.refusal == MUST
    refused = Outcome(65, "error", {"message": "nu = 0.4 leaves no margin"})
    assert not refused_rightly(right.step, right.asked, refused)
    twins = dataclasses.replace(right.case, X=np.ones((40, 3)))
    assert refused_rightly(right.step, asked(twins, right.step), refused)


def test_labels_that_all_become_one_leave_no_model_to_foresee() -> None:
    right = Right("nu_svc")
    step = dataclasses.replace(right.step, label_map={"-1": "fir", "1": "fir"})
    problem = asked(right.case, step)
    assert len(problem.classes) == 1
    foresee_nu(step, problem)


@pytest.mark.parametrize(
    ("labels", "names", "positive", "wanted"),
    [
        ([1, 2, 3], {"1": "2", "2": "1"}, None, [2, 1, 3]),
        ([1, 2, 3], {"1": "x"}, None, ["x", "2", "3"]),
        (["a", "b"], None, "b", [False, True]),
        ([True, False], {"true": "7"}, "7", [True, False]),
    ],
)
def test_names(labels: list[Any], names: dict[str, str] | None, positive: str | None, wanted: list[Any]) -> None:
    assert renamed(np.array(labels), names, positive).tolist() == wanted
