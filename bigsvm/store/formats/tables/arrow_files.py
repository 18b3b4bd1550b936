"""Several Arrow IPC files (Feather, version 2) as one sequence of rows: memory maps, read by record batches."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bigsvm.errors import DataError
from bigsvm.store.formats.parquet_files import refuse_other_columns
from bigsvm.store.formats.tables.arrow_values import decoded, numbers_of, plain_batch, plain_schema, without_views
from bigsvm.store.formats.tables.encoding import MAX_CATEGORIES
from bigsvm.store.formats.tables.known_files import File, KnownFiles, Places, files_fingerprint, stat_file
from bigsvm.store.sealing.manifest import read_failed
from bigsvm.units import MIB

_BATCH_ROWS = 8192
_MAPPED = 2 * MIB  # bytes that a reader holds if batches are memory maps of the file


class ArrowFiles:
    """The rows of several files in order; `batches` is thread-safe.

    page_bytes : bytes that a reader holds in addition to its rows: a whole record batch if batches are compressed
    """

    def __init__(self, paths: list[str]) -> None:
        self.files: list[File] = []
        self.n_samples = 0
        self.page_bytes = _MAPPED
        self.schema: pa.Schema | None = None
        self._batches: list[tuple[int, int]] = []  # (file number, number of the record batch in the file)
        self._starts: list[int] = []
        # Whether some columns of numbers have a dictionary, which is decoded, and the bytes of these in a batch.
        self._coded, self._plain_bytes = False, 0
        self._packed: set[int] = set()  # numbers of the files whose batches are compressed
        for number, path in enumerate(paths):
            status = stat_file(path)
            self.files.append(File.of(path, status))
            with _arrow_errors(path):
                self._add(number, path)
        self.page_bytes += self._plain_bytes
        self.known = KnownFiles(self.files)
        self._places: Places[tuple[int, pa.RecordBatch]] = Places()

    def told_nulls(self, names: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """Nothing: footers of Arrow files do not count nulls, as those of Parquet files do; each record batch does."""
        return iter(())

    def _add(self, number: int, path: str) -> None:
        reader = _open(path)
        schema = plain_schema(reader.schema)
        _decode_names(schema)
        coded = sum(kind != other for kind, other in zip(schema.types, reader.schema.types, strict=True))
        self._coded |= coded > 0
        if self.schema is None:
            self.schema = schema
        else:
            refuse_other_columns(schema, self.schema, path, self.files[0].path)
        narrow = _open(path, [0]) if len(reader.schema) else reader
        most = 0
        for k in range(reader.num_record_batches):
            n_rows = narrow.get_batch(k).num_rows
            if n_rows:
                self._batches.append((number, k))
                self._starts.append(self.n_samples)
                self.n_samples += n_rows
                most = max(most, n_rows)
        if most:
            before = pa.total_allocated_bytes()
            batch = reader.get_batch(0)
            nbytes = batch.get_total_buffer_size()  # `nbytes` would follow offsets that nobody has checked
            if pa.total_allocated_bytes() - before > nbytes // 2:  # it was decompressed, so it is not a map
                self._packed.add(number)
                self.page_bytes = max(self.page_bytes, nbytes // max(batch.num_rows, 1) * most)
        self._plain_bytes = max(self._plain_bytes, 8 * coded * min(most, _BATCH_ROWS))

    def fingerprint(self) -> str:
        """xxh3-128 over the sizes and bytes of all files; takes one pass."""
        return files_fingerprint(self.files)

    def forget(self) -> None:
        """Release what each thread keeps for its next read, and pyarrow's free memory."""
        self._places.forget()
        pa.default_memory_pool().release_unused()

    def read_in_turn(self) -> None:
        """Let each thread keep its place for two sets of columns, because it will read them in turn."""
        self._places.in_turn = 2

    def batches(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(first row, batch) covering rows [start, stop) exactly, in order."""
        while start < stop:
            number = bisect.bisect_right(self._starts, start) - 1
            batch = self._batch(number, columns).slice(start - self._starts[number], min(stop - start, _BATCH_ROWS))
            yield start, plain_batch(batch) if self._coded else batch
            start += batch.num_rows

    def categories(self, name: str) -> list[str] | None:
        """The values of a text column in ascending order; None if they exceed MAX_CATEGORIES.  Takes one pass."""
        found: set[str] = set()
        for _, batch in self.batches(0, self.n_samples, [name]):
            column = without_views(decoded(batch.column(name)))
            found.update(pc.unique(column.drop_null()).cast(pa.large_string()).to_pylist())
            if len(found) > MAX_CATEGORIES:
                return None
        return sorted(found)

    def _batch(self, number: int, columns: list[str]) -> pa.RecordBatch:
        """A record batch with these columns; each thread keeps the one that it read last."""
        file_number, k = self._batches[number]
        place = self._places.take(columns)
        if place is not None and place[0] == number:
            self._places.put(columns, place)
            return place[1]
        del place  # free the last batch before the next one is read
        file = self.files[file_number]
        self.known.check(file.path)
        assert self.schema is not None
        some = sorted(map(self.schema.names.index, columns))
        # Of a compressed batch only these columns are decompressed.  Of others Arrow would copy them out of the map: a
        # batch may be the whole file.
        named = some if file_number in self._packed and len(some) < len(self.schema) else None
        with _arrow_errors(file.path):
            batch = _open(file.path, named).get_batch(k)
            if named is None and len(some) < len(self.schema):
                batch = batch.select(some)
            batch.validate(full=True)
            batch = _with_plain_nulls(batch)
        self._places.put(columns, (number, batch))
        return batch


def _decode_names(schema: pa.Schema) -> None:
    """Raise ValueError if a name is no UTF-8: pyarrow decodes names when they are asked for, not when it opens."""
    list(schema.names)


def _with_plain_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with a null in each row that refers to a null in the dictionary of its column."""
    for place, column in enumerate(batch.columns):
        if not pa.types.is_dictionary(column.type) or not column.dictionary.null_count:
            continue
        there = np.concatenate([np.zeros(column.offset, bool), numbers_of(decoded(column).is_valid())])
        bits = pa.py_buffer(np.packbits(there, bitorder="little"))
        stored = [bits, column.indices.buffers()[1]]
        indices = pa.Array.from_buffers(column.type.index_type, len(column), stored, offset=column.offset)
        plain = pa.DictionaryArray.from_arrays(indices, column.dictionary, ordered=column.type.ordered)
        batch = batch.set_column(place, batch.schema.field(place), plain)
    return batch


def _open(path: str, fields: list[int] | None = None) -> pa.ipc.RecordBatchFileReader:
    """A reader of the columns with these numbers; None: of all columns."""
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
    return pa.ipc.open_file(pa.memory_map(path), options=options)


@contextmanager
def _arrow_errors(path: str) -> Iterator[None]:
    """Raise what pyarrow raises as errors of bigsvm."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise read_failed(path, error) from error
        raise DataError(f"damaged Arrow file: {error}", path) from error
    except (pa.ArrowException, ValueError, KeyError) as error:
        hint = "an Arrow stream, and Feather before version 2, are written again with pyarrow.feather.write_feather"
        raise DataError(f"not an Arrow IPC file, or damaged: {error}", path, hint) from error
