"""Products of rows whose numbers are whole multiples of a step: bytes of images, counts, grades, also after a division.

The numbers of a row are k * step with small whole k.  Sums of products of the k are exact in 32 bits.  The tile holds
each k in 16 bits, with two features side by side as a *pair* of 32 bits, so one instruction makes both products of a
pair for eight rows.  The tile has half the bytes, and there are half the operations.  Squared distances are computed
from whole numbers too, and are rounded only once where those of floats would cancel.

The tile of pairs uses the memory of the tile of floats, from its first byte on: a row of LANES pairs for every two
features, and after them a row with the squared norms of the tile's rows, int32, in units of the squared step.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.compiled.kernel.values.tile import GROUP, LANES, PLACES_AHEAD, ROWS_AHEAD, load, store, vectors_of
from bigsvm.compiled.shared.compile import njit, overload, register_jitable
from bigsvm.compiled.shared.prefetch import ask_place, ask_row
from bigsvm.compiled.shared.rows import _is_csr
from bigsvm.compiled.shared.vectors.lanes import splat

_loop = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
MOST = 2.0**29  # bound of the squared norm of a row, in squared steps: a squared distance is below four times that
LARGEST = 32767  # largest absolute value of a number of a row, in steps
_WORD, _HALF = ir.IntType(32), ir.IntType(16)


def is_whole(S):
    """Whether a numba type is that of rows of pairs, which `pairs_of_csr` and `pairs_of_dense` make."""
    kind = S.types[0] if _is_csr(S) else S
    return isinstance(kind, types.Array) and kind.dtype == types.int32


def _steps(value, per_step):
    """The whole number k nearest to value / step, int32.  per_step : 1 / step"""
    raise NotImplementedError


@overload(_steps)
def _overload_steps(value, per_step):
    if isinstance(value, types.Integer):
        return lambda value, per_step: (
            np.int32(value) if per_step == 1.0 else np.int32(np.rint(np.float64(value) * per_step))
        )
    return lambda value, per_step: np.int32(np.rint(np.float64(value) * per_step))


@register_jitable
def _pair(low, high):
    """Two whole numbers of 16 bits as one int32, with the first in the lower half."""
    return np.int32((np.int64(high) << 16) | (np.int64(low) & 0xFFFF))


@_loop
def pairs_of_csr(X, rows, step, out_data, out_indices, out_indptr, out_sq):
    """Write rows of a CSR matrix as pairs of whole numbers, one row after another; returns the number of pairs.

    Features 2 j and 2 j + 1 belong to pair j.  If both have entries that follow one another, they become one entry.

    rows : int64, (n,)
    out_data : int32, filled; as long as the rows have entries, or longer
    out_indices : filled with the numbers of the pairs, as long as out_data;  out_indptr : int64, (n + 1,), filled
    out_sq : int32, (n,), filled with squared norms in squared steps
    """
    q, per_step = np.int64(0), 1.0 / step
    for i in range(len(rows)):
        if i + PLACES_AHEAD < len(rows):
            ask_place(X, rows[i + PLACES_AHEAD])
        if i + ROWS_AHEAD < len(rows):
            ask_row(X, rows[i + ROWS_AHEAD])
        out_indptr[i] = q
        last, held, total = np.int64(-1), np.int32(0), np.int32(0)
        for p in range(X.indptr[rows[i]], X.indptr[rows[i] + 1]):
            k, feature = _steps(X.data[p], per_step), np.int64(X.indices[p])
            total += k * k
            if feature == last + 1 and feature & 1:
                out_data[q - 1] = _pair(held, k)
                last = -1
            else:
                out_indices[q] = feature >> 1
                out_data[q] = _pair(0, k) if feature & 1 else _pair(k, 0)
                q, held, last = q + 1, k, feature
        out_sq[i] = total
    out_indptr[len(rows)] = q
    return q


@_loop
def pairs_of_dense(X, rows, step, out, out_sq):
    """As `pairs_of_csr` for a dense matrix: out[i, j] is the pair of features 2 j and 2 j + 1 of row rows[i].

    out : int32, (n or more, half of n_features, rounded up)
    """
    per_step = 1.0 / step
    for i in range(len(rows)):
        total = np.int32(0)
        for j in range(out.shape[1]):
            low, high = _both(X[rows[i]], j, per_step)
            total += low * low + high * high
            out[i, j] = _pair(low, high)
        out_sq[i] = total


def lay_out_whole(X, rows, first, here, step, tile, with_norms):
    """Write rows[first : first + here] of X to the tile of pairs as columns, and after it their squared norms.

    with_norms : bool; if it is False, zeros take the place of the norms
    """
    raise NotImplementedError


@overload(lay_out_whole)
def _overload_lay_out_whole(X, rows, first, here, step, tile, with_norms):
    if _is_csr(X):

        def sparse(X, rows, first, here, step, tile, with_norms):
            behind, per_step = _behind(tile), 1.0 / step
            for t in range(here):
                if first + t + PLACES_AHEAD < len(rows):
                    ask_place(X, rows[first + t + PLACES_AHEAD])
                if first + t + ROWS_AHEAD < len(rows):
                    ask_row(X, rows[first + t + ROWS_AHEAD])
                row, total = rows[first + t], np.int32(0)
                for p in range(X.indptr[row], X.indptr[row + 1]):
                    k, feature = _steps(X.data[p], per_step), np.int64(X.indices[p])
                    total += k * k
                    _put_half(tile, feature, t, k)
                _put_pair(tile, behind, t, total if with_norms else np.int32(0))

        return sparse

    def dense(X, rows, first, here, step, tile, with_norms):
        behind, per_step = _behind(tile), 1.0 / step
        whole = here - here % 4
        for t in range(0, whole, 4):
            norms = _lay_out_four(X, rows, first + t, t, per_step, tile)
            for u, total in enumerate(norms):
                _put_pair(tile, behind, t + u, total if with_norms else np.int32(0))
        for t in range(whole, here):
            total = _lay_out_one(X, rows[first + t], t, per_step, tile)
            _put_pair(tile, behind, t, total if with_norms else np.int32(0))

    return dense


@register_jitable
def _both(row, j, per_step):
    """The two whole numbers of pair j of a dense row; the second is 0 if the row ends with the first."""
    low = _steps(row[2 * j], per_step)
    return low, _steps(row[2 * j + 1], per_step) if 2 * j + 1 < len(row) else np.int32(0)


@register_jitable
def _lay_out_one(X, row, t, per_step, tile):
    """Write a dense row to column t; returns its squared norm, int32."""
    total = np.int32(0)
    for j in range((X.shape[1] + 1) // 2):
        low, high = _both(X[row], j, per_step)
        total += low * low + high * high
        _put_pair(tile, j, t, _pair(low, high))
    return total


@register_jitable
def _lay_out_four(X, rows, first, t, per_step, tile):
    """Write four dense rows to columns t to t + 3; returns their squared norms.

    They are written together, because a single row would wait for each cache line.
    """
    a, b, c, e = X[rows[first]], X[rows[first + 1]], X[rows[first + 2]], X[rows[first + 3]]
    n0 = n1 = n2 = n3 = np.int32(0)
    for j in range((X.shape[1] + 1) // 2):
        (a0, a1), (b0, b1) = _both(a, j, per_step), _both(b, j, per_step)
        (c0, c1), (e0, e1) = _both(c, j, per_step), _both(e, j, per_step)
        _put_pair(tile, j, t, _pair(a0, a1))
        _put_pair(tile, j, t + 1, _pair(b0, b1))
        _put_pair(tile, j, t + 2, _pair(c0, c1))
        _put_pair(tile, j, t + 3, _pair(e0, e1))
        n0 += a0 * a0 + a1 * a1
        n1 += b0 * b0 + b1 * b1
        n2 += c0 * c0 + c1 * c1
        n3 += e0 * e0 + e1 * e1
    return n0, n1, n2, n3


def clear_whole(X, row, t, tile):
    """Set the entries of a row of X in column t of the tile of pairs, and its norm, to 0; dense rows stay."""
    raise NotImplementedError


@overload(clear_whole)
def _overload_clear_whole(X, row, t, tile):
    def sparse(X, row, t, tile):
        for p in range(X.indptr[row], X.indptr[row + 1]):
            _put_half(tile, X.indices[p], t, 0)
        _put_pair(tile, _behind(tile), t, 0)

    return sparse if _is_csr(X) else lambda X, row, t, tile: None


@register_jitable
def _behind(tile):
    """The number of the tile's row, counted in rows of LANES pairs, that holds the squared norms."""
    return (tile.shape[0] + 1) // 2


def _words_of(context, builder, kind, tile):
    return builder.bitcast(context.make_array(kind)(context, builder, tile).data, _WORD.as_pointer())


@intrinsic
def _put_half(typingctx, tile, feature, t, value):
    """Set the 16 bits of a feature in column t to `value`."""
    signature = types.void(tile, types.int64, types.int64, types.int32)

    def codegen(context, builder, sig, args):
        array, feature, lane, value = args
        word = feature.type
        one = ir.Constant(word, 1)
        pair = builder.add(builder.mul(builder.lshr(feature, one), ir.Constant(word, LANES)), lane)
        place = builder.add(builder.shl(pair, one), builder.and_(feature, one))
        base = builder.bitcast(_words_of(context, builder, sig.args[0], array), _HALF.as_pointer())
        builder.store(builder.trunc(value, _HALF), builder.gep(base, [place]))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _put_pair(typingctx, tile, j, t, value):
    """Set the 32 bits of pair j in column t to `value`."""
    signature = types.void(tile, types.int64, types.int64, types.int32)

    def codegen(context, builder, sig, args):
        array, pair, lane, value = args
        place = builder.add(builder.mul(pair, ir.Constant(pair.type, LANES)), lane)
        builder.store(value, builder.gep(_words_of(context, builder, sig.args[0], array), [place]))
        return context.get_dummy_value()

    return signature, codegen


def _has_avx2(context):
    _, name, features = context.codegen().magic_tuple()
    return name in ("x86-64-v3", "x86-64-v4") or "+avx2" in features.split(",")


def _products_of_pairs(context, builder, a, b):
    """a_low b_low + a_high b_high for each of the pairs in two vectors of eight."""
    if _has_avx2(context):
        halves = ir.VectorType(_HALF, 2 * a.type.count)
        kind = ir.FunctionType(a.type, [halves, halves])
        multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pmadd.wd")
        return builder.call(multiply, [builder.bitcast(a, halves), builder.bitcast(b, halves)])
    by = ir.Constant(a.type, [ir.Constant(_WORD, 16)] * a.type.count)
    low = builder.mul(*(builder.ashr(builder.shl(x, by), by) for x in (a, b)))
    return builder.add(low, builder.mul(*(builder.ashr(x, by) for x in (a, b))))


_LANES = 8  # pairs in a register of AVX2
_VECTOR = ir.VectorType(_WORD, _LANES)


def _finish(context, builder, total, place, norms_at, norm, factor, target, vector, nbytes):
    """target[place : place + 8] = factor (2 total - norms of the tile's rows - norm), as floats."""
    twice = builder.shl(total, ir.Constant(_VECTOR, [ir.Constant(_WORD, 1)] * _LANES))
    norms = builder.add(load(builder, builder.gep(norms_at, [place]), _VECTOR, 4), splat(builder, norm, _VECTOR))
    value = builder.sitofp(builder.sub(twice, norms), vector)
    store(builder, builder.fmul(value, splat(builder, factor, vector)), builder.gep(target, [place]), nbytes)


@intrinsic
def pairs_times_tile(typingctx, data, indices, start, stop, tile, norm, factor, out):
    """out[0, t] = factor (2 p_t - n_t - norm) for t < LANES.

    p_t is the product of the pairs [start, stop) of a sparse row with row t of the tile.  n_t is the number after the
    tile: the squared norm of row t, or 0.  If `norm` is the squared norm of the sparse row and factor = step^2 / 2,
    this is minus half the squared distance; with zeros for the norms it is the product.

    data : int32, indices : int32 or int64, (n_pairs,);  norm : int32
    factor, out : the float type of the tile;  out : (1 or more, LANES)
    """
    signature = types.void(data, indices, types.int64, types.int64, tile, types.int32, tile.dtype, out)
    vector, _, n_vectors, nbytes = vectors_of(tile.dtype, _LANES)

    def codegen(context, builder, sig, args):
        values, numbers, begin, end, array, norm, factor, result = args
        word = begin.type
        value_at = context.make_array(sig.args[0])(context, builder, values).data
        number_at = context.make_array(sig.args[1])(context, builder, numbers).data
        tile_at = _words_of(context, builder, sig.args[4], array)
        places = [ir.Constant(word, v * _LANES) for v in range(n_vectors)]
        totals = [cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, None)) for _ in places]
        with cgutils.for_range_slice(builder, begin, end, ir.Constant(word, 1)) as (p, _):
            value = splat(builder, builder.load(builder.gep(value_at, [p])), _VECTOR)
            number = builder.load(builder.gep(number_at, [p]))
            if number.type != word:
                number = builder.sext(number, word)
            row = builder.gep(tile_at, [builder.mul(number, ir.Constant(word, LANES))])
            for total, place in zip(totals, places, strict=True):
                x = load(builder, builder.gep(row, [place]), _VECTOR, 4)
                found = _products_of_pairs(context, builder, value, x)
                builder.store(builder.add(builder.load(total), found), total)
        target = context.make_array(sig.args[7])(context, builder, result).data
        norms_at = _norms_at(context, builder, sig.args[4], array)
        for total, place in zip(totals, places, strict=True):
            _finish(context, builder, builder.load(total), place, norms_at, norm, factor, target, vector, nbytes)
        return context.get_dummy_value()

    return signature, codegen


def _norms_at(context, builder, kind, tile):
    n_features = cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, tile).shape)[0]
    one = ir.Constant(n_features.type, 1)
    behind = builder.lshr(builder.add(n_features, one), one)
    return builder.gep(_words_of(context, builder, kind, tile), [builder.mul(behind, ir.Constant(behind.type, LANES))])


AHEAD = 16  # rows of a dense S whose products are computed together, one part of the tile after another
_BAND = 64  # pairs in a part, which stays in the L1 cache while all of these rows use it
_SPAN = 2  # vectors of the tile at a time, for each row of a group: eight sums in sixteen registers


@register_jitable
def dense_pairs_times_tile(S, k, n, tile, sums):
    """sums[r, t] = the product of row k + r of S with row t of the tile, in squared steps, for r < n, t < LANES.

    S : int32, C order, (k + n or more, n_pairs);  n : at most AHEAD, a multiple of GROUP
    sums : int32, (AHEAD, LANES)
    """
    sums[:n] = 0
    for first in range(0, S.shape[1], _BAND):
        end = min(first + _BAND, S.shape[1])
        for r in range(0, n, GROUP):
            _add_band(S, k + r, first, end, tile, sums, r)


@intrinsic
def _add_band(typingctx, S, k, first, end, tile, sums, at):
    """Add the products of the pairs [first, end) of S[k : k + GROUP] with the tile to sums[at : at + GROUP]."""
    signature = types.void(S, types.int64, types.int64, types.int64, tile, sums, types.int64)

    def codegen(context, builder, sig, args):
        rows, number, first, end, array, totals, at = args
        word = number.type
        given = context.make_array(sig.args[0])(context, builder, rows)
        width = cgutils.unpack_tuple(builder, given.shape)[1]
        row_at = [
            builder.gep(given.data, [builder.mul(builder.add(number, ir.Constant(word, r)), width)])
            for r in range(GROUP)
        ]
        tile_at = _words_of(context, builder, sig.args[4], array)
        sums_at = context.make_array(sig.args[5])(context, builder, totals).data
        sums_of = [
            builder.gep(sums_at, [builder.mul(builder.add(at, ir.Constant(word, r)), ir.Constant(word, LANES))])
            for r in range(GROUP)
        ]
        for some in range(0, LANES // _LANES, _SPAN):
            places = [ir.Constant(word, v * _LANES) for v in range(some, some + _SPAN)]
            targets = [[builder.gep(of_row, [place]) for place in places] for of_row in sums_of]
            found = [[cgutils.alloca_once(builder, _VECTOR) for _ in places] for _ in row_at]
            for of_row, to in zip(found, targets, strict=True):
                for total, target in zip(of_row, to, strict=True):
                    builder.store(load(builder, target, _VECTOR, 4), total)
            with cgutils.for_range_slice(builder, first, end, ir.Constant(word, 1)) as (j, _):
                row = builder.gep(tile_at, [builder.mul(j, ir.Constant(word, LANES))])
                xs = [load(builder, builder.gep(row, [place]), _VECTOR, 4) for place in places]
                for r in range(GROUP):
                    value = splat(builder, builder.load(builder.gep(row_at[r], [j])), _VECTOR)
                    for total, x in zip(found[r], xs, strict=True):
                        products = _products_of_pairs(context, builder, value, x)
                        builder.store(builder.add(builder.load(total), products), total)
            for of_row, to in zip(found, targets, strict=True):
                for total, target in zip(of_row, to, strict=True):
                    store(builder, builder.load(total), target, 4)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def finish_pairs(typingctx, sums, r, tile, norm, factor, out):
    """out[t] = factor (2 sums[r, t] - n_t - norm) for t < LANES: the last step of `pairs_times_tile`."""
    signature = types.void(sums, types.int64, tile, types.int32, tile.dtype, out)
    vector, _, n_vectors, nbytes = vectors_of(tile.dtype, _LANES)

    def codegen(context, builder, sig, args):
        totals, row, array, norm, factor, result = args
        word = row.type
        sums_at = context.make_array(sig.args[0])(context, builder, totals).data
        sums_at = builder.gep(sums_at, [builder.mul(row, ir.Constant(word, LANES))])
        target = context.make_array(sig.args[5])(context, builder, result).data
        norms_at = _norms_at(context, builder, sig.args[2], array)
        for v in range(n_vectors):
            place = ir.Constant(word, v * _LANES)
            total = load(builder, builder.gep(sums_at, [place]), _VECTOR, 4)
            _finish(context, builder, total, place, norms_at, norm, factor, target, vector, nbytes)
        return context.get_dummy_value()

    return signature, codegen
