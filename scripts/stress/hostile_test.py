#!/usr/bin/env python3
"""Stores and models that want to do harm: every one is refused, in time, in little memory, without running anything.

Each case changes a copy of a good store or model, and is tried twice: as it is, and with all digests made again, as
whoever means harm would do.  Working copies and side manifests, which are private, are tried as they are; stores that
have lost chunks, sealed before and after.  A case is clean when bigsvm ends with exit 65, 66, 73, 74 or 78 and one
line, or gives the right model after all; within 10 s of CPU; within 1 GiB; without an unpickled object (audit hook);
with nothing written outside the store.

    scripts/stress/hostile_test.py
    scripts/stress/hostile_test.py --smoke      every sixth case
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from hostile.bench import Bench
from hostile.models import KERNEL_MODELS, MODELS
from hostile.scratch import COPIES, HOLES, SIDES
from hostile.stores import STORES

from bigsvm.compiled import cache_folder

KINDS = {
    "store": STORES, "model": MODELS, "kernel_model": KERNEL_MODELS, "copy": COPIES, "side": SIDES, "hole": HOLES,
}  # fmt: skip


def _own_cache(folder: Path) -> None:
    """Side manifests go to `folder`; compiled kernels stay where they are."""
    kernels = cache_folder()
    (folder / "bigsvm").mkdir(parents=True)
    (folder / "bigsvm" / kernels.name).symlink_to(kernels)
    os.environ["BIGSVM_CACHE"] = str(folder)


def main() -> None:
    """Try every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="every sixth case")
    options = parser.parse_args()
    found: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and arguments[0] in ("os", "posix", "nt"):
            found.append(f"{arguments[0]}.{arguments[1]}")

    def late(number: int, frame: Any) -> None:
        raise TimeoutError

    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))  # what wants it all gets an error, not the machine
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, late)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BIGSVM_PAYLOAD"] = str(Path(folder) / "payload")
        _own_cache(Path(folder) / "cache")
        bench, tried = Bench(Path(folder)), 0
        sys.addaudithook(hook)
        for kind, cases in KINDS.items():
            for name, case in list(cases.items())[:: 6 if options.smoke else 1]:
                for renewed in (False,) if kind in ("copy", "side") else (False, True):
                    getattr(bench, f"try_{kind}")(name, case, renewed)
                    tried += 1
    sys.stdout.write(f"{tried} cases, {tried - bench.failed} clean; unpickled: {found or 'nothing'}\n")
    if bench.failed or found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
