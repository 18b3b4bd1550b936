"""bigsvm doctor: shows what this machine offers, and what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.config import BASE_BYTES, FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.units import GIB, counted, show_bytes

_NEEDED = ("numpy", "scipy", "numba", "zarr", "numcodecs", "dask", "distributed", "pyarrow", "click", "rich",
           "xxhash", "zstandard")  # fmt: skip


@bigsvm_command(
    light=True,
    help="Show what this machine offers: cores, the memory limit in force and who sets it, the memory that a process "
    "needs without data, scratch space, versions, and what is missing.",
)
@click.option(
    "--scratch", metavar="DIR", help="Folder of working copies.  [default: a folder of yours in the temporary folder]"
)
@click.option("--fix-hints", is_flag=True, help="For each problem, print a line that fixes it.")
def command(session: Session, scratch: str | None, fix_hints: bool) -> int:
    from bigsvm.machine import core_count, memory_limit

    limit = memory_limit()
    default = FitConfig().memory_bytes(limit.nbytes)
    versions, missing = _versions()
    # Measured before imports that a fit would not need.
    base = _base_bytes(session, missing)
    if base is not None and base > BASE_BYTES:
        usual = show_bytes(BASE_BYTES)
        session.warn(f"the base of {show_bytes(base)} is more than the {usual} that the plan allows for")
    space = _scratch(session, scratch)
    result: dict[str, Any] = {
        "bigsvm": importlib.metadata.version("bigsvm"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "cores": core_count(),
        "memory": {
            "limit_bytes": limit.nbytes,
            "limit_source": limit.source,
            "base_bytes": base,
            "default_budget_bytes": default,
        },
        "scratch": space,
        "versions": versions,
        "missing": missing,
    }
    lines = [
        ("bigsvm", f"{result['bigsvm']} on Python {result['python']}, {result['system']}"),
        ("processor", f"{result['cpu']}, {counted(result['cores'], 'core')} for this process"),
        ("memory limit", f"{show_bytes(limit.nbytes)} ({limit.source})"),
        (
            "base",
            "cannot be measured here"
            if base is None
            else f"{show_bytes(base)} for the interpreter, libraries and kernels",
        ),
        ("default --memory", show_bytes(default)),
        ("scratch", f"{space['folder']}, {show_bytes(space['free_bytes'])} free, {space['filesystem']}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("missing", text.listed(missing) if missing else "nothing"),
    ]
    shown = text.rows(lines)
    if fix_hints:
        from bigsvm.cli.remedies import remedies

        found = result["fix_hints"] = remedies(result)
        hints = [f"{entry['problem']}\n    {entry['fix']}" for entry in found]
        shown += "\n\n" + ("\n".join(hints) or "no problem was found")
    return session.finish(result, shown, only_told=True)


def _versions() -> tuple[dict[str, str], list[str]]:
    versions, missing = {}, []
    for name in _NEEDED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return versions, missing


def _base_bytes(session: Session, missing: list[str]) -> int | None:
    """Anonymous memory of this process with the imports of a fit and one compiled kernel; None if no fit can run."""
    from bigsvm.machine import check_address_space

    try:
        check_address_space()
    except PlanRefused as error:
        session.warn(str(error))
        return None
    try:
        return _measured_base()
    except ImportError as error:
        if not missing:
            raise
        session.warn(f"no fit can run here: {error}")
        return None


def _measured_base() -> int:
    import numpy as np

    from bigsvm.compiled.shared.rows import CSR, sqnorms
    from bigsvm.machine import anonymous_bytes
    from bigsvm.run.fit import fit as fit
    from bigsvm.store.formats import zarr_rows as zarr_rows

    X = CSR(np.ones(1, np.float32), np.zeros(1, np.int32), np.array([0, 1], np.int64))
    sqnorms(X, np.empty(1))
    return anonymous_bytes()


def _scratch(session: Session, scratch: str | None) -> dict[str, Any]:
    from bigsvm.store.copy.scratch import scratch_folder

    folder = scratch_folder(FitConfig.of(scratch=scratch))
    there = folder
    while not there.exists():
        there = there.parent
    filesystem = _filesystem(there)
    free = shutil.disk_usage(there).free
    if filesystem in ("tmpfs", "ramfs"):
        session.warn(f"the scratch folder {folder} is in memory ({filesystem}); set BIGSVM_SCRATCH to a disk")
    if not os.access(there, os.W_OK):
        session.warn(f"the scratch folder {folder} cannot be written; set BIGSVM_SCRATCH")
    elif free < GIB:
        session.warn(f"only {show_bytes(free)} are free in the scratch folder {folder}")
    return {"folder": str(folder), "free_bytes": free, "filesystem": filesystem}


def _filesystem(path: Path) -> str:
    """The type of the file system of `path`, from the longest mount point above it."""
    real, best, kind = os.path.realpath(path), "", "unknown"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return kind
    for line in lines:
        fields = line.split()
        point = fields[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
