#!/usr/bin/env python3
"""Constants that were chosen by measuring: their values, on what they were chosen, and how they do elsewhere.

    scripts/tuned.py --data ../shared/data            measures anew and writes docs/tuned.json and docs/tuned.md
    scripts/tuned.py --page                           the page, of the figures that are there
    scripts/tuned.py --smoke                          a few seconds, on made-up rows, writes nothing

What is counted (steps, epochs, kernel values) does not depend on the load of the machine.  A constant that was chosen
by seconds is listed, and not checked here.  The data are a folder with a `load.py`, as of reproduction/reproduce.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "benchmarks"))  # where the package `bench` is
sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the package `reproduction` is

from reproduction.report import paragraph, table
from reproduction.rosen import follow
from reproduction.sets import made_up, open_folder, scaled

import bigsvm
from bigsvm.problem.kernel import rbf_of_width
from bigsvm.solvers.kernel.rosen.rosen import Rosen

ROOT = Path(__file__).resolve().parents[1]
_BESIDE = ROOT.parent / "shared" / "data"
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of the constant's value, at which it is tried."""
Rows = tuple[np.ndarray, np.ndarray]


class Tuned(NamedTuple):
    """A constant: where it is, on what it was chosen, what is counted, and by whom; no `count`: only seconds decide."""

    name: str
    where: str
    attribute: str
    on: str
    counted: str = ""
    count: Callable[[Rows, Any], float] | None = None
    sets: tuple[str, ...] = ()
    whole: bool = False

    @property
    def value(self) -> Any:
        """As the code has it."""
        place: Any = importlib.import_module(self.where)
        for part in self.attribute.split("."):
            place = getattr(place, part)
        return place


def steps_of_rosen(rows: Rows, theta: float) -> float:
    """Steps to 1e-3 with conjugate directions, C = 10, sigma = the number of features."""
    X, y = rows[0][:300], rows[1][:300]
    done = follow(Rosen(full=True, theta=theta), rbf_of_width(float(X.shape[1])).matrix(X, X), y, 10.0, 1e-3, 100_000)
    return float("inf") if done is None else float(done.iterations)


def epochs_of_hyperpass(**options: str) -> Callable[[Rows, Any], float]:
    """Epochs of `hyperpass` to a relative gap of 1e-6; lambda = 1e-3."""
    (name,) = options

    def count(rows: Rows, value: Any) -> float:
        asked = {name: f"{value:g}"}
        result = bigsvm.fit(rows, solver="hyperpass", loss="hinge", lam=1e-3, tol=1e-6, solver_options=asked)
        return float(result.figures["epochs"]) if result.status == "converged" else float("inf")

    return count


def kernel_values(where: str, attribute: str) -> Callable[[Rows, Any], float]:
    """Values of `smo`, rbf, C = 10, to 1e-3, in millions."""

    def count(rows: Rows, value: Any) -> float:
        with mock.patch.object(importlib.import_module(where), attribute, value):
            result = bigsvm.fit(rows, solver="smo", kernel="rbf", C=10.0, tol=1e-3)
        return float(result.figures["kernel_values"]) / 1e6

    return count


_SMALL = ("german", "australian", "splice")
_KERNEL = ("pendigits, odd", "cpusmall, above the median")
_SMO, _ACTIVE = "bigsvm.solvers.kernel.smo.smo", "bigsvm.solvers.kernel.smo.member"
_MILLIONS = "million kernel values"
CONSTANTS = (
    Tuned("theta", "bigsvm.solvers.kernel.rosen.rosen", "Rosen.theta", "the six sets of the paper's Table 1",
          "steps", steps_of_rosen, _SMALL),
    Tuned("eps_act", "bigsvm.solvers.hyperpass.hyperpass", "HyperPass.eps_act", "MNIST, 0 against all", "epochs",
          epochs_of_hyperpass(eps_act=""), _SMALL),
    Tuned("near", "bigsvm.solvers.hyperpass.hyperpass", "HyperPass.near", "MNIST, 0 against all", "epochs",
          epochs_of_hyperpass(near=""), _SMALL, True),
    Tuned("rows of a working set", _SMO, "_Q", "a9a, ijcnn1, MNIST", _MILLIONS, kernel_values(_SMO, "_Q"),
          _KERNEL, True),
    Tuned("share to which an active set is solved", _ACTIVE, "_SHARE_MEMORY", "the kernel suite (a9a, ijcnn1, w8a)",
          _MILLIONS, kernel_values(_ACTIVE, "_SHARE_MEMORY"), _KERNEL),
    Tuned("features of a cheap Newton pass", "bigsvm.solvers.auto", "_NARROW", "kddcup99, MNIST, dense"),
    Tuned("rows worth keeping", "bigsvm.solvers.auto", "_WORTH_KEEPING", "kddcup99, MNIST, dense"),
    Tuned("sample of newton-ws", "bigsvm.solvers.newton_ws.working_pass", "_SAMPLE", "MNIST, kddcup99, w8a, dense"),
    Tuned("what momentum may clip", "bigsvm.solvers.dcd.momentum", "_CLIPPED", "kddcup99, w8a"),
    Tuned("a long kernel row", "bigsvm.run.fit.cache_plan", "LONG_ROW", "ijcnn1, a9a, MNIST, wide"),
)  # fmt: skip


def read(folder: Path) -> dict[str, Rows]:
    """The sets that nothing was chosen on."""
    data = open_folder(folder)

    def dense(name: str) -> tuple[np.ndarray, np.ndarray]:
        X, y = data.load(name)
        return np.asarray(X.todense() if hasattr(X, "todense") else X, np.float64), np.asarray(y, np.float64)

    sets = {}
    for name, stored in (("german", "german.numer_scale"), ("australian", "australian"), ("splice", "splice")):
        X, y = dense(stored)
        sets[name] = (scaled(X), np.where(y > 0, 1.0, -1.0))
    X, y = dense("pendigits")
    sets["pendigits, odd"] = (scaled(X), np.where(y % 2 == 1, 1.0, -1.0))
    X, y = dense("cpusmall")
    sets["cpusmall, above the median"] = (scaled(X), np.where(y > np.median(y), 1.0, -1.0))
    return sets


def measure(sets: dict[str, Rows], constants: tuple[Tuned, ...]) -> list[dict[str, Any]]:
    """For each constant its value, and the counts at multiples of it by set."""
    found = []
    for one in constants:
        tried = {}
        for name in one.sets if one.count else ():
            assert one.count is not None
            at = [max(round(one.value * factor), 1) if one.whole else one.value * factor for factor in FACTORS]
            tried[name] = [[value, one.count(sets[name], value)] for value in at]
            sys.stderr.write(f"{one.name}, {name}: {tried[name]}\n")
        found.append({"name": one.name, "value": one.value, "tried": tried})
    return found


def page(found: list[dict[str, Any]]) -> str:
    """docs/tuned.md."""
    by = {one.name: one for one in CONSTANTS}
    lines = [
        "# Constants that were chosen by measuring", "",
        paragraph("""No paper gives these constants. Each was chosen on the sets in the column "chosen on", so its
            figures on those sets flatter it. The table shows what each constant does on other sets, on which no
            constant was chosen: at its value, and at a quarter, half, two times and four times that value. Counts do
            not depend on the machine. Constants that were chosen by seconds are not checked, because seconds on a
            shared machine would say nothing."""), "",
    ]  # fmt: skip
    rows: list[list[object]] = []
    worst: list[tuple[float, str]] = []
    for one in found:
        tuned = by[one["name"]]
        for name, tried in one["tried"].items() or [("not checked", [])]:
            counts = [count for _, count in tried]
            cells = [f"{count:.4g}" for count in counts] or [""] * len(FACTORS)
            if counts:
                excess = counts[FACTORS.index(1.0)] / min(counts)
                worst.append((excess, f"{one['name']}, {name}"))
                cells.append(f"{excess:.2f}")
            else:
                cells.append("")
            where = tuned.where.replace(".", "/") + ".py"
            rows.append([tuned.name, f"`{where}`", f"{one['value']:g}", tuned.on, name, tuned.counted, *cells])
    head = ["constant", "file", "value", "chosen on", "other set", "counted",
            *("the value" if factor == 1.0 else f"x {factor:g}" for factor in FACTORS), "over the best"]  # fmt: skip
    lines += table(head, rows)
    if worst:
        far, near = max(worst), sum(excess <= 1.1 for excess, _ in worst)
        said = f"""In {near} of {len(worst)} lines the count at the value is at most a tenth above the smallest count of
            the line. The largest ratio of the two is that of {far[1]} ({far[0]:.2f})."""
        lines.append(paragraph(said))
    return "\n".join([*lines, "", "Made by `scripts/tuned.py`; figures in `tuned.json`.", ""])


def main() -> None:
    """Measure, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("BIGSVM_TEST_DATA", _BESIDE)))
    parser.add_argument("--smoke", action="store_true", help="made-up rows; writes nothing")
    parser.add_argument("--page", action="store_true", help="the page anew, of the figures that are there")
    options = parser.parse_args()
    if options.smoke:
        drawn = {name: made_up(60, 3, k)[1:3] for k, name in enumerate((*_SMALL, *_KERNEL))}
        sys.stdout.write(page(measure(drawn, CONSTANTS)))
        return
    figures = ROOT / "docs" / "tuned.json"
    if not options.page:
        figures.write_text(json.dumps(measure(read(options.data), CONSTANTS), indent=1) + "\n")
    (ROOT / "docs" / "tuned.md").write_text(page(json.loads(figures.read_text())))


if __name__ == "__main__":
    main()
