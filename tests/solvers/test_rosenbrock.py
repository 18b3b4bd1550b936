"""`rosenbrock`: its directions, measured iteration counts, plans that agree, corners, pauses, what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.errors import Unsupported, UsageError
from bigsvm.run.execute.local import ThreadMapper
from bigsvm.solvers.literature import rosenbrock
from bigsvm.solvers.literature.palmer import new_directions, orthonormalised
from bigsvm.solvers.literature.rosenbrock import Rosenbrock
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from bigsvm.testing.problems import corner_problems, random_problem
from tests.products import pairs_of
from tests.solvers.stepping import Bench, ElsewhereMapper, paper_data, takes_iterations
from tests.solvers.test_column_solvers import ONE_ROW_A_CLASS, OPTIMA

PLANS = ("auto", "groups", "model")


def rotation(n: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def gram_schmidt(D: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """New directions as the paper has them, in extended precision."""
    d, lam = D.astype(np.longdouble), steps.astype(np.longdouble)
    new: list[np.ndarray] = []
    for j in range(len(d)):
        a = d[j] if lam[j] == 0 else (lam[j:, None] * d[j:]).sum(axis=0)
        for _ in range(2):
            for b in new:
                a = a - (a @ b) * b
        new.append(a / np.sqrt(a @ a))
    return np.array(new, np.float64)


STEPS = {
    "plain": lambda n, rng: rng.standard_normal(n),
    "graded": lambda n, rng: 10.0 ** -np.arange(n) * rng.choice([-1.0, 1.0], n),
    "rising": lambda n, rng: 10.0 ** (np.arange(n) - n) * rng.choice([-1.0, 1.0], n),
    "some zero": lambda n, rng: rng.standard_normal(n) * (rng.random(n) < 0.6),
    "first zero": lambda n, rng: np.append(0.0, rng.standard_normal(n - 1)),
    "one": lambda n, rng: np.eye(n)[n // 2] * -3.0,
    "none": lambda n, rng: np.zeros(n),
    "tiny": lambda n, rng: rng.standard_normal(n) * 1e-200,
}


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("n", [1, 2, 5, 12, 60])
@pytest.mark.parametrize("turned", [False, True])
def test_palmers_directions(kind: str, n: int, turned: bool) -> None:
    D = rotation(n, n) if turned else np.eye(n)
    steps = STEPS[kind](n, np.random.default_rng(n))
    new = new_directions(D, steps)
    assert np.abs(new @ new.T - np.eye(n)).max() <= 2e-14
    longest = np.abs(steps).max()
    kept = np.abs(steps) <= 1e-14 * longest
    np.testing.assert_array_equal(new[kept], D[kept])
    # Gram-Schmidt magnifies rounding by the ratio of the steps where they rise.
    if longest > 0 and n <= (12 if kind != "rising" else 0 if turned else 5):
        expected = gram_schmidt(D, np.where(kept, 0.0, steps / longest))
        signs = np.sign((new * expected).sum(axis=1))
        np.testing.assert_allclose(new, signs[:, None] * expected, atol=1e-12)
    if longest > 0 and np.all(steps[: int(np.argmax(~kept))] == 0.0):
        whole = steps / longest @ D
        np.testing.assert_allclose(new[np.argmax(~kept)], whole / np.linalg.norm(whole), atol=1e-13)


def test_directions_do_not_drift() -> None:
    rng, D = np.random.default_rng(0), np.eye(30)
    for number in range(1, 201):
        D = new_directions(D, rng.standard_normal(30) * 10.0 ** -rng.uniform(0, 12, 30))
        if number % 50 == 0:
            D = orthonormalised(D)
            assert np.abs(D @ D.T - np.eye(30)).max() <= 1e-14
    disturbed = D + 1e-9 * rng.standard_normal(D.shape)
    mended = orthonormalised(disturbed)
    assert np.abs(mended @ mended.T - np.eye(30)).max() <= 1e-14
    np.testing.assert_allclose(mended, disturbed, atol=1e-7)


COUNTS = [
    ("heart", 0.1, [7, 14, 27]), ("diabetes", 0.1, [8, 12, 17]), ("diabetes", 10.0, [9, 15, 23]),
    ("australian", 0.1, [11, 20, 43]),
]  # fmt: skip
"""Snapshots; of heart and diabetes a program that shares nothing with this one counted the same, of australian 41."""


@pytest.mark.parametrize(("name", "C", "counts"), COUNTS)
@pytest.mark.parametrize("line_search", ["exact", "newton"])
def test_snapshot_of_iterations(
    tmp_path: Path, real_data: ModuleType, name: str, C: float, counts: list[int], line_search: str
) -> None:
    X, y = paper_data(real_data, name)
    solver = Rosenbrock(start="ones", line_search=line_search, eps2=1e-8)
    objectives = Bench(solver, X, y, tmp_path, options={"C": C}).objectives(60)[1:]  # the first step looks at the start
    takes_iterations(objectives, X, y, C, counts)


def steep_problem(seed: int) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """X, y, C and a start: scales and correlations of all kinds, at times a column of zeros or rows twice."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 60)), int(rng.integers(1, 8))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    X = X @ (np.eye(d) + rng.uniform(0, 0.9) * np.ones((d, d)))
    if rng.random() < 0.3:
        X[:, 0] = 0.0
    if rng.random() < 0.3:
        X[n // 2 :] = X[: n - n // 2]
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    y[0], y[-1] = 1.0, -1.0
    return X, y, 10.0 ** rng.uniform(-3, 1), rng.standard_normal(d + 1) * 10.0 ** rng.uniform(-2, 2)


def value_and_gradient(X: np.ndarray, y: np.ndarray, w: np.ndarray, C: float) -> tuple[float, np.ndarray]:
    s = np.maximum(0.0, 1.0 - y * (X @ w[:-1] + w[-1]))
    pull = 2.0 * C * s * y
    return float(0.5 * w @ w + C * s @ s), w - np.append(X.T @ pull, pull.sum())


@pytest.mark.parametrize(("line_search", "eps2"), [("exact", 0.1), ("newton", 1e-9)])
def test_theorem_1_f_falls_and_w_goes_to_the_minimiser(tmp_path: Path, line_search: str, eps2: float) -> None:
    """From any start, at every outer iteration; 1/2 ||gradient||^2 is at least f - f*, as f is strongly convex."""
    for seed in range(30):
        X, y, C, start = steep_problem(seed)
        bench = Bench(Rosenbrock(line_search=line_search, eps2=eps2), X, y, tmp_path, options={"C": C})
        bench.state.w[...] = start
        bench.step()  # looks at the start
        np.testing.assert_array_equal(bench.state.w, start)
        values = [value_and_gradient(X, y, start, C)[0]]
        for _ in range(150):
            bench.step()
            f, gradient = value_and_gradient(X, y, bench.state.w, C)
            values.append(f)
            if 0.5 * gradient @ gradient <= 1e-10 * f:
                break
        assert 0.5 * gradient @ gradient <= 1e-10 * f, seed
        assert np.all(np.diff(values) < 0.0), seed


def test_theorem_1_is_not_about_a_search_that_ends_early(tmp_path: Path) -> None:
    """The paper's search begins at a step of 1 and ends where |D'| < eps2, which may be above where it began."""
    X, y, C, start = steep_problem(0)
    bench = Bench(Rosenbrock(line_search="newton", eps2=5.0), X, y, tmp_path, options={"C": C})
    bench.state.w[...] = start
    bench.step()
    values = [value_and_gradient(X, y, start, C)[0]]
    for _ in range(60):
        bench.step()
        values.append(value_and_gradient(X, y, bench.state.w, C)[0])
    assert max(np.diff(values)) > 0.0


@pytest.mark.parametrize("plan", ["auto", "model"])
@pytest.mark.parametrize(("name", "C"), OPTIMA)
def test_reference_optima(real_data: ModuleType, plan: str, name: str, C: float) -> None:
    X, y = paper_data(real_data, name)
    result = bigsvm.fit((X, y), solver="rosenbrock", loss="squared_hinge", C=C, tol=5e-7, solver_options={"plan": plan})
    assert result.status == "converged"
    assert result.figures["objective"] == pytest.approx(OPTIMA[name, C], rel=1e-6, abs=6e-7)


def agrees_with_newton(rows: Any, plan: str, **options: Any) -> None:
    given: dict[str, Any] = {"loss": "squared_hinge", "memory": "64MiB", "threads": 1, **options}
    result = bigsvm.fit(rows, solver="rosenbrock", tol=1e-6, max_passes=20_000, solver_options={"plan": plan}, **given)
    assert result.status == "converged", result.figures["relative_gap"]
    assert 0 <= result.certificate.relative_gap <= 1e-6
    judge = bigsvm.fit(rows, solver="newton", tol=1e-10, **given)
    assert result.figures["objective"] == pytest.approx(judge.figures["objective"], rel=2e-6)
    assert result.figures["objective"] >= judge.figures["objective"] * (1 - 1e-9)


@pairs_of(
    corner=corner_problems(), plan=PLANS, bias=["augmented", "none", "free"], layout=["dense", "csr"],
    C=[1e-4, 1.0, 1e3],
)  # fmt: skip
def test_corners(corner: str, plan: str, bias: str, layout: str, C: float) -> None:
    X, y = corner_problems()[corner]
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    agrees_with_newton((rows, y), plan, bias=bias, C=1e6 if plan == "model" and C > 1 else C)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("bias", ["augmented", "none", "free"])
def test_weights_and_several_classes(plan: str, bias: str) -> None:
    X, y = random_problem(60, 5, seed=4, noise=0.2, n_classes=3)
    weight = np.random.default_rng(0).choice([0.0, 0.5, 2.0], 60)
    for rows in ((X, y), (sparse.csr_array(X), y)):
        agrees_with_newton((*rows, weight), plan, bias=bias, C=0.5, class_weight="balanced")
    agrees_with_newton(ONE_ROW_A_CLASS, plan, bias=bias, C=2.0, bias_scale=3.0)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bias", ["augmented", "free"])
def test_every_way_to_hold_the_products_gives_the_same_bits(tmp_path: Path, n_classes: int, bias: str) -> None:
    X, y = random_problem(70, 6, seed=5, noise=0.2, n_classes=n_classes)
    options = {"bias": bias}
    first = Bench(Rosenbrock(), X, y, tmp_path, 10, options)
    first.objectives(8)
    ways: list[tuple[Rosenbrock, dict[str, Any]]] = [
        (Rosenbrock(), {"spilled": ("rotated rows", "slacks", "alpha")}),
        (Rosenbrock(), {"mapper": ElsewhereMapper()}),
        (Rosenbrock(plan="groups"), {"spilled": ("rotated rows",)}),
        (Rosenbrock(plan="groups"), {"budget": MemoryBudget(9000)}),
        (Rosenbrock(plan="groups"), {}),
    ]
    held = []
    for solver, lent in ways:
        other = Bench(solver, X, y, tmp_path, 10, options, **lent)
        other.objectives(8)
        held.append(other.state.extra.n_held)
        np.testing.assert_array_equal(other.state.w, first.state.w)
        np.testing.assert_array_equal(other.state.rows.alpha.values, first.state.rows.alpha.values)
        solver.finish(other.state)
    n = 7 * (1 if n_classes == 2 else 3)
    assert held[:3] == [7, 7, 1]
    assert 1 < held[3] < n
    assert held[4] == n
    with ThreadMapper(3) as mapper:
        other = Bench(Rosenbrock(), X, y, tmp_path, 10, options, mapper=mapper)
        other.objectives(8)
    np.testing.assert_array_equal(other.state.w, first.state.w)


@pytest.mark.parametrize("plan", ["auto", "model"])
def test_rounding_is_taken_out_of_the_directions(plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every so many iterations, which on the model are its sweeps."""
    X, y = random_problem(70, 6, seed=5, noise=0.2)
    counts = []
    for renew in (2, 10**6):
        calls = []

        def noted(D: np.ndarray, calls: list[int] = calls) -> np.ndarray:
            calls.append(len(D))
            return orthonormalised(D)

        monkeypatch.setattr(rosenbrock, "_RENEW", renew)
        monkeypatch.setattr(rosenbrock, "orthonormalised", noted)
        Bench(Rosenbrock(plan=plan), X, y, tmp_path, options={"C": 10.0}).objectives(9)
        counts.append(len(calls))
    assert counts[0] - counts[1] >= 4


def test_readings_are_counted(tmp_path: Path) -> None:
    X, y = random_problem(40, 5, seed=6)
    passes = {}
    for plan, spilled in (("scratch", ()), ("groups", ("rotated rows",)), ("model", ())):
        bench = Bench(Rosenbrock(plan=plan), X, y, tmp_path, 10, spilled=spilled)
        bench.step()
        before = bench.ctx.bytes_read
        bench.step()
        passes[plan] = (bench.ctx.bytes_read - before) / before
    assert passes == {"scratch": 1, "groups": 6, "model": 2}  # five features and the bias


@pytest.mark.parametrize("plan", ["auto", "model"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_blocks_of_rows_do_not_change_it(tmp_path: Path, plan: str, n_classes: int) -> None:
    X, y = random_problem(43, 6, seed=7, n_classes=n_classes)
    whole = Bench(Rosenbrock(plan=plan), X, y, tmp_path)
    whole.objectives(7)
    for rows in (1, 7, 43):
        other = Bench(Rosenbrock(plan=plan), X, y, tmp_path, rows)
        other.objectives(7)
        np.testing.assert_allclose(other.state.w, whole.state.w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("plan", PLANS)
def test_a_run_that_was_left_anywhere_goes_on_to_the_same_bytes(tmp_path: Path, plan: str) -> None:
    X, y = random_problem(50, 4, seed=8, n_classes=3)
    solver = Rosenbrock(plan=plan)
    lent: dict[str, Any] = {"spilled": ("rotated rows",)} if plan == "groups" else {}
    straight = Bench(solver, X, y, tmp_path, 10, **lent)
    straight.objectives(4)
    left = Bench(solver, X, y, tmp_path, 10, **lent)
    left.objectives(1)
    infos = 1
    for number in range(200):
        asked = iter([False] * (number % 7) + [True] * 10_000)
        left.ctx.control.stopping = lambda asked=asked: next(asked)
        infos += not solver.step(left.problem, left.state, left.ctx).paused
        folder = tmp_path / f"state{number}"
        folder.mkdir()
        write_tree(folder, dump(left.state))
        again = Bench(solver, X, y, tmp_path, 10, **lent)
        load(again.state, read_tree(folder))
        again.ctx.uncharge(left.ctx.bytes_read)
        solver.finish(left.state)
        left = again
        if infos == 4:
            break
    left.ctx.control.stopping = lambda: False
    while infos < 4:
        left.step()
        infos += 1
    np.testing.assert_array_equal(left.state.w, straight.state.w)
    np.testing.assert_array_equal(left.state.extra.D, straight.state.extra.D)
    np.testing.assert_array_equal(left.state.rows.alpha.values, straight.state.rows.alpha.values)
    assert left.state.estimate == straight.state.estimate
    assert left.ctx.bytes_read == straight.ctx.bytes_read


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_rows_that_stream(streaming: None, plan: str, layout: str) -> None:
    X, y = random_problem(300, 8, 0.5, seed=9, noise=0.2)
    agrees_with_newton((sparse.csr_array(X) if layout == "csr" else X, y), plan)


def test_the_papers_rule_stops_at_a_short_move() -> None:
    X, y = random_problem(80, 5, seed=10)
    for plan in ("auto", "model"):
        result = bigsvm.fit(
            (X, y), solver="rosenbrock", loss="squared_hinge", stop="paper", solver_options={"plan": plan}
        )
        assert result.status == "paper_rule"


def test_too_many_features_are_refused_with_those_that_would_do() -> None:
    X, y = random_problem(20, 12, seed=11)
    with pytest.raises(Unsupported, match='"max_features": 12'):
        bigsvm.fit((X, y), solver="rosenbrock", loss="squared_hinge", solver_options={"max_features": 11})


@pytest.mark.parametrize("bad", [{"plan": "best"}, {"sweeps": 0}, {"start": "twos"}, {"line_search": "golden"}])
def test_options_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    X, y = random_problem(20, 3, seed=12)
    with pytest.raises(UsageError):
        bigsvm.fit((X, y), solver="rosenbrock", loss="squared_hinge", solver_options=bad)
