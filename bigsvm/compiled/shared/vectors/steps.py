"""The loops over all rows of a working set that a step of two variables needs, in LLVM's vector types.

The compiler does not vectorise loops that look for the smallest or largest number, and takes one row at a time.  All
arrays of a call have one dimension, C order and the same length, a multiple of 16.  NaN is ignored.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.compiled.shared.vectors.lanes import constant, halves, splat

_LANES = 16
_WORD, _SINGLE, _DOUBLE = ir.IntType(64), ir.FloatType(), ir.DoubleType()


class _Array:
    """A one-dimensional array of float32 or float64 in compiled code, accessed 16 numbers at a time."""

    def __init__(self, context, builder, kind, value):
        array = context.make_array(kind)(context, builder, value)
        self._builder, self._data, self._nbytes = builder, array.data, kind.dtype.bitwidth // 8
        self.vector = ir.VectorType(_SINGLE if kind.dtype == types.float32 else _DOUBLE, _LANES)
        (self.n,) = cgutils.unpack_tuple(builder, array.shape, 1)

    def _at(self, t):
        return self._builder.bitcast(self._builder.gep(self._data, [t]), self.vector.as_pointer())

    def load(self, t):
        """The 16 numbers from t on, as a vector."""
        return self._builder.load(self._at(t), align=self._nbytes)

    def load_wide(self, t):
        """The 16 numbers from t on, converted to float64."""
        found = self.load(t)
        return found if found.type.element == _DOUBLE else self._builder.fpext(found, ir.VectorType(_DOUBLE, _LANES))

    def store(self, value, t):
        """Store a vector at the 16 places from t on."""
        self._builder.store(value, self._at(t), align=self._nbytes)


def _every(builder, n):
    """A loop over 0, 16, 32, ... below n."""
    return cgutils.for_range_slice(builder, ir.Constant(_WORD, 0), n, ir.Constant(_WORD, _LANES))


def _extreme(builder, sign, a, b):
    """In each lane the smaller (sign "<") or larger (">") of a and b; a if b is NaN."""
    return builder.select(builder.fcmp_ordered(sign, b, a), b, a)


def _extreme_lane(builder, sign, lanes):
    """The smallest or largest of the lanes."""
    while lanes.type.count > 1:
        lanes = _extreme(builder, sign, *halves(builder, lanes))
    return builder.extract_element(lanes, ir.Constant(ir.IntType(32), 0))


_WORST = {"<": float("inf"), ">": float("-inf")}


class _Extreme:
    """The smallest (sign "<") or largest (">") of the numbers that a loop has seen."""

    def __init__(self, builder, sign, vector):
        self._builder, self._sign = builder, sign
        self._lanes = cgutils.alloca_once_value(builder, constant(vector, _WORST[sign]))

    def see(self, numbers):
        """Take account of a vector of numbers."""
        best = self._builder.load(self._lanes)
        self._builder.store(_extreme(self._builder, self._sign, best, numbers), self._lanes)

    def found(self):
        """The smallest or largest of all numbers seen; infinite if all were NaN."""
        return _extreme_lane(self._builder, self._sign, self._builder.load(self._lanes))


def _extreme_of(sign):
    def typed(typingctx, values):
        def codegen(context, builder, sig, args):
            array = _Array(context, builder, sig.args[0], args[0])
            best = _Extreme(builder, sign, array.vector)
            with _every(builder, array.n) as (t, _):
                best.see(array.load(t))
            return best.found()

        return values.dtype(values), codegen

    return typed


least = intrinsic(_extreme_of("<"))
"""The smallest number of `values`."""
largest = intrinsic(_extreme_of(">"))
"""The largest number of `values`."""


@intrinsic
def first_of(typingctx, values, number):
    """The lowest t with values[t] == number; the length of `values` if there is none."""

    def codegen(context, builder, sig, args):
        array = _Array(context, builder, sig.args[0], args[0])
        wanted = splat(builder, args[1], array.vector)
        bits = ir.IntType(_LANES)
        place = cgutils.alloca_once_value(builder, array.n)
        with cgutils.for_range(builder, builder.udiv(array.n, ir.Constant(_WORD, _LANES))) as loop:
            t = builder.mul(loop.index, ir.Constant(_WORD, _LANES))
            equal = builder.bitcast(builder.fcmp_ordered("==", array.load(t), wanted), bits)
            with builder.if_then(builder.icmp_unsigned("!=", equal, ir.Constant(bits, 0))):
                lane = builder.zext(builder.cttz(equal, ir.Constant(ir.IntType(1), 1)), _WORD)
                builder.store(builder.add(t, lane), place)
                loop.do_break()
        return builder.load(place)

    return types.int64(values, values.dtype), codegen


@intrinsic
def gains_of(typingctx, row, diag, curvature, b_up, smallest, down, gain):
    """The second-order gains of steps of row i with each row t (docs/mathematics.md 8.2); returns the largest.

    gain[t] = b^2 / a if b > 0, else -1, with b = down[t] - b_up and a = curvature + diag[t] - 2 row[t], which are both
    rounded to float32; a is at least `smallest`

    row : float32 or float64, K_it;  diag : float64, K_tt;  curvature : float64, K_ii;  b_up : float64, F^up of row i
    down : float64, F^down, -inf for rows that may not fall;  gain : float32, filled
    """
    signature = types.float32(row, diag, types.float64, types.float64, types.float64, down, gain)

    def codegen(context, builder, sig, args):
        row, diag, down, gain = (_Array(context, builder, sig.args[k], args[k]) for k in (0, 1, 5, 6))
        curvature, b_up = (splat(builder, args[k], down.vector) for k in (2, 3))
        single = gain.vector
        least_a = splat(builder, builder.fptrunc(args[4], _SINGLE), single)
        none, zero = constant(single, -1.0), constant(single, 0.0)
        best = _Extreme(builder, ">", single)
        with _every(builder, gain.n) as (t, _):
            b = builder.fptrunc(builder.fsub(down.load(t), b_up), single)
            twice = builder.fmul(row.load_wide(t), constant(down.vector, 2.0))
            a = builder.fptrunc(builder.fsub(builder.fadd(curvature, diag.load(t)), twice), single)
            a = builder.select(builder.fcmp_ordered(">", a, least_a), a, least_a)
            gained = builder.fdiv(builder.fmul(b, b), a)
            gained = builder.select(builder.fcmp_ordered(">", b, zero), gained, none)
            gain.store(gained, t)
            best.see(gained)
        return best.found()

    return signature, codegen


@intrinsic
def move_all(typingctx, step, row_i, row_j, f, up, down):
    """Add step (row_i - row_j) to f, up and down; returns (smallest number of up, largest number of down).

    This is what a step of rows i and j changes (docs/mathematics.md 8.1).

    step : float64;  row_i, row_j : float32 or float64, rows of K
    f : float64;  up, down : float64, F^up and F^down, infinite for rows that may not rise or fall
    """
    signature = types.UniTuple(types.float64, 2)(types.float64, row_i, row_j, f, up, down)

    def codegen(context, builder, sig, args):
        row_i, row_j, *moved = (
            _Array(context, builder, kind, value) for kind, value in zip(sig.args[1:], args[1:], strict=True)
        )
        f, up, down = moved
        step = splat(builder, args[0], f.vector)
        lowest, highest = _Extreme(builder, "<", f.vector), _Extreme(builder, ">", f.vector)
        with _every(builder, f.n) as (t, _):
            by = builder.fmul(step, builder.fsub(row_i.load_wide(t), row_j.load_wide(t)))
            for array, seen in ((f, None), (up, lowest), (down, highest)):
                value = builder.fadd(array.load(t), by)
                array.store(value, t)
                if seen is not None:
                    seen.see(value)
        return context.make_tuple(builder, sig.return_type, [lowest.found(), highest.found()])

    return signature, codegen
