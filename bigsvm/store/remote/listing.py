"""The objects that a name stands for: a file, a folder, a glob, or the needed parts of a Zarr store."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bigsvm.errors import DataError, MissingInput, UsageError
from bigsvm.files.paths import STORE_MARKS
from bigsvm.store.remote.client import Client
from bigsvm.store.remote.faults import Absent, Believed, Patience
from bigsvm.store.remote.names import ALL, base_name
from bigsvm.store.remote.versions import Listed
from bigsvm.store.sealing.chunk_keys import chunk_keys
from bigsvm.store.sealing.manifest import DOCUMENTS, STEM, is_as_written, is_document

_MATRICES = ("layers", "obsm", "raw", "obsp", "varm", "varp", "uns", "X")
"""Parts of an AnnData store of which a fit reads only one; all other parts are always copied."""
_MOST_UNLISTED = 1_000_000
_GLOB = "*?["
_WEIGHTS = "obs/weight"
"""An array that is read if it exists, even if it is not named."""


@dataclass(frozen=True)
class Objects:
    """The objects to copy.

    objects : by their path below the copy's folder
    name : the path below the copy's folder that stands for all of them: a file, a folder or a glob
    is_store : a Zarr store
    nested : of a folder, the paths below it of what lies in its subfolders, which is not copied
    """

    objects: dict[str, Listed]
    name: str
    is_store: bool
    nested: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all objects."""
        return sum(listed.size for listed in self.objects.values())


def find_objects(client: Client, patience: Patience, matrix: str) -> Objects:
    """List the objects that the name of the client stands for.

    matrix : for an AnnData store the matrix that will be read, or ALL

    Raises
    ------
    MissingInput : there are no objects, or they may not be read.  ReadFailed : no answer before the deadline.
    UsageError : a folder or glob on a server that lists nothing.  DataError : a key leads out of the store.
    """
    if client.lists:
        return _listed(client, patience, matrix)
    return _unlisted(client, patience, matrix)


def _listed(client: Client, patience: Patience, matrix: str) -> Objects:
    root = client.root
    name = base_name(root) if root else base_name(client.name)
    if has_glob(root):
        folder = "/".join(before_glob(root.split("/")))
        there = _all(client, patience, folder)
        found = [item for item in there if item.key == root] or [item for item in there if _matches(item.key, root)]
        if not found:
            raise MissingInput("there are no objects of that name", client.name)
        pattern = "files/" + root[len(folder) :].lstrip("/")
        return Objects({f"files/{_below(item.key, folder)}": item for item in found}, pattern, False)
    below = {_below(item.key, root): item for item in _all(client, patience, root) if not item.key.endswith("/")}
    if not below:
        if not root:
            raise MissingInput("the bucket is empty", client.name)
        try:
            item = patience.ask(client.name, lambda: client.head(root))
        except Absent:
            raise MissingInput("nothing is there", client.name, "check the bucket, the key and the endpoint") from None
        return Objects({name: item}, name, False)
    if any(mark in below for mark in STORE_MARKS):
        if f"{STEM}.json" not in below:  # with a manifest, the objects are selected by it later
            below = {key: item for key, item in below.items() if wanted(key, matrix)}
        return Objects({f"{name}/{key}": item for key, item in below.items()}, name, True)
    nested = sorted(key for key in below if "/" in key)
    files = {key: item for key, item in below.items() if "/" not in key and key[0] not in "._"}
    if not files:
        hint = f"name the files: '{client.name.rstrip('/')}/*/*'" if nested else ""
        raise UsageError("has no files itself, only folders", client.name, hint)
    return Objects({f"{name}/{key}": item for key, item in files.items()}, name, False, tuple(nested))


def wanted(key: str, matrix: str) -> bool:
    """Whether a key of an AnnData store is needed to read this matrix; keys of other parts always are."""
    parts = key.split("/")
    if matrix == ALL or parts[0] not in _MATRICES or len(parts) == 1:
        return True
    chosen = matrix.split("/")
    if parts[0] == "raw" and chosen[0] == "raw":
        return True
    if parts[-1] in DOCUMENTS and parts[:-1] == chosen[: len(parts) - 1]:
        return True
    return parts[: len(chosen)] == chosen


def _all(client: Client, patience: Patience, prefix: str) -> list[Listed]:
    """All objects below a prefix, in the order of their keys; an interrupted listing continues after the last one."""
    found: list[Listed] = []

    def go_on() -> None:
        for page in client.pages(prefix, found[-1].key if found else ""):
            found.extend(page)

    patience.ask(client.uri(prefix), go_on)
    # Consoles and file systems represent folders by empty objects whose names end with a slash.
    folders = {item.key[:place] for item in found for place in _slashes(item.key)}
    files = {item.key: item for item in found if item.key != prefix and (item.size or item.key not in folders)}
    return sorted(files.values(), key=lambda item: item.key)


def _slashes(key: str) -> Iterator[int]:
    """The positions of the slashes in a key."""
    return (place for place, letter in enumerate(key) if letter == "/")


def _below(key: str, folder: str) -> str:
    """The part of a key below a folder.  Raises DataError if it would lead out of the folder."""
    rest = key[len(folder) :].lstrip("/") if folder else key
    if any(part in ("", ".", "..") for part in rest.rstrip("/").split("/")) or "\0" in rest:
        raise DataError("leads out of the store", key, "a store may not point to other places")
    return rest


def has_glob(name: str) -> bool:
    """Whether a name is a glob pattern."""
    return any(mark in name for mark in _GLOB)


def before_glob(parts: list[str]) -> list[str]:
    """The leading folders of a pattern that contain no wildcard."""
    n = next(i for i, part in enumerate(parts) if has_glob(part))
    return parts[:n]


def _matches(key: str, pattern: str) -> bool:
    """Whether a key matches a pattern as in a shell: a star does not match a slash."""
    one, other = key.split("/"), pattern.split("/")
    return len(one) == len(other) and all(fnmatch.fnmatchcase(a, b) for a, b in zip(one, other, strict=True))


def _unlisted(client: Client, patience: Patience, matrix: str) -> Objects:
    """The objects on a web server: one file, or a Zarr store whose metadata name all of its objects."""
    root, name = client.root, base_name(client.name)
    if has_glob(root):
        raise UsageError("a web server does not list its files, so a glob cannot be used", client.name, "name one file")

    def head(key: str) -> Listed | None:
        try:
            return patience.ask(client.uri(key), lambda: client.head(key))
        except Absent:
            return None

    def read(item: Listed) -> dict[str, Any]:
        return patience.ask(client.uri(item.key), lambda: _document(bytes(client.get(item, 0, item.size)), item.key))

    keys: Iterable[str] | None = None
    if "." not in name or name.lower().endswith(".zarr"):
        keys = _keys_of_store(lambda mark: head(f"{root}/{mark}".lstrip("/")), read, client.name, matrix)
    if keys is None:
        item = head(root)
        if item is None:
            raise MissingInput("nothing is there", client.name)
        return Objects({name: item}, name, False)
    chosen = [key for key in keys if wanted(key, matrix)]
    with ThreadPoolExecutor(16) as pool:
        items = list(pool.map(lambda key: head(f"{root}/{key}".lstrip("/")), chosen))
    return Objects(
        {f"{name}/{key}": item for key, item in zip(chosen, items, strict=True) if item is not None}, name, True
    )


def _keys_of_store(
    head: Callable[[str], Listed | None], read: Callable[[Listed], dict[str, Any]], where: str, matrix: str
) -> list[str] | None:
    """The keys of a Zarr store from its manifest or its consolidated metadata; None if there is no store."""
    found = {mark: head(mark) for mark in (f"{STEM}.json", "zarr.json", ".zmetadata", ".zgroup")}
    if not any(found.values()):
        return None
    manifest, v3, v2 = found[f"{STEM}.json"], found["zarr.json"], found[".zmetadata"]
    keys = [mark for mark, item in found.items() if item is not None]
    if manifest is not None:
        main = read(manifest)
        parts = [f"{STEM}-{number:05d}.json" for number in range(1, len(main.get("parts", [])) + 1)]
        keys += [*parts, *main.get("documents", {}), *main.get("chunks", {})]
        for part in parts:
            item = head(part)
            keys += read(item) if item is not None else ()
        return _checked(keys, where)
    arrays: dict[str, dict[str, Any]] = {}
    if v3 is not None:
        consolidated = read(v3).get("consolidated_metadata") or {}
        for path, metadata in consolidated.get("metadata", {}).items():
            keys.append(f"{path}/zarr.json")
            if metadata.get("node_type") == "array":
                arrays[path] = metadata
    elif v2 is not None:
        for key, metadata in read(v2).get("metadata", {}).items():
            keys.append(key)
            if key.endswith(".zarray"):
                arrays[key.rpartition("/")[0]] = metadata
    if not arrays:
        raise UsageError(
            "a web server does not list its files, and the store has neither a manifest nor consolidated metadata",
            where, "seal it before the upload (bigsvm seal), or call zarr.consolidate_metadata",
        )  # fmt: skip
    document = "zarr.json" if v3 is not None else ".zarray"
    needed = {path: metadata for path, metadata in arrays.items() if wanted(f"{path}/{document}", matrix)}
    for path, metadata in _as_they_are(needed, document, head, read).items():
        keys += [f"{path}/{name}" for name in (document, ".zattrs") if path not in arrays]
        for key in chunk_keys(path, metadata):
            keys.append(key)
            if len(keys) > _MOST_UNLISTED:
                raise UsageError(f"more than {_MOST_UNLISTED} objects on a server that lists none", where)
    return _checked(keys, where)


def _as_they_are(
    arrays: dict[str, dict[str, Any]], document: str,
    head: Callable[[str], Listed | None], read: Callable[[Listed], dict[str, Any]],
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """The metadata of the arrays from their own documents, also of weights that no consolidated metadata name.

    Rows or weights may have been added after the consolidation, and reading a local folder ignores it, too.
    """

    def own(path: str) -> dict[str, Any] | None:
        item = head(f"{path}/{document}")
        return None if item is None else read(item)

    paths = list(dict.fromkeys([*arrays, _WEIGHTS]))
    with ThreadPoolExecutor(16) as pool:
        found = dict(zip(paths, pool.map(own, paths), strict=True))
    return {path: metadata for path in paths if (metadata := found[path] or arrays.get(path)) is not None}


def _checked(keys: list[str], where: str) -> list[str]:
    for key in keys:
        _below(key, "")
    return list(dict.fromkeys(keys))


def _document(text: bytes, key: str) -> dict[str, Any]:
    """Parse a JSON object, for a manifest with its digest.  Raises Believed if it is invalid."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Believed("is not a JSON object", "wrong")
    if key.endswith(f"{STEM}.json") and not is_as_written(document):
        raise Believed("damaged manifest: its digest does not match", "wrong")
    return document


def is_needed(key: str, matrix: str) -> bool:
    """Whether an object of a sealed store is copied: all metadata, and the chunks of the arrays that are read."""
    return is_document(key) or wanted(key, matrix)
