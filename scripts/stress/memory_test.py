#!/usr/bin/env python3
"""Data 10 and 50 times larger than the budget, in a hard cgroup of budget + 256 MiB, page cache included.

Ingest, fit, certify and predict run in the cage and without it.  None may be killed, anonymous memory above the base
stays within the budget, and the cage costs no more than 1.3 times the time.  Then: impossible budgets are refused
within 5 s, and the smallest budget that the refusal names does work, in a cage of its own.

    scripts/stress/memory_test.py --memory 40MiB --times 10,50
    scripts/stress/memory_test.py --smoke
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.demo_rows import ROW_BYTES, write_problem
from bigsvm.store.text.dump import dump
from bigsvm.units import MIB, parse_bytes, show_bytes

CAGE = Path(__file__).parent / "memory_cage.py"
OVERHEAD = 256 * MIB
SLOWER = 1.3
COMMANDS = ("ingest", "fit", "certify", "predict")


def drop_cache(folder: Path) -> None:
    """Write a folder's pages back and let them leave the page cache: every run starts cold."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def run(arguments: list[object], limit: int | None, work: Path) -> tuple[float, dict[str, Any]]:
    """Seconds and document of a bigsvm command, in a cage of `limit` bytes or free."""
    drop_cache(work)
    command = [sys.executable, "-m", "bigsvm", *map(str, arguments), "--json", "--quiet"]
    cage = [sys.executable, str(CAGE), "none" if limit is None else str(limit), "--"]
    began = time.monotonic()
    done = subprocess.run([*cage, *command], check=False, capture_output=True, text=True)
    seconds = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stdout}\n{done.stderr}")
    report = json.loads(done.stderr.strip().splitlines()[-1])
    if report.get("oom_kills"):
        raise SystemExit(f"killed: {report}")
    return seconds, json.loads(done.stdout)


def one_size(times: float, budget: int, work: Path, slower: float, compared: Sequence[str] = COMMANDS) -> None:
    """All commands on data `times` the budget; those `compared` caged at most `slower` times as slow as free."""
    rows, text, store, model = int(times * budget) // ROW_BYTES, work / "rows.svm", work / "rows.zarr", work / "m"
    write_problem(work / "made.zarr", rows)
    dump(open_store(str(work / "made.zarr")), text, overwrite=True)
    memory = ["--memory", budget]
    scratch = ["--scratch", work / "scratch"]
    commands: dict[str, list[object]] = {
        "ingest": ["ingest", text, store, *memory, "--overwrite"],
        "fit": ["fit", store, "--loss", "hinge", *memory, *scratch, "-o", model, "--overwrite"],
        "certify": ["certify", model, store, *memory],
        "predict": ["predict", model, store, *memory, "-o", work / "labels.csv", "--overwrite"],
    }
    for name, command in commands.items():
        seconds = {}
        for limit in (budget + OVERHEAD, None) if name in compared else (budget + OVERHEAD,):
            subprocess.run(["rm", "-rf", str(work / "scratch")], check=True)
            seconds[limit], document = run(command, limit, work)
            if limit is not None:
                caged = document
        used = caged["result"].get("memory") or {}
        over = used["peak_anon_bytes"] - used["base_bytes"] if used else None
        free = seconds.get(None, math.inf)
        ratio = seconds[budget + OVERHEAD] / free
        said = "" if name not in compared else f", {free:.1f} s free, ratio {ratio:.2f}"
        said += "" if over is None else f", {show_bytes(over)} above the base"
        sys.stdout.write(f"{times:g} x {show_bytes(budget)}, {name}: {seconds[budget + OVERHEAD]:.1f} s caged{said}\n")
        sys.stdout.flush()
        if over is not None and over > budget:
            raise SystemExit(f"{name}: {over} bytes above the base, the budget is {budget}")
        if ratio > slower and free > 5:
            raise SystemExit(f"{name}: {ratio:.2f} times the time")


def refusal(work: Path) -> None:
    """An impossible budget is refused at once; the one it names works."""
    command = [sys.executable, "-m", "bigsvm", "fit", str(work / "rows.zarr"), "--memory", "1MiB", "--json"]
    began = time.monotonic()
    done = subprocess.run([*command, "-o", str(work / "n")], check=False, capture_output=True, text=True)
    seconds = time.monotonic() - began
    smallest = json.loads(done.stdout)["error"]["min_memory_bytes"]
    written = [path.name for path in (work / "n", work / "n.run") if path.exists()]
    if done.returncode != 78 or written:
        raise SystemExit(f"exit {done.returncode} after {seconds:.1f} s: {done.stderr}")
    sys.stdout.write(f"1 MiB: refused after {seconds:.1f} s; {smallest} bytes would do\n")
    fit = ["fit", work / "rows.zarr", "--memory", smallest, "--scratch", work / "scratch", "-o", work / "n"]
    _, document = run([*fit, "--overwrite", "--max-passes", "4", "--allow-unconverged"], smallest + OVERHEAD, work)
    used = document["result"]["memory"]
    over = used["peak_anon_bytes"] - used["base_bytes"]
    sys.stdout.write(f"{smallest} bytes: done, {over} above the base\n")
    if over > smallest:
        raise SystemExit("more than the budget")


def main() -> None:
    """Run all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=parse_bytes, default=40 * MIB)
    parser.add_argument("--times", default="10,50", help="sizes of the data over the budget")
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="1.05 times a budget of 30 MiB; all in the cage alone")
    options = parser.parse_args()
    if options.smoke:
        options.times, options.memory = "1.05", 30 * MIB
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        for times in options.times.split(","):
            slower, compared = (math.inf, ()) if options.smoke else (SLOWER, COMMANDS)
            one_size(float(times), options.memory, Path(folder), slower, compared)
            subprocess.run(["rm", "-rf", str(Path(folder) / "made.zarr")], check=True)
        refusal(Path(folder))


if __name__ == "__main__":
    main()
