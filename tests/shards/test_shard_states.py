"""What is known of a shard can be lost at any time: it is made anew from a save and the log of rounds."""

from __future__ import annotations

import errno
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.errors import DataError, OutputError, ReadFailed
from bigsvm.problem.problem import make_problem
from bigsvm.run.execute.dask_shards import Placement
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.dcd.shards.round_messages import Round
from bigsvm.solvers.dcd.shards.shard_rows import ShardRows
from bigsvm.solvers.dcd.shards.sharded_pass import ShardedGroup
from bigsvm.solvers.dcd.shards.stiffness import N_BUCKETS
from bigsvm.solvers.shard_tasks import Shard, log_round, round_task, save_task
from bigsvm.store.blocks import BlockRef
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.tasks import ShardSum, TreeSum, added
from bigsvm.testing.problems import random_problem

HALF = np.full(1, 0.5)


def shard_at(home: Path, row_buffer_bytes: int = 4000) -> Shard:
    X, y = random_problem(300, 5, seed=4, noise=0.3)
    data = ArrayRows(X, y)
    problem = make_problem(FitConfig.of(solver="dcd", loss="hinge", C=0.3), data)
    home.mkdir(exist_ok=True)
    return Shard(ShardRows(data, problem, 1, 3, 16, range(4, 15), 2, 3, row_buffer_bytes, True, 4), None, str(home))


def rounds(n: int) -> list[tuple[Round, np.ndarray]]:
    rng = np.random.default_rng(0)
    theta = [np.ones(1), HALF]
    stiffness = np.append(np.linspace(3.0, 1.0, N_BUCKETS), 0.0)
    buckets = [np.empty(0, np.uint8), np.arange(5, dtype=np.uint8)]
    told = []
    for r in range(n):
        afresh, beta = np.array([r == 6]), np.full(1, (r % 3) / 3)
        this = Round(r, r // 4, r % 4, 4, stiffness, theta[r % 2], afresh, beta, 0, buckets[r == 1], exact=r >= 8)
        told.append((this, rng.normal(size=6).astype(np.float32)))
    return told


def forget() -> None:
    """As if the process had been killed."""
    shard_tasks._HELD.clear()


def worked(home: Path, lost_before: tuple[int, ...], saves: tuple[int, ...], n: int = 12) -> list[Any]:
    shard, found = shard_at(home), []
    for this, w in rounds(n):
        if this.number in saves:
            save_task(shard, (this.number, this.theta))
        if this.number in lost_before:
            forget()
        log_round(shard.home, this, w)
        found.append(round_task(shard, (this, w)))
    save_task(shard, (n, np.ones(1)))
    tree = shard_tasks.saved_tree(shard.home, 1, n)
    found.append(
        [tree["alpha"].copy(), tree["streams"].copy(), tree["row_buffer"]["n"], tree["row_buffer"]["threshold"]]
    )
    forget()
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def test_the_next_group_is_requested_before_one_is_worked_on(tmp_path: Path) -> None:
    """Else the disk is idle while the shard works."""
    shard, told = shard_at(tmp_path), list[tuple[str, int]]()
    data: Any = shard.rows.data
    plain = data.read

    def tell(what: str, ref: BlockRef) -> None:
        told.append((what, ref.start))

    data.read = lambda ref: tell("read", ref) or plain(ref)
    data.will_need = lambda ref: tell("requested", ref)
    log_round(shard.home, *rounds(1)[0])
    round_task(shard, rounds(1)[0])
    forget()
    order = {what: [start for one, start in told if one == what] for what in ("requested", "read")}
    assert order["requested"] == order["read"]
    ahead = [0] * len(told)
    for place, (what, _) in enumerate(told):
        ahead[place] = ahead[place - 1] + (1 if what == "requested" else -1)
    assert len(order["read"]) > 2
    assert ahead[-1] == 0
    assert all(ahead[place] > 0 for place in range(len(told) - 2))  # until the last group is read


@pytest.mark.parametrize("saves", [(), (5,), (4, 8)])
@pytest.mark.parametrize("lost_before", [(0,), (1,), (7,), (5, 6, 8, 11)])
def test_a_lost_state_is_replayed_to_the_bit(
    saves: tuple[int, ...], lost_before: tuple[int, ...], tmp_path: Path
) -> None:
    whole = worked(tmp_path / "whole", (), ())
    assert len({sum_.vectors[0].tobytes() for sum_ in whole[:-1]}) == 12  # every round moved something else
    assert same(worked(tmp_path / "lost", lost_before, saves), whole)


def test_a_round_that_ran_already_runs_again_to_the_same_result(tmp_path: Path) -> None:
    """A task whose result was lost on its way is run again where its state has already moved on."""
    shard = shard_at(tmp_path / "home")
    for this, w in rounds(5):
        log_round(shard.home, this, w)
        first = round_task(shard, (this, w))
        assert same(round_task(shard, (this, w)), first)
    forget()


@pytest.mark.parametrize("row_buffer_bytes", [700, 1500, 4000])
def test_a_row_that_leaves_the_row_buffer_and_is_met_again_moves_once(row_buffer_bytes: int, tmp_path: Path) -> None:
    """The line search knows exactly how far alpha moved, also in a round in which rows change their place."""
    shard = shard_at(tmp_path, row_buffer_bytes)
    state = shard.rows.new_state()
    told = [this._replace(theta=np.ones(1), afresh=np.zeros(1, bool)) for this, _ in rounds(40)]
    for this, (_, w) in zip(told, rounds(40), strict=True):
        before = float(state.alpha.sum())
        found = state.work(shard.rows, this, w).each[0]
        assert found.linear[0] == pytest.approx(float(state.alpha.sum()) - before, abs=1e-12)


def test_a_damaged_save_is_passed_over(tmp_path: Path) -> None:
    home = tmp_path / "home"
    whole = worked(tmp_path / "whole", (), ())
    shard = shard_at(home)
    for this, w in rounds(12):
        if this.number in (4, 8):
            save_task(shard, (this.number, this.theta))
        log_round(shard.home, this, w)
        round_task(shard, (this, w))
    newest = home / "00001-00000008"
    victim = max(newest.glob("*.npy"), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    forget()
    save_task(shard, (12, np.ones(1)))
    tree = shard_tasks.saved_tree(shard.home, 1, 12)
    assert np.array_equal(tree["alpha"], whole[-1][0])
    forget()
    shutil.rmtree(home)


def test_a_damaged_save_whose_rounds_are_no_longer_kept_is_said_to_be(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shard = shard_at(home)
    for this, w in rounds(5):
        log_round(shard.home, this, w)
        round_task(shard, (this, w))
        if this.number in (2, 4):
            save_task(shard, (this.number + 1, this.theta))
            shard_tasks.drop_log(shard.home, this.number + 1)
    victim = max((home / "00001-00000005").glob("*.npy"), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-1] + b"\x7f")
    forget()
    with pytest.raises(ReadFailed, match=r"the state of shard 1 after round 5 is lost.*digest") as caught:
        save_task(shard, (5, np.ones(1)))
    assert caught.value.code == 74
    assert "bigsvm resume RUN" in caught.value.hint
    forget()


def test_rounds_that_went_half_way_are_settled(tmp_path: Path) -> None:
    shard = shard_at(tmp_path / "home", row_buffer_bytes=0)
    this, _ = rounds(1)[0]
    round_task(shard, (this, np.zeros(6, np.float32)))
    save_task(shard, (1, np.ones(1)))
    full = shard_tasks.saved_tree(shard.home, 1, 1)["alpha"].copy()
    forget()
    shutil.rmtree(tmp_path / "home")
    shard = shard_at(tmp_path / "home", row_buffer_bytes=0)
    round_task(shard, (this, np.zeros(6, np.float32)))
    save_task(shard, (1, HALF))
    half = shard_tasks.saved_tree(shard.home, 1, 1)["alpha"]
    assert np.count_nonzero(full) > 10
    np.testing.assert_array_equal(half, 0.5 * full)
    forget()


@pytest.mark.parametrize("n", [1, 2, 4, 5, 16, 17, 63, 64, 70])
def test_a_tree_sum_is_the_tree_of_fours(n: int) -> None:
    rng = np.random.default_rng(n)
    parts = [ShardSum((k,), (rng.normal(size=3).astype(np.float32) * 10.0 ** rng.integers(-6, 6),)) for k in range(n)]
    total = TreeSum()
    for part in parts:
        total.take(part)
    level = parts
    while len(level) > 1:
        level = [added(*level[first : first + 4]) for first in range(0, len(level), 4)]
    assert total.total().each == tuple(range(n))
    assert total.total().vectors[0].tobytes() == level[0].vectors[0].tobytes()


def test_a_shard_stays_where_it_is_while_its_worker_does() -> None:
    placement = Placement()
    first = placement.of(8, ["a", "b"])
    assert sorted(first) == ["a"] * 4 + ["b"] * 4
    assert placement.of(8, ["b", "a"]) == first
    alone = placement.of(8, ["b"])
    assert alone == ["b"] * 8
    joined = placement.of(8, ["b", "c"])
    assert sorted(joined) == ["b"] * 4 + ["c"] * 4
    three = placement.of(8, ["b", "c", "d"])
    assert max(three.count(name) for name in "bcd") == 3
    assert sum(before == after for before, after in zip(joined, three, strict=True)) == 6


def test_a_full_scratch_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By saves on workers and by the log of the caller; and nothing half-written stays."""
    home = Path(shard_tasks.new_home(tmp_path))
    shard, (this, w) = shard_at(home), rounds(1)[0]

    def full(folder: Path, tree: Any) -> None:
        (folder / "some.npy").write_bytes(b"some")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shard_tasks, "write_tree", full)
    for write in (lambda: log_round(shard.home, this, w), lambda: save_task(shard, (0, np.ones(1)))):
        with pytest.raises(OutputError, match=r"No space left on device, \d+ bytes needed, \d+ are free") as caught:
            write()
        assert caught.value.where == str(tmp_path)
    assert list(home.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="Not a directory"):
        shard_tasks.new_home(tmp_path / "file")


def test_the_log_keeps_the_rounds_since_the_save(tmp_path: Path) -> None:
    for this, w in rounds(4):
        log_round(str(tmp_path), this, w)
    shard_tasks.drop_log(str(tmp_path), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-00000002", "round-00000003"]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e200])
def test_a_bias_that_swings_ever_wider_is_refused_by_name(value: float) -> None:
    refuse: Any = partial(ShardedGroup._refuse_divergence, None)
    refuse("rows.zarr", np.array([1e30, 0.0]), np.array([1e30], np.float32))
    with pytest.raises(DataError, match="the bias does not converge") as caught:
        refuse("rows.zarr", np.array([1.0]), np.array([0.0, value]))
    assert "--shards 1" in str(caught.value.hint)
