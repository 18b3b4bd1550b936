"""The row buffer of a smooth loss asks of a row that it violates as much as enough rows of the last pass did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.compiled.linear import active_row_buffer as kernel
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.sizes import Sizes
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, whole_row_buffer
from bigsvm.solvers.dcd.admission import Admission
from tests.run.test_checkpoint import comes_to_the_same, stopped
from tests.shards.test_shard_momentum import rows_of

KINDS = {
    "spread": lambda rng: rng.lognormal(0.0, 4.0, 1000),
    "with ties": lambda rng: rng.integers(0, 5, 1000) / 4.0,
    "all the same": lambda _: np.ones(1000),
    "mostly zero": lambda rng: np.where(rng.random(1000) < 0.99, 0.0, rng.random(1000)),
    "zero of either sign": lambda rng: np.where(rng.random(1000) < 0.5, 0.0, -0.0),
    "tiny and huge": lambda rng: 10.0 ** rng.uniform(-44.0, 38.0, 1000),
    "infinite": lambda rng: np.where(rng.random(1000) < 0.9, np.inf, 1.0),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("n", [0, 1, 10, 100, 249, 250, 251, 5000])
def test_it_asks_for_what_four_times_the_row_buffer_did(kind: str, n: int) -> None:
    scores, admission = KINDS[kind](np.random.default_rng(3)).astype(np.float32), Admission()
    for part in np.array_split(scores, 7):
        admission.see(part, np.arange(len(part)))
    assert admission.least == 0.0
    admission.begin_pass(n)
    if n == 0 or 4 * n > len(scores):
        assert admission.least == 0.0
        return
    reached = np.sort(scores)[-4 * n]
    assert np.isfinite(admission.least)
    if reached > 0.0:
        assert admission.least < reached  # those that violated as much would come in
    if np.finfo(np.float32).tiny < reached < np.inf:
        assert reached < 1.13 * admission.least  # and few others
    admission.begin_pass(n)  # after a pass that has seen nothing
    assert admission.least == 0.0


@pytest.mark.usefixtures("streaming_hundreds")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "squared_epsilon_insensitive"])
@pytest.mark.parametrize("shards", [1, 2])
def test_rows_of_a_smooth_loss_are_rationed(loss: str, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer come in than would without, and the fit gets as far; with the hinge, and on shards, as many as violate."""
    rows = rows_of(loss, 40, weights=False, n=1000)
    options: dict[str, Any] = {"solver": "dcd", "loss": loss, "bias": "none", "C": 0.1, "tol": 1e-6, "max_passes": 5}
    monkeypatch.setattr(Sizes, "row_buffer", lambda self, store, *_: whole_row_buffer(store, self.packed) // 20)
    bigsvm.fit(rows, shards=shards, scheduler="serial", **options)  # tiny fits compile before the first one
    gaps, came = [], []
    for rations in (False, True):
        with monkeypatch.context() as patch:
            if not rations:
                patch.setattr(Admission, "begin_pass", lambda *_: None)
            taken = counted(patch)
            found = bigsvm.fit(rows, shards=shards, scheduler="serial", **options)
        gaps.append(found.certificate.relative_gap)
        came.append(sum(taken))
    if loss == "hinge" or shards > 1:
        assert came[1] == came[0]
        return
    assert came[1] < 0.6 * came[0]
    assert gaps[1] < 2.0 * gaps[0]


@pytest.mark.usefixtures("streaming_hundreds")
def test_a_fit_that_is_stopped_in_mid_pass_goes_on_with_the_same_rations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sizes, "row_buffer", lambda self, store, *_: whole_row_buffer(store, self.packed) // 20)
    rows = rows_of("squared_hinge", 40, weights=False, n=1000)
    config = FitConfig.of(
        solver="dcd", loss="squared_hinge", bias="none", C=0.1, tol=1e-6, max_passes=5, memory="64MiB"
    )
    comes_to_the_same(rows, config, tmp_path, 7)


def counted(patch: pytest.MonkeyPatch) -> list[int]:
    """How many rows come into row buffers from now on, call by call."""
    taken: list[int] = []
    admit = kernel.admit

    def counting(A: Any, slots: Any, n: int, *rest: Any) -> Any:
        used, looked_at = admit(A, slots, n, *rest)
        taken.append(used - n)
        return used, looked_at

    patch.setattr(kernel, "admit", counting)
    return taken


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_checkpoint_of_a_row_buffer_without_rations_is_refused_where_they_count(
    loss: str, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(loss, 10, weights=False, n=300)
    config = FitConfig.of(
        solver="dcd", loss=loss, bias="none", tol=1e-6, C=10.0, max_passes=10, shards=shards, scheduler="serial"
    )
    saves, dumped = Checkpoints(tmp_path / "c", {}, 1e9), ActiveRowBuffer.dump
    with monkeypatch.context() as patch:
        patch.setattr(ActiveRowBuffer, "dump", lambda one: {k: v for k, v in dumped(one).items() if k != "admission"})
        assert "SIGTERM" in stopped(rows, config, saves, 20)
    if loss == "hinge" or shards > 1:
        assert fit_store(rows, config, checkpoints=saves, resume=True).figures["passes"] > 0
        return
    with pytest.raises(DataError, match="of an earlier version, whose row buffer let in every row that violated"):
        fit_store(rows, config, checkpoints=saves, resume=True)
