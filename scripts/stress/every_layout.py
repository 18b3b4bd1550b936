#!/usr/bin/env python3
"""One real set in every layout and place: one content fingerprint, and byte-identical models.

a9a (sparse and dense) and 20 newsgroups (sparse) are written as text, .npz, Zarr 2, 3 and in shards, AnnData on Zarr
and HDF5 by rows and by columns, in the four layouts of Parquet, CSV, Feather, Arrow, as dask collections, and put into
a bucket (moto's, where it is installed).  Each is opened as it lies there, or ingested where it must be, and fitted.
Among sparse layouts, and among dense ones, every file of the model is the same but `rows.json`, which has the names of
columns.

    scripts/stress/every_layout.py --data-dir ../shared/data
    scripts/stress/every_layout.py --smoke
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr
from objects.proxy import s3_server

import bigsvm
from bigsvm.store.text.dump import dump

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.store import formats  # noqa: E402  the makers of small stores that the tests have, by other hands than ours

Rows = tuple[Any, np.ndarray]
CHUNK = 5000
OPTIONS = {"loss": "hinge", "C": 0.1, "tol": 1e-2, "memory": "256MiB", "threads": 1}


def cells(path: Path, X: Any, y: np.ndarray, version: int = 3, **options: Any) -> Path:
    """AnnData with numbers as labels; options of zarr's `create_array`, or h5py's `create_dataset`."""
    is_h5 = path.suffix == ".h5ad"
    with h5py.File(path, "w") if is_h5 else nullcontext(zarr.create_group(path, zarr_format=version)) as root:  # type: ignore[arg-type,attr-defined]
        root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        arrays: dict[str, np.ndarray] = {"obs/label": y}
        if sp.issparse(X):
            matrix = root.create_group("X")
            matrix.attrs.update({"encoding-type": f"{X.format}_matrix", "shape": list(X.shape)})
            arrays |= {f"X/{part}": getattr(X, part) for part in ("data", "indices", "indptr")}
        else:
            arrays["X"] = X
        root.require_group("obs").attrs.update({"encoding-type": "dataframe", "column-order": ["label"]})
        for name, values in arrays.items():
            if is_h5:
                root.create_dataset(name, data=values, chunks=True, **options)
            else:
                chunks = (min(CHUNK, len(values)), *values.shape[1:])
                whole = {"write_empty_chunks": True}
                root.create_array(name, data=values, **{"chunks": chunks, "config": whole, **options})
    return path


def parquet(path: Path, X: sp.csr_array, y: np.ndarray, spark: bool) -> Path:
    """Lists, or Spark's vectors."""
    offsets = pa.array(X.indptr.astype(np.int32))
    indices = pa.ListArray.from_arrays(offsets, pa.array(X.indices.astype(np.int32)))
    values = pa.ListArray.from_arrays(offsets, pa.array(X.data))
    columns = {"label": pa.array(y), "indices": indices, "values": values}
    if spark:
        n, width = X.shape
        parts = [pa.array(np.zeros(n, np.int8)), pa.array(np.full(n, width, np.int32)), indices, values]
        vectors = pa.StructArray.from_arrays(parts, ["type", "size", "indices", "values"])
        columns = {"label": pa.array(y), "features": vectors}
    metadata = {"n_features": str(X.shape[1])}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, row_group_size=5000)
    return path


def arrow(path: Path) -> Path:
    """A Parquet file as an Arrow file."""
    with pa.ipc.new_file(path.with_suffix(".arrow"), pq.read_schema(path)) as file:
        file.write_table(pq.read_table(path), 1000)
    return path.with_suffix(".arrow")


def ingested(source: Any, folder: Path, **options: Any) -> Path:
    """A store of it."""
    bigsvm.ingest(source, folder / "rows.zarr", dtype="float64", **options)
    return folder / "rows.zarr"


def text(folder: Path, X: Any, y: np.ndarray) -> Path:
    """Written as svmlight text, and read again."""
    bigsvm.ingest((X, y), folder / "first.zarr")
    dump(bigsvm.open_store(folder / "first.zarr"), folder / "rows.svm")
    return ingested(folder / "rows.svm", folder, n_features=X.shape[1])


def npz(folder: Path, X: Any, y: np.ndarray) -> Path:
    """What SciPy saves, with labels beside it."""
    sp.save_npz(folder / "X.npz", sp.csr_matrix(X))
    np.save(folder / "y.npy", y)
    return ingested(folder / "X.npz", folder, label=str(folder / "y.npy"))


def npy(folder: Path, X: Any, y: np.ndarray) -> Path:
    """Dense numbers, with labels beside them."""
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return ingested(folder / "X.npy", folder, label=str(folder / "y.npy"))


def collection(X: Any, y: np.ndarray) -> Rows:
    """Dask arrays; of sparse rows in blocks of SciPy."""
    import dask
    import dask.array as da

    if not sp.issparse(X):
        return da.from_array(X, chunks=(4000, X.shape[1])), da.from_array(y, chunks=4000)
    places = range(0, X.shape[0], 4000)
    return [dask.delayed(lambda a: X[a : a + 4000])(a) for a in places], y  # type: ignore[return-value]


def in_bucket(folder: Path, X: Any, y: np.ndarray, server: str) -> str:
    """A sealed store, put there file by file."""
    import obstore

    bigsvm.ingest((X, y), folder / "rows.zarr")
    store = obstore.store.S3Store("rows", endpoint=server, client_options={"allow_http": True})
    for path in (folder / "rows.zarr").rglob("*"):
        if path.is_file():
            obstore.put(store, f"{folder.name}/rows.zarr/{path.relative_to(folder / 'rows.zarr')}", path.read_bytes())
    return f"s3://rows/{folder.name}/rows.zarr"


SPARSE: dict[str, Callable[[Path, Any, np.ndarray], Any]] = {
    "arrays": lambda f, X, y: (X, y),
    "ingest": lambda f, X, y: ingested((X, y), f),
    "text": text,
    "npz": npz,
    "Zarr 2": lambda f, X, y: cells(f / "a.zarr", X, y, 2),
    "Zarr 3, shards": lambda f, X, y: cells(f / "a.zarr", X, y, chunks=(500,), shards=(CHUNK,)),
    "AnnData on Zarr": lambda f, X, y: cells(f / "a.zarr", X, y),
    "AnnData on Zarr, columns": lambda f, X, y: cells(f / "a.zarr", X.tocsc(), y),
    "h5ad": lambda f, X, y: cells(f / "a.h5ad", X, y, compression="gzip"),
    "h5ad, columns": lambda f, X, y: cells(f / "a.h5ad", X.tocsc(), y),
    "Parquet, lists": lambda f, X, y: parquet(f / "l.parquet", X, y, spark=False),
    "Parquet of Spark": lambda f, X, y: parquet(f / "s.parquet", X, y, spark=True),
    "Arrow, lists": lambda f, X, y: arrow(parquet(f / "l.parquet", X, y, spark=False)),
    "dask": lambda f, X, y: collection(X, y),
}
DENSE: dict[str, Callable[[Path, Any, np.ndarray], Any]] = {
    "arrays": lambda f, X, y: (X, y),
    "ingest": lambda f, X, y: ingested((X, y), f),
    "npy": npy,
    "Zarr 2": lambda f, X, y: cells(f / "a.zarr", X, y, 2),
    "AnnData on Zarr": lambda f, X, y: cells(f / "a.zarr", X, y),
    "h5ad": lambda f, X, y: cells(f / "a.h5ad", X, y),
    "Parquet, columns": lambda f, X, y: formats.parquet(f / "c.parquet", X, y, layout="dense", row_group_size=5000),
    "Parquet, fixed lists": lambda f, X, y: formats.parquet(f / "f.parquet", X, y, layout="fixed", row_group_size=5000),
    "CSV": lambda f, X, y: formats.table(f / "t.csv", X, y),
    "TSV, gzip": lambda f, X, y: formats.table(f / "t.tsv.gz", X, y),
    "Feather": lambda f, X, y: formats.table(f / "t.feather", X, y),
    "dask": lambda f, X, y: collection(X, y),
}


def model_of(source: Any, folder: Path) -> dict[str, Any]:
    """Every file of a model but `rows.json`; of model.json all but the digests that tell of it."""
    given = source if isinstance(source, tuple) else (source,)
    result = bigsvm.fit(*given, scratch=str(folder / "scratch"), **OPTIONS)
    result.save_model(folder / "m")
    document = json.loads((folder / "m" / "model.json").read_text())
    document["digests"].pop("rows.json", None)
    document.pop("digest")
    return {**{path.name: path.read_bytes() for path in (folder / "m").glob("*.npy")}, "model.json": document}


def one_set(name: str, X: Any, y: np.ndarray, server: str | None) -> list[str]:
    """The layouts of a set whose content or model differs from that of arrays."""
    kind = SPARSE if sp.issparse(X) else DENSE
    if server is not None:
        kind = {**kind, "S3": lambda f, X, y: in_bucket(f, X, y, server)}
    wrong, wanted = [], None
    for number, (layout, write) in enumerate(kind.items()):
        with tempfile.TemporaryDirectory(prefix=f"{name}-{number}-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model_of(write(Path(folder), X, y), Path(folder))
        wanted = found if wanted is None else wanted
        same = [found[file] == wanted.get(file) for file in found]
        content = found["model.json"]["content_fingerprint"] == wanted["model.json"]["content_fingerprint"]
        if not (content and all(same) and found.keys() == wanted.keys()):
            wrong.append(f"{name}, {layout}: {'another model' if content else 'another content'}")
        sys.stdout.write(f"{name}, {layout}: {'differs' if wrong and layout in wrong[-1] else 'the same'}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{name}: {len(kind) - len(wrong)} of {len(kind)} layouts have one content and one model\n")
    return wrong


def main() -> int:
    """Go through the sets; 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data-dir", type=Path, default=Path(os.environ.get("BIGSVM_TEST_DATA", ROOT.parent / "shared" / "data"))
    )
    parser.add_argument("--smoke", action="store_true", help="a few made rows instead of the sets, dense")
    options = parser.parse_args()
    sets: dict[str, Rows] = {}
    if options.smoke:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((120, 5))
        sets["made"] = X, np.where(X[:, 0] > 0, 1, -1)
    else:
        sys.path.insert(0, str(options.data_dir))
        from load import load  # type: ignore[import-not-found]

        X, y = load("a9a")
        sets["a9a"], sets["a9a, dense"] = (sp.csr_array(X), y.astype(int)), (X.toarray(), y.astype(int))
        X, y = load("20news")
        sets["20news"] = sp.csr_array(X), y.astype(int)
    wrong: list[str] = []
    with ExitStack() as stack:
        try:
            server = None if options.smoke else stack.enter_context(s3_server())
        except ImportError:
            server = None
            sys.stdout.write("moto is not installed: no bucket\n")
        if server is not None:
            import urllib.request

            os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_REGION="us-east-1")
            os.environ["AWS_ENDPOINT_URL"] = server
            urllib.request.urlopen(urllib.request.Request(f"{server}/rows", method="PUT")).close()
        for name, (X, y) in sets.items():
            wrong += one_set(name, X, y, server)
    for said in wrong:
        sys.stdout.write(f"WRONG: {said}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
