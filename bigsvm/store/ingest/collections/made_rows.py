"""Dense rows that a worker has prepared for a store: finished chunk files, and the remaining rows between them.

A worker that sees the folder of the new store encodes the whole chunks among its rows, and writes them under temporary
names.  The writer of the store renames them into place, so that a chunk in its place is always complete.  Rows that
share a chunk with those of another worker are sent back as an array.  What a worker that died leaves behind is in the
same folder, which is removed before the store is sealed.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bigsvm.errors import OutputError
from bigsvm.store.content import ColumnScales, ContentHash
from bigsvm.store.ingest.chunk_files import ChunkFiles
from bigsvm.store.labels import as_labels, as_targets, check_weights, label_bits

FOLDER = ".made.tmp"
"""The folder for workers' files, inside the folder of the new store."""
_HERE = "here"  # a file in FOLDER by which a worker finds out whether it sees the same disk


class ChunkPlace(NamedTuple):
    """The place where workers write chunks of X of a new store.

    root : folder of the store;  token : content of the file `here`
    key : key of the array;  dtype, codec, chunk_rows, width : of its chunks;  task : of the labels
    """

    root: str
    token: str
    key: str
    dtype: np.dtype
    codec: str
    chunk_rows: int
    width: int
    task: str


class MadeChunk(NamedTuple):
    """A finished chunk file in FOLDER; its digest is bound to the key of its final place."""

    name: str
    nbytes: int
    digest: str


class MadeRows(NamedTuple):
    """Consecutive dense rows, ready for the store.

    first : number of the first row;  n : number of rows
    head, tail : the rows before and after the finished chunks
    bits : bits of the labels, as hashed;  content : sum of the hashes of the rows
    largest : the largest |value| of each column; None if there are too many columns
    """

    first: int
    n: int
    head: np.ndarray
    chunks: tuple[MadeChunk, ...]
    tail: np.ndarray
    bits: np.ndarray
    content: int
    largest: np.ndarray | None


def opened_place(root: Path, files: ChunkFiles, task: str) -> ChunkPlace:
    """Create the folder for workers.  files : those of X, which has a width"""
    token = uuid.uuid4().hex
    (root / FOLDER).mkdir()
    (root / FOLDER / _HERE).write_text(token)
    assert files.width is not None
    return ChunkPlace(
        str(root.resolve()), token, files.path, files.dtype, files.codec, files.chunk_rows, files.width, task
    )


def is_seen(place: ChunkPlace) -> bool:
    """Whether this process sees the folder of the new store."""
    try:
        return (Path(place.root) / FOLDER / _HERE).read_text() == place.token
    except (OSError, ValueError):
        return False


def make_rows(
    place: ChunkPlace, X: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, first: int, where: str
) -> MadeRows:
    """Task: hash the rows, and write the whole chunks among them.

    X : checked rows, in the store's dtype;  first : number of the first row in the store

    Raises
    ------
    DataError : invalid labels or weights (names the row).
    OutputError : the disk is full or fails.
    """
    known = as_labels(np.asarray(labels), where, first)
    bits = label_bits(as_targets(known, where, first) if place.task == "regression" else known)
    if weights is not None:
        weights = check_weights(weights, where, first)
    content, scales = ContentHash(), ColumnScales()
    content.add_bits(X, bits, weights, first)
    scales.add(X)
    head = min(-first % place.chunk_rows, len(X))
    n_chunks = (len(X) - head) // place.chunk_rows
    tail = head + n_chunks * place.chunk_rows
    chunks: list[MadeChunk] = []
    if n_chunks:
        files = ChunkFiles.at(Path(place.root), place.key, place.dtype, place.codec, place.chunk_rows, place.width)
        mine = uuid.uuid4().hex
        for k in range(n_chunks):
            start = head + k * place.chunk_rows
            name, number = f"{mine}-{k}", (first + start) // place.chunk_rows
            values = np.ascontiguousarray(X[start : start + place.chunk_rows], place.dtype)
            nbytes, digest = files.encoded(values, number, Path(place.root) / FOLDER / name)
            chunks.append(MadeChunk(name, nbytes, digest))
    # Copied, because a view would send the whole partition.
    rest = X[:head].copy(), X[tail:].copy()
    return MadeRows(first, len(X), rest[0], tuple(chunks), rest[1], bits, content.total, scales.largest)


def put_chunks(root: Path, files: ChunkFiles, made: MadeRows) -> None:
    """Move finished chunks to their places, and append the rows around them.

    Raises OutputError if the file of a worker is missing.
    """
    files.append(made.head)
    for chunk in made.chunks:
        try:
            files.take_over(root / FOLDER / chunk.name, chunk.nbytes, chunk.digest)
        except FileNotFoundError as error:
            what = "a chunk that a worker has written is missing: does the worker write to another disk?"
            raise OutputError(what, os.fspath(root)) from error
    files.append(made.tail)
