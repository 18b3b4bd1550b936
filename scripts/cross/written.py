"""A case's rows as files that other programs write: zarr, pyarrow, plain text.  Nothing of bigsvm."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr
from zarr.errors import UnstableSpecificationWarning

from cross.case import Case, Step


class Entries(NamedTuple):
    """CSR arrays; entries that are 0 may be stored, and with the fault 'twice' a column twice in a row."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray


def entries(case: Case) -> Entries:
    """The entries of a case's rows."""
    X, rng = case.X, np.random.default_rng(case.seed)
    stored = X != 0
    if case.explicit_zeros:
        stored |= rng.random(X.shape) < 0.1
    if case.fault == "twice":
        stored[len(X) // 2, :2] = True
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1))]).astype(np.int64)
    data, indices = X[stored], np.nonzero(stored)[1]
    if case.fault == "twice":
        at = int(indptr[len(X) // 2])
        indices[at + 1] = indices[at]
    if case.fault == "nan" and len(data):
        data[len(data) // 2] = np.nan
    return Entries(data, indices.astype(np.int32), indptr)


def dense(case: Case) -> np.ndarray:
    """The rows as one array, with a NaN where that is the fault."""
    X = case.X.copy(order="F") if case.explicit_zeros else case.X.copy()
    if case.fault == "nan":
        X[len(X) // 2, X.shape[1] // 2] = np.nan
    return X


def weights(case: Case, name: str | None) -> np.ndarray | None:
    """A weight column, with a negative one where that is the fault."""
    if name is None:
        return None
    found = case.weights[name].copy()
    if case.fault == "negative weight":
        found[len(found) // 2] = -1.0
    return found


def as_arrays(case: Case) -> Any:
    """X as a NumPy array or SciPy CSR."""
    if case.sparse:
        data, indices, indptr = entries(case)
        return sp.csr_matrix((data, indices, indptr), shape=case.X.shape)
    X = dense(case)
    if case.fault != "masked":
        return X
    return np.ma.masked_array(X, mask=np.random.default_rng(case.seed).random(X.shape) < 0.1)


def write(case: Case, step: Step, folder: Path) -> Path:
    """The case's rows with the columns of all steps; text is not a store yet.

    Where every other column would be taken for a feature the file is the step's own.
    """
    if case.form.startswith("zarr"):
        path = folder / "rows.zarr"
        return path if path.exists() else _zarr(case, path)
    if case.form == "text":
        return _text(case, folder / "rows.svm")
    columns = _columns(case)
    if case.form not in ("columns", "fixed"):
        return _parquet(folder / "rows.parquet", _features(case), columns)
    wanted = [name for name in (step.label, step.weight) if name is not None]
    path = folder / f"rows-{'-'.join(wanted)}.parquet"
    return _parquet(path, _features(case), {name: columns[name] for name in wanted})


def write_unlabelled(case: Case, folder: Path) -> Path:
    """Rows to predict: their labels are all 0.  A Zarr store is the one that was trained on."""
    if case.form.startswith("zarr"):
        return folder / "rows.zarr"
    if case.form == "text":
        return folder / "rows.svm"
    return _parquet(folder / "new.parquet", _features(case), {"label": np.zeros(len(case.X), np.int32)})


def _columns(case: Case) -> dict[str, np.ndarray]:
    targets = {f"target_{name}": values for name, values in case.targets.items()}
    return {**case.labels, **targets, **{name: weights(case, name) for name in case.weights}}  # type: ignore[dict-item]


def _zarr(case: Case, path: Path) -> Path:
    version = 3 if case.form == "zarr3" else 2
    # Chunks of zeros are written, too: one that is not there is lost, as far as a reader can tell.
    more: dict[str, Any] = {
        "compressors": None if case.codec == "none" else "auto", "config": {"write_empty_chunks": True},
    }  # fmt: skip
    group = zarr.create_group(path, zarr_format=version, attributes={"encoding-type": "anndata"})
    if case.sparse:
        shape = list(case.X.shape)
        inner = group.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": shape})
        for name, values in entries(case)._asdict().items():
            inner.create_array(name, data=values, chunks=(max(min(case.chunk, len(values)), 1),), **more)
    else:
        chunks = (min(case.chunk, len(case.X)), max(case.X.shape[1] // 2, 1))
        group.create_array("X", data=np.ascontiguousarray(dense(case)), chunks=chunks, **more)
    frame = group.create_group("obs", attributes={"encoding-type": "dataframe", "column-order": list(_columns(case))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        for name, values in _columns(case).items():
            chunks = (min(case.chunk, len(values)),)
            if name in case.labels and case.categorical:
                _categorical(frame, name, values, chunks, more)
            else:
                frame.create_array(name, data=values, chunks=chunks, **more)
    return path


def _categorical(frame: zarr.Group, name: str, values: np.ndarray, chunks: Any, more: dict[str, Any]) -> None:
    """As AnnData writes it; the categories in another order than the labels'."""
    categories, codes = np.unique(values, return_inverse=True)
    order = np.arange(len(categories))[::-1]
    column = frame.create_group(name, attributes={"encoding-type": "categorical", "ordered": False})
    column.create_array("codes", data=(len(order) - 1 - codes).astype(np.int8), chunks=chunks, **more)
    column.create_array("categories", data=categories[order], **more)


def _features(case: Case) -> dict[str, pa.Array]:
    if case.form == "lists":
        data, indices, indptr = entries(case)
        offsets = pa.array(indptr.astype(np.int32))
        lists = {"indices": pa.array(indices), "values": pa.array(data)}
        return {name: pa.ListArray.from_arrays(offsets, values) for name, values in lists.items()}
    if case.form == "spark":
        return {"features": _spark(case)}
    X = dense(case)
    if case.form == "fixed":
        flat = pa.array(np.ascontiguousarray(X).reshape(-1))
        return {"features": pa.FixedSizeListArray.from_arrays(flat, X.shape[1])}
    return {f"f{j}": pa.array(np.ascontiguousarray(X[:, j])) for j in range(X.shape[1])}


def _parquet(path: Path, features: dict[str, pa.Array], columns: dict[str, np.ndarray]) -> Path:
    if not path.exists():
        table = pa.table({**features, **{name: pa.array(values) for name, values in columns.items()}})
        pq.write_table(table, path, row_group_size=max(len(table) // 3, 1), write_page_checksum=True)
    return path


def _spark(case: Case) -> pa.Array:
    """Spark ML vectors: most rows sparse, every seventh dense; with the fault 'sizes' one row is of another size."""
    value = pa.from_numpy_dtype(case.X.dtype)
    kind = pa.struct(
        [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(value))]
    )
    found, (data, indices, indptr) = [], entries(case)
    X = dense(case)
    middle = len(X) // 2
    odd = middle + (middle % 7 == 0)  # dense vectors do not say their size
    for i in range(len(X)):
        a, b = indptr[i], indptr[i + 1]
        if i % 7 == 0:
            found.append({"type": 1, "size": None, "indices": None, "values": X[i].tolist()})
        else:
            size = case.X.shape[1] + 3 * (case.fault == "sizes" and i == odd)
            found.append({"type": 0, "size": size, "indices": indices[a:b].tolist(), "values": data[a:b].tolist()})
    return pa.array(found, kind)


def _text(case: Case, path: Path) -> Path:
    data, indices, indptr = entries(case)
    with open(path, "w") as file:
        for i, label in enumerate(case.labels["label"].tolist()):
            row = range(indptr[i], indptr[i + 1])
            file.write(" ".join([str(label), *(f"{indices[k] + 1}:{data[k]!s}" for k in row)]) + "\n")
    return path
