#!/usr/bin/env python3
"""Where keeping kernel rows pays: SMO of two variables without a cache, with one in memory, and a disk behind it.

    scripts/benchmarks/bench_cache.py --work /on/a/disk --figures docs/figures/kernel-cache.json
    scripts/benchmarks/bench_cache.py --problem mnist-10k --rounds 3
    scripts/benchmarks/bench_cache.py --smoke

All three take the same steps to the last bit (checked).  Memory holds so small a share of the rows that most hits are
the disk's, if there is one; the file is read by position and its pages are let go after each row.  One thread; seconds
of the clock, so that waiting for the disk counts; the kinds take turns, medians of the rounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where the package `reproduction` is

import numpy as np
from bench.passages import kernel_cache
from bench.record import command, commit, meter, write_figures
from reproduction.sets import made_up, open_folder
from reproduction.wss_train import ComputedRows, Point, matrix_of, new_part

from bigsvm.solvers.kernel.smo.textbook import Textbook
from bigsvm.solvers.kernel.values.cached_rows import CachedRows
from bigsvm.store.copy.scratch import is_tmpfs
from bigsvm.store.state.row_cache import RowCache

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
KINDS = ("none", "memory", "memory and disk")


class Problem(NamedTuple):
    """Rows and what to do with them.

    kept : rows that memory holds
    """

    name: str
    X: Any
    y: np.ndarray
    point: Point
    steps: int
    kept: int


def mnist(folder: Path, n: int, kept: int, steps: int) -> Problem:
    """Odd digits against even ones, float32."""
    X, digits = open_folder(folder).load("mnist")
    values = (np.asarray(X[:n].todense()) / 255.0).astype(np.float32)
    return Problem(
        f"mnist-{n // 1000}k", values, np.where(digits[:n] % 2 > 0, 1.0, -1.0), Point(10.0, 0.02), steps, kept
    )


def sparse(folder: Path, name: str, gamma: float, steps: int, kept: int) -> Problem:
    """13 to 14 non-zeros a row, or the same rows as dense ones."""
    X, y = open_folder(folder).load(name)
    return Problem(name, matrix_of(X), np.where(y > 0, 1.0, -1.0), Point(10.0, gamma), steps, kept)


def wide(n: int, d: int, steps: int, kept: int) -> Problem:
    """Dense normal numbers, a planted direction, a tenth of the labels wrong."""
    data = made_up(n, d, 3)
    return Problem(f"dense {n} x {d}", data.X.astype(np.float32), data.y, Point(1.0, 2.0 / d), steps, kept)


PROBLEMS: dict[str, Callable[[argparse.Namespace], Problem]] = {
    "mnist-10k": lambda o: mnist(o.data_dir, 10_000, 200, 3000),
    "mnist-20k": lambda o: mnist(o.data_dir, 20_000, 200, 1500),
    "wide-5k": lambda o: wide(5000, 2000, 2500, 200),
    "a9a": lambda o: sparse(o.data_dir, "a9a", 0.05, 6000, 200),
    "ijcnn1": lambda o: sparse(o.data_dir, "ijcnn1", 2.0, 6000, 200),
}


class Timing(NamedTuple):
    """A run: seconds of the clock, rows computed, found in memory and on disk, and its end for comparison."""

    seconds: float
    computed: int
    ram_hits: int
    disk_hits: int
    spills: int
    beta: bytes


def trained(problem: Problem, kind: str, work: Path) -> Timing:
    """So many steps, or fewer where the violation is 1e-3 before."""
    rows = ComputedRows(problem.X, problem.point.kernel("rbf"))
    row = rows.n * rows.dtype.itemsize
    cache = None
    if kind != "none":
        disk = rows.n * row if kind == "memory and disk" else 0
        cache = RowCache(rows.n, rows.dtype, problem.kept * row, disk, work, n_rows=rows.n)
    source = rows if cache is None else CachedRows(rows, cache)
    part = new_part(problem.y, problem.point, regression=False)
    began = time.perf_counter()
    state = Textbook(shrinking=False).start_model(part, source)
    Textbook(problem.steps, shrinking=False).step_model(part, state, source)
    seconds = time.perf_counter() - began
    spills = 0 if cache is None else cache.stats().spills
    if cache is not None:
        cache.close()
    counts = rows.counts
    return Timing(seconds, counts.computed, counts.ram_hits, counts.disk_hits, spills, part.beta.tobytes())


def measured(problem: Problem, rounds: int, work: Path) -> dict[str, Timing]:
    """The run of the median time of each kind."""
    trained(problem._replace(steps=3), "memory and disk", work)
    runs: dict[str, list[Timing]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            runs[kind].append(trained(problem, kind, work))
    if len({run.beta for kind in KINDS for run in runs[kind]}) != 1:
        raise SystemExit(f"{problem.name}: a cache has changed the steps")
    return {kind: sorted(runs[kind])[len(runs[kind]) // 2] for kind in KINDS}


def rows_of(found: dict[str, tuple[Problem, dict[str, Timing]]]) -> list[dict[str, Any]]:
    """What the page is made of."""
    rows = []
    for name, (problem, runs) in found.items():
        for kind, run in runs.items():
            counts = {field: getattr(run, field) for field in ("computed", "ram_hits", "disk_hits", "spills")}
            row_bytes = len(problem.y) * 4
            rows.append({"problem": name, "row_bytes": row_bytes, "kind": kind, "seconds": run.seconds, **counts})
    return rows


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--problem", action="append", choices=list(PROBLEMS), help=f"repeatable [{', '.join(PROBLEMS)}]")
    add("--data-dir", type=Path, default=_BESIDE, help="folder of the real sets, with load.py [%(default)s]")
    add("--work", type=Path, help="folder on a disk, for the rows [a temporary one]")
    add("--rounds", type=int, default=3)
    add("--figures", type=Path, help="file of docs/figures: what the page is made of")
    add("--smoke", action="store_true", help="a second, on made-up data, to see that it works")
    return parser.parse_args()


def main() -> None:
    """Measure and report."""
    options = parse()
    with tempfile.TemporaryDirectory(prefix="bench-cache-", dir=options.work) as folder:
        if is_tmpfs(Path(folder)):
            sys.stderr.write(f"bench_cache: {folder} is in memory: say --work DIR on a disk\n")
        found = {}
        for name in [] if options.smoke else options.problem or PROBLEMS:
            problem = PROBLEMS[name](options)
            found[name] = (problem, measured(problem, options.rounds, Path(folder)))
            sys.stderr.write(f"{name}: {[round(run.seconds, 2) for run in found[name][1].values()]} s\n")
        if options.smoke:
            problem = wide(300, 20, 200, 5)
            found["smoke"] = (problem, measured(problem, 1, Path(folder)))
    rows = rows_of(found)
    if options.figures:
        write_figures(options.figures, rows)
    document = {"commit": commit(), "command": command(), "machine": meter(), "rows": rows}
    sys.stdout.write("\n".join([*kernel_cache(document), ""]))


if __name__ == "__main__":
    main()
