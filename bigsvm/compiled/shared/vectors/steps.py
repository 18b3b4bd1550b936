"""The passes over its rows that a step of two variables makes, in LLVM's vectors.

The compiler finds no vectors in loops that carry a smallest or a largest number along, and takes one row at a time.
All arrays are of one dimension, C order and of one length, a multiple of 16.  Numbers that are none are passed by.
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
    """An array of float32 or float64 in compiled code."""

    def __init__(self, context, builder, kind, value):
        array = context.make_array(kind)(context, builder, value)
        self._builder, self._data, self._nbytes = builder, array.data, kind.dtype.bitwidth // 8
        self.vector = ir.VectorType(_SINGLE if kind.dtype == types.float32 else _DOUBLE, _LANES)
        (self.n,) = cgutils.unpack_tuple(builder, array.shape, 1)

    def _at(self, t):
        return self._builder.bitcast(self._builder.gep(self._data, [t]), self.vector.as_pointer())

    def load(self, t):
        """Numbers t, t + 1 ..."""
        return self._builder.load(self._at(t), align=self._nbytes)

    def load_wide(self, t):
        """The same as float64."""
        found = self.load(t)
        return found if found.type.element == _DOUBLE else self._builder.fpext(found, ir.VectorType(_DOUBLE, _LANES))

    def store(self, value, t):
        """Put numbers at t, t + 1 ..."""
        self._builder.store(value, self._at(t), align=self._nbytes)


def _every(builder, n):
    """A loop over 0, 16 ... n."""
    return cgutils.for_range_slice(builder, ir.Constant(_WORD, 0), n, ir.Constant(_WORD, _LANES))


def _extreme(builder, sign, a, b):
    """In each lane b where it is less ("<") or more (">") than a, else a: also where b is no number."""
    return builder.select(builder.fcmp_ordered(sign, b, a), b, a)


def _extreme_lane(builder, sign, lanes):
    """The least or the largest of the lanes."""
    while lanes.type.count > 1:
        lanes = _extreme(builder, sign, *halves(builder, lanes))
    return builder.extract_element(lanes, ir.Constant(ir.IntType(32), 0))


_WORST = {"<": float("inf"), ">": float("-inf")}


class _Extreme:
    """The least or the largest of what a loop comes by."""

    def __init__(self, builder, sign, vector):
        self._builder, self._sign = builder, sign
        self._lanes = cgutils.alloca_once_value(builder, constant(vector, _WORST[sign]))

    def see(self, numbers):
        """Some more."""
        best = self._builder.load(self._lanes)
        self._builder.store(_extreme(self._builder, self._sign, best, numbers), self._lanes)

    def found(self):
        """Of all; infinite where none was a number."""
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
    """The lowest t with values[t] == number; the length of `values` where there is none."""

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
    """gain[t] = b^2 / a of a step with each row that may fall from above b_up, -1 for others; returns the largest.

    b = down[t] - b_up, a = curvature + diag[t] - 2 row[t], each rounded to float32; a not below `smallest`
    row : float32 or float64;  diag, down : float64;  gain : float32
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
    """f, up and down += step (row_i - row_j); returns the smallest number of up and the largest of down.

    row_i, row_j : float32 or float64;  others : float64
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
