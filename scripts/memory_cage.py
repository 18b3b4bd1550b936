#!/usr/bin/env python3
"""Run a command under a hard memory limit of its own cgroup and say what it peaked at.

    scripts/memory_cage.py 400MiB -- bigsvm fit store.zarr --memory 128MiB

Needs the right to make cgroups (root, or a delegated group); where there is none it falls back to RLIMIT_DATA,
which limits anonymous memory alone, and says so.  The exit code is the command's (137 when it was killed).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from bigsvm.units import parse_bytes


def make_group(limit: int) -> Path | None:
    """A new cgroup (v1 or v2) limited to `limit` bytes, or None."""
    candidates = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        if "memory" in names.split(","):
            candidates.insert(0, Path("/sys/fs/cgroup/memory") / path.lstrip("/"))
        elif number == "0":
            candidates.append(Path("/sys/fs/cgroup") / path.lstrip("/"))
    for parent in candidates:
        group = parent / f"bigsvm-cage-{os.getpid()}"
        for name in ("memory.limit_in_bytes", "memory.max"):
            if not (parent / name).exists() and not (parent / "cgroup.subtree_control").exists():
                continue
            try:
                group.mkdir(exist_ok=True)
                (group / name).write_text(str(limit))
            except OSError:
                continue
            return group
        if group.exists():
            group.rmdir()
    return None


def main() -> int:
    """Run the command; print one JSON line to stderr."""
    limit = parse_bytes(sys.argv[1])
    command = sys.argv[sys.argv.index("--") + 1 :]
    group = make_group(limit)

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        else:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    process = subprocess.run(command, preexec_fn=enter, check=False)
    report: dict[str, object] = {"limit_bytes": limit, "kind": "cgroup" if group else "RLIMIT_DATA"}
    if group is not None:
        for name in ("memory.max_usage_in_bytes", "memory.peak", "memory.failcnt"):
            if (group / name).exists():
                report[name] = int((group / name).read_text())
        for name in ("memory.oom_control", "memory.events"):
            if (group / name).exists():
                words = dict(line.split() for line in (group / name).read_text().splitlines())
                report["oom_kills"] = int(words.get("oom_kill", 0))
        group.rmdir()
    report["exit"] = process.returncode
    print(json.dumps(report), file=sys.stderr)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main())
