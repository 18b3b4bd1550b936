"""Chunks under a copy of their rows: a copy is used only if the chunks still are those that the manifest lists.

Whoever reads a chunk holds it against the manifest.  Whoever reads a copy of the rows instead (the working copy, or
columns turned into rows) reads no chunk, and would train on rows that are no longer there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from bigsvm.errors import DataError, OutputError
from bigsvm.files.file_array import changes_are_seen, marks
from bigsvm.store.identity import digest_of
from bigsvm.store.remembered import recall, remember
from bigsvm.store.sealing.former import kept_file, verified
from bigsvm.store.sealing.manifest import MISSING, Manifest, read_failed
from bigsvm.store.sealing.places import naming
from bigsvm.store.sealing.seal import chunk_digest, keys_of_array


class ListedChunks:
    """The chunks of some arrays of a store.

    What was found right is remembered in the cache folder with the status of all files, so that it is read once.  The
    status includes the time of its last change, because `rsync -t` and `cp -p` set the time of the content.
    """

    def __init__(self, root: Path, manifest: Manifest, arrays: Sequence[str]) -> None:
        self._root, self._manifest, self._arrays = root, manifest, tuple(arrays)
        of = {"store": os.path.realpath(root), "manifest": manifest.fingerprint, "arrays": list(arrays)}
        self._name = f"listed-{digest_of(of)}.json"

    def check(self) -> None:
        """Raise DataError naming the first chunk that differs from the manifest, or is missing."""
        status = self._status()
        if status is not None and recall(self._name, lambda found: found["status"]) == status:
            return
        with naming(self._root):
            for key in self._keys():
                self._check(key)
        self._remember(status)

    @contextmanager
    def all_read(self) -> Iterator[None]:
        """For a block that reads all the chunks, each held against the manifest: `check` need not read them again."""
        before = self._status()
        yield
        self._remember(before)

    def _check(self, key: str) -> None:
        found = chunk_digest(self._root, key)
        try:
            self._manifest.verify_digest(key, None if found == MISSING else found)
        except DataError:
            if kept_file(self._root, self._manifest, key) is None:
                raise
            verified(self._root, self._manifest, key, None)

    def _keys(self) -> Iterator[str]:
        for path in self._arrays:
            yield from keys_of_array(self._root, path, self._manifest)

    def _status(self) -> str | None:
        """A digest of the status of all files; None if one changed just now, when a further change would not show."""
        digest, seen, root, now = xxhash.xxh3_128(), True, os.fspath(self._root), time.time_ns()
        for key in self._keys():
            try:
                status = os.stat(f"{root}/{key}")  # a link that leads out of the store is refused where it is read
            except (FileNotFoundError, NotADirectoryError):
                digest.update(f"{key}\0".encode())
                continue
            except OSError as error:
                raise read_failed(key, error) from error
            seen = seen and changes_are_seen(status, now)
            digest.update(f"{key}\0{status.st_ino}\0{marks(status)}".encode())
        return digest.hexdigest() if seen else None

    def _remember(self, status: str | None) -> None:
        if status is not None and status == self._status():
            with suppress(OutputError):  # a cache folder that is full costs only another reading
                remember(self._name, {"status": status})
