"""Before a proof: f of the rows that decide the violation, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.smo import active_set, exact_scores
from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.testing.problems import random_problem

C = 1e4  # of which float32 values know f to some 1e-3


def fitted(n: int) -> Any:
    X, y = random_problem(n, 6, seed=1, noise=0.02)
    found = bigsvm.fit((X, y), kernel="rbf", gamma=0.2, C=C, solver="smo", stop="paper", tol=1e-3)
    assert found.status == "paper_rule"
    return found


@pytest.mark.usefixtures("no_small_fits")
@pytest.mark.parametrize("n", [2500, 4500])
def test_a_first_proof_believes_what_float32_sums_have_found(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a programme that is active as a whole, and of one that passes over the rows outside of its active set."""
    failed = []
    asked = KernelSolver.proof_failed
    monkeypatch.setattr(KernelSolver, "proof_failed", lambda *args: (failed.append(n), asked(*args))[1])
    fitted(n)
    assert not failed
    monkeypatch.setattr(active_set, "correct_scores", lambda member: None)
    fitted(n)
    assert failed, "float32 sums are good enough: this test sees nothing"


def test_scores_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = random_problem(2500, 6, seed=1, noise=0.02)
    K, seen = Kernel("rbf", 0.2).matrix(X, X), []

    def corrected(member: Member) -> None:
        qp, f, was = member.qp, member.qp.f.copy(), member.work.corrected
        exact_scores.correct_scores(member)
        changed = np.flatnonzero(qp.f != f)
        if qp.n == 2500 and len(changed):
            assert not was, "more than once"
            true = K @ qp.beta - qp.target
            assert np.abs(qp.f - true)[changed].max() < 1e-9 * C
            assert np.abs(f - true)[changed].max() > 1e-4, "nothing had drifted"
            # All that are free, among others: of these the violation is made.
            free = (qp.beta > qp.lower) & (qp.beta < qp.upper) & (qp.beta != 0.0)
            assert set(np.flatnonzero(free)) <= set(np.flatnonzero(np.abs(qp.f - true) < 1e-9 * C))
            seen.append(len(changed))

    monkeypatch.setattr(active_set, "correct_scores", corrected)
    fitted(2500)
    assert seen
    seen.clear()
    monkeypatch.setattr("bigsvm.solvers.kernel.base.float64_values", lambda tol: True)
    fitted(2500)
    assert not seen, "float64 values do not drift"
