"""Dense rows that a worker has made ready for a store: finished chunk files, and the rows between them.

A worker that sees the folder of the store that is being written encodes the whole chunks of its rows, and writes them
under names of its own.  Whoever writes the store gives them their places by renaming, so that nothing has a place that
is not whole.  Rows that share a chunk with those of another worker come back as they are.  What is left behind by a
worker that died lies in the same folder, which is removed before the store is sealed.
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
"""Below the folder of a store that is being written."""
_HERE = "here"  # a file there, by which a worker knows that it sees the same disk


class ChunkPlace(NamedTuple):
    """Where workers write chunks of X of a store that is being written.

    root : of the store;  token : what the file `here` holds
    key : of the array;  dtype, codec, chunk_rows, width : of its chunks;  task : of the store's labels
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
    """A finished chunk file, below FOLDER; its digest is that of its place."""

    name: str
    nbytes: int
    digest: str


class MadeRows(NamedTuple):
    """Dense rows that follow one another, ready for their place.

    first : number of the first row;  n : of rows
    head, tail : rows before and behind the finished chunks
    bits : of the labels, as they went into the hash;  content : sum of the rows' hashes
    largest : of each column the largest |value|; None where there are too many columns
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
    """Make the folder for workers.  files : of X, with a width."""
    token = uuid.uuid4().hex
    (root / FOLDER).mkdir()
    (root / FOLDER / _HERE).write_text(token)
    assert files.width is not None
    return ChunkPlace(
        str(root.resolve()), token, files.path, files.dtype, files.codec, files.chunk_rows, files.width, task
    )


def is_seen(place: ChunkPlace) -> bool:
    """Whether this process writes where the store is made."""
    try:
        return (Path(place.root) / FOLDER / _HERE).read_text() == place.token
    except (OSError, ValueError):
        return False


def make_rows(
    place: ChunkPlace, X: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, first: int, where: str
) -> MadeRows:
    """Hash rows, and write those of their chunks that are whole; on a worker.

    X : checked, in the store's dtype;  first : number of the first row in the store

    Raises
    ------
    DataError : labels or weights that cannot be used (names the row).
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
    # Copies: what is sent must not hold the whole partition.
    rest = X[:head].copy(), X[tail:].copy()
    return MadeRows(first, len(X), rest[0], tuple(chunks), rest[1], bits, content.total, scales.largest)


def put_chunks(root: Path, files: ChunkFiles, made: MadeRows) -> None:
    """Give finished chunks their places, between the rows around them.

    Raises OutputError where a file of a worker is not there.
    """
    files.append(made.head)
    for chunk in made.chunks:
        try:
            files.take_over(root / FOLDER / chunk.name, chunk.nbytes, chunk.digest)
        except FileNotFoundError as error:
            what = "a worker has written a chunk that is not there: does it write to another disk?"
            raise OutputError(what, os.fspath(root)) from error
    files.append(made.tail)
