"""A vector of a few float64 numbers, as one value of compiled code that stays in vector registers.

numba has no vector types, and does not put the sums of a loop into vectors: the sums of many models would be read from
memory and written back at every entry of a row.  LLVM has vector types, and splits them where a processor has no
registers of that width.  Each *lane* (element of a vector) is computed as its number would be by itself, so the bits
depend neither on the width nor on the processor.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel, register_default
from numba.extending import intrinsic


class Lanes(types.Type):
    """The numba type of a vector of `count` float64 numbers."""

    def __init__(self, count):
        self.count = count
        super().__init__(name=f"Lanes({count})")


@register_default(Lanes)
class _LanesModel(PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _wide(fe_type))


def _wide(kind):
    return ir.VectorType(ir.DoubleType(), kind.count)


def splat(builder, value, vector):
    """A vector with `value` in every lane."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def constant(vector, value):
    """A vector with the same number in every lane, a Python number that is known when the code is compiled."""
    return ir.Constant(vector, [ir.Constant(vector.element, value)] * vector.count)


def halves(builder, vector):
    """[the first half of the lanes of a vector, the second half]."""
    count, none = vector.type.count // 2, ir.Constant(vector.type, ir.Undefined)
    of = ir.VectorType(ir.IntType(32), count)
    return [
        builder.shuffle_vector(vector, none, ir.Constant(of, list(range(first, first + count)))) for first in (0, count)
    ]


def place_of(context, builder, signature, arguments, array, j, m):
    """Pointer to array[j, m] in C order, or to array[m].

    array, j, m : positions, among the arguments of the intrinsic, of the array and the two indices
    """
    kind = signature.args[array]
    values = context.make_array(kind)(context, builder, arguments[array])
    row, column = (context.cast(builder, arguments[a], signature.args[a], types.intp) for a in (j, m))
    if kind.ndim == 2:
        width = cgutils.unpack_tuple(builder, values.shape, 2)[1]
        column = builder.add(builder.mul(row, width), column)
    return builder.gep(values.data, [column])


def loaded(builder, pointer, kind, lanes):
    """Load as many numbers as `lanes` has, and convert them to float64.

    kind : numba type of the array, for which `row_products.has_lanes` is true
    """
    nbytes = kind.dtype.bitwidth // 8
    whole = isinstance(kind.dtype, types.Integer)
    element = ir.IntType(8 * nbytes) if whole else ir.FloatType() if nbytes == 4 else ir.DoubleType()
    vector = ir.VectorType(element, lanes.count)
    found = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=nbytes)
    if whole:
        return (builder.sitofp if kind.dtype.signed else builder.uitofp)(found, _wide(lanes))
    return builder.fpext(found, _wide(lanes)) if nbytes == 4 else found


@intrinsic
def four_zeros(typingctx):
    """A vector of four zeros."""
    return Lanes(4)(), lambda context, builder, signature, arguments: ir.Constant(_wide(Lanes(4)), None)


@intrinsic
def eight_zeros(typingctx):
    """A vector of eight zeros."""
    return Lanes(8)(), lambda context, builder, signature, arguments: ir.Constant(_wide(Lanes(8)), None)


@intrinsic
def lanes_of(typingctx, like, array, m):
    """array[m], array[m + 1], ... as a vector with as many lanes as `like` has."""

    def generate(context, builder, signature, arguments):
        pointer = place_of(context, builder, signature, arguments, 1, 2, 2)
        return loaded(builder, pointer, signature.args[1], signature.args[0])

    return like(like, array, m), generate


@intrinsic
def plus_products(typingctx, lanes, x, W, j, m):
    """The vector lanes + x (W[j, m], W[j, m + 1], ...)."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        weights = loaded(builder, place_of(context, builder, signature, arguments, 2, 3, 4), signature.args[2], kind)
        return builder.fadd(arguments[0], builder.fmul(splat(builder, arguments[1], _wide(kind)), weights))

    return lanes(lanes, types.float64, W, j, m), generate


@intrinsic
def moved_weights(typingctx, steps, x, W, j, m):
    """The vector (W[j, m], W[j, m + 1], ...) + x steps."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        weights = loaded(builder, place_of(context, builder, signature, arguments, 2, 3, 4), signature.args[2], kind)
        return builder.fadd(weights, builder.fmul(arguments[0], splat(builder, arguments[1], _wide(kind))))

    return steps(steps, types.float64, W, j, m), generate


@intrinsic
def put_lanes(typingctx, lanes, W, j, m):
    """Store a vector to W[j, m], W[j, m + 1], ..., or to W[m], W[m + 1], ... if W has one dimension."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[1]
        pointer, value = place_of(context, builder, signature, arguments, 1, 2, 3), arguments[0]
        if kind.dtype == types.float32:
            value = builder.fptrunc(value, ir.VectorType(ir.FloatType(), signature.args[0].count))
        builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=kind.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(lanes, W, j, m), generate
