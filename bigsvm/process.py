"""Which process made or holds something, and whether it is still there."""

from __future__ import annotations

import functools
import os
import platform
import zlib
from typing import NamedTuple


class Process(NamedTuple):
    """A process that can be told from every other one, later ones with its number included.

    machine : 8 hex digits of host name and pid namespace
    started : clock ticks after boot; 0 where the system does not say
    """

    machine: str
    pid: int
    started: int

    def is_gone(self) -> bool:
        """True only where that is certain: it ran here, and no process with its number and start is left."""
        if self.machine != this_machine():
            return False
        # 0: there is such a process, and nobody says since when.
        return not _exists(self.pid) or started(self.pid) not in (0, self.started)


def this_process() -> Process:
    """The calling process; a fork is another one."""
    return Process(this_machine(), os.getpid(), started(os.getpid()))


@functools.cache
def this_machine() -> str:
    """8 hex digits: equal for processes that see each other's numbers."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{zlib.crc32(f'{platform.node()}/{namespace}'.encode()):08x}"


def started(pid: int) -> int:
    """When a process began, in clock ticks after boot; 0 where nobody says, -1 where it has ended.

    One that has ended may still have a number: until its parent asks how it ended.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # its name may hold anything
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        pass
    return True
