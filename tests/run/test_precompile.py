"""Everything that a fit calls is compiled, or loaded, before its memory is counted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# What a call compiles and what it loads from the cache are both new signatures of a compiled function: so it does not
# matter what the cache holds.
_KNOWN = """
import importlib, json, pkgutil, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from scipy import sparse
import bigsvm
import bigsvm.compiled
from bigsvm.run.fit import fit, sizes, warm as warming
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem

folder = pkgutil.walk_packages(bigsvm.compiled.__path__, "bigsvm.compiled.")
modules = [importlib.import_module(found.name) for found in folder]

def signatures():
    return {
        (name, str(signature)) for module in modules for name, found in vars(module).items()
        if isinstance(found, Dispatcher) for signature in found.overloads
    }

known, warm = [], fit.warm

def warm_then_count(store, plan, *others):
    warm(store, plan, *others)
    if plan.mode == "staged":
        warming.warm_staging(store)  # compiled by a child, and loaded by whoever stages
    known.append(signatures())

fit.warm = warm_then_count

def check():
    assert len(known[0]) > 10
    new = signatures() - known[0]
    sys.exit(f"compiled in the fit: {sorted(new)}" if new else 0)
"""

_FIT = """
sizes._COPY_BLOCK, sizes.BLOCK_BYTES = 600, 6000
sizes.Sizes.resident_from = lambda self: 1 << 50
X, y = random_problem(900, 6, seed=3)
options = {"solver": sys.argv[1], "loss": sys.argv[2], "tol": 1e-5, "max_passes": 60, "memory": "64MiB"}
rows = X.astype("float32"), y
result = bigsvm.fit_path(rows, [0.1, 1.0], **options)[0] if "path" in sys.argv else bigsvm.fit(rows, **options)
assert not result.model.about["plan"]["resident"]
check()
"""


def runs(program: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KNOWN + program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        ("dcd", "hinge"),
        ("hyperpass", "hinge"),
        ("pegasos", "hinge"),
        ("newton", "squared_hinge"),
        ("newton-ws", "hinge"),
    ],
)
def test_nothing_is_compiled_inside_a_fit(solver: str, loss: str) -> None:
    runs(_FIT, solver, loss, *(["path"] if solver == "newton-ws" else []))


_KERNEL_FIT = """
layout, where, task, options = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
rng = np.random.default_rng(3)
n = 5000 if where == "streamed" else 600
X = rng.standard_normal((n, 5))
score = X[:, 0] + X[:, 1] ** 2 + 0.4 * rng.standard_normal(n)
y = score if task == "regression" else np.searchsorted([0.7] if task == "two" else [0.2, 1.2], score)
if options["kernel"] == "precomputed":
    X = np.exp(-0.2 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
X = X.astype("float32")
if where == "streamed":
    sizes._COPY_BLOCK, sizes.BLOCK_BYTES = 60_000, 60_000
    sizes.Sizes.resident_from = lambda self: 1 << 50
if task == "regression":
    options["loss"] = "epsilon_insensitive"
kind = "regression" if task == "regression" else "classification"
store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, task=kind)
result = bigsvm.fit(store, memory="64MiB", gamma=0.2, **options)
assert result.model.about["plan"]["resident"] == (where == "resident")
check()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "where", "task", "options"),
    [
        ("dense", "resident", "two", {"solver": "smo", "kernel": "rbf"}),
        ("dense", "resident", "ovo", {"solver": "smo", "kernel": "rbf", "tol": 1e-7}),
        ("csr", "resident", "two", {"solver": "smo", "kernel": "linear"}),
        ("csr", "streamed", "two", {"solver": "smo", "kernel": "rbf"}),
        ("dense", "streamed", "ovr", {"solver": "smo", "kernel": "rbf", "tol": 1e-7, "multi_class": "ovr"}),
        ("dense", "streamed", "regression", {"solver": "smo", "kernel": "linear"}),
        ("csr", "resident", "regression", {"solver": "smo", "kernel": "precomputed"}),
        ("dense", "resident", "two", {"solver": "smo", "kernel": "rbf", "working_set": 2}),
        ("csr", "resident", "two", {"solver": "smo", "kernel": "rbf", "wss": "keerthi2"}),
        ("dense", "resident", "two", {"solver": "rosen", "kernel": "rbf"}),
        ("csr", "streamed", "two", {"solver": "rosen", "kernel": "linear", "tol": 0.3}),
        ("dense", "resident", "regression", {"solver": "rosen-block", "kernel": "rbf"}),
        ("csr", "streamed", "two", {"solver": "rosen-block", "kernel": "rbf", "tol": 1e-2}),
        ("dense", "resident", "two", {"solver": "platt-smo", "kernel": "rbf", "tol": 0.3}),
        ("csr", "resident", "ovo", {"solver": "platt-smo", "kernel": "linear", "tol": 0.3}),
        ("dense", "resident", "two", {"solver": "simplified-smo", "kernel": "rbf", "tol": 0.1}),
    ],
)
def test_nothing_is_compiled_inside_a_kernel_fit(layout: str, where: str, task: str, options: dict) -> None:
    runs(_KERNEL_FIT, layout, where, task, json.dumps(options))
