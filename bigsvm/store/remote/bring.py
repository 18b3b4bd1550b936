"""Copies of remote rows: the objects that a name stands for, copied once to the scratch folder."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.files.paths import came_from
from bigsvm.files.sealed_json import read_sealed, write_sealed
from bigsvm.store.copy.copy_folder import OBJECTS, copies_folder, kept_copy, make_room, remove_copy
from bigsvm.store.copy.scratch import make_scratch
from bigsvm.store.identity import digest_of
from bigsvm.store.remote.client import Client
from bigsvm.store.remote.faults import Patience
from bigsvm.store.remote.fetch import Fetcher
from bigsvm.store.remote.journal import Journal
from bigsvm.store.remote.listing import Objects, before_glob, find_objects, has_glob, is_needed
from bigsvm.store.remote.names import chosen_by_query
from bigsvm.store.remote.settings import Storage, current
from bigsvm.store.remote.tags import Tags
from bigsvm.store.remote.versions import Listed
from bigsvm.store.sealing.manifest import EMPTY, MISSING, STEM, Manifest, load_manifest, manifest_keys

_LAYOUT = 1
_WHAT, _AGAIN = "copying objects", "reading objects again"
_TWICE = "what does not come in one answer is read twice"
_TRIES = 3


@dataclass
class Brought:
    """A copy that is in use.

    path : of the file, folder or glob here that has the rows;  name : where they came from
    nested : of a folder, the paths below it of what was left in its subfolders
    """

    path: str
    name: str
    kept: ExitStack = field(repr=False)
    """Closed when nobody reads it any more: then it may be evicted."""
    nested: tuple[str, ...] = ()

    def renamed(self, text: str) -> str:
        """A message in which the path of the copy is replaced by the remote name, which the user knows."""
        return text.replace(self.path, self.name.rstrip("/"))


def bring(name: str, matrix: str = "X") -> Brought:
    """Copy the objects that a name stands for to the scratch folder, unless they are there; keep them while in use.

    The folder of the copy is named by what was listed (keys, sizes, ETags), so changed objects make another copy.
    Objects that were copied before a kill are compared with their digests, and kept.  If a server gives neither ETags
    nor times, nothing is kept, and what came in several answers is read twice: a difference is an error.

    matrix : for an AnnData store the matrix that will be read; `*` for all of them

    Raises
    ------
    UsageError : obstore is not installed, or the name is invalid.
    MissingInput : the objects are missing, or may not be read.
    ReadFailed : an object could not be read before the deadline.
    DataError : objects are damaged, or have changed.
    PlanRefused : there is no room for the copy.
    """
    storage = current()
    client = Client(name, storage)
    patience = Patience(storage.last_request_s, client.stopping)
    with storage.watch() as emit:
        found = find_objects(client, patience, matrix)
        made_of = {
            "name": client.name,
            "place": client.place,
            "matrix": matrix,
            "layout": _LAYOUT,
            "objects": {path: [item.size, item.version] for path, item in found.objects.items()},
        }
        if query := "" if client.lists else chosen_by_query(client.name):
            made_of["query"] = query
        tagged = all(item.version for item in found.objects.values())
        if not tagged:
            # Other objects of the same size could not be distinguished from these, so every opening makes a new copy.
            made_of["opening"] = secrets.token_hex(8)
            what = "the server gives neither an ETag nor the time of the last change"
            emit(Warned(f"{client.name}: {what}, so it is copied anew at every opening, and {_TWICE}"))
        scratch = make_scratch(FitConfig.of(scratch=storage.scratch))
        folder = copies_folder(scratch) / f"objects-{digest_of(made_of)}"
        kept = ExitStack()
        if not tagged:
            kept.callback(remove_copy, folder)
        try:

            def make() -> None:
                make_room(folder, found.nbytes, storage.scratch_limit, remedy="")
                _make(client, patience, found, folder, matrix, storage, emit)

            kept.enter_context(kept_copy(folder, lambda: _whole(folder) is not None, make, emit))
            path = os.path.realpath(folder / found.name)
            came_from(path, client.name)
            if has_glob(found.name):
                came_from(os.path.realpath(folder / "files"), client.uri("/".join(before_glob(client.root.split("/")))))
            return Brought(path, client.name, kept, found.nested)
        except BaseException:
            kept.close()
            raise


def _whole(folder: Path) -> dict[str, Any] | None:
    """The document of a finished copy; None if the copy is not finished."""
    try:
        document = read_sealed(folder / OBJECTS)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _make(
    client: Client, patience: Patience, found: Objects, folder: Path, matrix: str, storage: Storage, emit: Emit
) -> None:
    began, done, total = time.monotonic(), 0, found.nbytes

    def advanced(more: int) -> None:
        nonlocal done
        done += more
        emit(WorkAdvanced(_WHAT, min(done, total)))

    emit(WorkStarted(_WHAT, total, "bytes"))
    tags, journal = Tags(client.md5_tags and not storage.opaque_tags), Journal(folder)
    try:
        objects, check = found.objects, None
        if found.is_store and f"{found.name}/{STEM}.json" in objects:
            first = {path: item for path, item in objects.items() if _is_manifest(path, found.name)}
            manifest = _manifest(client, patience, folder, journal, tags, storage, first, found.name, advanced)
            objects = _sealed(objects, manifest, folder / found.name, found.name, matrix, client)
            check = _against(manifest, found.name)
        fetcher = Fetcher(client, patience, folder, journal, tags, storage.in_flight, check)
        fetcher.fetch(objects, advanced)
        if check is None and not all(item.version for item in objects.values()):
            _read_again(fetcher, objects, emit)
    finally:
        journal.close()
    document = {"name": client.name, "bytes": total}
    write_sealed(folder / OBJECTS, document)
    emit(WorkEnded(_WHAT, time.monotonic() - began))


def _read_again(fetcher: Fetcher, objects: dict[str, Listed], emit: Emit) -> None:
    """Compare the copies of objects without versions with the objects.  Raises as `Fetcher.read_again`."""
    began, done, total = time.monotonic(), 0, sum(item.size for item in objects.values())

    def advanced(more: int) -> None:
        nonlocal done
        done += more
        emit(WorkAdvanced(_AGAIN, min(done, total)))

    emit(WorkStarted(_AGAIN, total, "bytes"))
    fetcher.read_again(objects, advanced)
    emit(WorkEnded(_AGAIN, time.monotonic() - began))


def _is_manifest(path: str, name: str) -> bool:
    rest = path.removeprefix(f"{name}/")
    return "/" not in rest and rest.startswith(STEM) and rest.endswith(".json")


def _manifest(
    client: Client, patience: Patience, folder: Path, journal: Journal, tags: Tags, storage: Storage,
    first: dict[str, Listed], name: str, advanced: Callable[[int], None],
) -> Manifest:  # fmt: skip
    """The manifest of a sealed store, which is read first; it carries its own digest."""
    for number in range(_TRIES):
        Fetcher(client, patience, folder, journal, tags, storage.in_flight).fetch(first, advanced)
        try:
            return load_manifest(folder / name)
        except DataError as error:
            for path in first:
                (folder / path).unlink(missing_ok=True)
            if number == _TRIES - 1:
                error.where = client.uri(next(iter(first.values())).key)
                raise
    raise AssertionError("the loop returns or raises")


def _sealed(
    objects: dict[str, Listed], manifest: Manifest, root: Path, name: str, matrix: str, client: Client
) -> dict[str, Listed]:
    """The objects of a sealed store that a reader needs.  Raises DataError if one of them is missing."""
    keys = [*manifest.documents, *(key for key, digest in manifest_keys(root) if digest not in (EMPTY, MISSING))]
    chosen = {}
    for key in keys:
        if not is_needed(key, matrix):
            continue
        path = f"{name}/{key}"
        if path not in objects:
            where = f"{client.name.rstrip('/')}/{key}"
            raise DataError("is in the manifest, but not in the store", where, "restore it, or ingest the store again")
        chosen[path] = objects[path]
    return chosen


def _against(manifest: Manifest, name: str) -> Callable[[str, Any], None]:
    return lambda path, content: manifest.verify(path.removeprefix(f"{name}/"), content)
