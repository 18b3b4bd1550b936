#!/usr/bin/env python3
"""Millions of rows of three features, with 2 and with 20 classes: every linear solver stays within its memory.

What a solver holds for each row and each model is then larger than the rows.  Each solver and loss is fitted in the
smallest budget that is not refused, in 24 MiB more, and in the smallest that keeps all rows in memory; solvers that
train shards are fitted on four shards, too.  Anonymous memory above the base must stay within the budget.

    scripts/stress/short_rows.py --rows 2000000
    scripts/stress/short_rows.py --solvers dcd,newton-ws --classes 20
    scripts/stress/short_rows.py --smoke
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError
from bigsvm.run.fit.plan import make_plan
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from bigsvm.units import MIB, counted, show_bytes

N_FEATURES, PIECE, SHARDS, MORE = 3, 1 << 18, 4, 24 * MIB
LINEAR = [name for name, solver in SOLVERS.items() if solver.proof == "linear"]
LARGEST = 1 << 40


def write_rows(path: Path, n_samples: int, n_classes: int) -> None:
    """Normal features; the label is the class of the largest of planted scores with noise."""
    planted = np.random.default_rng(n_classes).standard_normal((N_FEATURES, n_classes))
    with ZarrWriter(path, layout="dense", dtype=np.float32, n_features=N_FEATURES) as writer:
        for start in range(0, n_samples, PIECE):
            rng = np.random.default_rng([n_classes, start])
            X = rng.standard_normal((min(PIECE, n_samples - start), N_FEATURES))
            scores = X @ planted
            writer.append(X.astype(np.float32), np.argmax(scores + rng.standard_normal(scores.shape), axis=1))
        writer.finish()


def cases(solvers: list[str]) -> Iterator[dict[str, str]]:
    """Options of a fit: solver, loss and, for solvers that train them, shards."""
    for name in solvers:
        solver = SOLVERS[name]
        for loss in ("hinge", "squared_hinge"):
            if loss in solver.losses:
                yield {"solver": name, "loss": loss}
                if solver.in_shards and name != "pegasos":  # a step a pass
                    yield {"solver": name, "loss": loss, "shards": str(SHARDS)}


def is_resident(store: RowBlocks, budget: int, options: dict[str, str]) -> bool:
    try:
        return make_plan(store, config_of(options, budget)).resident
    except BigSVMError:
        return False


def config_of(options: dict[str, str], budget: int) -> FitConfig:
    given = {name: int(value) if name == "shards" else value for name, value in options.items()}
    return FitConfig.of(**given, memory=budget)


def budgets_of(store: RowBlocks, options: dict[str, str]) -> list[int]:
    """The smallest budget, somewhat more, and the smallest that keeps all rows; shards always stream."""
    least = make_plan(store, config_of(options, LARGEST)).min_memory_bytes
    if "shards" in options:
        return [least, least + MORE]
    low, high = least // MIB, LARGEST // MIB
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_resident(store, middle * MIB, options) else (middle + 1, high)
    return [least, least + MORE, low * MIB]


def used(path: Path, options: dict[str, str], budget: int, work: Path) -> int:
    """Bytes above the base that a fit of three passes holds at most."""
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    command = [sys.executable, "-m", "bigsvm", "fit", str(path), *flags, "--memory", str(budget), "--max-passes", "3"]
    own = ["--scratch", str(work / "scratch"), "-o", str(work / "model"), "--overwrite", "--json", "--quiet"]
    done = subprocess.run([*command, *own], check=False, capture_output=True, text=True)
    if done.returncode not in (0, 4):
        raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
    memory = json.loads(done.stdout)["result"]["memory"]
    return int(memory["peak_anon_bytes"] - memory["base_bytes"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", default="2,20")
    parser.add_argument("--solvers", default=",".join(LINEAR))
    parser.add_argument("--smoke", action="store_true", help="one solver on few rows")
    asked = parser.parse_args()
    if asked.smoke:
        asked.rows, asked.classes, asked.solvers = 20_000, "6", "newton"
    n_fits, over = 0, []
    with tempfile.TemporaryDirectory(prefix="bigsvm-short-") as folder:
        work = Path(folder)
        for n_classes in map(int, asked.classes.split(",")):
            path = work / f"{n_classes}.zarr"
            write_rows(path, asked.rows, n_classes)
            store = open_store(path)
            for options in cases(asked.solvers.split(",")):
                for budget in budgets_of(store, options):
                    found = used(path, options, budget, work)
                    what = f"{n_classes} classes, {' '.join(options.values())}"
                    said = f"{what}: {show_bytes(found)} of {show_bytes(budget)}"
                    print(said, flush=True)
                    n_fits += 1
                    if found > budget:
                        over.append(said)
    for said in over:
        print(f"more than the budget: {said}")
    print(f"{n_fits - len(over)} of {counted(n_fits, 'fit')} within their memory")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
