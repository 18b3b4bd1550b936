"""The product of a dense row with the weights of one model, in vector registers.

Each lane adds up its own entries, in their order, so its sum has the same bits as in a loop over single entries.
"""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from bigsvm.compiled.shared.vectors.lanes import loaded, place_of


def has_lanes(kind):
    """Whether the numbers of an array, of numba type `kind`, lie side by side and are exact as float64."""
    exact = isinstance(kind.dtype, types.Integer) and kind.dtype.bitwidth <= 32
    return kind.layout == "C" and (exact or kind.dtype in (types.float32, types.float64))


@intrinsic
def plus_pairs(typingctx, lanes, X, i, w, j):
    """The vector lanes + (X[i, j] w[j], X[i, j + 1] w[j + 1], ...)."""

    def generate(context, builder, signature, arguments):
        kind, values, _, weights, _ = signature.args
        x = loaded(builder, place_of(context, builder, signature, arguments, 1, 2, 4), values, kind)
        y = loaded(builder, place_of(context, builder, signature, arguments, 3, 4, 4), weights, kind)
        return builder.fadd(arguments[0], builder.fmul(x, y))

    return lanes(lanes, X, i, w, j), generate


@intrinsic
def lane(typingctx, lanes, k):
    """The number in lane k of a vector, float64."""

    def generate(context, builder, signature, arguments):
        return builder.extract_element(
            arguments[0], context.cast(builder, arguments[1], signature.args[1], types.int32)
        )

    return types.float64(lanes, k), generate
