"""Arrays on cache lines of their own."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.kernel.values.layout import TileWorkspace
from bigsvm.compiled.kernel.values.own_lines import zeros_on_own_lines
from bigsvm.compiled.kernel.values.tile import GROUP, LANES
from bigsvm.compiled.kernel.values.whole import AHEAD

LINE = 64


def test_no_two_arrays_share_a_line() -> None:
    for _ in range(20):  # wherever the allocator puts them
        made = zeros_on_own_lines([(3, 5), (0, 64), (7,), (1,)], [np.float32, np.float64, np.int8, np.float64])
        assert [(a.shape, a.dtype.name) for a in made] == [
            ((3, 5), "float32"), ((0, 64), "float64"), ((7,), "int8"), ((1,), "float64")
        ]  # fmt: skip
        some = [a for a in made if a.size]
        starts = [a.ctypes.data for a in some]
        assert all(start % LINE == 0 for start in starts)
        for a, follows in zip(some, [*starts[1:], 1 << 62], strict=True):
            assert -(-(a.ctypes.data + a.nbytes) // LINE) * LINE <= follows
            assert a.flags.c_contiguous
            assert a.flags.writeable
            assert not a.any()
            a[...] = 1


def test_workspaces_have_a_tile_for_the_features() -> None:
    made = TileWorkspace.zeros(9, np.float32, 2)
    assert [a.shape for a in made] == [(9, LANES), (LANES,), (GROUP, LANES), (2, LANES), (AHEAD, LANES)]
    assert [a.dtype.name for a in made] == ["float32"] * 3 + ["float64", "int32"]
