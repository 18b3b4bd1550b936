"""Scores that memory cannot hold: they lie in files without a name in the scratch folder, and come back sorted.

Runs that fit memory are sorted where they lie, and then merged, a limited number of runs at a time.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bigsvm.files.space import cannot_write
from bigsvm.store.blocks import tile
from bigsvm.units import KIB

SORTED_ROW_BYTES = 128
"""Bytes for each row of a run that is sorted: its record, a sorted copy, the order, and what the reader makes of it."""
LEAST_ROOM = 256 * KIB
"""Bytes of memory that sorting takes at least."""
_PIECE = 1 << 12  # rows that are read at a time, in the order of their arrival
_MERGED_ROWS = 512  # rows of each run that memory should hold while runs are merged
_MOST_MERGED = 64  # runs that are merged at a time


class ScoreFile:
    """A file with a part for each of several rankings, and a second file, which merging needs.

    room : bytes of memory for sorting
    most : bytes that the files may take; None: as many as the disk has
    """

    def __init__(self, folder: Path, room: int, most: int | None = None) -> None:
        self._folder, self._most = folder, most
        self.room = max(room, LEAST_ROOM)
        self._used = self._merged = 0
        self._handles: list[int] = []
        self._close = weakref.finalize(self, _close, self._handles)

    def take(self, n_rows: int, weighted: bool, held_rows: int) -> SpilledScores | None:
        """A part for `n_rows` rows, of which memory holds `held_rows` at a time; None if the disk has no room for it.

        All blocks of the part are allocated at once, so that the disk cannot become full during a pass.
        """
        scores = SpilledScores(self, self._used, n_rows, weighted, held_rows)
        nbytes = n_rows * scores.row_bytes
        merged = nbytes if n_rows > scores.run_rows else 0
        used, both = self._used + nbytes, max(self._merged, merged)
        if self._most is not None and used + both > self._most:
            return None
        try:
            if not self._handles:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._handles += [_nameless(self._folder), _nameless(self._folder)]
            for handle, at, size in ((0, self._used, nbytes), (1, 0, merged)):
                if size:
                    os.posix_fallocate(self._handles[handle], at, size)
        except OSError:
            return None
        self._used, self._merged = used, both
        return scores

    def write(self, second: bool, at: int, rows: np.ndarray) -> None:
        """Write contiguous rows at a byte of the first or second file.  Raises OutputError."""
        data = rows.data.cast("B")
        try:
            while len(data):
                written = os.pwrite(self._handles[second], data, at)
                at, data = at + written, data[written:]
        except OSError as error:
            raise cannot_write(self._folder, error) from error

    def read(self, second: bool, at: int, rows: np.ndarray) -> np.ndarray:
        """Fill contiguous rows from a byte of the first or second file, and return them.  Raises OutputError."""
        data = rows.data.cast("B")
        try:
            while len(data):
                count = os.preadv(self._handles[second], [data], at)
                if not count:
                    raise OSError("a scratch file was truncated")
                at, data = at + count, data[count:]
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        return rows

    def close(self) -> None:
        """Release the disk; all parts are lost."""
        self._close()


class SpilledScores:
    """The scores of one ranking, in a part of a ScoreFile: rows are added once, and read afterwards.

    row_bytes : bytes of a row on disk and in memory;  run_rows : rows that are sorted at a time
    """

    def __init__(self, file: ScoreFile, start: int, n_rows: int, weighted: bool, held_rows: int) -> None:
        self._file, self._start, self._weighted = file, start, weighted
        self._dtype = record(weighted)
        self._held = np.empty(max(1, min(held_rows, n_rows)), self._dtype)
        self._n_held = self._n_written = 0
        self.row_bytes = self._dtype.itemsize
        self.run_rows = file.room // SORTED_ROW_BYTES

    @property
    def room(self) -> int:
        """Bytes of memory for sorting."""
        return self._file.room

    def __len__(self) -> int:
        return self._n_written + self._n_held

    def add(self, scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None) -> None:
        """Add rows: scores (n,), whether positive (n,), weights (n,) or None for ones.  Raises OutputError."""
        assert weights is None or self._weighted
        done = 0
        while done < len(scores):
            taken = slice(done, done + min(len(scores) - done, len(self._held) - self._n_held))
            done = taken.stop
            rows = self._held[self._n_held : self._n_held + taken.stop - taken.start]
            rows["score"], rows["positive"] = scores[taken], positive[taken]
            if self._weighted:
                rows["weight"] = 1.0 if weights is None else weights[taken]
            self._n_held += len(rows)
            if self._n_held == len(self._held):
                self._flush()

    def pieces(self) -> Iterator[np.ndarray]:
        """All rows, in small pieces, in no particular order."""
        self._flush()
        for start, stop in tile(self._n_written, _PIECE):
            yield self._read(False, start, stop)

    def descending(self) -> Iterator[np.ndarray]:
        """All rows with descending scores, in pieces of at most `run_rows`; equal scores may be in several pieces."""
        self._flush()
        runs = list(tile(self._n_written, self.run_rows))
        for start, stop in runs:
            self._write(False, start, _descending(self._read(False, start, stop)))
        second, at_once = False, min(max(self.run_rows // _MERGED_ROWS, 2), _MOST_MERGED)
        while len(runs) > at_once:
            longer = []
            for first in range(0, len(runs), at_once):
                some = runs[first : first + at_once]
                at = some[0][0]
                for rows in self._merge(second, some):
                    self._write(not second, at, rows)
                    at += len(rows)
                longer.append((some[0][0], at))
            runs, second = longer, not second
        yield from self._merge(second, runs)

    def _merge(self, second: bool, runs: Sequence[tuple[int, int]]) -> Iterator[np.ndarray]:
        """The rows of sorted runs, all of them sorted, in pieces."""
        each = max(1, self.run_rows // (2 * max(len(runs), 1)))
        held = [np.empty(0, self._dtype) for _ in runs]
        places = [start for start, _ in runs]
        while True:
            for k, (_, stop) in enumerate(runs):
                if not len(held[k]) and places[k] < stop:
                    start, places[k] = places[k], min(places[k] + each, stop)
                    held[k] = self._read(second, start, places[k])
            # Rows below the last one of a run that is not at its end must wait for the rest of that run.
            lasts = [rows["score"][-1] for rows, at, (_, stop) in zip(held, places, runs, strict=True) if at < stop]
            least = max(lasts, default=-np.inf)
            ready = [int(np.count_nonzero(~(rows["score"] < least))) for rows in held]
            if not any(ready):
                return
            yield _descending(np.concatenate([rows[:n] for rows, n in zip(held, ready, strict=True)]))
            held = [rows[n:] for rows, n in zip(held, ready, strict=True)]

    def _flush(self) -> None:
        if self._n_held:
            self._write(False, self._n_written, self._held[: self._n_held])
            self._n_written, self._n_held = self._n_written + self._n_held, 0

    def _write(self, second: bool, row: int, rows: np.ndarray) -> None:
        self._file.write(second, (0 if second else self._start) + row * self.row_bytes, rows)

    def _read(self, second: bool, start: int, stop: int) -> np.ndarray:
        at = (0 if second else self._start) + start * self.row_bytes
        return self._file.read(second, at, np.empty(stop - start, self._dtype))


def record(weighted: bool) -> np.dtype:
    """The dtype of a row on disk."""
    fields = [("score", np.float64), ("positive", np.bool_)]
    return np.dtype([*fields, ("weight", np.float64)] if weighted else fields)


def _descending(rows: np.ndarray) -> np.ndarray:
    return rows[np.argsort(-rows["score"], kind="stable")]


def _nameless(folder: Path) -> int:
    """The descriptor of a new file without a name."""
    handle, name = tempfile.mkstemp(prefix=".scores-", dir=folder)
    os.unlink(name)
    return handle


def _close(handles: list[int]) -> None:
    while handles:
        os.close(handles.pop())
