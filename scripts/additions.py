#!/usr/bin/env python
"""What an addition touches: four small patches, each applied to a copy of the package and used.

    scripts/additions.py            applies each patch, fits with what it adds, and compares with an optimum of SciPy's
    scripts/additions.py --smoke    applies each patch and looks whether the package knows what it adds

A linear solver is one file and its line in the table of solvers; a flag that reaches a solver one
field; a Mercer kernel at most four files; a loss at most six.  Where a patch no longer applies, its place has moved:
make it anew, and count again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "scripts" / "additions"

_ROWS = """
import numpy as np, bigsvm
from scipy.optimize import minimize
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 4)); y = np.where(X[:, 0] + 0.3 * rng.normal(size=120) > 0, 1, -1)
def least(value, d): return minimize(value, np.zeros(d), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-12}).fun
"""


class Addition(NamedTuple):
    """What a patch adds, what it may touch, and two programs: is it known, and is it right?

    files : of the package that are changed, at most;  lines : added to files that were there, at most
    """

    name: str
    files: int
    lines: int
    known: str
    right: str


ADDITIONS = (
    Addition(
        "solver", 2, 1,
        "from bigsvm.solvers.registry import SOLVERS; assert 'steepest' in SOLVERS",
        "r = bigsvm.fit(X, y, solver='steepest', bias='none', tol=1e-6)\n"
        "P = least(lambda w: w @ w / 2 + (np.maximum(1 - y * (X @ w), 0) ** 2).sum(), 4)\n"
        "assert r.status == 'converged' and abs(r.document()['objective'] - P) <= 1e-5 * P, (r.status, P)",
    ),
    Addition(
        "flag", 2, 5,
        "from bigsvm.cli.main import run; import contextlib, io; out = io.StringIO()\n"
        "with contextlib.redirect_stdout(out): run(['fit', '--help'])\n"
        "assert '--first-share' in out.getvalue()",
        "r = bigsvm.fit(X, y, kernel='rbf', first_share=0.5)\nassert r.status == 'converged'",
    ),
    Addition(
        "kernel", 4, 14,
        "from bigsvm.problem.kernel import Kernel; kernel = Kernel('quadratic')\n"
        "assert kernel.by_construction and kernel.document() == {'name': 'quadratic', 'gamma': 1.0}",
        "r = bigsvm.fit(X, y, kernel='quadratic', gamma=0.5, C=1.0, tol=1e-6)\n"
        "U = 0.5 * X @ X.T; K = 1 + U + U * U\n"
        "F = K @ (r.model.dual_coef[0] @ np.eye(120)[r.model.support_rows]) + r.model.intercept[0]\n"
        "s = r.decision_function(X) if hasattr(r, 'decision_function') else r.model.decision_function(X)\n"
        "assert r.status == 'converged' and np.allclose(np.ravel(s), F, atol=1e-9)",
    ),
    Addition(
        "loss", 6, 40,
        "from bigsvm.problem.loss import loss_named; assert loss_named('huber_hinge').smooth",
        "r = bigsvm.fit(X, y, solver='dcd', loss='huber_hinge', bias='none', tol=1e-6)\n"
        "h = lambda s: np.where(s < 1, np.maximum(s, 0) ** 2 / 2, s - 0.5)\n"
        "P = least(lambda w: w @ w / 2 + h(1 - y * (X @ w)).sum(), 4)\n"
        "assert r.status == 'converged' and abs(r.document()['objective'] - P) <= 1e-5 * P, (r.status, P)",
    ),
)  # fmt: skip


def tried(addition: Addition, smoke: bool, folder: Path) -> str:
    """What one addition touched.  Raises SystemExit where it is too much, or the program fails."""
    shutil.copytree(ROOT / "bigsvm", folder / "bigsvm", ignore=shutil.ignore_patterns("__pycache__"))
    patch = PATCHES / f"{addition.name}.patch"
    _run(["git", "apply", "--unsafe-paths", str(patch)], folder)
    counts = _run(["git", "apply", "--numstat", str(patch)], folder).splitlines()
    added = {path: int(plus) for plus, _, path in (line.split("\t") for line in counts)}
    files = len(added)
    lines = sum(plus for path, plus in added.items() if (ROOT / path).exists())
    if files > addition.files or lines > addition.lines:
        raise SystemExit(f"{addition.name}: {files} files and {lines} lines, not {addition.files} and {addition.lines}")
    _run([sys.executable, "-c", addition.known if smoke else _ROWS + addition.right], folder)
    return f"{addition.name}: {files} files, {lines} lines in files that were there"


def _run(command: list[str], folder: Path) -> str:
    inside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**inside, "PYTHONPATH": str(folder)}
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Try all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="fit nothing")
    smoke = parser.parse_args().smoke
    for addition in ADDITIONS:
        with tempfile.TemporaryDirectory(prefix="bigsvm-additions-") as folder:
            print(tried(addition, smoke, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
