"""A scheduler and workers, each worker in cgroups of its own: a stated part of a core, and a stated memory.

Workers that share two cores hinder one another, and others on the machine hinder them.  A quota makes a worker as slow
as it would be on a core of that speed, however many there are; a large weight lets it have its quota on a busy machine.
`Cluster.cpu` says what each has used, so that a reader sees whether it did.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "stress"))  # where memory_cage is

from memory_cage import device_of, parents_of

_PERIOD_US = 4000  # of a quota: short beside a round
_WEIGHT = 8192  # eight times that of a process: the quota is to be had where others are at work
_PATIENCE_S = 120.0


class Cage:
    """Groups of one process.

    cores : part of a core that it may use; None: no limit
    memory : bytes, page cache included; None: no limit
    disk : bytes a second that it may read from the device below `folder`; None: no limit.  Pages in memory are free

    Raises SystemExit where the kernel has no such groups for us.
    """

    def __init__(
        self,
        name: str,
        cores: float | None = None,
        memory: int | None = None,
        disk: int | None = None,
        folder: Path = Path("."),
    ) -> None:
        self.groups: dict[str, Path] = {}
        quota = None if cores is None else int(cores * _PERIOD_US)
        if quota is not None:
            v1 = {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": quota, "cpu.shares": _WEIGHT}
            self._make("cpu", name, v1, {"cpu.max": f"{quota} {_PERIOD_US}", "cpu.weight": 800})
        if memory is not None:
            self._make("memory", name, {"memory.limit_in_bytes": memory}, {"memory.max": memory})
        if disk is not None:
            device = device_of(folder)
            v1 = {"blkio.throttle.read_bps_device": f"{device} {disk}"}
            self._make("blkio", name, v1, {"io.max": f"{device} rbps={disk}"})

    def _make(self, controller: str, name: str, v1: dict[str, Any], v2: dict[str, Any]) -> None:
        for parent in parents_of(controller):
            group = parent / f"bigsvm-{os.getpid()}-{name}"
            try:
                group.mkdir(exist_ok=True)
                for file, value in (v1 if (group / next(iter(v1))).exists() else v2).items():
                    (group / file).write_text(str(value))
            except OSError:
                with contextlib.suppress(OSError):
                    group.rmdir()
                continue
            self.groups[controller] = group
            return
        self.close()
        raise SystemExit(f"no cgroup of {controller} can be made here: this needs root, or a delegated group")

    def enter(self) -> None:
        """Move the calling process, and what it starts, into the groups."""
        for group in self.groups.values():
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self) -> int:
        """Processes that were killed for want of memory."""
        group = self.groups.get("memory")
        for name in ("memory.oom_control", "memory.events"):
            if group is not None and (group / name).exists():
                words = dict(line.split() for line in (group / name).read_text().splitlines())
                return int(words.get("oom_kill", 0))
        return 0

    def peak(self) -> int:
        """Bytes of memory, page cache included, at most so far; 0 where nothing counts them."""
        group = self.groups.get("memory")
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if group is not None and (group / name).exists():
                return int((group / name).read_text())
        return 0

    def close(self) -> None:
        """Remove the groups; whoever was in them has ended."""
        for group in self.groups.values():
            with contextlib.suppress(OSError):
                group.rmdir()


class Cluster:
    """`dask scheduler` and `dask worker` processes that find one another by a file.

    cores, memory, disk : of each worker, as `Cage` takes them; with cores, scheduler and caller have one core together
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        cores: float | None = None,
        memory: int | None = None,
        disk: int | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        self.file = folder / "dask.json"
        self._log = open(folder / "log.txt", "ab")  # noqa: SIM115
        self.workers: list[subprocess.Popen[bytes]] = []
        self.cages: list[Cage] = []
        self.caller = Cage(f"{folder.name}-caller", None if cores is None else 1.0)
        self.scheduler = self._start(self.caller, "scheduler", "--port", "0", "--no-dashboard")
        single = ("--nthreads", "1", "--memory-limit", "0", "--no-nanny", "--no-dashboard")
        scratch = ("--local-directory", str(folder / "workers"))
        try:
            for number in range(workers):
                self.cages.append(Cage(f"{folder.name}-{number}", cores, memory, disk, folder))
                name = ("--name", f"worker-{number:03d}")  # shards go to workers in the order of their addresses
                process = self._start(self.cages[-1], "worker", *single, *name, *scratch)
                self.workers.append(process)
            self._wait(workers)
        except BaseException:
            self.close()
            raise

    def _start(self, cage: Cage, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", what, "--scheduler-file", str(self.file), *options]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        ours = os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
        told = {"PYTHONPATH": ours, "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False"}
        environment = {**os.environ, **threads, **told}
        return subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment, preexec_fn=cage.enter)

    def _wait(self, workers: int) -> None:
        from distributed import Client

        until = time.monotonic() + _PATIENCE_S
        while not self.file.exists() and time.monotonic() < until:
            time.sleep(0.05)
        with Client(scheduler_file=str(self.file), set_as_default=False, timeout=_PATIENCE_S) as client:
            client.wait_for_workers(workers, timeout=_PATIENCE_S)

    def cpu(self) -> list[float]:
        """Seconds of CPU of each worker since it began."""
        return [cpu_of(process.pid) for process in self.workers]

    def close(self) -> None:
        """End the processes, and remove their groups."""
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        for cage in (*self.cages, self.caller):
            cage.close()
        self._log.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cpu_of(pid: int) -> float:
    """Seconds of CPU, user and system, of a process that is alive."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
