"""Where Arrow keeps columns: its C data interface, as compiled loops read it."""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

# Of `struct ArrowArray`, in words of 8 bytes: https://arrow.apache.org/docs/format/CDataInterface.html
LENGTH, NULLS, OFFSET, BUFFERS, CHILDREN = 0, 1, 2, 5, 6


@intrinsic
def read_at(typingctx, address, place, like):
    """Number `place` of those that lie at an address; they are of the type `like`, or of that of the array `like`."""
    dtype = like.dtype

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], context.get_data_type(dtype).as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return dtype(types.uint64, types.uint64, like), generate
