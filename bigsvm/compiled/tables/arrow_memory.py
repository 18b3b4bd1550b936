"""Access of compiled loops to the memory of Arrow columns, by the C data interface."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# Places of fields in `struct ArrowArray`, in words of 8 bytes:
# https://arrow.apache.org/docs/format/CDataInterface.html
LENGTH, NULLS, OFFSET, BUFFERS, CHILDREN, RELEASE = 0, 1, 2, 5, 6, 8


@intrinsic
def read_at(typingctx, address, place, like):
    """Element `place` of the numbers at an address, uint64.

    like : the numba type of the numbers, or an array of that type
    """
    dtype = like.dtype

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], context.get_data_type(dtype).as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return dtype(types.uint64, types.uint64, like), generate


@intrinsic
def release(typingctx, array):
    """Release the ArrowArray at an address, by the function that its exporter has stored in it.

    The columns themselves stay in memory as long as something else refers to them.
    """

    def generate(context, builder, signature, arguments):
        word = ir.IntType(64)
        place = builder.gep(builder.inttoptr(arguments[0], word.as_pointer()), [ir.Constant(word, RELEASE)])
        let_go = ir.FunctionType(ir.VoidType(), [word]).as_pointer()
        builder.call(builder.inttoptr(builder.load(place), let_go), arguments)
        return context.get_dummy_value()

    return types.none(types.uint64), generate
