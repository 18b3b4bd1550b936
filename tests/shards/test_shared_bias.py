"""The bias between the rounds of shards: where the controller leads nowhere, it is a weight like the others."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.problem.certificate import Accumulator
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd.shards.sharded_pass import ShardedGroup
from bigsvm.solvers.dcd.shards.shared_bias import SharedBias
from bigsvm.store.formats.array_rows import ArrayRows
from tests.run.test_checkpoint import stopped
from tests.shards.apart import Apart
from tests.shards.test_sharded_fits import TARGETS, folder_bytes


def wild_rows(loss: str, n_classes: int) -> ArrayRows:
    """Costs that differ by 1e8, and rows without entries, which answer to the bias alone."""
    rng, n = np.random.default_rng(5), 60
    X = rng.normal(size=(n, 3)).astype(np.float32)
    X[::7] = 0.0
    weight = 10.0 ** rng.uniform(-5, 3, n)
    score = X @ np.array([1.0, 0.5, 0.2]) + 0.5 * rng.normal(size=n)
    if loss in TARGETS:
        return ArrayRows(X, 3.0 * score + 5.0, task="regression", sample_weight=weight)
    return ArrayRows(X, np.digitize(score, [-0.6, 0.6] if n_classes == 3 else [0.3]), sample_weight=weight)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(
    ("loss", "n_classes", "bias_scale", "passes", "stop"),
    [
        (TARGETS[0], 2, 1.0, 13, 0), (TARGETS[1], 2, 10.0, 5, 6), ("squared_hinge", 2, 1.0, 5, 0),
        ("squared_hinge", 3, 1.0, 5, 14),
    ],
)  # fmt: skip
def test_costs_of_very_different_rows_swing_nothing(
    loss: str, n_classes: int, bias_scale: float, passes: int, stop: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The dual value rises above 0, wherever rows are, and where a run was stopped before or after the bias joined."""
    joined: list[bool] = []
    judge = SharedBias.judge
    monkeypatch.setattr(SharedBias, "judge", lambda bias: joined.append(bias.joined) or judge(bias))
    rows = wild_rows(loss, n_classes)
    config = FitConfig.of(
        solver="dcd", loss=loss, C=70.0, tol=1e-3, shards=3, rounds_per_pass=4, max_passes=passes, scheduler="serial",
        bias_scale=bias_scale,
    )  # fmt: skip
    whole = fit_store(rows, config)
    assert not joined[0]
    assert joined[-1]
    assert np.all(whole.certificate.dual > 0.0)
    assert np.all(whole.certificate.relative_gaps < 1.0)
    if not stop:
        return
    saves = Checkpoints(tmp_path / "c", {}, 1e9)
    assert "SIGTERM" in stopped(rows, config, saves, stop)
    monkeypatch.setattr("bigsvm.run.fit.fit.open_mapper", lambda *_: nullcontext(Apart()))
    again = fit_store(rows, config, checkpoints=saves, resume=True)
    assert folder_bytes(again, tmp_path / "m") == folder_bytes(whole, tmp_path / "m")


def gained(dual: float, linear: float, passes: int = 1) -> SharedBias:
    """A bias after so many passes that ended at the same dual value."""
    bias = SharedBias(2, 3.0)
    for _ in range(passes):
        bias.dual, bias.linear = np.array([5.0, dual]), np.array([9.0, linear])
        bias.judge()
        bias.dual[0] += 1.0
    return bias


@pytest.mark.parametrize(
    ("dual", "linear", "passes", "joined", "afresh"),
    [
        (-1.0, 1.0, 9, False, False), (-1.0, 1.0, 10, True, True), (7.0, 1.0, 10, False, False),
        (7.0, 1.0, 11, True, False),
        (-1.1e5, -100.0, 1, True, True), (-0.9e5, 100.0, 1, False, False),
    ],
)  # fmt: skip
def test_the_controller_is_given_up_where_the_dual_gains_nothing(
    dual: float, linear: float, passes: int, joined: bool, afresh: bool
) -> None:
    """After ten passes, or at once where alpha has lost all measure; a dual value below 0 is begun anew."""
    bias = gained(dual, linear, passes)
    assert bias.joined == joined
    bias.balance = np.array([2.0, 4.0])
    assert bias.begin_pass().tolist() == [False, afresh]
    assert bias.balance.tolist() == [2.0, 0.0 if afresh else 4.0]
    assert bias.begin_pass().tolist() == [False, False]
    assert bias.square(np.array([1.0, -2.0])).tolist() == ([9.0, 36.0] if joined else [0.0, 0.0])
    assert bool(np.all(bias.moved(np.zeros(2), np.ones(2)) == 9.0 * bias.balance)) == joined


@pytest.mark.usefixtures("streaming")
def test_what_is_known_of_alpha_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dual value, after line searches and with what the bias lacks; and w, where a proof rode on the pass."""
    passes: list[tuple[float, ...]] = []
    learn = ShardedGroup.learn

    def learnt(self: ShardedGroup, rebuilt: np.ndarray, rode: bool) -> None:
        learn(self, rebuilt, rode)
        sums = Accumulator(self.models.problem, self.models.w)
        for terms in self.prove(self.models.w, False, False):
            sums.add(terms)
        _, _, linear, diagonal, *_ = sums.sums()[0]
        dual = linear - diagonal - 0.5 * float(sums.v @ sums.v)
        off = float(np.abs(self.models.w[:-1] - sums.v[:-1]).max())
        passes.append((off, self.bias.dual[0] / dual - 1.0, self.bias.linear[0] / linear - 1.0, not rode))

    rng = np.random.default_rng(8)
    X = rng.normal(size=(300, 5)).astype(np.float32)
    rows = ArrayRows(X, (X @ np.arange(5.0) + rng.normal(size=300) > 0.5).astype(int))
    monkeypatch.setattr(ShardedGroup, "learn", learnt)
    config: dict[str, Any] = {"solver": "dcd", "C": 0.5, "tol": 1e-3, "shards": 3, "rounds_per_pass": 4}
    fit_store(rows, FitConfig.of(loss="squared_hinge", max_passes=12, **config))
    found = np.array([one for one in passes if not one[3]])
    assert len(found) > 2
    np.testing.assert_allclose(found[:, :3], 0.0, atol=1e-4)  # kept rows move w by 16 bits of their values
