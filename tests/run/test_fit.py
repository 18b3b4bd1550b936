"""The loop: ends with a status, same options give the same bytes, every mapper and every way of holding rows."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.events import CertificateMade, EpochEnd, Event, FitEnded, FitStarted, Warned, fan_out
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.plan import make_plan
from bigsvm.store.blocks import StoreBase
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.proofs import same_optimum


def model_bytes(result: Any, path: Path) -> dict[str, bytes]:
    result.save_model(path, overwrite=True)
    return {p.name: p.read_bytes() for p in sorted(path.iterdir())}


@pytest.mark.parametrize("n_classes", [2, 3, 10])  # ten: two groups of models
@pytest.mark.parametrize("stream", [False, True])
def test_same_options_same_bytes_on_every_mapper(
    tmp_path: Path, n_classes: int, stream: bool, request: pytest.FixtureRequest
) -> None:
    if stream:
        request.getfixturevalue("streaming")
    X, y = random_problem(300, 6, 0.5, seed=31, n_classes=n_classes)
    rows = (sparse.csr_array(X.astype(np.float32)), y)
    options: dict[str, Any] = {"loss": "hinge", "tol": 1e-2, "memory": "64MiB"}
    result = bigsvm.fit(rows, scheduler="serial", **options)
    assert (result.model.about["plan"]["row_buffer_bytes"] > 0) == stream
    first = model_bytes(result, tmp_path / "a")
    assert sorted(first) == ["alpha.npy", "coef.npy", "intercept.npy", "model.json"]
    for changed in ({"threads": 1}, {"threads": 2}, {"threads": 4}, {"scheduler": "serial"}):
        assert model_bytes(bigsvm.fit(rows, **options, **changed), tmp_path / "b") == first
    other = model_bytes(bigsvm.fit(rows, **options, seed=1), tmp_path / "c")
    assert other != first


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("stream", "n_classes", "shards"),
    [(False, 2, 1), (True, 2, 1), (True, 10, 1), (True, 2, 2), (True, 10, 2)],
)
def test_two_worker_processes_give_the_bytes_of_none(
    tmp_path: Path, stream: bool, n_classes: int, shards: int, cluster: str, request: pytest.FixtureRequest
) -> None:
    """Of a cluster that is there; and once of worker processes that the fit starts, which takes most of its time."""
    if stream:
        request.getfixturevalue("streaming")
    its_own = stream and n_classes == shards == 2
    workers: dict[str, Any] = {"scheduler": "processes", "workers": 2} if its_own else {"scheduler": cluster}
    X, y = random_problem(200, 5, seed=32, n_classes=n_classes)
    options: dict[str, Any] = {"solver": "dcd", "loss": "squared_hinge", "tol": 1e-2, "memory": "64MiB", "C": 0.1}
    options["shards"] = shards
    here = model_bytes(bigsvm.fit((X, y), threads=1, **options), tmp_path / "a")
    for number, changed in enumerate(({"threads": 4}, workers)):
        options["scratch"] = str(tmp_path / f"scratch{number}")  # a working copy of its own
        assert model_bytes(bigsvm.fit((X, y), **options, **changed), tmp_path / "b") == here


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_several_shards_converge(streaming: None, shards: int, loss: str) -> None:
    X, y = random_problem(400, 6, seed=33, noise=0.2)
    alone = bigsvm.fit((X, y), solver="dcd", loss=loss, tol=1e-3)
    result = bigsvm.fit((X, y), solver="dcd", loss=loss, tol=1e-3, shards=shards)
    assert result.status == "converged"
    same_optimum(result, alone)


@pytest.mark.parametrize("weighed", ["rows", "classes"])
def test_several_shards_weigh_rows_and_classes(streaming: None, weighed: str) -> None:
    X, y = random_problem(400, 6, seed=33, noise=0.2)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "tol": 1e-3, "C": 0.03, "max_passes": 200}
    rows: Any = (X, y)
    if weighed == "rows":
        rows = (X, y, np.random.default_rng(1).integers(0, 4, 400).astype(np.float64))
    else:
        options["class_weight"] = {"1": 5.0}
    alone = bigsvm.fit(rows, **options)
    result = bigsvm.fit(rows, shards=2, solver_options={"row_buffer": "off"}, **options)
    assert result.status == "converged"
    same_optimum(result, alone)


def test_dense_and_csr_have_the_same_objective_to_1e_9() -> None:
    X, y = random_problem(200, 8, 0.4, seed=34)
    dense = bigsvm.fit((X, y), tol=1e-11)
    sparse_rows = bigsvm.fit((sparse.csr_array(X), y), tol=1e-11)
    assert dense.figures["content_fingerprint"] == sparse_rows.figures["content_fingerprint"]
    assert dense.figures["objective"] == pytest.approx(sparse_rows.figures["objective"], rel=1e-9)


def test_passes_and_epochs_are_counted(streaming: None) -> None:
    X, y = random_problem(400, 6, seed=35, noise=0.3)
    events: list[Event] = []
    config = FitConfig(loss="hinge", tol=1e-3, memory="64MiB", solver_options={"row_buffer": "off"})
    figures = fit_store(ArrayRows(X, y), config, events.append).figures
    proofs = [e for e in events if isinstance(e, CertificateMade)]
    steps = [e for e in events if isinstance(e, EpochEnd)]
    assert figures["epochs"] == len(steps)
    assert figures["passes"] == pytest.approx(len(steps) + figures["certificate_passes"], rel=1e-2)
    assert figures["certificate_passes"] <= 1.01
    assert figures["bytes_read"] == pytest.approx(figures["passes"] * figures["data_bytes"])
    gaps = [e.relative_gap for e in proofs]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == figures["relative_gap"]
    assert isinstance(events[0], FitStarted)
    assert isinstance(events[-1], FitEnded)
    resident = bigsvm.fit((X, y), loss="hinge", tol=1e-3, memory="1GiB")
    assert resident.figures["objective"] == pytest.approx(figures["objective"], rel=1e-3)


def test_rows_in_memory_are_read_once() -> None:
    X, y = random_problem(300, 6, seed=36, noise=0.3)
    figures = bigsvm.fit((X, y), loss="hinge", tol=1e-5).figures
    assert figures["passes"] == 1.0
    assert figures["certificate_passes"] == 0.0
    assert figures["epochs"] > 5


@pytest.mark.parametrize("stream", [False, True])
def test_max_passes_stops_with_an_honest_gap(stream: bool, request: pytest.FixtureRequest) -> None:
    if stream:
        request.getfixturevalue("streaming")
    X, y = random_problem(400, 20, seed=37, noise=0.4)
    result = bigsvm.fit((X, y), loss="hinge", C=10.0, tol=1e-9, max_passes=4)
    assert result.status == "stopped"
    assert result.exit_code() == 4
    assert result.exit_code(allow_unconverged=True) == 0
    assert 1e-9 < result.certificate.relative_gap <= 1
    spent = result.figures["passes"] if stream else result.figures["epochs"]
    assert spent <= 4


def test_max_time_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("bigsvm.run.fit.loop.time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    X, y = random_problem(400, 20, seed=37, noise=0.4)
    events: list[Any] = []
    result = bigsvm.fit((X, y), solver="dcd", loss="hinge", C=10.0, tol=1e-9, max_time=50, emit=events.append)
    assert result.status == "stopped"
    assert max(event.wall_s for event in events if isinstance(event, EpochEnd)) >= 50
    assert 1e-9 < result.certificate.relative_gap <= 1


def test_an_unreachable_tolerance_stalls_rather_than_spins() -> None:
    X, y = random_problem(50, 3, seed=39)
    result = bigsvm.fit((X, y), solver="dcd", loss="squared_hinge", tol=1e-300)
    assert result.status == "stalled"
    assert result.exit_code() == 4
    assert result.certificate.relative_gap < 1e-12


def test_lambda_reports_the_mean_too() -> None:
    X, y = random_problem(50, 3, seed=40)
    result = bigsvm.fit((X, y), lam=0.01, tol=1e-6)
    assert result.figures["objective_mean"] == pytest.approx(result.figures["objective"] * 0.01)
    assert result.figures["C"] == pytest.approx(2.0)


def test_no_dual_leaves_alpha_out(tmp_path: Path) -> None:
    X, y = random_problem(50, 3, seed=41)
    bigsvm.fit((X, y), no_dual=True).save_model(tmp_path / "m")
    assert not (tmp_path / "m" / "alpha.npy").exists()


def test_an_observer_that_fails_is_dropped_and_the_fit_goes_on() -> None:
    X, y = random_problem(50, 3, seed=42)
    seen: list[Event] = []

    def broken(event: Event) -> None:
        raise OSError("disk full")

    result = fit_store(ArrayRows(X, y), FitConfig(), fan_out([broken, seen.append]))
    assert result.status == "converged"
    assert any(isinstance(event, Warned) and "dropped" in event.message for event in seen)


def test_a_plan_that_cannot_fit_is_refused_and_the_memory_it_names_works() -> None:
    X, y = random_problem(3000, 400, seed=43)
    store = ArrayRows(X, y)
    with pytest.raises(PlanRefused, match="would do") as refused:
        make_plan(store, FitConfig(memory="1MiB"))
    least = refused.value.min_memory_bytes
    assert least is not None
    result = fit_store(store, FitConfig(memory=least, tol=0.1))
    assert result.status == "converged"
    assert make_plan(store, FitConfig(memory=least)).min_memory_bytes == least


def test_a_plan_does_not_depend_on_threads_or_scheduler() -> None:
    X, y = random_problem(3000, 40, seed=44)
    store = ArrayRows(X, y)
    plans = [
        make_plan(store, FitConfig(memory="20MiB", threads=t, scheduler=s)).resolved()
        for t in (1, 4)
        for s in (None, "processes")
    ]
    assert all(plan == plans[0] for plan in plans)


@pytest.mark.parametrize("memory", [2**22, 2**23, 2**24, 2**26, 2**30, 2**34])
@pytest.mark.parametrize("n_samples", [10, 5_000, 2_000_000_000])
def test_plans_add_up(memory: int, n_samples: int) -> None:
    class Shape(StoreBase):
        """Metadata of a store that nobody could make here."""

        uri, layout, n_features, nnz, has_weights = "shape", "csr", 1000, n_samples * 50, False
        dtype, index_dtype, classes = np.dtype(np.float32), np.dtype(np.int32), np.array([-1, 1])

    store: Any = Shape()
    store.n_samples = n_samples
    try:
        plan = make_plan(store, FitConfig(memory=memory))
    except PlanRefused as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert refused.min_memory_bytes is not None
        assert refused.min_memory_bytes > memory
        return
    held = sum(need.nbytes for need in plan.needs if need.what not in plan.spilled)
    assert held <= memory
    assert plan.min_memory_bytes <= max(memory, 1 << 20)
    assert plan.n_blocks * plan.block_rows >= n_samples > (plan.n_blocks - 1) * plan.block_rows
    assert plan.resident == (plan.n_blocks == 1 and plan.mode == "resident")


@pytest.mark.parametrize("memory", ["40MiB", "1GiB", "streamed"])
def test_chunking_codec_and_order_of_entries_do_not_change_a_byte(
    tmp_path: Path, memory: str, request: pytest.FixtureRequest
) -> None:
    n = 4000
    if memory == "streamed":
        request.getfixturevalue("streaming_hundreds")
        n, memory = 1200, "64MiB"
    X, y = random_problem(n, 60, 0.5, seed=45, noise=0.3)
    rows = (sparse.csr_array(X.astype(np.float32)), y)
    outcome = []
    for number, options in enumerate(({"codec": "none"}, {"codec": "lz4", "chunk_bytes": 100_000}, {"codec": "zstd"})):
        bigsvm.ingest(rows, tmp_path / f"{number}.zarr", **options)
        result = bigsvm.fit(tmp_path / f"{number}.zarr", loss="hinge", tol=1e-2, memory=memory)
        outcome.append(model_bytes(result, tmp_path / "m"))
    shuffled = rows[0].copy()
    for i in range(0, n, 3):  # entries of a row in another order are the same content
        a, b = shuffled.indptr[i], shuffled.indptr[i + 1]
        shuffled.data[a:b], shuffled.indices[a:b] = shuffled.data[a:b][::-1].copy(), shuffled.indices[a:b][::-1].copy()
    shuffled.has_sorted_indices = False
    outcome.append(model_bytes(bigsvm.fit((shuffled, y), loss="hinge", tol=1e-2, memory=memory), tmp_path / "m"))
    assert all(found == outcome[0] for found in outcome)
