"""The manifest of a store: one digest for every object in it, bound to the object's key.

`bigsvm-manifest.json` lists the metadata documents and the chunks.  Beyond 100,000 chunks they are listed in parts,
`bigsvm-manifest-00001.json` and so on, whose digests are in the first file.  A digest is xxh3-128 of key, NUL, bytes,
so a chunk in the place of another one does not verify.  An absent chunk is listed as "empty" if it is known to hold the
fill value, else as "missing".  The first file also has a digest of its own content.  The digests are not cryptographic:
they detect damage and exchanged chunks, but not forgery.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from bigsvm.errors import DataError, MissingInput, ReadFailed
from bigsvm.files.atomic import read_bytes, write_bytes

STEM = "bigsvm-manifest"
PART_CHUNKS = 100_000
FORMER = "bigsvm-former"
"""Folder with the files that a store had before rows were added (`former.py`)."""
EMPTY = "empty"
"""The chunk is absent because it holds only the fill value."""
MISSING = "missing"
"""The chunk was absent when the manifest was made, and is not known to be empty."""
ABSENT_HINT = (
    "restore what was lost; where zarr left out chunks that hold nothing but the fill value, use --empty-chunks zeros "
    "(of a sealed store: to bigsvm seal)"
)
DOCUMENTS = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})
_FORMAT, _VERSION, _DIGEST = "bigsvm-manifest", 1, "xxh3-128"
_OWN_DIGEST = "manifest_digest"
_FIELDS = {"format", "version", "digest", "documents", "chunks", "parts", "n_chunks", "content"}
_NONE = np.zeros(0, np.uint64)
_WORDS = {EMPTY: 0, MISSING: 1}
"""Word in the place of a digest -> number in `Manifest.digests`."""


def digest(key: str, value: Any) -> str:
    """32 hex digits of the object `value` (any buffer) stored under `key`."""
    hasher = xxhash.xxh3_128(key.encode() + b"\0")
    hasher.update(value)
    return hasher.hexdigest()


def is_document(key: str) -> bool:
    """Whether a key is that of a metadata document; all others are chunks."""
    return key.rpartition("/")[2] in DOCUMENTS


def canonical(content: Any) -> bytes:
    """The one JSON text of `content`: sorted names, no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True, eq=False)
class Manifest:
    """What a store held when it was sealed.

    documents : key -> digest
    content : content_fingerprint, n_samples, nnz, ... if the writer knew them
    fingerprint : the store fingerprint, 32 hex digits
    key_hashes : uint64, shape (n_chunks,), ascending; xxh3-64 of each chunk's key
    digests : uint64, shape (n_chunks, 2); 0 stands for "empty" and 1 for "missing"

    24 bytes a chunk, whatever the keys' lengths: a terabyte of chunks costs a few MiB.
    """

    documents: dict[str, str]
    content: dict[str, Any]
    fingerprint: str
    key_hashes: np.ndarray = field(repr=False)
    digests: np.ndarray = field(repr=False)
    stat: str = ""
    """`files_stat` of the store when a side manifest was made; '' for a manifest in the store."""
    vouched: bool = False
    """The user stated, with --empty-chunks zeros, that the missing chunks of this unsealed store are empty."""

    def lookup(self, key: str) -> str | None:
        """The digest of a key, EMPTY or MISSING; None if the key is not listed."""
        if is_document(key):
            return self.documents.get(key)
        wanted = np.uint64(xxhash.xxh3_64_intdigest(key.encode()))
        place = int(np.searchsorted(self.key_hashes, wanted))
        if place == len(self.key_hashes) or self.key_hashes[place] != wanted:
            return None
        high, low = (int(word) for word in self.digests[place])
        if high or low > 1:
            return f"{high:016x}{low:016x}"
        return MISSING if low and not self.vouched else EMPTY

    @property
    def n_empty(self) -> int:
        """Number of absent chunks that are known to be empty."""
        return self._n_absent(EMPTY) + (self._n_absent(MISSING) if self.vouched else 0)

    @property
    def n_missing(self) -> int:
        """Number of absent chunks that are not known to be empty."""
        return 0 if self.vouched else self._n_absent(MISSING)

    def lists_the_same(self, other: Manifest) -> bool:
        """Whether another manifest lists the same documents and chunks with the same digests."""
        same_chunks = np.array_equal(self.key_hashes, other.key_hashes) and np.array_equal(self.digests, other.digests)
        return self.documents == other.documents and same_chunks

    def _n_absent(self, kind: str) -> int:
        return int(np.count_nonzero((self.digests[:, 0] == 0) & (self.digests[:, 1] == _WORDS[kind])))

    def verify(self, key: str, value: Any | None) -> None:
        """Compare what was read under `key` with the manifest.  value : its bytes; None if there is no such object

        Raises
        ------
        DataError : missing, not listed, or other bytes than when the store was sealed.
        """
        self.verify_digest(key, None if value is None else digest(key, value))

    def verify_digest(self, key: str, found: str | None) -> None:
        """As `verify`, for an object whose digest is known."""
        expected = self.lookup(key)
        kind = "document" if is_document(key) else "chunk"
        if found is None:
            if expected is None and kind == "document":
                return  # a reader that probes for another version of Zarr
            if expected == MISSING:
                raise DataError(f"{kind} is missing", key, ABSENT_HINT)
            if expected != EMPTY:
                raise DataError(f"{kind} is missing", key, "restore it, or ingest the store again")
        elif expected is None:
            raise DataError(f"{kind} is not in the manifest", key, "remove it, or run: bigsvm seal")
        elif expected == EMPTY:
            raise DataError(f"{kind} was empty when the store was sealed", key, "remove it, or run: bigsvm seal")
        elif expected == MISSING:
            raise DataError(f"{kind} was missing when the store was sealed", key, "run: bigsvm seal")
        elif found != expected:
            raise DataError(
                f"{kind} is damaged or was exchanged: its digest differs from the manifest", key,
                "restore it; if the change was meant, run: bigsvm seal",
            )  # fmt: skip


def write_manifest(
    folder: Path,
    documents: dict[str, str],
    chunks: Iterable[tuple[str, str]],
    content: dict[str, Any],
    *,
    stem: str = STEM,
    stat: str = "",
    vouched: bool = False,
) -> Manifest:
    """Write the files of a manifest into `folder`, `bigsvm-manifest.json` last, and return the manifest.

    chunks : (key, digest, EMPTY or MISSING) in order of array path and chunk number, so that sealing a store gives the
        same fingerprint as writing it; at most one part of them is held in memory
    """
    index = _Index()
    parts: list[dict[str, str]] = []
    pending: dict[str, str] = {}
    for key, hexdigest in chunks:
        if len(pending) == PART_CHUNKS:
            parts.append(_write_part(folder, stem, len(parts) + 1, pending))
            pending = {}
        pending[key] = hexdigest
        index.add(key, hexdigest)
    if parts:
        parts.append(_write_part(folder, stem, len(parts) + 1, pending))
        pending = {}
    main: dict[str, Any] = {
        "format": _FORMAT, "version": _VERSION, "digest": _DIGEST,
        "documents": documents, "chunks": pending, "parts": parts, "n_chunks": len(index), "content": content,
    }  # fmt: skip
    fingerprint = xxhash.xxh3_128_hexdigest(canonical(main))
    _write_main(folder / f"{stem}.json", main | ({"stat": stat, "vouched": vouched} if stat else {}))
    return index.manifest(documents, content, fingerprint, stat, vouched)


def _write_main(path: Path, main: dict[str, Any]) -> None:
    write_bytes(path, canonical(main | {_OWN_DIGEST: xxhash.xxh3_128_hexdigest(canonical(main))}))


def vouch(folder: Path, stem: str) -> None:
    """Record in a side manifest that missing chunks are empty.  The fingerprint does not change."""
    path = folder / f"{stem}.json"
    main = _object(path, read_bytes(path))
    main.pop(_OWN_DIGEST, None)
    _write_main(path, main | {"vouched": True})


def forget_content(folder: Path) -> Manifest:
    """Remove the statistics of the content from a store's manifest, because the content has changed."""
    path = folder / f"{STEM}.json"
    main = _object(path, read_bytes(path))
    main.pop(_OWN_DIGEST, None)
    _write_main(path, main | {"content": {}})
    return load_manifest(folder)


def load_manifest(folder: Path, stem: str = STEM) -> Manifest:
    """Read the manifest in `folder`.

    Raises
    ------
    FileNotFoundError : there is none.
    DataError : it is damaged, incomplete, or of a newer version.
    """
    path = folder / f"{stem}.json"
    main = _object(path, read_bytes(path))
    if main.get("format") != _FORMAT or main.get("version") != _VERSION or main.get("digest") != _DIGEST:
        raise DataError("not a manifest that this version reads", str(path), "upgrade bigsvm, or run: bigsvm seal")
    intact = is_as_written(main)
    own = main.pop(_OWN_DIGEST, None)
    if not intact:
        raise DataError("damaged manifest: it is not what was written", str(path), "restore it, or run: bigsvm seal")
    stat, vouched = main.pop("stat", ""), main.pop("vouched", False)
    documents, content = main.get("documents"), main.get("content")
    if not isinstance(documents, dict) or not isinstance(content, dict) or not isinstance(stat, str):
        raise DataError("damaged manifest", str(path), "run: bigsvm seal")
    if main.keys() != _FIELDS:
        raise DataError("damaged manifest", str(path), "run: bigsvm seal")
    if own is None and stat:
        raise DataError("a manifest of an older version", str(path), "it is made anew")
    index = _Index()
    for part_path, chunks in _chunk_tables(folder, stem, path, main):
        for key, hexdigest in chunks.items():
            if not _is_digest(hexdigest) and hexdigest not in _WORDS:
                raise DataError(f"damaged manifest: bad digest of {key!r}", str(part_path), "run: bigsvm seal")
            index.add(key, hexdigest)
    if len(index) != main.get("n_chunks") or not all(map(_is_digest, documents.values())):
        raise DataError("damaged manifest", str(path), "run: bigsvm seal")
    return index.manifest(documents, content, xxhash.xxh3_128_hexdigest(canonical(main)), stat, vouched is True)


def is_as_written(main: dict[str, Any]) -> bool:
    """Whether the first file of a manifest matches its own digest.  Older versions wrote none, and pass."""
    rest = {name: value for name, value in main.items() if name != _OWN_DIGEST}
    own = main.get(_OWN_DIGEST)
    return own is None or own == xxhash.xxh3_128_hexdigest(canonical(rest))


def manifest_keys(folder: Path, stem: str = STEM) -> Iterator[tuple[str, str]]:
    """(key, digest, EMPTY or MISSING) of every chunk, read part by part.  (`Manifest` keeps only hashes of keys.)"""
    path = folder / f"{stem}.json"
    for _, chunks in _chunk_tables(folder, stem, path, _object(path, read_bytes(path))):
        yield from chunks.items()


def _chunk_tables(folder: Path, stem: str, path: Path, main: dict[str, Any]) -> Iterator[tuple[Path, dict[str, str]]]:
    inline, parts = main.get("chunks"), main.get("parts")
    if not isinstance(inline, dict) or not isinstance(parts, list):
        raise DataError("damaged manifest", str(path), "run: bigsvm seal")
    yield path, inline
    for number, part in enumerate(parts, start=1):
        # The name is computed, never read: a manifest cannot point outside its folder.
        part_path = folder / part_name(stem, number)
        expected = part.get("digest") if isinstance(part, dict) else None
        if not isinstance(expected, str) or not _is_digest(expected):
            raise DataError("damaged part of the manifest", str(part_path), "run: bigsvm seal")
        yield part_path, _object(part_path, _part_text(folder, part_path, expected))


def _part_text(folder: Path, part_path: Path, expected: str) -> bytes:
    """The text of a part of a manifest: under its name, or among the files kept when rows were added."""
    for path in (part_path, folder / FORMER / expected):
        try:
            text = read_bytes(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise read_failed(str(path), error) from error
        if xxhash.xxh3_128_hexdigest(text) == expected:
            return text
    what = "damaged part of the manifest" if part_path.exists() else "part of the manifest is missing"
    raise DataError(what, str(part_path), "run: bigsvm seal")


def part_name(stem: str, number: int) -> str:
    """The file name of part `number`, from 1."""
    return f"{stem}-{number:05d}.json"


def _write_part(folder: Path, stem: str, number: int, chunks: dict[str, str]) -> dict[str, str]:
    name, text = part_name(stem, number), canonical(chunks)
    write_bytes(folder / name, text)
    return {"digest": xxhash.xxh3_128_hexdigest(text)}


def _object(path: Path, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"damaged manifest: {error}", str(path), "run: bigsvm seal") from error
    if not isinstance(content, dict):
        raise DataError("damaged manifest", str(path), "run: bigsvm seal")
    return content


def _is_digest(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 32 and not set(text) - set("0123456789abcdef")


def read_failed(where: str, error: OSError) -> MissingInput | ReadFailed:
    """The error for an OSError while reading: no permission is 66, the device's failure is 74."""
    what = error.strerror or str(error)
    if isinstance(error, PermissionError):
        return MissingInput(f"cannot read: {what}", where)
    return ReadFailed(f"reading failed: {what}", where)


class _Index:
    """Collects hashes of keys, and digests, and sorts them once at the end."""

    def __init__(self) -> None:
        self._hashes, self._digests = array("Q"), array("Q")

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, key: str, hexdigest: str) -> None:
        self._hashes.append(xxhash.xxh3_64_intdigest(key.encode()))
        number = _WORDS[hexdigest] if hexdigest in _WORDS else int(hexdigest, 16)
        self._digests.extend((number >> 64, number & 0xFFFF_FFFF_FFFF_FFFF))

    def manifest(
        self, documents: dict[str, str], content: dict[str, Any], fingerprint: str, stat: str, vouched: bool
    ) -> Manifest:
        hashes = np.frombuffer(self._hashes, np.uint64) if self._hashes else _NONE
        order = np.argsort(hashes, kind="stable")
        digests = np.frombuffer(self._digests, np.uint64) if self._digests else _NONE
        return Manifest(documents, content, fingerprint, hashes[order], digests.reshape(-1, 2)[order], stat, vouched)
