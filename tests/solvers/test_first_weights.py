"""The weights at which working sets begin with rows in memory: near those of the squared hinge loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.solvers.newton_ws.newton_ws import NewtonWS
from bigsvm.solvers.newton_ws.working_newton import NewtonRows, NewtonSteps, nearly
from bigsvm.solvers.tube.classes import on_all_rows
from bigsvm.solvers.tube.first_weights import put_first_weights
from bigsvm.solvers.weights import columns
from tests.solvers.stepping import Bench

CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "scales": {"scales": np.array([1e-4, 1.0, 1e4, 1.0, 30.0])},
    "free bias": {"bias": "free"},
    "large C": {"C": 1e4},
    "weights": {"weighted": True},
    "three classes": {"n_classes": 3},
}


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("case", CASES)
def test_first_weights_are_near_those_of_the_squared_hinge_loss(case: str, layout: str, tmp_path: Path) -> None:
    asked = dict(CASES[case])
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 5)) * asked.pop("scales", 1.0)
    of_rows = X @ (rng.standard_normal((5, asked.get("n_classes", 1))) / np.abs(X).max(axis=0)[:, None])
    n_classes = asked.pop("n_classes", 2)
    noise = 0.1 * rng.standard_normal(of_rows.shape)
    y = (of_rows + noise > 0.0).astype(int)[:, 0] if n_classes == 2 else np.argmax(of_rows + noise, axis=1)
    weight = (
        np.where(np.arange(200) % 7 == 0, 0.0, rng.uniform(0.5, 20.0, 200)) if asked.pop("weighted", False) else None
    )
    options = {"C": 1.0, **asked}
    rows = X if layout == "dense" else sparse.csr_matrix(X)
    bench = Bench(NewtonWS(), rows, y, tmp_path, None, {"loss": "hinge", **options}, sample_weight=weight)
    W = np.full(columns(bench.state.w).shape, np.nan)
    assert put_first_weights(W, bench.problem, bench.ctx)
    given = (rows, y) if weight is None else (rows, y, weight)
    best = bigsvm.fit(given, loss="squared_hinge", solver="newton", tol=1e-8, **options)
    cost = (np.ones(200) if weight is None else weight) * float(options["C"])
    total = 0.0
    for m, w in enumerate(W.T):
        side = np.where(y == bench.problem.positive[m], 1.0, -1.0)
        slack = np.maximum(1.0 - side * (X @ w[:-1] + w[-1]), 0.0)
        regularised = w[:-1] if options.get("bias") == "free" else w
        total += 0.5 * float(regularised @ regularised) + float(cost @ (slack * slack))
    assert best.figures["objective"] * (1 - 1e-6) <= total <= best.figures["objective"] * 1.05


def test_models_without_rows_begin_at_0(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).standard_normal((20, 3)), np.arange(20) % 2
    bench = Bench(NewtonWS(), X, y, tmp_path, None, {"loss": "hinge"}, sample_weight=np.zeros(20))
    W = np.full((4, 1), np.nan)
    assert put_first_weights(W, bench.problem, bench.ctx)
    assert not W.any()


@pytest.mark.parametrize("case", CASES)
def test_steps_that_keep_their_hessian_end_where_others_do(case: str, tmp_path: Path) -> None:
    asked = {key: value for key, value in CASES[case].items() if key in ("bias", "C")}
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 5)) * CASES[case].get("scales", 1.0)
    y = (X / np.abs(X).max(axis=0) @ rng.standard_normal(5) + 0.2 * rng.standard_normal(200) > 0.0).astype(int)
    weight = rng.uniform(0.0, 20.0, 200) if "weighted" in CASES[case] else None
    bench = Bench(NewtonWS(), X, y, tmp_path, None, {"loss": "hinge", **asked}, sample_weight=weight)
    part, _ = on_all_rows(bench.problem, 0, bench.ctx.data.read(bench.ctx.refs[0]), bench.ctx)
    ends, changed = [], 0
    for keeps in (False, True):
        rows = NewtonRows(part, keeps)
        steps = NewtonSteps(part, rows, np.zeros(6))
        for _ in range(15):
            steps.advance()
            changed += not rows.anew
        ends.append((steps.w, rows.losses()))
    assert changed > 0
    (one, other), (loss, same) = zip(*ends, strict=True)
    assert same == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("unequal", [False, True])
def test_classes_share_the_hessian_of_equal_costs(unequal: bool, tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 3
    bench = Bench(NewtonWS(), X, y, tmp_path, None, {"loss": "hinge"}, costs=[0.1, 10.0] if unequal else None)
    W = np.zeros((4, bench.problem.n_models))
    assert put_first_weights(W, bench.problem, bench.ctx)
    for m, w in enumerate(W.T):
        part, _ = on_all_rows(bench.problem, m, bench.ctx.data.read(bench.ctx.refs[0]), bench.ctx)
        assert np.array_equal(w, nearly(part))
