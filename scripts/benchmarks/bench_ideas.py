#!/usr/bin/env python3
"""What the ideas of five papers are worth today: each in its best setting beside dcd, newton-ws and smo.

    scripts/benchmarks/bench_ideas.py --figures docs/figures/ideas.json --plot docs/plots/ideas.svg
    scripts/benchmarks/bench_ideas.py --smoke

The same problem for all, rows in memory, to gaps that are proved: 1e-2, 1e-4 and 1e-6.  A pass is n visits of rows; of
a kernel, n^2 kernel values asked for.  Seconds are of the processor, all of a fit but compiling.  Data are a folder
with load.py, as for reproduction/reproduce.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where the package `reproduction` is

import numpy as np
from bench.passages import ideas
from bench.plot import Curve, Panel, draw_panels
from bench.record import ROOT, command, commit, meter, write_figures
from reproduction.sets import DataSet, made_up, open_folder

import bigsvm

_BESIDE = ROOT.parent / "shared" / "data"
TOLERANCES = ("1e-2", "1e-4", "1e-6")


class Entry(NamedTuple):
    """A solver with options of a fit, and whose idea it is; '' of those that all are compared with."""

    label: str
    idea: str
    options: dict[str, Any]


class Problem(NamedTuple):
    """Options of every fit, and who fits."""

    title: str
    rows: str
    options: dict[str, Any]
    entries: tuple[Entry, ...]


_DCD = Entry("dcd", "Wang: dual coordinate descent", {"solver": "dcd"})
_NEWTON = Entry("newton-ws", "", {"solver": "newton-ws"})
_HINGE = (
    _DCD, _NEWTON,
    Entry("hyperpass", "HyperPass: exact steps from plane to plane, with L-BFGS", {"solver": "hyperpass"}),
    Entry("hyperpass-shrink", "HyperPass: fewer and fewer rows", {"solver": "hyperpass-shrink"}),
)  # fmt: skip
_SQUARED = (
    _DCD, _NEWTON,
    Entry("rosenbrock, model", "Rosenbrock: directions that turn, on a quadratic model",
          {"solver": "rosenbrock", "solver_options": {"plan": "model"}}),
    Entry("newton", "", {"solver": "newton"}),
)  # fmt: skip
_KERNEL = (
    Entry("smo", "", {"solver": "smo"}),
    Entry("smo, wr", "WSS-WR: no variable twice", {"solver": "smo", "wss": "wr"}),
    Entry("smo, wr+3", "WSS-WR as a start, WSS3 from there", {"solver": "smo", "wss": "wr+3"}),
    Entry("rosen-block", "Rosen: projected conjugate gradients, bounds released in blocks", {"solver": "rosen-block"}),
)
PROBLEMS = (
    Problem("ijcnn1, hinge, C = 1", "ijcnn1", {"loss": "hinge", "C": 1.0}, _HINGE),
    Problem("ijcnn1, hinge, C = 100", "ijcnn1", {"loss": "hinge", "C": 100.0}, _HINGE),
    Problem("ijcnn1, squared hinge, C = 10", "ijcnn1", {"loss": "squared_hinge", "C": 10.0}, _SQUARED),
    Problem("a9a, 3000 rows, rbf, C = 8", "a9a 3000", {"kernel": "rbf", "gamma": 2.0**-5, "C": 8.0}, _KERNEL),
)


def rows_of(name: str, data: Any) -> DataSet:
    """Rows by the name of a problem's set: 'a9a 3000' are 3000 random ones of a9a."""
    stored, *some = name.split()
    X, y = data.load(stored)
    y = np.where(np.asarray(y) > 0, 1, -1)
    if some:
        at = np.sort(np.random.default_rng(7).permutation(len(y))[: int(some[0])])
        X, y = X[at], y[at]
    return DataSet(name, X, y, "")


def line(problem: Problem, entry: Entry, rows: DataSet, passes: float) -> dict[str, Any]:
    """Fits to one gap after the other, until one is not reached."""
    row: dict[str, Any] = {"problem": problem.title, "solver": entry.label, "idea": entry.idea, "to": {}}
    asked = {**problem.options, **entry.options}
    bigsvm.fit((rows.X, rows.y), tol=0.5, max_passes=2.0, **asked)  # compiles
    for tol in TOLERANCES:
        began = time.process_time()
        found = bigsvm.fit((rows.X, rows.y), tol=float(tol), max_passes=passes, **asked)
        gap = float(found.figures["relative_gap"])
        reached = found.status == "converged"
        done = float(found.figures["epochs"])
        if "kernel_values" in found.figures:
            done = float(found.figures["kernel_values"]) / len(rows.y) ** 2
        seconds = time.process_time() - began
        row["to"][tol] = {"reached": reached, "passes": done, "seconds": seconds, "gap": gap}
        if not reached:
            break
    return row


def drawn(rows: list[dict[str, Any]]) -> list[Panel]:
    """A panel a problem."""
    panels: dict[str, list[Curve]] = {}
    for row in rows:
        points = [(to["seconds"], to["passes"], max(to["gap"], 1e-9)) for to in row["to"].values()]
        panels.setdefault(row["problem"], []).append(Curve(row["solver"], points))
    return [Panel(title, curves, (1e-8, 1.0)) for title, curves in panels.items()]


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("BIGSVM_TEST_DATA", _BESIDE)))
    parser.add_argument("--passes", type=float, default=400.0, help="of a fit, at most: a limit that no load changes")
    parser.add_argument("--figures", type=Path, help="where the JSON goes")
    parser.add_argument("--plot", type=Path, help="where the picture goes; needs matplotlib")
    parser.add_argument("--smoke", action="store_true", help="200 rows of random numbers")
    options = parser.parse_args()
    data = None if options.smoke else open_folder(options.data)
    rows, sets = [], {}
    for problem in PROBLEMS:
        if problem.rows not in sets:
            small = made_up(200, 4, 1) if options.smoke else None
            sets[problem.rows] = small or rows_of(problem.rows, data)
        for entry in problem.entries:
            rows.append(line(problem, entry, sets[problem.rows], options.passes))
            sys.stderr.write(f"{problem.title}, {entry.label}: {rows[-1]['to']}\n")
            if options.figures:
                write_figures(options.figures, rows, tolerances=list(TOLERANCES))
    document = {
        "commit": commit(),
        "command": command(),
        "machine": meter(),
        "tolerances": list(TOLERANCES),
        "rows": rows,
    }
    if options.plot:
        draw_panels(options.plot, drawn(rows))
    sys.stdout.write("\n".join(ideas(document)) + "\n")


if __name__ == "__main__":
    main()
