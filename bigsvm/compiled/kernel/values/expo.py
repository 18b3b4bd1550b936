"""exp in float32 and float64 that loops over arrays can be vectorised with.

exp(x) = 2^k 2^f with k the nearest integer to x log2 e and f in [-1/2, 1/2]: a polynomial for 2^f, and k put into the
exponent bits.  For x <= 0, as kernels need it: below the smallest normal number the result is 0.
Relative error over [-87, 0]: below 2.4e-7 (float32, degree 6), over [-708, 0] below 4e-16 (float64, degree 12); the
tests measure both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import literal_unroll, types
from numba.extending import intrinsic

from bigsvm.compiled.shared.compile import overload


class ExpForm(NamedTuple):
    """The numbers of exp in one float type.

    shift : 1.5 times the power of two whose sum with a number rounds it to an integer;  zero : the bits of `shift` less
    the exponent's bias, so that what is left of a sum's bits is the exponent of 2^k
    ln2_high : has so few bits that k times it is exact;  polynomial : of (exp(r) - 1 - r) / r^2, highest power first
    """

    bits: int
    mantissa: int
    lowest: float
    log2e: float
    shift: float
    zero: int
    ln2_high: float
    ln2_low: float
    polynomial: tuple[float, ...]


_LOG2E = 1.4426950408889634
SINGLE = ExpForm(
    32, 23, -87.0, _LOG2E, 12582912.0, 0x4B400000 - 127, 0.693359375, -2.12194440e-4,
    (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)  # fmt: skip
DOUBLE = ExpForm(
    64, 52, -708.0, _LOG2E, 6755399441055744.0, 0x4338000000000000 - 1023, 6.93145751953125e-1,
    1.42860682030941723212e-6,
    (1.6059043836821613e-10, 2.08767569878681e-9, 2.505210838544172e-8, 2.755731922398589e-7, 2.7557319223985893e-6,
     2.48015873015873e-5, 1.984126984126984e-4, 1.388888888888889e-3, 8.333333333333333e-3, 4.1666666666666664e-2,
     1.6666666666666666e-1, 0.5),
)  # fmt: skip


@intrinsic
def _bits_as_float32(typingctx, bits):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def _float32_as_bits(typingctx, number):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@intrinsic
def _bits_as_float64(typingctx, bits):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def _float64_as_bits(typingctx, number):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


def exp_of(x):
    """exp(x), x <= 0, in the type of x."""
    return np.exp(x)


@overload(exp_of, inline="always")
def _overload_exp_of(x):
    if x == types.float32:

        def single(x):
            x = max(x, np.float32(SINGLE.lowest))
            shifted = x * np.float32(SINGLE.log2e) + np.float32(SINGLE.shift)
            k = shifted - np.float32(SINGLE.shift)
            r = (x - k * np.float32(SINGLE.ln2_high)) - k * np.float32(SINGLE.ln2_low)
            p = np.float32(SINGLE.polynomial[0])
            for c in literal_unroll(SINGLE.polynomial[1:]):
                p = p * r + np.float32(c)
            p = p * r * r + r + np.float32(1.0)
            power = (_float32_as_bits(shifted) - np.int32(SINGLE.zero)) << np.int32(SINGLE.mantissa)
            return p * _bits_as_float32(np.int32(power))

        return single

    def double(x):
        x = max(x, DOUBLE.lowest)
        shifted = x * DOUBLE.log2e + DOUBLE.shift
        k = shifted - DOUBLE.shift
        r = (x - k * DOUBLE.ln2_high) - k * DOUBLE.ln2_low
        p = DOUBLE.polynomial[0]
        for c in literal_unroll(DOUBLE.polynomial[1:]):
            p = p * r + c
        p = p * r * r + r + 1.0
        power = (_float64_as_bits(shifted) - np.int64(DOUBLE.zero)) << np.int64(DOUBLE.mantissa)
        return p * _bits_as_float64(power)

    return double
