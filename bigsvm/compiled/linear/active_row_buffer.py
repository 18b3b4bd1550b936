"""Admission to and eviction from the row buffer, which keeps rows in memory while the others stream by.

A *slot* holds one row.  Slots 0, ..., n - 1 are in use, in the order in which their rows came.  The entries of slot k
are row k of a matrix A, which is usually packed (`packed.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, njit
from bigsvm.compiled.shared.packed import move_rows, pack_row
from bigsvm.compiled.shared.vectors.moving import move_along


class Slots(NamedTuple):
    """What belongs to each slot besides the entries of its row; all arrays have the shape (n_slots,).

    row : int64        number of the row in working order
    y : int32 or float64   class code, or target
    sample_weight : float64, or (0,) for ones
    sqnorm : float64   squared norm of the exact row
    score : float32    largest violation of the row at its last visit
    """

    row: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray
    sqnorm: np.ndarray
    score: np.ndarray


@inner_loop
def admit(A, slots, n, rows, order, visited, score, threshold, begin, streams):
    """Append the visited rows whose score is above `threshold`; returns (slots in use, visits considered).

    If a row finds no room, the loop stops there: that visit is not counted as considered.

    A : PackedCSR, PackedDense, CSR or a dense array;  slots : Slots;  n : slots in use
    rows, order, score : as `dual_cd_visit` took and filled them;  visited : rows in `order`
    begin : first visit to consider;  streams : uint8, by number in working order, set to 0 for admitted rows
    """
    at, sample_weight = rows.at, rows.sample_weight
    for t in range(begin, visited):
        i = order[t]
        if not score[i] > threshold:
            continue
        if n >= slots.row.shape[0] or not pack_row(A, n, rows.X, i):
            return n, t
        slots.row[n], slots.y[n] = at[i], rows.y[i]
        if sample_weight.shape[0]:
            slots.sample_weight[n] = sample_weight[i]
        slots.sqnorm[n], slots.score[n] = rows.sqnorm[i], score[i]
        streams[at[i]] = 0
        n += 1
    return n, visited


@inner_loop
def evict(A, slots, n, threshold, streams):
    """Remove the rows whose score is not above `threshold`, and close the gaps; returns the slots in use.

    streams : set to 1 for removed rows
    """
    kept = 0
    slot = 0
    while slot < n:
        while slot < n and not slots.score[slot] > threshold:
            streams[slots.row[slot]] = 1
            slot += 1
        first = slot
        while slot < n and slots.score[slot] > threshold:
            slot += 1
        if kept < first < slot:
            move_rows(A, kept, first, slot)
            move_along(slots.row, kept, first, slot)
            move_along(slots.y, kept, first, slot)
            if slots.sample_weight.shape[0]:
                move_along(slots.sample_weight, kept, first, slot)
            move_along(slots.sqnorm, kept, first, slot)
            move_along(slots.score, kept, first, slot)
        kept += slot - first
    return kept


@njit(cache=True)
def count_by_bits(bits, rows, shift, counts):
    """counts[bits[i] >> shift] += 1 for each i in `rows`: a histogram of float32 numbers by their leading bits.

    bits : int32, the bits of the numbers, whose sign is ignored;  rows : int64
    counts : int64; larger numbers are counted in the last place

    The call is short, so it keeps the interpreter's lock: to get the lock back from threads that read takes longer.
    """
    last = counts.shape[0] - 1
    for i in rows:
        counts[min((bits[i] & 0x7FFFFFFF) >> shift, last)] += 1
