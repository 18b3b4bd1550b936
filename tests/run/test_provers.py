"""One protocol for the proofs of every solver: which prover, what a checkpoint keeps, a proof that is left."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.certificate import Certificate, above_zero
from bigsvm.problem.problem import make_problem
from bigsvm.run.execute.local import SerialMapper
from bigsvm.run.proof.prover import ProofLeft, Prover
from bigsvm.run.proof.provers import PROVERS, prover_of
from bigsvm.solvers.base import Rule
from bigsvm.solvers.context import Context
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.state.state_files import read_tree, write_tree
from bigsvm.testing.problems import random_problem

KINDS = {"linear": "dcd", "kernel": "smo"}
"""A solver for each kind of proof."""
STATED = {
    "start/earlier.py LinearModel": "weights to start from are those of a linear model",
    "start/take_over.py LinearModel": "as above",
    "start/take_over.py LinearProver": "the pass that proves where a fit starts is that of linear points",
    "tune/held_out.py LinearModel": "all linear models of a fold are one matrix of weights",
    "path.py LinearModel": "for the type checker: a path of C is of linear solvers, others were refused by name",
}
"""Where `bigsvm/run` asks for the class of a solver, a prover or a model, and why."""


def fit_of(kind: str, folder: Path, resident: bool = True) -> tuple[Any, Any, Any, Context, Prover]:
    """(solver, problem, state, context, prover) of a small fit, before its first step."""
    X, y = random_problem(120, 5, seed=7, noise=0.2)
    data = ArrayRows(X, y)
    refs = data.refs(120 if resident else 30)
    ctx = Context(
        data=data, refs=refs, resident=resident, mapper=SerialMapper(), budget=MemoryBudget(1 << 28), seed=0,
        shards=1, threads=1, read_depth=1, group_blocks=1, proof_refs=refs, workdir=folder, tol=1e-3,
    )  # fmt: skip
    solver = SOLVERS[KINDS[kind]]()
    options = {"kernel": "rbf", "gamma": 0.3} if kind == "kernel" else {"loss": "hinge"}
    problem = make_problem(FitConfig.of(solver=solver.name, **options), data)
    state = solver.init(problem, ctx)
    return solver, problem, state, ctx, prover_of(solver, state, ctx)


def stepped(solver: Any, problem: Any, state: Any, ctx: Context) -> None:
    """Move until the solver asks for a proof; of one that never does, some steps."""
    for _ in range(6):
        if solver.step(problem, state, ctx).ask_certificate:
            break


@pytest.mark.parametrize("name", list(SOLVERS))
def test_every_solver_names_its_prover(name: str) -> None:
    solver = SOLVERS[name]
    prover = PROVERS[solver.proof]
    for verb in ("schedule", "collect"):
        assert not solver.can_defer or getattr(prover, verb) is not getattr(Prover, verb)
    assert solver.self_paced == (solver.proof == "kernel")


@pytest.mark.parametrize("kind", list(PROVERS))
def test_what_is_kept_for_a_checkpoint_comes_back_from_disk(kind: str, tmp_path: Path) -> None:
    solver, problem, state, ctx, prover = fit_of(kind, tmp_path)
    stepped(solver, problem, state, ctx)
    proved = prover.prove()
    folder = tmp_path / "saved"
    folder.mkdir()
    write_tree(folder, prover.dump())
    again = prover_of(solver, state, ctx)
    again.load(read_tree(folder))
    assert again.certificate is not None
    for name in ("primal", "dual", "gap", "n_support"):
        np.testing.assert_array_equal(getattr(again.certificate, name), getattr(proved, name))
    assert (again.certificate.kind, again.certificate.n_rows) == (proved.kind, 120)
    assert again.bytes_read == prover.bytes_read
    fresh = prover_of(solver, state, ctx)
    fresh.load(prover_of(solver, state, ctx).dump())
    assert fresh.certificate is None


@pytest.mark.parametrize("kind", list(PROVERS))
def test_a_proof_that_is_left_changes_no_account(kind: str, tmp_path: Path) -> None:
    solver, problem, state, ctx, prover = fit_of(kind, tmp_path, resident=False)
    stepped(solver, problem, state, ctx)
    before = ctx.bytes_read
    ctx.control.stopping = lambda: True
    with pytest.raises(ProofLeft):
        prover.prove()
    assert (ctx.bytes_read, prover.bytes_read, prover.seconds) == (before, 0, 0.0)
    assert prover.written is None
    ctx.control.stopping = lambda: False
    assert prover.prove().n_rows == 120
    assert prover.bytes_read == ctx.bytes_read - before > 0


@pytest.mark.parametrize("kind", list(PROVERS))
def test_the_model_is_that_of_the_proof(kind: str, tmp_path: Path) -> None:
    solver, problem, state, ctx, prover = fit_of(kind, tmp_path)
    stepped(solver, problem, state, ctx)
    prover.prove()
    assert prover.written is not None
    checked = prover.checked(problem)
    figures = prover.figures()
    model = prover.model(checked, ctx.data, {})
    assert type(model) is (KernelModel if kind == "kernel" else LinearModel)
    assert (figures == {}) == (kind == "linear")
    block = ctx.data.read(ctx.data.refs(120)[0])
    signs = np.where(block.y == 1, 1.0, -1.0)
    loss = np.maximum(1.0 - signs * model.scores(block.X)[:, 0], 0.0).sum()
    norm = prover.written.primal[0] - loss
    if isinstance(model, LinearModel):
        assert norm == pytest.approx(0.5 * (model.coef[0] @ model.coef[0] + model.intercept[0] ** 2), rel=1e-9)
    else:
        K = model.kernel.matrix(model.support, model.support)
        assert norm == pytest.approx(0.5 * model.dual_coef[0] @ K @ model.dual_coef[0], rel=1e-9)


def test_a_rule_ends_a_fit_by_what_the_proof_has_computed(tmp_path: Path) -> None:
    """A linear solver's rule stands as it was told; a kernel solver's is asked again of the violations."""
    rule = Rule("violation of the optimality conditions", 1e-4, 1e-3)
    linear = fit_of("linear", tmp_path)[-1]
    assert linear.judged("paper_rule", rule) == ("paper_rule", rule)
    assert linear.judged("stopped", None) == ("stopped", None)
    kernel = fit_of("kernel", tmp_path)[-1]
    assert kernel.judged("kkt", rule) == ("stalled", None)  # a gap is wanted: no rule ends it
    assert kernel.judged("stopped", None) == ("stopped", None)


def test_a_dual_point_is_worth_no_less_than_none() -> None:
    P, D, gap = np.array([2.0, 2.0]), np.array([1.5, -3.0]), np.array([0.4, 5.0])
    found = above_zero(Certificate(P, D, gap, 10, 0.0, np.zeros(2, np.int64)))
    assert (found.dual.tolist(), found.gap.tolist()) == ([1.5, 0.0], [0.4, 2.0])
    unsure = above_zero(Certificate(P, D, gap, 10, 0.0, np.zeros(2, np.int64), "estimate"))
    assert (unsure.dual.tolist(), unsure.gap.tolist()) == ([1.5, 0.0], [0.5, 2.0])


def test_nothing_in_run_asks_for_the_class_of_a_solver_a_prover_or_a_model() -> None:
    root = Path(bigsvm.__file__).parent / "run"
    kinds = {cls.__name__ for solver in SOLVERS.values() for cls in solver.__mro__} - {"object"}
    kinds |= {"Prover", *(cls.__name__ for cls in PROVERS.values()), "LinearModel", "KernelModel", "LinearScorer"}
    found = set()
    for path in root.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("isinstance", "issubclass"):
                asked = {name.id for name in ast.walk(call.args[1]) if isinstance(name, ast.Name)}
                found |= {f"{path.relative_to(root).as_posix()} {name}" for name in asked & kinds}
    assert found == set(STATED)
