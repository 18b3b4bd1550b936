"""Read numbers in text at an address: an integer from its digits, or a decimal number as the nearest float64.

p is an address (see `decimal.address_of`), uint64, not a position in a buffer.  Digits are read eight at a time, so
PADDING bytes must exist after the text.  If the nearest float64 of a number does not follow from its first nineteen
digits, the number is left to the caller, who reads it with Python's `float`.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.text.decimal import byte_at, eight_at, eight_digits, nearest_double

PADDING = 16  # bytes that must exist (with any content) after the text
GOOD, BAD, SLOW = 0, 1, 2  # a number; not a number; a number that is left to the caller

_PLUS, _MINUS, _DOT, _ZERO, _NINE = (np.uint8(ord(c)) for c in "+-.09")
_LOWER_E, _UPPER_E = np.uint8(ord("e")), np.uint8(ord("E"))
_ONE = np.uint64(1)
_TEN = np.uint64(10)
_EIGHT = np.uint64(8)
_LARGEST_EXPONENT = 10**12  # larger exponents count as this: no text has so many digits that they would offset it
_TENS = np.array([10**k for k in range(9)], dtype=np.uint64)


@register_jitable
def is_digit(c):
    return _ZERO <= c <= _NINE


@register_jitable
def digits_at(p, w):
    """(address after the digits at p, the number w with these digits appended, mod 2^64)."""
    count = _EIGHT
    while count == _EIGHT:
        count, value = eight_digits(eight_at(p))
        w = w * _TENS[count] + value
        p += count
    return p, w


@njit(cache=True, nogil=True)
def _long_number(p, stop, exponent):
    """(GOOD or SLOW, value) of a number with more than nineteen digits at [p, stop), possibly with a dot, times
    10^exponent.
    """
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
        return SLOW, 0.0
    return GOOD, value


@register_jitable
def number_at(p):
    """(status, address after it, value) of the number that starts at p.  status : GOOD, BAD or SLOW

    The grammar is  [+-] (digits [. [digits]] | . digits) [(e|E) [+-] digits],  where `digits` is one digit or more.
    """
    c = byte_at(p)
    negative = c == _MINUS
    if negative or c == _PLUS:
        p += _ONE
        c = byte_at(p)
    first = p
    w = np.uint64(0)
    exponent = 0
    if is_digit(c):  # most values have one digit before the dot
        w = np.uint64(c - _ZERO)
        p += _ONE
        c = byte_at(p)
        if is_digit(c):
            p, w = digits_at(p, w)
            c = byte_at(p)
    n_digits = np.int64(p - first)
    if c == _DOT:
        p += _ONE
        dot = p
        p, w = digits_at(p, w)
        exponent = -np.int64(p - dot)
        n_digits -= exponent
        c = byte_at(p)
    if n_digits == 0:
        return BAD, p, 0.0
    digits_end = p
    shift = 0
    if c in (_LOWER_E, _UPPER_E):
        p += _ONE
        c = byte_at(p)
        down = c == _MINUS
        if down or c == _PLUS:
            p += _ONE
            c = byte_at(p)
        if not is_digit(c):
            return BAD, p, 0.0
        while is_digit(c):
            shift = min(shift * 10 + np.int64(c - _ZERO), _LARGEST_EXPONENT)
            p += _ONE
            c = byte_at(p)
        if down:
            shift = -shift
    if n_digits <= 19:
        value = nearest_double(w, exponent + shift)
    else:
        status, value = _long_number(first, digits_end, shift)
        if status != GOOD:
            return status, p, 0.0
    return GOOD, p, -value if negative else value


@register_jitable
def index_at(p):
    """(whether it fits int64, address after it, value) of the integer whose digits start at p."""
    first = p
    p, w = digits_at(p, np.uint64(0))
    if p - first > np.uint64(18):
        while byte_at(first) == _ZERO:
            first += _ONE
        if p - first > np.uint64(19) or w > np.uint64(2**63 - 1):
            return False, p, 0
    return True, p, np.int64(w)
