"""Making a manifest from the files of a Zarr store: one pass over its bytes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from bigsvm.errors import DataError, MissingInput, OutputError
from bigsvm.store.files import open_regular, read_bytes
from bigsvm.store.manifest import (
    DOCUMENTS,
    EMPTY,
    STEM,
    Manifest,
    digest,
    load_manifest,
    manifest_keys,
    read_failed,
    write_manifest,
)
from bigsvm.store.paths import cache_folder, local_path

_MAX_DOCUMENT_BYTES = 64 << 20
_MAX_EMPTY = 100_000  # of 4 MiB each that were 400 GB of nothing
_PIECE = 1 << 20


def load_or_make_manifest(path: Path) -> tuple[Manifest, bool]:
    """The manifest of the store at `path`, and whether it had to be made now.

    A store that was never sealed gets a side manifest in the cache folder, trusted as long as the sizes and
    times of the store's files are those it was made from; a changed store gets a new one, and with it
    another fingerprint, so that a run in progress notices.
    """
    try:
        return load_manifest(path), False
    except FileNotFoundError:
        if (path / f"{STEM}-00001.json").exists():
            raise DataError("the manifest is missing, its parts are there", str(path), "run: bigsvm seal") from None
    except OSError as error:
        raise read_failed(str(path / f"{STEM}.json"), error) from error
    folder = cache_folder() / "manifests"
    stem = xxhash.xxh3_128_hexdigest(os.path.realpath(path).encode())
    stat = files_stat(path)
    former: Manifest | None = None
    try:
        former = load_manifest(folder, stem)
        if former.stat == stat:
            return former, False
    except (OSError, DataError):
        pass  # the cache is ours to renew
    if former is not None:
        for key, known in manifest_keys(folder, stem):
            if known != EMPTY and not local_path(path, key).exists():
                raise DataError(
                    "chunk is missing that was there when the store was last used", key,
                    "restore it; if the store was made anew on purpose: bigsvm seal",
                )  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the cache folder: {error.strerror}", str(folder), "set BIGSVM_CACHE") from error
    return make_manifest(path, folder, stem=stem, stat=stat), True


def seal(path: Path) -> Manifest:
    """Write the manifest of the store at `path` into it; what is known of its content is kept."""
    try:
        content = load_manifest(path).content
    except (FileNotFoundError, DataError):
        content = {}
    return make_manifest(path, path, content=content)


def make_manifest(
    path: Path, folder: Path, *, stem: str = STEM, stat: str = "", content: dict[str, Any] | None = None
) -> Manifest:
    """Digest every document and chunk of the store at `path`; write the manifest into `folder`.

    Raises
    ------
    DataError : the metadata cannot be understood, or a link leads out of the store.
    MissingInput, ReadFailed : it cannot be read.
    """
    documents: dict[str, str] = {}
    arrays: list[tuple[str, dict[str, Any]]] = []
    for key in _document_keys(path):
        text = _read_document(path, key)
        documents[key] = digest(key, text)
        metadata = _parse(key, text)
        if key.endswith(".zarray") or metadata.get("node_type") == "array":
            arrays.append((key.rpartition("/")[0], metadata))
    if not documents:
        raise MissingInput("no Zarr store here", str(path), "give a folder with zarr.json or .zgroup")
    return write_manifest(folder, documents, _chunk_digests(path, arrays), content or {}, stem=stem, stat=stat)


def verify_documents(path: Path, manifest: Manifest) -> None:
    """Hold every metadata document of the store against the manifest.  Raises DataError naming a bad one."""
    for key in manifest.documents:
        file = local_path(path, key)
        try:
            manifest.verify(key, file.read_bytes() if file.is_file() else None)
        except OSError as error:
            raise read_failed(key, error) from error


def files_stat(path: Path) -> str:
    """A digest of names, sizes and times of all files below `path`, whatever their order; reads none."""
    total = 0
    folders = [os.fspath(path)]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    status = entry.stat()
                    line = f"{entry.path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ino}"
                    total += xxhash.xxh3_128_intdigest(os.fsencode(line))
    except OSError as error:
        raise read_failed(str(path), error) from error
    return f"{total % (1 << 128):032x}"


def _document_keys(root: Path) -> list[str]:
    """Keys of the metadata documents, sorted.  Folders of chunks, which may be huge, are not entered."""
    found: list[str] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        prefix = f"{folder}/" if folder else ""
        base = root / folder
        names = [name for name in sorted(DOCUMENTS) if (base / name).is_file()]
        found += [prefix + name for name in names]
        if ".zarray" in names:
            continue
        if (
            "zarr.json" in names
            and _parse(key := f"{prefix}zarr.json", _read_document(root, key)).get("node_type") == "array"
        ):
            continue
        try:
            with os.scandir(base) as entries:
                folders += [prefix + entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            raise read_failed(str(base), error) from error
    return sorted(found)


def _read_document(root: Path, key: str) -> bytes:
    path = local_path(root, key)
    try:
        if path.stat().st_size > _MAX_DOCUMENT_BYTES:
            raise DataError("metadata document is too large", key)
        return read_bytes(path)
    except OSError as error:
        raise read_failed(key, error) from error


def _parse(key: str, text: bytes) -> dict[str, Any]:
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"metadata is not JSON: {error}", key) from error
    if not isinstance(metadata, dict):
        raise DataError("metadata is not a JSON object", key)
    return metadata


def _chunk_digests(root: Path, arrays: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    n_empty = 0
    for path, metadata in sorted(arrays, key=lambda item: item[0]):
        # Zarr leaves out chunks that hold nothing but the fill value.  The parts of a CSR matrix are never that
        # (but for the row pointers of leading empty rows), so there a chunk that is not on disk was lost.
        part = path.rpartition("/")[2]
        for number, key in enumerate(chunk_keys(path, metadata)):
            hexdigest = _file_digest(root, key)
            if hexdigest == EMPTY and (part in ("data", "indices") or (part == "indptr" and number > 0)):
                raise DataError("chunk is missing", key, "restore it, or ingest the store again")
            n_empty += hexdigest == EMPTY
            if n_empty > _MAX_EMPTY:
                raise DataError(f"more than {_MAX_EMPTY} chunks are missing", path or str(root))
            yield key, hexdigest


def _file_digest(root: Path, key: str) -> str:
    path = local_path(root, key)
    hasher = xxhash.xxh3_128(key.encode() + b"\0")
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                hasher.update(piece)
    except (FileNotFoundError, NotADirectoryError):
        return EMPTY
    except OSError as error:
        raise read_failed(key, error) from error
    return hasher.hexdigest()


def chunk_keys(path: str, metadata: dict[str, Any]) -> Iterator[str]:
    """Keys of all chunks (or shards) of the array at `path`, in C order, from its v2 or v3 metadata.

    Raises
    ------
    DataError : shape or chunks are not lists of non-negative integers of one length, or unknown encodings.
    """
    v3 = metadata.get("node_type") == "array"
    try:
        shape = metadata["shape"]
        chunks = metadata["chunk_grid"]["configuration"]["chunk_shape"] if v3 else metadata["chunks"]
        if v3:
            encoding = metadata["chunk_key_encoding"]
            name = encoding["name"]
            default = "/" if name == "default" else "."
            separator = encoding.get("configuration", {}).get("separator", default)
        else:
            name, separator = "v2", metadata.get("dimension_separator", ".")
        grid = [-(-_natural(length) // max(_natural(chunk), 1)) for length, chunk in zip(shape, chunks, strict=True)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"array metadata cannot be understood: {error!r}", path) from error
    if name not in ("default", "v2") or separator not in ("/", "."):
        raise DataError(f"unknown chunk key encoding {name!r} with separator {separator!r}", path)
    if math.prod(grid) > 2**40:
        raise DataError(f"{math.prod(grid)} chunks in one array", path)
    prefix = f"{path}/" if path else ""
    for place in _places(grid):
        if name == "default":
            yield prefix + separator.join(["c", *map(str, place)])
        else:
            yield prefix + (separator.join(map(str, place)) or "0")


def _places(grid: list[int]) -> Iterator[tuple[int, ...]]:
    """All places of a grid in C order, one at a time: metadata may promise any number of them."""
    for number in range(math.prod(grid)):
        place = []
        for length in reversed(grid):
            number, at = divmod(number, length)
            place.append(at)
        yield tuple(reversed(place))


def _natural(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{number!r} is not a natural number")
    return number
