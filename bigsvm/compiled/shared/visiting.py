"""Random orders in which to visit rows: functions of (seed, epoch, place) alone, and kind to caches.

Rows are visited in *runs* of RUN_ROWS neighbours, which come in random order.  The rows of a run keep their order, or
`mixed_runs` runs at a time are shuffled together, row by row.  If the rows are in no particular order, runs alone
converge like a full shuffle (`docs/order-of-rows.md`) at several times its speed, because memory is read forward.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.shared.rows import CSR

RUN_ROWS = 64
MIXED_BYTES = 6 << 20  # bytes of runs that are shuffled together, about what caches hold
WITH_REPLACEMENT = -1  # a value of `mixed_runs`: every visit is to a row that is drawn anew
AS_GIVEN = -2  # a value of `mixed_runs`: the order is given by the caller


class VisitingOrder(NamedTuple):
    """The key of a random order of rows; all are int.  See `fill_order`.

    mixed_runs : runs that are shuffled together; 0, WITH_REPLACEMENT (then nothing is shrunk) or AS_GIVEN
    seed : seed of the fit;  epoch : number of the sweep;  start : first row of the block, to tell blocks apart
    """

    mixed_runs: int
    seed: int
    epoch: int
    start: int


def mixed_runs_of(X, with_bias):
    """The number of runs to shuffle together, from the shape and the number of entries of X alone.

    Data that fit in caches are shuffled as a whole.  Larger data are mixed only with a bias, whose weight couples all
    rows.  Without a bias the result is 0: rows of a run stay in order.
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
    """The state, uint64, of a stream of random numbers that depends on (seed, epoch, start) alone."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = _mix64(np.uint64(seed) + golden)
    state = _mix64(state ^ (np.uint64(epoch) * golden))
    return _mix64(state ^ (np.uint64(start) * golden))


@register_jitable
def pick(state, n):
    """(the new state of the stream, a random number in range(n))."""
    state += np.uint64(0x9E3779B97F4A7C15)
    return state, np.int64(((_mix64(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@register_jitable
def _shuffle(order, first, stop, state):
    """Shuffle order[first:stop] by Fisher and Yates with splitmix64; returns the new state of the stream."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    for t in range(stop - 1, first, -1):
        state += golden
        r = _mix64(state) >> np.uint64(32)
        u = first + np.int64((r * np.uint64(t - first + 1)) >> np.uint64(32))
        order[t], order[u] = order[u], order[t]
    return state


@register_jitable
def row_at(at, i):
    """The number in working order of row i of a block: at[i], or i itself if `at` is empty."""
    return at[i] if at.shape[0] else i


@register_jitable
def _rows_of_runs(runs, first, stop, n_rows, at, active, idle, order, mixed_runs, state):
    """Fill `order` with the active rows of runs[first:stop]; returns their number.  Other arguments: `fill_order`."""
    n = 0
    mixed = 0
    for b in range(first, stop):
        if not (idle.shape[0] and idle[runs[b]]):
            a, before = runs[b] * RUN_ROWS, n
            for i in range(a, min(a + RUN_ROWS, n_rows)):
                # Without a branch, which could not be predicted: a row that is not active is overwritten by the next.
                order[n] = i
                n += 1 if active.shape[0] == 0 else np.int64(active[row_at(at, i)] != 0)
            if idle.shape[0] and n == before:
                idle[runs[b]] = 1
        if mixed_runs > 0 and ((b - first) % mixed_runs == mixed_runs - 1 or b == stop - 1):
            state = _shuffle(order, mixed, n, state)
            mixed = n
    return n


@register_jitable
def fill_order(n_rows, at, active, idle, order, runs, mixed_runs, seed, epoch, start):
    """Fill `order` with the active rows of a block, in the order in which to visit them; returns their number.

    n_rows : int               rows of the block
    at : int64, (n_rows,)      their numbers in working order; or (0,) if these are 0, 1, ...
    active : unsigned integers, by number in working order, 0 for rows to leave out; (0,) if all are active
    idle : uint8, (ceil(n_rows / RUN_ROWS),)   1 for runs that have no active row; others without one are marked, and
        pass at once the next time, as long as no row becomes active again;  (0,) to look at all runs
    order : int64, (n_rows,)   filled with numbers of rows in the block
    runs : int64, (ceil(n_rows / RUN_ROWS),)   work space
    mixed_runs : int           runs shuffled together row by row; 0: rows of a run stay in order
                               WITH_REPLACEMENT: n_rows draws from all rows, active or not
                               AS_GIVEN: `order` is used as it is; n_rows is returned
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
    return _rows_of_runs(runs, 0, n_runs, n_rows, at, active, idle, order, mixed_runs, state)


@njit(cache=True)
def part_of_order(n_rows, n_runs, first, stop, mixed_runs, key, number):
    """A part of the order in which a sweep visits rows: int64, (number of rows in the part,).

    n_rows, n_runs : int   rows at present, and runs that there may be; n_rows may grow between two parts
    first, stop : int      the part has the runs [first, stop) of their random order; consecutive parts make a sweep
    mixed_runs : as for `fill_order`;  key : (seed, epoch);  number : int, of the sweep
    """
    runs = np.arange(n_runs)
    state = _shuffle(runs, 0, n_runs, stream_of(key[0], key[1], number))
    order = np.empty((stop - first) * RUN_ROWS, np.int64)
    everything = np.empty(0, np.uint8)
    state = _mix64(state ^ np.uint64(first))  # each part has a stream of its own
    return order[
        : _rows_of_runs(runs, first, stop, n_rows, order[:0], everything, everything, order, mixed_runs, state)
    ]


@njit(cache=True)
def shuffled(n, seed, epoch, start):
    """A random order of range(n), keyed by (seed, epoch, start): int64, shape (n,)."""
    order = np.arange(n)
    _shuffle(order, 0, n, stream_of(seed, epoch, start))
    return order


@njit(cache=True)
def visiting_order(active, mixed_runs, seed, epoch, start):
    """The active rows in the order in which sweep `epoch` visits them: int64, (number of active rows,).

    active : uint8, (n_rows,);  other arguments as for `fill_order`
    """
    n = active.shape[0]
    order, runs = np.empty(n, np.int64), np.empty(-(-n // RUN_ROWS), np.int64)
    all_runs = np.empty(0, np.uint8)
    return order[: fill_order(n, np.empty(0, np.int64), active, all_runs, order, runs, mixed_runs, seed, epoch, start)]


@njit(cache=True)
def rows_of(ranges, n):
    """The rows of some ranges, one range after another: int64, (n,).

    ranges : int64, (n_ranges, 2)   first row of each, and the row after its last

    The call is short, so it keeps the interpreter's lock: to get the lock back from threads that read takes longer.
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
    """out[i] = the random number in [0, 1) of row start + i in this epoch.  out : float64, shape (n_rows,), filled"""
    key = stream_of(seed, epoch, np.uint64(1) << np.uint64(59))
    for i in range(out.shape[0]):
        out[i] = (
            np.float64(_mix64(key ^ (np.uint64(start + i) * np.uint64(0x9E3779B97F4A7C15))) >> np.uint64(11)) * 2.0**-53
        )
