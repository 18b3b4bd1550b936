"""Snapshots of a store to which rows were added: what the manifest lists is found, whatever lies under its key now.

The manifest is the one truth of a store.  Rows that are added change a few objects under the keys that they have: the
last chunk of each array, and metadata.  Before the new manifest takes the place of the old one, both versions of each
of them lie in `bigsvm-former/`, each by its digest.  So there is an answer to every key of either manifest at every
instant: a reader that opened before goes on with the rows that it saw, and one that opens between the new manifest and
the last of the files that follow it sees the new ones.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.atomic import read_bytes, remove, sync_directory, write_bytes
from bigsvm.files.paths import local_path
from bigsvm.store.sealing.manifest import EMPTY, FORMER, MISSING, Manifest, load_manifest, read_failed

PENDING = "pending.json"


def kept_file(root: Path, manifest: Manifest, key: str) -> Path | None:
    """The file that has what the manifest lists under `key`, where the key itself may have other bytes; or None."""
    expected = manifest.lookup(key)
    if expected in (None, EMPTY, MISSING):
        return None
    path = local_path(root, f"{FORMER}/{expected}")
    return path if path.is_file() else None


def verified(root: Path, manifest: Manifest, key: str, value: Any | None) -> Any | None:
    """What the manifest lists under `key`: `value`, which was read there, or what was kept of it.

    Raises DataError as `Manifest.verify` does, where neither is that; ReadFailed.
    """
    try:
        manifest.verify(key, value)
        return value
    except DataError:
        kept = kept_file(root, manifest, key)
        if kept is None:
            raise
        try:
            content = read_bytes(kept)
        except OSError as error:
            raise read_failed(key, error) from error
        manifest.verify(key, content)
        return content


def snapshot(root: Path, fingerprint: str) -> Manifest | None:
    """The manifest of the store as it was under `fingerprint`, where rows were added since; None where it is gone."""
    try:
        found = load_manifest(root, former_stem(fingerprint))
    except (OSError, DataError):
        return None
    return found if found.fingerprint == fingerprint else None


def former_stem(fingerprint: str) -> str:
    """Where the manifest of that fingerprint is kept, without its suffix."""
    return f"{FORMER}/manifest-{fingerprint}"


def write_pending(root: Path, keys: dict[str, str]) -> None:
    """Note which files follow the manifest that is about to be put in place, and in which order: key -> new digest."""
    write_bytes(root / FORMER / PENDING, json.dumps(keys).encode())


def finish_pending(root: Path) -> None:
    """Put in place what a writer that was killed had still to put there; of one that never committed, forget it.

    To be called under the lock of the store.
    """
    path = root / FORMER / PENDING
    try:
        keys = json.loads(read_bytes(path))
        manifest = load_manifest(root)
    except (OSError, ValueError):
        return
    for key, expected in keys.items():
        if manifest.lookup(key) == expected or key.startswith("bigsvm-manifest-"):
            put_kept(root, key, expected)
    path.unlink(missing_ok=True)


def put_kept(root: Path, key: str, expected: str) -> None:
    """The kept version of an object under its own key, by one rename."""
    target, kept = local_path(root, key), root / FORMER / expected
    if not kept.is_file() or (target.is_file() and read_bytes(target) == read_bytes(kept)):
        return
    beside = target.with_name(f".{target.name}.tmp")
    remove(beside)
    keep(kept, beside)
    os.replace(beside, target)
    sync_directory(target.parent)


def keep(source: Path, target: Path) -> None:
    """A second name for a file whose bytes never change: a link, or a copy where the file system has none."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        write_bytes(target, read_bytes(source))


def kept_bytes(root: Path) -> int:
    """Bytes that only the snapshots hold: files in `bigsvm-former` that are nothing else's."""
    try:
        found = [entry.stat() for entry in os.scandir(root / FORMER) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return 0
    return sum(status.st_size for status in found if status.st_nlink == 1)
