#!/usr/bin/env python3
"""Run a command under limits that the kernel enforces, in cgroups of its own, and say what it peaked at.

    scripts/stress/memory_cage.py 400MiB -- bigsvm fit store.zarr --memory 128MiB
    scripts/stress/memory_cage.py none --read-rate 300MB/s --device-of scratch/ -- bigsvm fit store.zarr

Memory: a hard limit, page cache included.  Read rate: bytes that come from the block device below a folder, per
second (cgroup v1 blkio.throttle.read_bps_device, v2 io.max); pages that are in memory already are free, so drop
them first.  Needs the right to make cgroups (root, or a delegated group).  Where there is none, memory falls back
to RLIMIT_DATA, which limits anonymous memory alone, and says so; a read rate cannot fall back and is refused with
exit code 125.  The exit code is otherwise the command's (137 when it was killed).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bigsvm.units import parse_bytes

_REFUSED = 125


def device_of(folder: Path) -> str | None:
    """major:minor of the whole disk that holds a folder; None where no block device does."""
    found = os.stat(folder).st_dev
    sys_path = Path(f"/sys/dev/block/{os.major(found)}:{os.minor(found)}")
    if not sys_path.exists():
        return None
    real = sys_path.resolve()
    return ((real.parent if (real / "partition").exists() else real) / "dev").read_text().strip()


def parents_of(controller: str) -> Iterator[Path]:
    """Groups where one of ours may be made: this process's own first, then the roots; v1 before v2."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(",") if number != "0" else ["v2"], path.lstrip("/")))
    v1, v2 = Path("/sys/fs/cgroup") / controller, Path("/sys/fs/cgroup")
    if controller in own:
        yield v1 / own[controller]
    yield v1
    if "v2" in own:
        yield v2 / own["v2"]
    yield v2


def make_group(controller: str, settings: dict[str, str]) -> Path | None:
    """A new cgroup with the first of `settings` (file: value) that its kernel knows, or None."""
    for parent in parents_of(controller):
        group = parent / f"bigsvm-cage-{os.getpid()}"
        for name, value in settings.items():
            if not (parent / name).exists() and not (parent / "cgroup.subtree_control").exists():
                continue
            try:
                group.mkdir(exist_ok=True)
                (group / name).write_text(value)
            except OSError:
                continue
            return group
        if group.exists():
            group.rmdir()
    return None


def limit_reads(memory_group: Path | None, device: str, rate: int) -> Path | None:
    """A group that limits reads from a device: the memory group itself where it is of v2 (a process has one there)."""
    if memory_group is not None and (memory_group / "memory.max").exists():
        try:
            (memory_group / "io.max").write_text(f"{device} rbps={rate}")
        except OSError:
            return None
        return memory_group
    return make_group(
        "blkio", {"blkio.throttle.read_bps_device": f"{device} {rate}", "io.max": f"{device} rbps={rate}"}
    )


def report_of(group: Path) -> dict[str, int]:
    """What the memory group counted."""
    report = {}
    for name in ("memory.max_usage_in_bytes", "memory.peak", "memory.failcnt"):
        if (group / name).exists():
            report[name] = int((group / name).read_text())
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            words = dict(line.split() for line in (group / name).read_text().splitlines())
            report["oom_kills"] = int(words.get("oom_kill", 0))
    return report


def main() -> int:
    """Run the command; print one JSON line to stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("limit", help="bytes of memory, such as 400MiB; none: no limit")
    parser.add_argument("--read-rate", help="bytes a second, such as 300MB/s")
    parser.add_argument("--device-of", default=".", type=Path, help="folder on the device that is slowed down")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    limit = None if options.limit == "none" else parse_bytes(options.limit)
    memory_group = None
    if limit is not None:
        memory_group = make_group("memory", {"memory.limit_in_bytes": str(limit), "memory.max": str(limit)})
    groups = [memory_group] if memory_group else []
    report: dict[str, object] = {"limit_bytes": limit}
    if limit is not None:
        report["kind"] = "cgroup" if memory_group else "RLIMIT_DATA"
    try:
        if options.read_rate:
            rate = parse_bytes(options.read_rate.removesuffix("/s"))
            device = device_of(options.device_of)
            group = None if device is None else limit_reads(memory_group, device, rate)
            if group is None:
                print(f"cannot limit reads below {options.device_of} (device {device})", file=sys.stderr)
                return _REFUSED
            groups += [group] if group != memory_group else []
            report.update(read_bytes_per_s=rate, device=device)

        def enter() -> None:
            for group in groups:
                (group / "cgroup.procs").write_text(str(os.getpid()))
            if limit is not None and memory_group is None:
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

        process = subprocess.run(options.command, preexec_fn=enter, check=False)
        if memory_group is not None:
            report.update(report_of(memory_group))
    finally:
        for group in groups:
            group.rmdir()
    report["exit"] = process.returncode
    print(json.dumps(report), file=sys.stderr)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main())
