"""Lines of text files, plain or compressed, in bounded pieces cut at line ends."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from bigsvm.compiled.text.svmlight import PADDING, count_marks
from bigsvm.errors import DataError
from bigsvm.store.text.compressed import ByteSource
from bigsvm.units import KIB, MIB, show_bytes

PIECE_BYTES = 4 * MIB
LONGEST_LINE = 256 * MIB
_LF = 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Piece:
    """Whole lines of one file, in a buffer that is lent: see `release`.

    buffer : uint8, at least size + PADDING long; buffer[size - 1] is a newline
    first_line : int   number in the file of the first line here, from 1
    n_lines, n_colons : int
    consumed : int     bytes of all sources read so far, compressed where they are
    """

    def __init__(self, pool: _Pool, name: str, buffer: np.ndarray, size: int, first_line: int, consumed: int) -> None:
        self._pool, self._name = pool, name
        self.buffer, self.size, self.first_line, self.consumed = buffer, size, first_line, consumed
        self.n_lines, self.n_colons = count_marks(buffer, size)

    def where(self, line: int) -> str:
        """`file:LINE` for messages."""
        return f"{self._name}:{line}"

    def line_at(self, offset: int) -> tuple[int, bytes, int]:
        """(number in the file, content without its newline, position in it) of byte `offset`."""
        start = _after_last_newline(self.buffer, 0, offset)
        before, _ = count_marks(self.buffer, start)
        line = self.buffer[start : self.size].data  # a view: what follows may be long
        stop = offset - start
        while (step := bytes(line[stop : stop + 64 * KIB])) and b"\n" not in step:
            stop += len(step)
        return self.first_line + before, bytes(line[: stop + step.index(b"\n")]), offset - start

    def replace(self, content: bytes) -> None:
        """Take other content with the same lines and colons."""
        self.release()
        self.buffer, self.size = np.zeros(len(content) + PADDING, np.uint8), len(content)
        self.buffer[: self.size] = np.frombuffer(content, np.uint8)

    def release(self) -> None:
        """Give the buffer back: the piece must not be used any more."""
        self._pool.give(self.buffer)


class _Pool:
    """A few buffers, used over and over; how many is bounded by how many pieces are in use at a time."""

    def __init__(self, nbytes: int) -> None:
        self._length = nbytes + 1 + PADDING
        self._free: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        return self._free.pop() if self._free else np.empty(self._length, np.uint8)

    def give(self, buffer: np.ndarray) -> None:
        # A buffer that grew for a long line is not kept: such lines are rare.
        if len(buffer) == self._length:
            self._free.append(buffer)


def line_limit(memory: int | None) -> int:
    """Bytes that one line may have, given the memory of an ingest: its entries take several times more."""
    return LONGEST_LINE if memory is None else max(min(LONGEST_LINE, memory // 16), 64 * KIB)


def read_pieces(
    sources: Sequence[str], *, piece_bytes: int = PIECE_BYTES, line_bytes: int = LONGEST_LINE
) -> Generator[Piece, None, None]:
    """Pieces of about `piece_bytes` of whole lines, each to be released when it has been used.

    A byte order mark at the start of a file is dropped.  A last line without newline is a line.

    sources : paths, or "-" for standard input

    Raises
    ------
    MissingInput : a file cannot be opened
    ReadFailed : the device failed
    DataError : a compressed file is cut short or damaged; a line is longer than `line_bytes`.
    """
    pool = _Pool(piece_bytes)
    consumed = 0
    for source in sources:
        with ByteSource(source) as file:
            for piece in _pieces_of(file, pool, line_bytes):
                piece.consumed += consumed
                yield piece
            consumed += file.consumed


def _pieces_of(file: ByteSource, pool: _Pool, line_bytes: int) -> Generator[Piece, None, None]:
    line = 1
    kept = _without_mark(file)
    at_end = False
    while not at_end:
        buffer = pool.take()
        room = len(buffer) - PADDING - 1  # one byte for the newline that a torn last line lacks
        size = searched = 0
        while True:
            if len(kept) > room or size == room:
                if room >= line_bytes:
                    raise DataError(
                        f"a line of more than {show_bytes(line_bytes)}",
                        f"{file.name}:{line}",
                        "is this text?  A longer line needs more --memory",
                    )
                room = min(max(2 * room, len(kept)), max(line_bytes, len(kept)))
                longer = np.empty(room + 1 + PADDING, np.uint8)
                longer[:size] = buffer[:size]
                buffer = longer
            if kept:
                buffer[: len(kept)] = np.frombuffer(kept, np.uint8)
                size, kept = len(kept), b""
            got = file.fill(buffer[size:room])
            end, at_end = size + got, size + got < room
            cut = _after_last_newline(buffer, searched, end)
            if at_end and end and buffer[end - 1] != _LF:
                buffer[end] = _LF
                cut = end = end + 1
            size = searched = end
            if cut or at_end:
                break
        kept = buffer[cut:end].tobytes()
        if cut:
            piece = Piece(pool, file.name, buffer, cut, line, file.consumed)
            line += piece.n_lines
            yield piece
        else:
            pool.give(buffer)


def _without_mark(file: ByteSource) -> bytes:
    """The first bytes of a file, less a byte order mark."""
    start = np.empty(len(_BYTE_ORDER_MARK), np.uint8)
    return start[: file.fill(start)].tobytes().removeprefix(_BYTE_ORDER_MARK)


def _after_last_newline(buffer: np.ndarray, start: int, stop: int) -> int:
    """Position after the last newline in buffer[start:stop], or 0."""
    while stop > start:
        # Searched backwards in small steps: the newline is mostly within the last line.
        low = max(start, stop - 64 * KIB)
        found = buffer[low:stop].tobytes().rfind(b"\n")
        if found >= 0:
            return low + found + 1
        stop = low
    return 0
