"""Texts by their number among many known ones: what a table of text columns asks of each of its rows."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, part_of_loop

_PRIME = np.uint64(0x9E3779B97F4A7C15)


@inner_loop
def place_texts(ends, text, table):
    """Put the numbers of texts to places that `code_texts` finds them at.

    ends : int64, shape (n + 1,)   where text k begins and ends in `text`, uint8; no two are equal
    table : int32, shape (a power of two, more than n,)   -1 everywhere; out
    """
    last = np.uint64(table.shape[0] - 1)
    for k in range(ends.shape[0] - 1):
        at = _hash_of(text, ends[k], ends[k + 1]) & last
        while table[at] >= 0:
            at = (at + np.uint64(1)) & last
        table[at] = k


@inner_loop
def code_texts(offsets, texts, ends, known, table, codes):
    """codes[i] = the number of text i among the known ones, -1 where it is none of them.

    offsets : int64, shape (n_rows + 1,)   where texts begin and end in `texts`, uint8
    ends, known, table : of `place_texts`;  codes : int64, shape (n_rows,), out
    """
    last = np.uint64(table.shape[0] - 1)
    for i in range(codes.shape[0]):
        a, b = offsets[i], offsets[i + 1]
        at = _hash_of(texts, a, b) & last
        while table[at] >= 0 and not _same(texts, a, b, known, ends[table[at]], ends[table[at] + 1]):
            at = (at + np.uint64(1)) & last
        codes[i] = table[at]


@part_of_loop
def _hash_of(text, a, b):
    found = np.uint64(b - a)
    for k in range(a, b):
        found = (found ^ np.uint64(text[k])) * _PRIME
        found ^= found >> np.uint64(29)
    return found


@part_of_loop
def _same(one, a, b, other, c, d):
    k, n = 0, b - a
    if n == d - c:
        while k < n and one[a + k] == other[c + k]:
            k += 1
    return n == d - c and k == n
