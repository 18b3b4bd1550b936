"""Lossless coding of the arrays of a working copy's blocks: a pass then waits for the disk, not for decoding.

How the matrix of a block is written (the loops are in `compiled/shared/coded.py`):

    feature numbers   the lowest 16 bits as uint16, then the remaining `bits`, packed; not coded if 24 bits are not
    enough
    values            a table and one byte for each value, if a block has at most 256 different ones; else not coded

An entry of a float32 matrix with a million features takes 6.5 bytes instead of 8, or 3.5 with a table of values.  The
codes are read into the end of the memory of the decoded array, and decoded from its beginning, so no other memory is
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.shared.coded import coded_values, high_bytes, numbers_of, split_numbers, values_of
from bigsvm.csr import CSR

AS_THEY_ARE = -1
_LOW = 16
_WIDTHS = (0, 1, 2, 4, 8)

Take = Callable[[np.dtype, int], np.ndarray]
"""A function that returns the next array in the bytes of a block."""


class Landing(NamedTuple):
    """The buffers into which the bytes of an array are read, in file order, and the function that decodes them."""

    pieces: list[np.ndarray]
    decode: Callable[[], None]


def number_bits(n_features: int, index_dtype: np.dtype) -> int:
    """Number of bits of feature numbers above the lowest 16; AS_THEY_ARE if the numbers are not coded."""
    needed = (max(n_features - 1, 0) >> _LOW).bit_length()
    if needed > _WIDTHS[-1] or index_dtype.itemsize <= 2:
        return AS_THEY_ARE
    return next(width for width in _WIDTHS if width >= needed)


def coded_matrix(X: np.ndarray | CSR, bits: int) -> tuple[list[np.ndarray], int]:
    """(arrays of a block in file order, size of its table of values: 0 if values are not coded)."""
    codes, table = coded_values(np.ascontiguousarray(X.data if isinstance(X, CSR) else X).reshape(-1))
    values = [codes] if table is None else [table, codes]
    n_values = 0 if table is None else len(table)
    if not isinstance(X, CSR):
        return values, n_values
    return [X.indptr.astype(np.int64, copy=False), *_split(X.indices, bits), *values], n_values


def _split(numbers: np.ndarray, bits: int) -> list[np.ndarray]:
    if bits == AS_THEY_ARE:
        return [numbers]
    low, high = np.empty(len(numbers), np.uint16), np.zeros(high_bytes(len(numbers), bits), np.uint8)
    numbers = numbers.view()
    numbers.flags.writeable = False  # so that the loop is compiled for one type, whether the array is a map or not
    split_numbers(numbers, bits, low, high)
    return [low, high] if bits else [low]


def land_numbers(out: np.ndarray, bits: int) -> Landing:
    """The landing of a block's feature numbers in `out`."""
    if bits == AS_THEY_ARE:
        return Landing([out], _nothing)
    low, high = _end_of(out, np.dtype(np.uint16)), np.zeros(high_bytes(len(out), bits), np.uint8)
    return Landing([low, high] if bits else [low], lambda: numbers_of(low, high, bits, out))


def land_values(out: np.ndarray, n_values: int) -> Landing:
    """The landing of a block's values in `out`; n_values : size of its table."""
    if n_values == 0:
        return Landing([out], _nothing)
    table, codes = np.empty(n_values, out.dtype), _end_of(out, np.dtype(np.uint8))
    return Landing([table, codes], lambda: values_of(codes, table, out))


def taken_numbers(take: Take, dtype: np.dtype, count: int, bits: int) -> np.ndarray:
    """The feature numbers of a block in memory: a view, or decoded."""
    return take(dtype, count) if bits == AS_THEY_ARE else _taken(take, land_numbers, np.empty(count, dtype), bits)


def taken_values(take: Take, dtype: np.dtype, count: int, n_values: int) -> np.ndarray:
    """The values of a block in memory: a view, or decoded."""
    return take(dtype, count) if n_values == 0 else _taken(take, land_values, np.empty(count, dtype), n_values)


def _taken(take: Take, land: Callable[[np.ndarray, int], Landing], out: np.ndarray, how: int) -> np.ndarray:
    landing = land(out, how)
    for piece in landing.pieces:
        piece[...] = take(piece.dtype, len(piece))
    landing.decode()
    out.flags.writeable = False  # like the views
    return out


def _end_of(out: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The end of the memory of an array, with room for as many codes as it has items."""
    codes: Any = out.view(dtype)
    return codes[len(codes) - len(out) :]


def _nothing() -> None:
    """The array needs no decoding."""


def call_all(dtype: np.dtype, index_dtype: np.dtype, layout: str) -> None:
    """Call all loops for these types once, so that they are compiled before memory is measured."""
    numbers, values, bits = np.zeros(8, index_dtype), np.zeros(8, dtype), _WIDTHS[-1]
    sparse = layout == "csr"
    X = CSR(values, numbers, np.array([0, 8], np.int64)) if sparse else values.reshape(1, 8)
    _, n_values = coded_matrix(X, bits)
    for landing in (land_values(values, n_values), *([land_numbers(numbers, bits)] if sparse else [])):
        for piece in landing.pieces:
            piece[...] = 0
        landing.decode()
