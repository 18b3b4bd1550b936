#!/usr/bin/env python3
"""The bars of a fit on a cluster, on worker processes of this machine, each in a cage (`scripts/cluster/cages.py`).

    passes      passes to a gap of 1e-3 by the number of shards and rounds: counts, which depend on no clock
    traffic     bytes that come to a worker and through the caller in a pass, as TrafficCounted has them
    caller      seconds of CPU of the caller in a round, 64 shards, a million features
    memory      each worker in a cgroup of what `plan --workers` says that it needs
    delays      every sum takes 20, 100 and 500 ms longer: the law of passes and rounds, and the rounds of the plan
    disks       one worker and two, each with a part of a core and a slow disk of its own
    in-memory   one worker and two, each with a part of a core, rows in memory
    counts      passes of two shards beside those of one machine
    others      an ingest and predictions with a kernel on one worker and on two

    scripts/benchmarks/bench_cluster.py --only traffic memory --figures docs/figures/cluster.json
    scripts/benchmarks/bench_cluster.py --only passes --figures docs/figures/cluster-passes.json
    scripts/benchmarks/bench_cluster.py --smoke

Where FILE of --figures is there, rows of what was not measured now stay as they were.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where the package `cluster` is

from bench.record import command, commit, meter, write_figures
from cluster import delays, others, pair
from cluster.bars import Row, bar
from cluster.cages import Cluster
from cluster.passes import MODEL, counted, fit, memory_for, plan_of, worker_limit
from cluster.rows import write_rows

from bigsvm.solvers.shard_seconds import ShardedPass, pass_seconds
from bigsvm.solvers.shards import rounds_for
from bigsvm.units import MIB

TRAFFIC = 1.4  # of w and its change, to one worker, where workers are a power of two
CALLER = 0.2  # of a core


_STAMPED = """
import json, sys, time
from bigsvm.cli.main import main
from bigsvm.observe.jsonl import JsonlFile

record, stamps = JsonlFile.__call__, open(sys.argv.pop(1), "w")

def stamp(self, event):
    record(self, event)
    if type(event).__name__ == "TrafficCounted":
        line = {"rounds": event.rounds, "cpu_s": time.process_time(), "wall_s": time.monotonic()}
        print(json.dumps(line), file=stamps, flush=True)

JsonlFile.__call__ = stamp
main()
"""
"""A fit that says after each pass how much CPU its process has used."""


class Size(NamedTuple):
    """Of one bar: rows, features, shards, rounds, passes."""

    rows: int
    features: int
    shards: int
    rounds: int
    passes: int


def passes(work: Path, smoke: bool) -> Iterator[Row]:
    """Passes to 1e-3 with a quarter of the rows kept: on threads of this process, since bits are the same anywhere."""
    n, features = (2_000, 500) if smoke else (200_000, 50_000)
    grid = [(1, 1), (4, 16), (4, 64), (16, 16), (16, 64)]
    store = work / "passes.zarr"
    write_rows(store, n, features)
    for shards, rounds in grid[:2] if smoke else grid:
        shape = ["--shards", str(shards)] + (["--rounds-per-pass", str(rounds)] if shards > 1 else [])
        memory = memory_for(store, shards, rounds, 0.25)
        out = work / f"passes-{shards}-{rounds}"
        words = ["--memory", f"{memory}b", "--max-passes", "100", "--scratch", str(work / "scratch")]
        result = fit(None, store, out, [*MODEL, *shape, *words])
        plan = plan_of(out)
        yield {
            "problem": f"{plan['n_samples']:,} x {features:,}",
            "shards": shards, "rounds": plan["rounds_per_pass"], "kept": plan["row_buffer_bytes"] / plan["data_bytes"],
            "passes": round(result["passes"]), "gap": result["relative_gap"],
        }  # fmt: skip


def traffic(work: Path, smoke: bool) -> Iterator[Row]:
    """Bytes of a pass against those of w and its change."""
    size = Size(2_000, 1_000, 2, 4, 3) if smoke else Size(60_000, 100_000, 16, 64, 3)
    store = work / "traffic.zarr"
    write_rows(store, size.rows, size.features)
    for workers in (1,) if smoke else (4, 2):
        with Cluster(work / f"traffic-{workers}", workers) as cluster:
            out = work / f"traffic-run-{workers}"
            fit(cluster, store, out, options(work, size))
        plan, events = plan_of(out), counted(out)
        row_bytes = max(event["row_bytes"] for event in events[1:])  # the first has the staging
        worker = max(event["worker_bytes"] for event in events[1:])
        caller = max(event["published_bytes"] + event["gathered_bytes"] for event in events[1:])
        both = 2 * 4 * size.features * plan["rounds_per_pass"]  # w and its change, float32
        what = f"{workers} workers, {size.shards} shards, {plan['rounds_per_pass']} rounds, d = {size.features:,}"
        yield bar("traffic", what, "bytes to a worker in a round, of w and its change", worker / both, TRAFFIC)
        yield bar("traffic", what, "bytes through the caller in a round, of w and its change", caller / both, 1.05)
        yield bar("traffic", what, "bytes of row vectors and blocks, of the data", row_bytes / plan["data_bytes"], 0.02)


def caller(work: Path, smoke: bool) -> Iterator[Row]:
    """CPU of the caller alone: the scheduler is another process."""
    size = Size(2_000, 1_000, 2, 4, 3) if smoke else Size(64_000, 1_000_000, 64, 8, 3)
    store = work / "caller.zarr"
    write_rows(store, size.rows, size.features)
    with Cluster(work / "caller", 1 if smoke else 4, None if smoke else 0.25) as cluster:
        out = work / "caller-run"
        fit(cluster, store, out, [*options(work, size), "--memory", "2GiB"], ("-c", _STAMPED, str(work / "stamps")))
    stamps = [json.loads(line) for line in (work / "stamps").read_text().splitlines()]
    rounds = sum(stamp["rounds"] for stamp in stamps[1:])
    cpu, wall = (stamps[-1][name] - stamps[0][name] for name in ("cpu_s", "wall_s"))
    what = f"{size.shards} shards, d = {size.features:,}, {1000 * cpu / rounds:.0f} ms of CPU in a round"
    yield bar("caller", what, f"part of a core, in rounds of {wall / rounds:.2f} s of 4 workers", cpu / wall, CALLER)
    terabyte = ShardedPass(1e12, 2e9, 4e6, 64, rounds_for(64, 4_000_000, 10**12))
    nominal = pass_seconds(terabyte, 64).whole / terabyte.rounds
    told = f"cores, in rounds of {nominal:.2f} s: nominal for 1 TB on 64 workers"
    yield bar("caller", what, told, cpu / rounds / nominal, CALLER)


def memory(work: Path, smoke: bool) -> Iterator[Row]:
    """Workers in cgroups of what the plan says, page cache included."""
    size = Size(2_000, 1_000, 2, 4, 3) if smoke else Size(300_000, 20_000, 8, 16, 2)
    store = work / "memory.zarr"
    write_rows(store, size.rows, size.features)
    for budget in ("64MiB",) if smoke else ("64MiB", "128MiB"):
        asked = [*options(work, size), "--memory", budget]
        limit = worker_limit(store, asked, 2)
        with Cluster(work / f"memory-{budget}", 2, None, limit) as cluster:
            fit(cluster, store, work / f"memory-run-{budget}", asked)
            kills, peak = sum(cage.kills() for cage in cluster.cages), max(cage.peak() for cage in cluster.cages)
        what = f"2 workers of {limit / MIB:.0f} MiB for --memory {budget}, peak {peak / MIB:.0f} MiB with page cache"
        yield bar("memory", what, "workers killed", float(kills), 0.0)


def options(work: Path, size: Size) -> list[str]:
    """Of a fit that ends after so many passes."""
    return [
        *(*MODEL, "--memory", "256MiB", "--scratch", str(work / "scratch"), "--shards", str(size.shards)),
        *("--rounds-per-pass", str(size.rounds), "--max-passes", str(size.passes), "--tol", "1e-4"),
    ]


BARS: dict[str, Callable[[Path, bool], Iterator[Row]]] = {
    "traffic": traffic, "caller": caller, "memory": memory, "delays": delays.measure, "disks": pair.disks,
    "in-memory": pair.in_memory, "counts": pair.counts, "others": others.measure,
}  # fmt: skip


def main() -> None:
    """Measure what was asked for; print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("passes", *BARS), help="all, or passes and traffic with --smoke")
    parser.add_argument("--figures", type=Path, help="JSON for docs/figures")
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="small")
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        for name in given.only or (["passes", "traffic"] if given.smoke else list(BARS)):
            for row in (passes if name == "passes" else BARS[name])(Path(folder), given.smoke):
                print(json.dumps(row), flush=True)
                rows.append({**row, "at": commit(), "by": command(), "machine": meter()})
    if given.figures:
        if given.figures.exists():
            old = json.loads(given.figures.read_text())["rows"]
            rows = [row for row in old if row.get("bar") not in {row.get("bar") for row in rows}] + rows
        write_figures(given.figures, rows)


if __name__ == "__main__":
    main()
