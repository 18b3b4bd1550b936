"""A call in a child that is forked, in place of a program that would import everything anew.

Importing is most of what a small fit takes.  What the child calls is as new there as in a program that was started, as
long as the process that it is forked from has called nothing but imports.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import TimeoutExpired


class Forked:
    """What `subprocess.Popen` is, as far as those need it who wait for a child or disturb it.

    call : what the child does; it ends with exit code 0, or as `sys.exit` says;  errors : file for what it says on
    standard error, else that is dropped, as what it prints always is
    """

    def __init__(self, call: Callable[[], None], errors: Path | None = None) -> None:
        self._process = multiprocessing.get_context("fork").Process(target=_run, args=(call, errors))
        self._process.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """As of Popen: minus the number of a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; raises TimeoutExpired where it still runs after `timeout` seconds."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutExpired("forked", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Harmless once it has ended."""
        if self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(call: Callable[[], None], errors: Path | None) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere if errors is None else os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    call()
