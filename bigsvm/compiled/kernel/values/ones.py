"""Products of rows of zeros and ones: the number of features that both rows have.

Questionnaires, fingerprints of molecules and columns of categories are such rows.  Their products are whole numbers, so
the tile can hold bytes instead of floats: a feature of 64 rows is then one cache line, and takes two additions of
vectors where floats take eight multiplications.  The counts are exact, so values have the same bits as with floats.

The tile of bytes uses the memory of the tile of floats, from its first byte on, and is left as zeros like that one.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.compiled.kernel.values.tile import LANES, store, vectors_of
from bigsvm.compiled.shared.compile import overload, register_jitable
from bigsvm.compiled.shared.rows import _is_csr

_MOST = 255  # the largest count of a byte
_BYTE = ir.IntType(8)
_PARTS = 2  # vectors that make LANES bytes: of 32 bytes each, a register of AVX2


def has_few_ones(S, n):
    """Whether the first n rows of S are sparse and have at most 255 entries each, all of them 1; False if n is 0."""
    raise NotImplementedError


@overload(has_few_ones)
def _overload_has_few_ones(S, n):
    if not _is_csr(S):
        return lambda S, n: False

    def sparse(S, n):
        for k in range(n):
            if S.indptr[k + 1] - S.indptr[k] > _MOST or not _all_ones(S.data, S.indptr[k], S.indptr[k + 1]):
                return False
        return n > 0

    return sparse


@register_jitable
def _all_ones(data, start, stop):
    others = 0
    for p in range(start, stop):
        others += data[p] != 1
    return others == 0


def are_ones(X, rows, first, here):
    """Whether rows[first : first + here] of X are sparse and all of their entries are 1."""
    raise NotImplementedError


@overload(are_ones)
def _overload_are_ones(X, rows, first, here):
    if not _is_csr(X):
        return lambda X, rows, first, here: False

    def sparse(X, rows, first, here):
        all_ones = True
        for t in range(first, first + here):
            all_ones = all_ones and _all_ones(X.data, X.indptr[rows[t]], X.indptr[rows[t] + 1])
        return all_ones

    return sparse


def lay_out_ones(X, rows, first, here, tile, sq):
    """Write rows[first : first + here] of X, which `are_ones`, to the tile of bytes as columns.

    sq : (LANES,), receives their squared norms, which are their numbers of entries
    """
    raise NotImplementedError


@overload(lay_out_ones)
def _overload_lay_out_ones(X, rows, first, here, tile, sq):
    if not _is_csr(X):
        return lambda X, rows, first, here, tile, sq: None

    def sparse(X, rows, first, here, tile, sq):
        for t in range(here):
            row = rows[first + t]
            for p in range(X.indptr[row], X.indptr[row + 1]):
                _put(tile, X.indices[p], t, 1)
            sq[t] = X.indptr[row + 1] - X.indptr[row]

    return sparse


def clear_ones(X, row, t, tile):
    """Set the bytes of a row of X, which `are_ones`, in column t of the tile to 0."""
    raise NotImplementedError


@overload(clear_ones)
def _overload_clear_ones(X, row, t, tile):
    if not _is_csr(X):
        return lambda X, row, t, tile: None

    def sparse(X, row, t, tile):
        for p in range(X.indptr[row], X.indptr[row + 1]):
            _put(tile, X.indices[p], t, 0)

    return sparse


def _bytes_of(context, builder, kind, tile):
    return builder.bitcast(context.make_array(kind)(context, builder, tile).data, _BYTE.as_pointer())


@intrinsic
def _put(typingctx, tile, feature, t, value):
    """Set the byte of a feature in column t to `value`."""
    signature = types.void(tile, types.int64, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        array, feature, lane, value = args
        word = feature.type
        place = builder.add(builder.mul(feature, ir.Constant(word, LANES)), lane)
        target = builder.gep(_bytes_of(context, builder, sig.args[0], array), [place])
        builder.store(builder.trunc(value, _BYTE), target)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def ones_times_tile(typingctx, indices, start, stop, tile, out):
    """out[0, t] = the number of features in indices[start : stop] that row t of the tile has, for t < LANES.

    indices : int32 or int64, with stop - start <= 255;  tile : the tile of bytes
    out : the float type in which the tile is declared, (1 or more, LANES)
    """
    signature = types.void(indices, types.int64, types.int64, tile, out)
    vector, lanes, n_vectors, nbytes = vectors_of(tile.dtype, 8)
    part = ir.VectorType(_BYTE, LANES // _PARTS)

    def codegen(context, builder, sig, args):
        numbers, begin, end, array, result = args
        word = begin.type
        number_at = context.make_array(sig.args[0])(context, builder, numbers).data
        tile_at = _bytes_of(context, builder, sig.args[3], array)
        totals = [cgutils.alloca_once_value(builder, ir.Constant(part, None)) for _ in range(_PARTS)]
        with cgutils.for_range_slice(builder, begin, end, ir.Constant(word, 1)) as (p, _):
            number = builder.load(builder.gep(number_at, [p]))
            if number.type != word:
                number = builder.sext(number, word)
            row = builder.gep(tile_at, [builder.mul(number, ir.Constant(word, LANES))])
            for v, total in enumerate(totals):
                at = builder.gep(row, [ir.Constant(word, v * part.count)])
                ones = builder.load(builder.bitcast(at, part.as_pointer()), align=1)
                builder.store(builder.add(builder.load(total), ones), total)
        target = context.make_array(sig.args[4])(context, builder, result).data
        for v in range(n_vectors):
            counts, first = builder.load(totals[v * lanes // part.count]), v * lanes % part.count
            places = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(first, first + lanes)))
            some = builder.shuffle_vector(counts, ir.Constant(part, ir.Undefined), places)
            value = builder.uitofp(some, vector)
            store(builder, value, builder.gep(target, [ir.Constant(word, v * lanes)]), nbytes)
        return context.get_dummy_value()

    return signature, codegen
