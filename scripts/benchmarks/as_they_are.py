#!/usr/bin/env python3
"""Real sets as they come, unscaled, with default options and with `--loss hinge`: nothing may look like a hang.

For each fit: seconds of CPU from the start of training on (loading compiled code left out), the proved gap, the exit
code, the solver, and the first warning.  A fit that passes has proved its gap within --cpu seconds, or has warned
before training with a remedy and ended with exit 4 and the gap that it has.  One that takes more than ten times --cpu
is killed.  Beside the sets of the data folder (with a `load.py`) two are drawn here: one like letter (26 classes,
16 numbers of 0 to 15), one like covtype (7 classes, 10 columns of metres and degrees, 44 indicators).  Sets of targets
are fitted with both epsilon-insensitive losses.

    scripts/benchmarks/as_they_are.py --data-dir ../shared/data
    scripts/benchmarks/as_they_are.py --only 'pendigits*' --set C=10 --memory 64MiB
    scripts/benchmarks/as_they_are.py --smoke
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_BESIDE = Path(os.environ.get("BIGSVM_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
_TARGETS = ("abalone_scale", "housing", "mpg", "cpusmall")
_KILLED_AT = 10.0  # times the CPU seconds that a fit may take
Rows = tuple[Any, np.ndarray]


def letter_like(rows: int = 20_000, seed: int = 3) -> Rows:
    """26 classes around centres of their own, 16 whole numbers from 0 to 15."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 26, rows)
    centres = rng.uniform(3.0, 12.0, (26, 16))
    X = np.clip(np.rint(centres[y] + rng.normal(0.0, 2.2, (rows, 16))), 0, 15)
    return X, y.astype(float)


def covtype_like(rows: int = 100_000, seed: int = 3) -> Rows:
    """7 classes that heights above sea decide in part; 10 columns of up to 7000, and one of 4 and one of 40 ones."""
    rng = np.random.default_rng(seed)
    height, slope = rng.normal(2950.0, 280.0, rows), rng.gamma(3.0, 4.7, rows)
    aspect, shade = rng.uniform(0.0, 360.0, rows), rng.normal(220.0, 25.0, (rows, 3)).clip(0, 254)
    away = rng.gamma(1.5, [180.0, 30.0, 1500.0, 1300.0], (rows, 4)).clip(0, 7200)
    area, soil = rng.integers(0, 4, rows), rng.integers(0, 40, rows)
    score = (height + 4.0 * soil - 0.02 * away[:, 2] + 60.0 * area + rng.normal(0.0, 130.0, rows)) / 280.0
    y = np.searchsorted(np.quantile(score, [0.05, 0.36, 0.85, 0.9, 0.93, 0.965]), score)
    X = np.column_stack((height, aspect, slope, away, shade, np.eye(4)[area], np.eye(40)[soil]))
    return np.rint(X), y.astype(float)


_DRAWN: dict[str, Callable[[], Rows]] = {"letter-like": letter_like, "covtype-like": covtype_like}


def _loader(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("bigsvm_real_data", folder / "load.py")
    if spec is None or spec.loader is None or not (folder / "load.py").exists():
        raise SystemExit(f"there is no {folder / 'load.py'}: say --data-dir, or --only '*-like'")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _losses(name: str) -> tuple[str, str]:
    """The default, and the one with a corner."""
    if name in _TARGETS:
        return "squared_epsilon_insensitive", "epsilon_insensitive"
    return "squared_hinge", "hinge"


def fit_one(name: str, loss: str, options: dict[str, Any], data_dir: Path, rows: int) -> dict[str, Any]:
    """One fit in this process, and what it took."""
    import bigsvm
    from bigsvm.events import COMPILING, WorkEnded

    X, y = _DRAWN[name]() if name in _DRAWN else _loader(data_dir).load(name)
    X, y = X[: rows or None], y[: rows or None]
    trained_from = [time.process_time()]

    def note(event: Any) -> None:
        if isinstance(event, WorkEnded) and event.what == COMPILING:
            trained_from[0] = time.process_time()

    began = time.process_time()
    source = bigsvm.open_store((X, y), task="regression" if name in _TARGETS else None)
    result = bigsvm.fit(source, loss=loss, emit=note, **options)
    loaded, now = trained_from[0] - began, time.process_time() - began
    figures = result.figures
    return {
        "rows": X.shape[0], "features": X.shape[1], "models": len(figures["models"]), "cpu_s": now - loaded,
        "loaded_s": loaded, "gap": figures["relative_gap"], "exit": 0 if result.status == "converged" else 4,
        "status": result.status, "solver": figures["solver"], "why": result.model.about["plan"]["why"],
        "passes": figures["passes"], "epochs": figures["epochs"], "warnings": result.warnings,
    }  # fmt: skip


def _in_child(name: str, loss: str, options: argparse.Namespace) -> dict[str, Any]:
    """`fit_one` in a process of its own, which ends at a limit of CPU seconds."""
    most = int(_KILLED_AT * options.cpu) + 30

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))

    asked = json.dumps([name, loss, dict(options.set), str(options.data_dir), options.rows])
    command = [sys.executable, __file__, "--child", asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"killed after {most} s of CPU"])[-1]
        return {"error": said, "exit": done.returncode}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def passed(found: dict[str, Any], cpu_s: float) -> bool:
    """Proved in time, or warned of with a remedy and ended honestly."""
    if "error" in found:
        return False
    proved = found["exit"] == 0 and found["cpu_s"] <= cpu_s
    remedy = any("--scale maxabs" in said for said in found["warnings"])
    return proved or (remedy and found["cpu_s"] <= _KILLED_AT * cpu_s and found["exit"] in (0, 4))


def _line(name: str, loss: str, found: dict[str, Any], cpu_s: float) -> str:
    mark = "ok  " if passed(found, cpu_s) else "MISS"
    if "error" in found:
        return f"{mark} {name:22s} {loss:28s} {found['error']}"
    said = found["warnings"][0] if found["warnings"] else "-"
    return (
        f"{mark} {name:22s} {loss:28s} {found['cpu_s']:7.2f} s  gap {found['gap']:.1e}  exit {found['exit']}  "
        f"{found['solver']:10s} {found['epochs']:9.1f} epochs  {found['passes']:7.1f} passes  {said[:90]}"
    )


def _setting(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, value


def main() -> None:
    """Fit what is asked for; 1 where a fit missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data-dir", type=Path, default=_BESIDE, help="folder of the real sets, with load.py [%(default)s]")
    add("--only", default="*", help="sets that match")
    add("--cpu", type=float, default=10.0, help="seconds of CPU that a fit may take [%(default)s]")
    add("--rows", type=int, default=0, help="no more than so many of each set")
    add("--set", type=_setting, action="append", default=[], metavar="OPTION=VALUE", help="option of every fit")
    add("--json", type=Path, help="where the figures go")
    add("--smoke", action="store_true", help="a few rows of what is drawn here")
    add("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, loss, given, data_dir, rows = json.loads(options.child)
        sys.stdout.write(json.dumps(fit_one(name, loss, given, Path(data_dir), rows)) + "\n")
        return
    if options.smoke:
        options.only, options.rows = "letter-like", 400
    names = [*_DRAWN] if options.smoke else [*_DRAWN, *_loader(options.data_dir).names()]
    lines, missed = [], 0
    for name in names:
        if not fnmatch.fnmatch(name, options.only):
            continue
        for loss in _losses(name)[1:] if options.smoke else _losses(name):
            if options.smoke:
                found = fit_one(name, loss, dict(options.set), options.data_dir, options.rows)
            else:
                found = _in_child(name, loss, options)
            missed += not passed(found, options.cpu)
            sys.stdout.write(_line(name, loss, found, options.cpu) + "\n")
            sys.stdout.flush()
            lines.append({"set": name, "loss": loss, **found, "passed": passed(found, options.cpu)})
    if options.json:
        options.json.write_text(json.dumps({"cpu_s": options.cpu, "lines": lines}, indent=1) + "\n")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
