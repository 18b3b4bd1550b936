"""A measured run in a child that is forked: importing is most of what a run of a smoke takes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping
from subprocess import TimeoutExpired

import bigsvm.run.api  # noqa: F401  (before the fork: bigsvm itself imports it when it is first asked for a fit)
from bench import child


class Forked:
    """What `subprocess.Popen` is, as far as a run needs it.

    arguments : of `python -m bench.child`;  surroundings : changes of the environment;  cores : that it may use
    """

    def __init__(self, arguments: list[str], surroundings: Mapping[str, str], cores: list[int]) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed when it was read)
        given = (arguments, surroundings, cores, self._said.fileno())
        self._process = multiprocessing.get_context("fork").Process(target=_run, args=given)
        self._process.start()

    @property
    def pid(self) -> int:
        """Of the process, and of its session."""
        return self._process.pid or 0

    @property
    def returncode(self) -> int:
        """As of Popen: minus the number of a signal."""
        return self._process.exitcode or 0

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it said on standard error, once it has ended; raises TimeoutExpired while it runs."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutExpired("bench.child", timeout or 0.0)
        with self._said as said:
            said.seek(0)
            return "", said.read()


def _run(arguments: list[str], surroundings: Mapping[str, str], cores: list[int], said: int) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(said, 2)
    os.sched_setaffinity(0, cores)
    os.environ.update(surroundings)
    sys.argv[1:] = arguments
    child.main()
