#!/usr/bin/env python3
"""Bytes per second of every stage between the disk and the solver, beside a raw read of the same bytes.

    scripts/benchmarks/bench_io.py store.zarr --work /on/a/disk        stages of a store
    scripts/benchmarks/bench_io.py --csr DIR                           .npy files as bench_linear.py takes them
    scripts/benchmarks/bench_io.py --smoke

Every stage is a process of its own, pinned, and starts with its files out of the page cache; the stages take turns;
medians of the rounds.  Stages that read the store are held against a raw read of the store's files, those that read
the working copy against one of the copy's.  MB/s counts the bytes of these files, so a ratio is of times alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.cold import drop_pages, files_below, raw_read

MB = 1e6


def raw(folder: Path, options: argparse.Namespace) -> tuple[float, int]:
    """Every file from end to end, a MiB at a time."""
    nbytes, seconds = raw_read(files_below(folder))
    return seconds, nbytes


def verify(store: Path, options: argparse.Namespace) -> tuple[float, int]:
    """Every object of the store against the digest in its manifest."""
    from bigsvm.store.sealing.verify import verify_store

    began = time.perf_counter()
    found = verify_store(store)
    return time.perf_counter() - began, found["bytes"]


def decode(store: Path, options: argparse.Namespace) -> tuple[float, int]:
    """All rows of the store, digests checked and chunks decoded, in pieces of 4 MiB."""
    from bigsvm.store.blocks import row_bytes
    from bigsvm.store.formats.opener import open_store

    rows = open_store(store)
    return _read_blocks(rows, max(int((4 << 20) / row_bytes(rows)), 1))


def stage(store: Path, options: argparse.Namespace) -> tuple[float, int]:
    """A new working copy of the store: read, decoded, digested, written and flushed."""
    shutil.rmtree(options.scratch, ignore_errors=True)
    result, staging = _fit(store, options)
    return staging, result.figures["data_bytes"]


def reader(store: Path, options: argparse.Namespace) -> tuple[float, int]:
    """All blocks of the working copy through its reader, in order, digests checked; nothing is computed."""
    with _copy(store, options) as (rows, block_rows):
        rows.read(rows.refs(block_rows)[0])  # loads compiled kernels where the layout needs any
        return _read_blocks(rows, block_rows)


def certify(store: Path, options: argparse.Namespace) -> tuple[float, int]:
    """The certificates of a fit over the finished copy; no bytes where the proofs need no pass of their own."""
    result, _ = _fit(store, options)
    return result.seconds["certify"], int(result.figures["certificate_passes"] * result.figures["data_bytes"])


def train(store: Path, options: argparse.Namespace) -> tuple[float, int]:
    """The training passes of a fit over the finished copy, certificates taken off."""
    result, _ = _fit(store, options)
    own = result.figures["bytes_read"] - result.figures["certificate_passes"] * result.figures["data_bytes"]
    return result.seconds["solving"], int(own)


STAGES: dict[str, tuple[Callable[[Path, argparse.Namespace], tuple[float, int]], str]] = {
    "raw read of the store": (raw, "store"),
    "verify the store (digests)": (verify, "store"),
    "decode the store": (decode, "store"),
    "stage: make the working copy": (stage, "store"),
    "raw read of the working copy": (raw, "copy"),
    "working copy through its reader": (reader, "copy"),
    "certificate pass": (certify, "copy"),
    "training passes": (train, "copy"),
}


def _options(options: argparse.Namespace) -> dict[str, Any]:
    return {"loss": "hinge", "memory": options.memory, "scratch": options.scratch, "threads": options.cores}


def _fit(store: Path, options: argparse.Namespace) -> tuple[Any, float]:
    """(result of a fit of a few passes, seconds of staging)."""
    import bigsvm
    from bigsvm.events import Event, WorkEnded

    staging = 0.0

    def watch(event: Event) -> None:
        nonlocal staging
        if isinstance(event, WorkEnded) and event.what == "staging":
            staging = event.seconds

    return bigsvm.fit(str(store), emit=watch, max_passes=3, tol=1e-12, **_options(options)), staging


@contextmanager
def _copy(store: Path, options: argparse.Namespace) -> Iterator[tuple[Any, int]]:
    """(rows of the finished working copy as a fit would have them, rows worked on together)."""
    from bigsvm.budget import MemoryBudget
    from bigsvm.config import FitConfig
    from bigsvm.events import silent
    from bigsvm.run.execute.mapper import open_mapper
    from bigsvm.run.fit.open_rows import open_rows
    from bigsvm.run.fit.plan import make_plan
    from bigsvm.store.formats.opener import open_store

    config, rows = FitConfig.of(**_options(options)), open_store(store)
    plan = make_plan(rows, config)
    if plan.mode != "staged":
        raise SystemExit(f"with this budget the rows are {plan.mode}: no working copy; say a smaller --memory")
    budget = MemoryBudget(plan.budget_bytes)
    with (
        open_mapper(config) as mapper,
        open_rows(rows, plan, config, Path(options.scratch), budget, mapper, silent) as found,
    ):
        yield found[0], plan.block_rows * plan.group_blocks


def _read_blocks(rows: Any, block_rows: int) -> tuple[float, int]:
    release = rows.release
    began, nbytes = time.perf_counter(), 0
    for ref in rows.refs(block_rows):
        nbytes += rows.read(ref).nbytes
        release(ref)
    return time.perf_counter() - began, nbytes


def _decoded_bytes(rows: Any) -> int:
    from bigsvm.store.blocks import row_bytes

    return int(row_bytes(rows) * rows.n_samples)


def measure(name: str, store: Path, scratch: Path, options: argparse.Namespace) -> dict[str, float]:
    """One stage in a process of its own, cold; in a smoke in this one, but for the first.

    Starting one takes longer than a stage does then.
    """
    for folder in (store, scratch):
        drop_pages(folder)
    if options.smoke and name != next(iter(STAGES)):
        return done_here(name, store, argparse.Namespace(**{**vars(options), "scratch": str(scratch)}))
    command = [
        sys.executable, __file__, str(store), "--child", name, "--scratch", str(scratch),
        "--memory", str(options.memory), "--cores", str(options.cores),
    ]  # fmt: skip
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    )
    return json.loads(done.stdout)


def done_here(name: str, store: Path, options: argparse.Namespace) -> dict[str, float]:
    """One stage in this process."""
    if STAGES[name][0] is raw:
        seconds, nbytes = raw(store if STAGES[name][1] == "store" else Path(options.scratch), options)
    else:
        seconds, nbytes = STAGES[name][0](store, options)
    return {"seconds": seconds, "bytes": nbytes}


def report(runs: dict[str, list[dict[str, float]]], sizes: dict[str, int], options: argparse.Namespace) -> dict:
    """Medians and ratios."""
    stages = []
    plain = {}
    for name, several in runs.items():
        of = STAGES[name][1]
        seconds = statistics.median(one["seconds"] for one in several)
        nbytes = statistics.median(one["bytes"] for one in several)
        if name.startswith("raw"):
            plain[of] = seconds / nbytes
        # A pass over the copy reads its own bytes; a stage of the store answers for all of the store's files.
        file_bytes = sizes[of] if of == "store" else nbytes
        rates: dict[str, float | None] = {"mb_per_s": None, "times_raw": None}
        if nbytes and seconds:
            rates = {"mb_per_s": nbytes / seconds / MB, "times_raw": seconds / (plain[of] * file_bytes)}
        stages.append({"stage": name, "of": of, "seconds": seconds, "bytes": int(nbytes), **rates, "runs": several})
    return {
        "store_bytes": sizes["store"], "copy_bytes": sizes["copy"], "cores": options.cores, "memory": options.memory,
        "repeats": options.repeats, "stages": stages,
    }  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    """The report as a table."""
    lines = [
        f"Store {found['store_bytes'] / MB:,.1f} MB, working copy {found['copy_bytes'] / MB:,.1f} MB; "
        f"{found['cores']} core(s), cold, medians of {found['repeats']}.",
        "",
        "MB/s: bytes that the stage gives, decoded where it decodes.  Times raw: its time over that of a raw read",
        "of the same files.",
        "",
        "| stage | seconds | MB/s | times raw |",
        "|---|---|---|---|",
    ]
    for row in found["stages"]:
        rates = "- | -" if row["mb_per_s"] is None else f"{row['mb_per_s']:,.0f} | {row['times_raw']:.2f}"
        lines.append(f"| {row['stage']} | {row['seconds']:.3f} | {rates} |")
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("store", nargs="?", type=Path, help="a sealed store [built in: 200,000 sparse rows]")
    add("--csr", type=Path, metavar="DIR", help="a problem as .npy files")
    add("--rows", type=int, default=200_000, help="of the built-in problem")
    add("--memory", help="budget that decides the layout of the copy [a tenth of the data, or the least that does]")
    add("--cores", type=int, default=1)
    add("--repeats", type=int, default=3)
    add("--work", type=Path, help="folder for store and working copy, on a disk; a temporary one by default")
    add("--markdown", type=Path, help="file for the report [standard output]")
    add("--json", type=Path)
    add("--smoke", action="store_true", help="a few seconds, to see that it works")
    add("--child", choices=STAGES, help=argparse.SUPPRESS)
    add("--scratch", help=argparse.SUPPRESS)
    return parser.parse_args()


def budget_of(store: Path, asked: str | None) -> int:
    """Bytes: as asked, or a tenth of the data, or the least that a plan takes."""
    from bigsvm.config import FitConfig
    from bigsvm.errors import PlanRefused
    from bigsvm.run.fit.plan import make_plan
    from bigsvm.store.formats.opener import open_store
    from bigsvm.units import parse_bytes

    rows = open_store(store)
    budget = _decoded_bytes(rows) // 10 if asked is None else parse_bytes(asked)
    try:
        make_plan(rows, FitConfig.of(loss="hinge", memory=budget))
    except PlanRefused as error:
        return max(error.min_memory_bytes or budget, budget)
    return budget


def main() -> None:
    """Measure and report."""
    options = parse()
    if options.child:
        print(json.dumps(done_here(options.child, options.store, options)))
        return
    if options.smoke:
        options.rows, options.repeats = 40_000, 1
    with tempfile.TemporaryDirectory(prefix="bench-io-", dir=options.work) as folder:
        work = Path(folder).resolve()
        store = options.store or _store_of(options, work)
        options.memory = budget_of(store, options.memory)
        scratch = work / "scratch"
        scratch.mkdir()
        # Compiles what is not in the cache yet, and makes the first copy.
        for name in ["stage: make the working copy"] if options.smoke else STAGES:
            measure(name, store, scratch, options)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in STAGES}
        for _ in range(options.repeats):
            for name in STAGES:
                runs[name].append(measure(name, store, scratch, options))
        sizes = {"store": drop_pages(store), "copy": drop_pages(scratch)}
    found = report(runs, sizes, options)
    if options.markdown:
        options.markdown.write_text(markdown(found))
    else:
        sys.stdout.write(markdown(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _store_of(options: argparse.Namespace, work: Path) -> Path:
    from bench.problems import demo_problem, open_problem

    problem = open_problem(options.csr, "csr", work) if options.csr else demo_problem(options.rows, work)
    return problem.store


if __name__ == "__main__":
    main()
