"""The index of a working copy: a file for each segment, mapped and never loaded as a whole."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from bigsvm.errors import DataError
from bigsvm.files.atomic import file_digest, read_bytes, write_bytes
from bigsvm.files.sealed_json import read_sealed, write_sealed
from bigsvm.store.survey import Survey

COPIES = "bigsvm"
"""Name of the folder of copies in a scratch folder."""
LAYOUT_VERSION = 5
BLOCKS_PER_SEGMENT = 1024
MOST_SEGMENTS = 256  # a reader keeps a file open for each
ALIGN = 64  # the arrays of a block start at multiples of this number of bytes

# Offset and size of a block in the file of its segment, number of stored entries (dense: values), size of its table of
# values (0: no table), xxh3-128 of its bytes.
BLOCK_ENTRY = np.dtype([("offset", "<u8"), ("nbytes", "<u8"), ("entries", "<u8"), ("table", "<u4"), ("digest", "V16")])


class BlockEntry(NamedTuple):
    """An entry of the index, with the number of its segment."""

    segment: int
    offset: int
    nbytes: int
    entries: int
    table: int
    digest: bytes


class SegmentFiles(NamedTuple):
    """The files of a segment: blocks, index, and summary."""

    blocks: Path
    entries: Path
    summary: Path


def segment_files(folder: Path, number: int) -> SegmentFiles:
    name = f"segment-{number:05d}"
    return SegmentFiles(folder / f"{name}.bin", folder / f"{name}.idx", folder / f"{name}.json")


def segment_blocks(n_blocks: int) -> int:
    """Number of blocks in each segment of a copy of `n_blocks` (the last segment may have fewer)."""
    return max(BLOCKS_PER_SEGMENT, -(-n_blocks // MOST_SEGMENTS))


def padded(nbytes: int) -> int:
    """Bytes that an array of `nbytes` bytes takes in a block."""
    return -(-nbytes // ALIGN) * ALIGN


def write_index(
    folder: Path, copy: str, number: int, start: int, stop: int, blocks: np.ndarray, y_dtype: np.dtype, survey: Survey
) -> dict[str, Any]:
    """Write the index of a segment whose blocks are on disk; returns the summary, which marks the segment as complete.

    copy : digest of what the copy is made of
    blocks : BLOCK_ENTRY, shape (n_blocks,), the blocks of rows [start, stop)
    survey : survey of the segment's rows; empty if the rows are surveyed elsewhere

    Raises OutputError.
    """
    files, content = segment_files(folder, number), blocks.tobytes()
    write_bytes(files.entries, content)
    summary = {
        "copy": copy,
        "number": number,
        "start": start,
        "stop": stop,
        "nbytes": int(blocks["nbytes"].sum()),
        "index_digest": xxhash.xxh3_128_hexdigest(content),
        "y_dtype": y_dtype.name,
        "survey": survey.document(),
    }
    write_sealed(files.summary, summary)
    return summary


def complete_segment(folder: Path, copy: str, number: int) -> dict[str, Any] | None:
    """The summary of a segment of this copy that an earlier run completed; else None."""
    try:
        summary = read_sealed(segment_files(folder, number).summary)
        ours = (summary["copy"], summary["number"]) == (copy, number)
        return summary if ours and _is_whole(folder, number, summary) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_whole(folder: Path, number: int, summary: dict[str, Any]) -> bool:
    files = segment_files(folder, number)
    if files.blocks.stat().st_size != summary["nbytes"]:
        return False
    return xxhash.xxh3_128_hexdigest(read_bytes(files.entries)) == summary["index_digest"]


def is_complete(folder: Path, made_of: dict[str, Any]) -> bool:
    """Whether there is a working copy made of exactly this, with valid index and orders, and files of right size."""
    try:
        document = read_sealed(folder / "staged.json")
        if document["made_of"] != made_of:  # of other rows, moved here by a restore or by hand
            return False
        whole = all(file_digest(folder / name) == digest for name, digest in document["orders"].items())
        return whole and all(_is_whole(folder, number, found) for number, found in enumerate(document["segments"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def open_index(folder: Path, number: int, digest: str) -> np.ndarray:
    """The index of a segment, mapped: BLOCK_ENTRY, shape (n_blocks,).  Raises DataError if it is damaged."""
    path = segment_files(folder, number).entries
    try:
        index = np.memmap(path, BLOCK_ENTRY, "r")
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if xxhash.xxh3_128_hexdigest(index.data) != digest:
        raise damaged(path, "the index does not match its digest")
    return np.asarray(index)


def damaged(path: Path, what: str) -> DataError:
    """The error for a working copy that has changed since it was made."""
    return DataError(f"the working copy is damaged: {what}", str(path), _remedy(path))


def damaged_block(path: Path, number: int, why: str = "its digest does not match") -> DataError:
    """The error for a block whose bytes have changed since they were written."""
    return DataError(f"block {number} of the working copy is damaged: {why}", str(path), _remedy(path))


def give_up(error: DataError) -> DataError:
    """Mark the copy of a damaged block as unfinished, so that the next run makes the block's segment again.

    Otherwise a job that runs every night would find the same damage for ever.
    """
    blocks = Path(error.where)
    with suppress(OSError):  # if the folder cannot be written, its owner must delete it
        for mark in (blocks.with_suffix(".json"), blocks.parent / "staged.json"):
            mark.unlink(missing_ok=True)
        error.hint = "repeat the command, or --resume it, to make the damaged part again"
    return error


def _remedy(path: Path) -> str:
    """The command that deletes the copy of a file."""
    for folder in path.absolute().parents:
        if folder.name == COPIES:
            return f"bigsvm cache clear --scratch {shlex.quote(str(folder.parent))}"
    return f"delete {path.parent}"
