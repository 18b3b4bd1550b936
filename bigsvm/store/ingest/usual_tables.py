"""Small tables as common programs write them, for `bigsvm cache warm`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

_Columns = dict[str, object]


def write_table(form: str, X: np.ndarray, y: np.ndarray, folder: Path) -> str:
    """Write a small table in a form of FORMS; returns its path."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.table({"label": y, **FORMS[form](X)})
    path = folder / ("rows.csv" if "CSV" in form else "rows.parquet")
    if "CSV" in form:
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return str(path)


def _numbers(X: np.ndarray) -> _Columns:
    return {f"f{j}": X[:, j] for j in range(X.shape[1])}


def _texts(X: np.ndarray) -> _Columns:
    return {**_numbers(X), "place": np.array(["north", "south"])[np.arange(len(X)) % 2]}


def _of_one_length(X: np.ndarray) -> _Columns:
    import pyarrow as pa

    return {"vector": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])}


def _lists(X: np.ndarray, stored: type[np.signedinteger] = np.int32) -> _Columns:
    import pyarrow as pa

    n, width = X.shape
    indices = pa.array(np.tile(np.arange(width, dtype=stored), n))
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * width)
    parts = {"indices": indices, "values": pa.array(X.ravel())}
    return {name: pa.ListArray.from_arrays(offsets, flat) for name, flat in parts.items()}


def _lists_of_python(X: np.ndarray) -> _Columns:
    """As pandas and polars write lists of Python numbers: with 64-bit types."""
    return _lists(X, np.int64)


def _vectors(X: np.ndarray) -> _Columns:
    import pyarrow as pa

    kinds, sizes = np.zeros(len(X), np.int8), np.full(len(X), X.shape[1], np.int32)
    parts = {"type": pa.array(kinds), "size": pa.array(sizes), **_lists(X)}
    return {"features": pa.StructArray.from_arrays(list(parts.values()), list(parts))}


FORMS: dict[str, Callable[[np.ndarray], _Columns]] = {
    "numbers in CSV": _numbers,
    "text in CSV": _texts,
    "columns in Parquet": _numbers,
    "lists of one length in Parquet": _of_one_length,
    "lists in Parquet": _lists,
    "lists of 64 bits in Parquet": _lists_of_python,
    "vectors in Parquet": _vectors,
}
