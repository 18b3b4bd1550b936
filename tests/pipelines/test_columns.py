"""Tables whose columns stand in another order from night to night: gates and models go by their names."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.model.named_columns import label_column_of, weight_column_of
from bigsvm.store.formats.opener import open_store
from pipelines.gates.judging import open_rows
from pipelines.gates.paired import compare
from tests.pipelines.jobs import Retrain, retrain

__all__ = ["retrain"]

N = 400
NAMES = ["age", "income", "z"]
JOB = """
store = "train{suffix}"
holdout = "holdout{suffix}"
registry = "reg"
[fit]
memory = "64MiB"
[gates]
min_accuracy = 0.9
max_drop = 0.05
max_churn = 0.05
challenger = "not_worse"
[drift]
max_mean_shift = 0.5
max_zero_rate_change = 0.2
"""


def write(path: Path, seed: int, order: tuple[str, ...], exchanged: bool = False, renamed: bool = False) -> None:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": random.normal(5, 1, N), "income": random.normal(30, 5, N), "z": random.standard_normal(N)}
    )
    frame["label"] = np.where(frame.age - 5 + 2 * frame.z + 0.1 * random.standard_normal(N) > 0, "p", "q")
    if exchanged:
        frame = frame.assign(age=frame.income, income=frame.age)
    frame = frame[[*order, "label"]].rename(columns={"z": "w"} if renamed else {})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)


def gates(answer: Any) -> dict[str, bool]:
    return {gate["name"]: gate["passed"] for gate in answer.document["result"]["gates"]}


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("held", list(itertools.permutations(NAMES))[::2], ids=str)
def test_columns_in_another_order_are_the_same_rows(
    tmp_path: Path, retrain: Retrain, suffix: str, held: tuple[str, ...]
) -> None:
    (tmp_path / "job.toml").write_text(JOB.format(suffix=suffix))
    write(tmp_path / f"holdout{suffix}", 9, held)
    write(tmp_path / f"train{suffix}", 1, tuple(NAMES))
    first = retrain(tmp_path / "job.toml", "--json", "--quiet")
    assert first.code == 0, first.err
    write(tmp_path / f"train{suffix}", 2, ("income", "z", "age"))
    second = retrain(tmp_path / "job.toml", "--json", "--quiet")
    assert second.code == 0, second.err
    assert all(gates(second).values())
    assert {"max_drop", "max_churn", "challenger", "drift_mean", "drift_zero_rate"} <= gates(second).keys()
    write(tmp_path / f"train{suffix}", 3, ("income", "age", "z"), exchanged=True)
    third = retrain(tmp_path / "job.toml", "--json", "--quiet")
    assert third.code == 76
    assert "refused by gate drift_mean" in third.err
    write(tmp_path / f"train{suffix}", 4, tuple(NAMES), renamed=True)
    fourth = retrain(tmp_path / "job.toml", "--json", "--quiet")
    assert fourth.code == 76
    assert "the features differ from those of the last promotion, such as 'w'" in fourth.err


def test_a_model_that_cannot_be_asked_about_renamed_columns_is_told(tmp_path: Path, retrain: Retrain) -> None:
    """No gate is left out in silence, also where nobody looks at drift."""
    (tmp_path / "job.toml").write_text(JOB.format(suffix=".parquet").split("[drift]")[0])
    write(tmp_path / "holdout.parquet", 9, tuple(NAMES))
    write(tmp_path / "train.parquet", 1, tuple(NAMES))
    assert retrain(tmp_path / "job.toml", "--quiet").code == 0
    for name in ("holdout", "train"):
        write(tmp_path / f"{name}.parquet", 2, tuple(NAMES), renamed=True)
    again = retrain(tmp_path / "job.toml", "--quiet")
    assert again.code == 65
    assert "'w'" in again.err


def test_a_holdout_is_read_once_where_one_order_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "holdout.parquet", 9, tuple(NAMES))
    holdout = open_store(str(tmp_path / "holdout.parquet"))
    model, read = bigsvm.fit(holdout, memory="64MiB").model, []
    plain = type(holdout).read
    monkeypatch.setattr(type(holdout), "read", lambda self, ref: read.append(ref) or plain(self, ref))
    for rival, other in ((None, None), (model, None), (model, holdout)):
        read.clear()
        assert compare(model, rival, holdout, MemoryBudget(64 << 20), other).n_rows == N
        assert sum(ref.stop - ref.start for ref in read) == N * (1 if other is None else 2)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_all_models_are_measured_on_the_columns_of_the_job(suffix: str, tmp_path: Path) -> None:
    """A model knows the columns of its labels and weights, which another one does not have."""
    path = tmp_path / f"rows{suffix}"
    write(path, 0, tuple(NAMES))
    frame = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    frame = frame.assign(other=frame["label"].to_numpy()[::-1], heft=1.0 + np.arange(N) % 2)
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path, index=False)
    rows = open_store(path, columns=NAMES, label="other", weight="heft")
    model = bigsvm.fit(rows, tol=0.1, memory="64MiB").model
    assert {"label_column", "weight_column"} <= set(model.about["rows"])
    for label, weight in ((None, None), ("label", "heft"), ("other", None)):
        job: Any = SimpleNamespace(label=label, weight=weight, regression=False)
        ours = open_rows(job, str(path), model)
        assert (label_column_of(ours), weight_column_of(ours)) == (label or "label", weight or "")
        assert list(ours.feature_names or ()) == NAMES
