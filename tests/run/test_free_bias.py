"""The proof with a free bias: of a feasible dual point, the same in `fit` and `certify`, on columns of any scale."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.linear.gap_terms import BALANCE, LOST
from bigsvm.config import FitConfig
from bigsvm.errors import Unsupported
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem import certificate
from bigsvm.problem.certificate import Accumulator, RowsShare, certify_blocks
from bigsvm.problem.problem import make_problem
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.proof.beta_sums import BetaShare, BetaSums, beta_of_alpha, sums_of_blocks
from bigsvm.run.proof.certify import certify_model
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.formats.array_rows import ArrayRows
from tests.products import each_of
from tests.run.test_linear_rounding import LOSSES, exact_gap

SCALES = (1e-8, 1.0, 1e4, 1e8)
FREE = [
    (solver.name, loss)
    for solver in SOLVERS.values()
    for loss in solver.losses
    if "free" in solver.biases and loss in LOSSES
]


def rows(loss: str, scale: float, seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A column of that scale, one far from 0 beside it, and one between 0 and 1."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 3))
    told = Z @ [1.0, 1.0, -0.5] + 0.3 * rng.normal(size=n)
    y = told + 1e3 * (seed % 2) if "insensitive" in loss else np.where(told > 0.0, 1, -1)
    return Z * [scale, 1.0, 0.5] + [0.0, scale, 0.0], y


def proof_of(X: np.ndarray, y: np.ndarray, loss: str, w: np.ndarray, alpha: np.ndarray) -> Accumulator:
    """What a proof at most 8 rows at a time adds up, where C = 1/2 and epsilon = 0.1."""
    store = ArrayRows(X, y, task="regression" if "insensitive" in loss else "auto")
    problem = make_problem(FitConfig(loss=loss, C=0.5, epsilon=0.1, bias="free", solver="newton-ws"), store)
    total = Accumulator(problem, w)
    for ref in store.refs(8):
        total.add(certify_blocks(RowsShare(store, (ref,), problem, w, alpha[ref.start : ref.stop, None])))
    return total


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [*SCALES, 1e12])
@pytest.mark.parametrize("off", [0.0, 2.0**-50, 2.0**-46])
def test_the_claim_is_that_of_a_feasible_point(loss: str, scale: float, off: float) -> None:
    """Never better, and hardly worse: rows come twice with other labels, and one that is 0 has what is too much."""
    for seed in range(3):
        X, _ = rows(loss, scale, seed, 10)
        X, y = np.concatenate([X, X, np.zeros((1, 3))]), np.append(np.repeat([1, -1], 10), 1)
        beta = np.append(np.tile(0.5 - np.random.default_rng(seed).uniform(1e-6, 1e-3, 10), 2) * y[:-1], 5.0 * off)
        alpha, target = (beta, 1.1 * y) if "insensitive" in loss else (np.abs(beta), y)
        w = np.append(1e-3 / scale * np.random.default_rng(seed).normal(size=3), 1e-3)
        found = proof_of(X, target, loss, w, alpha).finish()
        truth = exact_gap(X, target, w[:-1], w[-1], alpha, loss, "free")
        assert truth <= min(found.relative_gap, 1.0) * (1.0 + 1e-9) + 2.0**-38
        unsure = (2.0 * off + 2.0**-49) * float(np.abs(beta) @ (np.linalg.norm(X, axis=1) + 1.0))
        price = unsure * np.sqrt(2.0 * found.gap[0]) + unsure**2
        assert found.gap[0] <= truth * found.primal[0] + price + (off + 2.0**-40) * found.primal[0] or truth == 1.0


@pytest.mark.parametrize("kept", [certificate._AT_MOST_SUMS, 1])
def test_the_balance_of_any_rows_is_exact(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of 2^50 cancel, whatever the block they are in; one sum in float64 had lost the small ones.

    With many blocks or models, sums of blocks are added before all of them are there.
    """
    monkeypatch.setattr(certificate, "_AT_MOST_SUMS", kept)
    monkeypatch.setattr(certificate, "_LEAST_SUMS", min(kept, certificate._LEAST_SUMS))
    rng = np.random.default_rng(1)
    large = 2.0**50 * rng.integers(1, 9, 150)
    beta = rng.permutation(np.concatenate([large, -large, rng.uniform(-1.0, 1.0, 100)]))
    X, y = np.zeros((400, 1)), np.sign(beta)
    store = ArrayRows(X, y.astype(np.int64))
    problem = make_problem(FitConfig(loss="squared_hinge", bias="free", solver="newton"), store)
    for block in (400, 130, 7):
        total = Accumulator(problem, np.zeros(2))
        for ref in store.refs(block):
            alpha = np.abs(beta[ref.start : ref.stop, None])
            total.add(certify_blocks(RowsShare(store, (ref,), problem, np.zeros(2), alpha)))
        sums = total.sums()[0]
        assert sums[BALANCE] + sums[LOST] == pytest.approx(float(sum(map(Fraction, beta.tolist()))), rel=1e-12)


@pytest.mark.parametrize("merged", ["blocks of a task", "tasks", "both"])
def test_the_balance_of_saved_duals_is_exact(merged: str) -> None:
    """Sums of blocks had been added in float64 alone, many of them where the rows are many."""
    rng = np.random.default_rng(1)
    large = 2.0**50 * rng.integers(1, 9, 150)
    beta = rng.permutation(np.concatenate([large, -large, rng.uniform(-1.0, 1.0, 100)]))
    store = ArrayRows(np.zeros((400, 1)), np.zeros(400), task="regression")
    problem = make_problem(FitConfig(loss="epsilon_insensitive", C=2.0**60, bias="free", solver="smo"), store)
    model = LinearModel(np.zeros((1, 1)), np.zeros(1), np.zeros(0))
    for block in (400, 130, 7):
        refs = list(store.refs(block))
        some = {"blocks of a task": len(refs), "tasks": 1, "both": 3}[merged]
        total = BetaSums.none(model, False)
        for at in range(0, len(refs), some):
            run = tuple(refs[at : at + some])
            alpha = beta[run[0].start : run[-1].stop, None]
            total.merge(sums_of_blocks(BetaShare(store, run, problem, model, alpha, beta_of_alpha, False)))
        assert total.balance[0] == pytest.approx(float(sum(map(Fraction, beta.tolist()))), rel=1e-12)


def test_sums_of_an_earlier_version_have_no_balance() -> None:
    """Which only a free bias needs."""
    X, y = rows("hinge", 1.0, 0, 20)
    store = ArrayRows(X, y)
    for bias in ("augmented", "free"):
        problem = make_problem(FitConfig(loss="hinge", bias=bias, solver="newton-ws"), store)
        total, again = Accumulator(problem, np.ones(4)), Accumulator(problem, np.ones(4))
        total.add(certify_blocks(RowsShare(store, tuple(store.refs(20)), problem, np.ones(4), np.ones((20, 1)))))
        tree = total.dump()
        tree["sums"] = np.delete(tree["sums"], LOST, axis=2)
        if bias == "free":
            with pytest.raises(bigsvm.errors.DataError, match="an earlier version"):
                again.load(tree)
        else:
            again.load(tree)
            assert again.finish().gap == total.finish().gap


@each_of(solver__loss=FREE, scale=SCALES, stream=[False, True], layout=["dense", "csr"])
def test_fit_says_what_certify_finds(
    solver: str, loss: str, scale: float, stream: bool, layout: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A regression of one linear solver was proved by two rules, one of which charged a rounding that there was not."""
    if stream:
        request.getfixturevalue("streaming")
    X, y = rows(loss, scale, 1, 60)
    made: Any = sparse.csr_array(X) if layout == "csr" else X
    store = ArrayRows(made, y, task="regression" if "insensitive" in loss else "auto")
    options: dict[str, Any] = {"loss": loss, "bias": "free", "tol": 1e-4, "threads": 1, "max_passes": 60}
    if SOLVERS[solver].proof == "kernel":
        options |= {"kernel": "linear"}
    try:
        result = fit_store(store, FitConfig.of(solver=solver, **options))
    except Unsupported:
        pytest.skip("refused by name")
    result.save_model(tmp_path / "m")
    found = certify_model(tmp_path / "m", store, FitConfig())
    assert found["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-6, abs=2.0**-40)
