#!/usr/bin/env python3
"""The anomaly loop (SQLite's way): the Nth file operation fails, N = 1, 2, 3, ... until a run passes untouched.

A layer over the functions that touch files counts every open, read, write, fsync, rename, mkdir and truncation below
the working folder, and lets the Nth one fail: once, or that one and all after it.  After each run:

  * the exit code is one of the contract's, never that of a bug, and no model is visible unless it is the right one
  * the store has not changed
  * the same fit, started again with --resume where the disk is well, gives the right model, byte by byte
  * no temporary is left beside the model, in the record or among the working copies

    scripts/stress/anomaly_loop.py               every N, both ways, fit and ingest
    scripts/stress/anomaly_loop.py --every 7     each seventh N
    scripts/stress/anomaly_loop.py --smoke
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import errno
import io
import itertools
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm import process
from bigsvm.cli.main import run as bigsvm
from bigsvm.files import atomic as files
from bigsvm.run.fit import sizes

ALLOWED = {0, 65, 66, 73, 74, 75, 78}  # of the contract; 1 would be a bug


_RUNS = itertools.count(1)


class Faults:
    """Counts file operations below `root` and lets the `nth` fail; with `lasting` all after it as well."""

    def __init__(self, root: Path, nth: int, lasting: bool) -> None:
        self.root, self.nth, self.lasting = str(root.resolve()), nth, lasting
        self.count = 0
        self.failed = ""
        self._handles: set[int] = set()

    def hit(self, what: str, target: object, number: int) -> None:
        """Count an operation; raises OSError where it is the one to fail."""
        if isinstance(target, int):
            if target not in self._handles:
                return
        elif not os.path.abspath(os.fsdecode(target)).startswith(self.root):  # type: ignore[arg-type]
            return
        self.count += 1
        if self.count == self.nth or (self.lasting and self.count > self.nth):
            self.failed = self.failed or what
            raise OSError(number, os.strerror(number), None if isinstance(target, int) else os.fsdecode(target))  # type: ignore[arg-type]

    def opened(self, handle: int, path: object) -> int:
        """Remember a descriptor, whose reads and writes count."""
        if os.path.abspath(os.fsdecode(path)).startswith(self.root):  # type: ignore[arg-type]
            self._handles.add(handle)
        else:
            self._handles.discard(handle)
        return handle


class FaultyFile(io.FileIO):
    """A raw file whose reads and writes are counted."""

    faults: Faults

    def write(self, data: Any) -> int:
        self.faults.hit("write", self.name, errno.ENOSPC)
        return super().write(data) or 0

    def readinto(self, buffer: Any) -> int:
        self.faults.hit("read", self.name, errno.EIO)
        return super().readinto(buffer) or 0

    def readall(self) -> bytes:
        self.faults.hit("read", self.name, errno.EIO)
        return super().readall()


@contextlib.contextmanager
def failing(faults: Faults) -> Iterator[None]:
    """Put the layer over the functions that touch files while the block runs."""
    real: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, function: Any) -> None:
        real.append((module, name, getattr(module, name)))
        setattr(module, name, function)

    def path_of(name: str, number: int, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(target: Any, *args: Any, **kwargs: Any) -> Any:
            faults.hit(name, target, number)
            return original(target, *args, **kwargs)

        return wrapped

    real_open, real_os_open = builtins.open, os.open

    def open_file(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int) or not os.path.abspath(os.fsdecode(file)).startswith(faults.root):
            return real_open(file, mode, buffering, *args, **kwargs)
        faults.hit("open", file, errno.ENOSPC if set(mode) & set("wxa") else errno.EIO)
        raw = FaultyFile(file, mode.replace("b", "").replace("t", ""))
        raw.faults = faults
        faults.opened(raw.fileno(), file)
        if buffering == 0:
            return raw
        kind = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
        buffered = kind(raw)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, *args, line_buffering=buffering == 1, **kwargs)
        text.mode = mode  # type: ignore[misc]
        return text

    def open_handle(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        faults.hit("open", path, errno.ENOSPC if flags & os.O_CREAT else errno.EIO)
        return faults.opened(real_os_open(path, flags, *args, **kwargs), path)

    real_map = mmap.mmap

    class Map(real_map):
        def __new__(cls, handle: int, *args: Any, **kwargs: Any) -> Any:
            faults.hit("map", handle, errno.ENOMEM)
            return real_map.__new__(cls, handle, *args, **kwargs)

    put(builtins, "open", open_file)
    put(io, "open", open_file)
    put(os, "open", open_handle)
    put(mmap, "mmap", Map)
    for name, number in (
        ("fsync", errno.EIO), ("replace", errno.EIO), ("rename", errno.EIO), ("mkdir", errno.ENOSPC),
        ("pread", errno.EIO), ("preadv", errno.EIO), ("write", errno.ENOSPC), ("writev", errno.ENOSPC),
        ("ftruncate", errno.ENOSPC), ("posix_fallocate", errno.ENOSPC), ("truncate", errno.ENOSPC),
        ("scandir", errno.EIO), ("listdir", errno.EIO),
    ):  # fmt: skip
        put(os, name, path_of(name, number, getattr(os, name)))
    put(files, "_rename", path_of("exchange", errno.EIO, files._rename))
    try:
        yield
    finally:
        for module, name, function in reversed(real):
            setattr(module, name, function)


class Loop:
    """A small problem, the right answer, and the check after each anomaly."""

    def __init__(self, work: Path, rows: int, tol: float) -> None:
        self.work, self.tol = work, tol
        rng = np.random.default_rng(0)
        X = rng.normal(size=(rows, 6))
        y = np.where(X @ rng.normal(size=6) + rng.normal(size=rows) > 0, 1, -1)
        order = np.argsort(y, kind="stable")  # sorted by label: staging shuffles
        self.text = work / "rows.svm"
        with open(self.text, "w") as file:
            for row in order:
                entries = " ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(X[row]))
                file.write(f"{y[row]} {entries}\n")
        self.store = work / "rows.zarr"
        self.must(self.ingest(self.store))
        self.must(self.fit(work / "right"))
        self.right = contents(work / "right" / "m")
        self.rows_right = contents(self.store)

    def ingest(self, store: Path) -> list[str]:
        return ["ingest", str(self.text), str(store), "--quiet", "--chunk-bytes", "8KiB"]

    def fit(self, folder: Path) -> list[str]:
        return [
            *("fit", str(self.store), "--loss", "hinge", "--memory", "64MiB", "--tol", str(self.tol), "--quiet"),
            *("--scratch", str(folder / "scratch"), "--checkpoint-every", "0.001s", "--resume"),
            *("--threads", "1", "-o", str(folder / "m")),
        ]

    def must(self, command: list[str]) -> None:
        """Run where nothing fails."""
        code, said = quietly(command)
        if code:
            raise SystemExit(f"exit {code} where nothing failed: {' '.join(command)}\n{said}")

    def anomaly(self, what: str, nth: int, lasting: bool) -> Faults:
        """One run in which the Nth operation fails, and the one after it; the layer, which knows whether it failed."""
        folder = self.work / "try"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        command = self.fit(folder) if what == "fit" else self.ingest(folder / "m")
        right = self.right if what == "fit" else self.rows_right
        faults = Faults(self.work, nth, lasting)
        with failing(faults):
            code, said = quietly(command)
        where = f"{what}, {'from' if lasting else 'only'} operation {nth} ({faults.failed})"
        if code not in ALLOWED or "Traceback" in said or "this is a bug" in said:
            raise SystemExit(f"{where}: exit {code}\n{said}")
        if (folder / "m").exists() and contents(folder / "m") != right:
            raise SystemExit(f"{where}: exit {code}, and what is visible is not right\n{said}")
        if code == 0 and not (folder / "m").exists():
            raise SystemExit(f"{where}: exit 0 and nothing there")
        if contents(self.store) != self.rows_right:
            raise SystemExit(f"{where}: the store has changed")
        if not (folder / "m").exists() or (what == "fit" and code):
            self.must(command)  # of a fit that failed with its model written as well: it says so now
        if contents(folder / "m") != right:
            raise SystemExit(f"{where}: after it another result\n{said}")
        litter = [path for path in folder.rglob("*") if ".tmp-" in path.name or path.name == "checkpoint"]
        # What a disk that fails for good does not let go of, nobody can delete.
        if litter and not (lasting and code == 0):
            raise SystemExit(f"{where}: left behind: {litter}")
        return faults


def let_small_data_stream() -> None:
    """Blocks of a dozen rows, and nothing fits in memory."""
    sizes._COPY_BLOCK, sizes.BLOCK_BYTES = 600, 6000
    sizes.Sizes.resident_from = lambda self: 1 << 50  # type: ignore[method-assign]


def quietly(command: list[str]) -> tuple[int, str]:
    """Exit code and standard error of a command in this process."""
    said, answer = io.StringIO(), io.StringIO()
    began = next(_RUNS)
    process.started = lambda pid: began  # each run is another process to what the ones before it have left
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(answer):
        code = bigsvm(command)
    return code, said.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main() -> None:
    """Fail every Nth operation and print how many there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="try each N of this distance")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--smoke", action="store_true", help="about three of each, of shorter fits")
    options = parser.parse_args()
    let_small_data_stream()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as others:
        # By what `quietly` says of it this process is dead to others, which would remove its temporary folders.
        tempfile.tempdir = others
        loop = Loop(Path(folder), options.rows, 1e-2 if options.smoke else 1e-4)
        for what in ("ingest", "fit"):
            untouched = loop.anomaly(what, 1 << 60, False).count
            every = max(untouched // 2, 1) if options.smoke else options.every
            for lasting in (False, True):
                nth, tried, failed = 1, 0, 0
                while True:
                    faults = loop.anomaly(what, nth, lasting)
                    if not faults.failed:
                        break
                    tried, failed, nth = tried + 1, failed + 1, nth + every
                how = "and all after it" if lasting else "once"
                sys.stdout.write(f"{what}: {tried} anomalies ({how}) in {untouched} operations, all clean\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
