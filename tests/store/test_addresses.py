"""Addresses are made when they are asked for, and are those that a list would hold."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bigsvm.store.addresses import LazyRefs, in_groups
from bigsvm.store.blocks import BlockGroup, BlockRef


def test_they_are_those_of_a_list() -> None:
    refs = LazyRefs(10, 4, 2.5)
    expected = [BlockRef(0, 4, 18), BlockRef(4, 8, 18), BlockRef(8, 10, 13)]
    assert list(refs) == expected == refs[:]
    assert len(refs) == 3
    assert refs[-1] == expected[-1]
    assert refs[1:] == expected[1:]
    with pytest.raises(IndexError):
        refs[3]


@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_groups_are_those_of_a_list(blocks: int) -> None:
    refs, order = LazyRefs(17, 3, 1.0), np.array([5, 0, 3, 1, 4, 2])
    groups = in_groups(refs, order, blocks)
    cuts = range(0, len(order), blocks)
    expected = [BlockGroup(tuple(refs[k] for k in order[a : a + blocks])) for a in cuts]
    assert list(groups) == expected
    assert len(groups) == len(expected)
    assert list(groups[1:]) == expected[1:]
    assert list(groups[1:][1:]) == expected[2:]
    assert groups[-1] == expected[-1]
    assert [group.n_rows for group in groups] == [group.n_rows for group in expected]


def test_a_thousand_times_more_rows_take_no_more_memory() -> None:
    few, many = LazyRefs(10**6, 10, 1.0), LazyRefs(10**9, 10, 1.0)
    assert sum(map(sys.getsizeof, vars(few).values())) + 64 >= sum(map(sys.getsizeof, vars(many).values()))
    assert many[10**8 - 1].stop == 10**9
