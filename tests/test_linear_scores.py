"""Scores of a few rows, which no compiled code computes: the bits are those of compiled code, whatever the rows."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigsvm.compiled.shared.rows import CSR, decision
from bigsvm.model import linear_scores
from bigsvm.model.linear_model import LinearModel
from bigsvm.model.linear_scores import COMPILED_FROM, n_products, products
from bigsvm.store.blocks import readonly_view

DTYPES = ("float32", "float64", "int8", "uint8")


def rows_of(layout: str, dtype: str, n: int, d: int, seed: int) -> np.ndarray | CSR:
    rng = np.random.default_rng(seed)
    X = np.exp(3 * rng.standard_normal((n, d))) * rng.choice([-1.0, 1.0, 0.0, -0.0], (n, d))
    X = X.clip(-100 if dtype != "uint8" else 0, 100).astype(dtype)
    if layout == "dense":
        return X
    kept = rng.random((n, d)) < 0.6
    kept[0] = False  # a row of nothing
    indptr = np.concatenate(([0], np.cumsum(kept.sum(axis=1)))).astype(np.int64)
    return CSR(X[kept], np.nonzero(kept)[1].astype(np.int32), indptr)


@pytest.mark.parametrize(("layout", "dtype", "n_models"), list(itertools.product(("dense", "csr"), DTYPES, (1, 3))))
def test_the_bits_are_those_of_compiled_code(layout: str, dtype: str, n_models: int) -> None:
    W = np.random.default_rng(7).standard_normal((37, n_models))
    for seed, n in enumerate((1, 2, 5, 40)):
        X = rows_of(layout, dtype, n, 37, seed)
        out = np.empty((n, n_models))
        decision(readonly_view(X), W, out)
        assert n_products(X, n_models) < COMPILED_FROM
        assert products(X, W).tobytes() == out.tobytes()


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_weights_that_are_not_finite_give_what_compiled_code_gives(special: float) -> None:
    W = np.array([[special], [1.0], [-special]])
    X = np.array([[1.0, 2.0, 1.0], [0.0, 1.0, 1.0]])
    out = np.empty((2, 1))
    decision(readonly_view(X), W, out)
    np.testing.assert_array_equal(products(X, W), out)


def test_no_rows_and_no_features_have_scores() -> None:
    assert products(np.zeros((0, 3)), np.ones((3, 2))).shape == (0, 2)
    assert products(np.zeros((2, 0)), np.ones((0, 1))).tolist() == [[0.0], [0.0]]


def test_many_rows_are_left_to_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(linear_scores, "decision", lambda X, W, out: called.append(len(out)))
    for n in (COMPILED_FROM // 4 - 1, COMPILED_FROM // 4):
        products(np.zeros((n, 2)), np.zeros((2, 2)))
    assert called == [COMPILED_FROM // 4]


def test_a_model_that_was_loaded_scores_a_few_rows_without_a_compiler(tmp_path: Path) -> None:
    LinearModel(np.ones((1, 3)), np.zeros(1), np.array([0, 1])).save(tmp_path / "m")
    program = """
import sys
import numpy as np
from scipy import sparse
from numba.core.dispatcher import Dispatcher
import bigsvm

def refuse(self, signature):
    raise AssertionError(f"{self} is compiled or loaded for {signature}")

Dispatcher.compile = refuse
model = bigsvm.load_model(sys.argv[1])
X = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 0.0]])
for rows in (X, X.astype("float32"), sparse.csr_array(X), X.astype(int)):
    assert model.decision_function(rows).tolist() == [6.0, -1.0]
    assert model.predict(rows).tolist() == [1, 0]
"""
    command = [sys.executable, "-c", program, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
