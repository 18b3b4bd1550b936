"""Passes on shards as a run has told them in its events.jsonl."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.run.fit.plan import make_plan
from bigsvm.solvers.shard_seconds import ShardedPass
from bigsvm.store.formats.opener import open_store
from bigsvm.units import MIB
from cluster.cages import Cage, Cluster

MODEL = ("--solver", "dcd", "--loss", "hinge", "--bias", "none")
_PROGRAM = ("-m", "bigsvm")


class Measured(NamedTuple):
    """A pass of a run, the median of those that were counted.

    work : of how many rows, shards and rounds;  workers : that had a part
    work_s : of the slowest worker in each round, its save included;  sum_s : of the rounds beside it
    caller_s : between the rounds
    """

    work: ShardedPass
    workers: int
    work_s: float
    sum_s: float
    caller_s: float

    @property
    def whole(self) -> float:
        """Seconds of the pass."""
        return self.work_s + self.sum_s + self.caller_s


def events_of(run: Path) -> list[dict[str, Any]]:
    """All events of a run's folder; a torn last line is left out."""
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines() if line.endswith("}")]


def plan_of(run: Path) -> dict[str, Any]:
    """What was decided."""
    plan: dict[str, Any] = next(event for event in events_of(run) if event["event"] == "FitStarted")["plan"]
    return plan


def counted(run: Path) -> list[dict[str, Any]]:
    """Traffic of each pass that was kept."""
    return [event for event in events_of(run) if event["event"] == "TrafficCounted"]


def measured(run: Path) -> Measured:
    """The median pass of a run's folder, without the first one, which begins with the shards.

    Raises SystemExit where no pass is left.
    """
    plan, told = plan_of(run), counted(run)
    # Two that follow one another, of which the later is one pass alone: thinned events have others between them.
    pairs = [
        (before, after)
        for before, after in pairwise(told)
        if after["rounds"] == plan["rounds_per_pass"] + 1 and not after["shards_made"]
    ]
    if not pairs:
        raise SystemExit(f"{run}: no pass of {plan['rounds_per_pass']} rounds and a save follows another one")
    kept = [
        (after["work_s"], after["sum_s"], after["at_s"] - before["at_s"] - after["work_s"] - after["sum_s"])
        for before, after in pairs
    ]
    work = ShardedPass(
        plan["data_bytes"],
        plan["n_samples"] * plan["n_models"],
        pairs[0][1]["published_bytes"] / plan["rounds_per_pass"],
        plan["shards"],
        plan["rounds_per_pass"],
    )
    parts = (statistics.median(column) for column in zip(*kept, strict=True))
    return Measured(work, pairs[0][1]["workers"], *(max(seconds, 0.0) for seconds in parts))


def fit(
    cluster: Cluster | None, store: Path, out: Path, options: Sequence[str], program: Sequence[str] = _PROGRAM,
    cage: Cage | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run `bigsvm fit` on a cluster, or on this machine's threads, run folder at `out`; gives its result.

    program : what Python is told to run
    cage : of the fit, where there is no cluster

    Raises SystemExit where it fails.
    """
    words = ["fit", str(store), "-o", f"{out}.model", "--run", str(out), *options, "--no-progress"]
    return run(cluster, words, program, cage)


def run(
    cluster: Cluster | None, words: Sequence[str], program: Sequence[str] = _PROGRAM, cage: Cage | None = None
) -> dict[str, Any]:  # fmt: skip
    """The result of a command of bigsvm, as `fit`."""
    command = [sys.executable, *program, *words, "--json"]
    if cluster is not None:
        command += ["--scheduler-file", str(cluster.file)]
        cage = cluster.caller
    enter = None if cage is None else cage.enter
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=enter)
    if done.returncode not in (0, 4):  # 4: it stopped where it was told to
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


def worker_limit(store: Path, words: Sequence[str], workers: int) -> int:
    """Bytes that each of so many workers needs, as `bigsvm plan` says: whole MiB, as its hint has it."""
    found = run(None, ["plan", str(store), *words, "--workers", str(workers)])
    return int(-(-found["cluster"]["worker_bytes"] // MIB) * MIB)


def memory_for(store: Path, shards: int, rounds: int, share: float) -> int:
    """Bytes of --memory with which such a share of the rows stays in memory, or as near above as there is."""
    data = open_store(str(store))

    def kept(memory: int) -> float:
        config = FitConfig(
            solver="dcd", loss="hinge", bias="none", memory=memory, shards=shards,
            rounds_per_pass=rounds if shards > 1 else None,
        )  # fmt: skip
        try:
            plan = make_plan(data, config)
        except PlanRefused:
            return -1.0
        return 1.0 if plan.resident else plan.row_buffer_bytes / plan.data_bytes

    low, high = 8 * MIB, 512 * MIB
    while high - low > MIB // 4:
        middle = (low + high) // 2
        low, high = (middle, high) if kept(middle) < share else (low, middle)
    return high
