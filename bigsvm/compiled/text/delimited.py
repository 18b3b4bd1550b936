"""Delimited text of plain numbers, as columns: one pass over whole lines, no allocation, no messages.

Whatever is not plainly a number that its column has is left to the caller, with all of its text: so nothing here says
what a quotation mark, a blank or an empty field means.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.text.decimal import address_of, byte_at
from bigsvm.compiled.text.numbers import GOOD, PADDING, index_at, is_digit, number_at

NOT_PLAIN = -1

_LF, _CR, _MINUS, _ZERO, _DOT = (np.uint8(ord(c)) for c in "\n\r-0.")
_ONE = np.uint64(1)


@register_jitable
def _is_zero(p, stop):
    """Whether the number in [p, stop) is 0 as it is written, and not by rounding."""
    while p < stop and (byte_at(p) == _ZERO or byte_at(p) == _DOT):
        p += _ONE
    return p == stop or not is_digit(byte_at(p))


@njit(cache=True, nogil=True)
def read_columns(text, delimiter, places, whole, n_rows, apart, reals, wholes):
    """Read numbers into columns; returns how many rows there are, or NOT_PLAIN.

    text : uint8, shape (n,)               lines without quotation marks; the last PADDING bytes are newlines
    delimiter : uint8
    places : int64, shape (n_fields,)      the column that takes a field of a line; -1 for one that is passed over
    whole : bool, shape (n_fields,)        whether that is a whole number
    n_rows : int                           at most; more are not plain
    apart : int                            numbers from where a column begins to where the next one does
    reals : float64, shape (n_columns * apart,)
    wholes : int64, the same memory

    Plain are lines of n_fields, ended by a newline, with a carriage return before it perhaps; lines without anything do
    not count.  A number has digits at its front, behind a minus perhaps.  Whole ones fit int64; others are finite, not
    0 by rounding, and their nearest double is known from their first nineteen digits.
    """
    n, n_fields = text.shape[0], places.shape[0]
    if n < PADDING:
        return NOT_PLAIN
    for k in range(n - PADDING, n):  # here every number ends, so that nothing is read beyond
        if text[k] != _LF:
            return NOT_PLAIN
    p = address_of(text)
    stop = p + np.uint64(n)
    row = 0
    while p < stop:
        c = byte_at(p)
        if c == _CR:
            p += _ONE
            c = byte_at(p)
            if c != _LF:
                return NOT_PLAIN
        if c == _LF:
            p += _ONE
            continue
        if row == n_rows:
            return NOT_PLAIN
        for field in range(n_fields):
            to = places[field]
            c = byte_at(p)
            if to < 0:
                while c not in (delimiter, _LF, _CR):
                    p += _ONE
                    c = byte_at(p)
            else:
                negative = c == _MINUS
                if negative:
                    p += _ONE
                    c = byte_at(p)
                if not is_digit(c):
                    return NOT_PLAIN
                if whole[field]:
                    fits, p, number = index_at(p)
                    if not fits:
                        return NOT_PLAIN
                    wholes[to * apart + row] = -number if negative else number
                else:
                    first = p
                    status, p, value = number_at(p)
                    if status != GOOD or np.isinf(value) or (value == 0.0 and not _is_zero(first, p)):
                        return NOT_PLAIN
                    reals[to * apart + row] = -value if negative else value
                c = byte_at(p)
            if field + 1 < n_fields:
                if c != delimiter:
                    return NOT_PLAIN
                p += _ONE
        if c == _CR:
            p += _ONE
            c = byte_at(p)
        if c != _LF:
            return NOT_PLAIN
        p += _ONE
        row += 1
    return row
