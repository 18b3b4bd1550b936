"""The same rows in any form: one content fingerprint, and the same bytes of a model among sparse and among dense ones.

What a model has of the form is `rows.json`: names of features, how columns became features, and the column of labels.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.model.linear_model import rows_of_model
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.ingest.ingest import ingest
from tests.store import formats

N = 90
RNG = np.random.default_rng(0)
AGE, TEXT, MORE = RNG.normal(size=N), RNG.integers(0, 3, N), RNG.integers(0, 3, N).astype(float)
LABELS = np.where(AGE + (TEXT == 1) + RNG.normal(size=N) / 3 > 0, 1, -1)
X = np.column_stack([AGE, *(np.where(k == TEXT, 1.0, 0.0) for k in range(3)), MORE])
NUMBERS = np.column_stack([AGE, MORE])


def table(path: Path) -> Path:
    columns = {"age": AGE, "kind": np.array(["p", "q", "r"])[TEXT], "label": LABELS, "more": MORE}
    if path.suffix == ".feather":
        pyarrow.feather.write_feather(pa.table(columns), path, chunksize=32)
        return path
    lines = [list(columns), *zip(*(values.tolist() for values in columns.values()), strict=True)]
    text = "".join(",".join(map(str, line)) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def arrow_of(path: Path) -> Path:
    with pa.ipc.new_file(path.with_suffix(".arrow"), pq.read_schema(path)) as file:
        file.write_table(pq.read_table(path), 32)
    return path.with_suffix(".arrow")


def ingested(source: Any, folder: Path, **options: Any) -> Path:
    ingest(source, folder / "ingested.zarr", dtype="float64", **options)
    return folder / "ingested.zarr"


def text_of(folder: Path) -> Path:
    rows = (
        f"{y} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(r) if v)
        for y, r in zip(LABELS, X.tolist(), strict=True)
    )
    (folder / "t.svm").write_text("\n".join(rows) + "\n")
    return folder / "t.svm"


def npz_of(folder: Path) -> Path:
    sp.save_npz(folder / "t.npz", sp.csr_matrix(X))
    np.save(folder / "y.npy", LABELS)
    return ingested(folder / "t.npz", folder, label=str(folder / "y.npy"))


def cells(matrix: Any) -> dict[str, Any]:
    return {"X": matrix, "obs/label": LABELS}


METADATA = {"n_features": "5"}
SPARSE: dict[str, Callable[[Path], Any]] = {
    "arrays": lambda folder: (sp.csr_matrix(X), LABELS),
    "our Zarr": lambda folder: formats.written(folder / "s.zarr", X, LABELS),
    "Zarr 2": lambda folder: formats.foreign(folder / "s.zarr", X, LABELS, version=2),
    "Zarr 3": lambda folder: formats.foreign(folder / "s.zarr", X, LABELS),
    "Zarr 3, shards": lambda folder: formats.foreign(folder / "s.zarr", X, LABELS, shards=(48,)),
    "AnnData": lambda folder: formats.anndata(folder / "s.zarr", cells(sp.csr_matrix(X))),
    "AnnData columns": lambda folder: formats.anndata(folder / "s.zarr", cells(sp.csc_matrix(X))),
    "h5ad": lambda folder: formats.anndata(folder / "gzip.h5ad", cells(sp.csr_matrix(X))),
    "h5ad columns": lambda folder: formats.anndata(folder / "s.h5ad", cells(sp.csc_matrix(X))),
    "Parquet lists": lambda f: formats.parquet(f / "s.parquet", X, LABELS, layout="csr", metadata=METADATA),
    "Arrow lists": lambda f: arrow_of(formats.parquet(f / "s.parquet", X, LABELS, layout="csr", metadata=METADATA)),
    "dask": lambda folder: ingested((da.from_array(X, chunks=(40, 5)).map_blocks(sp.csr_matrix), LABELS), folder),
    "svmlight": lambda folder: ingested(text_of(folder), folder),
    "npz": npz_of,
    "csv": lambda folder: table(folder / "s.csv"),
    "csv.gz": lambda folder: table(folder / "s.csv.gz"),
    "csv, ingested": lambda folder: ingested(table(folder / "s.csv"), folder),
    "Feather": lambda folder: table(folder / "s.feather"),
}
DENSE: dict[str, Callable[[Path], Any]] = {
    "arrays": lambda folder: (NUMBERS, LABELS),
    "our Zarr": lambda folder: formats.written(folder / "s.zarr", NUMBERS, LABELS, layout="dense"),
    "Zarr 2": lambda folder: formats.foreign(folder / "s.zarr", NUMBERS, LABELS, version=2, layout="dense"),
    "AnnData": lambda folder: formats.anndata(folder / "s.zarr", cells(NUMBERS)),
    "dask": lambda folder: ingested((da.from_array(NUMBERS, chunks=(40, 2)), LABELS), folder),
    "h5ad": lambda folder: formats.anndata(folder / "s.h5ad", cells(NUMBERS)),
    "Parquet columns": lambda folder: formats.parquet(folder / "s.parquet", NUMBERS, LABELS, layout="dense"),
    "Parquet fixed lists": lambda folder: formats.parquet(folder / "s.parquet", NUMBERS, LABELS, layout="fixed"),
    "csv": lambda folder: formats.table(folder / "s.csv", NUMBERS, LABELS),
    "tsv": lambda folder: formats.table(folder / "s.tsv", NUMBERS, LABELS),
    "Feather": lambda folder: formats.table(folder / "s.feather", NUMBERS, LABELS),
    "csv, ingested": lambda folder: ingested(formats.table(folder / "s.csv", NUMBERS, LABELS), folder),
}
CASES = [("csr", name) for name in SPARSE] + [("dense", name) for name in DENSE]


def bytes_of(model: Path) -> dict[str, Any]:
    """Every file of a model but `rows.json`, and model.json without the digests that tell of it."""
    document = json.loads((model / "model.json").read_text())
    document["digests"].pop("rows.json", None)
    document.pop("digest")
    files = {path.name: path.read_bytes() for path in model.glob("*.npy")}
    return {**files, "model.json": document}


def fitted(store: RowBlocks, folder: Path) -> dict[str, Any]:
    result = bigsvm.fit(store, loss="hinge", memory="64MiB", threads=1, scratch=str(folder / "scratch"))
    result.save_model(folder / "m")
    return bytes_of(folder / "m")


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The model of the arrays, of either kind."""
    kinds = {"csr": SPARSE, "dense": DENSE}
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in kinds}
    return {k: fitted(bigsvm.open_store(kinds[k]["arrays"](folders[k])), folders[k]) for k in kinds}


@pytest.mark.parametrize(("layout", "name"), CASES, ids=[f"{layout}-{name}" for layout, name in CASES])
def test_one_content_and_one_model(layout: str, name: str, wanted: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    if "h5ad" in name:
        pytest.importorskip("h5py")
    store = bigsvm.open_store((SPARSE if layout == "csr" else DENSE)[name](tmp_path))
    assert (store.layout, store.dtype) == (layout, np.float64)
    found = fitted(store, tmp_path)
    assert found["model.json"]["content_fingerprint"] == wanted[layout]["model.json"]["content_fingerprint"]
    assert found == wanted[layout]
    has_names = "csv" in name or name in ("tsv", "Feather", "Parquet columns")
    has_column = name not in ("arrays", "our Zarr", "dask", "svmlight", "npz", "csv, ingested")
    kept = rows_of_model(tmp_path / "m")
    assert (("features" in kept), kept.get("label_column")) == (has_names, "label" if has_column else None)
    assert (tmp_path / "m" / "rows.json").exists() == (has_names or has_column)
