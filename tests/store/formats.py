"""Makers of small stores in every format, by other hands than ours where there are any."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr
from zarr.errors import UnstableSpecificationWarning

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.ingest.zarr_writer import ZarrWriter


def csr(X: np.ndarray) -> CSR:
    matrix = sp.csr_matrix(X.astype(np.float64))  # SciPy knows no float16
    return CSR(matrix.data.astype(X.dtype), matrix.indices, matrix.indptr.astype(np.int64))


def written(path: Path, X, labels, weights=None, *, layout="csr", pieces=5, **options) -> Path:
    """A store by our writer; chunks of a few values, so that blocks cross them."""
    options = {"codec": "lz4", "chunk_bytes": 128, "dtype": X.dtype, "n_features": X.shape[1]} | options
    with ZarrWriter(path, layout=layout, has_weights=weights is not None, **options) as writer:
        for rows in np.array_split(np.arange(len(X)), pieces):
            part = X[rows]
            writer.append(
                csr(part) if layout == "csr" else part,
                labels[rows],
                None if weights is None else weights[rows],
            )
        writer.finish()
    return path


def foreign(path: Path, X, labels, weights=None, *, version=3, layout="csr", chunk=16, **array_options) -> Path:
    """A store by zarr alone: plain number labels, no manifest; chunks of zeros are written, too."""
    array_options.setdefault("config", {"write_empty_chunks": True})
    group = zarr.create_group(path, zarr_format=version, attributes={"encoding-type": "anndata"})
    if layout == "csr":
        matrix = csr(X)
        inner = group.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": list(X.shape)})
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        for name, values in parts.items():
            inner.create_array(name, data=values, chunks=(chunk,), **array_options)
    else:
        group.create_array("X", data=X, chunks=(chunk, X.shape[1]), **array_options)
    frame = group.create_group("obs", attributes={"encoding-type": "dataframe", "column-order": ["label"]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)  # string labels in version 3
        frame.create_array("label", data=labels, chunks=(chunk,), **array_options)
    if weights is not None:
        frame.create_array("weight", data=weights, chunks=(chunk,), **array_options)
    return path


def parquet(path: Path, X, labels, weights=None, *, layout="csr", row_group_size=10, metadata=None) -> Path:
    columns = {"label": pa.array(labels)}
    if layout == "csr":
        matrix = csr(X)
        offsets = pa.array(matrix.indptr.astype(np.int32))
        columns["indices"] = pa.ListArray.from_arrays(offsets, pa.array(matrix.indices.astype(np.int32)))
        columns["values"] = pa.ListArray.from_arrays(offsets, pa.array(matrix.data))
    elif layout == "fixed":
        flat = pa.array(np.ascontiguousarray(X).reshape(-1))
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, X.shape[1])
    elif layout == "spark":
        columns["features"] = spark_vectors(X)
    else:
        columns |= {f"f{j}": pa.array(X[:, j]) for j in range(X.shape[1])}
    if weights is not None:
        columns["weight"] = pa.array(weights)
    table = pa.table(columns).replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=row_group_size, write_page_checksum=True)
    return path


def anndata(path: Path, content: dict) -> Path:
    """AnnData in the encodings of anndata 0.12, by h5py (.h5ad) or zarr (version 2 for names with v2)."""
    if path.suffix == ".h5ad":
        import h5py

        kind = {"compression": "gzip"} if path.stem == "gzip" else {}
        with h5py.File(path, "w") as root:
            _anndata(root, content, lambda group, name, values: _h5_array(group, name, values, kind))
        return path
    root = zarr.create_group(path, zarr_format=2 if "v2" in path.name else 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        _anndata(root, content, _zarr_array)
    return path


def _anndata(root, content: dict, write) -> None:
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for path, value in content.items():
        place, name = path.rpartition("/")[::2]
        group = root.require_group(place) if place else root
        if place in ("obs", "var", "raw/var"):
            columns = [p.rpartition("/")[2] for p in content if p.startswith(f"{place}/") and not p.endswith("_index")]
            group.attrs.update({"encoding-type": "dataframe", "_index": "_index", "column-order": columns})
        if sp.issparse(value):
            inner = group.create_group(name)
            inner.attrs.update({"encoding-type": f"{value.format}_matrix", "shape": list(value.shape)})
            for part in ("data", "indices", "indptr"):
                write(inner, part, getattr(value, part))
        elif isinstance(value, tuple) and len(value) == 2:
            inner = group.create_group(name)
            inner.attrs.update({"encoding-type": "categorical", "ordered": False})
            write(inner, "codes", value[0])
            write(inner, "categories", value[1])
        elif isinstance(value, tuple):
            inner = group.create_group(name)
            inner.attrs.update({"encoding-type": value[2]})
            write(inner, "values", value[0])
            write(inner, "mask", value[1])
        else:
            write(group, name, value)


def _h5_array(group, name: str, values, options: dict) -> None:
    import h5py

    if isinstance(values, list):
        group.create_dataset(name, data=values, dtype=h5py.string_dtype())
    else:
        group.create_dataset(name, data=values, chunks=True, **options)


def _zarr_array(group, name: str, values) -> None:
    if isinstance(values, list):
        array = group.create_array(name, shape=(len(values),), dtype="string", chunks=(len(values),))
        array[:] = np.array(values, object)
        return
    chunks = (16, *values.shape[1:])
    group.create_array(name, data=np.asarray(values), chunks=chunks, config={"write_empty_chunks": True})


def table(path: Path, X, labels, weights=None) -> Path:
    """One column a feature: Feather, or delimited text as a program writes it that keeps all digits."""
    columns = {"label": labels, **{f"f{j}": X[:, j] for j in range(X.shape[1])}}
    if weights is not None:
        columns["weight"] = weights
    if path.suffix == ".feather":
        pyarrow.feather.write_feather(pa.table(columns), path, chunksize=10)
        return path
    mark = "\t" if ".tsv" in path.name else ","
    rows = [list(columns), *zip(*(values.tolist() for values in columns.values()), strict=True)]
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:
        file.writelines(mark.join(map(str, row)) + "\n" for row in rows)
    return path


def spark_vectors(X: np.ndarray) -> pa.Array:
    """As Spark ML writes them: most rows sparse, every seventh dense."""
    kind = pa.struct(
        [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())),
         ("values", pa.list_(pa.from_numpy_dtype(X.dtype)))]
    )  # fmt: skip
    rows = []
    for i, row in enumerate(X):
        if i % 7 == 0:
            rows.append({"type": 1, "size": None, "indices": None, "values": row.tolist()})
        else:
            places = np.flatnonzero(row)
            values = row[places].tolist()
            rows.append({"type": 0, "size": len(row), "indices": places.tolist(), "values": values})
    return pa.array(rows, kind)
