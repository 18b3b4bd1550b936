"""Rows that passes leave out: the fit goes as if they had not, and takes them in again where they might matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.smo import active_set, far_rows
from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.smo.round_work import FAR
from bigsvm.testing.problems import random_problem

N, GAMMA = 5000, 0.2  # more rows than are active as a whole


def problem(kind: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    X, y = random_problem(N, 6, seed=1, noise=0.02)
    if kind == "targets":
        return X, X[:, 0] + 0.1 * y, {"loss": "epsilon_insensitive", "C": 10.0}
    return X, y, {"C": 100.0}


def fitted(kind: str, **options: Any) -> Any:
    X, y, own = problem(kind)
    return bigsvm.fit((X, y), kernel="rbf", gamma=GAMMA, solver="smo", tol=1e-4, **own, **options)


def watched(monkeypatch: pytest.MonkeyPatch, seen: dict[str, list[Any]]) -> None:
    """Note what every pass leaves out, and how far the f of far rows is from the truth."""
    X = problem("labels")[0]
    K = Kernel("rbf", GAMMA).matrix(X, X)

    def see(member: Member) -> None:
        if member.qp.n == N and len(seen["f"]) > 0 and not seen["back"]:
            moved = np.abs(member.qp.f - seen["f"].pop())[member.waits(slice(None))]
            assert len(moved) > 100
            assert member.work.move == moved.max() > 0.0
        far_rows.see_pass(member)
        if member.qp.n == N:
            seen["f"].append(member.qp.f.copy())
            far = np.flatnonzero(member.flags & FAR)
            f = K @ member.qp.beta - member.qp.target
            seen["far"].append(len(far))
            seen["off"].append(float(np.abs(f - member.qp.f)[far].max(initial=0.0)))
            true = np.maximum(
                member.work.middle - np.where(member.qp.beta < member.qp.upper, f + member.qp.epsilon, np.inf),
                np.where(member.qp.beta > member.qp.lower, f - member.qp.epsilon, -np.inf) - member.work.middle,
            )
            seen["wrong"].append(int(np.count_nonzero(true[far] > 0.0)) if member.work.stage != "far" else 0)
            seen["stage"].append(member.work.stage)

    def back(member: Member) -> bool:
        done = far_rows.bring_back(member)
        if member.qp.n == N and done:
            seen["back"].append(float(np.abs(K @ member.qp.beta - member.qp.target - member.qp.f).max()))
            assert not member.has_far
        return done

    monkeypatch.setattr(active_set, "see_pass", see)
    monkeypatch.setattr(active_set, "bring_back", back)


@pytest.mark.parametrize("kind", ["labels", "targets"])
def test_far_rows_do_not_violate(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[Any]] = {name: [] for name in ("far", "off", "wrong", "stage", "back", "f")}
    watched(monkeypatch, seen)
    found = fitted(kind)
    assert found.status == "converged"
    assert max(seen["far"]) > N // 5, "no pass left rows out"
    assert max(seen["off"]) > 1e-3, "nothing was left out of what f is"
    assert not any(seen["wrong"])
    # And the model is that of a fit whose passes leave nothing out.
    monkeypatch.setattr(active_set, "see_pass", lambda member: None)
    whole = fitted(kind)
    assert whole.certificate.primal[0] == pytest.approx(found.certificate.primal[0], rel=1e-4)


@pytest.mark.parametrize("kind", ["labels", "targets"])
def test_far_rows_come_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows in reach move farther than far rows had room for: f of all rows is that of beta again."""
    seen: dict[str, list[Any]] = {name: [] for name in ("far", "off", "wrong", "stage", "back", "f")}
    watched(monkeypatch, seen)
    monkeypatch.setattr(far_rows, "_OF_VIOLATION", 0.05)  # as if they moved sixty times as far
    monkeypatch.setattr(far_rows, "_OF_MOVE", 0.05)
    found = fitted(kind)
    assert found.status == "converged"
    assert "far" in seen["stage"]
    assert seen["back"]
    assert max(seen["back"]) < 1e-3


def test_a_fit_that_is_left_everywhere_has_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a pass, and where far rows come back: between two blocks of them."""
    monkeypatch.setattr(far_rows, "_OF_VIOLATION", 0.05)
    monkeypatch.setattr(far_rows, "_OF_MOVE", 0.05)
    monkeypatch.setattr("bigsvm.solvers.kernel.values.data._CHUNK", 500)
    whole, left = fitted("labels"), []

    def back(member: Member) -> bool:
        done = far_rows.bring_back(member)
        left.append(done)
        return done

    monkeypatch.setattr(active_set, "bring_back", back)
    monkeypatch.setattr(Context, "pause", lambda self: True)
    paused = fitted("labels")
    assert left.count(False) > 3
    assert paused.model.dual_coef.tobytes() == whole.model.dual_coef.tobytes()
    for name in ("epochs", "kernel_rows", "objective"):
        assert paused.figures[name] == whole.figures[name]
