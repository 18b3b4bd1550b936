"""Measured runs: each in a process of its own, pinned to its cores, caged where asked, while the parent waits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bigsvm.run.api  # noqa: F401  (before a fork: bigsvm itself imports it when it is first asked for a fit)
from bench import child as program
from bench.cold import drop_pages
from bench.jobs import Job
from bigsvm.testing.forked import Forked

Child = subprocess.Popen[bytes] | Forked
forks = False
"""Whether runs that no cage holds are forked from this process, as those of a smoke are; else they are programs."""
BENCHMARKS = Path(__file__).resolve().parents[1]
CAGE = BENCHMARKS.parent / "stress" / "memory_cage.py"


@dataclass(frozen=True)
class Cage:
    """Limits of a run: bytes of memory, bytes a second from the device of the scratch folder."""

    memory: int | None = None
    read_rate: int | None = None

    def command(self, scratch: str) -> list[str]:
        """What stands before the command."""
        if self.memory is None and self.read_rate is None:
            return []
        rate = [] if self.read_rate is None else ["--read-rate", str(self.read_rate), "--device-of", scratch]
        limit = "none" if self.memory is None else str(self.memory)
        return [sys.executable, str(CAGE), limit, *rate, "--"]


@dataclass
class Run:
    """What came back: figures and weights, or the reason why not."""

    about: dict[str, Any]
    weights: list[np.ndarray]
    error: str = ""
    overtime: bool = False


def measure(job: Job, cage: Cage | None = None, cold: tuple[Path, ...] = (), timeout_s: float | None = None) -> Run:
    """Do a job in a child; `cold`: folders whose files leave the page cache first; killed after `timeout_s`."""
    for folder in cold:
        drop_pages(folder)
    cage = cage or Cage()
    with tempfile.TemporaryDirectory() as folder:
        asked, out = Path(folder) / "job.json", Path(folder) / "out.npz"
        asked.write_text(json.dumps(asdict(job)))
        errors = Path(folder) / "stderr"
        child = _started(job, cage, [str(asked), str(out)], errors, timeout_s is not None)
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _end(child)
            return Run({"job": asdict(job), "cage": {}}, [], f"ended after {timeout_s:.0f} s", overtime=True)
        except BaseException:
            if timeout_s is not None:
                _end(child)
            raise
        said = [line for line in errors.read_text().splitlines() if line.strip()]
        caged = _cage_report(said)
        if child.returncode or not out.exists():
            reasons = [line for line in said if not line.startswith('{"limit_bytes"')]
            killed = "killed: out of memory" if caged.get("oom_kills") else ""
            return Run({"job": asdict(job), "cage": caged}, [], killed or (reasons or [f"exit {child.returncode}"])[-1])
        with np.load(out, allow_pickle=False) as stored:
            about = json.loads(str(stored["about"]))
            weights = [stored[f"w{k}"] for k in range(len(about["points"]))]
        return Run({**about, "cage": caged}, weights)


def _started(job: Job, cage: Cage, files: list[str], errors: Path, own_session: bool) -> Child:
    """A child that does the job; in a session of its own, so that the cage and what runs in it end together."""
    caged, cores, threads = cage.command(job.scratch), _cores(job.cores), {"OMP_NUM_THREADS": str(job.cores)}
    if forks and not caged:
        return Forked(partial(_forked, files, threads, cores), errors)
    paths = os.pathsep.join([str(BENCHMARKS), *filter(None, [os.environ.get("PYTHONPATH")])])
    with errors.open("w") as said:
        return subprocess.Popen(
            [*caged, sys.executable, "-P", "-m", "bench.child", *files],
            env={**os.environ, "PYTHONPATH": paths, **threads},
            preexec_fn=partial(os.sched_setaffinity, 0, cores),
            stdout=subprocess.DEVNULL,  # solvers print what they like
            stderr=said,
            start_new_session=own_session,
        )


def _forked(files: list[str], threads: dict[str, str], cores: list[int]) -> None:
    """What the program does that `_started` starts."""
    os.setsid()
    os.sched_setaffinity(0, cores)
    os.environ.update(threads)
    sys.argv[1:] = files
    program.main()


def _end(child: Child) -> None:
    """End a child and all that it started; a cage takes its cgroup away on the first signal."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, number)
            child.wait(5)
            return


def _cores(count: int) -> list[int]:
    """The first cores that this process may use."""
    return sorted(os.sched_getaffinity(0))[:count]


def _cage_report(said: list[str]) -> dict[str, Any]:
    return next((json.loads(line) for line in reversed(said) if line.startswith('{"limit_bytes"')), {})
