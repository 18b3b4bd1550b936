"""A command of bigsvm in a child that is forked, as if it were a program of its own: nothing is imported anew.

Importing is most of what a small fit takes.  A smoke has dozens of them; what they call is as new in the child as in a
program that was started, for the process that it is forked from has called no fit.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from subprocess import TimeoutExpired

import bigsvm.cli.main
import bigsvm.run.fit.fit
import bigsvm.store.ingest.ingest


class Forked:
    """What `subprocess.Popen` is, as far as those who disturb a fit need it.

    command : sys.executable, "-m", "bigsvm" and its arguments;  errors : file for what it says
    """

    def __init__(self, command: list[str], errors: Path | None = None) -> None:
        self._process = multiprocessing.get_context("fork").Process(target=_run, args=(command[3:], errors))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """As of Popen: minus the number of a signal."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """The exit code; raises TimeoutExpired while it runs."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise TimeoutExpired("bigsvm", seconds or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Harmless once it has ended."""
        if self._process.exitcode is None and self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(arguments: list[str], errors: Path | None) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere if errors is None else os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.argv[:] = ["bigsvm", *arguments]
    bigsvm.cli.main.main()
