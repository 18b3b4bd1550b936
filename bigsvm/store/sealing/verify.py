"""Every object of a sealed store, held against its manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from bigsvm.errors import DataError, MissingInput
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.files.atomic import read_bytes
from bigsvm.files.paths import local_path, no_such_store
from bigsvm.store.sealing.manifest import (
    DOCUMENTS,
    EMPTY,
    FORMER,
    MISSING,
    STEM,
    digest,
    load_manifest,
    manifest_keys,
    read_failed,
)
from bigsvm.store.sealing.places import naming
from bigsvm.store.sealing.seal import document_keys

_PIECE = 1 << 20
_NAMED = 100
"""Bad objects that are named in the result; the rest is counted."""


def verify_store(path: Path, emit: Emit = silent) -> dict[str, Any]:
    """Read every document and chunk once.

    Returns n_documents, n_chunks, n_empty, n_missing, n_bad, bad (their keys), unlisted, bytes, seconds,
    store_fingerprint.  `unlisted` has the keys of metadata documents that were added after the store was sealed; they
    are looked for where nothing is bad.

    Raises
    ------
    MissingInput : there is no store, or it was never sealed.
    DataError : the manifest itself is damaged.
    """
    if not path.is_dir():
        raise no_such_store(str(path))
    if not any((path / name).is_file() for name in DOCUMENTS):
        hint = "a store is verified; a model is held against its digests whenever it is loaded"
        raise MissingInput("no Zarr store here", str(path), hint)
    try:
        manifest = load_manifest(path)
    except FileNotFoundError as error:
        raise MissingInput(
            "the store was never sealed: there is nothing to verify it against",
            str(path),
            f"bigsvm seal {path}",
        ) from error
    except OSError as error:
        raise read_failed(str(path / f"{STEM}.json"), error) from error
    n_chunks = len(manifest.key_hashes)
    began = time.monotonic()
    emit(WorkStarted("verifying", n_chunks, "chunks"))
    bad: list[str] = []
    n_bad = n_empty = n_missing = nbytes = 0
    for number, (key, expected) in enumerate(_expected(path, manifest.documents), 1):
        with naming(path):
            found, size = _digest(path, key)
            nbytes += size
            n_empty += expected == EMPTY
            n_missing += expected == MISSING
            if expected == MISSING and found == EMPTY:
                continue  # as it was when the store was sealed: refused where it is read, and counted here
            if found != expected and not _is_kept(path, key, expected):
                n_bad += 1
                if len(bad) < _NAMED:
                    bad.append(key)
        if number % 64 == 0:
            emit(WorkAdvanced("verifying", number))
    with naming(path):
        unlisted = [] if n_bad else [key for key in document_keys(path) if key not in manifest.documents]
    seconds = time.monotonic() - began
    emit(WorkEnded("verifying", seconds))
    return {
        "n_documents": len(manifest.documents),
        "n_chunks": n_chunks,
        "n_empty": n_empty,
        "n_missing": n_missing,
        "n_bad": n_bad,
        "bad": bad,
        "unlisted": unlisted[:_NAMED],
        "bytes": nbytes,
        "seconds": {"total": seconds},
        "store_fingerprint": manifest.fingerprint,
    }


def _expected(path: Path, documents: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield from documents.items()
    yield from manifest_keys(path)


def _digest(root: Path, key: str) -> tuple[str, int]:
    """(digest of the object or EMPTY where there is none, its bytes), read in pieces."""
    try:
        file_path = local_path(root, key)
        if file_path.exists() and not file_path.is_file():
            return "not a file", 0  # opening a pipe would wait for ever
        with open(file_path, "rb", buffering=0) as file:
            hasher, size = xxhash.xxh3_128(key.encode() + b"\0"), 0
            while piece := file.read(_PIECE):
                hasher.update(piece)
                size += len(piece)
            return hasher.hexdigest(), size
    except (FileNotFoundError, NotADirectoryError):
        return EMPTY, 0
    except DataError as error:
        return error.what, 0  # leads out of the store
    except OSError as error:
        raise read_failed(key, error) from error


def _is_kept(root: Path, key: str, expected: str) -> bool:
    """Whether what the manifest lists is there beside its key: a writer was killed before it put it there."""
    kept = root / FORMER / expected
    try:
        return kept.is_file() and digest(key, read_bytes(kept)) == expected
    except OSError as error:
        raise read_failed(key, error) from error
