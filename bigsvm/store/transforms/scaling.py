"""Values of rows on one scale, zeros left alone, so that sparse rows stay as sparse as they are.

`standard` subtracts the means of dense rows as they are read.  Those of sparse rows are never subtracted from them: the
problem knows them (`problem/centre.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError

Scale = Literal["none", "maxabs", "standard", "unit-norm"]
SCALES = get_args(Scale)
MOST_COLUMNS = {"maxabs": 1 << 24, "standard": 1 << 20}
"""Columns of which numbers are kept: one of each, or two, and a few while they are found."""


class Scaling(NamedTuple):
    """What a model was trained behind, and what every other row of it goes through.

    kind : maxabs divides each column by its largest |value|; unit-norm each row by its Euclidean norm; standard each
        column by its standard deviation
    largest : of maxabs and standard what columns are divided by: float64, (n_features,); 1 where a column does not vary
    mean : of standard: float64, (n_features,), of the columns as they were given
    centred : the means were subtracted from the rows that a model was trained on, which were dense
    """

    kind: str
    largest: np.ndarray | None = None
    mean: np.ndarray | None = None
    centred: bool = False

    @property
    def shift(self) -> np.ndarray | None:
        """What is subtracted from a row once it is divided, float64, (n_features,): means of divided columns."""
        return None if self.mean is None or self.largest is None else self.mean / self.largest

    def dtype(self, given: np.dtype) -> np.dtype:
        """The type of scaled values: 8 bits become float32."""
        return given if given.kind == "f" else np.dtype(np.float32)

    def apply(self, X: CSR | np.ndarray) -> CSR | np.ndarray:
        """Scaled rows.  Each row and each entry come out the same whatever other rows are there."""
        if isinstance(X, CSR):
            return X._replace(data=self.entries(X))
        values = X.astype(self.dtype(X.dtype), copy=False)
        if self.kind == "unit-norm":
            wide = values.astype(np.float64, copy=False)
            norms = np.sqrt(np.add.reduce(wide * wide, axis=1))
            return (wide / np.where(norms > 0, norms, 1.0)[:, None]).astype(values.dtype, copy=False)
        assert self.largest is not None
        if X.shape[1] != len(self.largest):
            raise DataError(f"the rows have {X.shape[1]} features, and {len(self.largest)} were scaled")
        if self.centred and self.mean is not None:
            centred = np.subtract(values, self.mean)  # in float64: a column far from 0 keeps the digits that vary
            centred /= self.largest
            return centred.astype(values.dtype, copy=False)
        return values / self.largest.astype(values.dtype, copy=False)

    def entries(self, X: CSR) -> np.ndarray:
        """The scaled values of CSR rows, shape (nnz,); of `standard` divided, and no more."""
        values = X.data.astype(self.dtype(X.data.dtype), copy=False)
        if self.kind == "unit-norm":
            wide, lengths = values.astype(np.float64, copy=False), np.diff(X.indptr)
            norms = np.ones(len(lengths))
            filled = np.flatnonzero(lengths)
            if len(filled):
                norms[filled] = np.sqrt(np.add.reduceat(wide * wide, X.indptr[filled] - X.indptr[0]))
            norms[norms == 0] = 1.0
            return (wide / np.repeat(norms, lengths)).astype(values.dtype, copy=False)
        assert self.largest is not None
        # A feature beyond the model's stays as it is: who scores it names its row.
        return values / self.largest.astype(values.dtype, copy=False).take(X.indices, mode="clip")

    def document(self) -> dict[str, Any]:
        """As JSON, exactly."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.largest is not None:
            found["largest"] = self.largest.tolist()
        if self.mean is not None:
            found |= {"mean": self.mean.tolist(), "centred": self.centred}
        return found

    @classmethod
    def of(cls, recipe: Mapping[str, Any]) -> Scaling | None:
        """From what a model or a store keeps; None where it is not scaled.  Raises DataError for what is none."""
        document = recipe.get("scale")
        if document is None:
            return None
        try:
            kind, centred = document["kind"], document.get("centred", False)
            largest, mean = (
                None if document.get(name) is None else np.array(document[name], np.float64)
                for name in ("largest", "mean")
            )
            if kind not in SCALES[1:] or (largest is None) != (kind == "unit-norm") or not isinstance(centred, bool):
                raise ValueError(kind)
            if largest is not None and not (largest.ndim == 1 and np.all(np.isfinite(largest) & (largest > 0))):
                raise ValueError("scales")
            if (mean is not None) != (kind == "standard"):
                raise ValueError("means")
            if mean is not None and (largest is None or largest.shape != mean.shape or not np.isfinite(mean).all()):
                raise ValueError("means")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"no scaling of rows: {error!r}", "rows.json") from error
        return cls(kind, largest, mean, centred)


def add_largest(X: CSR | np.ndarray, largest: np.ndarray) -> None:
    """Take the largest |value| of each column of X into `largest`, float64, (n_features,)."""
    if isinstance(X, CSR):
        np.maximum.at(largest, X.indices, np.abs(X.data.astype(np.float64)))
    elif len(X):
        np.maximum(largest, X.max(axis=0).astype(np.float64), out=largest)
        np.maximum(largest, -X.min(axis=0).astype(np.float64), out=largest)
