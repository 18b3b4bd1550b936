"""Proofs of running kernel fits: what is not balanced, and what float32 values may decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.compiled.kernel.dual_qp import qp_sums
from bigsvm.problem.kernel import Kernel
from bigsvm.problem.linear_rounding import UnsureWeights
from bigsvm.run.execute.local import SerialMapper
from bigsvm.run.proof import kernel_prover
from bigsvm.run.proof.fresh_scores import Programme, scores_of
from bigsvm.run.proof.kernel_prover import KernelProver
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP, Terms
from bigsvm.solvers.kernel.nu_qp import NuQP
from bigsvm.solvers.kernel.smo.smo import Smo
from bigsvm.solvers.kernel.values.data import KernelData
from bigsvm.solvers.kernel.values.other_side import OtherSide, nearly
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, support_rows
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem


class Proved(Exception):
    """The first proof of a fit was made."""


def tilted_gaps(monkeypatch: pytest.MonkeyPatch, tilts: list[float]) -> list[float]:
    """Relative gaps of the first proof, the solver's largest beta being so much smaller when it begins."""
    plain, found = KernelProver.prove, []

    def prove(self: KernelProver) -> Any:
        gap, beta = plain(self).relative_gap, self._state.alpha.values[:, 0]
        assert gap >= 1.0 or abs(beta.sum()) <= 2.0**-44 * np.abs(beta).sum()
        assert gap >= 1.0 or np.abs(beta).max() <= self._state.problem.C[0]
        found.append(gap)
        raise Proved

    monkeypatch.setattr(KernelProver, "prove", prove)
    for tilt in tilts:

        def make_room(self: Smo, state: Any, tilt: float = tilt) -> None:
            state.alpha.values[np.argmax(state.alpha.values), 0] *= 1.0 - tilt

        monkeypatch.setattr(Smo, "make_room", make_room)
        with pytest.raises(Proved):
            bigsvm.fit(random_problem(150, 4, seed=91), kernel="rbf", gamma=0.3, tol=1e-3)
    return found


@pytest.mark.usefixtures("no_small_fits")
def test_a_beta_that_is_not_feasible_is_made_so_before_it_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of balance by rounding, by more, or out of its box."""
    straight, rounded, tilted, outside = tilted_gaps(monkeypatch, [0.0, 2.0**-50, 1e-9, -0.5])
    assert straight <= 1e-3
    assert rounded == pytest.approx(straight, rel=1e-9)
    assert tilted == pytest.approx(straight, rel=1e-2)
    assert 0.0 < outside < 1.0


@pytest.mark.usefixtures("no_small_fits")
def test_a_beta_that_is_not_balanced_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody makes it so: the proof itself sees it."""
    monkeypatch.setattr(kernel_prover, "make_feasible", lambda *_: False)
    straight, rounded, tilted = tilted_gaps(monkeypatch, [0.0, 2.0**-50, 1e-9])
    assert straight <= 1e-3
    assert rounded == pytest.approx(straight, rel=1e-9)
    assert tilted >= 1.0


def test_rounding_of_the_balance_has_its_price() -> None:
    beta = np.array([1.0, -1.0 + 2.0**-50, 0.0])
    qp = DualQP(np.ones(3), -np.ones(3), np.ones(3), 0.0, beta, np.zeros(3))
    size, quadratic = 2.0, 5.0
    terms = Terms(0.0, 4.0, 0.0, quadratic, quadratic, size)
    # What D loses where the heavier sign is made lighter, of which the sum is known to 2^-50 of its size.
    share, unsure = 3.0 * 2.0**-50, UnsureWeights(spread=7.0)
    assert qp.imbalance(terms, unsure) == pytest.approx(share * 4.0 + 0.5 * (7.0 * share) ** 2, rel=1e-12, abs=0)
    beta[2] = 1e-6
    assert qp.imbalance(terms, unsure) == np.inf


def test_the_balance_of_a_running_fit_is_exact() -> None:
    """A sum in float64 loses five values that are too small beside 1, and so their price."""
    small = 2.0**-53
    beta = np.array([1.0, *[small] * 5, -1.0])
    qp = DualQP(np.ones(7), -np.ones(7), np.ones(7), 0.0, beta, np.zeros(7))
    assert beta.sum() == 0.0
    assert qp.balance == 5.0 * small
    share = (5.0 + 16.0) * small  # 2^-50 of sum |beta| = 2 is 16 of them
    terms = Terms(0.0, 4.0, 0.0, 5.0, 5.0, 2.0)
    assert qp.imbalance(terms, UnsureWeights(spread=0.0)) == pytest.approx(share * 4.0, rel=1e-12, abs=0)
    tube = NuQP(np.ones(7), -np.ones(7), np.ones(7), 3.0, beta, np.zeros(7), total=2.0, at_most=True)
    expected = share * 4.0 + 3.0 * 5.0 * small
    assert tube.imbalance(terms, UnsureWeights(spread=0.0)) == pytest.approx(expected, rel=1e-12, abs=0)


def kernel_data(X: np.ndarray, gamma: float, folder: Path) -> KernelData:
    rows = ArrayRows(X, np.arange(len(X)) % 2)
    refs = rows.refs(len(X))
    ctx = Context(
        data=rows, refs=refs, resident=True, mapper=SerialMapper(), budget=MemoryBudget(1 << 28), seed=0, shards=1,
        threads=1, read_depth=1, group_blocks=1, proof_refs=refs, workdir=folder, tol=1e-3,
    )  # fmt: skip
    return KernelData(Kernel("rbf", gamma), ctx)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_float32_values_decide_only_what_their_error_cannot_change(epsilon: float, tmp_path: Path) -> None:
    """A bias with which some row lies 1e-9 from its margin, on either side: the gap is that of float64 values."""
    n, rng = 300, np.random.default_rng(92)
    X = rng.standard_normal((n, 6))
    data = kernel_data(X, 0.2, tmp_path)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    lower, upper = (-np.ones(n), np.ones(n)) if epsilon else (np.minimum(y, 0.0), np.maximum(y, 0.0))
    target = 0.3 * rng.standard_normal(n) if epsilon else y
    beta = np.where(rng.random(n) < 0.2, rng.uniform(lower, upper), 0.0)
    qp = DualQP(target, lower, upper, epsilon, beta, np.empty(n))
    scores_of([Programme(qp, None, True)], data)
    exact = qp.f.copy()
    decided = 0
    for row in np.flatnonzero(beta == 0.0)[:12]:
        for side in (-1e-9, 1e-9):
            b = -exact[row] - (epsilon if target[row] > 0 else -epsilon) + side
            sides = (beta, lower, upper, target, epsilon, b)
            gap, loss, *_ = qp_sums(exact, *sides)
            scores_of([Programme(qp, b, False)], data)
            decided += int(np.count_nonzero(qp.f != exact))
            found = qp_sums(qp.f, *sides)
            assert found[0] == pytest.approx(gap, abs=1e-11)
            assert found[1] == pytest.approx(loss, abs=1e-11)
    assert decided > 0


@pytest.mark.parametrize("where", ["far from the origin", "at the origin"])
def test_the_bound_counts_the_entries_of_a_row(where: str, tmp_path: Path) -> None:
    """Float32 values of wide rows are within the bound of their error, which is not much more than rounding."""
    d, rng = 2000, np.random.default_rng(93)
    X = 1.0 + 0.1 * rng.random((60, d))
    if where == "at the origin":
        X[30:] = 0.0
    data = kernel_data(X, 20.0 / d, tmp_path)
    numbers, beta = np.arange(30), np.ones(30)
    row_buffer = RowBuffer(data)
    row_buffer.load(numbers, charge=True)
    side = OtherSide(data, row_buffer.X, row_buffer.at(numbers), numbers, beta, support_rows(data.ctx), 0)
    (rows,) = data.blocks()
    own = np.arange(30, 60)
    found = nearly(data, rows, own, side)
    truth = np.zeros((1, 30))
    for support, by in side.parts(data.exact):
        data.exact.add(rows.X, own, support, by[:, None], truth)
    error, bound = np.abs(found.scores - truth[0]), side.bound()
    allowed = bound.errors(found.sq, found.whole) * found.size
    assert np.all(error <= allowed)
    # Without the entries, or the support vectors' norms, it would be no bound.
    unit = 1.2 * data.kernel.gamma * 2.0**-24
    least = (unit * found.sq if where == "at the origin" else unit * (found.sq + bound.largest)) + bound.constant
    assert np.any(error > least * found.size)
