#!/usr/bin/env python3
"""Damage a store in 13 ways and fit: each is refused by the name of what is damaged, or the model is the right one.

Each trial copies a sealed store, damages one of its files, and fits from it with an empty scratch folder.  Clean are

    refused    exit 65, 66, 74 (of a working copy 73, too), one line that names the damaged key or file, no model
    harmless   exit 0 and the bytes of the model of the undamaged store

and nothing else.  The same is done to the working copy and to the model (`predict`).

    scripts/damage_test.py --trials 100
    scripts/damage_test.py --smoke
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import bigsvm
from bigsvm.cli.main import run as command_line
from bigsvm.run import sizes

REFUSED = (65, 66, 73, 74)
Damage = Callable[[Path, list[Path], random.Random], None]


def _rewrite(file: Path, change: Callable[[bytearray], bytearray | bytes]) -> None:
    file.chmod(0o644)
    file.write_bytes(change(bytearray(file.read_bytes())))


def flip(file: Path, others: list[Path], rng: random.Random) -> None:
    """One bit."""

    def change(content: bytearray) -> bytearray:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        return content

    _rewrite(file, change)


def zeros(file: Path, others: list[Path], rng: random.Random) -> None:
    """A run of bytes that never came to the disk."""

    def change(content: bytearray) -> bytearray:
        start = rng.randrange(len(content))
        stop = min(len(content), start + rng.randrange(1, 513))
        if not any(content[start:stop]):
            content[start] = 255
            return content
        content[start:stop] = bytes(stop - start)
        return content

    _rewrite(file, change)


def noise(file: Path, others: list[Path], rng: random.Random) -> None:
    """Other content of the same length."""
    _rewrite(file, lambda content: rng.randbytes(len(content)))


def cut(file: Path, others: list[Path], rng: random.Random) -> None:
    """The end is missing."""
    _rewrite(file, lambda content: content[: rng.randrange(len(content))])


def cut_one(file: Path, others: list[Path], rng: random.Random) -> None:
    """The last byte is missing."""
    _rewrite(file, lambda content: content[:-1])


def emptied(file: Path, others: list[Path], rng: random.Random) -> None:
    """Nothing is in it."""
    _rewrite(file, lambda content: b"")


def longer(file: Path, others: list[Path], rng: random.Random) -> None:
    """Something follows."""
    _rewrite(file, lambda content: content + rng.randbytes(rng.randrange(1, 64)))


def page_of_an_error(file: Path, others: list[Path], rng: random.Random) -> None:
    """What a proxy said in its place."""
    _rewrite(file, lambda content: b"<html><body>503 Service Unavailable</body></html>")


def removed(file: Path, others: list[Path], rng: random.Random) -> None:
    """It is gone."""
    file.unlink()


def folder_in_its_place(file: Path, others: list[Path], rng: random.Random) -> None:
    """A folder has its name."""
    file.unlink()
    file.mkdir()


def dangling(file: Path, others: list[Path], rng: random.Random) -> None:
    """A link to nowhere has its name."""
    file.unlink()
    file.symlink_to("nowhere")


def swapped(file: Path, others: list[Path], rng: random.Random) -> None:
    """It and another one have changed names."""
    other = rng.choice(others)
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)


def copied(file: Path, others: list[Path], rng: random.Random) -> None:
    """Another one's content."""
    file.write_bytes(rng.choice(others).read_bytes())


DAMAGES: list[Damage] = [
    flip, zeros, noise, cut, cut_one, emptied, longer, page_of_an_error, removed, folder_in_its_place, dangling,
    swapped, copied,
]  # fmt: skip


def run(command: list[str]) -> tuple[int, str]:
    """Exit code and standard error of a command in this process."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = command_line(command)
    return code, said.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Trials:
    """A store, its working copy, its model; and what comes of damaging them."""

    def __init__(self, work: Path, seed: int) -> None:
        self.work, self.random, self.seen = work, random.Random(seed), Counter[str]()
        self.harmless: list[str] = []
        rng = np.random.default_rng(seed)
        # Wide and sorted by label: features are renumbered and rows shuffled, so the copy has all kinds of files.
        X = sp.random(400, 20_000, 0.001, "csr", np.float32, rng)
        y = np.where(X @ rng.normal(size=20_000) > 0, 1, -1)
        order = np.argsort(y, kind="stable")
        X, y = X[order], y[order]
        # Files of chunks: 4 or more of each array.
        bigsvm.ingest((X, y), work / "store.zarr", chunk_bytes=4096)
        self.must(self.fit(work / "store.zarr", work / "fit"))
        self.right = contents(work / "fit" / "m")
        self.must(self.predict(work / "fit" / "m", work / "right.csv"))

    def must(self, command: list[str]) -> None:
        code, said = run(command)
        if code:
            raise SystemExit(f"exit {code}: {' '.join(command)}\n{said}")

    def fit(self, store: Path, folder: Path) -> list[str]:
        return [
            *("fit", str(store), "--loss", "hinge", "--memory", "64MiB", "--quiet", "--overwrite"),
            *("--max-passes", "30", "--allow-unconverged", "--scratch", str(folder / "scratch")),
            *("-o", str(folder / "m")),
        ]

    def predict(self, model: Path, out: Path) -> list[str]:
        return ["predict", str(model), str(self.work / "store.zarr"), "-o", str(out), "--quiet", "--overwrite"]

    def store(self, damage: Damage) -> None:
        """Damage one file of a copy of the store, then fit from it."""
        folder = self.work / "try"
        shutil.copytree(self.work / "store.zarr", folder / "store.zarr")
        what = self.damage(damage, folder / "store.zarr")
        code, said = run(self.fit(folder / "store.zarr", folder))
        self.judge(f"store, {damage.__name__}, {what}", code, said, what, folder / "m", self.right)

    def copy(self, damage: Damage) -> None:
        """Damage one file of the working copy, then fit again."""
        folder = self.work / "try"
        shutil.copytree(self.work / "fit" / "scratch", folder / "scratch")
        (rows,) = (folder / "scratch" / "bigsvm").glob("rows-*/")
        what = self.damage(damage, rows)
        code, said = run(self.fit(self.work / "store.zarr", folder))
        self.judge(f"working copy, {damage.__name__}, {what}", code, said, what, folder / "m", self.right)

    def model(self, damage: Damage) -> None:
        """Damage one file of a model, then predict with it."""
        folder = self.work / "try"
        shutil.copytree(self.work / "fit" / "m", folder / "m")
        what = self.damage(damage, folder / "m")
        code, said = run(self.predict(folder / "m", folder / "out.csv"))
        right = {"right.csv": (self.work / "right.csv").read_bytes()}
        if (folder / "out.csv").exists():
            (folder / "out").mkdir()
            (folder / "out.csv").rename(folder / "out" / "right.csv")
        self.judge(f"model, {damage.__name__}, {what}", code, said, what, folder / "out", right)

    def damage(self, damage: Damage, root: Path) -> str:
        # Names of features are not read by a fit.
        files = sorted(path for path in root.rglob("*") if path.is_file() and "_index" not in path.parts)
        file = self.random.choice(files)
        before = file.read_bytes()
        others = [path for path in files if path.read_bytes() != before]
        damage(file, others, self.random)
        return str(file.relative_to(root))

    def judge(self, where: str, code: int, said: str, what: str, out: Path, right: dict[str, bytes]) -> None:
        """Count a trial as refused or harmless; anything else ends the run."""
        lines = [line for line in said.splitlines() if "warning" not in line]
        if code in REFUSED and len(lines) == 1 and lines[0].startswith("bigsvm: error: ") and not out.exists():
            # A swap is noticed at either of the two; metadata by what it makes of the others.
            named = Path(what).name in said or what.split("/")[0] in said
            self.seen["refused" if named else "refused, another key named"] += 1
        elif code == 0 and contents(out) == right:
            self.seen["harmless"] += 1
            self.harmless.append(where)
        else:
            raise SystemExit(f"{where}: exit {code}\n{said}")
        shutil.rmtree(self.work / "try")


def main() -> None:
    """Run all trials and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="of each kind of damage")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="one of each kind")
    options = parser.parse_args()
    trials = 1 if options.smoke else options.trials
    # Small data streams, as large data does: several blocks, none of them kept in memory.
    sizes._COPY_BLOCK, sizes.BLOCK_BYTES = 600, 6000
    sizes.Sizes.resident_from = lambda self: 1 << 50  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NO_COLOR"] = "1"
        trial = Trials(Path(folder), options.seed)
        for name in ("store", "copy", "model"):
            trial.seen.clear()
            for damage in DAMAGES:
                for _ in range(trials):
                    getattr(trial, name)(damage)
            found = ", ".join(f"{count} {what}" for what, count in sorted(trial.seen.items()))
            sys.stdout.write(f"{name}: {len(DAMAGES)} kinds x {trials}: {found}; 0 silently wrong\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
