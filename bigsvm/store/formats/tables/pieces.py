"""Cutting delimited text into pieces that end with a whole record, even if fields between quotes have newlines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bigsvm.errors import DataError
from bigsvm.store.text.compressed import COMPRESSED, ByteSource
from bigsvm.units import KIB, MIB

PIECE_BYTES = 768 * KIB
"""Bytes of text that are parsed at a time; a reader holds some multiple of it."""
_LONGEST = 16 * MIB
_NEWLINE, _QUOTE = 10, 34
DELIMITERS = b",;\t|"
"""The delimiters that are looked for, in this order."""
_BOM = b"\xef\xbb\xbf"
_NO_PARTNER = "a quotation mark without its partner makes one record of all that follows"


def is_compressed(path: str) -> bool:
    """Whether a file is compressed, so that it can only be read from its beginning."""
    return path.lower().endswith(COMPRESSED)


def cut_pieces(path: str, delimiters: bytes = DELIMITERS) -> Iterator[tuple[int, bytes]]:
    """(offset in the decompressed text, text) of the pieces in order.  delimiters : see `record_end`

    Each piece ends at the end of a record, and the last one at the end of the file.  Only where the delimiter is known
    it is known, too, whether a quotation mark begins a field that does not end.

    Raises
    ------
    MissingInput, ReadFailed : the file does not exist, or cannot be read.
    DataError : compressed content is damaged, or a record does not end, since a quotation mark has no partner.
    """
    buffer = np.empty(PIECE_BYTES, np.uint8)
    held = offset = 0
    with ByteSource(path) as source:
        while True:
            got = source.fill(buffer[held:])
            ended = held + got < len(buffer)
            held += got
            if offset == 0 and bytes(buffer[: min(held, 3)]) == _BOM:
                buffer[: held - 3] = buffer[3:held].copy()
                held, offset = held - 3, 3
                continue
            if ended:
                if held:
                    if len(delimiters) == 1:
                        _check_quotes(path, buffer[:held], offset, delimiters)
                    yield offset, buffer[:held].tobytes()
                return
            stop = record_end(buffer, delimiters)
            if stop == 0:
                if len(buffer) >= _LONGEST:
                    raise DataError(f"a record of more than {_LONGEST // MIB} MiB at byte {offset}", path, _NO_PARTNER)
                buffer = np.concatenate([buffer, np.empty(len(buffer), np.uint8)])
                continue
            yield offset, buffer[:stop].tobytes()
            offset, held = offset + stop, held - stop
            rest = buffer[stop : stop + held].copy()
            buffer = np.empty(max(PIECE_BYTES, 2 * held), np.uint8)
            buffer[:held] = rest


def _check_quotes(path: str, text: np.ndarray, offset: int, delimiters: bytes) -> None:
    """Raise DataError if a file ends between quotation marks: pyarrow would make one field of all that follows.

    text : uint8, the last piece, which begins with a record at byte `offset`
    """
    quotes = np.flatnonzero(text == _QUOTE)
    around = _around_fields(text, quotes, delimiters) if len(quotes) else quotes
    if len(around) % 2 == 0:
        return
    while len(around) > 1 and around[-1] == around[-2] + 1:  # two marks in the field that does not end
        around = around[:-2]
    place, lines = int(around[-1]), 1
    with ByteSource(path) as source:
        piece, left = np.empty(PIECE_BYTES, np.uint8), offset + place
        while left > 0 and (got := source.fill(piece[: min(left, PIECE_BYTES)])):
            lines += int(np.count_nonzero(piece[:got] == _NEWLINE))
            left -= got
    said = text[place : place + 40].tobytes().decode("utf-8", "replace")
    raise DataError(f"line {lines} has a quotation mark that nothing closes: {said!r}", path, _NO_PARTNER)


def record_end(text: np.ndarray, delimiters: bytes = DELIMITERS) -> int:
    """The place after the last whole record of `text`, uint8, which begins with a record; 0 if no record ends.

    delimiters : the characters after which a field may begin; one of them if it is known
    """
    ends = _ends(text, delimiters)
    return int(ends[-1]) + 1 if len(ends) else 0


def _ends(text: np.ndarray, delimiters: bytes) -> np.ndarray:
    """The places of the newlines that end records of `text`, uint8, which begins with a record."""
    ends = np.flatnonzero(text == _NEWLINE)
    quotes = np.flatnonzero(text == _QUOTE)
    if len(ends) and len(quotes):  # a newline after an odd number of quotation marks is inside a field
        ends = ends[np.searchsorted(_around_fields(text, quotes, delimiters), ends) % 2 == 0]
    return ends


def line_of_record(path: str, offset: int, nbytes: int, number: int, delimiter: bytes) -> int:
    """The line, counted from 1, on which a record of a file begins; empty lines are no records.

    offset, nbytes : a piece of the file, which begins with a record;  number : of the record in it, from 0
    """
    reader, lines, at = PieceReader(path), 1, 0
    try:
        while at < offset:
            before = reader.read(at, min(PIECE_BYTES, offset - at))
            lines, at = lines + before.count(b"\n"), at + len(before)
        text = np.array(reader.read(offset, nbytes))
    finally:
        reader.close()
    start = 0
    for end in (*_ends(text, delimiter).tolist(), len(text)):
        if text[start:end].tobytes().strip(b"\r\n"):
            if number == 0:
                break
            number -= 1
        start = end + 1
    return lines + int(np.count_nonzero(text[:start] == _NEWLINE))


def _around_fields(text: np.ndarray, quotes: np.ndarray, delimiters: bytes) -> np.ndarray:
    """Those of the quotation marks at `quotes` that begin and end fields, alternately, and pairs inside such fields.

    A mark elsewhere, as in 5" disk, is a character of its field.
    """
    before = text[quotes - 1]
    begins = np.isin(before, np.frombuffer(delimiters + b"\n\r", np.uint8)) | (quotes == 0)
    doubled = np.concatenate([[False], np.diff(quotes) == 1])
    if np.all((begins | doubled)[::2]):  # the usual case
        return quotes
    kept, places, begins_there = [], quotes.tolist(), begins.tolist()
    inside, k = False, 0
    while k < len(places):
        if inside and k + 1 < len(places) and places[k + 1] == places[k] + 1:
            k += 2  # two marks stand for one
            continue
        if inside or begins_there[k]:
            inside = not inside
            kept.append(places[k])
        k += 1
    return np.array(kept, np.int64)


class PieceReader:
    """Reads pieces of one file by their offsets, for one thread; in compressed files it goes on from the last read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._source: ByteSource | None = None
        self._at = 0
        self._text = bytearray()

    def read(self, offset: int, nbytes: int, end: bytes = b"") -> bytearray:
        """Bytes [offset, offset + nbytes) of the decompressed text, followed by `end`; the next read overwrites them.

        Raises DataError if the file is shorter.
        """
        self._make_room(nbytes + len(end))
        with memoryview(self._text) as text, text[:nbytes] as asked:
            text[nbytes:] = end
            if not is_compressed(self._path):
                with open(self._path, "rb", buffering=0) as file:
                    file.seek(offset)
                    got = file.readinto(asked)
            else:
                got = self._unpack(offset, asked)
        if got != nbytes:
            raise DataError("the file changed since it was opened", self._path)
        return self._text

    def _make_room(self, nbytes: int) -> None:
        """Make the text `nbytes` long, in the memory of the last piece: the system would have to clear new pages."""
        try:
            self._text.append(0)  # raises BufferError if a view of the text exists, even if the length stays the same
            del self._text[nbytes:]
            self._text.extend(bytes(nbytes - len(self._text)))
        except BufferError:  # a view still exists, for example in an error that is being reported
            self._text = bytearray(nbytes)

    def _unpack(self, offset: int, asked: memoryview) -> int:
        if self._source is None or offset < self._at:
            self.close()
            self._source, self._at = ByteSource(self._path), 0
        while self._at < offset:
            self._at += self._fill(np.empty(min(offset - self._at, PIECE_BYTES), np.uint8))
        got = self._fill(np.frombuffer(asked, np.uint8))
        self._at += got
        return got

    def _fill(self, buffer: np.ndarray) -> int:
        assert self._source is not None
        got = self._source.fill(buffer)
        if got == 0:
            raise DataError("the file changed since it was opened", self._path)
        return got

    def __del__(self) -> None:
        self.close()  # the thread that used it has ended

    def close(self) -> None:
        """Close the file."""
        if self._source is not None:
            self._source.__exit__(None, None, None)
            self._source = None


class FilesReader:
    """Reads pieces of several files, for one thread; the last file stays open, and a compressed one is read on."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths, self._number = paths, -1
        self._reader: PieceReader | None = None

    def read(self, number: int, offset: int, nbytes: int, end: bytes = b"") -> bytearray:
        """Bytes of the file with this number, as `PieceReader.read` returns them."""
        if self._reader is None or self._number != number:
            if self._reader is not None:
                self._reader.close()
            self._reader, self._number = PieceReader(self._paths[number]), number
        return self._reader.read(offset, nbytes, end)
