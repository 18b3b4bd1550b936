"""Virtual standardisation beside rows that are filled up: one optimum, found twice.

`--scale standard` of sparse rows never makes them dense.  Here the same rows are standardised as dense ones, some
columns at a time, into their Gram matrix K in float64; Newton's method on it gives the optimum of the squared hinge:

    (K_AA + I / (2 C)) alpha_A = y_A - b,     A = {i : y_i f_i < 1},     f = K alpha + b

until A stays as it is.  The whole of 20 newsgroups takes 3 GB and some minutes.  A fit rounds scaled values to float32,
and so its problem is not quite the same one.

    python scripts/standard_check.py --data DIR    # a folder with load.py; or --smoke
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse as sp

import bigsvm

_COLUMNS = 2048
_MOST_STEPS = 50


def standardised_gram(X: sp.csr_array) -> np.ndarray:
    """Z Z' of the columns Z of X with mean 0 and deviation 1; those that are constant are 0."""
    by_column, K = X.tocsc(), np.zeros((X.shape[0], X.shape[0]))
    for first in range(0, X.shape[1], _COLUMNS):
        Z = by_column[:, first : first + _COLUMNS].toarray()
        Z -= Z.mean(axis=0)
        deviation = Z.std(axis=0)
        Z /= np.where(deviation == 0.0, 1.0, deviation)
        K += Z @ Z.T
    return K


def optimum(K: np.ndarray, y: np.ndarray, C: float, bias: str) -> float:
    """The least P; bias: free or none."""
    active = np.ones(len(y), bool)
    for _ in range(_MOST_STEPS):
        H = K[np.ix_(active, active)]
        H[np.diag_indices(len(H))] += 1.0 / (2.0 * C)
        factor = scipy.linalg.cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
        alpha, b = scipy.linalg.cho_solve(factor, y[active]), 0.0
        if bias == "free":
            ones = scipy.linalg.cho_solve(factor, np.ones(len(H)))
            b = float(alpha.sum() / ones.sum())
            alpha -= b * ones
        f = K[:, active] @ alpha + b
        before, active = active, y * f < 1.0
        if np.array_equal(before, active):
            slack = np.maximum(0.0, 1.0 - y * f)
            return float(0.5 * alpha @ (f[active] - b) + C * slack @ slack)
    raise SystemExit("the rows within the margin go on changing")


def made_up() -> tuple[sp.csr_array, np.ndarray]:
    """A small problem: the last column has one value in one row."""
    rng = np.random.default_rng(0)
    X = sp.random_array((120, 40), density=0.1, rng=rng, format="csr")
    X = sp.csr_array(sp.hstack([X, sp.csr_array(np.eye(120)[:, :1])]))
    return X, np.where(X @ rng.normal(size=41) > 0.0, 1, -1)


def loaded(folder: Path, name: str) -> tuple[sp.csr_array, np.ndarray]:
    """A set by its name, the first class against the rest."""
    spec = importlib.util.spec_from_file_location("sets", folder / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    X, y = module.load(name)
    return sp.csr_array(X), np.where(np.asarray(y).astype(int) == 1, 1, -1)


def main() -> None:
    """Print both optima for each bias; exit 1 where they differ by more than `--apart`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--name", default="20news")
    parser.add_argument("--c", type=float, default=1e-3)
    parser.add_argument("--memory", default="96MiB", help="what holds the rows of the set, too")
    parser.add_argument("--apart", type=float, default=1e-7, help="relative difference that is too large")
    parser.add_argument("--smoke", action="store_true", help="a small problem")
    asked = parser.parse_args()
    if not asked.smoke and asked.data is None:
        parser.error("--data DIR, or --smoke")
    X, y = made_up() if asked.smoke else loaded(asked.data, asked.name)
    wrong = False
    K = standardised_gram(X.astype(np.float32).astype(np.float64))  # as the store holds them
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.zarr"
        bigsvm.ingest((X, y), path)
        for bias in ("free", "none"):
            result = bigsvm.fit(
                path, scale="standard", solver="newton-cg", loss="squared_hinge", C=asked.c, tol=1e-10, bias=bias,
                memory=asked.memory, threads=1, scratch=folder,
            )  # fmt: skip
            found, filled = float(result.figures["objective"]), optimum(K, y.astype(float), asked.c, bias)
            apart = abs(found - filled) / filled
            wrong |= not apart <= asked.apart
            sys.stdout.write(
                f"{X.shape[0]:,} x {X.shape[1]:,}, bias {bias}: {found!r}, filled up {filled!r}, {apart:.1e} apart\n"
            )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
