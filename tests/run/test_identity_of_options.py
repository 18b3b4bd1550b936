"""What a result belongs to: each option says whether it changes a model, and what was asked tells those that do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bigsvm.cli.job import Job
from bigsvm.config import MODEL_OPTIONS, RESULT_OPTIONS, FitConfig
from bigsvm.errors import DataError
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.problem_identity import asked_digest
from bigsvm.store.formats.opener import open_store
from bigsvm.store.identity import Identity
from tests.run.selections import LINEAR, fitted, zarr_store
from tests.run.test_checkpoint import same_folder, stopped

# One other value of every option.  Those that name places or programs are set by the test.
OTHERS: dict[str, Any] = {
    "solver": "pcd", "loss": "squared_hinge", "C": 2.0, "lam": 0.1, "bias": "none", "bias_scale": 2.0,
    "class_weight": {"1": 2.0}, "multi_class": "ovr", "epsilon": 0.2, "nu": 0.3,
    "kernel": "rbf", "gamma": 0.3, "degree": 2,
    "assume_psd": True, "coef0": 1.0, "wss": "1", "working_set": 2, "shrinking": False, "cache_memory": "1MiB",
    "tol": 1e-2, "stop": "paper", "max_passes": 3.0, "max_time": 1e6, "seed": 1, "shards": 2, "rounds_per_pass": 8,
    "sum_seconds": 0.5,
    "solver_options": {"momentum": "off"}, "memory": "65MiB", "scratch": None, "scratch_limit": "1GiB",
    "stage": "none", "threads": 2, "scheduler": "serial", "scheduler_file": None, "workers": 2,
    "worker_scratch": "/near", "no_dual": True,
    "C_path": None, "warm_start": "/nowhere/old.model",
    "calibrate": "isotonic", "calibrate_share": 0.5,
}  # fmt: skip
KERNEL_ONLY = (
    "epsilon",
    "nu",
    "gamma",
    "degree",
    "coef0",
    "assume_psd",
    "wss",
    "working_set",
    "shrinking",
    "cache_memory",
)
ASKED_ONLY = ("scratch", "scheduler_file", "C_path", "solver_options", "warm_start")
"""Options that these fits cannot take one by one; their identity is looked at all the same."""


def base_of(name: str) -> dict[str, Any]:
    """A fit in which option `name` means something."""
    if name == "epsilon":
        return {"solver": "smo", "loss": "epsilon_insensitive", "memory": "64MiB"}
    if name == "nu":
        return {"loss": "nu_svc", "kernel": "rbf", "gamma": 0.5, "nu": 0.2, "memory": "64MiB"}
    if name == "assume_psd":  # K is not, by its constant; where beta sums to 0 that shows nowhere
        kernel = {"kernel": "poly", "degree": 1, "coef0": -1e-3, "gamma": 0.5}
        return {"solver": "smo", "loss": "hinge", "memory": "64MiB", **kernel}
    if name in KERNEL_ONLY:
        kernel = {"degree": "poly", "coef0": "poly"}.get(name, "rbf")
        extra = {"working_set": 2} if name in ("wss", "shrinking") else {}
        return {"solver": "smo", "kernel": kernel, "gamma": 0.5, "loss": "hinge", "memory": "64MiB", **extra}
    if name == "stop":
        return {"solver": "hyperpass", "loss": "hinge", "bias": "none", "memory": "64MiB"}
    if name == "solver":
        return {**LINEAR, "loss": "squared_hinge"}
    if name == "loss":
        return LINEAR
    if name == "kernel":
        return {"solver": "smo", "loss": "hinge", "memory": "64MiB"}
    return {**LINEAR, "bias": "augmented"}


def config_of(**options: Any) -> FitConfig:
    C_path = options.pop("C_path", None)
    return dataclasses.replace(FitConfig.of(**options), C_path=C_path)


def test_every_option_says_whether_it_changes_the_result() -> None:
    fields = {option.name for option in dataclasses.fields(FitConfig)}
    assert fields == set(OTHERS)
    assert set(RESULT_OPTIONS) | {"no_dual"} == set(MODEL_OPTIONS)
    nothing = {"cache_memory", "max_time", "scratch", "scratch_limit", "threads", "workers", "worker_scratch"}
    nothing |= {"scheduler", "scheduler_file"}
    assert fields - set(MODEL_OPTIONS) == nothing


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in ASKED_ONLY])
@pytest.mark.usefixtures("streaming")
def test_options_that_change_share_folders_and_no_bytes(name: str, tmp_path: Path) -> None:
    """In shared folders each fit has the bytes of its own; a checkpoint goes on only where they are the same bytes."""
    path = zarr_store(tmp_path / "s.zarr", "csr", 3)
    store = open_store(path, label="several", task="regression") if name == "epsilon" else open_store(path)
    base = base_of(name)
    other = {**base, name: OTHERS[name]}
    shared = tmp_path / "shared"
    one = fitted(store, base, shared, tmp_path / "first")  # alone, too
    two = fitted(store, other, tmp_path / "scratch", tmp_path / "alone")
    assert same_folder(fitted(store, other, shared, tmp_path / "second"), two)
    assert same_folder(fitted(store, base, shared, tmp_path / "third"), one)
    if name not in MODEL_OPTIONS:
        assert same_folder(one, two)
    start, end = (FitConfig.of(**{**options, "scratch": str(shared)}) for options in (base, other))
    stopped(store, start, Checkpoints(tmp_path / "run", {}, 0.0), 12 if start.solver == "dcd" else 3)
    assert any((tmp_path / "run").iterdir())
    if name in RESULT_OPTIONS:
        with pytest.raises(DataError, match=f"another run: ({name}|solver|why|shards) was"):
            fit_store(store, end, checkpoints=Checkpoints(tmp_path / "run", {}, 1e9), resume=True)
        return
    result = fit_store(store, end, checkpoints=Checkpoints(tmp_path / "run", {}, 1e9), resume=True)
    result.save_model(tmp_path / "resumed")
    assert same_folder(tmp_path / "resumed", two)


@pytest.mark.parametrize("name", list(OTHERS))
def test_what_was_asked_tells_every_option_that_changes_a_model(name: str, tmp_path: Path) -> None:
    identity = Identity.of("0" * 32, matrix="X", label="obs/label", weight="", task="auto")
    base = FitConfig(loss="hinge")
    changed = OTHERS[name] if OTHERS[name] is not None else [1.0, 2.0] if name == "C_path" else "elsewhere"
    other = dataclasses.replace(base, **{name: changed})
    assert (asked_digest(identity, base) != asked_digest(identity, other)) == (name in MODEL_OPTIONS)
    elsewhere = Identity.of("0" * 32, matrix="X", label="obs/other", weight="", task="auto")
    assert asked_digest(identity, base) != asked_digest(elsewhere, base)
    jobs = [
        Job("s.zarr", None, None, tmp_path / "m", tmp_path / "r", config, 60.0, False, False).document()
        for config in (base, other)
    ]
    assert jobs[0] != jobs[1]  # whatever differs, a finished run is not taken for the one that is asked for
