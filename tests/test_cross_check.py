"""The judge of `scripts/cross_check.py` sees what it is there for: each claim below is false in one way."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from cross.case import MUST, Case, Step, make_case
from cross.definition import Kernelled, Linear, Programme, Real, kernel_errors, kernel_matrix
from cross.judge import Outcome, Point, _judge_model, judge_fit, judge_outcome
from cross.judge_use import judge_certify, judge_scores
from cross.models import Asked, asked
from cross.options import Options
from cross.reference import ascended, bounds, indefinite, interior_point
from cross.saved import Saved

RBF = {"name": "rbf", "gamma": 0.4}


def programme(loss: str, free: bool, rng: np.random.Generator) -> tuple[Programme, np.ndarray]:
    X = rng.normal(size=(30, 4)).astype(Real)
    signs = np.where(X[:, 0] + 0.5 * rng.normal(size=30) > 0, Real(1), Real(-1))
    t = 3 * X[:, 1] + Real(7) if loss == "epsilon_insensitive" else signs
    C = rng.uniform(0.1, 3, 30).astype(Real)
    return Programme(t, C, loss, free, 0.2 if loss == "epsilon_insensitive" else 0.0), X


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon_insensitive"])
def test_the_reference_is_the_optimum_and_no_point_is_beyond_it(loss: str, free: bool, kernel: str) -> None:
    rng = np.random.default_rng(7)
    asked_for, X = programme(loss, free, rng)
    K = kernel_matrix(X, X, RBF)
    space = Linear(X, 0.0 if free else 1.0) if kernel == "linear" else Kernelled(K, kernel_errors(X, X, K, RBF))
    lower, upper = bounds(asked_for, space)
    assert 0 <= upper - lower <= 1e-9 * upper
    for _ in range(20):
        beta = asked_for.in_box(rng.normal(size=30).astype(Real))
        assert asked_for.outside(beta) < 1e-18
        f, w_sq = space.of_beta(beta)
        b = asked_for.best_bias(f) if free else Real(0)
        assert asked_for.dual(beta, w_sq) <= upper * (1 + 1e-12)
        assert w_sq / 2 + asked_for.losses(f + b).sum() >= lower * (1 - 1e-12)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon_insensitive"])
@pytest.mark.parametrize("scale", [1e3, 1e5, 1e8])
def test_bounds_hold_where_longdouble_too_knows_no_digit(scale: float, loss: str, free: bool) -> None:
    """Kernel values of 1e50: what a dual point is worth is then rounding, and w = 0 is no worse than it was."""
    rng = np.random.default_rng(7)
    asked_for, X = programme(loss, free, rng)
    kernel = {"name": "poly", "gamma": 1.0, "coef0": 0.0, "degree": 3}
    X = X * Real(scale) + Real(scale)
    K = kernel_matrix(X, X, kernel)
    lower, upper = bounds(asked_for, Kernelled(K, kernel_errors(X, X, K, kernel)))
    nothing = np.zeros(30, Real)
    b = asked_for.best_bias(nothing) if free else Real(0)
    assert 0 <= lower <= asked_for.losses(nothing + b).sum()
    assert lower <= upper * (1 + 1e-9)


def test_a_gap_may_count_what_a_sum_of_0_is_worth_but_no_less_than_it_is() -> None:
    """Targets far from 0: 2^-44 of their sum is 1e-8 of a small P, and an honest gap has it."""
    right = Right({"name": "linear"})
    (wanted,) = right.asked.models
    step = dataclasses.replace(right.step, options=dataclasses.replace(right.step.options, tol=1e-1))

    def kinds(gap: float, price: float) -> set[str]:
        P, nothing = Real(8e-4), Real(0)
        point = Point(P, nothing, P, None, nothing, nothing, Real(price))
        outcome = Outcome(0, "converged", {"certificate": "estimate"})
        said = {"objective": float(P), "duality_gap": gap, "relative_gap": gap / float(P)}
        return {finding.kind for finding in _judge_model(step, wanted, point, said, outcome)}

    assert kinds(1.9e-11, 2e-11) == set()
    assert kinds(1.9e-11, 0.0) == {"gap"}
    assert kinds(-1.9e-11, 2e-11) == {"gap"}
    assert kinds(3e-11, 2e-11) == {"gap"}


def test_an_indefinite_kernel_is_known_by_a_dual_point_above_its_saddle() -> None:
    rng = np.random.default_rng(1)
    K = rng.normal(size=(30, 30)).astype(Real)
    K = (K + K.T) / 2
    asked_for, X = programme("hinge", True, rng)
    assert indefinite(K)
    assert not indefinite(kernel_matrix(X, X, RBF))
    starts = [np.zeros(30, Real), asked_for.C * asked_for.t]
    assert ascended(asked_for, K, starts) > asked_for.losses(np.zeros(30, Real)).sum()


class Right:
    """A case with its right answer, made without bigsvm."""

    def __init__(self, kernel: dict[str, Any], loss: str = "hinge", bias: str = "free") -> None:
        rng = np.random.default_rng(3)
        X = rng.normal(size=(40, 3))
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=40) > 0, 1, -1)
        solver = "dcd" if bias == "augmented" else "smo"
        self.step = Step("label", None, Options(solver, loss, bias, 1.0, 1e-3, kernel=kernel))
        self.case = Case(
            seed=0, X=X, sparse=False, form="arrays", stream="resident", labels={"label": y}, targets={}, weights={},
            steps=[self.step], chunk=10, codec="none", categorical=False, explicit_zeros=False,
        )  # fmt: skip
        self.asked: Asked = asked(self.case, self.step)
        (wanted,) = self.asked.models
        beta = wanted.programme.in_box(interior_point(wanted.programme, wanted.space.gram()).astype(Real))
        beta = _snapped(wanted.programme, beta)
        f, w_sq = wanted.space.of_beta(beta)
        augmented = bias == "augmented"
        b = beta.sum() if augmented else wanted.programme.best_bias(f)
        P, D = w_sq / 2 + wanted.programme.losses(f + (0 if augmented else b)).sum(), wanted.programme.dual(beta, w_sq)
        linear = kernel["name"] == "linear"
        self.saved = Saved(
            document={"classes": [-1, 1]}, intercept=np.array([b]), alpha=np.abs(beta)[None, :],
            coef=(X.astype(Real).T @ beta)[None, :] if linear else None,
            support=None if linear else X.astype(Real), support_rows=None if linear else np.arange(40),
            dual_coef=None if linear else beta[None, :],
        )  # fmt: skip
        gap = float(max(P - D, 0))
        model = {"class": 1, "objective": float(P), "duality_gap": gap, "relative_gap": gap / float(P), "n_support": 1}
        self.document: dict[str, Any] = {
            "classes": [-1, 1], "n_samples": 40, "n_features": 3, "objective": float(P), "duality_gap": gap,
            "relative_gap": gap / float(P), "certificate": "proved", "models": [model],
        }  # fmt: skip
        if not augmented:
            self.document["violation"] = float(wanted.programme.violation(beta, f))
        self.scores = np.asarray(f + (0 if augmented else b), np.float64)[:, None]
        self.labels: list[Any] = np.where(self.scores[:, 0] > 0, 1, -1).tolist()

    def kinds(self) -> set[str]:
        """Kinds of what the judge finds."""
        outcome = Outcome(0, "converged", self.document)
        found, error = judge_fit(self.case, self.step, self.asked, outcome, self.saved)
        found += judge_certify(self.step, outcome, Outcome(0, "ok", self.document), error)
        found += judge_scores(self.asked, self.step, self.saved, self.scores, self.labels)
        return {finding.kind for finding in found}


def _snapped(programme: Programme, beta: np.ndarray) -> np.ndarray:
    """What lies within 1e-7 of an end of its box at that end; of a free bias the freest row keeps the sum at 0."""
    for end in (programme.lower, programme.upper):
        beta = np.where(np.abs(beta - end) < 1e-7 * programme.C, end, beta)
    if programme.free:
        freest = int(np.argmax(np.minimum(beta - programme.lower, programme.upper - beta)))
        beta[freest] -= beta.sum()
    return beta


KERNELS = pytest.mark.parametrize("kernel", [{"name": "linear"}, RBF], ids=["linear", "rbf"])


@KERNELS
def test_what_is_right_is_found_right(kernel: dict[str, Any]) -> None:
    assert Right(kernel).kinds() == set()


def test_a_linear_model_with_an_augmented_bias_is_found_right() -> None:
    assert Right({"name": "linear"}, "squared_hinge", "augmented").kinds() == set()


def _objective(right: Right) -> None:
    right.document["models"][0]["objective"] *= 1 + 1e-6


def _alpha_outside(right: Right) -> None:
    assert right.saved.alpha is not None
    right.saved.alpha[0, 0] += 2


def _alpha_unbalanced(right: Right) -> None:
    assert right.saved.alpha is not None
    right.saved.alpha[0, int(np.argmax(right.saved.alpha[0]))] *= 0.5


def _bias(right: Right) -> None:
    right.saved.intercept[0] += 0.2


def _gap(right: Right) -> None:
    worse = copy.deepcopy(right)
    assert worse.saved.alpha is not None
    worse.saved.alpha *= 0.9
    if worse.saved.dual_coef is not None:
        worse.saved.dual_coef *= 0.9
    else:
        assert worse.saved.coef is not None
        worse.saved.coef *= 0.9
    right.saved = worse.saved


def _score(right: Right) -> None:
    right.scores[3, 0] += 1e-6


def _label(right: Right) -> None:
    right.labels[5] = -right.labels[5]


def _class(right: Right) -> None:
    right.document["classes"] = [-1, 3]


def _violation(right: Right) -> None:
    right.document["violation"] += 0.1


def _violation_hidden(right: Right) -> None:
    _gap(right)


def _not_proved(right: Right) -> None:
    right.document["certificate"] = "estimate"


@KERNELS
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (_objective, "objective"), (_alpha_outside, "dual"), (_alpha_unbalanced, "dual"), (_bias, "objective"),
        (_gap, "claim"), (_score, "scores"), (_label, "labels"), (_class, "model"), (_violation, "violation"),
        (_violation_hidden, "violation"), (_not_proved, "status"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(fault: Callable[[Right], None], kind: str, kernel: dict[str, Any]) -> None:
    right = Right(kernel)
    fault(right)
    assert kind in right.kinds()


def test_a_proof_of_an_indefinite_kernel_is_a_false_claim() -> None:
    right = Right({"name": "sigmoid", "gamma": 2.0, "coef0": -1.0})
    assert "claim" in right.kinds()


def test_refusals_are_held_against_what_was_foreseen() -> None:
    right = Right({"name": "linear"})
    refused, fitted = Outcome(65, "error", {"message": "bad"}), Outcome(0, "converged", right.document)
    assert [f.kind for f in judge_outcome(right.case, right.step, refused)] == ["refused"]
    assert judge_outcome(right.case, right.step, fitted) == []
    must = dataclasses.replace(right.step, refusal=MUST, why="twice")
    assert judge_outcome(right.case, must, refused) == []
    assert [f.kind for f in judge_outcome(right.case, must, fitted)] == ["accepted"]
    assert [f.kind for f in judge_outcome(right.case, right.step, fitted._replace(code=4))] == ["status"]


def test_a_seed_determines_a_case() -> None:
    one, other = make_case(11), make_case(11)
    assert one.title == other.title
    assert [step.options for step in one.steps] == [step.options for step in other.steps]
    np.testing.assert_array_equal(one.X, other.X)


@pytest.mark.parametrize("seed", [52917, 53297])
def test_a_matrix_of_all_rows_has_their_labels(seed: int) -> None:
    case = make_case(seed)
    assert case.X.shape == (len(case.X),) * 2
    assert all(len(labels) == len(case.X) for labels in case.labels.values())
