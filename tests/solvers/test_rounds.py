"""Rounds of several blocks: what each is given, and how their changes come together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.problem.problem import make_problem
from bigsvm.run.execute.local import SerialMapper
from bigsvm.solvers.dcd.dual_cd_rounds import round_task
from bigsvm.solvers.dcd.round_shares import Share, Update, run_rounds
from bigsvm.store.blocks import BlockGroup
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem


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


@pytest.mark.parametrize("sigma", [1.0, 4.0])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_change_of_w_is_what_the_change_of_alpha_makes(loss: str, sigma: float) -> None:
    """However stiff the local problem is: changes of all blocks are added, and w stays sum_i alpha_i y_i x_i."""
    X, y = random_problem(60, 5, seed=4, noise=0.3)
    rows = ArrayRows(X, y)
    problem = make_problem(FitConfig.of(solver="dcd", loss=loss, C=3.0, bias="none"), rows)
    local = {"alpha": np.zeros((60, 1)), "sqnorm": np.full((60, 1), -1.0)}
    w = np.zeros(6)
    share = Share(rows, BlockGroup(tuple(rows.refs(60))), problem, local, w, sigma, (0, 0))
    update = round_task(share)
    signs = np.where(rows.read(rows.refs(60)[0]).y == problem.positive[0], 1.0, -1.0)
    assert np.count_nonzero(update.local["alpha"]) > 10
    np.testing.assert_allclose(update.w[:5], (update.local["alpha"][:, 0] * signs) @ X, rtol=1e-9, atol=1e-12)
