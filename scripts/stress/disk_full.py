#!/usr/bin/env python3
"""Fill the disk under a run, in four places in turn: scratch, checkpoints, the model, the output of ingest.

A small file system of its own (ext4 in a file, mounted; so this wants root) is filled up but for a random number of
bytes.  Clean is a run that

  * ends with exit 73 (78 where the plan sees before any work that it cannot fit), one line that names the path and
    the bytes needed; or that needed no more than there was, and is right
  * leaves nothing half-written at a final path, and no temporary
  * goes on when the space is there again, to the same bytes as a run on an empty disk

    scripts/stress/disk_full.py --trials 60
    scripts/stress/disk_full.py --smoke
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from children.forked import forked_command

from bigsvm.store.ingest.demo_rows import write_problem

DISK = 96 << 20
PLACES = ("scratch", "checkpoint", "model", "ingest")
FULL = (73, 78)


@contextmanager
def small_disk(work: Path) -> Iterator[Path]:
    """A file system of DISK bytes."""
    image, place = work / "disk.img", work / "disk"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(DISK)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    shutil.rmtree(place / "lost+found")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


class Trials:
    """One problem, its right answers, and what comes of too little room.

    forks : runs are forked from this process, which has imported what they need; else they are programs of their own
    """

    def __init__(self, work: Path, disk: Path, rows: int, seed: int, forks: bool) -> None:
        self.work, self.disk, self.random, self.forks = work, disk, random.Random(seed), forks
        self.seen = Counter[str]()
        self.store, self.text = work / "rows.zarr", work / "rows.svm"
        write_problem(self.store, rows)
        self.must(self.bigsvm("dump", self.store, self.text))
        self.must(self.ingest(work / "right.zarr"))
        self.must(self.fit(work, work, work))
        # What each place takes on an empty disk: how little is too little.
        self.takes = {
            "scratch": tree_bytes(work / "scratch"),
            "checkpoint": 3 * tree_bytes(work / "m"),
            "model": tree_bytes(work / "m"),
            "ingest": tree_bytes(work / "right.zarr"),
        }

    def bigsvm(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "bigsvm", *map(str, arguments)]

    def fit(self, scratch: Path, run: Path, model: Path, resume: bool = False) -> list[str]:
        return self.bigsvm(
            *("fit", self.store, "--loss", "hinge", "--memory", "32MiB", "--tol", "1e-3", "--quiet"),
            *(
                "--scratch",
                scratch / "scratch",
                "--run",
                run / "m.run",
                "-o",
                model / "m",
                "--checkpoint-every",
                "0.05s",
            ),
            *(["--resume"] if resume else []),
        )

    def ingest(self, store: Path) -> list[str]:
        return self.bigsvm("ingest", self.text, store, "--quiet")

    def run(self, command: list[str]) -> tuple[int, str]:
        """Exit code and standard error."""
        if not self.forks:
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            return done.returncode, done.stderr
        errors = self.work / "said.txt"
        return forked_command(command, errors).wait(), errors.read_text()

    def must(self, command: list[str]) -> None:
        code, said = self.run(command)
        if code:
            raise SystemExit(f"exit {code}: {' '.join(command)}\n{said}")

    def one(self, place: str) -> None:
        """One run with too little room in one place."""
        folder = self.work / "try"
        for path in (folder, self.disk):
            path.mkdir(exist_ok=True)
            for entry in path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        filler = self.fill(int(self.takes[place] * self.random.uniform(0.0, 1.05)))
        where = {name: self.disk if name == place else folder for name in PLACES}
        if place == "ingest":
            command = again = self.ingest(self.disk / "store.zarr")
            final, right = self.disk / "store.zarr", self.work / "right.zarr"
        else:
            places = (where["scratch"], where["checkpoint"], where["model"])
            command, again = self.fit(*places), self.fit(*places, resume=True)
            final, right = where["model"] / "m", self.work / "m"
        code, said = self.run(command)
        if code == 0:
            self.seen[f"{place}: enough"] += 1
        else:
            self.judge(place, code, said, final)
        filler.unlink()
        if code:
            self.must(again)
        if contents(final) != contents(right):
            raise SystemExit(f"{place}: another result after the disk was full")
        litter = [path for root in (folder, self.disk) for path in root.rglob("*.tmp-*")]
        if litter:
            raise SystemExit(f"{place}: left behind {litter}")

    def fill(self, left: int) -> Path:
        """Take all of the disk but `left` bytes."""
        filler = self.disk / "filler"
        with open(filler, "wb") as file:
            while (spare := shutil.disk_usage(self.disk).free - left) > 4096:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, 2), spare // 4096 * 4096)
                except OSError:
                    break
        return filler

    def judge(self, place: str, code: int, said: str, final: Path) -> None:
        lines = [line for line in said.splitlines() if "warning" not in line]
        where = f"{place}: exit {code}\n{said}"
        if code not in FULL or len(lines) != 1 or str(self.disk) not in lines[0] or "bytes" not in lines[0]:
            raise SystemExit(where)
        if final.exists():
            raise SystemExit(f"{where}\nand {final} is there")
        litter = list(self.disk.rglob("*.tmp-*"))
        if litter:
            raise SystemExit(f"{where}\nleft behind {litter}")
        self.seen[f"{place}: exit {code}"] += 1


def tree_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main() -> None:
    """Run the trials, the places taking turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=60, help="over the four places")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="one of each, small")
    options = parser.parse_args()
    if options.smoke:
        options.trials, options.rows = len(PLACES), 4_000
    with tempfile.TemporaryDirectory(dir=options.work) as folder, small_disk(Path(folder)) as disk:
        trials = Trials(Path(folder), disk, options.rows, options.seed, options.smoke)
        for number in range(options.trials):
            trials.one(PLACES[number % len(PLACES)])
        for what, count in sorted(trials.seen.items()):
            sys.stdout.write(f"{what}: {count}\n")
        sys.stdout.write(f"{options.trials} trials, all clean\n")


if __name__ == "__main__":
    main()
