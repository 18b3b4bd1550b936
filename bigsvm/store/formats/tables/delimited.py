"""Comma- and tab-separated text: reading the header, and converting a piece of the text to Arrow columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from bigsvm.errors import DataError, UsageError
from bigsvm.store.checks import LARGEST_WHOLE
from bigsvm.store.formats.tables.arrow_values import numbers_of
from bigsvm.store.formats.tables.column_choice import chosen_columns, is_pattern, matched, refuse_twice
from bigsvm.store.formats.tables.pieces import DELIMITERS, cut_pieces
from bigsvm.store.text.arrow_signals import left_to_python
from bigsvm.units import counted

NUMBERED = ("numbers",)
"""The value of --columns for a file without a header, whose columns are then called by their numbers."""
TYPES = {"null": pa.float64(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}
"""Kind of a column -> type as which it is read."""
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
"""The only values of a column of truth values; pyarrow alone would accept 1 and 0 too."""
_REPAIR = "repair or drop the row, or leave the field empty and such rows out with --rows"
_TOGETHER = 1 << 15  # values that are counted at a time


class Header(NamedTuple):
    """The first line of a file.

    names : of all columns;  written : the names are in the file;  nbytes : bytes of the header, 0 if there is none
    """

    names: tuple[str, ...]
    delimiter: str
    written: bool
    nbytes: int


def read_header(path: str, columns: tuple[str, ...]) -> Header:
    """Read the names of the columns of a file.

    columns : for a file with a header, the feature columns as names or patterns; for a file without one, the names of
        all columns, or NUMBERED

    Raises
    ------
    DataError : the file is empty, or two columns have the same name.
    UsageError : a column is not in the header; or the first line has numbers only, and `columns` is empty.
    """
    text = next((piece for _, piece in cut_pieces(path)), b"")
    lines = list(io.StringIO(text.decode("utf-8", "surrogateescape"), newline=""))
    blank = 0
    while blank < len(lines) and not lines[blank].strip():
        blank += 1
    if blank == len(lines):
        raise DataError("holds no lines", path, "is it empty?")
    delimiter = _delimiter(path, lines[blank])
    reader = csv.reader(lines[blank:], delimiter=delimiter)
    try:
        fields = tuple(next(reader))
    except csv.Error as error:
        raise DataError(f"its first line cannot be read: {error}", path) from error
    nbytes = sum(len(line.encode("utf-8", "surrogateescape")) for line in lines[: blank + reader.line_num])
    if not "".join(fields).isprintable() and any("\udc80" <= mark <= "\udcff" for mark in "".join(fields)):
        raise DataError("its first line is not UTF-8", path, "save it as UTF-8")
    numbered = columns == NUMBERED and "numbers" not in fields
    if numbered or (columns and not any(matched(one, fields) for one in columns)):
        names = tuple(map(str, range(len(fields)))) if numbered else columns
        if len(names) != len(fields):
            # A first line without any number is a header, in which these names are missing.  A pattern is no name.
            a_header = not any(map(_is_number, fields))
            chosen_columns([one for one in columns if a_header or is_pattern(one)], fields, (), path)
            what = f"{counted(len(names), 'name')} for the {counted(len(fields), 'column')} of its first line"
            raise UsageError(what, path, f"its first line: {', '.join(fields[:10])}")
        found = Header(names, delimiter, False, 0)
    else:
        chosen_columns(columns, fields, (), path)
        if not columns and all(map(_is_number, fields)):
            hint = "without a header: --columns A,B,... names its columns, --columns numbers counts them from 0"
            raise UsageError("its first line has numbers only: is that a header?", path, hint)
        found = Header(
            _names("".join(lines[blank : blank + reader.line_num]), fields, delimiter), delimiter, True, nbytes
        )
    refuse_twice(found.names, found.names, path)
    return found


def _names(written: str, fields: Sequence[str], delimiter: str) -> tuple[str, ...]:
    """The names in a header: without blanks around them, unless they are between quotation marks.

    written : the header as it is in the file;  fields : its fields, as `csv` reads them
    """
    names, at = [], 0
    for field in fields:
        quoted = '"' + field.replace('"', '""') + '"'
        kept = written.startswith(quoted, at) and written[at + len(quoted) :][:1] in (delimiter, "\r", "\n", "")
        names.append(field if kept else field.strip())
        at += len(quoted if kept else field) + 1
    return tuple(names)


def _delimiter(path: str, line: str) -> str:
    """The delimiter: tab for .tsv files, else the first of DELIMITERS that occurs in the first line."""
    named = [part for part in path.lower().split("/")[-1].split(".")[1:] if part in ("tsv", "csv")]
    if named and named[-1] == "tsv":
        return "\t"
    return next((mark for mark in DELIMITERS.decode() if mark in line), ",")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def parse(
    text: bytes | bytearray,
    header: Header,
    path: str,
    first_row: int,
    kinds: dict[str, str] | None = None,
    quoted_null: bool = True,
    likely: dict[str, str] | None = None,
) -> pa.RecordBatch:
    """The columns of a piece of text that consists of whole records.

    kinds : name -> kind of the columns wanted; None: all columns, each of the kind that this piece suggests
    quoted_null : words for "no value", such as NA, mean it between quotes too
    likely : if `kinds` is None, columns that are first tried as numbers of these kinds, because pyarrow takes ten times
        as long to guess

    Raises DataError naming the row that has another number of fields, or a field that is not of its kind.
    """
    if not text or text.isspace():
        return pa.record_batch([pa.nulls(0, TYPES[k]) for k in (kinds or {}).values()], list(kinds or {}))
    wanted = kinds if kinds is not None else likely
    odd: list[Any] = []
    quoted = b'"' in text  # without quotation marks every newline ends a record, which is faster to parse

    def refuse(row: Any) -> str:
        odd.append(row)
        return "error"

    try:
        with left_to_python():
            table = pacsv.read_csv(
                pa.BufferReader(text),
                pacsv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(header.names)),
                pacsv.ParseOptions(
                    delimiter=header.delimiter,
                    quote_char='"' if quoted else False,
                    newlines_in_values=quoted,
                    invalid_row_handler=refuse,
                ),
                pacsv.ConvertOptions(
                    column_types=None if wanted is None else {name: TYPES[kind] for name, kind in wanted.items()},
                    include_columns=None if kinds is None else list(kinds),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=quoted_null,
                    **_values_looked_for(text, kinds),
                ),
            )
    except pa.ArrowInvalid as error:
        if kinds is None and likely and not odd:
            return parse(text, header, path, first_row)
        if odd:
            row = first_row + _records_before(text, odd[0])
            what = f"row {row} has {counted(odd[0].actual_columns, 'field')}, not {odd[0].expected_columns}"
            raise DataError(what, path, f"it begins {odd[0].text[:60]!r}") from None
        if kinds is not None and set(kinds.values()) != {"text"}:
            _name_bad_field(text, header, path, first_row, kinds)
        raise DataError(f"rows from {first_row} on cannot be read: {error}", path) from None
    batch = table.combine_chunks().to_batches()[0]
    for name, type_ in zip(batch.schema.names, batch.schema.types, strict=True) if kinds is None else ():
        if pa.types.is_binary(type_):  # pyarrow's type for a column that is not UTF-8
            row = next(k for k, value in enumerate(batch.column(name).to_pylist()) if not _is_utf8(value))
            raise DataError(f"row {first_row + row} is not UTF-8", f"{path}, column {name!r}", "save it as UTF-8")
    return batch if kinds is not None else _hex_as_text(batch, text, header, path, first_row)


def check_numbers(batch: pa.RecordBatch, text: bytes | bytearray, header: Header, path: str, first_row: int) -> None:
    """Refuse numbers that differ from what the text says: integers that float64 rounds, and hexadecimal numbers.

    batch : columns of `text`, as `parse` reads them

    Raises DataError naming the first such number.
    """
    large = [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if pa.types.is_floating(column.type) and _is_large(column)
    ]
    for name, row, value in _fields(text, header, path, first_row, [*large, *_maybe_hex(batch, text)]):
        if _is_hex(value):
            what = f"row {row} has {value!r} in a column of numbers"
            raise DataError(what, f"{path}, column {name!r}", _REPAIR)
        digits = value.strip().lstrip("+-")
        if name in large and digits.isdecimal() and int(digits) > LARGEST_WHOLE:
            what = f"row {row} holds {value}, beyond 2^53, where float64 rounds"
            hint = "scale the column; put a letter before labels of so many digits"
            raise DataError(what, f"{path}, column {name!r}", hint)


def _is_large(column: pa.Array) -> bool:
    numbers = numbers_of(column.drop_null())
    return bool(len(numbers)) and float(np.max(np.abs(numbers))) >= LARGEST_WHOLE


def _maybe_hex(batch: pa.RecordBatch, text: bytes | bytearray) -> list[str]:
    """Columns of integers in which some may be written in hexadecimal form, which pyarrow accepts."""
    if b"0x" not in text and b"0X" not in text:
        return []
    return [batch.schema.names[k] for k, column in enumerate(batch.columns) if pa.types.is_integer(column.type)]


def _is_hex(value: str) -> bool:
    return value.strip().lstrip("+-")[:2].lower() == "0x"


def _fields(
    text: bytes | bytearray, header: Header, path: str, first_row: int, names: list[str]
) -> Iterator[tuple[str, int, str]]:
    """(column, row, field) for each field with a value in the columns `names`."""
    texts = parse(text, header, path, first_row, dict.fromkeys(names, "text")) if names else None
    for name in names:
        assert texts is not None
        for row, value in enumerate(texts.column(name).to_pylist()):
            if value is not None:
                yield name, first_row + row, value


def _hex_as_text(
    batch: pa.RecordBatch, text: bytes | bytearray, header: Header, path: str, first_row: int
) -> pa.RecordBatch:
    """The batch with columns that have hexadecimal integers read as text."""
    names = _maybe_hex(batch, text)
    found = dict.fromkeys(name for name, _, value in _fields(text, header, path, first_row, names) if _is_hex(value))
    texts = parse(text, header, path, first_row, dict.fromkeys(found, "text")) if found else batch
    for name in found:
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, pa.field(name, pa.string()), texts.column(name))
    return batch


def _values_looked_for(text: bytes | bytearray, kinds: dict[str, str] | None) -> dict[str, list[str]]:
    """pyarrow's words for "no value", "true" and "false", as far as this piece of text may contain them.

    pyarrow makes a table of these words for each column of each piece.  For wide tables this takes a quarter of the
    time that the numbers take.
    """
    found: dict[str, list[str]] = {}
    if b"n" not in text and b"N" not in text:  # every word for "no value" except the empty field contains an n
        found["null_values"] = [""]
    looked_for = kinds is None or "bool" in kinds.values()
    found["true_values"], found["false_values"] = (list(_TRUE), list(_FALSE)) if looked_for else ([], [])
    return found


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def _records_before(text: bytes | bytearray, odd: Any) -> int:
    """Number of rows in a piece before `odd`, the invalid row that pyarrow reports; it counts from 1, or not at all."""
    if odd.number is not None:
        return max(int(odd.number) - 1, 0)
    place = text.find(str(odd.text).encode())
    return len([line for line in text[: max(place, 0)].splitlines() if line.strip()])


def _name_bad_field(text: bytes | bytearray, header: Header, path: str, first_row: int, kinds: dict[str, str]) -> None:
    """Raise DataError naming the first field in a column of numbers that is not a number."""
    plain = parse(text, header, path, first_row, dict.fromkeys(kinds, "text"))
    for name, kind in kinds.items():
        if kind == "text":
            continue
        for row, value in enumerate(plain.column(name).to_pylist()):
            if value is not None and not _is_number(value):
                what = f"row {first_row + row} has {value!r} in a column of numbers"
                raise DataError(what, f"{path}, column {name!r}", _REPAIR)


def kind_of(column: pa.Array) -> str:
    """The kind of a column as pyarrow has read it; dates and times count as text."""
    if pa.types.is_null(column.type):
        return "null"
    if pa.types.is_boolean(column.type):
        return "bool"
    if pa.types.is_integer(column.type):
        return "int"
    return "float" if pa.types.is_floating(column.type) else "text"


def kind_of_texts(values: pa.Array) -> str:
    """The kind that a column of exactly these texts would have.  values : without nulls"""
    if not len(values):
        return "null"
    texts = values.to_pylist()
    if any(map(_is_hex, texts)):
        return "text"
    for kind in ("int", "float"):
        with suppress(pa.ArrowInvalid):
            values.cast(TYPES[kind])
            return kind
    return "bool" if set(texts) <= {*_TRUE, *_FALSE} else "text"


def joined(kind: str, other: str) -> str:
    """The kind of a column that has one kind in some pieces and the other kind in others."""
    if kind == other or other == "null":
        return kind
    if kind == "null":
        return other
    return "float" if {kind, other} == {"int", "float"} else "text"


def nonzeros(column: pa.Array) -> int:
    """Number of values in a column of numbers that are neither null nor 0."""
    return int(np.count_nonzero(numbers_of(column.drop_null() if column.null_count else column)))


def count_together(counts: dict[str, int], columns: list[tuple[str, pa.Array]]) -> None:
    """Add `nonzeros` of columns of the same type and length to `counts`, without a call for every column."""
    many = max(_TOGETHER // max(len(columns[0][1]), 1), 1) if columns else 1
    for start in range(0, len(columns), many):
        some = columns[start : start + many]
        values = pa.concat_arrays([column for _, column in some])
        values = values.fill_null(0) if values.null_count else values
        found = np.count_nonzero(numbers_of(values).reshape(len(some), -1), axis=1).tolist()
        for (name, _), count in zip(some, found, strict=True):
            counts[name] += count
