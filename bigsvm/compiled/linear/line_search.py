"""The exact minimiser of a convex, piecewise quadratic function of a step, by selection over its breakpoints.

    phi(t) = linear t + quadratic t^2 / 2 + sum_i C_i loss(s_i - t p_i),   t >= 0

(docs/mathematics.md 3.1, 3.2).  A row changes sides at t_i = s_i / p_i; there the slope of phi, a + b t between
breakpoints, changes by da + db t_i >= 0.  The breakpoints are never sorted: positive floating-point numbers are
ordered as their bits are, so a histogram over the leading bits finds the bits of the breakpoint where the slope
changes its sign, twelve at a time, each in one reading of s and p; the few rows left in one bin are sorted.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, njit, register_jitable
from bigsvm.compiled.shared.losses import HINGE

BINS = 4096  # by twelve bits
COUNT, SLOPE, CURVATURE = 0, 1, 2  # columns of a histogram
RUN = 128  # rows whose terms are added before they join the total
_TINY = 1e-300  # |p| below this never changes sides


@register_jitable
def _term(code, s, p, C):
    """(da, db) at the breakpoint of a row, which stops violating there if s > 0 and starts to violate if s < 0."""
    if code == HINGE:
        return abs(p) * C, 0.0
    a = 2.0 * C * p * s
    b = 2.0 * C * p * p
    return (a, -b) if s > 0.0 else (-a, b)


@register_jitable
def _moves(s, p, C):
    return C > 0.0 and abs(p) >= _TINY and ((s > 0.0 and p > 0.0) or (s < 0.0 and p < 0.0))


@inner_loop
def at_start(s, p, cost, C, code, out):
    """Add slope and curvature of the sum of losses just after t = 0 to out[0] and out[1].

    s, p, cost : float64, shape (n_rows,), may be strided;  C : float; the cost of a row is C * cost
    code : HINGE or SQUARED_HINGE;  out : float64, (2,)
    """
    run_a = run_b = 0.0
    n = s.shape[0]
    for i in range(n):
        c = C * cost[i]
        if c > 0.0 and (s[i] > 0.0 or (s[i] == 0.0 and p[i] < 0.0)):
            if code == HINGE:
                run_a -= c * p[i]
            else:
                run_a -= 2.0 * c * p[i] * s[i]
                run_b += 2.0 * c * p[i] * p[i]
        if i % RUN == RUN - 1 or i == n - 1:
            out[0] += run_a
            out[1] += run_b
            run_a = run_b = 0.0


@inner_loop
def at_step(s, p, cost, C, code, t, out):
    """Add slope and curvature of the sum of losses at the step t to out[0] and out[1], summed without cancellation."""
    run_a = run_b = 0.0
    n = s.shape[0]
    for i in range(n):
        c, slack = C * cost[i], s[i] - t * p[i]
        if c > 0.0 and slack > 0.0:
            if code == HINGE:
                run_a -= c * p[i]
            else:
                run_a -= 2.0 * c * p[i] * slack
                run_b += 2.0 * c * p[i] * p[i]
        if i % RUN == RUN - 1 or i == n - 1:
            out[0] += run_a
            out[1] += run_b
            run_a = run_b = 0.0


@inner_loop
def count_bins(s, p, cost, C, code, prefix, shift, one, bits, histogram):
    """Count the breakpoints whose bits above `shift + 12` are `prefix`, in bins by the next twelve bits.

    one, bits : float64 and uint64 views of the same 8 bytes, work space
    histogram : float64, shape (BINS, 3)   grows by the number of rows and the sums of da and db in each bin
    """
    for i in range(s.shape[0]):
        c = C * cost[i]
        if _moves(s[i], p[i], c):
            one[0] = s[i] / p[i]
            leading = bits[0] >> shift
            if leading >> np.uint64(12) == prefix and one[0] < np.inf:
                k = leading & np.uint64(BINS - 1)
                da, db = _term(code, s[i], p[i], c)
                histogram[k, COUNT] += 1.0
                histogram[k, SLOPE] += da
                histogram[k, CURVATURE] += db


@inner_loop
def gather_bin(s, p, cost, C, code, prefix, shift, one, bits, out, n):
    """Append (t, da, db) of the breakpoints whose bits above `shift` are `prefix` to out[n:]; returns the new n."""
    for i in range(s.shape[0]):
        c = C * cost[i]
        if _moves(s[i], p[i], c):
            one[0] = s[i] / p[i]
            if bits[0] >> shift == prefix and one[0] < np.inf:
                out[n, 0] = one[0]
                out[n, 1], out[n, 2] = _term(code, s[i], p[i], c)
                n += 1
    return n


@njit(cache=True, nogil=True)
def find_bin(histogram, edges, slope, curvature):
    """(k, slope, curvature): the first bin k at whose upper edge phi no longer falls, and the line of phi' before it.

    k is -1 if phi still falls at the upper edge of the last bin.

    edges : float64, shape (BINS,)   the largest t of each bin;  slope, curvature : the line of phi' before all bins
    """
    for k in range(histogram.shape[0]):
        after, bent = slope + histogram[k, SLOPE], curvature + histogram[k, CURVATURE]
        if after + bent * edges[k] >= 0.0:
            return k, slope, curvature
        slope, curvature = after, bent
    return -1, slope, curvature


@njit(cache=True, nogil=True)
def walk(breakpoints, slope, curvature):
    """(t, on_kink): the minimum of phi, and whether it lies at a breakpoint.

    breakpoints : float64, shape (n, 3)   t, da, db in ascending order of t
    slope, curvature : the line of phi' before them
    """
    before = 0.0
    for k in range(breakpoints.shape[0]):
        t = breakpoints[k, 0]
        if slope + curvature * t >= 0.0:  # inside the segment that ends here
            return (-slope / curvature if curvature > 0.0 else before), False
        slope += breakpoints[k, 1]
        curvature += breakpoints[k, 2]
        if slope + curvature * t >= 0.0:
            return t, True
        before = t
    return (-slope / curvature if curvature > 0.0 else before), False
