"""Find the number of each text among many known texts, by a hash table: the codes of a column of categories."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, part_of_loop

_PRIME = np.uint64(0x9E3779B97F4A7C15)


@inner_loop
def place_texts(ends, text, table):
    """Fill the hash table of n known texts, no two of which are equal.

    ends : int64, shape (n + 1,)   text k is text[ends[k]:ends[k + 1]];  text : uint8
    table : int32, (n_slots,), n_slots a power of two above n; -1 everywhere before, then numbers of texts
    """
    last = np.uint64(table.shape[0] - 1)
    for k in range(ends.shape[0] - 1):
        at = _hash_of(text, ends[k], ends[k + 1]) & last
        while table[at] >= 0:
            at = (at + np.uint64(1)) & last
        table[at] = k


@inner_loop
def code_texts(offsets, texts, ends, known, table, codes):
    """codes[i] = the number of text i among the known ones, -1 if it is none of them.

    offsets : int64, shape (n_rows + 1,)   text i is texts[offsets[i]:offsets[i + 1]];  texts : uint8
    ends, known, table : `ends`, `text` and `table` of `place_texts`;  codes : int64, shape (n_rows,), filled
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
