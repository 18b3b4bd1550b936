"""Dask collections as rows: the order and the content of arrays in memory, a bounded number of partitions at a time."""

from __future__ import annotations

import fcntl
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from distributed import Client
from distributed.client import ClosedClientError

import bigsvm
from bigsvm.errors import BigSVMError, DataError, MissingInput, PlanRefused, ReadFailed, UsageError
from bigsvm.run.start.lazy_rows import rows_on_disk
from bigsvm.store.ingest.chunk_files import ChunkFiles
from bigsvm.store.ingest.collections import dask_parts, dask_source, made_rows
from bigsvm.store.ingest.collections.dask_parts import DaskParts
from bigsvm.store.ingest.ingest import ingest

N, D = 300, 6
RNG = np.random.default_rng(3)
DENSE = np.where(RNG.random((N, D)) < 0.4, RNG.random((N, D)) - 0.5, 0.0)
y = np.where(DENSE @ RNG.random(D) + 0.1 * RNG.standard_normal(N) > 0, 1, -1)
WEIGHT = RNG.random(N) + 0.5
CITY = np.array(["Oslo", "Rome", "Bern"])[RNG.integers(0, 3, N)]
FRAME = pd.DataFrame(DENSE, columns=[f"x{j}" for j in range(D)])
PLACES = [0, 70, 70, 190, 300]  # an empty partition among them


def blocks(make: Callable[..., Any], *arrays: np.ndarray) -> list[Any]:
    return [dask.delayed(make)(*(a[i:j] for a in arrays)) for i, j in itertools.pairwise(PLACES)]


def unknown(array: Any) -> Any:
    """The same rows, of lengths that dask does not know."""
    return array[array.sum(1) > -np.inf] if array.ndim == 2 else array[array > -np.inf]


def collections() -> dict[str, tuple[Any, dict[str, Any]]]:
    X = da.from_array(DENSE, chunks=(77, 4))
    labels = da.from_array(y, chunks=50)
    frame = dd.from_pandas(FRAME.assign(label=y), npartitions=4)
    pairs = zip(*(array.to_delayed().ravel() for array in (X.rechunk((77, D)), labels.rechunk(77))), strict=True)
    return {
        "dense": (X, {"y": labels}),
        "a tuple": ((X, y), {}),
        "labels of pandas": (X, {"y": pd.Series(y)}),
        "scipy blocks": (X.rechunk((77, D)).map_blocks(sp.csr_matrix), {"y": labels}),
        "unknown lengths": (unknown(X), {"y": unknown(labels.rechunk(77))}),
        "a frame": (frame, {}),
        "labels beside a frame": (frame[list(FRAME)], {"y": frame.label}),
        "an array of a frame": (frame[list(FRAME)].values, {"y": frame.label.values}),
        "Delayed pairs": ([dask.delayed(lambda a, b: (a, b))(a, b) for a, b in pairs], {}),
        "Delayed CSR": (blocks(sp.csr_array, DENSE), {"y": y}),
        "Delayed CSR and labels": (blocks(sp.coo_array, DENSE), {"y": blocks(np.array, y)}),
        "matrix in memory": (DENSE, {"y": labels}),
    }


def test_every_collection_gives_the_same_content(tmp_path: Path) -> None:
    wanted = ingest((DENSE, y), tmp_path / "wanted")["content_fingerprint"]
    for number, (name, (source, options)) in enumerate(collections().items()):
        for threads in (1, 3):
            told = ingest(source, tmp_path / f"{number}-{threads}", threads=threads, **options)
            assert (name, told["n_samples"], told["content_fingerprint"]) == (name, N, wanted)


def test_weights_and_text_columns_are_those_of_a_table(tmp_path: Path) -> None:
    table = FRAME.assign(city=CITY, kind=pd.Categorical(CITY), label=np.where(y > 0, "yes", "no"), weight=WEIGHT)
    table.to_csv(tmp_path / "rows.csv", index=False)
    for options in ({}, {"hash_bits": 4}, {"columns": ("x1", "city")}):
        wanted = ingest(tmp_path / "rows.csv", tmp_path / "wanted", overwrite=True, **options)
        told = ingest(dd.from_pandas(table, npartitions=3), tmp_path / "rows", overwrite=True, **options)
        assert told["content_fingerprint"] == wanted["content_fingerprint"], options
        assert bigsvm.open_store(tmp_path / "rows").recipe == bigsvm.open_store(tmp_path / "wanted").recipe
    frame = dd.from_pandas(table.assign(label=table.label.where(table.x0 > 0)), npartitions=3)
    kept = ingest(frame, tmp_path / "kept", missing="drop")
    assert kept["n_samples"] == int((table.x0 > 0).sum())


def test_rows_of_a_collection_join_a_store_as_it_reads_them(tmp_path: Path) -> None:
    table = FRAME.assign(city=CITY, label=y)
    ingest(dd.from_pandas(table, npartitions=2), tmp_path / "rows")
    told = ingest(dd.from_pandas(table[table.city == "Rome"], npartitions=2), tmp_path / "rows", append=True)
    assert (told["n_features"], told["n_appended"]) == (D + 3, int((CITY == "Rome").sum()))


def test_a_bounded_number_of_partitions_is_in_flight(tmp_path: Path) -> None:
    lock, running, most, order = threading.Lock(), [0], [0], []

    def make(number: int) -> tuple[np.ndarray, np.ndarray]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            order.append(number)
            if running[0] == 2:
                two.set()
        if number:  # the first is asked for its kind, alone
            assert two.wait(600), "one after the other"
        never.wait(0.002)  # others than the few that are to run would have the time to begin
        with lock:
            running[0] -= 1
        return np.full((10, 2), float(number)), np.full(10, number % 2)

    two, never = threading.Event(), threading.Event()
    told = ingest([dask.delayed(make)(k) for k in range(20)], tmp_path / "rows", threads=3)
    assert (told["n_samples"], sorted(order)) == (200, list(range(20)))  # each is computed once
    assert 1 < most[0] <= 3
    rows = bigsvm.open_store(tmp_path / "rows")
    X = np.concatenate([rows.read(ref).X for ref in rows.refs(64)])
    assert X[:, 0].tolist() == np.repeat(np.arange(20.0), 10).tolist()


def test_memory_bounds_what_is_in_flight_and_refuses_a_partition_that_does_not_fit(tmp_path: Path) -> None:
    parts = dask_source.InFlight(8 << 20, 16)
    few = type("Parts", (), {"workers": None, "n_parts": 100})()
    assert [parts.at_most(few, size << 10) for size in (1, 1 << 10, 64 << 10)] == [16, 4, 1]
    X = da.zeros((300_000, 20), chunks=(300_000, 20))
    with pytest.raises(PlanRefused, match=r"smaller partitions.*takes 48\.1 MiB"):
        ingest((X, da.zeros(300_000, chunks=-1)), tmp_path / "rows", memory="64MiB")


def test_what_all_partitions_need_is_computed_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def read(number: int) -> np.ndarray:
        calls.append(number)
        return DENSE[number * 30 : number * 30 + 30]

    X = da.concatenate([da.from_delayed(dask.delayed(read)(k), (30, D), float) for k in range(10)])
    told = ingest((X - X.mean(0), y), tmp_path / "rows")
    assert len(calls) == 20, "once for the mean, once for the rows"
    close = ingest((DENSE - DENSE.mean(0), y), tmp_path / "wanted")
    assert told["n_samples"] == close["n_samples"] == N


def test_a_cluster_computes_the_partitions(tmp_path: Path) -> None:
    wanted = ingest((DENSE - DENSE.mean(0), y), tmp_path / "wanted", dtype="float32")["n_samples"]
    X = da.from_array(DENSE, chunks=(40, 4))
    told = []
    with Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0", set_as_default=False
    ) as client:
        for number, (source, given) in enumerate([((X, y), {}), ((X - X.mean(0), y), {}), ((X, y), {"client": None})]):
            told.append(ingest(source, tmp_path / str(number), **{"client": client, **given}))
        with pytest.raises(DataError, match="partition 2 could not be computed: ValueError: no"):
            ingest(broken(ValueError("no such thing")), tmp_path / "broken", client=client)
    assert [each["n_samples"] for each in told] == [wanted] * 3
    assert told[0]["content_fingerprint"] == told[2]["content_fingerprint"] != told[1]["content_fingerprint"]


def test_a_client_that_has_closed_is_a_lost_cluster() -> None:
    """As dask's does once its scheduler was gone for long: what is on its way is lost, and nobody is told to stop."""

    def refused(*given: Any, **how: Any) -> None:
        raise ClosedClientError("Client is closed")

    def sent(*given: Any, **how: Any) -> Any:
        return SimpleNamespace(result=refused, cancel=refused, done=lambda: True)

    def parts_of(send: Any) -> DaskParts:
        client = SimpleNamespace(status="closed", nthreads=lambda: None.ncores, compute=send, submit=send)  # type: ignore[attr-defined]
        return DaskParts([[dask.delayed(abs)(k) for k in range(3)]], "rows", client)

    asks: list[Callable[[DaskParts], Any]] = [
        lambda parts: parts.workers,
        lambda parts: parts.first(2),
        lambda parts: list(parts.made(0, 2, len, len, lambda *_: None, 0)),
        lambda parts: list(parts.computed(0, 2)),
    ]
    for send in (refused, sent):
        for ask in asks:
            with pytest.raises(ReadFailed, match=r"the cluster .*start a cluster again"):
                ask(parts_of(send))


def test_a_cluster_without_workers_counts_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is waited for: dask would wait for ever."""
    monkeypatch.setattr(dask_parts, "NOBODY_S", 0.02)
    monkeypatch.setattr(dask_parts, "LOOK_S", 0.01)
    X = da.from_array(DENSE, chunks=(40, 4))
    with Client(processes=False, n_workers=0, dashboard_address=":0", set_as_default=False) as client:
        parts = DaskParts([[dask.delayed(abs)(k) for k in range(3)]], "rows", client)
        asks: list[Callable[[], Any]] = [
            lambda: parts.first(2),
            lambda: list(parts.made(0, 2, len, len, lambda *_: None, 0)),
            lambda: list(parts.computed(0, 2)),
            lambda: ingest((X - X.mean(0), y), tmp_path / "nothing", client=client),
        ]
        for ask in asks:
            with pytest.raises(ReadFailed, match=r"the cluster was lost: no worker for 0\.02 seconds"):
                ask()
    assert not (tmp_path / "nothing").exists()


def files_of(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.mark.cluster
def test_workers_write_the_chunks_of_dense_rows(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of the store are those of no cluster, wherever partitions and chunks begin."""
    made: list[str] = []
    take_over = ChunkFiles.take_over

    def watched(self: ChunkFiles, source: Path, nbytes: int, hexdigest: str) -> None:
        made.append(source.parent.name)
        take_over(self, source, nbytes, hexdigest)

    monkeypatch.setattr(ChunkFiles, "take_over", watched)
    X, labels = da.from_array(DENSE, chunks=(70, 4)), da.from_array(y, chunks=70)
    cases: list[tuple[Any, dict[str, Any]]] = [
        ((X, labels), {"chunk_bytes": 13 * D * 8}),
        ((X, labels, da.from_array(WEIGHT, chunks=70)), {"chunk_bytes": 31 * D * 4, "dtype": "float32"}),
        ((X, da.from_array(DENSE[:, 0], chunks=70)), {"task": "regression", "chunk_bytes": 13 * D * 8}),
        ((X, da.from_array(CITY, chunks=70)), {"chunk_bytes": 13 * D * 8, "codec": "none"}),
        ((X, labels), {"chunk_bytes": 1 << 20}),
    ]
    with Client(cluster, set_as_default=False) as client:
        for number, (source, options) in enumerate(cases):
            before, where = len(made), (tmp_path / f"there{number}", tmp_path / f"here{number}")
            ingest(source, where[0], client=client, **options)
            assert (len(made) - before > 3) == (number < 4)
            ingest(source, where[1], **options)
            assert files_of(where[0]) == files_of(where[1])
        with pytest.raises(DataError, match="row 222 holds nan"):
            ingest((da.from_array(HOLED, chunks=(90, D)), da.from_array(y, chunks=90)), tmp_path / "bad", client=client)
        with pytest.raises(DataError, match="labels mix numbers and strings, from row 70 on"):
            ingest(blocks_of_words_and_numbers(), tmp_path / "bad", client=client, chunk_bytes=13 * D * 8)
        with monkeypatch.context() as patch:
            patch.setattr("bigsvm.store.ingest.collections.dask_source.versions", lambda: {"numpy": "0.1"})
            with pytest.raises(UsageError, match=r"a worker on \S+ has bigsvm \(its sources\) \w{12}, and the caller"):
                ingest(cases[0][0], tmp_path / "bad", client=client, **cases[0][1])
        # A worker that does not see the folder gives its rows back.
        client.run(lambda: setattr(made_rows, "_HERE", "elsewhere"))
        before = len(made)
        ingest(cases[0][0], tmp_path / "unseen", client=client, **cases[0][1])
        client.run(lambda: setattr(made_rows, "_HERE", "here"))
        assert len(made) == before
    assert files_of(tmp_path / "unseen") == files_of(tmp_path / "here0")
    assert set(made) == {made_rows.FOLDER}
    assert not (tmp_path / "bad").exists()
    assert not list(tmp_path.rglob(".*tmp*"))


def blocks_of_words_and_numbers() -> list[Any]:
    return [dask.delayed(lambda k: (DENSE[:70], y[:70] if k else np.array(["a"] * 70)))(k) for k in range(3)]


def raising(error: Exception) -> Callable[[int], np.ndarray]:
    def make(number: int) -> np.ndarray:
        if number == 2:
            raise error
        return DENSE[:10]

    return make


def broken(error: Exception) -> tuple[Any, Any]:
    return [dask.delayed(raising(error))(k) for k in range(4)], np.ones(40)


HOLED = DENSE.copy()
HOLED[222, 3] = np.nan
BAD: dict[str, tuple[Any, dict[str, Any], type[BigSVMError], str]] = {
    "raises": (broken(ValueError("no such thing")), {}, DataError, "partition 2 could not be computed: ValueError: no"),
    "a file is missing": (broken(FileNotFoundError("x.npy")), {}, MissingInput, "partition 2.*x.npy"),
    "reading fails": (broken(OSError("disk on fire")), {}, ReadFailed, "partition 2.*disk on fire"),
    "NaN": ((da.from_array(HOLED, chunks=(90, D)), y), {}, DataError, "row 222 holds nan"),
    "null": (dd.from_pandas(FRAME.assign(x3=HOLED[:, 3], label=y), npartitions=3), {}, DataError, "row 222"),
    "text among numbers": (
        dd.from_map(
            lambda k: FRAME.assign(label=y, x1="a" if k else 1.0), [0, 1],
            meta=FRAME.assign(label=y), enforce_metadata=False,
        ),
        {}, DataError, "column 'x1' has type .* in partition 1",
    ),
    "no label": (dd.from_pandas(FRAME, npartitions=2), {}, DataError, "no column 'label'"),
    "labels missing": (da.zeros((10, 2)), {}, UsageError, "need labels"),
    "fewer labels": ((da.zeros((10, 2)), da.zeros(9)), {}, DataError, "9 labels or weights for 10"),
    "fewer labels in memory": ((unknown(da.from_array(DENSE)), y[:-1]), {}, DataError, "before the matrix"),
    "more labels in memory": ((unknown(da.from_array(DENSE)), np.append(y, 1)), {}, DataError, "301 labels"),
    "other partitions": (
        (unknown(da.from_array(DENSE, chunks=(100, D))), da.from_array(y, chunks=30)), {}, UsageError, "repartition",
    ),
    "another width": ((blocks(lambda a: a[:, : 3 + (len(a) == 120)], DENSE), y), {}, DataError, "2 has 4 col"),
    "another type": ((blocks(lambda a: a.astype("f4" if len(a) < 100 else "f8"), DENSE), y), {}, DataError, "astype"),
    "another layout": ((blocks(lambda a: a if len(a) < 100 else sp.csr_array(a), DENSE), y), {}, DataError, "sparse"),
    "an option of frames": ((da.zeros((10, 2)), np.ones(10)), {"hash_bits": 3}, UsageError, "for dataframes"),
    "an option of stores": ((da.zeros((10, 2)), np.ones(10)), {"scale": "maxabs"}, UsageError, "then fit with --scale"),
    "three dimensions": ((da.zeros((10, 2, 2)), np.ones(10)), {}, DataError, "shape"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "options", "kind", "word"), BAD.values(), ids=BAD)
def test_bad_collections(tmp_path: Path, source: Any, options: Any, kind: type[BigSVMError], word: str) -> None:
    with pytest.raises(kind, match=word):
        ingest(source, tmp_path / "rows", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_fit_reads_a_collection_from_the_scratch_folder(tmp_path: Path) -> None:
    options: dict[str, Any] = {"C": 1.0, "tol": 1e-3, "scratch": str(tmp_path), "memory": "64MiB"}
    X, labels = da.from_array(DENSE, chunks=(77, 4)), da.from_array(y, chunks=77)
    wanted, found = bigsvm.fit(DENSE, y, **options), bigsvm.fit(X, labels, **options)
    assert found.figures["content_fingerprint"] == wanted.figures["content_fingerprint"]
    assert found.model.coef.tobytes() == wanted.model.coef.tobytes()
    found.save_model(tmp_path / "m.model")
    assert bigsvm.certify(tmp_path / "m.model", X, labels, scratch=str(tmp_path))["relative_gap"] <= 1e-3
    assert not list(tmp_path.glob("collection-*"))
    with pytest.raises(PlanRefused, match="scratch_limit"):
        bigsvm.fit(X, labels, **options, scratch_limit=100)
    assert not list(tmp_path.glob("collection-*"))


def test_rows_that_a_killed_run_left_go_with_the_next_one(tmp_path: Path) -> None:
    """As the kernel leaves them: folder and lock are there, and nobody holds the lock."""
    for name in ("collection-left", "collection-held"):
        (tmp_path / name / "rows.zarr").mkdir(parents=True)
        (tmp_path / f"{name}.lock").write_text("")
    with open(tmp_path / "collection-held.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with rows_on_disk(da.from_array(DENSE, chunks=(77, D)), {"scratch": str(tmp_path)}, {"y": y}, False) as (
            path,
            _,
        ):
            there = {entry.name for entry in tmp_path.glob("collection-*")}
            ours = Path(path).parent.name
            assert there == {"collection-held", "collection-held.lock", ours, f"{ours}.lock"}
    assert {entry.name for entry in tmp_path.glob("collection-*")} == {"collection-held", "collection-held.lock"}


def test_searches_and_paths_of_a_collection(tmp_path: Path) -> None:
    """As of the same rows in memory, and with nothing left of them."""
    options: dict[str, Any] = {"loss": "hinge", "scratch": str(tmp_path), "memory": "64MiB"}
    X, labels = da.from_array(DENSE, chunks=(77, 4)), da.from_array(y, chunks=77)
    wanted, found = (bigsvm.fit_path(rows, [0.1, 1.0], **options) for rows in ((DENSE, y), (X, labels)))
    assert [one.model.coef.tobytes() for one in found] == [one.model.coef.tobytes() for one in wanted]
    searched = [bigsvm.tune(*rows, Cs=[0.1, 1.0], folds=2, **options) for rows in ((DENSE, y), (X, labels))]
    assert searched[0].cv_results_["mean_test_score"].tolist() == searched[1].cv_results_["mean_test_score"].tolist()
    assert not list(tmp_path.glob("collection-*"))


def test_targets_of_a_collection_are_targets_where_they_are_whole_numbers(tmp_path: Path) -> None:
    X, targets = da.from_array(DENSE, chunks=(77, 4)), da.from_array(y.astype(np.float64), chunks=77)
    options: dict[str, Any] = {"scratch": str(tmp_path), "memory": "64MiB"}
    found = bigsvm.fit(X, targets, loss="nu_svr", kernel="rbf", **options)
    found.save_model(tmp_path / "m.model")
    told = bigsvm.certify(tmp_path / "m.model", X, targets, **options)
    assert told["relative_gap"] == pytest.approx(found.certificate.relative_gap)


def test_an_array_of_xarray(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    wanted = ingest((DENSE, y), tmp_path / "wanted")["content_fingerprint"]
    X, labels = xarray.DataArray(DENSE, dims=("cell", "gene")), xarray.DataArray(y, dims="cell")
    for number, (rows, truth) in enumerate(
        [(X, labels), (X.chunk({"cell": 70}), y), (X.variable.chunk({"cell": 70}), labels.chunk({"cell": 50}))]
    ):
        assert ingest((rows, truth), tmp_path / str(number))["content_fingerprint"] == wanted
    with pytest.raises(UsageError, match="one of its variables"):
        ingest((X.to_dataset(name="X"), y), tmp_path / "rows")


@pytest.mark.parametrize("beside", ["y", "sample_weight"])
@pytest.mark.parametrize("call", [bigsvm.fit, bigsvm.tune])
def test_errors_of_a_fit_name_the_collection_and_no_folder_that_is_gone(call: Any, beside: str, tmp_path: Path) -> None:
    X, y, weight = np.eye(8), np.arange(8) % 2.0, np.ones(8)
    {"y": y, "sample_weight": weight}[beside][3] = np.nan
    with pytest.raises(DataError, match="of row 3 is nan") as refused:
        call(da.from_array(X, chunks=(4, 8)), y, weight, scratch=str(tmp_path))
    assert refused.value.where == "dask collection"
