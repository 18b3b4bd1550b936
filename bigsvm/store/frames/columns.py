"""The columns of a frame, and which of them float64 would round."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from bigsvm.store.checks import are_kept, check_whole

_LIKE_WEIGHTS = ("sample_weight", "sample_weights")
"""Names under which a column most likely holds the weights of rows, though no reader takes it for them unasked."""


def told_of_weights(
    features: Collection[str] | None, asked: Collection[str] = (), in_memory: bool = False
) -> list[str]:
    """Warnings about columns that are features, though by their names they hold the weights of rows.

    asked : features that the caller named one by one
    in_memory : the columns are those of a frame, beside which weights are given as an array
    """
    remedy = "leave it out of X, and give the weights as sample_weight" if in_memory else "name it with --weight {!r}"
    return [
        f"column {name!r} is read as a feature: where it holds the weights of rows, {remedy.format(name)}"
        for name in _LIKE_WEIGHTS
        if features is not None and name in features and name not in asked
    ]


def is_arrow(X: Any) -> bool:
    """Whether X is a table or a record batch of pyarrow, which is not imported here."""
    return hasattr(X, "column_names") and hasattr(X, "schema") and hasattr(X, "num_columns")


def is_frame(X: Any) -> bool:
    """Whether X is a frame of pandas or polars, or a table of pyarrow."""
    return (hasattr(X, "columns") and hasattr(X, "dtypes")) or is_arrow(X)


def labels_of_columns(X: Any) -> list[Any]:
    """The labels of the columns of a frame, in their order."""
    return list(X.column_names if is_arrow(X) else X.columns)


def names_of_columns(X: Any) -> list[str] | None:
    """The column names of a frame; None for an array, or if a name is not a string."""
    names = labels_of_columns(X) if is_frame(X) else []
    return names if names and all(isinstance(name, str) for name in names) else None


def column_of(X: Any, place: int) -> Any:
    """The column at this place of a frame, whose columns may have equal names."""
    if is_arrow(X):
        return X.column(place)
    return X.iloc[:, place] if hasattr(X, "iloc") else X[:, place]


def columns_named(X: Any, names: list[str]) -> Any:
    """A frame of the columns of these names, in this order."""
    if is_arrow(X):
        there = X.column_names
        return X.select([there.index(name) for name in names])
    return X[names]


def check_whole_columns(X: Any) -> None:
    """`check_whole` of each column of a frame: beside real numbers NumPy would round them."""
    if is_arrow(X):
        for place, name in enumerate(X.column_names):
            check_whole_column(X.column(place), f"X, column {name!r}")
        return
    kinds = list(X.dtypes)
    if hasattr(X, "iloc") and len(set(kinds)) == 1 and isinstance(kinds[0], np.dtype) and kinds[0].kind in "biuf":
        values = X.to_numpy()  # of one block, and no copy: a column of pandas costs some 20 us, however short it is
        if values.dtype.kind not in "iu" or values.itemsize < 8 or are_kept(values):
            return
    for place, (name, kind) in enumerate(zip(X.columns, kinds, strict=True)):
        if hasattr(X, "iloc") and getattr(kind, "kind", "") not in tuple("iu"):
            continue
        check_whole_column(column_of(X, place), f"X, column {str(name)!r}")


def check_whole_labels(y: Any) -> None:
    """Raise DataError naming the first whole number beyond 2^53 of a column whose type may have missing values.

    scikit-learn makes float64 of such a column, and labels that are rounded may become one class.  Labels of other
    types stay as they are.
    """
    if is_frame(y) and y.shape[1] == 1:
        y = column_of(y, 0)
    kind = getattr(y, "dtype", None)
    if hasattr(y, "iloc") and not isinstance(kind, np.dtype):
        check_whole_column(y, "y")


def check_whole_column(column: Any, where: str) -> None:
    """Raise DataError naming the first row of a column with a whole number beyond 2^53."""
    if hasattr(column, "null_count") and hasattr(column, "type"):  # of pyarrow
        whole = column.fill_null(0).to_numpy() if str(column.type) in ("int64", "uint64") else np.zeros(0)
    elif hasattr(column, "fill_null"):  # of polars; a null is told by whoever reads the values
        whole = column.fill_null(0).to_numpy() if str(column.dtype) in ("Int64", "UInt64") else np.zeros(0)
    elif getattr(column.dtype, "kind", "") in tuple("iu"):
        whole = column.fillna(0).to_numpy(np.uint64 if column.dtype.kind == "u" else np.int64)
    else:
        return
    check_whole(whole, where)
