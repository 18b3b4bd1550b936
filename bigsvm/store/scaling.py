"""Values of rows on one scale, zeros left alone, so that sparse rows stay as sparse as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError

Scale = Literal["none", "maxabs", "unit-norm"]
MOST_COLUMNS = 1 << 24


class Scaling(NamedTuple):
    """What a model was trained behind, and what every other row of it goes through.

    kind : maxabs divides each column by its largest |value|; unit-norm each row by its Euclidean norm
    largest : of maxabs: float64, (n_features,); 1 where a column holds zeros only
    """

    kind: str
    largest: np.ndarray | None = None

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
        return values / self.largest.astype(values.dtype, copy=False)

    def entries(self, X: CSR) -> np.ndarray:
        """The scaled values of CSR rows, shape (nnz,)."""
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
        return {"kind": self.kind, **({} if self.largest is None else {"largest": self.largest.tolist()})}

    @classmethod
    def of(cls, recipe: Mapping[str, Any]) -> Scaling | None:
        """From what a model or a store keeps; None where it is not scaled.  Raises DataError for what is none."""
        document = recipe.get("scale")
        if document is None:
            return None
        try:
            kind, largest = document["kind"], document.get("largest")
            found = None if largest is None else np.array(largest, np.float64)
            if kind not in ("maxabs", "unit-norm") or (found is None) != (kind == "unit-norm"):
                raise ValueError(kind)
            if found is not None and not (found.ndim == 1 and np.all(np.isfinite(found) & (found > 0))):
                raise ValueError("scales")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"no scaling of rows: {error!r}", "rows.json") from error
        return cls(kind, found)


def add_largest(X: CSR | np.ndarray, largest: np.ndarray) -> None:
    """Take the largest |value| of each column of X into `largest`, float64, (n_features,)."""
    if isinstance(X, CSR):
        np.maximum.at(largest, X.indices, np.abs(X.data.astype(np.float64)))
    elif len(X):
        np.maximum(largest, X.max(axis=0).astype(np.float64), out=largest)
        np.maximum(largest, -X.min(axis=0).astype(np.float64), out=largest)
