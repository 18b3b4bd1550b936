"""Write CSR rows as svmlight text: the shortest digits that are read back as the same value, and lines of them."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.text.decimal import EXACT_TENS, address_of, byte_at, nearest_double

ENTRY_BYTES = 56  # most bytes of an entry: blank, 19 digits, colon, sign, 17 digits, dot, zeros, exponent
_ONE, _TEN, _ZERO = np.uint64(1), np.uint64(10), np.uint64(ord("0"))
_BLANK, _COLON, _DOT, _MINUS, _LF, _E = (np.uint64(ord(c)) for c in " :.-\ne")


@intrinsic
def _put(typingctx, address, byte):
    """Write a byte at an address, without any check."""

    def codegen(context, builder, signature, args):
        small = ir.IntType(8)
        builder.store(builder.trunc(args[1], small), builder.inttoptr(args[0], small.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), codegen


@register_jitable
def _scaled(x, shift):
    """x * 10^shift, up to rounding."""
    if 0 <= shift <= 22:
        return x * EXACT_TENS[shift]
    if -22 <= shift < 0:
        return x / EXACT_TENS[-shift]
    return x * nearest_double(_ONE, shift)


@njit(cache=True, nogil=True)
def shortest(values, mantissas, exponents, left):
    """|values[k]| as mantissas[k] * 10^exponents[k], with the fewest digits that are read back as the same value.

    Numbers of 6 digits and more are tried, up to 9 for float32 and 15 for float64 (with fewer than 6 digits, the number
    ends with zeros, which are removed).  Each is read back with the arithmetic of the parser, so an accepted number is
    exact whatever the rounding of the scaling was.

    values : float32 or float64, shape (n,)
    mantissas : uint64, exponents : int64, shape (n,), filled
    left : int64, shape (n,), filled at its front with the places of values that need more digits

    Returns the number of places in `left`; the caller must convert these values.
    """
    most = 9 if values.itemsize == 4 else 15
    back = np.empty(1, values.dtype)
    n_left = 0
    for k in range(values.shape[0]):
        x = np.float64(abs(values[k]))
        mantissas[k] = exponents[k] = 0
        if x == 0.0:
            continue
        done = False
        magnitude = np.int64(np.floor(np.log10(x)))
        for n_digits in range(6, most + 1):
            shift = n_digits - 1 - magnitude
            if shift > 300:
                break
            m = np.uint64(np.rint(_scaled(x, shift)))
            back[0] = nearest_double(m, -shift)
            if back[0] == abs(values[k]):
                done = True
                while m % _TEN == np.uint64(0):
                    m //= _TEN
                    shift -= 1
                mantissas[k], exponents[k] = m, -shift
                break
        if not done:
            left[n_left] = k
            n_left += 1
    return n_left


@register_jitable
def _n_digits(m):
    n, bound = 1, _TEN
    while m >= bound and n < 20:
        n += 1
        bound *= _TEN
    return n


@register_jitable
def _put_digits(p, m, n):
    """Write the lowest n digits of m from address p on; returns the address after them."""
    end = p + np.uint64(n)
    q = end
    while q > p:
        q -= _ONE
        _put(q, _ZERO + m % _TEN)
        m //= _TEN
    return end


@register_jitable
def _put_zeros(p, n):
    for _ in range(n):
        _put(p, _ZERO)
        p += _ONE
    return p


@register_jitable
def _put_number(p, m, exponent):
    """Write m * 10^exponent from address p on, in the form that Python's repr chooses; returns the address after it."""
    n = _n_digits(m)
    point = n + exponent  # digits before the point
    if m == np.uint64(0):
        return _put_zeros(p, 1)
    if exponent >= 0 and point <= 16:
        return _put_zeros(_put_digits(p, m, n), exponent)
    power = np.uint64(1)
    if exponent < 0 < point:
        for _ in range(-exponent):
            power *= _TEN
        p = _put_digits(p, m // power, point)
        _put(p, _DOT)
        return _put_digits(p + _ONE, m % power, -exponent)
    if -4 < point <= 0:
        p = _put_zeros(p, 1)
        _put(p, _DOT)
        return _put_digits(_put_zeros(p + _ONE, -point), m, n)
    for _ in range(n - 1):
        power *= _TEN
    p = _put_digits(p, m // power, 1)
    if n > 1:
        _put(p, _DOT)
        p = _put_digits(p + _ONE, m % power, n - 1)
    _put(p, _E)
    p += _ONE
    if point < 1:
        _put(p, _MINUS)
        p += _ONE
    power = np.uint64(abs(point - 1))
    return _put_digits(p, power, _n_digits(power))


@njit(cache=True, nogil=True)
def write_lines(text, starts, which, indptr, indices, values, mantissas, exponents, out):
    """Write one line for each row to `out`, with features counted from 1; returns the number of bytes written.

    text : uint8           labels, one after another; label c is text[starts[c]:starts[c + 1]]
    which : int, (n_rows,) the label of each row
    indptr, indices, values : CSR rows; only the signs of the values are used
    mantissas, exponents : from `shortest`
    out : uint8, with room for ENTRY_BYTES for each entry and, for each row, its label and one byte
    """
    base = address_of(out)
    labels = address_of(text)
    p = base
    for i in range(which.shape[0]):
        for q in range(labels + np.uint64(starts[which[i]]), labels + np.uint64(starts[which[i] + 1])):
            _put(p, np.uint64(byte_at(q)))
            p += _ONE
        for k in range(indptr[i], indptr[i + 1]):
            _put(p, _BLANK)
            index = np.uint64(np.int64(indices[k])) + _ONE
            p = _put_digits(p + _ONE, index, _n_digits(index))
            _put(p, _COLON)
            p += _ONE
            if values[k] < 0:
                _put(p, _MINUS)
                p += _ONE
            p = _put_number(p, mantissas[k], exponents[k])
        _put(p, _LF)
        p += _ONE
    return np.int64(p - base)
