#!/usr/bin/env python3
"""Kill a fit again and again, resume it, and compare the model with that of an undisturbed run, byte by byte.

    kill     SIGKILL at random instants (a third of them while a checkpoint is being written, some several times in a
             row), then `bigsvm resume` until it ends
    torn     as kill, and the newest checkpoint is cut short before the resume
    term     SIGTERM: out within 10 s with exit 75, then resume
    shared   three fits at one time share an empty scratch folder, a third of them are killed

After each: the model directories are the same, nothing half-written is visible, no temporary is left beside the model.

    scripts/stress/kill_test.py --kills 100 --torn 50 --terms 50 --shared 20
    scripts/stress/kill_test.py --smoke
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from children.forked import forked_command

import bigsvm
from bigsvm.store.ingest.demo_rows import write_problem

Command = list[str]
MOST_SECONDS = 10.0


class Trial:
    """One problem, its undisturbed model, and ways to disturb the making of it.

    patience : seconds that a run may take to end after SIGTERM
    forks : runs are forked from this process, which has imported what they need; else they are programs of their own
    """

    patience = MOST_SECONDS
    forks = False

    def __init__(self, work: Path, rows: int, memory: str, tol: float, seed: int) -> None:
        self.work, self.tol = work, tol
        self.store = work / "rows.zarr"
        write_problem(self.store, rows)
        self.prepare(memory, seed)

    def prepare(self, memory: str, seed: int) -> None:
        """The undisturbed model, and how long it takes to make."""
        self.memory, self.random = memory, random.Random(seed)
        began = time.monotonic()
        self.run_to_end(self.fit("reference"))
        self.seconds = time.monotonic() - began
        began = time.monotonic()
        self.run_to_end(self.fit("again"))  # kernels compiled, working copy made
        self.seconds = time.monotonic() - began
        self.compare("again")

    def fit(self, name: str) -> Command:
        return [
            *(sys.executable, "-m", "bigsvm", "fit", str(self.store), "--loss", "hinge", "--memory", self.memory),
            *("--tol", str(self.tol), "--checkpoint-every", "0.1s", "--quiet"),
            *("--scratch", str(self.work / "scratch"), "-o", str(self.work / f"{name}.model")),
        ]

    def resume(self, name: str) -> Command:
        run = self.work / f"{name}.model.run"
        if not (run / "run.json").exists():  # killed before it had a record: it is simply started again
            return self.fit(name)
        return [sys.executable, "-m", "bigsvm", "resume", str(run), "--quiet"]

    def start(self, command: Command, errors: Path | None = None) -> Any:
        """A process that runs a command and says nothing; errors : file for what it says after all."""
        if self.forks:
            return forked_command(command, errors)
        with open(errors or os.devnull, "wb") as said:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)

    def run_to_end(self, command: Command) -> None:
        errors = self.work / "said.txt"
        code = self.start(command, errors).wait()
        if code != 0:
            raise SystemExit(f"exit {code}: {' '.join(command)}\n{errors.read_text()}")

    def disturb(self, command: Command, name: str, how: signal.Signals) -> bool:
        """Start, wait, send; whether the run was still going on when the signal came."""
        process = self.start(command)
        wait = self.random.uniform(0.0, 1.1) * self.seconds
        if self.random.random() < 1 / 3:
            self._wait_for_writing(process, name, wait)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait)
        if process.poll() is not None:
            return False
        process.send_signal(how)
        began = time.monotonic()
        code = process.wait()
        took = time.monotonic() - began
        if code == -signal.SIGTERM and not (self.work / f"{name}.model.run" / "lock").exists():
            return not self.over(name)  # the interpreter was starting, or ending: no run was going on
        if how is signal.SIGTERM and (took > self.patience or code not in (75, 0)):
            raise SystemExit(f"SIGTERM: exit {code} after {took:.1f} s")
        return code != 0

    def _wait_for_writing(self, process: Any, name: str, wait: float) -> None:
        """Until a temporary stands in the checkpoint folder, after `wait` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait * 0.7)
        folder = self.work / f"{name}.model.run" / "checkpoint"
        until = time.monotonic() + 2.0
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError):
                if any(name.startswith(".") for name in os.listdir(folder)):
                    return

    def over(self, name: str) -> bool:
        """Whether a run has come to its end, by its record."""
        record = self.work / f"{name}.model.run" / "run.json"
        return record.exists() and json.loads(record.read_bytes())["status"] == "converged"

    def tear(self, name: str) -> None:
        """Cut a file of the newest checkpoint in two."""
        folder = self.work / f"{name}.model.run" / "checkpoint"
        found = sorted(path for path in folder.glob("[0-9]*") if path.is_dir()) if folder.is_dir() else []
        if len(found) < 2:
            return
        file = self.random.choice(sorted(found[-1].iterdir()))
        with open(file, "r+b") as handle:
            handle.truncate(file.stat().st_size // 2)

    def one(self, name: str, how: signal.Signals, torn: bool) -> int:
        """Disturb, resume to the end, compare; how often it was hit."""
        hits = int(self.disturb(self.fit(name), name, how))
        for _ in range(self.random.choice((0, 0, 1, 3))):
            if self.over(name):
                break
            hits += self.disturb(self.resume(name), name, how)
        model = self.work / f"{name}.model"
        if model.exists():
            bigsvm.load_model(model)  # whole wherever it is visible
        if not self.over(name):
            if torn:
                self.tear(name)
            self.run_to_end(self.resume(name))
        self.compare(name)
        return hits

    def together(self, name: str) -> int:
        """Three fits share a scratch folder, about a third of them die; how many did."""
        scratch, killed = self.work / f"{name}.scratch", 0
        names = [f"{name}-{letter}" for letter in "abc"]
        commands = [[*self.fit(one)[:-4], "--scratch", str(scratch), *self.fit(one)[-2:]] for one in names]
        running = [self.start(command) for command in commands]
        for process in running:
            if self.random.random() < 1 / 3:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self.random.uniform(0.0, 2.0) * self.seconds)
                killed += process.poll() is None
                process.kill()
        for one, command, process in zip(names, commands, running, strict=True):
            if process.wait() != 0:
                if process.returncode != -signal.SIGKILL:
                    raise SystemExit(f"{one}: exit {process.returncode}")
                if not self.over(one):  # else it was killed on its way out
                    self.run_to_end([*command, "--resume"])
        for one in names:  # after all have ended: until then a temporary beside them may be a live one
            self.compare(one)
        shutil.rmtree(scratch)
        return killed

    def compare(self, name: str) -> None:
        one, two = self.work / "reference.model", self.work / f"{name}.model"
        names = [sorted(path.name for path in folder.iterdir()) for folder in (one, two)]
        if names[0] != names[1]:
            raise SystemExit(f"{two}: {names[1]} instead of {names[0]}")
        for file in names[0]:
            if (one / file).read_bytes() != (two / file).read_bytes():
                raise SystemExit(f"{two / file} differs")
        litter = [path for path in self.work.iterdir() if ".tmp-" in path.name]
        checkpoint = self.work / f"{name}.model.run" / "checkpoint"
        if litter or checkpoint.exists():
            raise SystemExit(f"left behind: {litter or checkpoint}")


def main() -> None:
    """Run all trials and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--torn", type=int, default=50)
    parser.add_argument("--terms", type=int, default=50)
    parser.add_argument("--shared", type=int, default=20)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--memory", default="48MiB")
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="one of each, small")
    options = parser.parse_args()
    if options.smoke:
        options.kills = options.torn = options.terms = options.shared = 1
        options.rows, options.memory, options.tol = 15_000, "29MiB", 1e-3
        Trial.patience, Trial.forks = math.inf, True  # the test suite runs on machines that do much else
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        trial = Trial(Path(folder), options.rows, options.memory, options.tol, options.seed)
        sys.stdout.write(f"undisturbed: {trial.seconds:.1f} s\n")
        for what, count, how, torn in (
            ("kill", options.kills, signal.SIGKILL, False),
            ("torn", options.torn, signal.SIGKILL, True),
            ("term", options.terms, signal.SIGTERM, False),
        ):
            hits = sum(trial.one(f"{what}{number}", how, torn) for number in range(count))
            sys.stdout.write(f"{what}: {count} of {count} byte-identical, {hits} times hit while running\n")
            sys.stdout.flush()
        killed = sum(trial.together(f"shared{number}") for number in range(options.shared))
        fits = 3 * options.shared
        sys.stdout.write(f"shared: {fits} of {fits} byte-identical, {killed} of them killed while running\n")


if __name__ == "__main__":
    main()
