#!/usr/bin/env python3
"""SVC with an rbf kernel, head to head: bigsvm's smo, scikit-learn, scikit-learn-intelex, on one core.

Peers get the rows sparse and, under the names that end in `-dense`, dense: which is faster depends on the set.
`bigsvm-2` is bigsvm with two threads on two cores, where it is asked for.

Every fit is a process of its own with one thread, pinned to one core (but for `bigsvm-2`), after a first small fit that
compiles and loads; its seconds and its peak memory are of the fit alone.  What each solver found is judged here, by one
evaluator in float64, from the dual coefficients it leaves: dual objective, support vectors, the true violation
b_low - b_up and the duality gap.  All are asked for a violation of 1e-3, as LIBSVM measures it.

    scripts/benchmarks/bench_kernel.py --data-dir ../shared/data --record kernel.jsonl --markdown kernel.md
    scripts/benchmarks/bench_kernel.py --problem a9a --problem mnist-10k --solver bigsvm --solver sklearn --rounds 3
    scripts/benchmarks/bench_kernel.py --smoke                              seconds, for the test suite

With --record every finished fit is a line of that file, and the same command goes on where it was stopped.  Peers come
with scikit-learn and scikit-learn-intelex; one that is not installed is left out, and the report says so.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from bench.kernel_cases import CASES, TINY, Case, make_case, read_case, threads_of
from bench.kernel_judge import judge
from bench.record import write_figures
from bench.table import machine

BENCHMARKS = Path(__file__).resolve().parent
_BESIDE = BENCHMARKS.parents[2] / "shared" / "data"
SOLVERS = {
    "bigsvm": "bigsvm", "bigsvm-2": "bigsvm", "sklearn": "sklearn", "sklearn-dense": "sklearn",
    "sklearnex": "sklearnex", "sklearnex-dense": "sklearnex",
}  # fmt: skip
"""Solvers, and the package that each one comes with.  Rows are sparse where the name does not say otherwise."""
_WHERE_ASKED = ("bigsvm-2",)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "DAAL_NUM_THREADS")
_ASKED = ("problem", "rows", "C", "gamma", "solver", "tol", "cache_mb", "memory", "limit_s", "round")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    names = [case.name for case in CASES]
    add("--problem", action="append", choices=names, help=f"repeatable [{', '.join(names)}]")
    add("--solver", action="append", choices=list(SOLVERS), help=f"repeatable [all but {', '.join(_WHERE_ASKED)}]")
    add("--data-dir", type=Path, default=_BESIDE, help="folder of the real sets, with load.py [%(default)s]")
    add("--tol", type=float, default=1e-3)
    add("--cache-mb", type=int, default=200, help="kernel cache of the peers")
    add("--memory", default="1GiB", help="budget of bigsvm [%(default)s]")
    add("--rounds", type=int, default=1, help="fits of each, the solvers taking turns; seconds are medians")
    add("--limit", type=float, default=3600.0, help="seconds after which a fit is ended")
    add("--record", type=Path, help="JSON lines, one a fit; what is there is not done again")
    add("--markdown", type=Path, help="file for the report [standard output]")
    add("--figures", type=Path, help="file of docs/figures: what README is made of")
    add("--smoke", action="store_true", help="a few seconds, on made-up data, to see that it works")
    return parser.parse_args()


def say(text: str) -> None:
    """Progress goes to standard error."""
    sys.stderr.write(f"{text}\n")


class Record:
    """Finished fits."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.fits: list[dict[str, Any]] = []
        if path is not None and path.exists():
            self.fits = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]

    def find(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        """The fit, if it is there and did not fail; one that took too long is not tried again."""
        for fit in reversed(self.fits):
            if all(fit.get(key) == asked[key] for key in _ASKED) and ("error" not in fit or fit.get("overtime")):
                return fit
        return None

    def add(self, fit: dict[str, Any]) -> None:
        """Keep a fit."""
        self.fits.append(fit)
        if self._path is not None:
            with open(self._path, "a") as file:
                file.write(json.dumps(fit) + "\n")


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """The fit of a job in a child, judged; `error` where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        asked, out = Path(folder) / "job.json", Path(folder) / "out.npz"
        asked.write_text(json.dumps(job))
        paths = os.pathsep.join([str(BENCHMARKS), *filter(None, [os.environ.get("PYTHONPATH")])])
        cores = sorted(os.sched_getaffinity(0))[: threads_of(job["solver"])]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "bench.kernel_child", str(asked), str(out)],
                env={**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": paths},
                preexec_fn=functools.partial(os.sched_setaffinity, 0, cores),
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=job["limit_s"], check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": f"ended after {job['limit_s']:g} s", "overtime": True}
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            return {"error": (said or [f"exit {done.returncode}"])[-1]}
        with np.load(out, allow_pickle=False) as stored:
            about, beta = json.loads(str(stored["about"])), stored["beta"]
    X, y = read_case(job["path"])
    try:
        return {**about, **judge(X, y, beta, job["C"], job["gamma"])}
    except ValueError as error:
        return {**about, "error": str(error)}


def run(
    case: Case, options: argparse.Namespace, solvers: list[str], record: Record, work: Path
) -> list[dict[str, Any]]:
    """All fits of a problem; the data are made when the first one is missing."""
    made: dict[str, Any] = {}
    fits = []

    def data() -> dict[str, Any]:
        if not made:
            made.update(make_case(case, options.data_dir, work))
        return made

    for number in range(options.rounds):
        for solver in solvers:
            fits.append(_one(case, solver, number, options, record, data))
    return fits


def _one(
    case: Case, solver: str, number: int, options: argparse.Namespace, record: Record,
    data: Callable[[], dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    asked = {
        "problem": case.name, "rows": case.rows, "C": case.C, "gamma": case.gamma, "solver": solver,
        "tol": options.tol, "cache_mb": options.cache_mb, "memory": options.memory, "limit_s": options.limit,
        "round": number,
    }  # fmt: skip
    found = record.find(asked)
    if found is not None:
        return found
    made = data()
    figures = measure({**asked, **made})
    size = {"n_samples": made["rows"], "n_features": made["features"], "nnz": made["nnz"]}
    fit = {**asked, **size, "used_gamma": made["gamma"], **figures}
    record.add(fit)
    say(f"{case.name}, {solver}: {figures.get('error') or '{:.2f} s'.format(figures['seconds'])}")
    return fit


def table(case: Case, fits: list[dict[str, Any]], solvers: list[str]) -> list[str]:
    """One problem as Markdown."""
    first = fits[0]
    lines = [
        f"### {case.name}: {first['n_samples']:,} x {first['n_features']}, C = {case.C:g}, "
        f"gamma = {first['used_gamma']:.4g}",
        "",
        "| solver | seconds | CPU s | of bigsvm's | peak MB | fit MB | steps | support vectors | dual objective "
        "| violation | relative gap |",
        "|" + " --- |" * 11,
    ]
    good = {s: [f for f in fits if f["solver"] == s and "error" not in f] for s in solvers}
    seconds = {s: statistics.median(f["seconds"] for f in found) for s, found in good.items() if found}
    for solver in solvers:
        if solver not in seconds:
            error = next(f["error"] for f in fits if f["solver"] == solver)
            lines.append(f"| {solver} | {error} |" + " |" * 9)
            continue
        one, own = good[solver][-1], seconds.get("bigsvm")
        ratio = "" if own is None else f"{seconds[solver] / own:.2f}"
        cpu = statistics.median(f.get("cpu_seconds", math.nan) for f in good[solver])
        peak = max(f["peak_bytes"] for f in good[solver])
        grown = max(max(f["peak_bytes"] - f["before_bytes"], 0) for f in good[solver])
        lines.append(
            f"| {solver} | {seconds[solver]:.2f} | {cpu:.2f} | {ratio} | {peak / 1e6:.0f} | {grown / 1e6:.0f} "
            f"| {one['iterations']} | {one['n_support']} | {one['dual']:.6f} | {one['violation']:.2e} "
            f"| {one['relative_gap']:.1e} |"
        )
    return [*lines, ""]


def rows_of(case: Case, fits: list[dict[str, Any]], solvers: list[str]) -> list[dict[str, Any]]:
    """What README is made of: a row a solver, seconds medians of the rounds."""
    found, title = [], f"{case.name}, C = {case.C:g}, gamma = {fits[0]['used_gamma']:.3g}"
    for solver in solvers:
        mine = [fit for fit in fits if fit["solver"] == solver]
        good = [fit for fit in mine if "error" not in fit]
        if not good:
            found.append({"title": title, "solver": solver, "error": mine[0]["error"]})
            continue
        row = {name: good[-1][name] for name in ("n_support", "dual", "violation", "n_samples", "n_features")}
        grown = max(max(fit["peak_bytes"] - fit["before_bytes"], 0) for fit in good)
        seconds = statistics.median(fit["seconds"] for fit in good)
        found.append({"title": title, "solver": solver, "seconds": seconds, "fit_bytes": grown, **row})
    return found


def main() -> None:
    """Measure and report."""
    options = parse()
    absent = sorted({package for package in SOLVERS.values() if find_spec(package) is None})
    wanted = options.solver or [s for s in SOLVERS if s not in _WHERE_ASKED]
    solvers = [s for s in wanted if SOLVERS[s] not in absent]
    cases = [TINY] if options.smoke else [c for c in CASES if c.name in (options.problem or [c.name])]
    if not options.smoke and not (options.data_dir / "load.py").exists():
        say(f"there is no {options.data_dir / 'load.py'}: say --data-dir, or --smoke")
        raise SystemExit(66)
    record = Record(options.record)
    lines = [
        "## SVC, rbf: seconds of one core",
        "",
        f"{machine()}.  Violation asked for: {options.tol:g}.  Kernel cache of the peers {options.cache_mb} MB, "
        f"memory of bigsvm {options.memory}.  Violation and gap are of the dual point that each one leaves, judged in "
        "float64.  Fit MB: by how much the peak exceeds what the process held before, the data among it.",
        *(["", f"Not installed: {', '.join(absent)}."] if absent else []),
        "",
    ]
    failed, rows = False, []
    with tempfile.TemporaryDirectory(prefix="bench-kernel-") as folder:
        for case in cases:
            fits = run(case, options, solvers, record, Path(folder))
            failed = failed or any("error" in fit for fit in fits)
            lines += table(case, fits, solvers)
            rows += rows_of(case, fits, solvers)
    if options.figures:
        write_figures(options.figures, rows)
    text = "\n".join(lines)
    if options.markdown:
        options.markdown.write_text(text)
    else:
        sys.stdout.write(text)
    if options.smoke and failed:
        raise SystemExit("a fit failed")


if __name__ == "__main__":
    main()
