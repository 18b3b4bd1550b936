"""Read sparse rows from lists in Arrow columns: find them by the C data interface, and copy them to CSR arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, part_of_loop
from bigsvm.compiled.tables.arrow_memory import BUFFERS, CHILDREN, LENGTH, NULLS, OFFSET, read_at, release
from bigsvm.compiled.tables.taken_rows import take_entries

TO_BE_LOOKED_AT = -1

_KIND, _SIZE = 0, 1
"""Numbers of two fields in a vector of Spark ML: whether it is dense, and its size."""


class Lists(NamedTuple):
    """Where the lists of a batch are found.

    vectors : int      number of the column of Spark ML vectors; -1 if there is none.  A vector is sparse if its first
                       field, an int8, is 0; its size is an int32
    indices, values : int   numbers of the two columns of lists, in the batch, or in the vectors if there are any
    wide : int         1 if the offsets of the lists have 64 bits, 0 if they have 32
    label : int        number of the column of labels in the batch
    stored : shape (0,)     an array of the dtype of the indices
    """

    vectors: int
    indices: int
    values: int
    wide: int
    label: int
    stored: np.ndarray


@inner_loop
def add_lists(batch, lists, n_features, row, indptr, to_data, to_indices, to_labels):
    """Copy the sparse rows and the labels of a batch.

    All of it is done in one call, because the work of several calls from Python would take as long as the copying.

    batch : int        address of an ArrowArray of structs, one for each row; it is released
    lists : Lists;  n_features : int
    row : int          number of the batch's first row among the n rows that are read
    indptr : int64, shape (n + 1,)        filled for these rows; indptr[row] is given
    to_data, to_indices : shape (capacity,)   filled from indptr[row] on; the values have the dtype of `to_data`
    to_labels : uint8, shape (n times the bytes of a label,)   filled with the bytes of the labels; (0,) without labels

    Returns the number of entries.  If there is no room for them, it is -1 - entries, and no entry is copied.  It is -1
    (TO_BE_LOOKED_AT) if the rows cannot be read like this: rows or labels may have nulls, some vectors may be dense or
    of another size, two lists of a row may differ in length, or entries may be invalid (`take_entries`).
    """
    n_rows = read_at(np.uint64(batch), np.uint64(LENGTH), np.int64)
    began, found = indptr[row], TO_BE_LOOKED_AT
    width = to_labels.shape[0] // (indptr.shape[0] - 1)
    if width == 0 or _take_labels(np.uint64(batch), lists.label, row, to_labels, width):
        found = _add(
            np.uint64(batch), lists, n_features, indptr[row : row + n_rows + 1], to_data[began:], to_indices[began:]
        )
    release(np.uint64(batch))
    return found


@part_of_loop
def _take_labels(batch, label, row, to_labels, width):
    """Copy the labels, `width` bytes each; returns False if some may be null."""
    column = _child(batch, label)
    if _may_have_nulls(column):
        return False
    skipped = read_at(batch, np.uint64(OFFSET), np.uint64) + read_at(column, np.uint64(OFFSET), np.uint64)
    at, to = _buffer(column, 1) + skipped * np.uint64(width), np.uint64(row * width)
    for k in range(read_at(batch, np.uint64(LENGTH), np.uint64) * np.uint64(width)):
        to_labels[to + k] = read_at(at, k, np.uint8)
    return True


@part_of_loop
def _add(batch, where, n_features, indptr, to_data, to_indices):
    """As `add_lists`, for arrays that begin with the first row of the batch, and without labels."""
    vectors, indices, values, wide, _, stored = where
    n_rows = np.uint64(indptr.shape[0] - 1)
    parent, skipped = batch, read_at(batch, np.uint64(OFFSET), np.uint64)
    if vectors >= 0:
        parent = _child(parent, vectors)
        skipped += read_at(parent, np.uint64(OFFSET), np.uint64)
        kinds, sizes = _child(parent, _KIND), _child(parent, _SIZE)
        if _may_have_nulls(parent) or _may_have_nulls(kinds) or _may_have_nulls(sizes):
            return TO_BE_LOOKED_AT
        kind_from = skipped + read_at(kinds, np.uint64(OFFSET), np.uint64)
        size_from = skipped + read_at(sizes, np.uint64(OFFSET), np.uint64)
        kinds, sizes = _buffer(kinds, 1), _buffer(sizes, 1)
        odd = False
        for i in range(n_rows):
            odd |= (read_at(kinds, kind_from + i, np.int8) != 0) | (
                read_at(sizes, size_from + i, np.int32) != n_features
            )
        if odd:
            return TO_BE_LOOKED_AT
    lists, other = _child(parent, values), _child(parent, indices)
    flat, flat_other = _child(lists, 0), _child(other, 0)
    if _may_have_nulls(lists) or _may_have_nulls(other) or _may_have_nulls(flat) or _may_have_nulls(flat_other):
        return TO_BE_LOOKED_AT
    from_here = skipped + read_at(lists, np.uint64(OFFSET), np.uint64)
    from_there = skipped + read_at(other, np.uint64(OFFSET), np.uint64)
    here, there = _buffer(lists, 1), _buffer(other, 1)
    first, first_other = _offset(here, from_here, wide), _offset(there, from_there, wide)
    began, odd = indptr[0], False
    for i in range(n_rows + np.uint64(1)):
        length = _offset(here, from_here + i, wide) - first
        odd |= length != _offset(there, from_there + i, wide) - first_other
        indptr[i] = began + length
    if odd:
        return TO_BE_LOOKED_AT
    n = indptr[n_rows] - began
    if n > min(to_data.shape[0], to_indices.shape[0]):
        return TO_BE_LOOKED_AT - n
    at_values = _flat_from(flat, first, to_data.itemsize)
    at_indices = _flat_from(flat_other, first_other, stored.itemsize)
    if not take_entries(at_values, at_indices, stored, indptr, n_features, to_data, to_indices):
        return TO_BE_LOOKED_AT
    return n


@part_of_loop
def _child(array, place):
    """The address of a child of an ArrowArray."""
    children = read_at(array, np.uint64(CHILDREN), np.uint64)
    return read_at(children, np.uint64(place), np.uint64)


@part_of_loop
def _buffer(array, place):
    return read_at(read_at(array, np.uint64(BUFFERS), np.uint64), np.uint64(place), np.uint64)


@part_of_loop
def _may_have_nulls(array):
    return read_at(array, np.uint64(NULLS), np.uint64) != 0 and _buffer(array, 0) != 0


@part_of_loop
def _offset(offsets, place, wide):
    if wide:
        return read_at(offsets, place, np.int64)
    return np.int64(read_at(offsets, place, np.int32))


@part_of_loop
def _flat_from(flat, first, itemsize):
    """The address of value `first` in an ArrowArray of numbers."""
    place = read_at(flat, np.uint64(OFFSET), np.uint64) + np.uint64(first)
    return _buffer(flat, 1) + place * np.uint64(itemsize)
