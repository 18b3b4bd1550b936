"""Fits of real rows, each with the page that `bigsvm report` makes of its run and of rows that the fit never saw."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.store.ingest.ingest import ingest


@dataclass(frozen=True)
class Kind:
    """One fit to look at.

    name : of the set, as its `load` knows it;  rows : of its training part, at most;  options : of `bigsvm fit`
    """

    name: str
    rows: int
    options: tuple[str, ...]
    regression: bool = False


KINDS = {
    "linear": Kind("a9a", 10**9, ("--loss", "hinge")),
    "digits": Kind("mnist", 10_000, ("--memory", "256MiB", "--scale", "maxabs")),
    "rbf": Kind("a9a", 4_000, ("--kernel", "rbf", "--gamma", "0.05")),
    "values": Kind("cpusmall", 10**9, ("--loss", "epsilon_insensitive", "--scale", "standard", "--c", "0.1"), True),
}  # fmt: skip


def pages_of(data: Path, out: Path, kinds: list[str]) -> dict[str, Path]:
    """Fit each kind and make its page; kind -> page, beside which lie KIND.model, KIND.model.run and KIND-test.zarr.

    data : a folder with a `load.py` that has `load(name, part)`.  Raises SystemExit where there is none.
    """
    load = _loader(data)
    pages = {}
    for name in kinds:
        kind = KINDS[name]
        train, test = _parts(load, kind)
        for part, rows in (("train", train), ("test", test)):
            task = "regression" if kind.regression else "classification"
            ingest(rows, out / f"{name}-{part}.zarr", task=task, overwrite=True)
        model, page = out / f"{name}.model", out / f"{name}.html"
        call("fit", out / f"{name}-train.zarr", *kind.options, "-o", model, "--overwrite", "--quiet")
        call("report", f"{model}.run", "--data", out / f"{name}-test.zarr", "-o", page, "--overwrite", "--quiet")
        pages[name] = page
    return pages


def call(*words: Any) -> str:
    """Standard output of a bigsvm command, which must succeed."""
    command = [sys.executable, "-m", "bigsvm", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bigsvm {' '.join(command[3:])} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def _parts(load: Any, kind: Kind) -> tuple[Any, Any]:
    """(rows to train on, other rows): the set's own parts, else four fifths and the rest of it."""
    X, y = load.load(kind.name)
    if kind.regression:
        order = np.random.default_rng(0).permutation(len(y))
        cut = 4 * len(y) // 5
        return (X[order[:cut]], y[order[:cut]]), (X[order[cut:]], y[order[cut:]])
    return (X[: kind.rows], y[: kind.rows]), load.load(kind.name, "test")


def _loader(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("real_data", folder / "load.py")
    if spec is None or spec.loader is None or not (folder / "load.py").exists():
        raise SystemExit(f"there is no {folder / 'load.py'}: name the folder of the sets with --data")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
