#!/usr/bin/env python3
"""A change of speed: the same fits by two trees of this repository, in turns, beside what the machine does just then.

Each case is fitted by the old tree and by the new one, one after the other, as often as `--pairs` says; the order
changes from pair to pair.  A fit of two passes by each tree goes before, so that nothing is compiled or staged in what
is measured.  Problems are drawn at run time: the seed is printed, and `--seed` gives the same ones again.  What counts
is the ratio of a pair; of all pairs the median is shown, with the least and the largest.

    scripts/benchmarks/compare.py main HEAD
    scripts/benchmarks/compare.py main . --only 'sparse*' --pairs 5 --json compare.json
    scripts/benchmarks/compare.py --smoke           tiny problems, this tree against itself
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench.machine_speed import machine_speed
from bench.record import commit, meter

sys.path.append(str(Path(__file__).resolve().parents[1]))
from same.trees import checked_out, named

FITTER = Path(__file__).resolve().parent / "bench" / "timed_fits.py"
_TINY = 50  # times fewer rows in a smoke


class Case(NamedTuple):
    """A problem and how it is fitted.

    rows, features, entries : of the problem; entries of a row, or 0 for dense rows;  classes : 2 or more
    options : of `bigsvm.fit`
    """

    name: str
    rows: int
    features: int
    entries: int
    options: dict[str, Any]
    classes: int = 2

    def make(self, seed: int, rows: int, work: Path) -> Path:
        """The problem as a store: a planted direction a class, noise, and 4 % of the labels wrong."""
        rng = np.random.default_rng([seed, len(self.name), self.features])
        directions = rng.standard_normal((self.features, self.classes))
        if self.entries:
            import scipy.sparse as sp

            drawn = (self.features ** rng.random((rows, self.entries))).astype(np.int32) - 1
            drawn.sort(axis=1)
            kept = np.ones(drawn.shape, bool)
            kept[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
            values = (rng.random(drawn.shape) + 0.5) * np.log(2.0 + drawn) * kept
            values /= np.sqrt((values * values).sum(axis=1, keepdims=True))
            indptr = np.concatenate(([0], np.cumsum(kept.sum(axis=1))))
            X = sp.csr_array((values[kept].astype(np.float32), drawn[kept], indptr), shape=(rows, self.features))
        else:
            X = (rng.standard_normal((rows, self.features)) / np.sqrt(self.features)).astype(np.float32)
        scores = X @ directions
        y = np.argmax(scores + 0.1 * scores.std() * rng.standard_normal(scores.shape), axis=1)
        wrong = rng.random(rows) < 0.04
        y[wrong] = (y[wrong] + 1) % self.classes
        import bigsvm

        bigsvm.ingest((X, y), work / f"{self.name}.zarr")
        return work / f"{self.name}.zarr"


CASES = (
    Case("sparse-hinge-streamed", 600_000, 100_000, 60, {"loss": "hinge", "memory": "40MiB"}),
    Case("sparse-hinge-memory", 300_000, 100_000, 60, {"loss": "hinge", "memory": "2GiB"}),
    Case("sparse-squared-streamed", 600_000, 100_000, 60, {"memory": "40MiB"}),
    Case("dense-hinge-memory", 200_000, 100, 0, {"loss": "hinge", "memory": "2GiB"}),
    Case("sparse-20-classes-memory", 60_000, 30_000, 60, {"loss": "hinge", "memory": "2GiB"}, 20),
    Case("wide-squared-C100-memory", 100_000, 5000, 40, {"C": 100.0, "memory": "2GiB"}),
    Case("rbf-memory", 10_000, 30, 0, {"kernel": "rbf", "gamma": 0.5, "memory": "1GiB"}),
)


class Fitter:
    """A process that fits with the bigsvm of one tree."""

    def __init__(self, tree: Path, scratch: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        self._scratch = scratch
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(FITTER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, cwd=scratch,
        )  # fmt: skip

    def fit(self, store: Path, options: dict[str, Any]) -> dict[str, Any]:
        """What the fit was worth, or {'refused': why}."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"store": str(store), "options": {**options, "scratch": str(self._scratch)}}
        # A process that has ended cannot be written to: its exit code says why.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a fit of {store.name} ended its process with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Fitter:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def compare(case: Case, fitters: tuple[Fitter, Fitter], store: Path, pairs: int) -> dict[str, Any]:
    """Fit a case by both trees, in turns; each pair's figures, with the machine's speed before it."""
    line: dict[str, Any] = {"case": case.name, "options": case.options, "pairs": []}
    for fitter in fitters:
        found = fitter.fit(store, {**case.options, "max_passes": 2})
        if "refused" in found:
            return {**line, "refused": found["refused"]}
    for number in range(pairs):
        speed, found = machine_speed(store), {}
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            found[("old", "new")[which]] = fitters[which].fit(store, case.options)
        line["pairs"].append({**found, "machine": speed._asdict()})
    return line


def shown(line: dict[str, Any]) -> str:
    """A line of the table: the ratio new / old of CPU and wall seconds, passes, gaps, and the machine's speed."""
    if "refused" in line:
        return f"| {line['case']} | refused: {line['refused']} | | | | |"
    pairs = line["pairs"]

    def ratios(what: str) -> str:
        found = [pair["new"][what] / max(pair["old"][what], 1e-9) for pair in pairs]
        return f"{statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f})"

    old, new = pairs[-1]["old"], pairs[-1]["new"]
    seconds = " -> ".join(f"{statistics.median(pair[which]['cpu'] for pair in pairs):.2f}" for which in ("old", "new"))
    speeds = [pair["machine"]["gather_ns"] for pair in pairs]
    told = (
        line["case"], seconds, ratios("cpu"), ratios("wall"), f"{old['passes']:.0f} -> {new['passes']:.0f}",
        f"{old['gap']:.1e} -> {new['gap']:.1e}", f"{min(speeds):.1f}-{max(speeds):.1f}",
    )  # fmt: skip
    return f"| {' | '.join(told)} |"


def main() -> None:
    """Parse the command line and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", default=".", help="a commit, or a folder")
    parser.add_argument("new", nargs="?", default=".")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases by name")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None, help="of the problems; drawn anew where it is not given")
    parser.add_argument("--work", type=Path, default=None, help="an existing folder for stores and scratch files")
    parser.add_argument("--json", type=Path, default=None, help="write every pair's figures there")
    parser.add_argument("--smoke", action="store_true", help="tiny problems, this tree against itself, one pair")
    asked = parser.parse_args()
    seed = secrets.randbelow(1 << 30) if asked.seed is None else asked.seed
    cases = [case for case in CASES if fnmatch.fnmatch(case.name, asked.only)]
    pairs = 1 if asked.smoke else asked.pairs
    print(f"problems of seed {seed}; {meter()}")
    print("| case | CPU s | CPU new/old | wall new/old | passes | gap | gathers, ns |\n|---|---|---|---|---|---|---|")
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.work, prefix="compare-")))
        trees = [stack.enter_context(checked_out(named(what), None, work)) for what in (asked.old, asked.new)]
        folders = [work / which for which in ("old", "new")]
        for folder in folders:
            folder.mkdir()
        old, new = (stack.enter_context(Fitter(tree, folder)) for tree, folder in zip(trees, folders, strict=True))
        lines = []
        for case in cases:
            store = case.make(seed, case.rows // (_TINY if asked.smoke else 1), work)
            lines.append(compare(case, (old, new), store, pairs))
            print(shown(lines[-1]), flush=True)
    if asked.json is not None:
        head = {"commit": commit(), "old": asked.old, "new": asked.new, "seed": seed, "machine": meter()}
        asked.json.write_text(json.dumps({**head, "lines": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
