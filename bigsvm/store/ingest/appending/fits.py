"""Whether rows can be appended to a store, checked before anything is written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.store.ingest.appending.grown_store import SealedStore
from bigsvm.store.ingest.sources.row_source import RowSource
from bigsvm.units import counted


def options_of(
    former: SealedStore, task: str, n_features: int | None, dtype: str | None, split: float | None
) -> dict[str, Any]:
    """The options with which the source must be opened, so that its rows are like those of the store.

    Raises UsageError if the user asked for something else.
    """
    where = str(former.path)
    if task == "regression" and former.task != "regression":
        raise UsageError("--task regression does not fit: the store holds classes", where, "leave it out")
    if n_features not in (None, former.n_features):
        raise UsageError(
            f"--n-features {n_features} does not fit: the store has {former.n_features}", where, "leave it out"
        )
    if dtype is not None and former.dtype.kind == "f" and dtype != former.dtype.name:
        raise UsageError(f"--dtype {dtype} does not fit: the store holds {former.dtype}", where, "leave it out")
    if split not in (None, former.split):
        records = "no share" if former.split is None else f"{former.split:g}"
        what = f"--split {split:g} does not fit: the store records {records}"
        raise UsageError(what, where, "leave it out, or pass it to fit")
    same = former.dtype.name if former.dtype == np.float64 else dtype
    return {"task": former.task, "n_features": former.n_features, "dtype": same}


def check_fits(former: SealedStore, rows: RowSource) -> None:
    """Raise DataError, naming the first difference, if the rows do not fit the store."""
    where = rows.where
    if rows.layout != former.layout:
        ours, theirs = ("sparse", "dense") if rows.layout == "csr" else ("dense", "sparse")
        raise DataError(
            f"the rows are {ours}, but the store is {theirs}", where, "ingest them into a store of their own"
        )
    if rows.n_features not in (None, former.n_features):
        raise DataError(
            f"the rows have {counted(rows.n_features, 'feature')}, but the store has {former.n_features}", where
        )
    if not np.can_cast(rows.dtype, former.dtype, "safe"):
        came_as = rows.came_as or rows.dtype.name
        read_as = "" if came_as == rows.dtype.name else f", which are read as {rows.dtype},"
        what = f"the values are {came_as}{read_as} but the store holds {former.dtype}, which would round them"
        raise DataError(what, where, "--dtype float32 accepts the rounding" if former.dtype == np.float32 else "")
    if rows.has_weights != former.has_weights:
        if former.has_weights:
            raise DataError("the store has weights, but the rows have none", where, "name their column with --weight")
        raise DataError("the rows have weights, but the store has none", where, "--weight '' leaves theirs out")
    if json.loads(json.dumps(dict(rows.recipe))) != former.recipe:
        raise DataError(
            "the rows are made in another way than those of the store (columns, encoding or scale)", where,
            "use a source of the same kind, with the same columns",
        )  # fmt: skip
    if rows.feature_names is not None and former.feature_names is not None:
        pairs = enumerate(zip(rows.feature_names, former.feature_names, strict=True))
        place, ours, theirs = next(((j, *pair) for j, pair in pairs if pair[0] != pair[1]), (-1, "", ""))
        if place < 0:
            return
        what = f"feature {place} is {ours!r}, but in the store {theirs!r}"
        raise DataError(what, where, "put the columns in the store's order")
