"""Kernel rows that are kept: the same model to the byte with any cache, and counts that say where rows came from."""

from __future__ import annotations

import errno
import gc
import os
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import Interrupted
from bigsvm.run.fit import cache_plan
from bigsvm.run.fit import loop as looping
from bigsvm.run.fit import sizes as planning
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.fit.plan import make_plan
from bigsvm.solvers.kernel.literature import platt, simplified
from bigsvm.solvers.kernel.rosen import rosen
from bigsvm.solvers.kernel.smo import textbook
from bigsvm.solvers.kernel.values.data import KernelData
from bigsvm.solvers.kernel.values.data_rows import DataRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from tests.products import each_of
from tests.run.test_checkpoint import same_folder, until_done

N = 300
KEPT: list[dict[str, Any]] = [
    {"solver": "smo", "working_set": 2},
    {"solver": "smo", "wss": "wr+3"},
    {"solver": "smo", "wss": "keerthi2"},
    {"solver": "rosen"},
    {"solver": "simplified-smo-km", "stop": "paper"},
    {"solver": "platt-smo", "stop": "paper", "C": 1.0},
]


def named(options: dict[str, Any]) -> str:
    return "-".join(str(value) for value in options.values())


def problem(width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((N, width))
    y = np.sign(X[:, 0] * X[:, 1] + 0.4 * rng.standard_normal(N))
    return X.astype(np.float32), y


def fitted(folder: Path, source: Any, **options: Any) -> tuple[FitResult, dict[str, bytes]]:
    """A fit and the files of its model."""
    options = {"kernel": "rbf", "gamma": 0.2, "C": 10.0, "tol": 1e-2, "scratch": str(folder), **options}
    result = bigsvm.fit(source, **options)
    model = folder / "model"
    result.save_model(model)
    files = {path.name: path.read_bytes() for path in sorted(model.rglob("*")) if path.is_file()}
    for path in model.rglob("*"):
        path.unlink()
    model.rmdir()
    return result, files


def counts(result: FitResult) -> tuple[int, int, int]:
    """Rows computed, found in memory, found on disk."""
    rows = result.figures["kernel_rows"]
    return rows["computed"], rows["ram_hits"], rows["disk_hits"]


def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, and rows that are never kept in memory."""
    for size in ("BLOCK_BYTES", "_COPY_BLOCK", "_SMALLEST_GROUP"):
        monkeypatch.setattr(planning, size, 2000)
    monkeypatch.setattr(planning.Sizes, "resident_from", lambda self: 1 << 50)


@pytest.mark.parametrize("options", KEPT, ids=named)
def test_a_cache_of_any_size_changes_no_byte(tmp_path: Path, options: dict[str, Any]) -> None:
    small, files = fitted(tmp_path, problem(), cache_memory=1, **options)
    large, same = fitted(tmp_path, problem(), cache_memory="64MiB", **options)
    default, again = fitted(tmp_path, problem(), **options)
    assert files == same == again
    assert counts(large) == counts(default)
    assert counts(large)[1] > counts(small)[1]
    assert counts(large)[0] < counts(small)[0]
    if options["solver"] == "smo":
        assert counts(large)[0] <= 2 * N  # each once, and sums at the end of shrinking


def test_regression_too(tmp_path: Path) -> None:
    X, y = problem()
    options = {"solver": "smo", "working_set": 2, "loss": "epsilon_insensitive", "epsilon": 0.1}
    small, files = fitted(tmp_path, (X, y + X[:, 2]), cache_memory=1, **options)
    large, same = fitted(tmp_path, (X, y + X[:, 2]), **options)
    assert files == same
    assert counts(large)[0] < counts(small)[0]


@pytest.mark.parametrize("options", [KEPT[0], KEPT[3]], ids=named)
def test_rows_that_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    stream(monkeypatch)
    store = tmp_path / "store.zarr"
    write(store)
    monkeypatch.setattr(cache_plan, "is_tmpfs", lambda path: True)
    small, files = fitted(tmp_path, store, cache_memory=1, C=1.0, **options)
    monkeypatch.setattr(cache_plan, "is_tmpfs", lambda path: False)
    large, same = fitted(tmp_path, store, cache_memory=1, C=1.0, **options)
    assert counts(large)[2] > 0
    assert files == same
    assert large.figures["bytes_read"] < small.figures["bytes_read"]


def write(store: Path) -> None:
    """The problem as a store."""
    text = store.with_suffix(".svm")
    X, y = problem()
    lines = (f"{b:g} " + " ".join(f"{j + 1}:{v:.9g}" for j, v in enumerate(a)) for a, b in zip(X, y, strict=True))
    text.write_text("\n".join(lines) + "\n")
    ingest(text, store)


@each_of(options=[*KEPT, {"solver": "simplified-smo"}], max_passes=[15, 60, None])
def test_where_a_limit_ends_a_fit_depends_on_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], max_passes: int | None
) -> None:
    """Of rows that stream: neither what is kept, nor a stop after which nothing is, spares or costs a step."""
    stream(monkeypatch)
    if max_passes is None:  # the limit of every fit, which would take long
        monkeypatch.setattr(looping, "SCANNED", 100)
        monkeypatch.setattr(looping, "SCANNED_BYTES", 0)
    for module in (platt, rosen, simplified, textbook):  # the loop looks more often whether it is to stop
        monkeypatch.setattr(module, "most_values", lambda ctx, n, usual: 20 * n)
    store = open_store(problem())
    named_so = {**options, "kernel": "rbf", "gamma": 0.2, "C": 10.0, "tol": 1e-6, "max_passes": max_passes}
    config = FitConfig.of(**{**named_so, "scratch": str(tmp_path / "s"), "memory": "24MiB"})
    whole = fit_store(store, config)
    assert whole.status in ("stopped", "stalled")
    small = fit_store(store, FitConfig.of(**{**named_so, "scratch": str(tmp_path / "s"), "cache_memory": 1}))
    parts, stops = until_done(store, config, tmp_path / "run", 3)
    assert stops > 1
    whole.save_model(tmp_path / "whole")
    for name, other in (("small", small), ("parts", parts)):
        other.save_model(tmp_path / name)
        assert same_folder(tmp_path / "whole", tmp_path / name)
        assert other.figures["epochs"] == whole.figures["epochs"]


@pytest.mark.parametrize("failing", [None, "posix_fallocate", "pwrite", "preadv"])
def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str | None) -> None:
    monkeypatch.setattr(cache_plan, "LONG_ROW", 0)
    monkeypatch.setattr(cache_plan, "is_tmpfs", lambda path: False)
    options = {"solver": "smo", "working_set": 2, "gamma": 1e-3, "cache_memory": 40 * 4 * N}
    plain, files = fitted(tmp_path, problem(260), scratch_limit="1KiB", **options)
    if failing is not None:

        def fail(*arguments: Any) -> int:
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr(os, failing, fail)
    kept, same = fitted(tmp_path, problem(260), scratch_limit="1MiB", **options)
    assert files == same
    if failing is None:
        assert kept.warnings == []
        assert counts(kept)[2] > 0
        assert counts(kept)[0] < counts(plain)[0]
        assert sum(counts(kept)) == sum(counts(plain))
    else:
        assert counts(kept) == counts(plain)
        (warning,) = kept.warnings
        assert warning.startswith("smo: ")
        assert "computed again" in warning
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".row-slots")]


def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    problem_of_kernel: dict[str, Any] = {"kernel": "rbf", "gamma": 0.2, "C": 30.0, "tol": 1e-3}
    whole = bigsvm.fit(problem(), solver="smo", working_set=2, **problem_of_kernel)
    assert sum(counts(whole)) > 1000
    config = FitConfig.of(solver="smo", working_set=2, cache_memory=20 * 4 * N, **problem_of_kernel)
    seen: list[Any] = []

    def stop(event: Any) -> None:
        seen.append(event)
        if type(event).__name__ == "EpochEnd" and len([e for e in seen if type(e).__name__ == "EpochEnd"]) == 3:
            signal.raise_signal(signal.SIGTERM)

    checkpoints = Checkpoints(tmp_path / "run", {}, 1e9)
    with pytest.raises(Interrupted):
        fit_store(open_store(problem()), config, stop, checkpoints)
    resumed = fit_store(open_store(problem()), config, lambda event: None, Checkpoints(tmp_path / "run", {}, 1e9), True)
    assert resumed.model.dual_coef.tobytes() == whole.model.dual_coef.tobytes()
    assert resumed.model.intercept.tobytes() == whole.model.intercept.tobytes()


def plan(**options: Any) -> Any:
    width = options.pop("width", 6)
    config = FitConfig.of(**{"solver": "smo", "working_set": 2, "kernel": "rbf", "memory": "64MiB", **options})
    return make_plan(open_store(problem(width)), config)


def test_the_plan_says_what_rows_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_plan, "is_tmpfs", lambda path: False)
    everything = plan().cache
    assert everything.memory_bytes == 4 * N * N
    assert everything.disk_bytes == 0
    assert dict(plan().describe())["kernel rows"].startswith("352 KiB in memory; none on disk")
    assert plan(tol=1e-7).cache.memory_bytes == 8 * N * N
    assert plan(cache_memory=100_000).cache.memory_bytes == 100_000
    assert plan(cache_memory=1).cache.memory_bytes == 3 * 8 * N
    # What decides the mathematics does not depend on it.
    assert plan(cache_memory=1).resolved() == plan().resolved()
    for other in ({"working_set": None}, {"solver": "rosen-block"}, {"solver": "simplified-smo", "working_set": None}):
        assert plan(**other).cache.memory_bytes == 0
        assert "kernel rows" not in dict(plan(**other).describe())
    wide = {"width": 260, "cache_memory": 100_000}
    assert "computed sooner than read" in plan(**wide).cache.why
    monkeypatch.setattr(cache_plan, "LONG_ROW", 0)
    assert plan(**wide).cache.disk_bytes == 4 * N * N - 100_000
    assert plan(**wide, scratch_limit=50_000).cache.disk_bytes == 50_000
    assert plan(width=260).cache.disk_bytes == 0  # memory holds all
    stream(monkeypatch)
    assert plan(cache_memory=100_000).cache.disk_bytes == 4 * N * N - 100_000
    monkeypatch.setattr(cache_plan, "is_tmpfs", lambda path: True)
    assert plan(cache_memory=100_000).cache.disk_bytes == 0


@pytest.mark.parametrize(("C", "steps", "dual"), [(1.0, 61, 94.554), (100.0, 49, 868.839)])
def test_wss_wr_on_heart_scale(real_data: ModuleType, C: float, steps: int, dual: float) -> None:
    X, y = real_data.load("heart_scale")
    options: dict[str, Any] = {"solver": "smo", "kernel": "rbf", "gamma": 1 / 13, "C": C, "stop": "paper", "tol": 1e-3}
    result = bigsvm.fit((X, y), wss="wr", **options)
    assert result.figures["iterations"] == steps
    assert result.figures["dual_objective"] == pytest.approx(dual, abs=1e-3)
    assert counts(result)[:2] == (2 * steps, 0)  # no row is asked for twice
    assert result.figures["relative_gap"] > 0.1
    optimum = bigsvm.fit((X, y), wss="3", working_set=2, **options)
    if C == 1.0:
        assert optimum.figures["iterations"] == 140
    assert optimum.figures["dual_objective"] == pytest.approx({1.0: 100.877, 100.0: 2526.925}[C], abs=1e-3)
    assert counts(optimum)[1] > counts(optimum)[0] / 2


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("options", KEPT, ids=named)
def test_no_kernel_rows_outlive_their_fit(options: dict[str, Any]) -> None:
    """A loop of fits would grow until Python looks for cycles, which it does by objects, not by bytes."""
    config = {"kernel": "rbf", "gamma": 0.2, "C": 1.0, "tol": 1e-2, "memory": "64MiB", **options}
    bigsvm.fit(problem(), **config)
    gc.collect()
    gc.disable()
    try:
        bigsvm.fit(problem(), **config)
        alive = [found for found in gc.get_objects() if type(found) in (DataRows, KernelData)]  # no proxy is asked
    finally:
        gc.enable()
    assert not alive
