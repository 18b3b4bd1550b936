"""Moving rows within an array, as C's memmove does."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def move_along(typingctx, array, target, first, stop):
    """Move array[first:stop] to array[target:], along the first axis; the two may overlap.  array : C order"""

    def generate(context, builder, signature, arguments):
        values = context.make_array(signature.args[0])(context, builder, arguments[0])
        start, *places = (
            context.cast(builder, argument, kind, types.intp)
            for argument, kind in zip(arguments[1:], signature.args[1:], strict=True)
        )
        row_bytes = cgutils.unpack_tuple(builder, values.strides)[0]
        data = builder.bitcast(values.data, cgutils.voidptr_t)
        to, source = (builder.gep(data, [builder.mul(place, row_bytes)]) for place in (start, places[0]))
        nbytes = builder.mul(builder.sub(places[1], places[0]), row_bytes)
        cgutils.raw_memmove(builder, to, source, nbytes, ir.Constant(nbytes.type, 1))
        return context.get_dummy_value()

    return types.void(array, target, first, stop), generate
