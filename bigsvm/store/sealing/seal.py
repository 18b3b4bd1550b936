"""Making a manifest from the files of a Zarr store: one pass over its bytes."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Literal

import xxhash

from bigsvm.errors import DataError, MissingInput
from bigsvm.files.atomic import open_regular, read_bytes
from bigsvm.files.file_array import TICK_NS, marks, newest_of, times_are_past
from bigsvm.files.paths import local_path
from bigsvm.store.remembered import folder_to_write, is_believed, made_folder, places
from bigsvm.store.sealing.chunk_keys import chunk_keys
from bigsvm.store.sealing.former import verified
from bigsvm.store.sealing.manifest import (
    ABSENT_HINT,
    DOCUMENTS,
    EMPTY,
    MISSING,
    STEM,
    Manifest,
    digest,
    forget_content,
    load_manifest,
    manifest_keys,
    part_name,
    read_failed,
    vouch,
    write_manifest,
)
from bigsvm.store.sealing.one_writer import changing
from bigsvm.store.sealing.places import naming

_MAX_DOCUMENT_BYTES = 64 << 20
_MAX_MISSING = 100_000  # more missing chunks than this cannot be meant: with 4 MiB each they would be 400 GB
_PIECE = 1 << 20  # bytes read at a time
EmptyChunks = Literal["refuse", "zeros"]


def load_or_make_manifest(path: Path, empty_chunks: EmptyChunks = "refuse") -> tuple[Manifest, bool]:
    """The manifest of the store at `path`, and whether it was made just now.

    A store that was never sealed gets a side manifest in the cache folder.  It is trusted as long as the status of the
    store's files has not changed.  A changed store gets a new manifest, and so another fingerprint, which a run in
    progress notices.

    empty_chunks : 'zeros' states that absent chunks hold the fill value; the side manifest remembers it, also if it is
        made anew because files of the same content have another status.  A sealed store is not affected: its own
        manifest lists the empty chunks

    Raises DataError if a chunk has been lost (it was there when the store was last used, and the rest of its array is
    the same), or if the manifest is damaged.
    """
    try:
        return load_manifest(path), False
    except FileNotFoundError:
        if (path / f"{STEM}-00001.json").exists():
            what = "the first file of the manifest is missing, only its parts are there"
            raise DataError(what, str(path), "run: bigsvm seal") from None
    except OSError as error:
        raise read_failed(str(path / f"{STEM}.json"), error) from error
    stem = xxhash.xxh3_128_hexdigest(os.fsencode(os.path.realpath(path)))
    stat = files_stat(path)
    former: Manifest | None = None
    for folder, found in _side_manifests(stem):
        former = former or found
        if found.stat != stat:
            continue
        if empty_chunks == "zeros" and not found.vouched:
            if folder != folder_to_write():
                continue  # the statement is recorded in a manifest that is made anew
            with suppress(OSError, DataError):
                vouch(folder, stem)
                return dataclasses.replace(found, vouched=True), False
            continue
        return found, False
    stat = files_stat(path, settled=True)
    made = make_manifest(path, made_folder(), stem=stem, stat=stat, former=former, empty_chunks=empty_chunks)
    if former is not None and former.vouched and not made.vouched and made.lists_the_same(former):
        vouch(made_folder(), stem)
        return dataclasses.replace(made, vouched=True), True
    return made, True


def _side_manifests(stem: str) -> Iterator[tuple[Path, Manifest]]:
    """(folder, manifest) of an unsealed store, from each folder that has one; damaged ones are left out."""
    for path in places(f"{stem}.json"):
        folder = path.parent
        parts = takewhile(os.path.lexists, (folder / part_name(stem, number) for number in count(1)))
        if folder == folder_to_write() or all(map(is_believed, parts)):
            with suppress(OSError, DataError):
                yield folder, load_manifest(folder, stem)


def seal(path: Path, empty_chunks: EmptyChunks = "refuse") -> Manifest:
    """Write a manifest into the store at `path`.

    Statistics of the content that the old manifest has are kept if documents and chunks have not changed.

    empty_chunks : 'zeros' lists all absent chunks as empty.  'refuse' raises an error for absent chunks of X, label and
        weight, and lists those of other arrays as missing, which is an error when they are read.  Chunks that the old
        manifest lists as empty stay empty in both cases

    Raises OutputError naming the process that writes into the store at the same time; else as `make_manifest`.
    """
    with naming(path), changing(path):
        former = former_manifest(path)
        made = make_manifest(path, path, former=former, empty_chunks=empty_chunks)
        if former is None or not made.content or made.lists_the_same(former):
            return made
        return forget_content(path)


def former_manifest(path: Path) -> Manifest | None:
    """The manifest in a store; None if there is none, or a damaged one."""
    try:
        return load_manifest(path)
    except (FileNotFoundError, DataError):
        return None


def changed_since(path: Path, former: Manifest) -> Iterator[str]:
    """Keys of documents and chunks of a sealed store that differ from a former manifest, or are new."""
    made = load_manifest(path)
    yield from (key for key, found in made.documents.items() if former.documents.get(key) != found)
    yield from (key for key, found in manifest_keys(path) if former.lookup(key) != found)


def make_manifest(
    path: Path,
    folder: Path,
    *,
    stem: str = STEM,
    stat: str = "",
    former: Manifest | None = None,
    empty_chunks: EmptyChunks = "refuse",
) -> Manifest:
    """Digest every document and chunk of the store at `path`; write the manifest into `folder`.

    stat : `Manifest.stat`, for a side manifest; '' for a manifest in the store
    former : the manifest that this one replaces

    Raises
    ------
    DataError : the metadata cannot be understood, a link leads out of the store, or a chunk is missing.
    MissingInput, ReadFailed : it cannot be read.
    """
    documents: dict[str, str] = {}
    arrays: list[tuple[str, dict[str, Any]]] = []
    for key in document_keys(path):
        text = _read_document(path, key)
        documents[key] = digest(key, text)
        metadata = _parse(key, text)
        if key.endswith(".zarray") or metadata.get("node_type") == "array":
            arrays.append((key.rpartition("/")[0], metadata))
    arrays.sort(key=lambda item: item[0])
    if not documents:
        raise MissingInput("no Zarr store here", str(path), "give a folder with zarr.json or .zgroup")
    if stat:
        arrays_chunks = _side_digests(path, arrays, former, documents)
        return write_manifest(
            folder, documents, arrays_chunks, {}, stem=stem, stat=stat, vouched=empty_chunks == "zeros"
        )
    chunks = _sealed_digests(path, arrays, former, empty_chunks)
    return write_manifest(folder, documents, chunks, {} if former is None else former.content, stem=stem)


def absent_chunks(root: Path, path: str, manifest: Manifest) -> tuple[int, int, str]:
    """(number of absent chunks, of all chunks, key of the first absent one or '') of the array at `path`.

    Raises DataError if a chunk is missing and is not known to be empty.
    """
    if not manifest.n_empty and not manifest.n_missing:
        return 0, 0, ""
    absent, refused, n_chunks, first = 0, 0, 0, ""
    for key in keys_of_array(root, path, manifest):
        found = manifest.lookup(key)
        n_chunks += 1
        if found in (EMPTY, MISSING):
            absent += 1
            refused += found == MISSING
            first = first or key
    if refused:
        raise _missing(absent, n_chunks, first)
    return absent, n_chunks, first


def keys_of_array(root: Path, path: str, manifest: Manifest) -> Iterator[str]:
    """The keys of all chunks of the array at `path`.  Raises DataError if its metadata cannot be understood."""
    prefix = f"{path}/" if path else ""
    name = next((name for name in ("zarr.json", ".zarray") if prefix + name in manifest.documents), "zarr.json")
    yield from chunk_keys(path, _parse(prefix + name, _read_document(root, prefix + name)))


def _missing(n_missing: int, n_chunks: int, first: str) -> DataError:
    many = f", and {n_missing - 1} more of the {n_chunks} of its array" if n_missing > 1 else ""
    return DataError(f"chunk is missing{many}", first, ABSENT_HINT)


def verify_documents(path: Path, manifest: Manifest) -> None:
    """Compare every metadata document of the store with the manifest.  Raises DataError naming the first bad one."""
    for key in manifest.documents:
        file = local_path(path, key)
        try:
            verified(path, manifest, key, file.read_bytes() if file.is_file() else None)
        except OSError as error:
            raise read_failed(key, error) from error


def files_stat(path: Path, settled: bool = False) -> str:
    """A digest of the status of all files below `path`, in any order; no file is read.

    The status includes the time of its last change, because `rsync -t`, `cp -p` and `touch -r` set the time of the
    content.

    settled : wait, if a file changed just now, until a further change gives it other times
    """
    total, newest = _statuses(path)
    if settled and not times_are_past(newest):
        time.sleep(TICK_NS / 1e9)
        total, _ = _statuses(path)
    return f"{total % (1 << 128):032x}"


def _statuses(path: Path) -> tuple[int, int]:
    """(sum of the digests of the status of all files below `path`, time in nanoseconds of the last change)."""
    total, newest = 0, 0
    folders = [os.fspath(path)]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    status = entry.stat()
                    line = f"{entry.path}\0{marks(status)}\0{status.st_ino}"
                    total += xxhash.xxh3_128_intdigest(os.fsencode(line))
                    newest = max(newest, newest_of(status))
    except OSError as error:
        raise read_failed(str(path), error) from error
    return total, newest


def document_keys(root: Path) -> list[str]:
    """The keys of all metadata documents, sorted.  Folders of chunks, which may be huge, are not listed."""
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
            most = f"larger than {_MAX_DOCUMENT_BYTES >> 20} MiB"
            raise DataError(f"metadata document is {most}", key, "move large attributes into arrays")
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


def _side_digests(
    root: Path, arrays: list[tuple[str, dict[str, Any]]], former: Manifest | None, documents: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """(key, digest or MISSING) of all chunks of an unsealed store.

    Raises DataError if chunks of an array have disappeared since the former manifest was made while everything else of
    the array is the same: they were lost.  If its metadata or other chunks have changed, the array was written anew.
    """
    n_missing = 0
    for path, metadata in arrays:
        lost, rewritten = "", former is None or not _same_metadata(path, former.documents, documents)
        for key, found in _digests_of(root, path, metadata):
            if former is not None and not rewritten:
                before = former.lookup(key)
                if found == MISSING and before not in (EMPTY, MISSING, None):
                    lost = lost or key
                else:
                    rewritten = found != before and (found, before) != (MISSING, EMPTY)
            n_missing = _count_missing(n_missing, found, path or str(root))
            yield key, found
        if lost and not rewritten:
            raise DataError(
                "chunk is missing that was there when the store was last used", lost,
                "restore it; if the store was made anew on purpose: bigsvm seal",
            )  # fmt: skip


def _same_metadata(path: str, former: dict[str, str], documents: dict[str, str]) -> bool:
    """Whether the metadata of an array has the same digest in both."""
    names = [f"{path}/{name}" if path else name for name in ("zarr.json", ".zarray")]
    return any(name in documents and documents[name] == former.get(name) for name in names)


def _sealed_digests(
    root: Path, arrays: list[tuple[str, dict[str, Any]]], former: Manifest | None, empty_chunks: EmptyChunks
) -> Iterator[tuple[str, str]]:
    """(key, digest, EMPTY or MISSING) of all chunks of a store that is being sealed; see `seal`."""
    n_missing = 0
    for path, metadata in arrays:
        n_here, n_chunks, first = 0, 0, ""
        for key, found in _digests_of(root, path, metadata):
            n_chunks += 1
            if found == MISSING:
                if empty_chunks == "zeros" or (former is not None and former.lookup(key) == EMPTY):
                    found = EMPTY
                else:
                    n_here, first = n_here + 1, first or key
                n_missing = _count_missing(n_missing, MISSING, path or str(root))
            yield key, found
        if n_here and f"{path}/".startswith(("X/", "obs/label/", "obs/weight/")):
            raise _missing(n_here, n_chunks, first)


def _digests_of(root: Path, path: str, metadata: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key in chunk_keys(path, metadata):
        yield key, chunk_digest(root, key)


def _count_missing(n_missing: int, found: str, where: str) -> int:
    n_missing += found == MISSING
    if n_missing > _MAX_MISSING:
        raise DataError(
            f"more than {_MAX_MISSING} chunks are missing", where, "check the shape and chunks of the array"
        )
    return n_missing


def chunk_digest(root: Path, key: str) -> str:
    """The digest of a chunk as it lies there, read in pieces; MISSING where there is none.  Raises ReadFailed."""
    path = local_path(root, key)
    hasher = xxhash.xxh3_128(key.encode() + b"\0")
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                hasher.update(piece)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError as error:
        raise read_failed(key, error) from error
    return hasher.hexdigest()
