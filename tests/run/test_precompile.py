"""All compiled code that a fit, a certificate or a prediction calls is compiled, or loaded, before memory is counted.

A signature that a compiled function has only after the work began, whether it was compiled or loaded then, is a
failure; so it does not matter what the cache holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bigsvm.config import FitConfig
from bigsvm.problem.loss import loss_named
from bigsvm.solvers.registry import SOLVERS
from tests.forked import Run, programs
from tests.products import each_of, on_request
from tests.signatures import SIGNATURES

_KNOWN = (
    SIGNATURES
    + """
import numpy as np
from scipy import sparse
import bigsvm
from bigsvm import compile_in_child
from bigsvm.compiled.kernel.values import step
from bigsvm.run.fit import fit, precompile as precompiling, sizes, training
from bigsvm.store.formats.array_rows import ArrayRows

def all_loaded(kind, call, load=True, emit=None):
    compile_in_child.compiled_in_child(kind, call, True)  # what a child alone has compiled is loaded by who calls it

precompiling.compiled_in_child = all_loaded
known, pairs, precompile, with_steps = [], [], fit.precompile, training.with_steps

def precompile_then_count(*arguments):
    precompile(*arguments)
    known.append(signatures())

def with_steps_then_count(*arguments):
    ctx = with_steps(*arguments)
    if ctx.steps is not None and ctx.steps.step:
        pairs.append(ctx.steps)
        known[-1] |= signatures()
    return ctx

fit.precompile, training.with_steps, step._WORTH_IT = precompile_then_count, with_steps_then_count, 0

def check(at_least=4):
    assert len(known[0]) >= at_least
    new = signatures() - known[0]
    sys.exit(f"compiled in the work: {sorted(new)}" if new else 0)
"""
)

_ROWS = """
case = json.loads(sys.argv[1])
options, n, where = case["options"], case["n"], case["where"]
rng = np.random.default_rng(3)
X = rng.standard_normal((n, case["width"]))
score = X[:, 0] + X[:, 1] ** 2 + 0.4 * rng.standard_normal(n)
edges = {"two": [0.7], "three": [0.2, 1.2], "many": np.linspace(-1, 3, 9), "forty": np.linspace(-1, 4, 39)}
regression = case["task"] == "regression"
y = score if regression else np.searchsorted(edges[case["task"]], score)
if options.get("kernel") == "precomputed":
    X = np.exp(-0.2 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
if case["dtype"] == "int8" or case["width"] >= 32:
    X = np.rint(10 * X).clip(-90, 90)
X = X.astype(case["dtype"])
if where != "resident":
    size = case["block_bytes"]
    sizes._COPY_BLOCK, sizes.BLOCK_BYTES = size, 10 * size
    sizes.Sizes.resident_from = lambda self: 1 << 50
    if case["row_buffer"]:
        sizes.Sizes.row_buffer = lambda self, store, spare, unpacked=False: min(spare, case["row_buffer"])
    options["stage"] = "none" if where == "streamed" else "auto"
weight = rng.uniform(0.5, 2.0, n) if case["weighted"] else None
kind = "regression" if regression else "classification"
store = ArrayRows(sparse.csr_array(X) if case["layout"] == "csr" else X, y, weight, task=kind)
config = bigsvm.config.FitConfig.of(memory="64MiB", **options)
"""

_FIT = """
if case["path"]:
    from bigsvm.run.path import fit_path_store
    result = fit_path_store(store, [0.1, 1.0], config)[0]
else:
    result = fit.fit_store(store, config)
assert result.model.about["plan"]["resident"] == (where == "resident")
assert bool(pairs) == (case["width"] >= 32)
check()
"""

_LINEAR_KERNEL = """
from bigsvm.compiled.linear.primal import _add_rows, _signed_margins
fit.fit_store(store, config)
for loop in (_add_rows, _signed_margins):
    assert {str(signature[1].dtype) for signature in loop.signatures} == {"int32"}, loop.signatures
"""

_SAVE = """
fit.fit_store(store, config).save_model(case["model"])
"""

_CERTIFY = """
from pathlib import Path
from bigsvm.run.proof import certify

def counted(module):
    former = module._precompile
    def counting(*arguments):
        former(*arguments)
        known.append(signatures())
    module._precompile = counting

counted(certify)
found = certify.certify_model(Path(case["model"]), store, config)
check(at_least=1)
"""

_PREDICT = """
from pathlib import Path
from bigsvm.model.linear_model import load_model
from bigsvm.run.apply import predict

former = predict.precompile_scoring_of
def counting(*arguments):
    former(*arguments)
    known.append(signatures())
predict.precompile_scoring_of = counting
if options.get("kernel", "linear") == "linear":  # such a model scores few rows without compiled code
    X = np.tile(X, (60, 1))
    store = ArrayRows(sparse.csr_array(X) if case["layout"] == "csr" else X, np.tile(y, 60), task=kind)
predict.predict(load_model(Path(case["model"])), store, Path(case["model"] + ".csv"), "csv", config)
check(at_least=1)
"""

PLAIN = {
    "n": 900, "layout": "dense", "dtype": "float32", "task": "two", "where": "resident", "weighted": False,
    "path": False, "block_bytes": 600, "row_buffer": 0, "width": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a program in a process that has called nothing before."""
    with programs(_KNOWN, tmp_path_factory.mktemp("programs")) as run:
        yield run


def fits(run: Run, options: dict[str, Any], **case: Any) -> None:
    run(_ROWS + _FIT, json.dumps({**PLAIN, "options": options, **case}))


def linear_cases() -> list[tuple[str, str]]:
    """Every linear solver with a loss of its own."""
    return [
        (name, loss)
        for name, solver in SOLVERS.items()
        for loss in solver.losses
        if FitConfig.of(solver=name, loss=loss).of_kernel is False
        and (name, loss) != ("dcd", "squared_epsilon_insensitive")  # no type is another than with the other one
    ]


@pytest.mark.slow
@each_of(
    solver__loss=linear_cases(),
    where=["staged", "resident"],
    layout=["dense", "csr"],
    task=["two", "three", "two", "three", "many"],
    dtype=["float64", "float32", "float64", "float64", "float32", "float64", "float64"],
    tol=[1e-6, 1e-3, 1e-3],
    weighted=[False, False, False, True],
)
def test_nothing_is_compiled_inside_a_linear_fit(
    run: Run, solver: str, loss: str, where: str, layout: str, task: str, dtype: str, tol: float, weighted: bool
) -> None:
    options = {"solver": solver, "loss": loss, "tol": tol, "max_passes": 40}
    task = (
        "regression" if loss_named(loss).regression else "three" if loss == "crammer_singer" and task == "two" else task
    )
    fits(run, options, where=where, layout=layout, task=task, dtype=dtype, weighted=weighted)


DOUBLE = {"dtype": "float64"}  # which other tests compile as well; that types are the rows' own, those of float32 see
# Bytes for rows that stay: too few for all that violate.
ROW_BUFFER = {"where": "staged", "row_buffer": 8000, **DOUBLE}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "case"),
    [
        ({"solver": "newton-ws", "loss": "hinge"}, {"path": True, "where": "staged"}),
        ({"solver": "dcd", "loss": "hinge"}, ROW_BUFFER),
        (
            {"solver": "dcd", "loss": "squared_hinge"},
            {"where": "staged", "row_buffer": 8000, "layout": "csr", "task": "forty"},
        ),
        ({"solver": "dcd", "loss": "squared_hinge", "tol": 1e-9}, {**ROW_BUFFER, "layout": "csr"}),
        ({"solver": "dcd", "loss": "hinge"}, {"task": "forty", **DOUBLE}),
        ({"loss": "hinge", "C": 1e4, "tol": 1e-6, "max_passes": None}, {}),
        ({"solver": "dcd", "loss": "hinge", "stop": "paper"}, DOUBLE),
        ({"solver": "dcd", "loss": "squared_hinge", "stop": "paper"}, {"task": "three", **DOUBLE}),
        ({"solver": "dcd", "loss": "hinge", "stop": "paper"}, {"where": "staged", **DOUBLE}),
        ({"solver": "dcd", "loss": "hinge", "shards": 2}, {"where": "staged"}),
        ({"solver": "dcd", "loss": "hinge", "solver_options": {"order": "random"}}, {"where": "streamed"}),
    ],
)
def test_nothing_is_compiled_inside_other_linear_fits(run: Run, options: dict[str, Any], case: dict[str, Any]) -> None:
    fits(run, {"max_passes": 40, **options}, **case)


@pytest.mark.slow
@each_of(
    loss=["hinge", "squared_hinge"],
    layout=["csr", "dense"],
    task=["two", "three"],
    dtype=["float64", "float32"],
    tol=[1e-3, 1e-6],
    weighted=[True, False],
    where=["staged", "resident"],
)
def test_nothing_is_compiled_where_another_solver_takes_over(
    run: Run, loss: str, layout: str, task: str, dtype: str, tol: float, weighted: bool, where: str
) -> None:
    """From dcd to working sets where that is slow, and to dcd again after a pass."""
    own = {"opening": "dcd", "fallback_after": 1}
    options = {"solver": "newton-ws", "loss": loss, "C": 300.0, "tol": tol, "max_passes": 200, "solver_options": own}
    fits(run, options, where=where, layout=layout, task=task, dtype=dtype, weighted=weighted)


STREAMED = {"where": "staged", "n": 5000, "block_bytes": 60_000}
FEW_STREAMED = {"where": "staged", "n": 200, "block_bytes": 2000}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "task", "options", "case"),
    [
        ("dense", "two", {"solver": "smo", "kernel": "rbf"}, {}),
        ("dense", "three", {"solver": "smo", "kernel": "rbf", "tol": 1e-7}, {}),
        ("csr", "two", {"solver": "smo", "kernel": "linear"}, {}),
        ("csr", "two", {"solver": "smo", "kernel": "rbf"}, STREAMED),
        ("dense", "three", {"solver": "smo", "kernel": "rbf", "tol": 1e-7, "multi_class": "ovr"}, STREAMED),
        ("dense", "regression", {"solver": "smo", "kernel": "linear"}, STREAMED),
        ("csr", "regression", {"solver": "smo", "kernel": "precomputed"}, {}),
        ("dense", "two", {"solver": "smo", "kernel": "rbf", "working_set": 2}, {}),
        ("csr", "two", {"solver": "smo", "kernel": "rbf", "wss": "keerthi2"}, {}),
        ("dense", "two", {"solver": "rosen", "kernel": "rbf"}, DOUBLE),
        ("dense", "regression", {"solver": "rosen-block", "kernel": "rbf"}, DOUBLE),
        ("csr", "two", {"solver": "rosen-block", "kernel": "rbf", "tol": 1e-2}, STREAMED),
        ("dense", "two", {"solver": "platt-smo", "kernel": "rbf", "tol": 0.3}, DOUBLE),
        ("dense", "two", {"solver": "simplified-smo", "kernel": "rbf", "tol": 0.1}, DOUBLE),
        ("csr", "two", {"solver": "simplified-smo-km", "kernel": "rbf", "tol": 0.1}, DOUBLE),
        ("dense", "two", {"solver": "platt-smo", "kernel": "rbf", "max_passes": 5}, FEW_STREAMED),
        ("csr", "two", {"solver": "simplified-smo", "kernel": "rbf", "max_passes": 5}, FEW_STREAMED),
        ("dense", "two", {"solver": "simplified-smo-km", "kernel": "rbf", "max_passes": 5}, FEW_STREAMED),
        ("dense", "two", {"solver": "smo", "kernel": "rbf", "wss": "keerthi2", "max_passes": 50}, FEW_STREAMED),
        # Their few rows need a margin: without one they took minutes.
        ("dense", "two", {"loss": "nu_svc", "nu": 0.5, "kernel": "rbf", "tol": 1e-7}, FEW_STREAMED),
        ("dense", "three", {"loss": "nu_svc", "nu": 0.3, "kernel": "rbf", "multi_class": "ovr"}, {}),
        ("dense", "regression", {"loss": "nu_svr", "nu": 0.5, "kernel": "rbf"}, {}),
        *on_request(
            ("dense", "two", {"solver": "smo", "kernel": "rbf"}, {"width": 40, "dtype": "int8"}),
            ("csr", "regression", {"solver": "smo", "kernel": "poly"}, {"width": 40, "dtype": "float64"}),
            ("dense", "three", {"solver": "smo", "kernel": "rbf"}, {**STREAMED, "width": 40, "dtype": "int8"}),
        ),
    ],
)
def test_nothing_is_compiled_inside_a_kernel_fit(
    run: Run, layout: str, task: str, options: dict[str, Any], case: dict[str, Any]
) -> None:
    loss = {"loss": "epsilon_insensitive"} if task == "regression" else {}
    fits(run, {"gamma": 0.2, **loss, **options}, **{"n": 600, **case, "layout": layout, "task": task})


@pytest.mark.slow
@pytest.mark.parametrize(("task", "loss"), [("two", "hinge"), ("regression", "epsilon_insensitive")])
def test_a_linear_kernel_takes_the_loops_of_classes(run: Run, task: str, loss: str) -> None:
    """Its sums over rows were compiled for targets, beside those for classes that other fits call."""
    options = {"solver": "smo", "kernel": "linear", "loss": loss}
    run(_ROWS + _LINEAR_KERNEL, json.dumps({**PLAIN, **DOUBLE, "n": 300, "task": task, "options": options}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "case"),
    [
        ({"solver": "dcd", "loss": "hinge"}, {"layout": "csr", "task": "three", "weighted": True}),
        ({"solver": "dcd", "loss": "squared_hinge", "no_dual": True}, {}),
        ({"solver": "smo", "kernel": "rbf"}, {"task": "three", "layout": "csr"}),
        ({"solver": "smo", "kernel": "precomputed"}, {"weighted": True, **DOUBLE}),
        ({"solver": "smo", "kernel": "linear", "loss": "epsilon_insensitive"}, {"task": "regression"}),
    ],
)
def test_nothing_is_compiled_inside_a_certificate_or_a_prediction(
    run: Run, options: dict[str, Any], case: dict[str, Any], tmp_path: Path
) -> None:
    case = {**PLAIN, "n": 300, "options": options, "model": str(tmp_path / "m"), **case}
    for program in (_SAVE, _CERTIFY, _PREDICT):
        run(_ROWS + program, json.dumps(case))
