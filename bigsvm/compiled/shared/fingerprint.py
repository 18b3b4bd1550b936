"""A 128-bit hash of rows that does not depend on how they are stored.

Each non-zero (index, value) of a row is mixed to two words of 64 bits, which are added up mod 2^64.  Because they are
added, the order of entries in a row does not matter.  The hash of the row mixes these two sums with its row number,
label and weight.  The hash of a set of rows is the sum mod 2^128 of their hashes, so blocks may be hashed apart and
their hashes added.  Values enter as float64, so integers and floats of every width agree if they are the same numbers.

The mixer is the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).  The hash is not cryptographic: it tells
data sets apart, but does not stop a forger.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from bigsvm.compiled.shared.compile import njit, overload, register_jitable
from bigsvm.compiled.shared.rows import CSR

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xD1B54A32D192ED03)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


@intrinsic
def _bits(typingctx, x):
    """The 64 bits of a float64 as an unsigned integer."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.uint64))

    return types.uint64(types.float64), codegen


@register_jitable
def _mix(z):
    z = (z ^ (z >> np.uint64(30))) * _M1
    z = (z ^ (z >> np.uint64(27))) * _M2
    return z ^ (z >> np.uint64(31))


@register_jitable
def _entry(j, x, lane):
    return _mix(_bits(x) + _mix(np.uint64(j) * _GOLDEN + lane))


@register_jitable
def _dense_sums(X, i):
    low = high = np.uint64(0)
    for j in range(X.shape[1]):
        x = np.float64(X[i, j])
        if x != 0.0:
            low += _entry(j, x, _GOLDEN)
            high += _entry(j, x, _OTHER)
    return low, high


@register_jitable
def _csr_sums(X, i):
    low = high = np.uint64(0)
    for k in range(X.indptr[i], X.indptr[i + 1]):
        x = np.float64(X.data[k])
        if x != 0.0:
            low += _entry(X.indices[k], x, _GOLDEN)
            high += _entry(X.indices[k], x, _OTHER)
    return low, high


def row_sums(X, i):
    """(low, high), uint64: two sums mod 2^64 over the mixed non-zeros (index, value) of row i.  X : dense or CSR"""
    return (_csr_sums if isinstance(X, CSR) else _dense_sums)(X, i)


@overload(row_sums)
def _overload_row_sums(X, i):
    if isinstance(X, types.Array):
        return lambda X, i: _dense_sums(X, i)
    return lambda X, i: _csr_sums(X, i)


@njit(cache=True, nogil=True)
def content_hash(X, label_bits, weights, first_row):
    """The sum mod 2^128 of the hashes of the rows of X, as two words (low, high) of 64 bits.

    Parameters
    ----------
    X : dense or CSR, any dtype of real numbers
    label_bits : uint64, shape (n_rows,)   64 bits that stand for each row's label
    weights : float64, shape (n_rows,)     weight of each row
    first_row : int   number, in the store, of row 0 of X
    """
    total_low = total_high = np.uint64(0)
    for i in range(label_bits.shape[0]):
        low, high = row_sums(X, i)
        head = _mix(np.uint64(first_row + i) * _GOLDEN) + label_bits[i]
        head = _mix(head) + _bits(weights[i])
        low = _mix(low + _mix(head + _GOLDEN))
        high = _mix(high + _mix(head + _OTHER))
        total_low += low
        total_high += high + (np.uint64(1) if total_low < low else np.uint64(0))
    return total_low, total_high


@njit(cache=True, nogil=True)
def first_bad_value(data):
    """Position of the first NaN or infinity in a flat array, or -1."""
    for k in range(data.shape[0]):
        if not np.isfinite(data[k]):
            return k
    return -1
