"""Random orders of rows that are functions of (seed, epoch, place) only, and kind to caches.

Rows are visited in runs of RUN_ROWS neighbours.  The order of the runs is random; rows inside a run keep their
order, or `mixed_runs` runs at a time are shuffled together.  Runs alone converge like a full shuffle where rows
are in no order (`docs/order-of-rows.md`), at several times its speed: memory is read forward.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.shared.rows import CSR

RUN_ROWS = 64
MIXED_BYTES = 6 << 20  # of values and indices: what caches hold; data of this size is shuffled as a whole
WITH_REPLACEMENT = -1  # in place of `mixed_runs`: every visit is to a row drawn anew
AS_GIVEN = -2  # in place of `mixed_runs`: the order is there already


class VisitingOrder(NamedTuple):
    """The key of a random order of rows, all int: see `fill_order`.

    mixed_runs : runs that are shuffled together; WITH_REPLACEMENT: rows are drawn anew, and nothing is shrunk
    seed, epoch, start : epoch counts up with each sweep, start tells blocks of an epoch apart
    """

    mixed_runs: int
    seed: int
    epoch: int
    start: int


def mixed_runs_of(X, with_bias):
    """How many runs to shuffle together: a function of shape and entries only.

    Data that caches hold is shuffled as a whole.  Larger data needs it only with a bias, whose weight couples
    all rows: without, runs stay in order (0).
    """
    n_rows, entries = (len(X.indptr) - 1, len(X.data)) if isinstance(X, CSR) else (len(X), X.size)
    runs = max(int(MIXED_BYTES * n_rows // max(8 * entries * RUN_ROWS, 1)), 1)
    return runs if with_bias or runs * RUN_ROWS >= n_rows else 0


@register_jitable
def _mix64(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@register_jitable
def stream_of(seed, epoch, start):
    """Start of a stream of random numbers that is a function of (seed, epoch, start) only."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = _mix64(np.uint64(seed) + golden)
    state = _mix64(state ^ (np.uint64(epoch) * golden))
    return _mix64(state ^ (np.uint64(start) * golden))


@register_jitable
def pick(state, n):
    """(the stream's new state, a random number in range(n))"""
    state += np.uint64(0x9E3779B97F4A7C15)
    return state, np.int64(((_mix64(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@register_jitable
def _shuffle(order, first, stop, state):
    """Fisher-Yates on order[first:stop] with splitmix64; returns the stream's new state."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    for t in range(stop - 1, first, -1):
        state += golden
        r = _mix64(state) >> np.uint64(32)
        u = first + np.int64((r * np.uint64(t - first + 1)) >> np.uint64(32))
        order[t], order[u] = order[u], order[t]
    return state


@register_jitable
def row_at(at, i):
    """The working row of local row i: at[i], or i itself where `at` is empty."""
    return at[i] if at.shape[0] else i


@register_jitable
def _rows_of_runs(runs, first, stop, n_rows, at, active, order, mixed_runs, state):
    """Fill `order` with the active rows of runs[first:stop]; returns how many.  All else as for `fill_order`."""
    n = 0
    mixed = 0
    for b in range(first, stop):
        a = runs[b] * RUN_ROWS
        for i in range(a, min(a + RUN_ROWS, n_rows)):
            # No branch, which nothing could guess where some rows are active: the next row may take the place.
            order[n] = i
            n += 1 if active.shape[0] == 0 else np.int64(active[row_at(at, i)] != 0)
        if mixed_runs > 0 and ((b - first) % mixed_runs == mixed_runs - 1 or b == stop - 1):
            state = _shuffle(order, mixed, n, state)
            mixed = n
    return n


@register_jitable
def fill_order(n_rows, at, active, order, runs, mixed_runs, seed, epoch, start):
    """Fill `order` with the local rows whose working row is active, in visiting order; returns how many.

    n_rows : int               local rows
    at : int64, (n_rows,) or (0,)
    active : uint8, by working row; (0,) where all are
    order : int64, (n_rows,)   filled
    runs : int64, (ceil(n_rows / RUN_ROWS),)   work space
    mixed_runs : int           runs shuffled together row by row; 0: rows of a run stay in order
                               WITH_REPLACEMENT: n_rows draws from all rows, whether active or not
                               AS_GIVEN: `order` stays as it is, all n_rows of it
    """
    if mixed_runs == AS_GIVEN:
        return n_rows
    state = stream_of(seed, epoch, start)
    if mixed_runs == WITH_REPLACEMENT:
        for t in range(n_rows):
            state, order[t] = pick(state, n_rows)
        return n_rows
    n_runs = -(-n_rows // RUN_ROWS)
    for b in range(n_runs):
        runs[b] = b
    state = _shuffle(runs, 0, n_runs, state)
    return _rows_of_runs(runs, 0, n_runs, n_rows, at, active, order, mixed_runs, state)


@njit(cache=True)
def part_of_order(n_rows, n_runs, first, stop, mixed_runs, key, number):
    """Rows of some of the runs, in the order in which a sweep over all visits them: int64, (number of rows,).

    n_rows : int       rows at present, of `n_runs` runs that there may be
    first, stop : of the runs in their random order: parts that follow one another are the whole sweep
    mixed_runs : as for `fill_order`;  key : (seed, epoch);  number : of the sweep
    """
    runs = np.arange(n_runs)
    state = _shuffle(runs, 0, n_runs, stream_of(key[0], key[1], number))
    order = np.empty((stop - first) * RUN_ROWS, np.int64)
    everything = np.empty(0, np.uint8)
    state = _mix64(state ^ np.uint64(first))  # parts are mixed apart
    return order[: _rows_of_runs(runs, first, stop, n_rows, order[:0], everything, order, mixed_runs, state)]


@njit(cache=True)
def shuffled(n, seed, epoch, start):
    """A random order of range(n), keyed by (seed, epoch, start): int64, shape (n,)."""
    order = np.arange(n)
    _shuffle(order, 0, n, stream_of(seed, epoch, start))
    return order


@njit(cache=True)
def visiting_order(active, mixed_runs, seed, epoch, start):
    """The rows that sweep `epoch` visits, in order: int64, shape (number of active rows,)."""
    n = active.shape[0]
    order, runs = np.empty(n, np.int64), np.empty(-(-n // RUN_ROWS), np.int64)
    return order[: fill_order(n, np.empty(0, np.int64), active, order, runs, mixed_runs, seed, epoch, start)]


@njit(cache=True)
def rows_of(ranges, n):
    """The rows of some ranges, one range after another: int64, (n,).

    ranges : int64, (n_ranges, 2)   first row, and the row behind the last

    Short, and so it keeps the interpreter's lock: to get that back from threads that read takes longer.
    """
    rows = np.empty(n, np.int64)
    place = 0
    for k in range(ranges.shape[0]):
        for row in range(ranges[k, 0], ranges[k, 1]):
            rows[place] = row
            place += 1
    return rows


@njit(cache=True, nogil=True)
def draw(start, seed, epoch, out):
    """out[i] = a number in [0, 1) that belongs to row start + i in this epoch; out is float64, shape (n_rows,)."""
    key = stream_of(seed, epoch, np.uint64(1) << np.uint64(59))
    for i in range(out.shape[0]):
        out[i] = (
            np.float64(_mix64(key ^ (np.uint64(start + i) * np.uint64(0x9E3779B97F4A7C15))) >> np.uint64(11)) * 2.0**-53
        )
