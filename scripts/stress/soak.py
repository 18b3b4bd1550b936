#!/usr/bin/env python3
"""Many fits in one process: memory, file descriptors, threads and temporary files must not grow.

scripts/stress/soak.py --fits 1000
scripts/stress/soak.py --smoke
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

import bigsvm
from bigsvm.run.fit import sizes

SLOPE = 4096  # bytes a fit


def state(folder: Path) -> dict[str, int]:
    """What could grow."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "files": sum(len(names) for _, _, names in os.walk(folder)),
    }


def main() -> None:
    """Fit again and again, streamed and in memory, and watch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--smoke", action="store_true", help="16 fits of fewer rows")
    options = parser.parse_args()
    fits, rows = (16, 800) if options.smoke else (options.fits, 2000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 20)).astype(np.float32)
    y = np.where(X @ rng.normal(size=20) + rng.normal(size=rows) > 0, 1, -1)
    resident = sizes.Sizes.resident_from
    found: list[dict[str, int]] = []
    models: dict[bool, set[str]] = {False: set(), True: set()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(fits):
            streams = number % 2 == 0
            sizes.Sizes.resident_from = (lambda self: 1 << 50) if streams else resident  # type: ignore[method-assign]
            result = bigsvm.fit((X, y), loss="hinge", memory="64MiB", scratch=folder / "scratch")
            result.save_model(folder / "model", overwrite=True)
            models[streams].add(hashlib.sha256((folder / "model" / "model.json").read_bytes()).hexdigest())
            result.close()
            found.append(state(folder))
    settled = found[len(found) // 5 :]  # kernels, pools and caches are there by then
    numbers = np.arange(len(settled))
    slope = float(np.polyfit(numbers, [one["rss"] for one in settled], 1)[0])
    sys.stdout.write(f"{fits} fits: memory {slope:+.0f} bytes a fit")
    for what in ("descriptors", "threads", "files"):
        sys.stdout.write(f", {what} {settled[-1][what] - settled[0][what]:+d}")
    sys.stdout.write(f"; {len(models[True])} and {len(models[False])} distinct models\n")
    # Half of the samples follow a streamed fit: compare like with like.
    grown = [what for what in ("descriptors", "threads", "files") if settled[-1][what] > settled[-3][what]]
    grown += [what for what in ("descriptors", "threads", "files") if settled[-1][what] > settled[1][what]]
    if grown or (slope > SLOPE and not options.smoke) or any(len(kinds) != 1 for kinds in models.values()):
        raise SystemExit(f"something grows: {grown or 'memory or models'}")


if __name__ == "__main__":
    main()
