"""Rows that were changed in place, with the size and the time that their files had, are not taken for unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest
import scipy.sparse as sp

from bigsvm.errors import DataError
from bigsvm.store.sealing.seal import seal
from pipelines import journal, steps
from pipelines.config import Job, read_job
from pipelines.gates import profile
from tests.store import formats

N = 40
RAW: dict[str, Any] = {"config": {"write_empty_chunks": True}, "compressors": None}
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def table(path: Path, X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
    columns = {f"f{j}": X[:, j].astype(np.float64) for j in range(X.shape[1])}
    columns |= {"label": y, "weight": weight}
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(pa.table(columns), path)
    else:
        pyarrow.feather.write_feather(pa.table(columns), path, compression="uncompressed")


SEALED: dict[str, Callable[..., Any]] = {
    "written dense": lambda path, *rows: formats.written(path, *rows, layout="dense", codec="none"),
    "written csr": lambda path, *rows: formats.written(path, *rows, layout="csr", codec="none"),
    "sealed": lambda path, *rows: seal(formats.foreign(path, *rows, layout="dense", **RAW)),
}
OTHERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "zarr dense": (".zarr", lambda path, *rows: formats.foreign(path, *rows, layout="dense", **RAW)),
    "zarr csr": (".zarr", lambda path, *rows: formats.foreign(path, *rows, **RAW)),
    "zarr 2": (".zarr", lambda path, *rows: formats.foreign(path, *rows, version=2, compressors=None)),
    "anndata csc": (".zarr", lambda path, X, y, weight: formats.anndata(
        path, {"X": sp.csc_matrix(X), "obs/label": y, "obs/weight": weight})),
    "h5ad": (".h5ad", lambda path, X, y, weight: formats.anndata(
        path, {"X": X, "obs/label": y, "obs/weight": weight})),
    "parquet": (".parquet", lambda path, *rows: formats.parquet(path, *rows, layout="columns")),
    "feather": (".feather", table),
    "csv": (".csv", table),
}  # fmt: skip


def rows(change: str) -> Rows:
    random = np.random.default_rng(0)
    X = random.integers(1, 10, (N, 3)).astype(np.float32)
    y, weight = np.arange(N) % 2, 1 + np.arange(N) % 3
    if change == "rows":
        X = X[::-1].copy()
    if change == "one row":
        X[3] = X[3] % 9 + 1
    return X, 1 - y if change == "labels" else y, 4 - weight if change == "weights" else weight


CHANGES = ("rows", "labels", "weights", "one row")


def overwrite(path: Path, other: Path) -> None:
    """As `rsync --inplace -t`: the files of the other keep the inodes, sizes and times that they find."""
    pairs = [(path, other)]
    if path.is_dir():
        pairs = [(path / file.relative_to(other), file) for file in other.rglob("*") if file.is_file()]
        assert all(file.is_file() for file, _ in pairs)
    for file, source in pairs:
        status, content = file.stat(), source.read_bytes()
        if "manifest" in file.name or content == file.read_bytes():
            continue
        with open(file, "r+b") as same:
            same.write(content)
            same.truncate()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def job_of(tmp_path: Path, suffix: str, more: str = "") -> Job:
    (tmp_path / "job.toml").write_text(f'store = "rows{suffix}"\nregistry = "reg"\n{more}\n[fit]\nmemory = "64MiB"\n')
    return read_job(tmp_path / "job.toml")


@pytest.fixture
def promoted(monkeypatch: pytest.MonkeyPatch) -> Callable[[steps.Found], None]:
    """Let the registry say that these rows are those of the current model."""

    def promote(found: steps.Found) -> None:
        metrics = {"store_fingerprint": found.store.fingerprint, "problem": found.problem}
        monkeypatch.setattr(steps, "promotions", lambda job: [{"metrics": metrics}])
        monkeypatch.setattr(steps.registry, "current", lambda registry: Path("1"))

    return promote


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", OTHERS)
def test_rows_without_a_seal_are_other_rows(tmp_path: Path, kind: str, change: str, promoted: Any) -> None:
    suffix, make = OTHERS[kind]
    make(tmp_path / f"rows{suffix}", *rows(""))
    make(tmp_path / f"other{suffix}", *rows(change))
    job = job_of(tmp_path, suffix)
    promoted(steps.detect(job))
    for file in tmp_path.rglob(f"rows{suffix}/**/*" if suffix == ".zarr" else f"rows{suffix}"):
        file.chmod(0o750)
    assert not steps.detect(job).changed, "their status alone is another one"
    overwrite(tmp_path / f"rows{suffix}", tmp_path / f"other{suffix}")
    found = steps.detect(job)
    assert (found.changed, found.reason) == (True, "the store has changed")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", SEALED)
def test_sealed_chunks_that_are_no_longer_those_of_the_seal_are_named(
    tmp_path: Path, kind: str, change: str, promoted: Any
) -> None:
    SEALED[kind](tmp_path / "rows.zarr", *rows(""))
    SEALED[kind](tmp_path / "other.zarr", *rows(change))
    job = job_of(tmp_path, ".zarr")
    promoted(steps.detect(job))
    assert not steps.detect(job).changed
    overwrite(tmp_path / "rows.zarr", tmp_path / "other.zarr")
    with pytest.raises(DataError, match="chunk is damaged or was exchanged") as caught:
        steps.detect(job)
    assert "bigsvm seal" in caught.value.hint
    seal(tmp_path / "rows.zarr")
    assert steps.detect(job).reason == "the store has changed"


@pytest.mark.parametrize("what", ["candidate", "profile"])
def test_nothing_that_was_derived_from_other_chunks_is_kept(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that is judged again, and the figures of the rows that drift is measured by: nobody reads a row."""
    SEALED["sealed"](tmp_path / "rows.zarr", *rows(""))
    job = job_of(tmp_path, ".zarr", "[drift]\nmax_mean_shift = 0.5")
    found = steps.detect(job)
    candidate = {"status": "converged", "result": {}}
    monkeypatch.setattr(journal, "noted_candidate", lambda folder, problem: candidate)
    monkeypatch.setattr(profile.Profile, "load", lambda path: object())
    monkeypatch.setattr("pipelines.gates.judging.drift.ask_of_rows", lambda *_: None)
    use = {"candidate": lambda: steps.fit(job, found), "profile": lambda: steps.look(job, found)}[what]
    use()
    SEALED["sealed"](tmp_path / "other.zarr", *rows("one row"))
    overwrite(tmp_path / "rows.zarr", tmp_path / "other.zarr")
    with pytest.raises(DataError, match="chunk is damaged or was exchanged"):
        use()
