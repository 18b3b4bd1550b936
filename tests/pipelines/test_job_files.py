"""The file of a retraining job: mistakes are named before any work, and paths are those of its folder."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from bigsvm.errors import MissingInput, OutputError, UsageError
from pipelines.config import read_job
from tests.pipelines.jobs import ROOT, Place, Retrain, job, retrain

__all__ = ["job", "retrain"]


@pytest.mark.parametrize(
    ("top", "fit", "gates", "named"),
    [("stor = 1", "", "", "stor"), ("", "memroy = '1GiB'", "", "memroy"), ("", "", "min_acuracy = 0.9", "min_acuracy"),
     ("", "tol = -1", "", "tol"), ("", "tol = 'small'", "", "tol"), ("", "c = 1\nlambda = 1", "", "lambda"),
     ("", "loss = 'log'", "", "loss"), ("", "", "min_accuracy = 80", "min_accuracy"),
     ("", "", "max_drop = nan", "max_drop"), ("", "", "drop_metric = 'precision'", "drop_metric"),
     ("min_rows = 0", "", "", "min_rows"), ("=", "", "", "TOML")],
)  # fmt: skip
def test_mistakes_in_the_job_are_named(
    job: Place, retrain: Retrain, tmp_path: Path, top: str, fit: str, gates: str, named: str
) -> None:
    said = retrain(job(top + "\n", fit, gates), "--json")
    assert said.code == 2
    assert named in said.document["error"]["message"]
    assert said.document["error"]["where"].endswith("job.toml")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "reg").exists()


def test_gates_need_a_holdout_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('store = "a"\nregistry = "r"\n[gates]\nmax_drop = 0.1\n')
    with pytest.raises(UsageError, match="no holdout"):
        read_job(path)
    path.write_text('store = "a"\nholdout = "a"\nregistry = "r"\n')
    with pytest.raises(UsageError, match="training store"):
        read_job(path)
    with pytest.raises(MissingInput):
        read_job(tmp_path / "none.toml")


def test_paths_are_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.toml").write_text(
        'store = "../a.zarr"\nholdout = "/b.zarr"\nregistry = "reg"\n[fit]\nscratch = "tmp"\nmax-time = "2h"\n'
    )
    monkeypatch.chdir(tmp_path)
    read = read_job("jobs/a.toml")
    assert os.path.realpath(read.store) == os.path.realpath(tmp_path / "a.zarr")
    assert read.holdout == "/b.zarr"
    assert read.registry == tmp_path / "jobs" / "reg"
    assert read.folder == tmp_path / "jobs" / "reg" / "work"
    assert read.fit.scratch == str(tmp_path / "jobs" / "tmp")
    assert read.fit.max_time == 7200


def test_the_example_is_a_job() -> None:
    read = read_job(ROOT / "pipelines" / "nightly.toml")
    assert read.gates.minima() == {"accuracy": 0.8}
    assert dataclasses.asdict(read.fit)["tol"] == 1e-3


@pytest.mark.parametrize("name", ["registry", "work"])
@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "http"])
def test_what_is_written_is_on_a_local_disk(name: str, scheme: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Said before any work, and no folder is made that is called so."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.toml"
    places = {"store": "train.zarr", "holdout": "holdout.zarr", "registry": "reg", name: f"{scheme}://bucket/reg"}
    path.write_text("".join(f'{key} = "{value}"\n' for key, value in places.items()))
    with pytest.raises(OutputError, match="only to local disks"):
        read_job(path)
    assert [file.name for file in tmp_path.iterdir()] == ["job.toml"]
