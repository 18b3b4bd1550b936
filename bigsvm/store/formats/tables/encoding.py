"""Encoding of a table's columns as features.

A column of numbers is one feature.  A column of text has a feature for each of its values (one-hot), or its texts are
hashed to 2^hash_bits features.
"""

from __future__ import annotations

import bisect
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.tables.coded_texts import code_texts, place_texts
from bigsvm.errors import DataError, UsageError, in_words
from bigsvm.files.packed_text import MANY_BYTES, TextSequence
from bigsvm.store.blocks import CompiledCall, frozen
from bigsvm.store.checks import as_values, check_finite
from bigsvm.store.formats.parquet_columns import as_number_type, is_text
from bigsvm.store.formats.tables.arrow_values import ColumnsAsRows, decoded, numbers_of, refuse_missing
from bigsvm.store.identity import digest_of
from bigsvm.units import counted

MAX_CATEGORIES = 1 << 16
"""Most different values of a column of text that is encoded one-hot."""
MAX_HASH_BITS = 30
Kind = Literal["number", "category", "hashed"]
_BESIDE = 160
"""Bytes for each value of a text column besides the text: its entries in a tuple, in lists and in a hash table."""
_SHORT = 64
"""Mean bytes of a text up to which a packed copy of the texts is made to find them by; `_BESIDE` includes as many."""


class Column(NamedTuple):
    """A column of a table.

    kind : 'number', 'category' (one-hot) or 'hashed'
    categories : the values of a 'category' in ascending order
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Encoding:
    """How columns of a table become rows.  A model stores it, so that other tables are read like the training table.

    columns : in the order of the features; hashed ones come last
    hash_bits : hashed columns share 2^hash_bits features, each of which counts texts; None if no column is hashed
    dtype : of the values
    """

    columns: tuple[Column, ...]
    hash_bits: int | None
    dtype: np.dtype

    @classmethod
    def of(cls, columns: list[Column], hash_bits: int | None, dtype: np.dtype) -> Encoding:
        """The encoding of columns that are given in the order of the table.  Raises UsageError for wrong hash bits."""
        if hash_bits is not None and not 1 <= hash_bits <= MAX_HASH_BITS:
            raise UsageError(f"hash bits must be between 1 and {MAX_HASH_BITS}, not {hash_bits}")
        ordered = [c for c in columns if c.kind != "hashed"] + [c for c in columns if c.kind == "hashed"]
        return cls(tuple(ordered), hash_bits if any(c.kind == "hashed" for c in columns) else None, dtype)

    @functools.cached_property
    def sparse(self) -> bool:
        """Whether rows are CSR, which they are if some column is not a number."""
        return any(column.kind != "number" for column in self.columns)

    @functools.cached_property
    def starts(self) -> list[int]:
        """The first feature of each column, which hashed columns share; and one past the last of the others."""
        found, place = [], 0
        for column in self.columns:
            found.append(place)
            place += {"number": 1, "category": len(column.categories), "hashed": 0}[column.kind]
        return [*found, place]

    @property
    def n_features(self) -> int:
        return self.starts[-1] + (0 if self.hash_bits is None else 1 << self.hash_bits)

    def feature_names(self) -> Sequence[str] | None:
        """Names such as `age`, and `city=Rome` for a value of a text column; None if columns are hashed.

        A feature of hashed columns has no name, because several texts share it.
        """
        if self.hash_bits is not None:
            return None
        if self._held > MANY_BYTES and all(column.categories for column in self.columns if column.kind == "category"):
            return EncodedNames(self.columns, self.starts, self._held)
        found: list[str] = []
        for column in self.columns:
            found += [f"{column.name}={value}" for value in column.categories] or [column.name]
        return found

    def document(self) -> dict[str, Any]:
        """The encoding as a document for JSON."""
        columns = [[c.name, c.kind, list(c.categories)] for c in self.columns]
        return {"columns": columns, "hash_bits": self.hash_bits, "dtype": self.dtype.name}

    @classmethod
    def of_document(cls, document: Any) -> Encoding:
        """The encoding from the result of `document`.  Raises DataError if the document is invalid."""
        try:
            columns = tuple(Column(str(n), k, tuple(map(str, v))) for n, k, v in document["columns"])
            bits, dtype = document["hash_bits"], np.dtype(document["dtype"])
            if not all(c.kind in ("number", "category", "hashed") for c in columns):
                raise ValueError("kind")
            return cls(columns, None if bits is None else int(bits), dtype)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not an encoding of a table's columns: {in_words(error)}", "rows.json") from error

    def matrix(self, batch: pa.RecordBatch, where: str, first_row: int) -> CSR | np.ndarray:
        """The rows of a batch, whose columns are found by their names.

        Raises DataError naming the row of a null, of a number that the dtype cannot hold, or of one that is not finite.
        """
        if self.sparse:
            return self.csr(batch, where, first_row)
        out = np.empty((batch.num_rows, len(self.columns)), self.dtype)
        self.as_rows.fill(batch, out, where, first_row)
        return out

    @functools.cached_property
    def as_rows(self) -> ColumnsAsRows:
        """Converts batches to dense rows, if all columns are numbers."""
        return ColumnsAsRows([column.name for column in self.columns], self.dtype)

    def csr(self, batch: pa.RecordBatch, where: str, first_row: int) -> CSR:
        """As `matrix`, if some columns are not numbers.  A text that is none of the categories gives no entry."""
        shape = (batch.num_rows, len(self.columns))
        places, values = np.zeros(shape, np.int64), np.ones(shape, self.dtype)
        for j, column in enumerate(self.columns):
            array, start = batch.column(column.name), self.starts[j]
            if column.kind == "number":
                places[:, j] = start
                values[:, j] = self._numbers(array, column.name, where, first_row)
                continue
            texts = as_texts(array, column.name, where, first_row)
            if column.kind == "category":
                code = self._codes(texts, j)
                places[:, j] = start + code
                values[code < 0, j] = 0
            else:
                places[:, j] = start + _hashes(texts, column.name, 1 << (self.hash_bits or 0))
        return _rows_of(places, values, self.hash_bits is not None)

    def unknown(self, categories: dict[str, list[str]]) -> list[str]:
        """Warnings about values in other rows that are none of the categories.

        categories : name of a text column -> its values in these rows
        """
        found = []
        for column in self.columns:
            if column.kind == "category" and column.name in categories:
                new = sorted(set(categories[column.name]) - set(column.categories))
                if new:
                    shown = ", ".join(map(repr, new[:3])) + (", ..." if len(new) > 3 else "")
                    found.append(
                        f"column {column.name!r} has {counted(len(new), 'value')} that the model has not seen "
                        f"({shown}): such a value counts as none of its categories"
                    )
        return found

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the document."""
        return digest_of(self.document())

    @functools.cached_property
    def _held(self) -> int:
        """Bytes that the values of all text columns take."""
        return sum(sys.getsizeof(value) + _BESIDE for column in self.columns for value in column.categories)

    def _codes(self, texts: pa.Array, j: int) -> np.ndarray:
        """The number of each text among the values of column j, -1 if it is none of them.

        Arrow's `index_in` is not used, because it would make a hash table of the values for each batch.
        """
        known = self._known[j]
        if isinstance(known, KnownTexts):
            return known.codes(texts)
        coded = texts.dictionary_encode()
        of_value = np.array([known.get(value, -1) for value in coded.dictionary.to_pylist()], np.int64)
        return of_value[numbers_of(coded.indices)]

    @functools.cached_property
    def _known(self) -> list[KnownTexts | dict[str, int]]:
        return [known_texts(column.categories) for column in self.columns]

    @property
    def compiled_calls(self) -> tuple[CompiledCall, ...]:
        """The compiled functions that `matrix` calls."""
        if not self.sparse:
            return self.as_rows.compiled_calls
        of_columns = zip(self.columns, self._known, strict=True)
        coded = any(column.kind == "category" and isinstance(known, KnownTexts) for column, known in of_columns)
        return (CompiledCall(("texts as codes",), code_one),) if coded else ()

    def count_entries(self, batches: Iterable[tuple[int, pa.RecordBatch]], where: str) -> int:
        """Number of entries that `csr` makes of batches; calls no compiled function.

        batches : pairs of the number of the first row and the batch
        """
        known: list[set[str]] = []
        if self.hash_bits is None:
            known = [set(column.categories) for column in self.columns]
        count = 0
        for first, batch in batches:
            if self.hash_bits is not None:
                count += len(self.csr(batch, where, first).data)
                continue
            for column, values in zip(self.columns, known, strict=True):
                array = batch.column(column.name)
                if column.kind == "number":
                    count += int(np.count_nonzero(self._numbers(array, column.name, where, first)))
                    continue
                coded = as_texts(array, column.name, where, first).dictionary_encode()
                there = np.array([value in values for value in coded.dictionary.to_pylist()], bool)
                count += int(there[numbers_of(coded.indices)].sum())
        return count

    def _numbers(self, array: pa.Array, name: str, where: str, first_row: int) -> np.ndarray:
        here = f"{where}, column {name!r}"
        refuse_missing(array, name, where, first_row)
        values = as_values(numbers_of(array), self.dtype, here, first_row)
        check_finite(values, here, first_row)  # here, because the error can still name the column
        return values


class KnownTexts:
    """Different texts in packed form, with a hash table that gives their numbers five times as fast as a dict.

    encoded : the texts as UTF-8
    """

    def __init__(self, encoded: list[bytes]) -> None:
        ends = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=ends[1:])
        self._ends, self._text = frozen(ends), frozen(np.frombuffer(b"".join(encoded), np.uint8))
        self._table: np.ndarray | None = None

    def codes(self, texts: pa.Array) -> np.ndarray:
        """The number of each text among the known ones, -1 if it is none of them.

        texts : a `large_string` array without nulls
        """
        if self._table is None:  # not earlier, because opening a table must not call compiled functions
            table = np.full(2 << len(self._ends).bit_length(), -1, np.int32)
            place_texts(self._ends, self._text, table)
            self._table = frozen(table)
        _, offsets, data = texts.buffers()
        where = np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset) if len(texts) else np.zeros(1, int)
        codes = np.empty(len(texts), np.int64)
        encoded = np.frombuffer(data or b"", np.uint8)
        code_texts(frozen(where), frozen(encoded), self._ends, self._text, self._table, codes)
        return codes


def known_texts(values: Sequence[str]) -> KnownTexts | dict[str, int]:
    """KnownTexts of the values; or, if the texts are so long that copies would take much, a dict of their numbers."""
    if sum(map(len, values)) <= _SHORT * len(values):  # the test below would need a copy of long texts
        encoded = [value.encode("utf-8", "surrogatepass") for value in values]
        if sum(map(len, encoded)) <= _SHORT * len(encoded):
            return KnownTexts(encoded)
    return {value: k for k, value in enumerate(values)}


def code_one() -> None:
    """Call `KnownTexts.codes` for one text."""
    buffers = [None, pa.py_buffer(np.array([0, 1])), pa.py_buffer(b"a")]
    KnownTexts([b"a"]).codes(pa.Array.from_buffers(pa.large_string(), 1, buffers))


class EncodedNames(TextSequence):
    """Names of the features, each made when it is asked for; a list of them would hold every text a second time.

    columns, starts : those of an `Encoding`;  nbytes : bytes that the values take, which the encoding holds anyway
    """

    def __init__(self, columns: Sequence[Column], starts: Sequence[int], nbytes: int) -> None:
        self._columns, self._starts, self.nbytes = columns, starts, nbytes

    def __len__(self) -> int:
        return self._starts[-1]

    def text(self, place: int) -> str:
        j = bisect.bisect_right(self._starts, place) - 1
        column = self._columns[j]
        return f"{column.name}={column.categories[place - self._starts[j]]}" if column.categories else column.name


def encoding_of(
    schema: pa.Schema,
    features: Sequence[str],
    hash_bits: int | None,
    categories: Callable[[str], tuple[str, ...]],
    where: str,
) -> Encoding:
    """The encoding of the feature columns, by their types.

    features : names of the columns;  hash_bits : hash columns of text; None: encode them one-hot
    categories : name of a text column -> its values in ascending order

    Raises DataError for a column that has neither numbers nor text.
    """
    columns, dtypes = [], []
    for name in features:
        kind = schema.field(name).type
        number = as_number_type(kind)
        if number is not None:
            columns.append(Column(name, "number"))
            dtypes.append(number)
        elif not is_text(kind):
            what = f"column {name!r} of type {kind} is neither of numbers nor of text"
            raise DataError(what, where, "name the features with --columns, and leave it out")
        elif hash_bits is not None:
            columns.append(Column(name, "hashed"))
        else:
            columns.append(Column(name, "category", categories(name)))
    if not columns:
        raise DataError("no feature columns", where, "a label alone teaches nothing")
    # As for Parquet columns, except that 8 bits would not do: they could not count texts with the same hash.
    dtype = dtypes[0] if len(set(dtypes)) == 1 else np.dtype(np.float64 if np.float64 in dtypes else np.float32)
    if len(dtypes) < len(columns) and dtype.itemsize == 1:
        dtype = np.dtype(np.float32)
    return Encoding.of(columns, hash_bits, dtype)


def too_many_categories(name: str, where: str) -> DataError:
    """The error of a column with too many values."""
    what = f"column {name!r} has more than {MAX_CATEGORIES} different values: is it a feature?"
    return DataError(what, where, "leave it out with --columns, or hash it with --hash-bits 20")


def as_texts(array: pa.Array, name: str, where: str, first_row: int) -> pa.Array:
    """A column as text without nulls.  Raises DataError naming the first row without a value."""
    array = decoded(array)
    refuse_missing(array, name, where, first_row)
    return array.cast(pa.large_string())


def _hashes(texts: pa.Array, name: str, size: int) -> np.ndarray:
    """The feature of each text, a number below `size`: xxh3-64 of `column=value`, the same on every machine."""
    coded = texts.dictionary_encode()
    of_value = [xxhash.xxh3_64_intdigest(f"{name}={value}".encode()) % size for value in coded.dictionary.to_pylist()]
    return np.array(of_value, np.int64)[numbers_of(coded.indices)]


def _rows_of(places: np.ndarray, values: np.ndarray, shared: bool) -> CSR:
    """CSR rows from features and values, both (n_rows, n_columns); zeros are left out.

    shared : several columns of a row may have the same feature; their values are added
    """
    if shared:
        order = np.argsort(places, axis=1, kind="stable")
        places, values = np.take_along_axis(places, order, 1), np.take_along_axis(values, order, 1)
        for j in range(places.shape[1] - 1, 0, -1):
            same = places[:, j] == places[:, j - 1]
            values[same, j - 1] += values[same, j]
            values[same, j] = 0
    kept = values != 0
    indptr = np.zeros(len(places) + 1, np.int64)
    np.cumsum(kept.sum(axis=1), out=indptr[1:])
    return CSR(values[kept], places[kept], indptr)
