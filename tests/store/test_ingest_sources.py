"""Every source gives the same content: text, arrays, matrices, tables and stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from dask import delayed

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.dump import dump
from tests.store.formats import anndata
from tests.store.ingested import DENSE, D, N, X, write_text, y

pytestmark = pytest.mark.usefixtures("small_parts")


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


def weighted_sources(folder: Path, name: str, weights: np.ndarray) -> Iterator[tuple[str, Path]]:
    """Each kind of array files, with `weights` in an array of this name, and with one that is not read."""
    kinds = {"CSR": {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}, "dense": {"X": DENSE}}
    for kind, arrays in kinds.items():
        arrays = {**arrays, "y": y, name: weights, "groups": y}
        np.savez(folder / f"{kind}-{name}.npz", **arrays)
        yield f"{kind} npz", folder / f"{kind}-{name}.npz"
        yield f"{kind} folder", save_all(folder / f"{kind}-{name}", **arrays)


@pytest.mark.parametrize("name", ["weight", "sample_weight", "costs"])
def test_weights_reach_the_store(tmp_path: Path, name: str) -> None:
    weights = np.random.default_rng(6).random(N)
    expected = ingest((X, y), tmp_path / "a", sample_weight=weights)["content_fingerprint"]
    store = open_store(tmp_path / "a")
    got = np.concatenate([store.read(ref).sample_weight for ref in store.refs(100)])
    assert np.array_equal(got, weights)
    for kind, path in weighted_sources(tmp_path, name, weights):
        spelled = str(path / f"{name}.npy") if path.is_dir() else name
        ways = [{"weight": spelled}] if name == "costs" else [{}, {"weight": spelled}]
        for number, options in enumerate(ways):
            result = ingest(path, f"{path}-{number}.zarr", **options)
            assert result["content_fingerprint"] == expected, (kind, options)
            assert result["weights_from"] == (str(path / f"{name}.npy") if path.is_dir() else f"{path}[{name}]")
            not_read = "groups.npy" if path.is_dir() else "groups"
            assert result["warnings"] == [f"{path}: arrays that are not read: {not_read}"], (kind, options)


def named_weights(folder: Path, form: str) -> tuple[Any, dict[str, Any], str]:
    """A source of 30 rows with weights, the options that name them, and what the summary calls them."""
    rows, labels, weights = DENSE[:30, :3], y[:30], np.linspace(0.5, 2.0, 30)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"]).assign(label=labels, heft=weights)
    made = folder / "made.zarr"
    match form:
        case "arrays":
            return (rows, labels, weights), {}, "sample_weight"
        case "arrays, changed":
            return open_store((rows, labels, weights), scale="maxabs"), {}, "sample_weight"
        case "a store of ingest":
            ingest((rows, labels, weights), made)
            return str(made), {}, str(made)
        case "AnnData":
            columns = {"obs/label": labels, "obs/heft": weights}
            return str(anndata(made, {"X": rows, **columns})), {"weight": "heft"}, "column heft"
        case "CSV" | "CSV, some rows":
            frame.to_csv(folder / "rows.csv", index=False)
            some = {} if form == "CSV" else {"rows": "a > -1"}
            return str(folder / "rows.csv"), {"weight": "heft", **some}, "column heft"
        case "Parquet":
            frame.to_parquet(folder / "rows.parquet")
            return str(folder / "rows.parquet"), {"weight": "heft"}, "column heft"
        case "dask frame":
            return dd.from_pandas(frame, npartitions=2), {"weight": "heft"}, "column heft"
        case "dask frame, weights beside":
            return dd.from_pandas(frame, npartitions=1), {"sample_weight": weights}, "sample_weight"
        case "dask":
            return (da.from_array(rows, chunks=(10, -1)), labels), {"sample_weight": weights}, "sample_weight"
        case _:
            return [delayed((rows, labels, weights))], {}, "the third value of each Delayed"


@pytest.mark.parametrize(
    "form",
    ["arrays", "arrays, changed", "a store of ingest", "AnnData", "CSV", "CSV, some rows", "Parquet", "dask frame",
     "dask frame, weights beside", "dask", "Delayed"],
)  # fmt: skip
def test_the_summary_says_where_the_weights_come_from(form: str, tmp_path: Path) -> None:
    source, options, expected = named_weights(tmp_path, form)
    assert ingest(source, tmp_path / "out.zarr", **options)["weights_from"] == expected
    assert open_store(tmp_path / "out.zarr").has_weights
    assert ingest((DENSE[:9], y[:9]), tmp_path / "none.zarr")["weights_from"] is None


def test_weights_of_a_dense_file_are_in_another_one(tmp_path: Path) -> None:
    weights = np.random.default_rng(6).random(N)
    save_all(tmp_path / "all", X=DENSE, y=y, w=weights)
    paths = {"label": str(tmp_path / "all" / "y.npy"), "weight": str(tmp_path / "all" / "w.npy")}
    found = ingest(tmp_path / "all" / "X.npy", tmp_path / "b", **paths)
    assert found["content_fingerprint"] == ingest((DENSE, y, weights), tmp_path / "c")["content_fingerprint"]


def test_of_two_arrays_of_weights_one_must_be_named(tmp_path: Path) -> None:
    arrays = {"X": DENSE, "y": y, "weight": np.ones(N), "sample_weight": np.full(N, 2.0)}
    np.savez(tmp_path / "two.npz", **arrays)
    for path in (tmp_path / "two.npz", save_all(tmp_path / "two", **arrays)):
        spelled = str(path / "weight.npy") if path.is_dir() else "weight"
        with pytest.raises(UsageError, match="two arrays of row weights") as caught:
            ingest(path, tmp_path / "refused.zarr")
        assert spelled in str(caught.value)
        assert ingest(path, f"{path}.zarr", weight=spelled)["n_samples"] == N


def test_a_triple_of_arrays_has_weights_as_it_has_for_a_fit(tmp_path: Path) -> None:
    X, y, weight = np.eye(3), np.array([1, -1, 1]), np.array([0.5, 1.0, 2.0])
    one = ingest((X, y, weight), tmp_path / "one.zarr")
    two = ingest((X, y), tmp_path / "two.zarr", sample_weight=weight)
    assert one["content_fingerprint"] == two["content_fingerprint"]
    with pytest.raises(UsageError, match="given twice"):
        ingest((X, y, weight), tmp_path / "three.zarr", sample_weight=weight)


def test_string_labels_and_regression_targets(tmp_path: Path) -> None:
    names = np.array(["cat", "dog", "eel"])[y // 2 + 1]
    assert ingest((X, names), tmp_path / "a")["labels"] == ["cat", "dog", "eel"]
    assert ingest((X, names.astype(object)), tmp_path / "b")["labels"] == ["cat", "dog", "eel"]
    targets = np.random.default_rng(6).normal(size=N)
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
