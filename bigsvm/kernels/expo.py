"""exp in float32 and float64 that loops over arrays can be vectorised with.

exp(x) = 2^k 2^f with k the nearest integer to x log2 e and f in [-1/2, 1/2]: a polynomial for 2^f, and k put into the
exponent bits.  For x <= 0, as kernels need it: below the smallest normal number the result is 0.
Relative error over [-87, 0]: below 2.4e-7 (float32, degree 6), over [-708, 0] below 4e-16 (float64, degree 12); the
tests measure both.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

LOWEST_32, LOWEST_64 = -87.0, -708.0
_LOG2E = 1.4426950408889634
_SHIFT_32, _SHIFT_64 = 12582912.0, 6755399441055744.0  # 1.5 * 2^23 and 1.5 * 2^52: adding them rounds to an integer


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
            x = max(x, np.float32(LOWEST_32))
            shifted = x * np.float32(_LOG2E) + np.float32(_SHIFT_32)
            k = shifted - np.float32(_SHIFT_32)
            # ln 2 in two parts: the first has so few bits that k times it is exact
            r = (x - k * np.float32(0.693359375)) + k * np.float32(2.12194440e-4)
            p = np.float32(1.9875691500e-4)
            p = p * r + np.float32(1.3981999507e-3)
            p = p * r + np.float32(8.3334519073e-3)
            p = p * r + np.float32(4.1665795894e-2)
            p = p * r + np.float32(1.6666665459e-1)
            p = p * r + np.float32(5.0000001201e-1)
            p = p * r * r + r + np.float32(1.0)
            power = (_float32_as_bits(shifted) - np.int32(0x4B400000) + np.int32(127)) << np.int32(23)
            return p * _bits_as_float32(np.int32(power))

        return single

    def double(x):
        x = max(x, LOWEST_64)
        shifted = x * _LOG2E + _SHIFT_64
        k = shifted - _SHIFT_64
        r = (x - k * 6.93145751953125e-1) - k * 1.42860682030941723212e-6
        p = 1.6059043836821613e-10
        p = p * r + 2.08767569878681e-9
        p = p * r + 2.505210838544172e-8
        p = p * r + 2.755731922398589e-7
        p = p * r + 2.7557319223985893e-6
        p = p * r + 2.48015873015873e-5
        p = p * r + 1.984126984126984e-4
        p = p * r + 1.388888888888889e-3
        p = p * r + 8.333333333333333e-3
        p = p * r + 4.1666666666666664e-2
        p = p * r + 1.6666666666666666e-1
        p = p * r + 0.5
        p = p * r * r + r + 1.0
        power = (_float64_as_bits(shifted) - np.int64(0x4338000000000000) + np.int64(1023)) << np.int64(52)
        return p * _bits_as_float64(power)

    return double
