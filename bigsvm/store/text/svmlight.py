"""svmlight/LIBSVM text: what is accepted, and chunks of rows from files of it.

`parse_line_strict` is the specification of the grammar: slow, readable, one line at a time, and the author
of every message.  `read_chunks` is the same grammar at full speed (`bigsvm.compiled.text.svmlight`).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.text import svmlight as kernel
from bigsvm.errors import DataError
from bigsvm.store.checks import LARGEST_WHOLE
from bigsvm.store.text.label_fields import REFUSED_FIELD, LabelFields
from bigsvm.store.text.text_files import Piece
from bigsvm.units import KIB, counted

UNLIMITED = 2**63 - 1
"""As many features as int64 can count: where the caller names no number."""

_LONG = 64 * KIB

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)(?:\(.*\))?", re.IGNORECASE)
_HEX = re.compile(rb"[+-]?0x.*", re.IGNORECASE)
_INDEX = re.compile(rb"[0-9]+")
_QID = re.compile(rb"qid:[0-9]+")
_WHOLE = re.compile(rb"[+-]?[0-9]+")
_NO_LABEL = re.compile(
    rb"^[ \t]*(?:(?:[+-]?(?:nan|inf|infinity)|na|\?)(?=[ \t\r\n#])|(?=(?:[0-9]+|qid):))", re.IGNORECASE | re.MULTILINE
)
_SEVERAL = re.compile(rb"[0-9]+(?:,[0-9]+)+")
_FORM = "each line is: label index:value ..."


class Row(NamedTuple):
    """One row of text.

    label : float, or int where float64 would round a whole number
    indices : feature numbers from 0, ascending
    values : float64 values, finite in the dtype asked for
    qid : bool   a query id was there, and ignored
    """

    label: float | int
    indices: list[int]
    values: list[float]
    qid: bool


class Chunk(NamedTuple):
    """Rows that were parsed together.

    labels : float64, shape (n_rows,); int64 or uint64 where float64 would round one; zeros where a line has none;
        strings as objects where rows have several labels
    X : CSR; float32 or float64 data, int32 indices (int64 where the largest needs it), int64 indptr
    qid : bool       a query id was seen
    consumed : int   bytes of the sources read so far, compressed where they are
    where : str      "file:LINE" of the first line
    """

    labels: np.ndarray
    X: CSR
    qid: bool
    consumed: int
    where: str


def parse_line_strict(
    line: bytes,
    where: str = "",
    *,
    zero_based: bool = False,
    n_features: int = UNLIMITED,
    dtype: type[np.floating] | np.dtype = np.float64,
) -> Row | None:
    """The row in one line of text (without its newline), or None where it is blank or a comment.

        line    := blanks [label {blanks item}] blanks [# anything but NUL] [CR]
        item    := index ":" number, or, straight after the label, "qid:" digits
        number  := [+-] (digits [. digits] | . digits) [(e|E) [+-] digits]
        index   := digits, counted from 1 (from 0 where `zero_based`), ascending in the line
        blanks  := spaces and tabs

    Raises
    ------
    DataError : anything else; an index that does not fit int64 or `n_features`; a number that is infinite
    in `dtype` (labels: in float64).
    """

    def refuse(what: str, hint: str) -> DataError:
        return DataError(what, where, hint)

    body, _, _ = line.removesuffix(b"\r").partition(b"#")
    if b"\0" in line:
        raise refuse("a NUL byte", "binary or UTF-16 is not svmlight text")
    if not body.isascii():
        raise refuse(f"a byte outside ASCII in {_show(body)}", "only comments may hold other characters")
    fields = [field for field in body.replace(b"\t", b" ").split(b" ") if field]
    if not fields:
        return None

    def number(field: bytes, what: str, wanted: type[np.floating] | np.dtype) -> float:
        if _NUMBER.fullmatch(field) is None:
            raise refuse(*_not_a_number(field, what))
        value = float(field)
        with np.errstate(over="ignore"):
            if np.isinf(np.dtype(wanted).type(value)):
                name = np.dtype(wanted).name
                wider = name == "float32" and not np.isinf(value)
                hint = "read it with --dtype float64" if wider else "scale the column"
                raise refuse(f"{what} {_show(field)} overflows {name}", hint)
        return value

    if b":" in fields[0]:
        raise refuse(f"the label is missing before {_show(fields[0])}", _FORM)
    label: float | int = number(fields[0], "the label", np.float64)
    if _WHOLE.fullmatch(fields[0]) and int(fields[0]) != label:
        label = int(fields[0])
    qid = len(fields) > 1 and _QID.fullmatch(fields[1]) is not None
    indices: list[int] = []
    values: list[float] = []
    for field in fields[2 if qid else 1 :]:
        index_text, colon, value_text = field.partition(b":")
        if not colon:
            raise refuse(f"expected index:value, found {_show(field)}", _FORM)
        if _INDEX.fullmatch(index_text) is None:
            first = f"the features are numbered from {0 if zero_based else 1}"
            if re.fullmatch(rb"-[0-9]+", index_text):
                raise refuse(f"negative feature number {_show(index_text)}", first)
            hint = "qid:NUMBER stands straight after the label" if index_text == b"qid" else f"{first}, in digits alone"
            raise refuse(f"{_show(index_text)} is not a feature number, in {_show(field)}", hint)
        index_text = index_text.lstrip(b"0") or b"0"
        # Twenty digits are beyond int64, and int() of very many is slow or refused by Python.
        index = int(index_text) if len(index_text) < 20 else 2**64
        if index == 0 and not zero_based:
            raise refuse("feature number 0, but the first is 1", "use --zero-based if the text counts from 0")
        feature = index - (0 if zero_based else 1)
        if index > 2**63 - 1 or feature >= UNLIMITED:
            raise refuse(f"feature number {_show(index_text)} is beyond int64", "number the features from 1")
        if feature >= n_features:
            raise refuse(
                f"feature number {index} is beyond the {counted(n_features, 'feature')} of the model, the store or "
                "--n-features",
                f"ingest with --n-features {feature + 1} or more; for a model the training rows, and fit again",
            )
        if indices and feature == indices[-1]:
            raise refuse(f"feature number {index} twice", "leave out one of the two, or write their sum")
        if indices and feature < indices[-1]:
            before = indices[-1] + (0 if zero_based else 1)
            raise refuse(f"feature numbers are not ascending: {index} after {before}", "sort each line")
        values.append(number(value_text, f"the value of feature {index}", dtype))
        indices.append(feature)
    return Row(label, indices, values, qid)


def _show(field: bytes) -> str:
    """A field for a message: printable and short."""
    text = field.decode("ascii", "backslashreplace")
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


_OTHER_TEXT = re.compile(rb"[,;|{\"]")


def _not_a_number(field: bytes, what: str) -> tuple[str, str]:
    if not field:
        return f"{what} is missing", "no space may stand beside the colon"
    if _NOT_FINITE.fullmatch(field):
        return f"{what} is {_show(field)}, which is not finite", "leave the entry out, or fill it in"
    if _HEX.fullmatch(field):
        return f"{what} {_show(field)} is hexadecimal", "write it in decimal"
    if what != "the label":
        hint = "several labels stand before the first entry, and are read by: bigsvm ingest --labels label"
        several = _SEVERAL.fullmatch(field) is not None
        wanted = "write a fraction with a point, as 1.5" if b"," in field else "write it in digits, such as -1.5e3"
        return f"{what} {_show(field)} is not a number", f"{wanted}; {hint}" if several else wanted
    if _SEVERAL.fullmatch(field):
        return (
            f"{what} {_show(field)} is not a number",
            "several labels a row are read by: bigsvm ingest --labels label",
        )
    if _OTHER_TEXT.search(field):
        return (
            f"{what} {_show(field)} is not a number",
            "this text is not svmlight: name a file, with the suffix of its kind",
        )
    return f"{what} {_show(field)} is not a number", "labels are numbers in svmlight text"


def read_chunks(
    pieces: Iterable[Piece],
    *,
    dtype: np.dtype,
    zero_based: bool = False,
    n_features: int = UNLIMITED,
    unlabelled: bool = False,
    fields: LabelFields | None = None,
) -> Generator[Chunk, None, None]:
    """Parse pieces of text, each into one chunk; pieces without rows give none.

    unlabelled : nobody asks for the labels: a line may begin with its first entry, or with nan, na, inf or ?
    fields : what reads several labels a row; None: a row has one label

    Raises
    ------
    DataError : names the file and the line; what `parse_line_strict` says of it.
    """
    parser = _Parser(dtype, zero_based, n_features, unlabelled, fields)
    for piece in pieces:
        chunk = parser.parse(piece)
        piece.release()
        if chunk is not None:
            yield chunk


class _Parser:
    """Sizes the arrays of the kernel and turns its refusals into messages."""

    def __init__(
        self, dtype: np.dtype, zero_based: bool, n_features: int, unlabelled: bool, fields: LabelFields | None
    ) -> None:
        self.dtype, self.zero_based, self.n_features = np.dtype(dtype), zero_based, n_features
        self.unlabelled, self.fields = unlabelled, fields
        self.slow = np.empty((256, 3), np.int64)

    def parse(self, piece: Piece) -> Chunk | None:
        sets = None if self.fields is None else self.fields.take(piece)
        labels: np.ndarray = np.empty(piece.n_lines, np.float64)
        relabelled = not self.unlabelled
        indptr = np.empty(piece.n_lines + 1, np.int64)
        indices = np.empty(piece.n_colons, np.int32)
        values = np.empty(piece.n_colons, self.dtype)
        while True:
            code, where, n_rows, n_entries, n_slow, qid = kernel.parse(
                piece.buffer, piece.size, self.zero_based, self.n_features,
                labels, indptr, indices, values, self.slow,
            )  # fmt: skip
            if code == kernel.WIDE:
                indices = np.empty(piece.n_colons, np.int64)
            elif code == kernel.FULL:
                self.slow = np.empty((4 * len(self.slow), 3), np.int64)
            elif code == kernel.REFUSED and not relabelled:
                relabelled = True  # for want of a label, perhaps: then it has one now
                piece.replace(_NO_LABEL.sub(b"0 ", piece.buffer[: piece.size].tobytes()))
            else:
                break
        # A refused line may stand after one that only Python can judge: the first bad line is named.
        self._read_slow_numbers(piece, self.slow[:n_slow], labels, values)
        if code == kernel.REFUSED:
            self._refuse(piece, where)
        if n_rows == 0:
            return None
        X = CSR(values[:n_entries], indices[:n_entries], indptr[: n_rows + 1])
        labels = labels[:n_rows] if sets is None else sets
        if sets is None and not self.unlabelled and np.abs(labels).max() >= LARGEST_WHOLE:
            labels = _unrounded(labels, piece)
        return Chunk(labels, X, bool(qid), piece.consumed, piece.where(piece.first_line))

    def _read_slow_numbers(self, piece: Piece, slow: np.ndarray, labels: np.ndarray, values: np.ndarray) -> None:
        for start, stop, destination in slow.tolist():
            value = float(piece.buffer[start:stop].tobytes())
            out, at = (values, destination) if destination >= 0 else (labels, -1 - destination)
            with np.errstate(over="ignore"):
                out[at] = value
            if not np.isfinite(out[at]):
                self._refuse(piece, start)

    def _refuse(self, piece: Piece, offset: int) -> None:
        """Raise what the specification says of the line around `offset`."""
        number, line, place = piece.line_at(offset)
        where = piece.where(number)
        if self.fields is not None and line.lstrip(b" \t").startswith(REFUSED_FIELD):
            what, hint = self.fields.refusal(line)
            raise DataError(what, where, hint)
        row = parse_line_strict(
            line if len(line) <= _LONG else _around(line, place),
            where,
            zero_based=self.zero_based,
            n_features=self.n_features,
            dtype=self.dtype,
        )
        if len(line) > _LONG:
            raise DataError(f"not svmlight text at byte {place} of the line", where, _FORM)
        raise AssertionError(f"{where}: the kernel refused what the grammar allows: {row}")


def _unrounded(labels: np.ndarray, piece: Piece) -> np.ndarray:
    """Labels as int64 or uint64 where float64 rounded a whole number; else as they are.

    Raises DataError naming the line of the first such number where these types cannot hold all labels.
    """
    floats = labels.tolist()  # Python compares them with whole numbers exactly
    exact: list[int | float] = list(floats)
    rounded = None
    row = 0
    for number, line in enumerate(piece.buffer[: piece.size].tobytes().split(b"\n"), piece.first_line):
        field = line.partition(b"#")[0].split(None, 1)[:1]
        if not field:
            continue
        text = field[0].removeprefix(b"\xef\xbb\xbf")
        if _WHOLE.fullmatch(text):
            exact[row] = int(text)
            if rounded is None and exact[row] != floats[row]:
                rounded = number, exact[row]
        row += 1
    if rounded is None:
        return labels
    where, what = piece.where(rounded[0]), f"float64 cannot hold the label {rounded[1]}"
    if any(label != int(label) for label in exact):
        raise DataError(f"{what}, and labels near it are not whole", where, "use fewer digits")
    if max(exact) < 2**63 and min(exact) >= -(2**63):
        return np.array([int(label) for label in exact], np.int64)
    if min(exact) < 0 or max(exact) >= 2**64:
        raise DataError(f"{what}, and 64 bits cannot hold it and the labels near it", where, "use fewer digits")
    return np.array([int(label) for label in exact], np.uint64)


def _around(line: bytes, place: int) -> bytes:
    """A short line with the same fault: the field at `place` and the one before it, after a label.

    As Python objects the fields of a line of many megabytes would need more memory than there is.
    """
    blanks = line[max(0, place - _LONG) : place].replace(b"\t", b" ")
    start = max(0, place - _LONG) + blanks.rfind(b" ") + 1
    field = line[start : place + _LONG].replace(b"\t", b" ").partition(b" ")[0]
    before = line[max(0, start - _LONG) : start].replace(b"\t", b" ").rstrip(b" ").rpartition(b" ")[2]
    return b"0 " + (before + b" " if b":" in before else b"") + field if before else field
