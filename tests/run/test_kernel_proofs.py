"""The parts of a kernel proof that nothing else would miss: its bounds, what an imbalance costs, costs of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.problem.kernel import Kernel
from bigsvm.problem.problem import make_problem
from bigsvm.problem.rounding import Unsure
from bigsvm.run.execute.local import SerialMapper
from bigsvm.run.proof import fresh_scores, kernel_prover
from bigsvm.run.proof.kernel_prover import KernelProver
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP, Terms
from bigsvm.solvers.kernel.smo.smo import Smo
from bigsvm.solvers.kernel.values import other_side
from bigsvm.solvers.kernel.values.data import KernelData
from bigsvm.solvers.kernel.values.other_side import Bound, Nearly, OtherSide, nearly
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, support_rows
from bigsvm.store.formats.array_rows import ArrayRows

N, D = 200, 6
_RNG = np.random.default_rng(3)
_X = _RNG.standard_normal((N, D))
_Y = np.where(_X[:, 0] * _X[:, 1] + 0.4 * _RNG.standard_normal(N) > 0, 1, -1)
_WEIGHT = _RNG.integers(0, 4, N).astype(np.float64)


def context(X: Any, folder: Path, y: np.ndarray = _Y) -> Context:
    data = ArrayRows(X, y)
    refs = data.refs(len(y))
    return Context(
        data=data, refs=refs, resident=True, seed=0, shards=1, read_depth=1, group_blocks=1, proof_refs=refs,
        workdir=folder, mapper=SerialMapper(), budget=MemoryBudget(1 << 28), tol=1e-3, threads=1,
    )  # fmt: skip


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("far", [0.0, 3.0, 20.0])
def test_float32_values_lie_within_the_bound(tmp_path: Path, far: float, layout: str) -> None:
    X = (_X + far).astype(np.float32)
    ctx = context(sparse.csr_array(X) if layout == "csr" else X, tmp_path)
    data = KernelData(Kernel("rbf", 0.3), ctx)
    beta = _RNG.standard_normal(40)
    row_buffer = RowBuffer(data)
    row_buffer.load(np.arange(40), charge=False)
    side = OtherSide(data, row_buffer.X, row_buffer.at(np.arange(40)), np.arange(40), beta, support_rows(ctx), 0)
    bound, everybody = side.bound(), np.arange(N)
    (rows,) = data.blocks()
    found = nearly(data, rows, everybody, side)
    wide = X.astype(np.longdouble)
    K = np.exp(-np.longdouble(0.3) * ((wide[:, None] - wide[None, :40]) ** 2).sum(axis=-1))
    error = np.abs(found.scores - K @ beta)
    allowed = bound.errors(found.sq, found.whole) * found.size
    assert np.all(error <= allowed)
    assert np.all(allowed > 0)
    assert found.size == pytest.approx(np.asarray(K @ np.abs(beta), float), rel=1e-3)
    data.close()


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize(
    ("kind", "spoiled"),
    [(np.int8, "nothing")]
    + [
        (kind, what)
        for kind in (np.float32, np.float64)
        for what in ("nothing", "a row", "a support vector", "too large")
    ],
)
def test_the_bound_of_whole_numbers_is_tighter_and_holds(kind: type, spoiled: str, layout: str, tmp_path: Path) -> None:
    """Of rows and support vectors that are whole, all of them, and not too large: and of no others."""
    n, d = 300, 120
    rng = np.random.default_rng(8)
    X = (rng.integers(-3, 4, (n, d)) * (rng.random((n, d)) < 0.3)).astype(kind)
    if spoiled == "a row":
        X[250, 7] = 0.5
    elif spoiled == "a support vector":
        X[20, 7] = 0.5
    elif spoiled == "too large":
        X[:40, 7] = 2.0**12 + 1
    ctx = context(sparse.csr_array(X) if layout == "csr" else X, tmp_path, y=np.where(np.arange(n) % 2, 1, -1))
    gamma, beta = 0.01, rng.standard_normal(40)
    data = KernelData(Kernel("rbf", gamma), ctx)
    row_buffer = RowBuffer(data)
    row_buffer.load(np.arange(40), charge=False)
    side = OtherSide(data, row_buffer.X, row_buffer.at(np.arange(40)), np.arange(40), beta, support_rows(ctx), 0)
    bound, others = side.bound(), np.arange(60, n)
    (rows,) = data.blocks()
    found = nearly(data, rows, others, side)
    wide = X.astype(np.longdouble)
    K = np.exp(-np.longdouble(gamma) * ((wide[others][:, None] - wide[None, :40]) ** 2).sum(axis=-1))
    allowed = bound.errors(found.sq, found.whole) * found.size
    assert np.all(np.abs(found.scores - K @ beta) <= allowed)
    general = Bound(bound.per_norm, bound.largest).errors(found.sq, found.whole) * found.size
    tighter = allowed < 0.3 * general
    assert tighter.all() if spoiled == "nothing" else not tighter.any()
    assert found.whole == (spoiled != "a row")
    data.close()


@pytest.mark.parametrize("kernel", [Kernel("rbf", 0.3), Kernel("poly", 0.2, 3, 1.0), Kernel("precomputed")])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("at_once", [N, 70])
@pytest.mark.parametrize("some", [False, True], ids=["all rows", "two classes of three"])
def test_scores_are_those_of_the_matrix(
    kernel: Kernel, layout: str, at_once: int, some: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all rows and of some, however many support vectors are in memory; float32 values of rows that they decide."""
    monkeypatch.setattr(RowBuffer, "capacity_for", staticmethod(lambda ctx, places: at_once))
    monkeypatch.setattr("bigsvm.solvers.kernel.values.data._CHUNK", 90)  # blocks begin and end among support vectors
    X = _X @ _X.T if kernel.name == "precomputed" else _X
    ctx = context(sparse.csr_array(X) if layout == "csr" else X, tmp_path)
    data, rng = KernelData(kernel, ctx), np.random.default_rng(12)
    taken = np.flatnonzero(rng.random(N) < 0.7) if some else np.arange(N)
    y = _Y[taken].astype(np.float64)
    beta = np.where(rng.random(len(taken)) < 0.8, rng.uniform(0.0, 1.0, len(taken)) * y, 0.0)
    lower, upper = np.minimum(y, 0.0), np.maximum(y, 0.0)
    qp = DualQP(y, lower, upper, 0.0, beta, np.full(len(taken), np.nan), taken if some else None)
    K = X if kernel.name == "precomputed" else kernel.matrix(X, X)
    truth = K[np.ix_(taken, taken)] @ beta - y
    decided = 0
    for b, exact in ((None, True), (0.3, False), (0.3, True)):
        fresh_scores.scores_of([fresh_scores.Programme(qp, b, exact)], data)
        off = np.abs(qp.f - truth) > 1e-12 * np.abs(K).max() * np.abs(beta).sum()
        decided += int(np.count_nonzero(off))
        sure = (beta == 0.0) & (-y * (truth + b) < 0.0) if b is not None else np.zeros(len(y), bool)
        assert not np.any(off & ~sure)
        assert qp.f == pytest.approx(truth, abs=1e-4)
    assert (decided > 0) == (kernel.name == "rbf" and at_once == N)
    data.close()


def undecided(r: float, per_norm: float, target: float = 1.0, epsilon: float = 0.0) -> bool:
    """Whether a row whose residual is r in float32 values, of size 2 and squared norm 3, is computed again."""
    upper, lower = (5.0, 0.0) if target > 0 else (0.0, -5.0)
    if epsilon:
        upper, lower = 5.0, -5.0
    qp = DualQP(np.array([target]), np.array([lower]), np.array([upper]), epsilon, np.zeros(1), np.zeros(1))
    b, f = 0.25, np.array([-target])
    found = Nearly(np.array([-r - b + target]), np.array([2.0]), np.array([3.0]))
    bound = Bound(per_norm, 4.0, 0.0)
    return len(other_side.undecided(qp, slice(0, 1), found, np.arange(1), b, bound, f)) == 1


def test_a_row_within_the_bound_of_its_margin_is_undecided() -> None:
    slack = 1e-4 * (3.0 + 4.0) * 2.0
    assert undecided(-0.5 * slack, 1e-4)  # beyond its margin, if float32 were right
    assert not undecided(-2.0 * slack, 1e-4)
    assert undecided(0.5 * slack, 1e-4, target=-1.0)
    assert not undecided(2.0 * slack, 1e-4, target=-1.0)
    assert undecided(0.2 - 0.5 * slack, 1e-4, epsilon=0.2)
    assert undecided(-0.2 + 0.5 * slack, 1e-4, epsilon=0.2)
    assert not undecided(0.2 - 2.0 * slack, 1e-4, epsilon=0.2)
    assert undecided(0.5, 1e-4)  # inside: its bracket counts
    assert undecided(-1e9, 1e-2)  # an exponent so far off bounds no value


def test_an_imbalance_costs_its_price_or_all_of_the_proof() -> None:
    beta = np.array([1.0, -1.0 + 2.0**-42, 0.5, -0.5])
    qp = DualQP(np.ones(4), -np.ones(4), np.ones(4), 0.0, beta, np.zeros(4))
    size = float(np.abs(beta).sum())
    terms = Terms(gap=0.0, primal=3.0, dual=0.0, quadratic=2.0, made_of=2.0, size=size)
    far = Unsure(reach=1e11)
    # Scaling 1 and 0.5 by 1 - 2^-42 / 1.5 costs that share of P, and half its square times what v is made of.
    share = 2.0**-42 / 1.5
    assert share * 3.0 <= qp.imbalance(terms, Unsure(reach=3.0)) < 1.1 * share * 3.0
    assert qp.imbalance(terms, far) == pytest.approx(0.5 * (share * 1e11) ** 2, rel=0.05)
    qp.beta[1] = -1.0
    assert qp.imbalance(terms, Unsure(reach=3.0)) <= 2.0**-48 * 3.0
    qp.beta[1] = -0.999
    assert qp.imbalance(terms, far) == np.inf
    qp.beta[:] = 0.0
    assert qp.imbalance(terms._replace(quadratic=0.0, size=0.0), far) == 0.0


def test_a_dual_point_that_is_not_balanced_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody makes it so."""
    ctx, solver = context(_X, tmp_path), Smo()
    problem = make_problem(FitConfig.of(kernel="rbf", gamma=0.3, solver="smo"), ctx.data)
    state = solver.init(problem, ctx)
    while not solver.step(problem, state, ctx).ask_certificate:
        pass
    prover = KernelProver(solver, state, ctx)
    assert prover.prove().relative_gap <= 1e-3
    inside = np.flatnonzero(np.abs(state.alpha.values[:, 0]) > 1e-3)[0]
    monkeypatch.setattr(kernel_prover, "make_feasible", lambda *_: False)
    state.alpha.values[inside, 0] *= 1.0 - 1e-6
    assert prover.prove().relative_gap == 1.0
    assert prover.prove().dual[0] == 0.0
    solver.finish(state)


@pytest.mark.parametrize("weights", ["class", "sample", "both"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_costs_of_classes_and_rows_are_in_the_proof(weights: str, dtype: Any) -> None:
    """P, D and the gap written out with the whole matrix; C of a row is C, its class's weight and its own."""
    X = _X.astype(dtype)
    sample = _WEIGHT if weights != "class" else np.ones(N)
    of_class = {"1": 3.0, "-1": 0.5} if weights != "sample" else {"1": 1.0, "-1": 1.0}
    store = ArrayRows(X, _Y, sample)
    result = bigsvm.fit(store, kernel="rbf", gamma=0.3, C=2.0, class_weight=of_class, solver="smo")
    C = 2.0 * sample * np.where(_Y == 1, of_class["1"], of_class["-1"])
    beta = _Y * result.alpha[0].values[:, 0]
    K, b = Kernel("rbf", 0.3).matrix(X, X), float(result.model.intercept[0])
    assert np.all((_Y * beta >= 0) & (_Y * beta <= C * (1 + 1e-12)))
    primal = 0.5 * beta @ K @ beta + C @ np.maximum(1 - _Y * (K @ beta + b), 0.0)
    dual = np.abs(beta).sum() - 0.5 * beta @ K @ beta
    assert result.status == "converged"
    assert result.figures["objective"] == pytest.approx(primal, rel=1e-12)
    assert result.figures["dual_objective"] == pytest.approx(dual, rel=1e-12)
    assert result.figures["duality_gap"] == pytest.approx(primal - dual, rel=1e-7)
