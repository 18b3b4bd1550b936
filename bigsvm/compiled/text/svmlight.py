"""Parse svmlight text to CSR: one pass over whole lines, without allocation or messages.

The grammar is that of `bigsvm.store.text.svmlight.parse_line_strict`, which is the specification, and which explains
what is wrong with a line that is refused here.  If the nearest float64 of a number does not follow from its first
nineteen digits, the number is left to the caller, who reads it with Python's `float`.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.text.decimal import address_of, byte_at
from bigsvm.compiled.text.numbers import BAD, PADDING, SLOW, digits_at, index_at, is_digit, number_at
from bigsvm.compiled.text.svmlight_lines import ENTRY_BYTES, shortest, write_lines

__all__ = ["ENTRY_BYTES", "PADDING", "count_marks", "parse", "shortest", "write_lines"]

OK, REFUSED, WIDE, FULL = 0, 1, 2, 3

_TAB, _LF, _CR, _SPACE, _HASH, _COLON, _Q, _I, _D = (np.uint8(ord(c)) for c in "\t\n\r #:qid")
_ONE = np.uint64(1)

# Below, p is an address (see `address_of`), not a position in the buffer.


@register_jitable
def _ends_token(c):
    return c in (_SPACE, _LF, _TAB, _CR, _HASH)


@register_jitable
def _skip_comment(p):
    """The address of the newline that ends the comment at p, or of a NUL byte inside the comment."""
    while byte_at(p) != _LF and byte_at(p) != np.uint8(0):
        p += _ONE
    return p


@njit(cache=True, nogil=True)
def count_marks(buffer, n):
    """(newlines, colons) in the first n bytes: upper bounds of the rows and of the entries of the text."""
    lines = colons = 0
    for p in range(n):
        lines += buffer[p] == _LF
        colons += buffer[p] == _COLON
    return lines, colons


@njit(cache=True, nogil=True)
def parse(buffer, n, zero_based, n_features, labels, indptr, indices, values, slow):
    """Parse the first n bytes of a buffer, which are whole lines.

    Parameters
    ----------
    buffer : uint8, at least n + PADDING long; buffer[n - 1] is a newline
    zero_based : bool      the text counts features from 0, not from 1
    n_features : int       feature numbers, counted from 0, must be below this
    labels : float64, at least as long as the text has newlines; filled
    indptr : int64, one longer than `labels`; filled
    indices : int32 or int64, at least as long as the text has colons; filled
    values : float32 or float64, as long as `indices`; filled
    slow : int64, shape (m, 3)   filled for the numbers that are left to the caller: offset of the first byte, offset
                                 after the last, and where the number goes: an entry, or -1 - row for a label

    Returns
    -------
    code : OK; REFUSED; WIDE: a feature number does not fit int32, and indices is int32; FULL: `slow` is too short
    where : if the text is refused, the offset in `buffer` of the bad field, or just after it
    n_rows, n_entries, n_slow : int   what was filled
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
        status, p, value = number_at(p)
        c = byte_at(p)
        if status == BAD or not _ends_token(c) or np.isinf(value):
            return REFUSED, p - base, row, k, n_slow, qid
        labels[row] = value
        if status == SLOW:
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
            if is_digit(c):
                fits, p, index = index_at(p)
                feature = index - origin
                if not fits or byte_at(p) != _COLON or feature <= last or feature >= n_features:
                    return REFUSED, p - base, row, k, n_slow, qid
                if feature > largest:
                    return WIDE, p - base, row, k, n_slow, qid
                p += _ONE
                start = p
                status, p, value = number_at(p)
                c = byte_at(p)
                indices[k] = feature
                values[k] = value
                if status == BAD or not _ends_token(c) or not np.isfinite(values[k]):
                    return REFUSED, p - base, row, k, n_slow, qid
                if status == SLOW:
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
                and is_digit(byte_at(p + np.uint64(4)))
            ):
                return REFUSED, p - base, row, k, n_slow, qid
            p, _ = digits_at(p + np.uint64(4), np.uint64(0))
            c = byte_at(p)
            if not _ends_token(c):
                return REFUSED, p - base, row, k, n_slow, qid
            may_be_qid = False
            qid = True
        row += 1
        indptr[row] = k
    return OK, stop - base, row, k, n_slow, qid
