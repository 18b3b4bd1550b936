#!/usr/bin/env python3
"""Damage, exchange or take away what a fit reads: it is refused by the name of what is wrong, or the model is right.

    store      one file of a sealed store, in 13 ways, and an empty scratch folder
    copy       one file of the working copy, in 13 ways
    columns    one file of the copy by columns, in 13 ways
    model      one file of a model, in 13 ways, then `predict`
    documents  bits of staged.json, columns.json and model.json; of the last no claim may change
    copies     working copies of another store, label or weight in the place of its own, or in the same scratch
    manifests  side manifests of stores that were never sealed: damaged, or another store's
    holes      chunks that are gone before an unsealed store is used for the first time: always refused

Clean are

    refused    exit 65, 66, 74 (of a working copy 73, too), one line that names the damaged key or file, no model
    harmless   exit 0 and the bytes of the model of undamaged files

and nothing else; the script says what was not, and ends with 1.

    scripts/stress/damage_test.py --trials 100
    scripts/stress/damage_test.py --smoke
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from damage.belonging import COLUMN_SOLVER, Belonging
from damage.trials import Trials, contents, fit, must, sealed_store
from damage.ways import DAMAGES, Damage

from bigsvm.compiled import cache_folder
from bigsvm.run.fit import sizes

KINDS = ("store", "copy", "columns", "model", "documents", "copies", "manifests", "holes")


class Files(Trials):
    """One file is damaged: of a store, of its working copies, of a model."""

    def prepare(self) -> None:
        """A store, its fits, its predictions."""
        self.good, self.fits = sealed_store(self.work / "store.zarr", 0), self.work / "fit"
        must(fit(self.good, self.fits))
        must(fit(self.good, self.work / "by columns", *COLUMN_SOLVER))
        must(self._predict(self.fits / "m", self.work / "out.csv"))

    def store(self, damage: Damage) -> None:
        """Damage one file of a copy of the store, then fit from it."""
        shutil.copytree(self.good, self.folder / "store.zarr")
        what = self.damage(damage, self.folder / "store.zarr")
        self._fit(f"store, {damage.__name__}, {what}", self.folder / "store.zarr", self.fits, what)

    def copy(self, damage: Damage) -> None:
        """Damage one file of the working copy, then fit again."""
        self._of_copy(damage, "rows", self.fits)

    def columns(self, damage: Damage) -> None:
        """Damage one file of the copy by columns, then fit again."""
        self._of_copy(damage, "columns", self.work / "by columns", *COLUMN_SOLVER)

    def model(self, damage: Damage) -> None:
        """Damage one file of a model, then predict with it."""
        shutil.copytree(self.fits / "m", self.folder / "m")
        what = self.damage(damage, self.folder / "m")
        command = self._predict(self.folder / "m", self.folder / "out.csv")
        right = {"out.csv": (self.work / "out.csv").read_bytes()}
        self.judge(f"model, {damage.__name__}, {what}", command, self.folder / "out.csv", right, what)

    def _of_copy(self, damage: Damage, kind: str, fits: Path, *solver: str) -> None:
        shutil.copytree(fits / "scratch", self.folder / "scratch")
        (copy,) = (self.folder / "scratch" / "bigsvm").glob(f"{kind}-*/")
        what = self.damage(damage, copy)
        self._fit(f"{kind} of the working copy, {damage.__name__}, {what}", self.good, fits, what, *solver)

    def _fit(self, where: str, store: Path, fits: Path, what: str, *solver: str) -> None:
        self.judge(where, fit(store, self.folder, *solver), self.folder / "m", contents(fits / "m"), what)

    def _predict(self, model: Path, out: Path) -> list[str]:
        return ["predict", str(model), str(self.good), "-o", str(out), "--quiet", "--overwrite"]


def main() -> None:
    """Run all trials and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="of each kind of damage")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, help="this part alone")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="every way of damage once, of one kind of file after the other; few of the rest",
    )
    options = parser.parse_args()
    trials = 1 if options.smoke else options.trials
    # Small data streams, as large data does: several blocks, none of them kept in memory.
    sizes._COPY_BLOCK, sizes.BLOCK_BYTES = 600, 6000
    sizes.Sizes.resident_from = lambda self: 1 << 50  # type: ignore[method-assign]
    kernels = cache_folder()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NO_COLOR"] = "1"
        os.environ["BIGSVM_CACHE"] = folder  # of side manifests; compiled kernels stay where they are
        (Path(folder) / "bigsvm").mkdir()
        (Path(folder) / "bigsvm" / kernels.name).symlink_to(kernels)
        files, belonging = Files(Path(folder), options.seed), Belonging(Path(folder), options.seed)
        wanted = [options.only] if options.only else KINDS
        if set(wanted) & {"store", "copy", "columns", "model"}:
            files.prepare()
        for turn, name in enumerate(wanted):
            if hasattr(files, name):
                for damage in DAMAGES[turn::4] if options.smoke else DAMAGES:
                    for _ in range(trials):
                        getattr(files, name)(damage)
                files.told(name)
                continue
            few: dict[str, tuple[int, ...]] = {"documents": (2,), "manifests": (1, 4), "copies": (1,), "holes": (2, 2)}
            many = {"documents": (10 * trials,), "manifests": (trials,)}
            getattr(belonging, name)(*(few if options.smoke else many).get(name, ()))
            belonging.told(name)
    if files.wrong + belonging.wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
