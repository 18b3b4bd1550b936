"""Every source gives the same content; dump undoes ingest; nothing half-made is left."""

from __future__ import annotations

import mmap
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import BigSVMError, DataError, MissingInput, OutputError, PlanRefused, UsageError
from bigsvm.events import Event, Warned, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest import row_source
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.ingest.on_thread import on_thread
from bigsvm.store.text.dump import dump, exact_decimals
from tests.test_peak_memory import Watched

N, D = 700, 40
RNG = np.random.default_rng(5)
DENSE = np.where(RNG.random((N, D)) < 0.2, RNG.random((N, D)) - 0.5, 0.0).astype(np.float32)
DENSE[-1, -1] = 1.0  # the text of the last feature tells the width
X = sp.csr_array(DENSE)
y = RNG.choice([-1, 1, 3], N)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few rows, so that every source comes in many."""
    monkeypatch.setattr(row_source, "_PART_BYTES", 5000)
    monkeypatch.setattr(row_source, "_PART_ROWS", 64)


def write_text(path: Path) -> Path:
    lines = []
    for i in range(N):
        a, b = X.indptr[i : i + 2]
        entries = [f"{j + 1}:{v!s}" for j, v in zip(X.indices[a:b], X.data[a:b], strict=True)]
        lines.append(" ".join([str(y[i]), *entries]))
    path.write_text("\n".join(lines) + "\n")
    return path


def save_all(folder: Path, **arrays: np.ndarray) -> Path:
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def write_parquet(folder: Path) -> Path:
    rows = np.split(np.arange(X.nnz), X.indptr[1:-1])
    table = pa.table(
        {
            "label": pa.array(y),
            "indices": pa.array([X.indices[r] for r in rows], pa.list_(pa.int32())),
            "values": pa.array([X.data[r] for r in rows], pa.list_(pa.float32())),
        }
    )
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


def npz(folder: Path, compressed: bool) -> Path:
    path = folder / "a.npz"
    np.save(folder / "labels.npy", y)
    sp.save_npz(path, X, compressed=compressed)
    return path


def sources(folder: Path) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    unsorted = X[:, ::-1].tocsr()[:, ::-1]
    labels = {"label": str(folder / "labels.npy")}
    yield "text", write_text(folder / "a.svm"), {}
    yield "text, one thread", write_text(folder / "b.svm"), {"threads": 1}
    yield "npz", npz(folder, True), labels
    yield "npz, stored", npz(folder, False), labels
    np.savez_compressed(folder / "own.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y, z=y)
    yield "npz with its labels", folder / "own.npz", {}
    yield "npz with named labels", folder / "own.npz", {"label": "z"}
    np.savez(folder / "dense.npz", X=DENSE, y=y)
    yield "dense npz", folder / "dense.npz", {}
    np.save(folder / "x.npy", DENSE)
    yield "npy", folder / "x.npy", labels
    np.save(folder / "f.npy", np.asfortranarray(DENSE))
    yield "npy by columns", folder / "f.npy", labels
    yield (
        "folder",
        save_all(folder / "c", data=X.data, indices=X.indices, indptr=X.indptr, y=y.astype(np.int8)),
        {},
    )
    yield "dense folder", save_all(folder / "d", X=DENSE, y=y), {}
    yield "arrays", (DENSE, y), {}
    yield "float64 arrays as float32", (DENSE.astype(np.float64), y.astype(float)), {"dtype": "float32"}
    yield "lists", (DENSE.tolist(), y.tolist()), {"dtype": "float32"}
    yield "scipy array", (X, y), {}
    yield "scipy matrix", (sp.csr_matrix(X), y), {}
    yield "scipy csc", (X.tocsc(), y), {}
    yield "scipy coo", (X.tocoo(), y), {}
    yield "scipy unsorted", (unsorted, y), {}
    yield "scipy with int64 indices", (CSR(X.data, X.indices.astype(np.int64), X.indptr), y), {}
    yield "dask", (da.from_array(DENSE, chunks=(99, D)), y), {}
    yield "dask by columns too", (da.from_array(DENSE, chunks=(150, 7)), da.from_array(y, chunks=41)), {}
    yield "dask of scipy", (da.from_array(DENSE, chunks=(99, D)).map_blocks(sp.csr_matrix), y), {}
    yield "Parquet", write_parquet(folder), {}


def test_every_source_gives_the_same_content(tmp_path: Path) -> None:
    found = {}
    for number, (name, source, options) in enumerate(sources(tmp_path)):
        result = ingest(source, tmp_path / f"{number}.zarr", **options)
        assert (result["n_samples"], result["n_features"], result["labels"]) == (N, D, [-1, 1, 3]), name
        found[name] = result["content_fingerprint"]
        if name in ("text", "arrays"):
            again = ingest(tmp_path / f"{number}.zarr", tmp_path / f"{number}-again.zarr", codec="zstd")
            found[f"{name}, from Zarr"] = again["content_fingerprint"]
    assert dict.fromkeys(found, found["text"]) == found


def test_source_as_arrays_and_y_apart(tmp_path: Path) -> None:
    a, b = ingest((X, y), tmp_path / "a"), ingest(X, tmp_path / "b", y=y)
    assert a["store_fingerprint"] == b["store_fingerprint"]


def test_an_open_store_is_a_source(tmp_path: Path) -> None:
    a = ingest((X, y), tmp_path / "a")
    b = ingest(open_store(tmp_path / "a"), tmp_path / "b", dtype="float64")
    assert a["content_fingerprint"] == b["content_fingerprint"]


def test_weights_reach_the_store(tmp_path: Path) -> None:
    weights = RNG.random(N)
    np.save(tmp_path / "w.npy", weights)
    np.save(tmp_path / "x.npy", DENSE)
    np.save(tmp_path / "y.npy", y)
    ingest((X, y), tmp_path / "a", sample_weight=weights)
    options = {"label": str(tmp_path / "y.npy"), "weight": str(tmp_path / "w.npy")}
    assert (
        ingest(tmp_path / "x.npy", tmp_path / "b", **options)["content_fingerprint"]
        == ingest(tmp_path / "a", tmp_path / "c")["content_fingerprint"]
    )
    store = open_store(tmp_path / "a")
    got = np.concatenate([store.read(ref).sample_weight for ref in store.refs(100)])
    assert np.array_equal(got, weights)


def test_string_labels_and_regression_targets(tmp_path: Path) -> None:
    names = np.array(["cat", "dog", "eel"])[y // 2 + 1]
    assert ingest((X, names), tmp_path / "a")["labels"] == ["cat", "dog", "eel"]
    assert ingest((X, names.astype(object)), tmp_path / "b")["labels"] == ["cat", "dog", "eel"]
    targets = RNG.normal(size=N)
    assert ingest((X, targets), tmp_path / "c", task="regression")["labels"] is None
    store = open_store(tmp_path / "c", task="regression")
    assert np.array_equal(np.concatenate([store.read(ref).y for ref in store.refs(64)]), targets)


@pytest.mark.parametrize(
    ("given", "stored"),
    [("float32", "float32"), ("float64", "float64"), ("float16", "float32"), ("int8", "int8"),
     ("uint8", "uint8"), ("int16", "float32"), ("uint16", "float32"), ("int32", "float64"), ("int64", "float64"),
     ("bool", "uint8")],
)  # fmt: skip
def test_dtype_follows_the_source(tmp_path: Path, given: str, stored: str) -> None:
    ingest((np.ones((3, 2), given), [0, 1, 1]), tmp_path / "a")
    assert open_store(tmp_path / "a").dtype == stored


# ---- what is refused ---------------------------------------------------------------------------------------


def holed(at: tuple[int, int], value: float) -> np.ndarray:
    spoilt = DENSE.copy()
    spoilt[at] = value
    return spoilt


def csr_with(**changes: np.ndarray) -> CSR:
    return CSR(X.data, X.indices, X.indptr)._replace(**changes)


def changed(array: np.ndarray, at: int, value: float) -> np.ndarray:
    array = array.copy()
    array[at] = value
    return array


BAD: list[tuple[str, Any, Any, type[BigSVMError], str]] = [
    ("NaN", holed((321, 5), np.nan), y, DataError, "row 321"),
    ("inf", holed((699, 0), -np.inf), y, DataError, "row 699"),
    ("NaN in CSR", csr_with(data=changed(X.data, X.indptr[321], np.nan)), y, DataError, "row 321"),
    ("NaN in dask", da.from_array(holed((321, 5), np.nan), chunks=(100, D)), y, DataError, "row 321"),
    ("label NaN", DENSE, changed(y.astype(float), 500, np.nan), DataError, "row 500"),
    ("too few labels", DENSE, y[:-1], DataError, "700 rows"),
    ("labels of two columns", DENSE, np.stack([y, y], 1), DataError, "700 rows"),
    ("no labels", DENSE, None, UsageError, "labels"),
    ("complex", DENSE.astype(complex), y, DataError, "complex"),
    ("objects", np.array([[object()] * 2] * N), y, DataError, "objects"),
    ("one dimension", DENSE[0], y[:40], DataError, "shape"),
    ("no rows", DENSE[:0], y[:0], DataError, "no rows"),
    ("index below 0", csr_with(indices=changed(X.indices, X.indptr[321], -1)), y, DataError, "row 321"),
    ("indptr falls", csr_with(indptr=changed(X.indptr, 321, 0)), y, DataError, "row 32"),
    ("indptr too short", csr_with(indptr=X.indptr[:-1]), y[:-1], DataError, "ends with"),
    ("indptr not from 0", csr_with(indptr=changed(X.indptr, 0, 1)), y, DataError, "begins"),
    ("fractional indices", csr_with(indices=X.indices.astype(float)), y, DataError, "integers"),
]  # fmt: skip


@pytest.mark.parametrize(("matrix", "labels", "kind", "word"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_bad_arrays(tmp_path: Path, matrix: Any, labels: Any, kind: type[BigSVMError], word: str) -> None:
    with pytest.raises(kind, match=word):
        ingest((matrix, labels), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_float32_overflow_names_the_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 3"):
        ingest((np.array([[1.0], [2.0], [3.0], [1e300]]), [0, 1, 0, 1]), tmp_path / "a", dtype="float32")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "x.npy", np.array([{}, []], object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", X=np.array([[{}]], object), y=np.array([1]))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(DataError):
            ingest(tmp_path / name, tmp_path / "a", label=str(tmp_path / "y.npy"))


def test_damaged_files(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "x.npy", DENSE)
    sp.save_npz(tmp_path / "x.npz", X)
    for name in ("x.npy", "x.npz"):
        whole = (tmp_path / name).read_bytes()
        for content in (b"", whole[:5], whole[: len(whole) // 2], b"1 1:1\n"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(DataError):
                ingest(tmp_path / name, tmp_path / "a", label=str(tmp_path / "y.npy"))
        spoilt = bytearray(whole)
        spoilt[len(whole) // 3] ^= 0xFF
        (tmp_path / "z.npz").write_bytes(bytes(spoilt))
    with pytest.raises(DataError):
        ingest(tmp_path / "z.npz", tmp_path / "a", label=str(tmp_path / "y.npy"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "x.npz", "y.npy", "z.npz"]


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    text = write_text(tmp_path / "a.svm")
    np.save(tmp_path / "x.npy", DENSE)
    sp.save_npz(tmp_path / "a.npz", X)
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    for source, options, kind in [
        (text, {"label": "y.npy"}, UsageError),
        (text, {"y": y}, UsageError),
        (text, {"dtype": "float16"}, UsageError),
        (text, {"from_format": "arff"}, UsageError),
        (text, {"n_features": 0}, UsageError),
        ([text, tmp_path / "x.npy"], {}, UsageError),
        (tmp_path / "x.npy", {}, UsageError),
        (tmp_path / "a.npz", {}, UsageError),
        (tmp_path / "a.npz", {"label": "nope"}, UsageError),
        (tmp_path / "a.arff", {}, UsageError),
        (tmp_path / "a.csv", {}, MissingInput),
        (tmp_path / "x.npy", {"label": str(tmp_path / "no.npy")}, MissingInput),
        (tmp_path / "no.npz", {}, MissingInput),
        (tmp_path / "no.zarr", {}, MissingInput),
        (tmp_path / "empty", {}, UsageError),
        (tmp_path / "x.npy", {"label": str(tmp_path / "x.npy"), "n_features": 41}, DataError),
    ]:
        with pytest.raises(kind):
            ingest(source, out, **options)
        assert not out.exists()


def test_output_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        ingest((X, y), tmp_path / "file" / "a")


# ---- events, memory, threads -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "arrays"])
def test_progress_ends_at_its_total(tmp_path: Path, kind: str) -> None:
    events: list[Event] = []
    source = write_text(tmp_path / "a.svm") if kind == "text" else (X, y)
    ingest(source, tmp_path / "a", emit=events.append)
    assert isinstance(events[0], WorkStarted)
    done = [event.done for event in events if isinstance(event, WorkAdvanced)]
    assert done == sorted(done)
    assert done[-1] == events[0].total > 0
    assert isinstance(events[-1], WorkEnded)


def test_badly_scaled_columns_are_warned_of(tmp_path: Path) -> None:
    events: list[Event] = []
    spread = DENSE.copy()
    spread[:, 3] = 1e6
    result = ingest((spread, y), tmp_path / "a", emit=events.append)
    assert "scale" in result["warnings"][0]
    assert any(isinstance(event, Warned) for event in events)


def test_threads_end_with_the_work(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    (tmp_path / "bad.svm").write_text("1 1:1\n" * 300_000 + "1 1:x\n")
    with pytest.raises(DataError, match=":300001"):
        ingest(tmp_path / "bad.svm", tmp_path / "a", memory="8MiB", chunk_bytes=1 << 18)

    def observer(event: Event) -> None:
        if isinstance(event, WorkAdvanced):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "bad.svm", tmp_path / "a", memory="8MiB", chunk_bytes=1 << 18, emit=observer)
    left = set(threading.enumerate()) - before
    assert not [thread.name for thread in left if "bigsvm" in thread.name]
    assert [path.name for path in tmp_path.iterdir()] == ["bad.svm"]


def test_on_thread_stays_bounded_and_closes() -> None:
    made: list[int] = []
    closed = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            for k in range(1000):
                made.append(k)
                yield k
        finally:
            closed.set()

    with on_thread(numbers(), depth=2) as ahead:  # type: ignore[arg-type]
        assert next(ahead) == 0
        assert len(made) <= 5
    assert closed.is_set()
    assert len(made) <= 6


# ---- dump --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_dump_and_ingest_give_the_same_content(tmp_path: Path, dtype: str, layout: str) -> None:
    bits = np.random.default_rng(3).integers(0, 2**63, (N, D), dtype=np.uint64)
    wild = (bits.view(np.float64) if dtype == "float64" else bits.astype(np.uint32).view(np.float32)).copy()
    wild[~np.isfinite(wild) | (DENSE == 0)] = 0
    wild[-1, -1] = 1
    labels = RNG.choice([-1.5, 0.0, 2.0], N)
    source = (sp.csr_array(wild) if layout == "csr" else wild, labels)
    first = ingest(source, tmp_path / "a")
    report = dump(open_store(tmp_path / "a", task="classification"), tmp_path / "a.svm", block_rows=33)
    assert report["warnings"] == []
    assert report["bytes"] == (tmp_path / "a.svm").stat().st_size
    second = ingest(tmp_path / "a.svm", tmp_path / "b", dtype=dtype)
    assert second["content_fingerprint"] == first["content_fingerprint"]


def test_dump_of_targets_weights_and_an_empty_last_column(tmp_path: Path) -> None:
    targets = RNG.normal(size=N)
    wide = np.hstack([DENSE, np.zeros((N, 2), np.float32)])
    ingest((wide, targets), tmp_path / "a", task="regression", sample_weight=np.ones(N))
    report = dump(open_store(tmp_path / "a", task="regression"), tmp_path / "a.svm")
    assert len(report["warnings"]) == 2
    assert "weights" in report["warnings"][0]
    assert "--n-features 42" in report["warnings"][1]
    ingest(tmp_path / "a.svm", tmp_path / "b", task="regression", n_features=42)
    store = open_store(tmp_path / "b", task="regression")
    assert store.n_features == 42
    assert np.array_equal(np.concatenate([store.read(ref).y for ref in store.refs(64)]), targets)


def test_dump_writes_numbers_as_people_do(tmp_path: Path) -> None:
    values = [
        1,
        0.1,
        -2.5,
        1e15,
        1e16,
        1.5e20,
        1e-4,
        1.25e-5,
        123456.75,
        5e-324,
        1.7976931348623157e308,
        0.1 + 0.2,
    ]
    ingest((np.array([values]), [2.5]), tmp_path / "a")
    dump(open_store(tmp_path / "a", task="classification"), tmp_path / "a.svm")
    label, *entries = (tmp_path / "a.svm").read_text().split()
    texts = [entry.partition(":")[2] for entry in entries]
    assert label == "2.5"
    assert [entry.partition(":")[0] for entry in entries] == [str(k) for k in range(1, 13)]
    assert [float(text) for text in texts] == values
    assert texts == ["1", "0.1", "-2.5", "1000000000000000", "1e16", "1.5e20", "0.0001", "1.25e-5",
                     "123456.75", "5e-324", "1.7976931348623157e308", "0.30000000000000004"]  # fmt: skip


def test_dump_to_standard_output(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    ingest((np.array([[0.5, 0.0], [0.0, 3.0]], np.float32), [1, -1]), tmp_path / "a")
    dump(open_store(tmp_path / "a"), "-")
    assert capfdbinary.readouterr().out == b"1 1:0.5\n-1 2:3\n"


def test_dump_leaves_nothing_half_made(tmp_path: Path) -> None:
    ingest((X, y), tmp_path / "a")
    store = open_store(tmp_path / "a")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        dump(store, tmp_path / "there")
    with pytest.raises(OutputError):
        dump(store, tmp_path / "there" / "out")

    def observer(event: Event) -> None:
        if isinstance(event, WorkAdvanced):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dump(store, tmp_path / "out", emit=observer)
    ingest((X, np.array(["a", "b"])[y // 3]), tmp_path / "named")
    with pytest.raises(DataError, match="not numbers"):
        dump(open_store(tmp_path / "named"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "named", "there"]
    assert dump(store, tmp_path / "there", overwrite=True)["n_samples"] == N


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_decimals_are_short_and_exact(dtype: type[np.floating]) -> None:
    bits = np.random.default_rng(1).integers(0, 2**64, 20_000, dtype=np.uint64)
    wild = (bits >> np.uint64(32)).astype(np.uint32).view(np.float32) if dtype is np.float32 else bits.view(dtype)
    round_ones = np.random.default_rng(2).integers(-999, 999, 20_000) / 10.0 ** (np.arange(20_000) % 30)
    values = np.concatenate([wild[np.isfinite(wild)], round_ones.astype(dtype), np.array([0, 1, 2**20], dtype)])
    mantissas, exponents = exact_decimals(values)
    texts = [f"{m}e{e}" for m, e in zip(mantissas.tolist(), exponents.tolist(), strict=True)]
    assert np.array_equal(np.array([float(text) for text in texts]).astype(dtype), np.abs(values))
    shortest = [
        len(np.format_float_scientific(v, trim="-").partition("e")[0].replace(".", "").strip("-")) for v in values
    ]
    longer = sum(len(str(m)) > n for m, n in zip(mantissas.tolist(), shortest, strict=True))
    assert longer <= len(values) / 1000


@pytest.mark.slow
def test_benchmark_runs() -> None:
    script = Path(__file__).parents[2] / "scripts" / "benchmarks" / "bench_ingest.py"
    done = subprocess.run([sys.executable, script, "--smoke"], capture_output=True, text=True, check=True)
    assert "bigsvm ingest" in done.stdout


def test_too_little_memory_is_refused_and_what_it_names_will_do(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:1\n" * 1000)
    with pytest.raises(PlanRefused, match="would do") as caught:
        ingest(tmp_path / "a.svm", tmp_path / "a", memory="5MiB")
    least = caught.value.min_memory_bytes
    assert least is not None
    assert ingest(tmp_path / "a.svm", tmp_path / "a", memory=least)["n_samples"] == 2000


@pytest.mark.parametrize("options", [{"scale": "unit-norm"}, {"normalize": "total=1e4,log1p", "scale": "unit-norm"}])
def test_rows_of_text_and_arrays_are_changed_as_those_of_a_store(tmp_path: Path, options: dict[str, Any]) -> None:
    counts = abs(X)
    ingest((counts, y), tmp_path / "plain")
    dump(open_store(tmp_path / "plain"), tmp_path / "rows.svm")
    wanted = ingest(tmp_path / "plain", tmp_path / "wanted", from_format="store", **options)
    sources = [(counts, y), str(tmp_path / "rows.svm"), (da.from_array(counts.toarray(), chunks=(99, D)), y)]
    for number, source in enumerate(sources):
        told = ingest(source, tmp_path / str(number), **options)
        assert told["content_fingerprint"] == wanted["content_fingerprint"]
        assert open_store(tmp_path / str(number)).recipe == open_store(tmp_path / "wanted").recipe
    grown = ingest(sources[1], tmp_path / "wanted", append=True)  # raw rows, which become what those before are
    both = sp.vstack([counts, counts]).tocsr(), np.concatenate([y, y])
    assert grown["content_fingerprint"] == ingest(both, tmp_path / "both", **options)["content_fingerprint"]
    for source in sources:
        with pytest.raises(UsageError, match="then fit with --scale maxabs"):
            ingest(source, tmp_path / "no", scale="maxabs")
    if "normalize" in options:
        with pytest.raises(DataError, match="row 0 holds"):
            ingest((-counts, y), tmp_path / "no", **options)


def test_a_triple_of_arrays_has_weights_as_it_has_for_a_fit(tmp_path: Path) -> None:
    X, y, weight = np.eye(3), np.array([1, -1, 1]), np.array([0.5, 1.0, 2.0])
    one = ingest((X, y, weight), tmp_path / "one.zarr")
    two = ingest((X, y), tmp_path / "two.zarr", sample_weight=weight)
    assert one["content_fingerprint"] == two["content_fingerprint"]
    with pytest.raises(UsageError, match="given twice"):
        ingest((X, y, weight), tmp_path / "three.zarr", sample_weight=weight)


@pytest.mark.parametrize("memory", [None, "64MiB"])
def test_ingest_tells_its_memory_as_a_fit_does(
    memory: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held while rows are written is told, and what the caller holds already is in the base.

    The memory that is looked for is mapped anew: what rows need may come from what this process has freed before.
    """
    watched: list[Watched] = []

    def watching() -> Watched:
        watched.append(Watched())
        return watched[-1]

    def goes_on_when_seen(event: Event) -> None:
        if isinstance(event, WorkAdvanced) and event.done > X.nbytes // 2 and not seen:
            with mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapped:
                mapped[::4096] = b"1" * (len(mapped) >> 12)  # a page is there once it is written to
                watched[-1].wait_for_a_look()
            seen.append(event)

    monkeypatch.setattr("bigsvm.store.ingest.ingest.PeakMemory", watching)
    X, seen = np.random.default_rng(0).standard_normal((30_000, 40)).astype(np.float32), list[Event]()
    options: dict[str, Any] = {"memory": memory, "chunk_bytes": 4 << 20, "emit": goes_on_when_seen}
    told = ingest((X, np.arange(30_000) % 2), tmp_path / "rows.zarr", **options)["memory"]
    assert told["budget_bytes"] == (None if memory is None else 64 << 20)
    held = told["peak_anon_bytes"] - told["base_bytes"]
    assert 16 << 20 <= held <= 64 << 20
    assert told["base_bytes"] >= X.nbytes
    assert seen


def test_bytes_of_a_chunk_are_a_number_or_written_with_a_unit(tmp_path: Path) -> None:
    X, y = np.arange(40_000.0).reshape(-1, 4), np.arange(10_000) % 2
    found = [
        ingest((X, y), tmp_path / str(k), chunk_bytes=size)["store_fingerprint"]
        for k, size in enumerate([32 << 10, "32KiB", f"{32 << 10}"])
    ]
    assert len(set(found)) == 1
    assert len(list((tmp_path / "1" / "X" / "c").iterdir())) == 10
    with pytest.raises(UsageError, match="size"):
        ingest((X, y), tmp_path / "bad", chunk_bytes="many")
