"""Rows stored exactly in fewer bytes: one byte for a value if there are few different ones, two for a feature number.

Whole numbers, counts of pixels or words, multiples of 1/255: such rows have a few hundred different values in millions
of entries.  They are stored as a table of at most 256 values and one byte for each entry, its *code*, which is a place
in the table.  No bit is lost (-0.0 and 0.0 are two values).  Feature numbers below 65536 take two bytes.  So an entry
of float32 CSR takes 3 bytes instead of 8.

Nothing computes with coded rows: `decode` restores some of them, and the loops for plain rows use these.  `values_of`
and `numbers_of` restore arrays in place, if the codes lie at the end of the memory that the array fills.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.csr import CSR

MOST = 256  # most values in a table
_SLOTS = 1024  # slots of the hash table that finds a value's code
SMALL = 1 << 16  # feature numbers below this take two bytes
_AT_ONCE = 1024  # codes copied to work space at a time, before their place is overwritten
_FEWER = 4  # fewest entries for each value of a table; with fewer a table saves nothing


class CodedRows(NamedTuple):
    """Rows in coded form.

    codes : uint8, (nnz,), places in `table`; or the values themselves, if there are too many different ones
    table : (n_values,), in the dtype of the values; (0,) if `codes` holds the values themselves
    indices : uint16, or in the original dtype, (nnz,); (0,) for dense rows
    indptr : int64, (n_rows + 1,)
    index_dtype : the original dtype of the indices
    dense : n_features for dense rows, 0 for CSR
    """

    codes: np.ndarray
    table: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    index_dtype: np.dtype
    dense: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self[:4])


@inner_loop
def _find_codes(bits, slots, values, codes):
    """Fill `values` with the different values of `bits`, and `codes` with the place of each entry's value among them.

    Returns the number of different values, -1 if there are more than MOST.

    bits : uint32 or uint64, (nnz,);  values : the same type, (MOST,), filled;  codes : uint8, (nnz,), filled
    slots : int32, (_SLOTS,), all -1; work space
    """
    n = 0
    for k in range(bits.shape[0]):
        value = bits[k]
        mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
        place = mixed >> np.uint64(54)
        while slots[place] >= 0 and values[slots[place]] != value:
            place = (place + np.uint64(1)) & np.uint64(1023)
        if slots[place] < 0:
            if n == values.shape[0]:
                return -1
            slots[place] = n
            values[n] = value
            n += 1
        codes[k] = slots[place]
    return n


@inner_loop
def _look_up(codes, table, out, work):
    """out[k] = table[codes[k]].

    codes : uint8, (n,); its memory may be the last bytes of `out`
    table : (n_values,);  out : (n,), the type of the table, filled;  work : uint8, (_AT_ONCE,)
    """
    for start in range(0, codes.shape[0], work.shape[0]):
        some, target = codes[start : start + work.shape[0]], out[start : start + work.shape[0]]
        for k in range(some.shape[0]):
            work[k] = some[k]
        for k in range(some.shape[0]):
            target[k] = table[work[k]]


@inner_loop
def split_numbers(numbers, bits, low, high):
    """Split feature numbers into their lowest 16 bits and the `bits` bits above.

    The higher bits of several numbers share a byte of `high`.  The first len(high) numbers have the lowest bits of the
    bytes, the next len(high) numbers the bits above these, and so on, so `_join_numbers` shifts a whole run alike.

    numbers : integers, (n,);  bits : 0, 1, 2, 4 or 8
    low : uint16, (n,), filled;  high : uint8, (high_bytes(n, bits),), filled; zeros before
    """
    for k in range(numbers.shape[0]):
        low[k] = np.uint16(numbers[k] & 0xFFFF)
    shift = 0
    for first in range(0, numbers.shape[0] if bits else 0, max(high.shape[0], 1)):
        some = numbers[first : first + high.shape[0]]
        for k in range(some.shape[0]):
            high[k] |= np.uint8((some[k] >> 16) << shift)
        shift += bits


@inner_loop
def _join_numbers(low, high, bits, out, work):
    """Restore the numbers that `split_numbers` has split.

    low, high, bits : as there; the memory of `low` may be the last bytes of `out`
    out : int32 or int64, (n,), filled;  work : uint16, (_AT_ONCE,)

    The loops run over slices, whose indices cannot be negative: with indices that might be, the compiler would not
    vectorise them.
    """
    n = low.shape[0]
    run = max(high.shape[0] if bits else n, 1)
    mask, shift = np.int32((1 << bits) - 1), np.int32(0)
    for first in range(0, n, run):
        last = min(first + run, n)
        for start in range(first, last, work.shape[0]):
            stop = min(start + work.shape[0], last)
            some, moved, target = low[start:stop], work[: stop - start], out[start:stop]
            for k in range(moved.shape[0]):
                moved[k] = some[k]
            if bits == 0:
                for k in range(moved.shape[0]):
                    target[k] = moved[k]
            else:
                above = high[start - first : stop - first]
                for k in range(moved.shape[0]):
                    target[k] = np.int32(moved[k]) | (((np.int32(above[k]) >> shift) & mask) << np.int32(16))
        shift += np.int32(bits)


@inner_loop
def _take(source, first, last, out):
    """Copy source[first[i]:last[i]] of one row after another to `out`.  first, last : int64, (n_rows,)"""
    k = np.uint64(0)
    for i in range(first.shape[0]):
        for e in range(np.uint64(first[i]), np.uint64(last[i])):
            out[k] = source[e]
            k += np.uint64(1)


def encode(X: np.ndarray | CSR) -> np.ndarray | CSR | CodedRows:
    """The rows in coded form.  Dense rows with too many different values are returned as they are.

    X : dense and C-contiguous, or CSR, with values of float32, float64, int8 or uint8
    """
    values = X.data if isinstance(X, CSR) else X.reshape(-1)
    codes, table = coded_values(values)
    if not isinstance(X, CSR):
        if table is None:
            return X
        ends = np.arange(len(X) + 1, dtype=np.int64) * X.shape[1]
        return CodedRows(codes, table, np.zeros(0, np.uint16), ends, np.dtype(np.int32), X.shape[1])
    small = not len(X.indices) or int(X.indices.max()) < SMALL
    indices = X.indices.astype(np.uint16) if small else X.indices
    nothing = np.zeros(0, values.dtype)
    return CodedRows(codes, nothing if table is None else table, indices, X.indptr, X.indices.dtype, 0)


def coded_values(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(codes, table) of a one-dimensional array of values; (values, None) if a table would save nothing."""
    if values.itemsize == 1 or not len(values):
        return values, None
    bits = values.view(np.uint32 if values.itemsize == 4 else np.uint64)
    bits.flags.writeable = False  # so that memory maps and arrays in memory share one compiled loop
    found, codes = np.empty(MOST, bits.dtype), np.empty(len(bits), np.uint8)
    n = _find_codes(bits, np.full(_SLOTS, -1, np.int32), found, codes)
    if n < 0 or n * _FEWER > len(bits):
        return values, None
    return codes, found[:n].view(values.dtype).copy()


def values_of(codes: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """out[k] = table[codes[k]] for all k.  codes : uint8, may be the last bytes of `out`"""
    _look_up(codes, table, out, np.empty(_AT_ONCE, np.uint8))


def numbers_of(low: np.ndarray, high: np.ndarray, bits: int, out: np.ndarray) -> None:
    """Fill `out`, int32 or int64, with the feature numbers that `split_numbers` has split.

    low : uint16, may be the last bytes of `out`
    """
    _join_numbers(low, high, bits, out, np.empty(_AT_ONCE, np.uint16))


def high_bytes(n: int, bits: int) -> int:
    """Bytes that `split_numbers` needs for the higher bits of n feature numbers, `bits` of each."""
    return -(-n // (8 // bits)) if bits else 0


def decode(X: CodedRows, start: int, stop: int) -> np.ndarray | CSR:
    """Rows [start, stop) as they were before `encode`, bit for bit."""
    a, b = int(X.indptr[start]), int(X.indptr[stop])
    values = X.codes[a:b]
    if len(X.table):
        values = np.empty(b - a, X.table.dtype)
        values_of(X.codes[a:b], X.table, values)
    if X.dense:
        return values.reshape(stop - start, X.dense)
    return CSR(values, X.indices[a:b].astype(X.index_dtype), X.indptr[start : stop + 1] - a)


def picked(X: CodedRows, numbers: np.ndarray) -> CodedRows:
    """Copies of some rows, still coded.  numbers : int64, the rows in their order"""
    first, last = X.indptr[numbers], X.indptr[numbers + 1]
    indptr = np.concatenate([[0], np.cumsum(last - first)]).astype(np.int64)
    codes = np.empty(int(indptr[-1]), X.codes.dtype)
    _take(X.codes, first, last, codes)
    indices = np.empty(0 if X.dense else len(codes), X.indices.dtype)
    if not X.dense:
        _take(X.indices, first, last, indices)
    return X._replace(codes=codes, indices=indices, indptr=indptr)


def call_all(dtype: np.dtype, index_dtype: np.dtype, layout: str) -> None:
    """Call all loops for rows of these types once, so that they are compiled before memory is counted.

    layout : 'csr' or 'dense'
    """
    ends, numbers = np.array([0, 4, 8], np.int64), np.array([1], np.int64)
    for values in (np.zeros(8, dtype), np.arange(8).astype(dtype)):  # with a table, and without
        X = CSR(values, np.zeros(8, index_dtype), ends) if layout == "csr" else values.reshape(2, 4)
        rows = encode(X)
        if isinstance(rows, CodedRows):
            decode(picked(rows, numbers), 0, 1)
