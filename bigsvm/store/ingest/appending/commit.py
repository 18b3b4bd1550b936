"""Putting a grown store in the place of the one it came from: one rename of the manifest, all else before or after it.

1. New chunks go under their keys, which nobody asks for yet.  Of each object that changes both versions are kept in
   `bigsvm-former/`, and the old manifest too.
2. The new manifest takes the place of the old one.  A reader that opens now finds every version that it lists.
3. What changed goes under its keys, for those who read no manifest.  `finish_pending` does it for a writer that died.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash
import zarr
from zarr.storage import LocalStore

from bigsvm.errors import MissingInput, OutputError
from bigsvm.files.atomic import cannot_write, read_bytes, remove, sync_directory
from bigsvm.files.paths import local_path
from bigsvm.files.undisturbed import it_is_done, undisturbed
from bigsvm.store.sealing.former import (
    PENDING,
    former_stem,
    keep,
    kept_bytes,
    put_kept,
    write_pending,
)
from bigsvm.store.sealing.manifest import FORMER, STEM, Manifest, load_manifest
from bigsvm.store.sealing.one_writer import changing

_PARTS = f"{STEM}-"


@contextmanager
def growing(root: Path) -> Iterator[None]:
    """Alone with a store, whose last writer's work is done.  Raises MissingInput, OutputError naming who has it."""
    if not root.is_dir():
        raise MissingInput("no such store", str(root), "leave --append out: a new store is made")
    with changing(root):
        yield


def compact(root: Path) -> dict[str, Any]:
    """Let go of what a store keeps for readers that opened it before rows were added.

    Returns store, freed_bytes, store_fingerprint.  Raises MissingInput where there is no sealed store.
    """
    with growing(root):
        try:
            manifest = load_manifest(root)
        except FileNotFoundError:
            raise MissingInput("no sealed store here", str(root)) from None
        freed = kept_bytes(root)
        remove(root / FORMER)
    return {"store": str(root), "freed_bytes": freed, "store_fingerprint": manifest.fingerprint}


def commit(root: Path, aside: Path, former: Manifest) -> Manifest:
    """Put the files in `aside` into the store at `root`, whose manifest is `former`; the new manifest.

    To be called under the lock of the store.

    Raises OutputError : it cannot be written, or another store lies there now; that store is then what it was.
    """
    try:
        if load_manifest(root).fingerprint != former.fingerprint:
            raise OutputError("was exchanged while rows were added to it", str(root), "add the rows again")
        return _commit(root, aside, former)
    except OSError as error:
        raise cannot_write(root, error) from error


def _commit(root: Path, aside: Path, former: Manifest) -> Manifest:
    grown = load_manifest(aside)
    changed: dict[str, str] = {}
    places = _places_of_labels(aside)
    kept = root / FORMER
    kept.mkdir(exist_ok=True)
    for path in _files(aside):
        key = path.relative_to(aside).as_posix()
        _sync(path)
        if key == f"{STEM}.json":
            continue
        is_part = key.startswith(_PARTS)
        before = _part_digest(root / key) if is_part else former.lookup(key)
        now = _part_digest(path) if is_part else grown.lookup(key)
        if now is None:
            continue  # a spool
        if before == now:
            continue
        if before is None:
            target = local_path(root, key)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
            sync_directory(target.parent)
            continue
        keep(root / key, kept / before)
        keep(path, kept / now)
        changed[key] = now
    changed = dict(sorted(changed.items(), key=lambda change: (*places.get(change[0], (0, 0)), change[0])))
    keep(root / f"{STEM}.json", root / f"{former_stem(former.fingerprint)}.json")
    write_pending(root, changed)
    sync_directory(root)
    with undisturbed():
        os.replace(aside / f"{STEM}.json", root / f"{STEM}.json")
        it_is_done(root)
        sync_directory(root)
        for key, now in changed.items():
            put_kept(root, key, now)
        remove(kept / PENDING)
    return grown


def _places_of_labels(aside: Path) -> dict[str, tuple[int, int]]:
    """By key, when objects of labels are put in place, where the classes are others now: (turn, turn within that).

    Whoever reads no manifest sees some objects new and others old meanwhile.  The chunk with the highest code comes
    first of all, and the categories come last: until then that code is beyond the categories, which is an error and
    not the name of another class.
    """
    names = aside / "obs/label/categories"
    if not names.is_dir():
        return {}
    found = {path.relative_to(aside).as_posix(): (2, 0) for path in _files(names)}
    codes: Any = zarr.open_array(LocalStore(aside, read_only=True), path="obs/label/codes", mode="r")
    step = codes.chunks[0]
    for number in range(-(-codes.shape[0] // step)):
        highest = int(codes[number * step : (number + 1) * step].max())
        found[f"obs/label/codes/c/{number}"] = (-1, -highest)
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(Path(where) / name for where, _, names in os.walk(folder) for name in names)


def _part_digest(path: Path) -> str | None:
    """Of a part of a manifest, as the manifest has it."""
    return xxhash.xxh3_128_hexdigest(read_bytes(path)) if path.is_file() else None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
