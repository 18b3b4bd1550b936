#!/usr/bin/env python3
"""Take parts of a cluster away while a sharded fit or an ingest runs on it: the bytes are those of no cluster.

    workers    a worker is killed after a pass and every two seconds on average, and another started in its place
    frozen     a worker is stopped (SIGSTOP) for 30 seconds: after 5 (--ttl) it counts as dead; a late result is dropped
    scheduler  the scheduler is killed: exit 75, and `bigsvm resume` on another cluster
    client     the fit itself is killed (SIGKILL): `bigsvm resume` on the same cluster
    ingest     of an ingest of Parquet files whose workers write the chunks: workers are killed as they read,
               as they write, and with results that nobody has fetched; the scheduler is (exit 74); the caller is.
               Where it has not ended the same command comes again; nothing is left beside the store

After each the model directories are the same, byte by byte.  A fit that takes longer than `--patience` seconds hangs,
and ends the script.  Scheduler, workers and fits are the programs of the command line, with a scheduler file.

    scripts/stress/cluster_test.py --fits 5
    scripts/stress/cluster_test.py --smoke
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from on_cluster.ingests import Ingests
from on_cluster.processes import Cluster

from bigsvm.store.ingest.demo_rows import write_problem

TTL_S = 5
FROZEN_S = 30.0
KILLED_EVERY_S = 2.0
_HELD = """
import sys
from bigsvm.cli.main import main
from bigsvm.observe.jsonl import JsonlFile

record, held = JsonlFile.__call__, []

def hold(self, event):
    record(self, event)
    if type(event).__name__ == "TrafficCounted" and not held:
        held.append(sys.stdin.readline())

JsonlFile.__call__ = hold
main()
"""
"""A fit that stands still after its first pass until a line comes: it has not ended when something happens to it."""


class Trial:
    """One problem, its model without a cluster, and ways to disturb the making of it on one."""

    def __init__(self, work: Path, options: argparse.Namespace) -> None:
        self.work, self.options = work, options
        self.random = random.Random(options.seed)
        self.store = options.store or work / "rows.zarr"
        if not options.store:
            write_problem(self.store, options.rows)
        began = time.monotonic()
        self.ended(self.start(self.fit("reference", "--scheduler", "serial")), 0)
        self.seconds = time.monotonic() - began

    def fit(self, name: str, *where: str) -> list[str]:
        options = self.options
        return [
            *("fit", str(self.store), "--solver", options.solver, "--loss", options.loss, "--memory", options.memory),
            *("--tol", str(options.tol), "--shards", str(options.shards)),
            *(("--rounds-per-pass", str(options.rounds)) if options.solver == "dcd" else ()),
            *(("--bias", options.bias) if options.bias else ()),
            *(word for own in options.set for word in ("--set", own)),
            *("--checkpoint-every", "0.5s", "--scratch", str(self.work / "scratch"), *where),
            *("-o", str(self.work / f"{name}.model")),
        ]

    def start(self, arguments: list[str], held: bool = False) -> subprocess.Popen[str]:
        program, pipe = ("-c", _HELD) if held else ("-m", "bigsvm"), subprocess.PIPE
        command = [sys.executable, *program, *arguments, "--json", "--no-progress"]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def started_on(self, cluster: Cluster, name: str) -> subprocess.Popen[str]:
        """A fit on a cluster that has done a pass and stands still."""
        fit = self.start(self.fit(name, "--scheduler-file", str(cluster.wait(self.options.patience))), held=True)
        if not self.training(fit, name):
            raise SystemExit("the fit was over before anything could happen to it")
        return fit

    def go_on(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    def ended(self, process: subprocess.Popen[str], code: int) -> dict[str, Any]:
        """The document of a fit that ends with `code`, in time."""
        try:
            out, err = process.communicate(timeout=self.options.patience)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SystemExit(f"it hangs: no end after {self.options.patience:g} s") from None
        if process.returncode != code:
            raise SystemExit(f"exit {process.returncode} instead of {code}\n{err[-3000:]}\n{out[-1000:]}")
        found: dict[str, Any] = json.loads(out) if out else {}
        return found

    def training(self, process: subprocess.Popen[str], name: str) -> bool:
        """Wait until the fit has done a pass; whether it is still running."""
        events = self.work / f"{name}.model.run" / "events.jsonl"
        while process.poll() is None:
            with contextlib.suppress(OSError):
                if '"TrafficCounted"' in events.read_text():
                    return True
            time.sleep(0.05)
        return False

    def cluster(self, name: str) -> Cluster:
        return Cluster(self.work / name, self.options.workers, self.options.ttl)

    def kill_workers(self, name: str) -> str:
        cluster, kills = self.cluster(f"{name}-cluster"), 0
        try:
            fit = self.started_on(cluster, name)
            while fit.poll() is None and kills < self.options.kills:
                cluster.replace(self.random.randrange(self.options.workers))
                kills += 1
                if kills == 1:
                    self.go_on(fit)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    fit.wait(self.random.expovariate(1.0 / KILLED_EVERY_S))
            made = self.ended(fit, 0)["result"]["cluster"]
        finally:
            cluster.close()
        self.compare(name)
        again = made["shards_made"] - self.options.shards
        return f"{kills} workers killed, {again} shards made again, {made['rounds_replayed']} rounds replayed"

    def freeze(self, name: str) -> str:
        cluster = self.cluster(f"{name}-cluster")
        frozen = cluster.workers[0]
        try:
            fit = self.started_on(cluster, name)
            frozen.send_signal(signal.SIGSTOP)
            self.go_on(fit)
            with contextlib.suppress(subprocess.TimeoutExpired):
                fit.wait(FROZEN_S)
            early = fit.poll() is not None
            frozen.send_signal(signal.SIGCONT)
            made = self.ended(fit, 0)["result"]["cluster"]
        finally:
            cluster.close()
        self.compare(name)
        when = "over while it was frozen" if early else "went on when it was back"
        return f"{when}; {made['shards_made'] - self.options.shards} shards made again"

    def kill_scheduler(self, name: str) -> str:
        first = self.cluster(f"{name}-cluster")
        try:
            fit = self.started_on(first, name)
            first.scheduler.kill()
            began = time.monotonic()
            self.go_on(fit)
            self.ended(fit, 75)
            took = time.monotonic() - began
        finally:
            first.close()
        self.resume(name)
        return f"exit 75 after {took:.0f} s, resumed on another cluster"

    def kill_client(self, name: str) -> str:
        cluster = self.cluster(f"{name}-cluster")
        try:
            fit = self.started_on(cluster, name)
            fit.kill()
            fit.communicate()
            self.resume(name, cluster)
        finally:
            cluster.close()
        return "killed, resumed on the same cluster"

    def resume(self, name: str, cluster: Cluster | None = None) -> None:
        other = cluster or self.cluster(f"{name}-other")
        try:
            run = str(self.work / f"{name}.model.run")
            self.ended(self.start(["resume", run, "--scheduler-file", str(other.wait(self.options.patience))]), 0)
        finally:
            if cluster is None:
                other.close()
        self.compare(name)

    def compare(self, name: str) -> None:
        one, two = self.work / "reference.model", self.work / f"{name}.model"
        for file in sorted({path.name for folder in (one, two) for path in folder.iterdir()}):
            if not (two / file).exists() or (one / file).read_bytes() != (two / file).read_bytes():
                raise SystemExit(f"{two / file} differs")
        if left := list(self.work.glob("scratch/**/.shards*")):
            raise SystemExit(f"left behind: {left}")


def main() -> None:
    """Run all trials and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=3, help="of each kind")
    parser.add_argument("--kills", type=int, default=20, help="workers killed in a fit, at most")
    parser.add_argument("--only", choices=("workers", "frozen", "scheduler", "client", "ingest"))
    parser.add_argument("--ingest", choices=("workers", "scheduler", "client"), help="of ingests, this one alone")
    parser.add_argument("--solver", default="dcd")
    parser.add_argument("--loss", default="hinge", help="one that the solver takes")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--bias", choices=["augmented", "none", "free"])
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the solver's own"
    )
    parser.add_argument("--store", type=Path, help="a store of other rows, with labels")
    parser.add_argument("--memory", default="40MiB")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ttl", type=float, default=TTL_S, help="seconds after which a silent worker counts as dead")
    parser.add_argument("--patience", type=float, default=900.0, help="seconds that a fit may take")
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="one scheduler is killed, small")
    options = parser.parse_args()
    if options.smoke:
        options.fits, options.workers, options.only = 1, 1, "scheduler"
        options.rows, options.tol, options.memory = 20_000, 2e-2, "29MiB"
        options.shards, options.rounds = 2, 8
        options.ttl = options.patience  # the test suite runs on machines that do much else
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        for kind, disturbed in kinds(Path(folder), options):
            for number in range(options.fits):
                began = time.monotonic()
                said = disturbed(f"{kind}{number}")
                sys.stdout.write(f"{kind}: same bytes after {time.monotonic() - began:.0f} s; {said}\n")
                sys.stdout.flush()


def kinds(work: Path, options: argparse.Namespace) -> Iterator[tuple[str, Callable[[str], str]]]:
    """(name, trial) of what was asked for."""
    if options.only != "ingest":
        trial = Trial(work, options)
        sys.stdout.write(f"without a cluster: {trial.seconds:.1f} s\n")
        of_fits = {
            "workers": trial.kill_workers,
            "frozen": trial.freeze,
            "scheduler": trial.kill_scheduler,
            "client": trial.kill_client,
        }
        yield from ((kind, disturbed) for kind, disturbed in of_fits.items() if options.only in (None, kind))
    if options.only in (None, "ingest"):
        ingests = Ingests(work, options)
        for which in ("workers", "scheduler", "client") if options.ingest is None else [options.ingest]:
            yield f"ingest-{which}", getattr(ingests, which)


if __name__ == "__main__":
    main()
