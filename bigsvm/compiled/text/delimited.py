"""Read delimited text that has only plain numbers into columns: one pass over whole lines, without allocation.

If anything in the text is not plainly a number for its column, the whole text is left to the caller.  So the rules for
quotation marks, blanks and empty fields, and the error messages, are elsewhere.
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
    """Whether all digits of the number at the addresses [p, stop) are 0, so that it is not 0 by rounding."""
    while p < stop and (byte_at(p) == _ZERO or byte_at(p) == _DOT):
        p += _ONE
    return p == stop or not is_digit(byte_at(p))


@njit(cache=True, nogil=True)
def read_columns(text, delimiter, places, whole, n_rows, apart, reals, wholes):
    """Read numbers into columns; returns the number of rows, or NOT_PLAIN if the text is not plain.

    text : uint8, shape (n,)               lines without quotation marks; the last PADDING bytes are newlines
    delimiter : uint8
    places : int64, shape (n_fields,)      the column that each field of a line goes to; -1 for fields to skip
    whole : bool, shape (n_fields,)        whether the column has integers
    n_rows : int                           most rows; a text with more is not plain
    apart : int                            distance, in numbers, between the beginnings of two columns
    reals : float64, shape (n_columns * apart,)   filled with the other columns
    wholes : int64, a view of the same memory     filled with the columns of integers

    The text is plain if all of its lines have n_fields fields and end with a newline, which a carriage return may
    precede; empty lines do not count.  A number begins with a digit, or with a minus and a digit.  Integers must fit
    int64.  Other numbers must be finite and not 0 by rounding, and their nearest float64 must follow from their first
    nineteen digits.
    """
    n, n_fields = text.shape[0], places.shape[0]
    if n < PADDING:
        return NOT_PLAIN
    for k in range(n - PADDING, n):  # every number ends before these newlines, so nothing is read beyond the text
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
