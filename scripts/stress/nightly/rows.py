"""The job of these trials, its rows, and what its folders hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.cli.session import Session
from bigsvm.store.ingest.ingest import ingest
from pipelines.config import Job, read_job
from pipelines.retrain import retrain

_JOB = """store = "train.zarr"
holdout = "holdout.zarr"
registry = "registry"
checkpoint_every = "{every}s"
warm_start = true
[arrivals]
files = "incoming/*.svm"
[fit]
solver = "dcd"
loss = "hinge"
c = {c}
tol = {tol}
memory = "64MiB"
threads = 1
[gates]
{gates}
"""


def text(seed: int, n_samples: int, n_features: int = 20, flipped: float = 0.1) -> str:
    """Rows of one planted direction as svmlight text; a share of the labels is wrong."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)).round(4)
    y = np.where(X @ np.linspace(-1.0, 1.0, n_features) > 0, 1, -1) * np.where(rng.random(n_samples) < flipped, -1, 1)
    rows = (" ".join(f"{j + 1}:{value}" for j, value in enumerate(row)) for row in X)
    return "".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True))


def store(path: Path, seed: int, n_samples: int, n_features: int = 20, flipped: float = 0.1) -> None:
    """A sealed store of such rows."""
    source = path.with_suffix(".svm")
    source.write_text(text(seed, n_samples, n_features, flipped))
    ingest(source, path, overwrite=True)
    source.unlink()


def job(folder: Path, gates: str = "", tol: float = 1e-3, every: float = 60.0, c: float = 1.0) -> Job:
    """The job, read from its file."""
    path = folder / "job.toml"
    path.write_text(_JOB.format(gates=gates, tol=tol, every=every, c=c))
    return read_job(path)


def night(job: Job) -> dict[str, Any]:
    """A whole run of the job, in this process; what came of it."""
    return retrain(job, Session("retrain", quiet=True, progress=False))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its name."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
