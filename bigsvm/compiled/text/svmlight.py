"""svmlight text to CSR: one pass over whole lines, no allocation, no messages.

The grammar is that of `bigsvm.store.text.svmlight.parse_line_strict`, which is the specification and which
explains what is wrong with a line that is refused here.  A number whose nearest double cannot be told from
its first nineteen digits is left to the caller: Python's `float` reads it.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.text.decimal import address_of, byte_at, eight_at, eight_digits, nearest_double
from bigsvm.compiled.text.svmlight_lines import ENTRY_BYTES, shortest, write_lines

__all__ = ["ENTRY_BYTES", "PADDING", "count_marks", "parse", "shortest", "write_lines"]

OK, REFUSED, WIDE, FULL = 0, 1, 2, 3
PADDING = 16  # bytes that must exist (with any content) after the text: digits are read eight at a time

_TAB, _LF, _CR, _SPACE, _HASH, _PLUS, _MINUS, _DOT, _COLON = (np.uint8(ord(c)) for c in "\t\n\r #+-.:")
_ZERO, _NINE, _Q, _I, _D = (np.uint8(ord(c)) for c in "09qid")
_LOWER_E, _UPPER_E = np.uint8(ord("e")), np.uint8(ord("E"))
_ONE = np.uint64(1)
_TEN = np.uint64(10)
_EIGHT = np.uint64(8)
_LARGEST_EXPONENT = 10**12  # no text has so many digits that a larger exponent could be undone by them
_TENS = np.array([10**k for k in range(9)], dtype=np.uint64)

_GOOD, _BAD, _SLOW = 0, 1, 2

# Below, p is an address (see `address_of`), not a position in the buffer.


@register_jitable
def _is_digit(c):
    return _ZERO <= c <= _NINE


@register_jitable
def _ends_token(c):
    return c in (_SPACE, _LF, _TAB, _CR, _HASH)


@register_jitable
def _digits(p, w):
    """(position after, value) of the digits at p appended to w, mod 2^64."""
    count = _EIGHT
    while count == _EIGHT:
        count, value = eight_digits(eight_at(p))
        w = w * _TENS[count] + value
        p += count
    return p, w


@njit(cache=True, nogil=True)
def _long_number(p, stop, exponent):
    """(status, value) of more than nineteen digits in [p, stop), with a dot perhaps, times 10^exponent."""
    w = np.uint64(0)
    kept = 0
    after_dot = more = False
    while p < stop:
        c = byte_at(p)
        p += _ONE
        if c == _DOT:
            after_dot = True
        elif kept < 19:
            w = w * _TEN + np.uint64(c - _ZERO)
            kept += 1 if w != np.uint64(0) else 0
            exponent -= 1 if after_dot else 0
        else:
            more = more or c != _ZERO
            exponent += 0 if after_dot else 1
    value = nearest_double(w, exponent)
    if more and nearest_double(w + _ONE, exponent) != value:
        return _SLOW, 0.0
    return _GOOD, value


@register_jitable
def _number(p):
    """(status, position after, value) of the number that starts at p.

    [+-] (digits [. digits] | . digits) [(e|E) [+-] digits], at least one digit in each group that is there.
    """
    c = byte_at(p)
    negative = c == _MINUS
    if negative or c == _PLUS:
        p += _ONE
        c = byte_at(p)
    first = p
    w = np.uint64(0)
    exponent = 0
    if _is_digit(c):  # most values have one digit before the dot
        w = np.uint64(c - _ZERO)
        p += _ONE
        c = byte_at(p)
        if _is_digit(c):
            p, w = _digits(p, w)
            c = byte_at(p)
    n_digits = np.int64(p - first)
    if c == _DOT:
        p += _ONE
        dot = p
        p, w = _digits(p, w)
        exponent = -np.int64(p - dot)
        n_digits -= exponent
        c = byte_at(p)
    if n_digits == 0:
        return _BAD, p, 0.0
    digits_end = p
    shift = 0
    if c in (_LOWER_E, _UPPER_E):
        p += _ONE
        c = byte_at(p)
        down = c == _MINUS
        if down or c == _PLUS:
            p += _ONE
            c = byte_at(p)
        if not _is_digit(c):
            return _BAD, p, 0.0
        while _is_digit(c):
            shift = min(shift * 10 + np.int64(c - _ZERO), _LARGEST_EXPONENT)
            p += _ONE
            c = byte_at(p)
        if down:
            shift = -shift
    if n_digits <= 19:
        value = nearest_double(w, exponent + shift)
    else:
        status, value = _long_number(first, digits_end, shift)
        if status != _GOOD:
            return status, p, 0.0
    return _GOOD, p, -value if negative else value


@register_jitable
def _index(p):
    """(fits int64, position after, value) of the digits at p."""
    first = p
    p, w = _digits(p, np.uint64(0))
    if p - first > np.uint64(18):
        while byte_at(first) == _ZERO:
            first += _ONE
        if p - first > np.uint64(19) or w > np.uint64(2**63 - 1):
            return False, p, 0
    return True, p, np.int64(w)


@register_jitable
def _skip_comment(p):
    """Position of the newline that ends the comment at p, or of the NUL inside it."""
    while byte_at(p) != _LF and byte_at(p) != np.uint8(0):
        p += _ONE
    return p


@njit(cache=True, nogil=True)
def count_marks(buffer, n):
    """(newlines, colons) in the first n bytes: bounds for the rows and the entries of the text."""
    lines = colons = 0
    for p in range(n):
        lines += buffer[p] == _LF
        colons += buffer[p] == _COLON
    return lines, colons


@njit(cache=True, nogil=True)
def parse(buffer, n, zero_based, n_features, labels, indptr, indices, values, slow):
    """Parse n bytes of whole lines.

    Parameters
    ----------
    buffer : uint8, at least n + PADDING long; buffer[n - 1] is a newline
    zero_based : bool      the text counts features from 0 and not from 1
    n_features : int       a feature number from 0 that reaches it is refused
    labels : float64, shape (at least the newlines in the text,)
    indptr : int64, shape (one more,)
    indices : int32 or int64, shape (at least the colons in the text,)
    values : float32 or float64, the same shape
    slow : int64, shape (m, 3)   on return: first byte, byte after, and where the number goes (an entry, or
                                 -1 - row for a label) of each number that is left to the caller

    Returns
    -------
    code : OK; REFUSED; WIDE: a feature number beyond int32 and indices is int32; FULL: `slow` is too short
    where : byte offset, in the line that is refused, of or just after the field that is bad
    n_rows, n_entries, n_slow : int
    qid : bool   a query id was seen, and ignored
    """
    largest = np.int64(2**31 - 1) if indices.itemsize == 4 else np.int64(2**63 - 2)
    origin = 0 if zero_based else 1
    base = address_of(buffer)
    p = base
    stop = base + np.uint64(n)
    row = k = n_slow = 0
    qid = False
    indptr[0] = 0
    while p < stop:
        c = byte_at(p)
        while c in (_SPACE, _TAB):
            p += _ONE
            c = byte_at(p)
        if c == _HASH:
            p = _skip_comment(p)
            c = byte_at(p)
        if c == _CR:
            p += _ONE
            c = byte_at(p)
            if c != _LF:
                return REFUSED, p - base, row, k, n_slow, qid
        if c == _LF:
            p += _ONE
            continue

        start = p
        status, p, value = _number(p)
        c = byte_at(p)
        if status == _BAD or not _ends_token(c) or np.isinf(value):
            return REFUSED, p - base, row, k, n_slow, qid
        labels[row] = value
        if status == _SLOW:
            if n_slow == slow.shape[0]:
                return FULL, p - base, row, k, n_slow, qid
            slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = start - base, p - base, -1 - row
            n_slow += 1

        last = -1
        may_be_qid = True
        while True:
            while c in (_SPACE, _TAB):
                p += _ONE
                c = byte_at(p)
            if _is_digit(c):
                fits, p, index = _index(p)
                feature = index - origin
                if not fits or byte_at(p) != _COLON or feature <= last or feature >= n_features:
                    return REFUSED, p - base, row, k, n_slow, qid
                if feature > largest:
                    return WIDE, p - base, row, k, n_slow, qid
                p += _ONE
                start = p
                status, p, value = _number(p)
                c = byte_at(p)
                indices[k] = feature
                values[k] = value
                if status == _BAD or not _ends_token(c) or not np.isfinite(values[k]):
                    return REFUSED, p - base, row, k, n_slow, qid
                if status == _SLOW:
                    if n_slow == slow.shape[0]:
                        return FULL, p - base, row, k, n_slow, qid
                    slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = start - base, p - base, k
                    n_slow += 1
                last = feature
                k += 1
                may_be_qid = False
                continue
            if c == _HASH:
                p = _skip_comment(p)
                c = byte_at(p)
            if c == _CR:
                p += _ONE
                c = byte_at(p)
                if c != _LF:
                    return REFUSED, p - base, row, k, n_slow, qid
            if c == _LF:
                p += _ONE
                break
            if not (
                may_be_qid
                and c == _Q
                and byte_at(p + _ONE) == _I
                and byte_at(p + np.uint64(2)) == _D
                and byte_at(p + np.uint64(3)) == _COLON
                and _is_digit(byte_at(p + np.uint64(4)))
            ):
                return REFUSED, p - base, row, k, n_slow, qid
            p, _ = _digits(p + np.uint64(4), np.uint64(0))
            c = byte_at(p)
            if not _ends_token(c):
                return REFUSED, p - base, row, k, n_slow, qid
            may_be_qid = False
            qid = True
        row += 1
        indptr[row] = k
    return OK, stop - base, row, k, n_slow, qid
