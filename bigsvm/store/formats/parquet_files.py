"""Several Parquet files as one sequence of rows, read in bounded memory."""

from __future__ import annotations

import bisect
import glob
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bigsvm.errors import DataError, MissingInput, in_words
from bigsvm.store.formats.not_readable import refuse_partitions
from bigsvm.store.formats.tables.known_files import File, KnownFiles, Places, files_fingerprint, stat_file
from bigsvm.store.formats.tables.looked_at_first import DAMAGED_HINT, look_first
from bigsvm.store.formats.tables.table_names import PARQUET, refuse_mixed
from bigsvm.store.sealing.manifest import read_failed

_BATCH_ROWS = 8192
_BATCH_BYTES = (
    1 << 20
)  # decoded bytes of a batch of lists; pyarrow and the conversion of a batch take about eight times as much
_FLAT_BATCH_BYTES = (
    2 << 20
)  # the same for plain columns, where each column costs something per batch; they take about twice as much
_PIECE = 1 << 20
_USUAL = 3 * _PIECE  # bytes that a reader holds of a column whose pages have at most 1 MiB, as most writers make them
_OF_LARGE = 1 / 1.5  # share of larger pages that is counted, because plans count a reader at least 1.5 times
_FOOTER_COLUMN = 1152  # bytes in memory for a column of a row group in a parsed footer; 1107 were measured
_FOOTER_BYTE = 10  # bytes in memory for a byte of the footer in the file; 9 were measured
_OF_FOOTERS = 0.8  # plans count a reader at least 2.5 times, so this is two footers: of one file and of the next
_KEPT_FOOTERS = 1 << 20  # most bytes of footers that are kept, if there is more than one: reads alternate between files
_HEADER = 32  # bytes of a page's header that are read: more than three numbers take
_I32 = 0x15  # Thrift: a 32-bit number in the field after the last one
_DICTIONARY, _DICTIONARY_AFTER_CRC = 0x4C, 0x3C  # Thrift: a struct in the fourth, or third, field after the last one
_STATISTICS = 100_000  # most statistics that are looked at, one for each column of a row group: this takes 0.14 s
_BUFFERS = 8 << 20  # bytes of compressed data in the buffers of all columns together

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


def find_files(name: str, suffixes: tuple[str, ...] = PARQUET, kind: str = "Parquet") -> list[str]:
    """The files that a path, folder or glob names, sorted by name.

    Raises MissingInput if there are none, and UsageError for a glob that names files of several kinds.

    Of a folder those are left out whose names begin with a dot or an underscore, as Spark and pyarrow do: what writers
    and file systems keep for themselves.
    """
    if os.path.isdir(name):
        refuse_partitions(name)
        there = (path for path in Path(name).iterdir() if path.name[0] not in "._")
        found = sorted(str(path) for path in there if path.name.lower().endswith(suffixes))
    elif any(mark in name for mark in "*?[") and not os.path.exists(name):
        found = sorted(glob.glob(name))
        refuse_mixed(name, found, suffixes)
    else:
        found = [name]
    if not found or not all(os.path.isfile(path) for path in found):
        raise MissingInput(f"no {kind} files", name)
    return [os.path.realpath(path) for path in found]


class ParquetFiles:
    """The rows of several files in order; `batches` is thread-safe.

    Of data, about a page and a dictionary per column and a batch are held for each thread: `page_bytes`, by the largest
    row group of each file and the first pages there.  Of many short columns up to twice as much was measured, which
    plans leave room for: they count a reader two and a half times.  `page_bytes` has footers, too, which take ten times
    their bytes in the file: all threads share that of the file that is read, and small ones of a few others.
    """

    def __init__(self, paths: list[str]) -> None:
        self.files: list[File] = []
        self.n_samples = self.page_bytes = 0
        self.schema: pa.Schema | None = None
        self._footer_bytes: dict[str, int] = {}
        self.text_widths: dict[str, dict[str, int]] = {}
        look_first(paths, _look_at, "Parquet")
        for path in paths:
            status = stat_file(path)
            with parquet_errors(path), open_parquet(path) as file:
                metadata, schema = file.metadata, file.schema_arrow
                _refuse_contradictions(path, metadata)
                starts = []
                for group in range(metadata.num_row_groups):
                    starts.append(self.n_samples)
                    self.n_samples += metadata.row_group(group).num_rows
                self.page_bytes = max(self.page_bytes, _page_bytes(path, metadata))
                self._footer_bytes[path] = _footer_bytes(metadata)
                self.text_widths[path] = _text_widths(path, metadata)
            if self.schema is None:
                self.schema = schema
            else:
                refuse_other_columns(schema, self.schema, path, paths[0])
            self.files.append(File.of(path, status, tuple(starts)))
        each = self._footer_bytes.values()
        self.page_bytes += int(_OF_FOOTERS * max(max(each, default=0), min(sum(each), _KEPT_FOOTERS)))
        # Not from the schema of a file's metadata, because the two refer to each other and wait for cycle collection.
        self.nested = self.schema is not None and any(map(_has_lists, self.schema.types))
        self.known = KnownFiles(self.files)
        self._places: Places[_Cursor] = Places()
        self._lock = threading.Lock()
        self._footers: OrderedDict[str, Any] = OrderedDict()  # the most recently used at the end

    def batches(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(first row, batch) covering rows [start, stop) exactly, in order.

        A read that begins where this thread's last one ended goes on from there; another one begins at its
        row group.
        """
        cursor = self._places.take(columns)  # an error during the read must leave no cursor behind
        if cursor is None or not cursor.reaches(start):
            cursor = _Cursor(self, start, columns, stop - start)
        while start < stop:
            batch = cursor.next(start, stop)
            yield start, batch
            start += batch.num_rows
        self._places.put(columns, cursor)

    def read_in_turn(self) -> None:
        """Let each thread keep its place for two sets of columns, because it will read them in turn."""
        self._places.in_turn = 2

    def forget(self) -> None:
        """Release what each thread keeps for its next read, and pyarrow's free memory."""
        self._places.forget()
        with self._lock:
            self._footers.clear()
        pa.default_memory_pool().release_unused()

    def footer_of(self, path: str) -> Any:
        """The footer of a file; it stays cached while threads read few other files."""
        with self._lock:
            if path not in self._footers:
                self._let_go(self._footer_bytes[path])
                with open_parquet(path) as file:
                    self._footers[path] = file.metadata
            self._footers.move_to_end(path)
            return self._footers[path]

    def _let_go(self, room: int) -> None:
        """Release least recently used footers, so that another one of `room` bytes may be kept."""
        held = sum(map(self._footer_bytes.__getitem__, self._footers)) + room
        while self._footers and held > _KEPT_FOOTERS:
            held -= self._footer_bytes[self._footers.popitem(last=False)[0]]

    def group_of(self, row: int) -> tuple[int, int]:
        """(file number, row group number) of a row."""
        number = max(i for i, file in enumerate(self.files) if file.group_starts and file.group_starts[0] <= row)
        return number, bisect.bisect_right(self.files[number].group_starts, row) - 1

    def told_nulls(self, names: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """(start, stop, column) of row groups that have nulls in one of these columns, by the footers' statistics.

        Writers may leave statistics out.  Those of very many columns and row groups are not looked at.
        """
        wanted, n_groups = set(names), sum(len(file.group_starts) for file in self.files)
        if n_groups * len(wanted) > _STATISTICS:
            return
        for file in self.files:
            with parquet_errors(file.path):
                found = list(_nulls_in(self.footer_of(file.path), file.group_starts, wanted))
            yield from found

    def fingerprint(self) -> str:
        """xxh3-128 over the sizes and bytes of all files; takes one pass."""
        return files_fingerprint(self.files)


class _Cursor:
    """A position in the rows, with the rows that were decoded beyond it."""

    def __init__(self, files: ParquetFiles, start: int, columns: list[str], asked: int) -> None:
        self._files = files
        number, group = files.group_of(start)
        self._position = files.files[number].group_starts[group]
        self._group = (number, group)
        # A function, because a method would refer back to the cursor, whose pages would then wait for cycle collection.
        self._stream = _read(files, number, group, columns, asked)
        self._rest: pa.RecordBatch | None = None

    def reaches(self, row: int) -> bool:
        """Whether `row` is ahead, and not nearer to the start of a later row group."""
        return self._position == row or (self._position < row and self._files.group_of(row) == self._group)

    def next(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows from `start` on (not before the position), at most to `stop`; at least one row."""
        while True:
            batch = self._rest
            if batch is None:
                found = next(self._stream, None)
                if found is None:
                    raise DataError("holds fewer rows than its footer says", self._files.files[self._group[0]].path)
                self._group, batch = found
            if self._position + batch.num_rows <= start:
                self._position, self._rest = self._position + batch.num_rows, None
                continue
            if self._position < start:
                batch = batch.slice(start - self._position)
            wanted = stop - start
            self._position = start + min(wanted, batch.num_rows)
            if batch.num_rows <= wanted:  # a slice costs something for each column
                self._rest = None
                return batch
            self._rest = batch.slice(wanted)
            return batch.slice(0, wanted)


def _read(
    files: ParquetFiles, number: int, group: int, columns: list[str], asked: int
) -> Iterator[tuple[tuple[int, int], pa.RecordBatch]]:
    """((file number, row group number), batch) from a row group to the end of all files; of `asked` rows, or parts."""
    for file_number in range(number, len(files.files)):
        file = files.files[file_number]
        files.known.check(file.path)
        with parquet_errors(file.path), open_parquet(file.path, len(columns), files.footer_of(file.path)) as source:
            for number_here in range(group if file_number == number else 0, len(file.group_starts)):
                told = source.metadata.row_group(number_here)
                left = told.num_rows
                most = _batch_rows(told, _BATCH_BYTES if files.nested else _FLAT_BATCH_BYTES)
                texts = sum(width for name, width in files.text_widths[file.path].items() if name in columns)
                rows = _parts_of(asked, max(min(most, _FLAT_BATCH_BYTES // max(texts, 1)), 1))
                for batch in source.iter_batches(rows, row_groups=[number_here], columns=columns, use_threads=False):
                    left -= batch.num_rows
                    yield (file_number, number_here), batch
                if left:
                    raise DataError(f"row group {number_here} has not as many rows as its footer says", file.path)


def open_parquet(path: str, n_columns: int = 1, footer: Any = None) -> Any:
    """pyarrow's reader, set to hold pages and not whole row groups (docs/measurements.md 10.2).

    footer : the file's, where it was read before
    """
    return pq.ParquetFile(
        path, metadata=footer, pre_buffer=False, buffer_size=buffer_bytes(n_columns), page_checksum_verification=True
    )


def _look_at(path: str) -> None:
    """Make pyarrow build all that is asked of a footer: building it is what aborts where the footer is damaged."""
    with open_parquet(path) as file:
        metadata = file.metadata
        _refuse_contradictions(path, metadata)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for j in range(group.num_columns):
                group.column(j)


def _damaged(what: str, path: str) -> DataError:
    return DataError(f"damaged Parquet file: {what}", path, DAMAGED_HINT)


def _refuse_contradictions(path: str, metadata: Any) -> None:
    """Raise DataError where a footer's row groups do not fit its schema, or its number of rows."""
    n_rows = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_columns != metadata.num_columns:  # pyarrow would read columns that the schema does not have
            what = f"row group {number} has {group.num_columns} columns, and the schema {metadata.num_columns}"
            raise _damaged(what, path)
        if group.num_rows < 0:
            raise _damaged(f"row group {number} has {group.num_rows} rows", path)
        n_rows += group.num_rows
    if n_rows != metadata.num_rows:
        what = f"its row groups have {n_rows} rows, and its footer says {metadata.num_rows}"
        raise _damaged(what, path)


def buffer_bytes(n_columns: int) -> int:
    """Bytes of the buffer of each column's reader; many columns share the total."""
    return max(min(_PIECE, _BUFFERS // max(n_columns, 1)), 1 << 14)


def refuse_other_columns(schema: pa.Schema, first: pa.Schema, path: str, first_path: str) -> None:
    """Raise DataError naming a column by which a file differs from the first one.

    Whether a column may have nulls is no difference: some writers say it of all columns, and others of those that do.
    """
    if schema.names == first.names and schema.types == first.types:
        return
    types = dict(zip(schema.names, schema.types, strict=True))
    for name, kind in zip(first.names, first.types, strict=True):
        if name not in types:
            what = f"no column {name!r}"
        elif types[name] != kind:
            what = f"column {name!r} is of type {types[name]}, not {kind}"
        else:
            continue
        break
    else:
        more = [name for name in schema.names if name not in first.names]
        what = f"there is a column {more[0]!r}" if more else "they are in another order"
    hint = "write all files with one schema: the same columns, in the same order"
    raise DataError(f"columns differ from those of {first_path}: {what}", path, hint)


def _decoded_bytes(group: Any) -> int:
    """Bytes of a row group's values in Arrow's format, from the numbers of values in the footer."""
    nbytes = 0
    for column in (group.column(j) for j in range(group.num_columns)):
        # A text value takes its stored bytes, and at least those of its offset.
        stored = column.total_uncompressed_size // max(column.num_values, 1)
        nbytes += column.num_values * _WIDTHS.get(column.physical_type, max(8, stored))
    return nbytes


def _text_widths(path: str, metadata: Any) -> dict[str, int]:
    """Name -> mean bytes of a text, for columns of text with a dictionary; the mean is over the dictionary.

    The stored size of such a column does not tell how much memory a batch takes, because each row stores only a number
    for a text that may be long.
    """
    found: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if not groups:
        return found
    group = max(groups, key=lambda group: group.total_byte_size)
    with open(path, "rb") as file:
        for column in (group.column(j) for j in range(group.num_columns)):
            if column.physical_type == "BYTE_ARRAY" and column.dictionary_page_offset is not None:
                nbytes, n = dictionary_at(file.fileno(), column.dictionary_page_offset)
                found[column.path_in_schema] = nbytes // max(n, 1)
    return found


def _nulls_in(footer: Any, starts: Sequence[int], names: Collection[str]) -> Iterator[tuple[int, int, str]]:
    """(start, stop, column) of row groups with nulls in one of these columns, by the statistics of a file's footer.

    starts : first row of each row group
    """
    for start, group in zip(starts, map(footer.row_group, range(footer.num_row_groups)), strict=True):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in names and column.is_stats_set and column.statistics.null_count:
                yield start, start + group.num_rows, column.path_in_schema


def _has_lists(kind: pa.DataType) -> bool:
    """Whether a column has lists, so that a row may have several values."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    fields = [kind.field(j).type for j in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return lists or pa.types.is_map(kind) or any(map(_has_lists, fields))


def _footer_bytes(metadata: Any) -> int:
    """Bytes of memory of a parsed footer."""
    by_columns = _FOOTER_COLUMN * metadata.num_columns * metadata.num_row_groups
    return max(by_columns, _FOOTER_BYTE * metadata.serialized_size)


def _batch_rows(group: Any, nbytes: int) -> int:
    """Number of rows to decode at a time; fewer if rows are long."""
    return min(max(nbytes * group.num_rows // max(_decoded_bytes(group), 1), 1), _BATCH_ROWS)


def _parts_of(asked: int, rows: int) -> int:
    """The rows of a batch: about `rows`, chosen so that a whole number of batches has `asked` rows.

    Then no batch lies in two blocks.  The result is at most a quarter above `rows`, and equal to it if `asked` is less
    than about two batches.
    """
    parts = round(asked / rows)
    return -(-asked // parts) if parts > 1 else rows


def _page_bytes(path: str, metadata: Any) -> int:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if not groups:
        return 0
    group = max(groups, key=lambda group: group.total_byte_size)
    columns, held = [group.column(j) for j in range(group.num_columns)], 0
    with open(path, "rb") as file:
        for column in columns:
            size = column.total_uncompressed_size
            large = size > _USUAL and _largest_page(file.fileno(), column) * _OF_LARGE
            held += max(min(size, _USUAL), int(large))
    return held + 8 * min(_decoded_bytes(group), _BATCH_BYTES)


def _largest_page(handle: int, column: Any) -> int:
    """Bytes of a column's first page and of its dictionary, compressed and uncompressed, because pyarrow holds both."""
    found = page_bytes_at(handle, column.data_page_offset)
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        found += page_bytes_at(handle, column.dictionary_page_offset)
    return found


def page_bytes_at(handle: int, offset: int) -> int:
    """Bytes of the page whose header lies at `offset` of an open file, uncompressed and compressed together.

    The footer does not contain these sizes.  A header begins with three 32-bit numbers in Thrift's compact protocol
    (https://github.com/apache/parquet-format, PageHeader): the type, and both sizes.  The result is 0 if there is no
    such header; the error for a damaged file comes when its pages are read.
    """
    numbers, _ = _numbers_in(os.pread(handle, _HEADER, max(offset, 0)), 0, 3)
    return max(numbers[1], 0) + max(numbers[2], 0) if len(numbers) == 3 else 0


def dictionary_at(handle: int, offset: int) -> tuple[int, int]:
    """(uncompressed bytes, values) of the dictionary whose page header is at `offset`; (0, 0) if there is none.

    The three numbers are followed by a checksum, if pages have one, and by the header of the dictionary, whose first
    field is the number of values.
    """
    data = os.pread(handle, _HEADER, max(offset, 0))  # a damaged footer may have an offset below 0
    numbers, at = _numbers_in(data, 0, 4)
    if len(numbers) < 3 or data[at : at + 1] != bytes([_DICTIONARY if len(numbers) == 3 else _DICTIONARY_AFTER_CRC]):
        return 0, 0
    count, _ = _numbers_in(data, at + 1, 1)
    return (numbers[1], count[0]) if count else (0, 0)


def _numbers_in(data: bytes, at: int, most: int) -> tuple[list[int], int]:
    """(up to `most` 32-bit numbers of Thrift's compact protocol from `at` on, the place after the last)."""
    numbers: list[int] = []
    while len(numbers) < most and at < len(data) and data[at] == _I32:
        at, number, shift = at + 1, 0, 0
        while at < len(data):
            number |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 0x80:
                break
        numbers.append((number >> 1) ^ -(number & 1))  # zigzag
    return numbers, at


@contextmanager
def parquet_errors(path: str) -> Iterator[None]:
    """Raise what pyarrow raises as errors of bigsvm: a device failure has an errno, a damaged file does not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise read_failed(path, error) from error
        raise _damaged(in_words(error), path) from error
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise _damaged(in_words(error), path) from error
