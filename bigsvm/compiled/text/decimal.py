"""The float64 nearest to a decimal number w * 10^q, without a slow case for numbers of up to 19 digits.

Small numbers are converted by Clinger's method: a mantissa of at most 53 bits, multiplied or divided by a power of
ten that is itself a float64, takes one correctly rounded operation (Clinger, PLDI 1990).  Others are converted by the
product with a power of five of 128 bits (Lemire, Software: Practice and Experience 51, 2021; Mushtak and Lemire, ibid.
53, 2023, show that no fallback is needed).  Digits are read eight at a time as one word of 64 bits.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigsvm.compiled.shared.compile import register_jitable

_LEAST, _GREATEST = -342, 308  # exponents below give 0 with every mantissa of 64 bits, and those above infinity


def _powers_of_five():
    """The leading 128 bits of 5^q for q in [_LEAST, _GREATEST], as (high, low) words."""
    words = []
    for q in range(_LEAST, _GREATEST + 1):
        if q >= 0:
            c = 5**q
            c = c << (128 - c.bit_length()) if c.bit_length() <= 128 else c >> (c.bit_length() - 128)
        else:
            five = 5**-q
            z = (five - 1).bit_length()
            c = (1 << (z + 127 if q >= -27 else 2 * z + 128)) // five + 1
            c >>= max(c.bit_length() - 128, 0)
        words.append((c >> 64, c & (2**64 - 1)))
    return np.array(words, dtype=np.uint64)


POWERS_OF_FIVE = _powers_of_five()
EXACT_TENS = np.array([float(10**k) for k in range(23)])


@intrinsic
def address_of(typingctx, array):
    """The address of the first element of an array, uint64.

    Functions that take an address instead of the array need no atomic operations on its reference count.  These two
    operations in each call took two thirds of the parser's time.  The caller must keep the array alive.
    """

    def codegen(context, builder, signature, args):
        pointer = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(pointer, context.get_value_type(types.uint64))

    return types.uint64(array), codegen


@intrinsic
def byte_at(typingctx, address):
    """The byte at an address, without any check."""

    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()))

    return types.uint8(types.uint64), codegen


@intrinsic
def eight_at(typingctx, address):
    """The eight bytes from an address as one little-endian word, without any check."""

    def codegen(context, builder, signature, args):
        loaded = builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))
        loaded.align = 1
        return loaded

    return types.uint64(types.uint64), codegen


@intrinsic
def _high_word(typingctx, a, b):
    """The upper 64 bits of the 128-bit product of two words."""

    def codegen(context, builder, signature, args):
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), args[0].type)

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _trailing_zeros(typingctx, x):
    """The number of zero bits below the lowest bit that is 1; 64 for 0."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def _leading_zeros(typingctx, x):
    """The number of zero bits above the highest bit that is 1; 64 for 0."""

    def codegen(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def _as_double(typingctx, x):
    """The float64 that has the bits of a uint64."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.uint64), codegen


@register_jitable
def eight_digits(word):
    """(count, value), uint64, of the ASCII digits at the start of a word of eight bytes; count is 0 to 8.

    The digits are moved to the end of the word, behind zeros.  Then neighbours are combined: digits to numbers of two,
    these to numbers of four, and these to one of eight.  The test for digits may produce a carry or a borrow, which
    changes only bytes after the first that is not a digit.
    """
    less = word - np.uint64(0x3030303030303030)
    no_digit = ((word + np.uint64(0x4646464646464646)) | less) & np.uint64(0x8080808080808080)
    count = _trailing_zeros(no_digit) >> np.uint64(3)
    if count == np.uint64(0):
        return count, np.uint64(0)
    x = less << ((np.uint64(8) - count) << np.uint64(3))
    x = (x * np.uint64(10)) + (x >> np.uint64(8))
    mask = np.uint64(0x000000FF000000FF)
    x = (
        (x & mask) * np.uint64(0x000F424000000064) + ((x >> np.uint64(16)) & mask) * np.uint64(0x0000271000000001)
    ) >> np.uint64(32)
    return count, x & np.uint64(0xFFFFFFFF)


@register_jitable
def _by_powers_of_five(w, q):
    """The float64 nearest to w * 10^q for a uint64 w > 0; infinity if that is too large."""
    if q < _LEAST:
        return 0.0
    if q > _GREATEST:
        return np.inf
    zeros = _leading_zeros(w)
    w = w << zeros
    row = q - _LEAST
    high = _high_word(w, POWERS_OF_FIVE[row, 0])
    low = w * POWERS_OF_FIVE[row, 0]
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        second = _high_word(w, POWERS_OF_FIVE[row, 1])
        low += second
        if second > low:
            high += np.uint64(1)
    upper = high >> np.uint64(63)
    shift = upper + np.uint64(9)
    mantissa = high >> shift
    power = ((217706 * q) >> 16) + 63 + np.int64(upper) - np.int64(zeros) + 1023
    if power <= 0:
        if power <= -63:
            return 0.0
        mantissa = mantissa >> np.uint64(1 - power)
        # A subnormal number that is rounded up to 2^52 becomes the smallest normal number by the carry.
        mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
        return _as_double(mantissa)
    tie = low <= np.uint64(1) and -4 <= q <= 23 and mantissa & np.uint64(3) == np.uint64(1)
    if tie and mantissa << shift == high:
        mantissa = mantissa & ~np.uint64(1)
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    if mantissa >= np.uint64(1 << 53):
        mantissa = np.uint64(1 << 52)
        power += 1
    if power >= 0x7FF:
        return np.inf
    return _as_double((mantissa & np.uint64((1 << 52) - 1)) | (np.uint64(power) << np.uint64(52)))


@register_jitable
def nearest_double(w, q):
    """The float64 nearest to w * 10^q, ties to even; infinity if that is too large.  w : uint64;  q : int64"""
    if w <= np.uint64(1 << 53) and -22 <= q <= 22:
        if q < 0:
            return np.float64(w) / EXACT_TENS[-q]
        return np.float64(w) * EXACT_TENS[q]
    if w == np.uint64(0):
        return 0.0
    return _by_powers_of_five(w, q)
