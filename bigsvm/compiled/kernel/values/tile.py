"""Products of a few rows with the 64 rows of a tile, held in vector registers.

A *tile* has 64 rows of the data side by side as columns: tile[j, t] is feature j of its row t.  The products of a row s
with all of them are the sum of the vectors s_j tile[j, :] over the features j of s.  This needs no gather and no
horizontal sum.  Each product stays in one lane (element of a vector), so its bits depend on nothing but the two rows.
numba has no vector types, so these loops are written in those of LLVM, which splits vectors that are wider than those
of the processor.

Sums stay in registers while a loop runs.  If a processor has too few registers for all sums, the loop runs several
times, each time for some of them: a sum in memory would be read and written for every number of a row.
"""

from __future__ import annotations

import itertools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.compiled.shared.vectors.lanes import splat

LANES = 64
_VECTOR_BYTES = 64
GROUP = 4
"""Rows of S whose products are computed together; a dense S has a multiple of this number of rows."""
ROWS_AHEAD, PLACES_AHEAD = 8, 24
"""Rows in advance that sparse rows, and their addresses, are prefetched: rows of a working set lie far apart."""
_CHAINS = 2  # independent sums of each product, because a single one would wait for each addition before the next


def _pointer(context, builder, kind, array):
    return context.make_array(kind)(context, builder, array).data


def vectors_of(kind, lanes=None):
    """(LLVM vector type, lanes of a vector, vectors that make LANES, bytes of an element).

    kind : numba's float32 or float64;  lanes : lanes of a vector; None: as many as 64 bytes hold
    """
    element, nbytes = (ir.FloatType(), 4) if kind == types.float32 else (ir.DoubleType(), 8)
    lanes = lanes or _VECTOR_BYTES // nbytes
    return ir.VectorType(element, lanes), lanes, LANES // lanes, nbytes


def multiply_add(builder, a, b, c):
    """a b + c of vectors, rounded once."""
    vector = a.type
    name = f"llvm.fma.v{vector.count}{'f32' if isinstance(vector.element, ir.FloatType) else 'f64'}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    return builder.call(function, [a, b, c])


def load(builder, pointer, vector, nbytes):
    """Load a vector from memory that need only be aligned for one element.  nbytes : bytes of an element"""
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=nbytes)


def store(builder, value, pointer, nbytes):
    """Store a vector to memory that need only be aligned for one element.  nbytes : bytes of an element"""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=nbytes)


def _has_wide_registers(context):
    """Whether the target processor has 32 registers of 64 bytes (AVX-512).

    Others have 512 bytes of registers in all; AVX on x86-64 has 16 registers of 32 bytes.
    """
    _, name, features = context.codegen().magic_tuple()
    return name == "x86-64-v4" or "+avx512f" in features.split(",")


def _spans(n, most):
    """[(first, end), ...]: range(n) in parts of at most `most`, whose sizes differ by at most one."""
    parts = -(-n // most)
    ends = [n * k // parts for k in range(parts + 1)]
    return list(itertools.pairwise(ends))


@intrinsic
def sparse_row_times_tile(typingctx, data, indices, start, stop, tile, first, out):
    """out[0, t] = sum over the entries p in [start, stop) of data[p] tile[indices[p], first + t], for t < LANES.

    data, indices : (n_entries,), of a CSR matrix;  tile : C order, (n_features, width), width a multiple of LANES
    out : C order, (1 or more, LANES);  data, tile and out have the same float type
    """
    signature = types.void(data, indices, types.int64, types.int64, tile, types.int64, out)
    vector, lanes, n_vectors, nbytes = vectors_of(tile.dtype)

    def codegen(context, builder, sig, args):
        values, numbers, begin, end, X, offset, result = args
        word = begin.type
        array = context.make_array(sig.args[4])(context, builder, X)
        stride = cgutils.unpack_tuple(builder, array.shape)[1]
        column = builder.gep(array.data, [offset])
        value_at = _pointer(context, builder, sig.args[0], values)
        number_at = _pointer(context, builder, sig.args[1], numbers)
        target = _pointer(context, builder, sig.args[6], result)
        place = [ir.Constant(word, v * lanes) for v in range(n_vectors)]

        def zeros(span):
            return {v: cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for v in range(*span)}

        def add(p, sums):
            value = splat(builder, builder.load(builder.gep(value_at, [p])), vector)
            number = builder.load(builder.gep(number_at, [p]))
            if number.type != word:
                number = builder.sext(number, word)
            row = builder.gep(column, [builder.mul(number, stride)])
            for v, total in sums.items():
                x = load(builder, builder.gep(row, [place[v]]), vector, nbytes)
                builder.store(multiply_add(builder, value, x, builder.load(total)), total)

        def both_chains(span):
            sums = [zeros(span) for _ in range(_CHAINS)]
            odd = builder.and_(builder.sub(end, begin), ir.Constant(word, 1))
            pairs_end = builder.sub(end, odd)
            with cgutils.for_range_slice(builder, begin, pairs_end, ir.Constant(word, _CHAINS)) as (p, _):
                add(p, sums[0])
                add(builder.add(p, ir.Constant(word, 1)), sums[1])
            with builder.if_then(builder.icmp_signed("!=", odd, ir.Constant(word, 0))):
                add(pairs_end, sums[0])
            for v in range(*span):
                total = builder.fadd(builder.load(sums[0][v]), builder.load(sums[1][v]))
                store(builder, total, builder.gep(target, [place[v]]), nbytes)

        def one_chain(chain, span):
            sums = zeros(span)
            from_here = builder.add(begin, ir.Constant(word, chain))
            with cgutils.for_range_slice(builder, from_here, end, ir.Constant(word, _CHAINS)) as (p, _):
                add(p, sums)
            for v in range(*span):
                at, total = builder.gep(target, [place[v]]), builder.load(sums[v])
                if chain > 0:
                    total = builder.fadd(load(builder, at, vector, nbytes), total)
                store(builder, total, at, nbytes)

        if _has_wide_registers(context):
            both_chains((0, n_vectors))
        else:
            for span in _spans(n_vectors, 4):  # sums in eight registers: as many as are begun before the first is ready
                for chain in range(_CHAINS):
                    one_chain(chain, span)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def dense_rows_times_tile(typingctx, S, k, tile, first, out):
    """out[r, t] = S[k + r, :] . tile[:, first + t] for r < GROUP, t < LANES.

    S : C order, (k + GROUP or more, n_features);  tile : C order, (n_features, width);  out : C order, (GROUP, LANES)
    S, tile and out have the same float type
    """
    signature = types.void(S, types.int64, tile, types.int64, out)

    def codegen(context, builder, sig, args):
        wide = _has_wide_registers(context)
        # Sums of all rows of the group at a time: 16 sums in 32 registers, or 12 in 16.
        vector, lanes, n_vectors, nbytes = vectors_of(tile.dtype, None if wide else 32 // (tile.dtype.bitwidth // 8))
        rows, number, X, offset, result = args
        word = number.type
        array = context.make_array(sig.args[2])(context, builder, X)
        n_features, stride = cgutils.unpack_tuple(builder, array.shape)
        column = builder.gep(array.data, [offset])
        given = context.make_array(sig.args[0])(context, builder, rows)
        width = cgutils.unpack_tuple(builder, given.shape)[1]
        row_at = [
            builder.gep(given.data, [builder.mul(builder.add(number, ir.Constant(word, r)), width)])
            for r in range(GROUP)
        ]
        target = _pointer(context, builder, sig.args[4], result)
        for some, end in _spans(n_vectors, 4 if wide else 3):
            sums = [
                [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(some, end)]
                for _ in row_at
            ]
            with cgutils.for_range(builder, n_features) as loop:
                j = loop.index
                at = builder.gep(column, [builder.mul(j, stride)])
                xs = [
                    load(builder, builder.gep(at, [ir.Constant(word, v * lanes)]), vector, nbytes)
                    for v in range(some, end)
                ]
                for r in range(GROUP):
                    value = splat(builder, builder.load(builder.gep(row_at[r], [j])), vector)
                    for total, x in zip(sums[r], xs, strict=True):
                        builder.store(multiply_add(builder, value, x, builder.load(total)), total)
            for r in range(GROUP):
                for v, total in zip(range(some, end), sums[r], strict=True):
                    place = ir.Constant(word, r * LANES + v * lanes)
                    store(builder, builder.load(total), builder.gep(target, [place]), nbytes)
        return context.get_dummy_value()

    return signature, codegen
