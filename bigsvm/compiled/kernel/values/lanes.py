"""Operations on the LANES products of a row with a tile: exp of the rbf kernel, and adding them to float64 sums.

Like `tile.py` they are written in LLVM's vector types.  Left to itself, the compiler uses vectors of half the width for
such loops, and checks first whether arrays overlap.  exp is that of `expo.py`, operation for operation.

In this file a *lane* is one of the LANES columns of an array.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.compiled.kernel.values.expo import DOUBLE, SINGLE
from bigsvm.compiled.kernel.values.tile import GROUP, LANES, load, multiply_add, store, vectors_of
from bigsvm.compiled.shared.vectors.lanes import constant, halves, splat


def _at(context, builder, kind, array, index):
    """Pointer to the first element of row `index` of a C-ordered array, or of an array of one dimension."""
    found = context.make_array(kind)(context, builder, array)
    if kind.ndim == 1:
        return found.data
    width = cgutils.unpack_tuple(builder, found.shape)[1]
    return builder.gep(found.data, [builder.mul(index, width)])


def _exp(builder, x, form):
    """exp of a vector of numbers <= 0.  form : the `ExpForm` of its type"""
    vector, bits = x.type, ir.VectorType(ir.IntType(form.bits), x.type.count)
    lowest = constant(vector, form.lowest)
    x = builder.select(builder.fcmp_ordered(">", x, lowest), x, lowest)
    shift = constant(vector, form.shift)
    shifted = multiply_add(builder, x, constant(vector, form.log2e), shift)
    k = builder.fsub(shifted, shift)
    r = multiply_add(builder, k, constant(vector, -form.ln2_high), x)
    r = multiply_add(builder, k, constant(vector, -form.ln2_low), r)
    p = constant(vector, form.polynomial[0])
    for coefficient in form.polynomial[1:]:
        p = multiply_add(builder, p, r, constant(vector, coefficient))
    p = multiply_add(builder, builder.fmul(p, r), r, r)
    p = builder.fadd(p, constant(vector, 1.0))
    number = builder.bitcast(shifted, bits)
    number = builder.sub(number, ir.Constant(bits, [ir.Constant(bits.element, form.zero)] * bits.count))
    power = builder.shl(number, ir.Constant(bits, [ir.Constant(bits.element, form.mantissa)] * bits.count))
    return builder.fmul(p, builder.bitcast(power, vector))


@intrinsic
def rbf_lanes(typingctx, a, row, gamma, x_sq, s_sq):
    """a[row, t] = exp(-gamma max(x_sq[t] + s_sq - 2 a[row, t], 0)) for t < LANES.

    a : (n, LANES), x_sq : (LANES,), gamma and s_sq : all of the same float type
    """
    signature = types.void(a, types.int64, x_sq.dtype, x_sq, x_sq.dtype)
    # All lanes side by side: exp is a chain of twenty operations that wait for one another, and processors look only a
    # few operations ahead for others that they can start.
    vector, _, _, nbytes = vectors_of(x_sq.dtype, LANES)
    form = SINGLE if x_sq.dtype == types.float32 else DOUBLE

    def codegen(context, builder, sig, args):
        products = _at(context, builder, sig.args[0], args[0], args[1])
        norms = _at(context, builder, sig.args[3], args[3], None)
        minus_gamma = splat(builder, builder.fneg(args[2]), vector)
        of_row = splat(builder, args[4], vector)
        minus_two, zero = constant(vector, -2.0), constant(vector, 0.0)
        norm = builder.fadd(load(builder, norms, vector, nbytes), of_row)
        distance = multiply_add(builder, minus_two, load(builder, products, vector, nbytes), norm)
        distance = builder.select(builder.fcmp_ordered(">", distance, zero), distance, zero)
        value = _exp(builder, builder.fmul(minus_gamma, distance), form)
        store(builder, value, products, nbytes)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_lanes(typingctx, coef, a, row, sums, model):
    """sums[model, t] += coef a[row, t] for t < LANES, in float64.

    coef : float64;  a : float32 or float64, (n, LANES);  sums : float64, (n_models, LANES)
    """
    signature = types.void(types.float64, a, types.int64, sums, types.int64)
    wide, lanes, n_vectors, nbytes = vectors_of(types.float64)
    kind = a.dtype

    def codegen(context, builder, sig, args):
        values = _at(context, builder, sig.args[1], args[1], args[2])
        totals = _at(context, builder, sig.args[3], args[3], args[4])
        by = splat(builder, args[0], wide)
        given = ir.VectorType(ir.FloatType(), lanes) if kind == types.float32 else wide
        size = 4 if kind == types.float32 else 8
        for v in range(n_vectors):
            place = [ir.Constant(args[2].type, v * lanes)]
            value = load(builder, builder.gep(values, place), given, size)
            if kind == types.float32:
                value = builder.fpext(value, wide)
            total = builder.gep(totals, place)
            store(builder, multiply_add(builder, by, value, load(builder, total, wide, nbytes)), total, nbytes)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_group_lanes(typingctx, coef, k, a, sums, model):
    """sums[model, t] += sum_r coef[k + r, model] a[r, t] for r < GROUP, t < LANES: as `add_lanes` for each r.

    The bits are the same, but a sum stays in a register until the whole group is added.

    coef : float64, C order, (k + GROUP or more, n_models);  a, sums : as for `add_lanes`
    """
    signature = types.void(coef, types.int64, a, sums, types.int64)
    wide, lanes, n_vectors, nbytes = vectors_of(types.float64)
    kind = a.dtype

    def codegen(context, builder, sig, args):
        word = args[1].type
        first = builder.gep(_at(context, builder, sig.args[0], args[0], args[1]), [args[4]])
        n_models = cgutils.unpack_tuple(builder, context.make_array(sig.args[0])(context, builder, args[0]).shape)[1]
        by = [
            splat(builder, builder.load(builder.gep(first, [builder.mul(n_models, ir.Constant(word, r))])), wide)
            for r in range(GROUP)
        ]
        values = [_at(context, builder, sig.args[2], args[2], ir.Constant(word, r)) for r in range(GROUP)]
        totals = _at(context, builder, sig.args[3], args[3], args[4])
        given = ir.VectorType(ir.FloatType(), lanes) if kind == types.float32 else wide
        size = 4 if kind == types.float32 else 8
        for v in range(n_vectors):
            place = [ir.Constant(word, v * lanes)]
            at = builder.gep(totals, place)
            total = load(builder, at, wide, nbytes)
            for r in range(GROUP):
                value = load(builder, builder.gep(values[r], place), given, size)
                if kind == types.float32:
                    value = builder.fpext(value, wide)
                total = multiply_add(builder, by[r], value, total)
            store(builder, total, at, nbytes)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def dot_lanes(typingctx, a, row, weights, model):
    """The float64 sum over t < LANES of a[row, t] weights[model, t], in the same order of t on every processor.

    a : float32 or float64, (n, LANES);  weights : float64, (n_models, LANES)
    """
    signature = types.float64(a, types.int64, weights, types.int64)
    wide, lanes, n_vectors, nbytes = vectors_of(types.float64)
    kind = a.dtype

    def codegen(context, builder, sig, args):
        values = _at(context, builder, sig.args[0], args[0], args[1])
        factors = _at(context, builder, sig.args[2], args[2], args[3])
        given = ir.VectorType(ir.FloatType(), lanes) if kind == types.float32 else wide
        size = 4 if kind == types.float32 else 8
        totals = [constant(wide, 0.0)] * 2  # two sums, because each addition waits for the previous one of its sum
        for v in range(n_vectors):
            place = [ir.Constant(args[1].type, v * lanes)]
            value = load(builder, builder.gep(values, place), given, size)
            if kind == types.float32:
                value = builder.fpext(value, wide)
            factor = load(builder, builder.gep(factors, place), wide, nbytes)
            totals[v % 2] = multiply_add(builder, value, factor, totals[v % 2])
        total = builder.fadd(*totals)
        while total.type.count > 1:
            total = builder.fadd(*halves(builder, total))
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return signature, codegen


@intrinsic
def write_lanes(typingctx, a, row, out, to, column):
    """out[to, column + t] = a[row, t] for t < LANES; `a` and `out` have the same float type."""
    signature = types.void(a, types.int64, out, types.int64, types.int64)
    vector, _, _, nbytes = vectors_of(a.dtype, LANES)

    def codegen(context, builder, sig, args):
        values = _at(context, builder, sig.args[0], args[0], args[1])
        target = builder.gep(_at(context, builder, sig.args[2], args[2], args[3]), [args[4]])
        store(builder, load(builder, values, vector, nbytes), target, nbytes)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def fused(typingctx, a, b, c):
    """a b + c of float64 numbers, rounded once, as `add_lanes` does in each lane."""

    def codegen(context, builder, sig, args):
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen
