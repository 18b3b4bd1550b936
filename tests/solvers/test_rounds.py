"""Rounds of several blocks: what each is given, and how their changes come together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from bigsvm.run.local import SerialMapper
from bigsvm.solvers.rounds import Update, run_rounds


def test_blocks_of_a_round_are_as_stiff_as_they_are_many() -> None:
    """All of a round see the same w, each local problem is as stiff as the round has blocks, and changes are added."""
    given: list[tuple[int, float, float]] = []
    read: list[int] = []

    def share(data: Any, group: Any, w: np.ndarray, sigma: float) -> Any:
        given.append((group, sigma, float(w[0])))
        return group

    def task(group: Any) -> Update:
        return Update({}, np.array([1.0 + group, 0.0]), np.zeros((1, 4)), 1, 10 * group)

    ctx: Any = SimpleNamespace(parallel=3, data=None, mapper=SerialMapper(), charge=read.append)
    groups: Any = range(5)
    w = np.array([100.0, 7.0])
    order = [group for group, _ in run_rounds(task, groups, share, w, ctx)]
    assert order == [0, 1, 2, 3, 4]
    assert given == [(0, 3.0, 100.0), (1, 3.0, 100.0), (2, 3.0, 100.0), (3, 3.0, 106.0), (4, 3.0, 106.0)]
    assert w.tolist() == [115.0, 7.0]
    assert read == [0, 10, 20, 30, 40]
