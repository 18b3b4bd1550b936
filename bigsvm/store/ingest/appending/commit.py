"""The commit of an append: one rename of the manifest; every other step comes before or after it.

1. New chunks are moved to their keys, which no reader asks for yet.  Of each object that will change, the old and the
  new version are kept in `bigsvm-former/`, and so is the old manifest.
2. The new manifest replaces the old one.  A reader that opens the store now finds every version that it lists.
3. Changed objects are moved to their keys, for programs that read no manifest.  If the writer dies before that,
  `finish_pending` does it later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash
import zarr
from zarr.storage import LocalStore

from bigsvm.errors import MissingInput, OutputError, in_words
from bigsvm.files.atomic import read_bytes, remove, sync_directory, sync_file
from bigsvm.files.paths import local_path
from bigsvm.files.space import cannot_write
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
    """Lock a store for writing, and finish the append of a writer that died.  Raises MissingInput, OutputError."""
    if not root.is_dir():
        raise MissingInput("no such store", str(root), "leave out --append to make a new store")
    with changing(root):
        yield


def compact(root: Path) -> dict[str, Any]:
    """Delete the old versions that a store keeps for readers which opened it before rows were appended.

    Returns store, freed_bytes, store_fingerprint.  Raises MissingInput if there is no sealed store.
    """
    with growing(root):
        try:
            manifest = load_manifest(root)
        except FileNotFoundError:
            raise MissingInput("no sealed store here", str(root)) from None
        freed = kept_bytes(root)
        remove(root / FORMER)
    return {"store": str(root), "freed_bytes": freed, "store_fingerprint": manifest.fingerprint}


def commit(root: Path, aside: Path, former: Manifest, warn: Callable[[str], object]) -> Manifest:
    """Move the files in `aside` into the store at `root`, whose manifest is `former`; returns the new manifest.

    The caller must hold the lock of the store.

    warn : called with a sentence if the rows were added, and a step after that failed; whoever took that for a failure
        would add the rows again

    Raises OutputError if it cannot be written, or the store was replaced meanwhile; the store is then unchanged.
    """
    try:
        if load_manifest(root).fingerprint != former.fingerprint:
            raise OutputError(
                "was replaced by another store while rows were appended to it", str(root), "append the rows again"
            )
        return _commit(root, aside, former, warn)
    except OSError as error:
        raise cannot_write(root, error) from error


def _commit(root: Path, aside: Path, former: Manifest, warn: Callable[[str], object]) -> Manifest:
    grown = load_manifest(aside)
    changed: dict[str, str] = {}
    places = _places_of_labels(aside)
    kept = root / FORMER
    kept.mkdir(exist_ok=True)
    for path in _files(aside):
        key = path.relative_to(aside).as_posix()
        sync_file(path)
        if key == f"{STEM}.json":
            continue
        is_part = key.startswith(_PARTS)
        before = _part_digest(root / key) if is_part else former.lookup(key)
        now = _part_digest(path) if is_part else grown.lookup(key)
        if now is None:
            continue  # a temporary file of labels
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
        try:
            sync_directory(root)
            for key, now in changed.items():
                put_kept(root, key, now)
            remove(kept / PENDING)
        except (OSError, OutputError) as error:
            what = f"the rows were added, but not all files for programs that read no manifest: {in_words(error)}"
            warn(f"{root}: {what}; complete them with bigsvm ingest --compact {root}")
    return grown


def _places_of_labels(aside: Path) -> dict[str, tuple[int, int]]:
    """Key -> order (turn, position) in which objects of labels are moved into place, if the classes have changed.

    A program that reads no manifest sees a mixture of old and new objects meanwhile.  The chunk with the highest code
    is moved first, and the categories last.  Until then that code is beyond the categories, which is an error, and not
    the name of another class.
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
    """The digest of a part of a manifest, as the manifest records it; None for other files."""
    return xxhash.xxh3_128_hexdigest(read_bytes(path)) if path.is_file() else None
