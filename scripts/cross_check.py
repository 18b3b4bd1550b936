#!/usr/bin/env python3
"""Random fits against an evaluator and an optimum that are none of ours: nothing may be claimed that is not so.

Each case is rows in some format (arrays, Zarr 2 and 3, Parquet, text; dense or CSR; plain ones, and nasty ones: twins
with opposite labels, far offsets, constant columns, empty rows, values of extreme size, indefinite kernels, weights of
0, labels beyond 2^53 ...) and one to three fits of them that share store and scratch, with any solver, loss, bias,
kernel, rule for several classes and stream.  `scripts/cross/` computes from the definition, in longdouble, what each
fit says: objective, dual point, gap, proof, violation, scores, labels, what `certify` says of it, what must be refused.
A fit that takes more than --cpu seconds of CPU is a failure, as is one that ends with an exit code of its own.

    scripts/cross_check.py --fits 2000 --jobs 2 --json found.json
    scripts/cross_check.py --case 137          one case again, told in full
    scripts/cross_check.py --smoke
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "cross" / "worker.py"
SMOKE = (0, 16, 24, 28, 31, 37, 44, 60, 92)
"""Cases of solvers and dtypes that other tests have compiled already."""
_PATIENCE = 20  # times the CPU seconds: a worker that says nothing for so long waits for something


class Worker:
    """A process that runs cases; started again when a fit has taken it with it."""

    def __init__(self, cpu_s: float, verbose: bool) -> None:
        self.cpu_s, self.verbose = cpu_s, verbose
        self.process: subprocess.Popen[str] | None = None
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, seed: int) -> dict[str, Any]:
        """What became of a case; a fit that did not end is a finding of kind `endless`."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{seed}\n")
        process.stdin.flush()
        last: dict[str, Any] = {"step": 0, "about": "before the first fit"}
        late = threading.Timer(_PATIENCE * self.cpu_s, process.kill)
        late.start()
        try:
            for line in process.stdout:
                said = json.loads(line)
                if "findings" in said:
                    return said
                last = said if "begin" in said else last
                if self.verbose:
                    sys.stdout.write(json.dumps(said, indent=1) + "\n")
        finally:
            late.cancel()
        return self._gone(seed, last)

    def _started(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            self._clean()
            self.folder = tempfile.TemporaryDirectory(prefix="bigsvm-cross-")
            command = [sys.executable, str(WORKER), str(self.cpu_s), self.folder.name]
            command += ["--verbose"] if self.verbose else []
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        return self.process

    def _gone(self, seed: int, last: dict[str, Any]) -> dict[str, Any]:
        assert self.process is not None
        code = self.process.wait()
        if code == -signal.SIGXCPU:
            kind, words = "endless", f"did not end within {self.cpu_s:g} s of CPU"
        elif code == -signal.SIGKILL:
            kind, words = "endless", "was waited for in vain, or killed"
        else:
            kind, words = "crash", f"the process ended with {code}"
        found = [{"step": last["step"], "about": last["about"], "kind": kind, "words": words}]
        return {"seed": seed, "fits": last["step"] + 1, "findings": found, "seen": {}}

    def close(self) -> None:
        """End the process, when it has nothing left to do."""
        if self.process is not None and self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()
        self._clean()

    def _clean(self) -> None:
        """Delete what a process left behind."""
        if self.folder is not None:
            self.folder.cleanup()
            self.folder = None


class Summary:
    """What was found so far, printed as it comes."""

    def __init__(self) -> None:
        self.fits, self.cases, self.seen, self.kinds = 0, 0, Counter[str](), Counter[str]()
        self.failures: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def add(self, case: dict[str, Any]) -> None:
        with self.lock:
            self.cases, self.fits = self.cases + 1, self.fits + case["fits"]
            self.seen.update(case["seen"])
            for found in case["findings"]:
                command = f"python scripts/cross_check.py --case {case['seed']}"
                self.kinds[found["kind"]] += 1
                self.failures.append({"command": command, **found})
                sys.stdout.write(f"{command}   step {found['step']}: {found['kind']}: {found['words']}\n"
                                 f"    {found['about']}\n")  # fmt: skip
                sys.stdout.flush()

    def document(self, seed: int) -> dict[str, Any]:
        """All of it; the CPU seconds are those of the workers, and of what compiled for them."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "seed": seed, "fits": self.fits, "cases": self.cases, "failed": len(self.failures),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
            "kinds": dict(sorted(self.kinds.items())), "seen": dict(sorted(self.seen.items())),
            "failures": self.failures,
        }  # fmt: skip


def check(seeds: Any, fits: int, jobs: int, cpu_s: float, verbose: bool = False) -> Summary:
    """Run cases, some at a time, until there were so many fits."""
    summary, todo = Summary(), iter(seeds)
    failed: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def work() -> None:
        worker = Worker(cpu_s, verbose)
        try:
            while True:
                with summary.lock:
                    seed = next(todo, None) if summary.fits < fits else None
                if seed is None:
                    break
                summary.add(worker.run(seed))
        except BaseException as error:
            failed.put(error)
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not failed.empty():
        raise failed.get()
    return summary


def main() -> None:
    """Run the cases and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=500, help="how many, more or less")
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each next one has the next")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cpu", type=float, default=60, help="CPU seconds that a fit may take")
    parser.add_argument("--case", type=int, nargs="+", metavar="SEED", help="these cases alone; one is told in full")
    parser.add_argument("--smoke", action="store_true", help="a dozen fits")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    options = parser.parse_args()
    if options.case is not None:
        summary = check(options.case, 10**9, options.jobs, options.cpu, verbose=len(options.case) == 1)
    elif options.smoke:
        summary = check(SMOKE, 10**9, 1, options.cpu)
    else:
        summary = check(range(options.seed, 1 << 62), options.fits, options.jobs, options.cpu)
    document = summary.document(options.seed)
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    endless = summary.kinds["endless"]
    wrong = len(summary.failures) - endless
    sys.stdout.write(f"{summary.fits:,} fits in one run, {wrong:,} wrong claims, {endless:,} endless\n")
    short = {name: value for name, value in document.items() if name not in ("failures", "seen")}
    sys.stdout.write(json.dumps(short) + "\n")
    if summary.failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
