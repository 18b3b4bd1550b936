"""What rounding is worth in the proofs of linear models: claims hold of the saved model in exact arithmetic."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.compiled.linear.gap_terms import COSTS, SLOPES, SPREAD
from bigsvm.config import FitConfig
from bigsvm.problem.certificate import Accumulator, RowsShare, certify_blocks
from bigsvm.problem.linear_rounding import LinearRounding, UnsureWeights, linear_rounding
from bigsvm.problem.problem import make_problem
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.formats.array_rows import ArrayRows
from tests.products import WHOLE

C = Fraction(1, 2)
EPSILON = Fraction(1, 10)
OFFSETS = (0.0, 1e4, 1e6, 1e8, 1e12, 1e15)
KINDS = ("shifted", "two clouds", "large")
LOSSES = ("hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive")
EPS = float(np.finfo(float).eps)


def combinations() -> list[tuple[str, str, str]]:
    """Every solver with each loss and bias that it has; those for kernels with the linear one."""
    return [(s.name, loss, bias) for s in SOLVERS.values() for loss in s.losses for bias in s.biases if loss in LOSSES]


def exact(rows: list[list[float]]) -> list[list[Fraction]]:
    """The numbers themselves."""
    return [[Fraction(float(value)) for value in row] for row in rows]


def balanced(betas: list[Fraction]) -> list[Fraction]:
    """A feasible point where the bias is free: those of the heavier sign are scaled until the sum is 0."""
    plus, minus = (sum((max(sign * beta, 0) for beta in betas), Fraction(0)) for sign in (1, -1))
    lighter = min(plus, minus)
    shares = {1: lighter / plus if plus else 0, -1: lighter / minus if minus else 0}
    return [beta * shares[1 if beta > 0 else -1] for beta in betas]


def exact_gap(
    X: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, alpha: np.ndarray, loss: str, bias: str
) -> float:  # fmt: skip
    """(P - D) / P without rounding; alpha is clipped, and where the bias is free it is balanced: one sign is scaled."""
    regression = "insensitive" in loss
    epsilon = EPSILON if regression else Fraction(0)
    rows, target = exact(X.tolist()), [Fraction(float(t)) for t in y]
    if bias == "augmented":
        rows, w = [[*row, Fraction(1)] for row in rows], np.append(w, b)
    weights = [Fraction(float(value)) for value in w]
    level = Fraction(float(b)) if bias == "free" else Fraction(0)
    P = sum(value * value for value in weights) / 2
    D, v, betas = Fraction(0), [Fraction(0)] * len(weights), []
    for t, a in zip(target, (Fraction(float(value)) for value in alpha), strict=True):
        beta = a if regression else t * max(a, 0)
        betas.append(beta if loss.startswith("squared") else max(min(beta, C), -C))
    if bias == "free":
        betas = balanced(betas)
    for row, t, beta in zip(rows, target, betas, strict=True):
        score = sum(x * value for x, value in zip(row, weights, strict=True)) + level
        beyond = max(abs(t - score) - epsilon, 0) if regression else max(1 - t * score, 0)
        P += C * beyond * (beyond if loss.startswith("squared") else 1)
        D += t * beta - epsilon * abs(beta) - (beta * beta / (4 * C) if loss.startswith("squared") else 0)
        v = [old + beta * x for old, x in zip(v, row, strict=True)]
    D -= sum(value * value for value in v) / 2
    return float((P - max(D, Fraction(0))) / P)


@pytest.mark.parametrize(("solver", "loss", "bias"), combinations())
def test_no_claim_is_better_than_the_truth(solver: str, loss: str, bias: str) -> None:
    """Solvers, losses and biases take turns with what makes numbers large; all of it on request."""
    turn = combinations().index((solver, loss, bias))
    for number, offset in enumerate(OFFSETS if WHOLE else OFFSETS[turn % 2 :: 2]):
        for kind in KINDS if WHOLE else [KINDS[(turn + number) % len(KINDS)]]:
            rng = np.random.default_rng([int(np.log10(offset + 1.0)), len(kind)])
            Z = rng.normal(size=(14, 2))
            X = {"shifted": offset + Z, "two clouds": offset * np.sign(Z) + Z, "large": max(offset, 1.0) * Z}[kind]
            y = np.where(Z[:, 0] + 0.5 * rng.normal(size=14) > 0, 1, -1)
            t: np.ndarray = y if "hinge" in loss else Z[:, 0] + 0.3 * rng.normal(size=14)
            options: dict[str, Any] = {"loss": loss, "bias": bias, "C": float(C), "tol": 1e-4}
            if SOLVERS[solver].proof != "linear":
                options |= {"kernel": "linear", "tol": 1e-8}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    result = bigsvm.fit(X, t, solver=solver, max_passes=200, **options)
                except bigsvm.errors.BigSVMError:
                    continue  # refused by name
            model, (alpha,) = result.model, result.alpha
            found = exact_gap(X, t, model.coef[0], float(model.intercept[0]), alpha.values[:, 0], loss, bias)
            claimed = float(result.certificate.relative_gap)
            assert found <= claimed * (1.0 + 1e-6) + 2.0**-38, (offset, kind, result.status)


def test_rounding_that_is_lost_counts_for_nothing() -> None:
    one = np.ones(1)

    def found(size: float, squared: bool = False, brackets: float = 1e-6, apart: float = 0.0) -> LinearRounding:
        sums = (size * one for _ in range(3))
        return linear_rounding(one, apart * one, brackets * one, one, *sums, squared=squared)

    gap = 1e-6 * one
    assert found(1e2).added(gap, one) == found(1e2).taken(gap, one) == 0.0
    # e times the slopes, d^2 / 2, and twice what P may be off by.
    full = 3e6 * EPS + 0.5 * (1e6 * EPS) ** 2
    assert found(1e6).added(gap, one) == pytest.approx(full, rel=1e-12)
    assert found(1e6).taken(gap, one) == pytest.approx(full + 2.0**-50, rel=1e-12)
    hidden = found(1e6, apart=2.0)
    assert hidden.gap == pytest.approx(3e6 * EPS + 0.5 * (1e6 * EPS) ** 2, rel=1e-12)
    assert hidden.added(2.0 * one, 3.0 * one) == pytest.approx(2e6 * EPS, rel=1e-12)  # the gap hides the rest
    assert hidden.taken(2.0 * one, 3.0 * one) == pytest.approx(5e6 * EPS, rel=1e-6)  # and D does not
    much = found(1e30, squared=True)
    assert much.primal == pytest.approx(2.0 * np.sqrt(1e30 * EPS**2) + 1e30 * EPS**2)
    assert much.gap == pytest.approx(2.0 * np.sqrt(1e24 * EPS**2) + 1e30 * EPS**2 + 0.5 * (1e30 * EPS) ** 2)
    # A P of 1e12 and a gap as large: their difference is known to 2^-50 of either, and may meet a P of 2.
    assert found(0.0).taken(1e12 * one, 1e12 * one + 2.0) == pytest.approx(1e12 * 2.0**-50)
    for size in (np.inf, np.nan):  # squares of values beyond 1e154: nothing is known
        assert found(size).added(gap, one) == found(size).taken(gap, one) == np.inf


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("large", [1e80, 1e160, 1e300])
def test_values_whose_squares_overflow_are_no_obstacle(loss: str, large: float) -> None:
    rng = np.random.default_rng(1)
    y = np.where(rng.random(40) < 0.5, -1, 1)
    X = (y[:, None] + 0.1 * rng.normal(size=(40, 2))) * large
    result = bigsvm.fit(X, y, loss=loss, solver="dcd", bias="none")
    assert np.isfinite(result.certificate.gap).all()
    assert np.isfinite(result.certificate.dual).all()


@pytest.mark.parametrize(("solver", "loss", "bias"), [c for c in combinations() if "insensitive" in c[1]])
def test_costs_beyond_float64_prove_nothing(solver: str, loss: str, bias: str) -> None:
    """A cost that is infinite hides any error of the score of its row: w.x = 1e30 came out exact, its error is 1e14."""
    X = np.array([[-1.4, -1.3], [0.7, -1.1]])
    for n, target in itertools.product((1, 2), (1.0, 1e30)):
        y, costs = np.full(n, target), np.array([1e300, 1.0])[:n]
        try:
            result = bigsvm.fit(X[:n], y, costs, C=1e10, solver=solver, loss=loss, bias=bias, epsilon=0.0, tol=0.1)
        except bigsvm.errors.BigSVMError:
            continue  # refused by name
        proved = result.certificate
        assert np.isfinite([proved.primal, proved.dual, proved.gap]).all()
        assert proved.relative_gap == 1.0 or proved.primal == 0.0, result


@pytest.mark.parametrize("loss", LOSSES)
def test_sums_over_rows_are_those_of_the_definition(loss: str) -> None:
    rng = np.random.default_rng(7)
    X, w = rng.normal(size=(300, 4)), rng.normal(size=5)
    squared, regression = loss.startswith("squared"), "insensitive" in loss
    y = rng.normal(size=300) if regression else np.where(rng.random(300) < 0.5, -1, 1)
    rows = ArrayRows(X, y if regression else y.astype(np.int64), task="regression" if regression else "auto")
    problem = make_problem(FitConfig(solver="dcd", loss=loss, C=0.5, bias="augmented"), rows)
    upper = 4.0 if squared else 0.5
    alpha = np.clip(rng.normal(size=300), -upper if regression else 0.0, upper)
    alpha[:40] = 0.0
    refs = tuple(rows.refs(64))
    sums = certify_blocks(RowsShare(rows, refs, problem, w, alpha[:, None])).sums[0]
    sign = np.ones(300) if regression else y * (1.0 if problem.classes[problem.positive[0]] == 1 else -1.0)
    s = (y if regression else 1.0) - sign * (X @ w[:-1] + w[-1])
    slope = 0.5 * ((s > problem.loss.epsilon) * 1.0 - (regression & (s < -problem.loss.epsilon)) * 1.0)
    inside = (alpha != 0.0) & (np.abs(alpha) < 0.5)
    slope = np.where(inside, np.maximum(np.abs(alpha), 0.5 - np.abs(alpha)), np.abs(slope - alpha))
    norm = np.linalg.norm(X, axis=1) + 1.0
    expected = np.abs(alpha) @ norm, 0.0 if squared else slope @ norm, 0.5 * (norm @ norm if squared else norm.sum())
    assert sums[[SPREAD, SLOPES, COSTS]] == pytest.approx(expected, rel=1e-12)


def test_no_dual_value_is_better_than_the_truth_beside_a_large_p() -> None:
    """D is known as P less the gap, of which rounding is left: D may meet a smaller P later."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, alpha = rng.normal(size=(30, 2)), 0.5 * rng.random(30)
        y = np.where(rng.random(30) < 0.5, -1, 1)
        rows = ArrayRows(X, y)
        problem = make_problem(FitConfig(solver="dcd", loss="hinge", C=0.5, bias="none"), rows)
        w = np.append(1e6 * rng.normal(size=2), 0.0)
        proof = Accumulator(problem, w)
        proof.add(certify_blocks(RowsShare(rows, tuple(rows.refs(8)), problem, w, alpha[:, None])))
        steps = [t * Fraction(a) for t, a in zip(y.tolist(), alpha.tolist(), strict=True)]
        v = [sum(step * x for step, x in zip(steps, column, strict=True)) for column in exact(X.T.tolist())]
        D = sum(map(abs, steps), Fraction(0)) - sum(part * part for part in v) / 2
        found = proof.finish()
        assert found.primal[0] > 1e9
        assert Fraction(float(found.dual[0])) <= max(D, Fraction(0))


def test_a_gap_of_the_linear_kernel_counts_rounding_of_w() -> None:
    beta, f = np.array([0.5, -0.5]), np.array([1e-3, -1e-3])
    lower, upper, norm = np.full(2, -1.0), np.ones(2), np.full(2, 1e8)
    qp = DualQP(np.array([1.0, -1.0]), lower, upper, 0.1, beta, f)
    near, far = UnsureWeights(), UnsureWeights()
    near.add(beta, lower, upper, norm**0)
    far.add(beta, lower, upper, norm**2)
    terms = qp.terms(0.0)
    assert qp.rounding(0.0, terms, near) == 0.0
    assert qp.rounding(0.0, terms, far) > 1e-9


def test_sums_of_a_dual_point_are_those_of_the_definition() -> None:
    beta = np.array([0.0, 0.5, 0.2, -0.5, -0.1])
    lower, upper = np.full(5, -0.5), np.array([0.5, 0.5, 0.5, 0.5, 0.25])
    norm = np.array([3.0, 4.0, 5.0, 6.0, 7.0])
    unsure = UnsureWeights()
    for some in (slice(0, 2), slice(2, 5), slice(5, 5)):
        unsure.add(beta[some], lower[some], upper[some], norm[some] ** 2)
    assert unsure.spread == pytest.approx(np.abs(beta) @ norm)
    # Inside their box are the third row, 0.3 from the farther end, and the last, 0.4.
    assert unsure.inside == pytest.approx(0.3 * 5.0 + 0.4 * 7.0)
    assert unsure.room == pytest.approx(0.7)
    assert unsure.costs == pytest.approx(0.5 * norm.sum())
    assert unsure.weight == pytest.approx(2.5)
    assert unsure.largest == pytest.approx(7.0)
    # The bias meets no row, however long rows are.
    found = unsure.rounding(10.0, -1e6, ends=2.0, apart=3.0)
    d = EPS * unsure.spread
    scores = EPS * (10.0 * (unsure.inside + 2.0 * 7.0) + 1e6 * (0.7 + 2.0))
    assert found.gap == pytest.approx(scores + d * (3.0 + 0.5 * d))
    assert found.primal == pytest.approx(EPS * (10.0 * unsure.costs + 1e6 * 2.5))


@pytest.mark.parametrize("solver", sorted(name for name in SOLVERS if SOLVERS[name].proof == "kernel"))
@pytest.mark.parametrize("task", ["two classes", "three classes", "regression", "nu"])
def test_certify_says_the_gap_of_a_fit_with_the_linear_kernel(solver: str, task: str, tmp_path: Path) -> None:
    """Where P is next to nothing, and elsewhere: what rounding is worth decides the gap there."""
    for number, (offset, scale) in enumerate([(0.0, 1.0), (1e6, 1e3), (1e10, 1.0), (0.0, 1e5)]):
        rng = np.random.default_rng(number)
        X = offset + scale * rng.normal(size=(24, 3))
        y: np.ndarray = np.digitize(X[:, 0] - offset, [0.0] if task in ("two classes", "nu") else [-scale, scale])
        options: dict[str, Any] = {"C": 0.01}
        if task == "regression":
            y, options["loss"] = 1e-6 * y + 50.0, "epsilon_insensitive"
        if task == "nu":
            options = {"nu": 0.3, "loss": "nu_svc"}
        try:
            result = bigsvm.fit(X, y, solver=solver, kernel="linear", tol=1e-6, max_passes=100, **options)
        except bigsvm.errors.BigSVMError:
            continue  # refused by name
        path = tmp_path / f"{number}.model"
        result.save_model(path)
        again = bigsvm.certify(path, (X, y))
        # By sums in another order: where rounding of scores is most of the gap, a hundredth of it may differ.
        assert again["relative_gap"] == pytest.approx(result.certificate.relative_gap, rel=2e-2, abs=1e-8), offset
