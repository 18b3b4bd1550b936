"""Several delimited text files as one sequence of rows: read once to find their types, then piece by piece."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from bigsvm.errors import DataError
from bigsvm.machine import trim_heap
from bigsvm.store.blocks import CompiledCall
from bigsvm.store.checks import at_its_line
from bigsvm.store.formats.tables.arrow_values import first_null
from bigsvm.store.formats.tables.delimited import (
    TYPES,
    Header,
    check_numbers,
    count_together,
    joined,
    kind_of,
    nonzeros,
    parse,
    read_header,
)
from bigsvm.store.formats.tables.encoding import MAX_CATEGORIES
from bigsvm.store.formats.tables.known_files import File, KnownFiles, Places, files_fingerprint, stat_file
from bigsvm.store.formats.tables.pieces import PIECE_BYTES, FilesReader, cut_pieces, line_of_record
from bigsvm.store.formats.tables.plain_numbers import END, are_numbers, plain_calls, plain_numbers
from bigsvm.store.identity import digest_of
from bigsvm.store.remembered import recall, remember
from bigsvm.store.text.unpacking import unpacking_bytes
from bigsvm.units import columns_there

_LAYOUT = 5  # version of the remembered document


class _Place(NamedTuple):
    """What a thread keeps for its next read of some columns: the piece that it read last, and the open file."""

    number: int
    batch: pa.RecordBatch
    reader: FilesReader


class DelimitedFiles:
    """The rows of delimited text files, in the order of the files; `batches` is thread-safe.

    When they are opened first, everything is read, to find the types of columns (a column has numbers if all of its
    fields are numbers), the values of text columns, which rows have empty fields, and where pieces of the text begin.
    This is remembered in the cache folder, and holds as long as the sizes and times of the files do not change.
    """

    page_bytes: int
    """Bytes that a reader holds in addition to its rows: a piece of text, its columns, and the decompressor.  This is
    an estimate; columns of text may take one and a half times as much, for which plans leave room."""

    def __init__(self, paths: list[str], columns: tuple[str, ...]) -> None:
        self.page_bytes = 8 * PIECE_BYTES + unpacking_bytes(paths)
        self.header = read_header(paths[0], columns)
        self.files: list[File] = []
        for path in paths:
            status = stat_file(path)
            self.files.append(File.of(path, status))
        self.known = KnownFiles(self.files)
        files = [file.known_by for file in self.files]
        of = digest_of({"files": files, "columns": columns, "layout": _LAYOUT})
        name = f"table-{of}.json"
        known = recall(name, lambda document: document if document["of"] == of else None)
        if known is None:
            known = {"of": of, "fingerprint": files_fingerprint(self.files), **self._learn(columns)}
            pa.default_memory_pool().release_unused()
            trim_heap()
            remember(name, known)
        self._known = known
        # In the order of the header, because the names in the document are sorted.
        self.kinds: dict[str, str] = {name: known["kinds"][name] for name in self.header.names}
        """Name -> kind of each column: 'null', 'bool', 'int', 'float' or 'text'."""
        self._pieces: list[tuple[int, int, int]] = [tuple(piece) for piece in known["pieces"]]
        self._starts: list[int] = known["starts"]
        self.n_samples: int = known["n_samples"]
        self._sets: str | None = None  # None rather than "", which may be the name of a column
        self._in_a_loop: list[str] = []
        self._more_plain = 0
        self._places: Places[_Place] = Places()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, TYPES[kind]) for name, kind in self.kinds.items()])

    def fingerprint(self) -> str:
        """xxh3-128 over the sizes and bytes of all files, computed when they were read first."""
        return self._known["fingerprint"]

    def categories(self, name: str) -> list[str] | None:
        """The values of a text column in ascending order; None if they are more than MAX_CATEGORIES."""
        return self._known["categories"].get(name)

    def forget_categories(self) -> None:
        """Release the values of text columns, which are not needed again; many columns may not even be features."""
        self._known = {**self._known, "categories": {}}

    def nonzero(self, name: str) -> int:
        """Number of values in a column of numbers that are not 0."""
        return int(self._known["nonzero"].get(name, 0))

    def first_null(self, names: Sequence[str]) -> tuple[int, str] | None:
        """(row, column) of the first row without a value in one of these columns; None if there is none."""
        nulls = self._known["nulls"]
        return min(((nulls[name], name) for name in names if name in nulls), default=None)

    def line_of(self, row: int) -> tuple[str, int]:
        """(path, line) of a row, lines counted from 1; the file is read up to there."""
        number = bisect.bisect_right(self._starts, row) - 1
        return self._line_in(self._pieces[number], row - self._starts[number])

    def _line_in(self, piece: tuple[int, int, int], record: int) -> tuple[str, int]:
        file, offset, nbytes = piece
        path = self.files[file].path
        return path, line_of_record(path, offset, nbytes, record, self.header.delimiter.encode())

    def read_as(self, kinds: dict[str, str]) -> None:
        """Read some columns as the kinds that they had in the files of a model.

        Raises DataError if such a column does not exist.
        """
        for name, kind in kinds.items():
            if name not in self.kinds:
                hint = columns_there(name, self.kinds)
                raise DataError(f"no column {name!r}, which the model was trained on", self.files[0].path, hint)
            if kind == "text" or self.kinds[name] == "text":
                self.kinds = {**self.kinds, name: kind}

    def read_sets(self, name: str) -> None:
        """Read a column of label sets, if it exists, as text in which "" between quotes means an empty set."""
        if name in self.kinds:
            self.read_as({name: "text"})
            self._sets = name

    def read_in_turn(self) -> None:
        """Let each thread keep its place for two sets of columns, because it will read them in turn."""
        self._places.in_turn = 2
        self.page_bytes += 2 * PIECE_BYTES + unpacking_bytes([file.path for file in self.files])

    def read_in_a_loop(self, columns: list[str]) -> None:
        """From now on, read exactly these columns together by a compiled loop, if they are plain numbers.

        Other combinations, such as the labels alone, are read before anything is compiled, and so by pyarrow.
        """
        self._in_a_loop = list(columns)

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        """The compiled functions that `batches` calls for the columns of `read_in_a_loop`."""
        return plain_calls() if self._loop_reads(self._in_a_loop) else ()

    def _loop_reads(self, columns: list[str]) -> bool:
        return columns == self._in_a_loop and are_numbers({name: self.kinds[name] for name in columns})

    def forget(self) -> None:
        """Release what each thread keeps for its next read, and pyarrow's free memory."""
        self._places.forget()
        pa.default_memory_pool().release_unused()

    def batches(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(first row, batch) covering rows [start, stop) exactly, in order."""
        while start < stop:
            number = bisect.bisect_right(self._starts, start) - 1
            first = self._starts[number]
            batch = self._piece(number, columns).slice(start - first, stop - start)
            if batch.num_rows == 0:
                raise DataError("the file changed since it was opened", self.files[self._pieces[number][0]].path)
            yield start, batch
            start += batch.num_rows

    def _piece(self, number: int, columns: list[str]) -> pa.RecordBatch:
        """A piece as columns; each thread keeps the piece that it read last, and its position in a compressed file."""
        place = self._places.take(columns)
        if place is not None and place.number == number:
            self._places.put(columns, place)
            return place.batch
        reader = FilesReader([file.path for file in self.files]) if place is None else place.reader
        del place  # free the last piece before the next one is read
        file_number, offset, nbytes = self._pieces[number]
        file = self.files[file_number]
        self.known.check(file.path)
        text = reader.read(file_number, offset, nbytes, END)
        kinds = {name: self.kinds[name] for name in columns}
        batch = self._plain(number, text, columns, kinds)
        if batch is None:
            batch = parse(text, self.header, file.path, self._starts[number], kinds)
        check_numbers(batch, text, self.header, file.path, self._starts[number])
        # The column of label sets is read in a call of its own, because one call has one rule for quoted nulls.
        if self._sets is not None and self._sets in columns:
            sets = parse(text, self.header, file.path, self._starts[number], {self._sets: "text"}, quoted_null=False)
            place = batch.schema.get_field_index(self._sets)
            batch = batch.set_column(place, batch.schema.field(place), sets.column(0))
        self._places.put(columns, _Place(number, batch, reader))
        return batch

    def _plain(self, number: int, text: bytearray, columns: list[str], kinds: dict[str, str]) -> pa.RecordBatch | None:
        """A piece of plain numbers as columns; None if it is not plain, or if most pieces before were not."""
        if self._more_plain < 0 or not self._loop_reads(columns):
            return None
        stop = self._starts[number + 1] if number + 1 < len(self._starts) else self.n_samples
        batch = plain_numbers(text, self.header, kinds, stop - self._starts[number])
        self._more_plain = min(self._more_plain + (-1 if batch is None else 1), 8)
        return batch

    def _learn(self, columns: tuple[str, ...]) -> dict[str, Any]:
        """Read everything once; and once more if a column that looked like numbers turns out to be text."""
        learnt = _Learnt(self.header)
        pieces: list[tuple[int, int, int]] = []
        starts: list[int] = []
        n_samples = 0
        for number, file in enumerate(self.files):
            header = self.header if number == 0 else read_header(file.path, columns)
            if header[:3] != self.header[:3]:
                raise DataError(f"columns differ from those of {self.files[0].path}", file.path)
            skip = header.nbytes
            for offset, piece in cut_pieces(file.path, self.header.delimiter.encode()):
                text, skipped = piece[skip:], skip
                skip = 0
                batch = self._parsed(text, (number, offset + skipped, len(text)), n_samples, learnt.numbers())
                if batch.num_rows:
                    learnt.add(batch, n_samples)
                    pieces.append((number, offset + skipped, len(text)))
                    starts.append(n_samples)
                    n_samples += batch.num_rows
        late = learnt.late()
        reader = FilesReader([file.path for file in self.files])
        for (number, offset, nbytes), first in zip(pieces if late else (), starts, strict=False):
            again = reader.read(number, offset, nbytes)
            batch = parse(again, self.header, self.files[number].path, first, dict.fromkeys(late, "text"))
            learnt.add_texts(batch)
        return {**learnt.document(), "pieces": pieces, "starts": starts, "n_samples": n_samples}

    def _parsed(
        self, text: bytes, piece: tuple[int, int, int], first_row: int, likely: dict[str, str]
    ) -> pa.RecordBatch:  # fmt: skip
        """`parse` of a piece, with the line of a bad row where there are several files."""
        path = self.files[piece[0]].path
        try:
            return parse(text, self.header, path, first_row, likely=likely)
        except DataError as error:
            if len(self.files) == 1:
                raise
            raise at_its_line(error, path, lambda row: self._line_in(piece, row - first_row)) from None


class _Learnt:
    """Collects the kinds of columns, and the values of text columns, piece by piece."""

    def __init__(self, header: Header) -> None:
        self._kinds = dict.fromkeys(header.names, "null")
        self._nonzero = dict.fromkeys(header.names, 0)
        self._texts: dict[str, set[str] | None] = {}
        self._not_text: set[str] = set()  # columns that were not text in some piece
        self._nulls: dict[str, int] = {}  # the first row without a value

    def add(self, batch: pa.RecordBatch, first_row: int) -> None:
        others: list[tuple[str, pa.Array]] = []
        alike: dict[str, list[tuple[str, pa.Array]]] = {"int": [], "float": []}
        for (name, known), type_, column in zip(self._kinds.items(), batch.schema.types, batch.columns, strict=True):
            same = alike.get(known) if type_ == TYPES[known] else None
            (others if same is None else same).append((name, column))
            if column.null_count and name not in self._nulls:
                self._nulls[name] = first_row + first_null(column)
        for columns in alike.values():
            count_together(self._nonzero, columns)
        for name, column in others:
            kind = kind_of(column)
            self._kinds[name] = joined(self._kinds[name], kind)
            if pa.types.is_string(column.type):
                self._take(name, column)
            elif kind != "null":
                self._not_text.add(name)
                self._nonzero[name] += 0 if kind == "text" else nonzeros(column)

    def numbers(self) -> dict[str, str]:
        """Name -> kind of the columns that were numbers in all pieces so far."""
        return {name: kind for name, kind in self._kinds.items() if kind in ("int", "float")}

    def late(self) -> list[str]:
        """Text columns whose values are not all known, because some piece had numbers; they are collected anew."""
        found = [name for name, kind in self._kinds.items() if kind == "text" and name in self._not_text]
        self._texts.update({name: set() for name in found})
        return found

    def add_texts(self, batch: pa.RecordBatch) -> None:
        for name in batch.schema.names:
            self._take(name, batch.column(name))

    def _take(self, name: str, column: pa.Array) -> None:
        values = self._texts.setdefault(name, set())
        if values is not None:
            values.update(column.drop_null().unique().to_pylist())
            if len(values) > MAX_CATEGORIES:
                self._texts[name] = None

    def document(self) -> dict[str, Any]:
        return {
            "kinds": self._kinds,
            "nonzero": self._nonzero,
            "nulls": self._nulls,
            "categories": {
                name: sorted(values)
                for name, values in self._texts.items()
                if values is not None and self._kinds[name] == "text"
            },
        }
