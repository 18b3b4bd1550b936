"""exp in float32 and float64, without branches, so that the compiler can vectorise loops that call it.

exp(x) = 2^k exp(r), where k is the integer nearest to x log2 e and r = x - k ln 2.  A polynomial gives exp(r), and k is
added to the exponent bits.  x must not be above 0, which is all that kernels need.

The relative error is below 2.4e-7 over [-87, 0] in float32 (polynomial of degree 7), and below 4e-16 over [-708, 0] in
float64 (degree 13).  The tests measure both.  A smaller argument counts as -87 or -708, so that results are never 0 but
at least 1.6e-38 or 3.3e-308, which are normal numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import literal_unroll, types
from numba.extending import intrinsic

from bigsvm.compiled.shared.compile import overload


class ExpForm(NamedTuple):
    """The constants of exp in one float type.

    bits, mantissa : size of the type, and of its mantissa, in bits
    lowest : the smallest argument; smaller ones are replaced by it
    log2e : log2 e
    shift : 1.5 times a power of two so large that adding it rounds a number to an integer
    zero : the bits of `shift` minus the bias of the exponent; subtracted from the bits of such a sum, it leaves the
        exponent bits of 2^k
    ln2_high, ln2_low : ln 2 as a sum; the first part has so few bits that k times it is exact
    polynomial : coefficients of (exp(r) - 1 - r) / r^2, highest power first
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
    """exp(x) for a float32 or float64 x <= 0, in the type of x."""
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
