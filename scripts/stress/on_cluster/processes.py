"""`dask scheduler` and `dask worker` as processes that can be killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class Cluster:
    """`dask scheduler` and `dask worker` processes that find one another by a file.

    of_workers : more options of workers;  environment : more variables of all
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        ttl_s: float,
        of_workers: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        self._of_workers = of_workers
        ttl = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{ttl_s}s"}
        self._environment = {**os.environ, **ttl, **(environment or {})}
        self.file, self._log = folder / "dask.json", open(folder / "log.txt", "ab")  # noqa: SIM115
        self.scheduler = self._start("scheduler", "--port", "0", "--no-dashboard")
        self.workers = [self._worker() for _ in range(workers)]

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", what, "--scheduler-file", str(self.file), *options]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log, env=self._environment)

    def _worker(self) -> subprocess.Popen[bytes]:
        alone = ("--nthreads", "1", "--memory-limit", "0", "--no-nanny", "--no-dashboard")
        return self._start("worker", *alone, *self._of_workers)

    def replace(self, number: int) -> None:
        """Kill a worker, and start another one."""
        self.workers[number].kill()
        self.workers[number].wait()
        self.workers[number] = self._worker()

    def wait(self, patience_s: float) -> Path:
        """The scheduler file, once all workers are there."""
        from distributed import Client

        until = time.monotonic() + patience_s
        while not self.file.exists() and time.monotonic() < until:
            time.sleep(0.05)
        with Client(scheduler_file=str(self.file), set_as_default=False, timeout=patience_s) as client:
            client.wait_for_workers(len(self.workers), timeout=patience_s)
        return self.file

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        self._log.close()
