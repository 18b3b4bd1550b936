"""Things in the place of others: copies, manifests and documents that are whole, and another's.

`copies` puts the working copy of another store, or of another label of the same store, under a key; `manifests` does it
with side manifests, and damages them; `holes` takes chunks away before a store is used for the first time, when no
manifest knows of them yet; `documents` flips bits of the small files that say what the large ones are.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import zarr

from damage.trials import Trials, contents, fit, must, random_rows, same_claims
from damage.ways import DAMAGES, flip

COLUMN_SOLVER = ("--solver", "pcd", "--loss", "squared_hinge", "--bias", "none")
"""Of the solvers that read columns: of a streamed store a second copy."""


def unsealed_store(path: Path, seed: int, layout: str = "csr", codes: bool = True) -> Path:
    """A store as another program writes it: two label columns, weights, no manifest; no chunk holds zeros alone."""
    X, y = random_rows(seed, 300, 3000 if layout == "csr" else 40)
    rng = np.random.default_rng(seed)
    group = zarr.create_group(path, attributes={"encoding-type": "anndata"})
    plain = {"compressors": None, "config": {"write_empty_chunks": True}}
    if layout == "csr":
        inner = group.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": list(X.shape)})
        for name in ("data", "indices", "indptr"):
            values = getattr(X, name)
            inner.create_array(name, data=values, chunks=(-(-len(values) // 5),), **plain)
    else:
        group.create_array("X", data=X.toarray() + np.float32(0.25), chunks=(60, 20), **plain)
    other = np.where(rng.random(len(y)) < 0.5, 1, -1)
    columns = {"label": y, "other": other, "weight": rng.uniform(0.5, 2, len(y)), "third": rng.uniform(0.5, 2, len(y))}
    frame = group.create_group("obs", attributes={"encoding-type": "dataframe", "column-order": list(columns)})
    for name, values in columns.items():
        if codes and name in ("label", "other"):
            column = frame.create_group(name, attributes={"encoding-type": "categorical", "ordered": False})
            column.create_array("codes", data=(values > 0).astype(np.int8), chunks=(60,), **plain)
            column.create_array("categories", data=np.array([-1, 1]), **plain)
        else:
            frame.create_array(name, data=values, chunks=(60,), **plain)
    return path


class Belonging(Trials):
    """Trials of what belongs to what."""

    def copies(self, others: int = 4) -> None:
        """Every kind of copy in the place of others: another store, label, weight; made there, or put there.

        others : how many of the four, those that follow in the list below
        """
        one, two = (unsealed_store(self.work / name, seed) for name, seed in (("one", 1), ("two", 2)))
        fits = {
            "one": (one,), "two": (two,), "other label": (one, "--label", "obs/other"),
            "other weight": (one, "--weight", "obs/third"), "no weight": (two, "--weight", "obs/third"),
        }  # fmt: skip
        for solver in (("--loss", "hinge"), COLUMN_SOLVER):
            apart = {name: self.work / f"{name} {solver[1]}" for name in fits}
            for name, (store, *columns) in fits.items():
                must(fit(store, apart[name], *solver, *columns))
            names = list(fits)
            for number, (name, (store, *columns)) in enumerate(fits.items()):
                for former in (names[(number + step) % len(names)] for step in range(1, others + 1)):
                    right, made = contents(apart[name] / "m"), self.folder / "m"
                    command = fit(store, self.folder, *solver, *columns)
                    # The scratch folder of the other fit is used for this one as well.
                    shutil.copytree(apart[former] / "scratch", self.folder / "scratch")
                    self.judge(f"{name} after {former}, one scratch, {solver[1]}", command, made, right)
                    # The other one's copies lie where this fit's own are expected.
                    shutil.copytree(apart[name] / "scratch", self.folder / "scratch")
                    if _put(apart[former] / "scratch", self.folder / "scratch"):
                        self.judge(f"copies of {former} as those of {name}, {solver[1]}", command, made, right)
                    shutil.rmtree(self.folder, ignore_errors=True)

    def documents(self, times: int) -> None:
        """Bits of staged.json, columns.json and model.json."""
        store = unsealed_store(self.work / "documents", 3)
        whole = self.work / "documents fit"
        must(fit(store, whole, *COLUMN_SOLVER))
        right = contents(whole / "m")
        for kind, document in (("rows", "staged.json"), ("columns", "columns.json")):
            for _ in range(times):
                shutil.copytree(whole / "scratch", self.folder / "scratch")
                (copy,) = (self.folder / "scratch" / "bigsvm").glob(f"{kind}-*/")
                self.damage(flip, copy, [copy / document])
                command = fit(store, self.folder, *COLUMN_SOLVER)
                self.judge(f"a bit of {document}", command, self.folder / "m", right, document)
        predicted = self.work / "predicted.csv"
        must(["predict", str(whole / "m"), str(store), "-o", str(predicted), "--quiet"])
        right = {"out.csv": predicted.read_bytes()}
        for _ in range(4 * times):
            model = self.folder / "m"
            shutil.copytree(whole / "m", model)
            self.damage(flip, model, [model / "model.json"])
            # A claim that was changed must not be believed, though predictions be the same.
            changed = not same_claims(model / "model.json", whole / "m" / "model.json")
            command = ["predict", str(model), str(store), "-o", str(self.folder / "out.csv"), "--quiet"]
            self.judge("a bit of model.json", command, self.folder / "out.csv", right, "model.json", changed)

    def manifests(self, times: int, every: int = 1) -> None:
        """Side manifests, kept in the cache folder of stores that were never sealed: damaged, or another store's.

        every : way of damage that is so many after the one before in their list
        """
        cache = Path(os.environ["BIGSVM_CACHE"]) / "bigsvm" / "manifests"
        stores = [unsealed_store(self.work / name, seed) for name, seed in (("three", 4), ("four", 5))]
        sides, rights = [], []
        for store in stores:
            before = set(cache.glob("*"))
            must(fit(store, self.work / f"{store.name} fit"))
            sides.append(sorted(set(cache.glob("*")) - before))
            rights.append(contents(self.work / f"{store.name} fit" / "m"))
        kept = {path: path.read_bytes() for path in [*sides[0], *sides[1]]}
        for damage in DAMAGES[::every]:
            for _ in range(times):
                what = self.damage(damage, cache, sides[0])
                command = fit(stores[0], self.folder)
                self.judge(f"side manifest, {damage.__name__}, {what}", command, self.folder / "m", rights[0], what)
                _restore(cache, kept)
        # The manifest of the other store, and that store's chunks with it: each is whole, and neither belongs here.
        for mine, others in zip(sides[0], sides[1], strict=True):
            mine.write_bytes(kept[others].replace(others.stem.encode(), mine.stem.encode()))
        self.judge("side manifest of another store", fit(stores[0], self.folder), self.folder / "m", rights[0])
        _restore(cache, kept)

    def holes(self, kinds: int = 4, places: int = 4) -> None:
        """Chunks that are gone before the first use: refused, whatever a fill value would make of them.

        kinds : of stores;  places : of an array, of which chunks are gone
        """
        for layout, codes in (("csr", True), ("dense", False), ("csr", False), ("dense", True))[:kinds]:
            name = f"{layout}{', codes' if codes else ''}"
            whole = unsealed_store(self.work / f"whole {name}", 6, layout, codes)
            must(fit(whole, self.work / f"{name} fit", "--weight", "obs/weight"))
            right = contents(self.work / f"{name} fit" / "m")
            for array in _arrays(whole):
                if array.startswith(("obs/other", "obs/third")):
                    continue
                chunks = sorted(path for path in (whole / array / "c").rglob("*") if path.is_file())
                gone = {"first": chunks[:1], "middle": chunks[1:-1], "last": chunks[-1:], "all": chunks}
                for which, lost in list(gone.items())[:places]:
                    if not lost:
                        continue
                    # A name of its own for each: no manifest of another trial knows of its chunks.
                    store = self.folder / f"{self.random.getrandbits(64):x}"
                    shutil.copytree(whole, store)
                    for path in lost:
                        (store / path.relative_to(whole)).unlink()
                    where = f"{name}: {which} of {array}"
                    command = fit(store, self.folder, "--loss", "hinge", "--weight", "obs/weight")
                    self.judge(where, command, self.folder / "m", right, array, only=True)


def _arrays(store: Path) -> list[str]:
    """Keys of a store's arrays."""
    found = []
    for path in store.rglob("zarr.json"):
        if json.loads(path.read_text())["node_type"] == "array":
            found.append(str(path.parent.relative_to(store)))
    return sorted(found)


def _put(source: Path, scratch: Path) -> bool:
    """Put the copies of another scratch folder under the names that are there; whether any names differ."""
    changed = False
    for kind in ("rows", "columns"):
        mine = sorted((scratch / "bigsvm").glob(f"{kind}-*/"))
        theirs = sorted((source / "bigsvm").glob(f"{kind}-*/"))
        for own, other in zip(mine, theirs, strict=True):
            if own.name != other.name:
                changed = True
                shutil.rmtree(own)
                shutil.copytree(other, own)
    return changed


def _restore(folder: Path, kept: dict[Path, bytes]) -> None:
    """The files that were there, and no others."""
    shutil.rmtree(folder)
    folder.mkdir()
    for path, content in kept.items():
        path.write_bytes(content)
