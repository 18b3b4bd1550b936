"""Ingests on a cluster of which parts are killed while workers write: the same store, and nothing beside it."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from on_cluster.doomed import FOLDER, MOMENTS
from on_cluster.ingesting import write_parts
from on_cluster.processes import Cluster

_HERE = Path(__file__).resolve().parent
_FILES, _ROWS = 24, 6_000
_LOST = 74  # the exit code of an ingest whose cluster is gone
_APART = 3  # parts that are made between two kills, at most


class Ingests:
    """A folder of Parquet files, its store without a cluster, and ways to disturb the making of it on one."""

    def __init__(self, work: Path, options: argparse.Namespace) -> None:
        self.work, self.options, self.random = work, options, random.Random(options.seed)
        self.parts, self.others = work / "parts", work / "others"
        write_parts(self.parts, _FILES, _ROWS)
        write_parts(self.others, 2, 100, seed=1)
        self.ended(self.start(self.parts, work / "reference.zarr"), 0)
        self.reference = files_of(work / "reference.zarr")

    def workers(self, name: str) -> str:
        """Workers are killed at moments of their work, and with results that nobody has fetched."""
        folder, cluster = self.begin(name)
        kills, lost = dict.fromkeys(MOMENTS, 0), 0
        try:
            caller = self.start(self.parts, folder / "rows.zarr", cluster, "--held")
            self.held(caller)
            self.idle(cluster)
            for number in range(self.random.randint(0, len(cluster.workers))):
                cluster.replace(number)
                lost += 1
            self.go_on(caller)
            while sum(kills.values()) < self.options.kills:
                moment = self.random.choice(MOMENTS)
                if not self.made(name, self.random.randint(0, _APART), caller):
                    break
                self.want(name, moment)
                if not self.stands(name, caller):
                    break
                cluster.replace(self.who_stands(name, cluster))
                kills[moment] += 1
            self.let_go(name)
            self.ended(caller, 0)
        finally:
            cluster.close()
        self.compare(folder)
        return f"workers killed: {lost} with results, " + ", ".join(f"{n} {moment}" for moment, n in kills.items())

    def scheduler(self, name: str) -> str:
        """The scheduler is killed: an error, and the same command again on another cluster."""
        folder, first = self.begin(name)
        moment = self.random.choice(MOMENTS)
        try:
            self.want(name, moment)
            caller = self.start(self.parts, folder / "rows.zarr", first)
            if not self.stands(name, caller):
                raise SystemExit("the ingest was over before anything could happen to it")
            first.scheduler.kill()
            self.let_go(name)
            began = time.monotonic()
            said = self.ended(caller, _LOST).strip().splitlines()[-1]
            took = time.monotonic() - began
            if left := list(folder.iterdir()):
                raise SystemExit(f"left behind: {left}")
        finally:
            first.close()
        other = self.cluster(f"{name}-other")
        try:
            self.ended(self.start(self.parts, folder / "rows.zarr", other), 0)
        finally:
            other.close()
        self.compare(folder)
        return (
            f"at the moment {moment!r} of a worker: exit {_LOST} after {took:.0f} s ({said}), again on another cluster"
        )

    def client(self, name: str) -> str:
        """The caller is killed: the same command again, while a worker of the first still writes."""
        folder, cluster = self.begin(name)
        store, moment, former = folder / "rows.zarr", self.random.choice(MOMENTS), self.random.random() < 0.5
        options = ("--overwrite",) if former else ()
        try:
            if former:
                self.ended(self.start(self.others, store), 0)
            before = files_of(store)
            caller = self.start(self.parts, store, cluster, "--held", *options)
            self.held(caller)
            self.idle(cluster)
            self.want(name, moment)
            self.go_on(caller)
            if not self.stands(name, caller):
                raise SystemExit("the ingest was over before anything could happen to it")
            caller.kill()
            caller.communicate()
            if files_of(store) != before:
                raise SystemExit("a caller that was killed has changed what was there")
            left = len(list(folder.iterdir())) - (1 if former else 0)
            again = self.start(self.parts, store, cluster, *options)
            self.let_go(name)
            self.ended(again, 0)
        finally:
            cluster.close()
        self.compare(folder)
        how = "over a former store" if former else "where nothing was"
        return (
            f"killed at the moment {moment!r} of a worker, {how}; {left} folder left, until the same command came again"
        )

    def begin(self, name: str) -> tuple[Path, Cluster]:
        folder = self.work / name
        folder.mkdir()
        return folder, self.cluster(name)

    def cluster(self, name: str) -> Cluster:
        doom = self.doom(name)
        doom.mkdir()
        (doom / "made").touch()
        # More workers are killed here than dask lets die of one task (3): docs/cluster.md says how.
        allowed = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000"}
        environment = {FOLDER: str(doom), "PYTHONPATH": _path(), **allowed}
        preload = ("--preload", str(_HERE / "doomed.py"))
        made = Cluster(self.work / f"{name}-cluster", self.options.workers, self.options.ttl, preload, environment)
        made.wait(self.options.patience)
        return made

    def start(self, parts: Path, store: Path, cluster: Cluster | None = None, *how: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(_HERE / "ingesting.py"), str(parts), str(store), *how]
        if cluster is not None:
            command += ["--scheduler-file", str(cluster.file)]
        pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": _path()}
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)

    def held(self, caller: subprocess.Popen[str]) -> None:
        """Wait until the caller stands before the first chunk of a worker."""
        assert caller.stdout is not None
        if caller.stdout.readline() != "held\n":
            raise SystemExit(f"no worker has made a chunk\n{caller.communicate()[1][-3000:]}")

    def go_on(self, caller: subprocess.Popen[str]) -> None:
        assert caller.stdin is not None
        caller.stdin.write("\n")
        caller.stdin.flush()

    def ended(self, caller: subprocess.Popen[str], code: int) -> str:
        """What a caller says that ends with `code`, in time."""
        try:
            _, err = caller.communicate(timeout=self.options.patience)
        except subprocess.TimeoutExpired:
            caller.kill()
            raise SystemExit(f"it hangs: no end after {self.options.patience:g} s") from None
        if caller.returncode != code:
            raise SystemExit(f"exit {caller.returncode} instead of {code}\n{err[-3000:]}")
        return err

    def idle(self, cluster: Cluster) -> None:
        """Wait until no worker has anything to do: what is made then waits there for a caller that stands."""
        from distributed import Client

        with Client(scheduler_file=str(cluster.file), set_as_default=False) as client:
            while any(client.processing().values()):
                time.sleep(0.05)

    def doom(self, name: str) -> Path:
        return self.work / f"{name}-doom"

    def want(self, name: str, moment: str) -> None:
        (self.doom(name) / f"wanted-{moment}").touch()

    def stands(self, name: str, caller: subprocess.Popen[str]) -> bool:
        """Wait until a worker stands where one is wanted; False where the caller has ended before."""
        while not self.who(name):
            if caller.poll() is not None:
                return False
            time.sleep(0.02)
        return True

    def who(self, name: str) -> list[Path]:
        return [path for path in self.doom(name).iterdir() if path.name.isdigit()]

    def who_stands(self, name: str, cluster: Cluster) -> int:
        """The number of the worker that stands still, which is forgotten."""
        (taken,) = self.who(name)
        number = [worker.pid for worker in cluster.workers].index(int(taken.name))
        cluster.workers[number].kill()
        taken.unlink()
        return number

    def made(self, name: str, more: int, caller: subprocess.Popen[str]) -> bool:
        """Wait until so many more parts are made; False where the caller has ended before."""
        log = self.doom(name) / "made"
        until = log.stat().st_size + more
        while log.stat().st_size < until:
            if caller.poll() is not None:
                return False
            time.sleep(0.02)
        return True

    def let_go(self, name: str) -> None:
        """Whoever stands goes on, and nobody is wanted any more."""
        for path in self.doom(name).iterdir():
            if path.name != "made":
                path.unlink()

    def compare(self, folder: Path) -> None:
        """The store is that of no cluster, and nothing else is there."""
        if (found := sorted(path.name for path in folder.iterdir())) != ["rows.zarr"]:
            raise SystemExit(f"beside the store: {found}")
        files = files_of(folder / "rows.zarr")
        if names := sorted(files.keys() ^ self.reference.keys()):
            raise SystemExit(f"files that only one of two stores has: {names[:5]}")
        if names := [name for name, content in files.items() if content != self.reference[name]]:
            raise SystemExit(f"{names[:5]} differ")


def files_of(store: Path) -> dict[str, bytes]:
    """All files below a folder, and empty folders."""
    found = store.rglob("*")
    return {
        str(path.relative_to(store)): path.read_bytes() if path.is_file() else b"" for path in found
        if path.is_file() or not any(path.iterdir())
    }  # fmt: skip


def _path() -> str:
    return os.pathsep.join([str(_HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
