"""One fit in a process of its own: `python -m bench.kernel_child JOB.json OUT.npz`."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bench.kernel_cases import read_case, threads_of

Fit = Callable[[Any, np.ndarray], tuple[np.ndarray, dict[str, Any]]]
_WARM = 200  # rows of each class in a first fit, so that imports and compilation are not measured


def main() -> None:
    """Do the job: seconds and memory of the fit go into the output file, with beta_i = y_i alpha_i."""
    job = json.loads(Path(sys.argv[1]).read_text())
    X, y = read_case(job["path"])
    if job["solver"].endswith("-dense"):
        X = X.toarray()
    fit = _bigsvm(job) if job["solver"].startswith("bigsvm") else _svc(job)
    few = np.sort(np.concatenate([np.flatnonzero(y == sign)[:_WARM] for sign in (-1.0, 1.0)]))
    fit(X[few], y[few])
    _reset_peak()
    before, cpu, began = _memory("VmRSS"), time.process_time(), time.perf_counter()
    beta, about = fit(X, y)
    # Loops for many rows of whole numbers are no part of the few rows' fit.
    seconds, cpu = time.perf_counter() - began - about.get("compile_seconds", 0.0), time.process_time() - cpu
    about |= {"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": _memory("VmHWM"), "before_bytes": before}
    np.savez(sys.argv[2], beta=beta, about=json.dumps(about))


def _svc(job: dict[str, Any]) -> Fit:
    if job["solver"].startswith("sklearn") and not job["solver"].startswith("sklearnex"):
        from sklearn.svm import SVC
    else:
        from sklearnex.svm import SVC

    def fit(X: Any, y: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        model = SVC(C=job["C"], kernel="rbf", gamma=job["gamma"], tol=job["tol"], cache_size=job["cache_mb"])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.fit(X, y)
        beta = np.zeros(len(y))
        coef = model.dual_coef_
        beta[model.support_] = np.asarray(coef.todense() if sparse.issparse(coef) else coef, np.float64).ravel()
        said = sorted({str(one.message) for one in warned})
        return beta, {"iterations": int(np.max(getattr(model, "n_iter_", -1))), "warnings": said}

    return fit


def _bigsvm(job: dict[str, Any]) -> Fit:
    import bigsvm

    def fit(X: Any, y: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        result = bigsvm.fit(
            (X, y), kernel="rbf", gamma=job["gamma"], solver="smo", loss="hinge", bias="free", C=job["C"],
            stop="paper", tol=job["tol"], threads=threads_of(job["solver"]), memory=job["memory"],
        )  # fmt: skip
        alpha = np.asarray(result.alpha[0].values, np.float64)[:, 0]
        own = {name: result.figures[name] for name in ("iterations", "dual_objective", "duality_gap")}
        return y * np.abs(alpha), {**own, "status": result.status, "compile_seconds": result.seconds["compile"]}

    return fit


def _reset_peak() -> None:
    """The largest resident size counts from now on (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def _memory(what: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(what)).split()[1])


if __name__ == "__main__":
    main()
