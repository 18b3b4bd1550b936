"""Retraining jobs for the tests: a store, a holdout, the file of a job, and a run of it in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bigsvm.model import versions as registry
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from pipelines.retrain import main
from tests.registry.made import tree

ROOT = Path(__file__).parents[2]


def write_store(
    path: Path, seed: int, n_samples: int = 200, n_features: int = 5, flipped: float = 0.05, one_class: bool = False
) -> Path:
    """Rows of one planted direction; `flipped` of the labels are wrong."""
    direction = np.random.default_rng(99).standard_normal(12)[:n_features]
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)).astype(np.float32)
    labels = np.where(X @ direction > 0, 1.0, -1.0)
    labels[rng.random(n_samples) < flipped] *= -1.0
    if one_class:
        labels[:] = 1.0
    with ZarrWriter(path, layout="dense", dtype=np.float32, n_features=n_features, overwrite=True) as writer:
        writer.append(X, labels)
        writer.finish()
    return path


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)


Place = Callable[..., Path]
Retrain = Callable[..., Said]


@pytest.fixture
def job(tmp_path: Path) -> Place:
    """Write job.toml, beside a store and a holdout; arguments are lines of TOML by table."""
    write_store(tmp_path / "train.zarr", 1)
    write_store(tmp_path / "holdout.zarr", 2)

    def write(top: str = "", fit: str = "", gates: str = "") -> Path:
        text = 'store = "train.zarr"\nholdout = "holdout.zarr"\nregistry = "reg"\n' + top
        text += f'\n[fit]\nmemory = "64MiB"\nthreads = 1\n{fit}\n[gates]\n{gates}\n'
        (tmp_path / "job.toml").write_text(text)
        return tmp_path / "job.toml"

    return write


@pytest.fixture
def retrain(capsys: pytest.CaptureFixture[str]) -> Retrain:
    def call(config: Path, *args: str) -> Said:
        capsys.readouterr()
        code = main(["--config", str(config), *args])
        return Said(code, *capsys.readouterr())

    return call


def current(tmp_path: Path) -> dict[str, bytes]:
    folder = registry.current(tmp_path / "reg")
    assert folder is not None
    return tree(folder)
