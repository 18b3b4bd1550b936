"""The limits this process really has: memory (cgroup v1 and v2, nested, rlimits) and cores.

Libraries look at the host's memory or at the cgroup mount's root; a batch slot limits a group further
down.  So the process's own path is walked up to the mount point and the smallest limit wins.
"""

from __future__ import annotations

import ctypes
import functools
import os
import resource
from dataclasses import dataclass, field
from pathlib import Path

from bigsvm.errors import PlanRefused
from bigsvm.units import GIB, MIB, show_bytes

_UNLIMITED = 1 << 60  # cgroup v1 writes a number near 2^63 where there is no limit
_ADDRESSES = GIB  # that libraries, compiled kernels and the stacks of threads take, most of it never touched
_ADDRESSES_LEFT = 128 * MIB  # at least, where they are there already


@dataclass(frozen=True)
class MemoryLimit:
    """Bytes this process may use, and which limit says so.

    whose : the group of processes that share it, on this machine: '' for all of them
    """

    nbytes: int
    source: str
    whose: str = field(default="", compare=False)


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """The smallest of physical memory, RLIMIT_AS, RLIMIT_DATA and every cgroup limit above this process.

    Parameters
    ----------
    root : folder that holds `proc` and `sys`; another one than / in tests.
    """
    limits = [MemoryLimit(_physical(root), "physical memory"), *_cgroup_limits(root)]
    if root == Path("/"):
        for name, which in (("RLIMIT_AS", resource.RLIMIT_AS), ("RLIMIT_DATA", resource.RLIMIT_DATA)):
            soft, _ = resource.getrlimit(which)
            if soft != resource.RLIM_INFINITY:
                limits.append(MemoryLimit(soft, name, f"process {os.getpid()}"))
    return min(limits, key=lambda limit: limit.nbytes)


def check_address_space() -> None:
    """Refuse to begin where this process may map too little.  Raises PlanRefused.

    Libraries that are refused memory while they load do not say so: OpenBLAS asks again for ever, and LLVM aborts.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return
    needed = max(_ADDRESSES, _status("VmSize")[0] + _ADDRESSES_LEFT)
    if soft < needed:
        raise PlanRefused(
            f"this process may map {show_bytes(soft)} (RLIMIT_AS), and needs {show_bytes(needed)} for libraries alone",
            hint=f"run ulimit -v unlimited, or at least {needed >> 10}; --memory limits what bigsvm holds",
        )


def core_count(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity, and the CPU quota of its cgroups, rounded up."""
    cores = float(len(os.sched_getaffinity(0)))
    for path, version in _cgroup_paths(root, "cpu"):
        try:
            if version == 2:
                quota, period = (path / "cpu.max").read_text().split()
            else:
                quota = (path / "cpu.cfs_quota_us").read_text().strip()
                period = (path / "cpu.cfs_period_us").read_text()
            if quota not in ("max", "-1"):
                cores = min(cores, int(quota) / int(period))
        except (OSError, ValueError):
            continue
    return max(1, -int(-cores // 1))


def _physical(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    return _UNLIMITED


def _cgroup_limits(root: Path) -> list[MemoryLimit]:
    limits = []
    for path, version in _cgroup_paths(root, "memory"):
        for name in ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",):
            try:
                text, group = (path / name).read_text().strip(), path.stat().st_ino
            except OSError:
                continue
            if text != "max" and int(text) < _UNLIMITED:
                limits.append(MemoryLimit(int(text), f"cgroup v{version} {name}", f"group {group}"))
    return limits


def _cgroup_paths(root: Path, controller: str) -> list[tuple[Path, int]]:
    """(folder, version) of this process's groups for `controller`, from its own up to the mount point.

    A v2 line of /proc/self/cgroup is `0::/path`, a v1 line `4:memory:/path`; both may be there.  The
    path is relative to the mount's root field in mountinfo, which differs from / inside a container.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = [line for line in (root / "proc/self/mountinfo").read_text().splitlines() if " - cgroup" in line]
    except OSError:
        return []
    found = []
    for group in groups:
        number, names, path = group.split(":", 2)
        version = 2 if number == "0" and not names else 1
        if version == 1 and controller not in names.split(","):
            continue
        for mount in mounts:
            fields = mount.split()
            dash = fields.index("-")
            kind, options = fields[dash + 1], fields[dash + 3].split(",")
            if kind != ("cgroup2" if version == 2 else "cgroup") or (version == 1 and controller not in options):
                continue
            mount_root, mount_point = fields[3], fields[4]
            top = root / mount_point.lstrip("/")
            relative = os.path.relpath(path, mount_root)
            # A path outside the mount's root is one we cannot see: only the mount point is left.
            folder = top if relative == "." or relative.startswith("..") else top / relative
            while True:
                found.append((folder, version))
                if folder == top:
                    break
                folder = folder.parent
    return found


@functools.cache
def return_freed_memory() -> None:
    """Make the C library give large freed arrays back to the system at once; done once a process.

    glibc raises its threshold each time a large block is freed, up to 32 MiB, and keeps what lies below in the
    arena of the thread that freed it.  Chunks decoded by two threads then hold twice what is in use: measured
    95 MiB, and 50 MiB with the threshold fixed, where 52 MiB are counted on.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library: its ways are its own
        return
    for parameter in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
        mallopt(parameter, 1 << 20)


def trim_heap() -> None:
    """Give back what the C library keeps of freed small blocks: for the end of a phase that held many."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library: its ways are its own
        return


def anonymous_bytes() -> int:
    """Anonymous and shared resident memory of this process, now (RssAnon + RssShmem)."""
    return memory_now()[0]


def memory_now() -> tuple[int, int]:
    """What `anonymous_bytes` says, and the resident set, mapped files included (VmRSS), of one look."""
    anonymous, shared, resident = _status("RssAnon", "RssShmem", "VmRSS")
    return anonymous + shared, resident


def resident_peak_bytes() -> int:
    """Largest resident set of this process so far, mapped files included (VmHWM)."""
    return _status("VmHWM")[0] or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _status(*fields: str) -> list[int]:
    """Bytes of each of some fields of this process's status; 0 where there is none.

    Called many times a second, so the text is searched and not split into its lines; and without pathlib, which interns
    every part of every path: that fills the interpreter's table of strings until it is doubled.
    """
    with open("/proc/self/status", "rb", buffering=0) as file:
        status = file.read()
    after = (status.partition(f"\n{name}:".encode())[2] for name in fields)
    return [int(text.split(None, 1)[0]) << 10 if text else 0 for text in after]
