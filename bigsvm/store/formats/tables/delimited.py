"""Comma- and tab-separated text: its header, and one piece of it as columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from bigsvm.errors import DataError, UsageError
from bigsvm.store.checks import LARGEST_WHOLE
from bigsvm.store.formats.tables.arrow_values import numbers_of
from bigsvm.store.formats.tables.column_choice import chosen_columns, is_pattern, matched, refuse_twice
from bigsvm.store.formats.tables.pieces import cut_pieces

DELIMITERS = ",;\t|"
NUMBERED = ("numbers",)
"""What --columns says of a file without a header whose columns go by their numbers."""
TYPES = {"null": pa.float64(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}
"""Kind of a column -> how it is read."""
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
"""What a column of truth values holds, and nothing else; pyarrow would take 1 and 0, too."""
_TOGETHER = 1 << 15  # values that are counted at a time


class Header(NamedTuple):
    """What the first line says.

    names : of all columns; written : whether they stand in the file; nbytes : of that line
    """

    names: tuple[str, ...]
    delimiter: str
    written: bool
    nbytes: int


def read_header(path: str, columns: tuple[str, ...]) -> Header:
    """The columns of a file.

    columns : of a file with a header, those of it that are features, or patterns that they match; of one without, the
        names of all; or NUMBERED

    Raises
    ------
    DataError : an empty file, or a name twice.
    UsageError : a column that is not in the header; a first line of numbers only, where nobody says what they are.
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
            # A first line without a number is a header, whose columns these are not; no pattern is a column's name.
            a_header = not any(map(_is_number, fields))
            chosen_columns([one for one in columns if a_header or is_pattern(one)], fields, (), path)
            what = f"{len(names)} names for the {len(fields)} columns of its first line"
            raise UsageError(what, path, f"its first line: {', '.join(fields[:10])}")
        found = Header(names, delimiter, False, 0)
    else:
        chosen_columns(columns, fields, (), path)
        if not columns and all(map(_is_number, fields)):
            hint = "without a header: --columns A,B,... names its columns, --columns numbers counts them from 0"
            raise UsageError("its first line has numbers only: is that a header?", path, hint)
        found = Header(tuple(name.strip() for name in fields), delimiter, True, nbytes)
    refuse_twice(found.names, found.names, path)
    return found


def _delimiter(path: str, line: str) -> str:
    """Tab of .tsv; else the first of DELIMITERS that the first line has."""
    named = [part for part in path.lower().split("/")[-1].split(".")[1:] if part in ("tsv", "csv")]
    if named and named[-1] == "tsv":
        return "\t"
    return next((mark for mark in DELIMITERS if mark in line), ",")


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
    """Columns of a piece of text, which holds whole records.

    kinds : the columns wanted, and how each is read; None for all, as this piece alone suggests
    quoted_null : what says that there is no value says so between quotes, too
    likely : where `kinds` is None, columns tried as numbers first: pyarrow's guessing takes ten times as long as that

    Raises DataError naming the row that has another number of fields, or a field that is not of its kind.
    """
    if not text or text.isspace():
        return pa.record_batch([pa.nulls(0, TYPES[k]) for k in (kinds or {}).values()], list(kinds or {}))
    wanted = kinds if kinds is not None else likely
    odd: list[Any] = []
    quoted = b'"' in text  # else a newline ends a record wherever it stands, and nobody needs to look twice

    def refuse(row: Any) -> str:
        odd.append(row)
        return "error"

    try:
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
            what = f"row {row} has {odd[0].actual_columns} fields, not {odd[0].expected_columns}"
            raise DataError(what, path, f"it begins {odd[0].text[:60]!r}") from None
        if kinds is not None and set(kinds.values()) != {"text"}:
            _name_bad_field(text, header, path, first_row, kinds)
        raise DataError(f"rows from {first_row} on cannot be read: {error}", path) from None
    batch = table.combine_chunks().to_batches()[0]
    for name, type_ in zip(batch.schema.names, batch.schema.types, strict=True) if kinds is None else ():
        if pa.types.is_binary(type_):  # so pyarrow takes what is no text
            row = next(k for k, value in enumerate(batch.column(name).to_pylist()) if not _is_utf8(value))
            raise DataError(f"row {first_row + row} is not UTF-8", f"{path}, column {name!r}", "save it as UTF-8")
    return batch if kinds is not None else _hex_as_text(batch, text, header, path, first_row)


def check_numbers(batch: pa.RecordBatch, text: bytes | bytearray, header: Header, path: str, first_row: int) -> None:
    """Refuse numbers of a piece that are not what its text says: a whole number that float64 rounds, one in hex.

    batch : columns of `text`, as `parse` reads them

    Raises DataError naming the first.
    """
    large = [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if pa.types.is_floating(column.type) and _is_large(column)
    ]
    for name, row, value in _fields(text, header, path, first_row, [*large, *_maybe_hex(batch, text)]):
        if _is_hex(value):
            raise DataError(f"row {row} has {value!r} where numbers are", f"{path}, column {name!r}")
        digits = value.strip().lstrip("+-")
        if name in large and digits.isdecimal() and int(digits) > LARGEST_WHOLE:
            what = f"row {row} holds {value}, beyond 2^53, where float64 rounds"
            hint = "scale the column; put a letter before labels of so many digits"
            raise DataError(what, f"{path}, column {name!r}", hint)


def _is_large(column: pa.Array) -> bool:
    numbers = numbers_of(column.drop_null())
    return bool(len(numbers)) and float(np.max(np.abs(numbers))) >= LARGEST_WHOLE


def _maybe_hex(batch: pa.RecordBatch, text: bytes | bytearray) -> list[str]:
    """Columns of whole numbers of a piece in which one may be written in hex, as pyarrow reads them."""
    if b"0x" not in text and b"0X" not in text:
        return []
    return [batch.schema.names[k] for k, column in enumerate(batch.columns) if pa.types.is_integer(column.type)]


def _is_hex(value: str) -> bool:
    return value.strip().lstrip("+-")[:2].lower() == "0x"


def _fields(
    text: bytes | bytearray, header: Header, path: str, first_row: int, names: list[str]
) -> Iterator[tuple[str, int, str]]:
    """(column, row, field) of what is there in some columns."""
    texts = parse(text, header, path, first_row, dict.fromkeys(names, "text")) if names else None
    for name in names:
        assert texts is not None
        for row, value in enumerate(texts.column(name).to_pylist()):
            if value is not None:
                yield name, first_row + row, value


def _hex_as_text(
    batch: pa.RecordBatch, text: bytes | bytearray, header: Header, path: str, first_row: int
) -> pa.RecordBatch:
    """The same piece, where a column that has whole numbers in hex is one of text."""
    names = _maybe_hex(batch, text)
    found = dict.fromkeys(name for name, _, value in _fields(text, header, path, first_row, names) if _is_hex(value))
    texts = parse(text, header, path, first_row, dict.fromkeys(found, "text")) if found else batch
    for name in found:
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, pa.field(name, pa.string()), texts.column(name))
    return batch


def _values_looked_for(text: bytes | bytearray, kinds: dict[str, str] | None) -> dict[str, list[str]]:
    """Of the fields that say "no value", "true" and "false" to pyarrow, those that a piece of text may have.

    It makes a table of them for each column of each piece: of wide tables that takes a quarter as long as the numbers.
    """
    found: dict[str, list[str]] = {}
    if b"n" not in text and b"N" not in text:  # one of which all have but the empty field
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
    """Rows of a piece before the one that pyarrow's handler was given: it counts from 1, where it counts at all."""
    if odd.number is not None:
        return max(int(odd.number) - 1, 0)
    place = text.find(str(odd.text).encode())
    return len([line for line in text[: max(place, 0)].splitlines() if line.strip()])


def _name_bad_field(text: bytes | bytearray, header: Header, path: str, first_row: int, kinds: dict[str, str]) -> None:
    """Raise DataError naming the first field of a column of numbers that is none."""
    plain = parse(text, header, path, first_row, dict.fromkeys(kinds, "text"))
    for name, kind in kinds.items():
        if kind == "text":
            continue
        for row, value in enumerate(plain.column(name).to_pylist()):
            if value is not None and not _is_number(value):
                raise DataError(f"row {first_row + row} has {value!r} where numbers are", f"{path}, column {name!r}")


def kind_of(column: pa.Array) -> str:
    """The kind that pyarrow found in a piece; dates and times are text to us."""
    if pa.types.is_null(column.type):
        return "null"
    if pa.types.is_boolean(column.type):
        return "bool"
    if pa.types.is_integer(column.type):
        return "int"
    return "float" if pa.types.is_floating(column.type) else "text"


def kind_of_texts(values: pa.Array) -> str:
    """The kind that a column of these texts without nulls would have by itself."""
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
    """The kind of a column whose pieces have these."""
    if kind == other or other == "null":
        return kind
    if kind == "null":
        return other
    return "float" if {kind, other} == {"int", "float"} else "text"


def nonzeros(column: pa.Array) -> int:
    """Values of a column of numbers that are there and not 0."""
    return int(np.count_nonzero(numbers_of(column.drop_null() if column.null_count else column)))


def count_together(counts: dict[str, int], columns: list[tuple[str, pa.Array]]) -> None:
    """Add `nonzeros` of columns of one type and length to what is known of each, without a call for every column."""
    many = max(_TOGETHER // max(len(columns[0][1]), 1), 1) if columns else 1
    for start in range(0, len(columns), many):
        some = columns[start : start + many]
        values = pa.concat_arrays([column for _, column in some])
        values = values.fill_null(0) if values.null_count else values
        found = np.count_nonzero(numbers_of(values).reshape(len(some), -1), axis=1).tolist()
        for (name, _), count in zip(some, found, strict=True):
            counts[name] += count
