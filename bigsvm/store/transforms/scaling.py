"""Scaling of values.  Zeros stay zeros, so sparse rows stay sparse.

`standard` subtracts means from dense rows as they are read.  From sparse rows they are never subtracted; instead the
problem accounts for them (`problem/centre.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError, in_words
from bigsvm.units import counted

Scale = Literal["none", "maxabs", "standard", "unit-norm"]
SCALES = get_args(Scale)
_LEAST_SQUARES = 1e-280
MOST_COLUMNS = {"maxabs": 1 << 24, "standard": 1 << 20}
"""Limit of the columns whose numbers are kept: one number for each, or two, and a few temporary ones."""


class Scaling(NamedTuple):
    """The scaling of a model's training rows, which is applied to all other rows of the model.

    kind : maxabs divides each column by its largest |value|; unit-norm each row by its Euclidean norm; standard each
        column by its standard deviation
    largest : for maxabs and standard, the divisors of columns: float64, (n_features,); 1 for a constant column
    mean : for standard: float64, (n_features,), of the unscaled columns
    centred : whether the means were subtracted from the training rows, which were then dense
    """

    kind: str
    largest: np.ndarray | None = None
    mean: np.ndarray | None = None
    centred: bool = False

    @property
    def shift(self) -> np.ndarray | None:
        """The means of the divided columns, float64, (n_features,), subtracted after the division; or None."""
        return None if self.mean is None or self.largest is None else self.mean / self.largest

    def dtype(self, given: np.dtype) -> np.dtype:
        """The dtype of scaled values: 8-bit integers become float32."""
        return given if given.kind == "f" else np.dtype(np.float32)

    def apply(self, X: CSR | np.ndarray) -> CSR | np.ndarray:
        """Scale rows; the result for a row or an entry does not depend on the other rows."""
        if isinstance(X, CSR):
            return X._replace(data=self.entries(X))
        values = X.astype(self.dtype(X.dtype), copy=False)
        if self.kind == "unit-norm":
            wide = values.astype(np.float64, copy=False)
            with np.errstate(over="ignore", under="ignore"):
                squares = np.add.reduce(wide * wide, axis=1)
            odd = np.flatnonzero(_loses_digits(squares))
            largest = np.abs(wide[odd]).max(axis=1, initial=0.0)
            if largest.any():  # not only rows of zeros
                wide = wide.copy()
                wide[odd] /= _or_one(largest)[:, None]
                squares[odd] = np.add.reduce(wide[odd] * wide[odd], axis=1)
            return (wide / _or_one(np.sqrt(squares))[:, None]).astype(values.dtype, copy=False)
        assert self.largest is not None
        if X.shape[1] != len(self.largest):
            raise DataError(
                f"the rows have {counted(X.shape[1], 'feature')}, but the scaling is for {len(self.largest)}"
            )
        if self.centred and self.mean is not None:
            centred = np.subtract(
                values, self.mean
            )  # in float64, so that a column far from 0 keeps the digits that vary
            centred /= self.largest
            return centred.astype(values.dtype, copy=False)
        return (values / self.divisors(values.dtype)).astype(values.dtype, copy=False)

    def divisors(self, dtype: np.dtype) -> np.ndarray:
        """The divisors of columns for values of a dtype: in that dtype, or in float64 if it cannot represent them."""
        assert self.largest is not None
        bounds = np.finfo(dtype)
        narrow = bool(np.all((self.largest >= bounds.tiny) & (self.largest <= bounds.max)))
        return self.largest.astype(dtype, copy=False) if narrow else self.largest

    def entries(self, X: CSR) -> np.ndarray:
        """The scaled values of CSR rows, shape (nnz,); for `standard` only divided."""
        values = X.data.astype(self.dtype(X.data.dtype), copy=False)
        if self.kind == "unit-norm":
            wide, lengths = values.astype(np.float64, copy=False), np.diff(X.indptr)
            squares = np.zeros(len(lengths))
            filled = np.flatnonzero(lengths)
            starts = X.indptr[filled] - X.indptr[0]
            if len(filled):
                with np.errstate(over="ignore", under="ignore"):
                    squares[filled] = np.add.reduceat(wide * wide, starts)
            if _loses_digits(squares[filled]).any():
                largest = np.ones(len(lengths))
                largest[filled] = _or_one(np.maximum.reduceat(np.abs(wide), starts))
                largest[~_loses_digits(squares)] = 1.0
                wide = wide / np.repeat(largest, lengths)
                squares[filled] = np.add.reduceat(wide * wide, starts)
            return (wide / np.repeat(_or_one(np.sqrt(squares)), lengths)).astype(values.dtype, copy=False)
        assert self.largest is not None
        # A feature beyond the model's is not scaled; scoring reports its row.
        return (values / self.divisors(values.dtype).take(X.indices, mode="clip")).astype(values.dtype, copy=False)

    def document(self) -> dict[str, Any]:
        """The scaling as JSON, exactly."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.largest is not None:
            found["largest"] = self.largest.tolist()
        if self.mean is not None:
            found |= {"mean": self.mean.tolist(), "centred": self.centred}
        return found

    @classmethod
    def of(cls, recipe: Mapping[str, Any]) -> Scaling | None:
        """From the recipe of a model or a store; None if it is not scaled.  Raises DataError for an invalid one."""
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
            raise DataError(f"invalid scaling: {in_words(error)}", "rows.json") from error
        return cls(kind, largest, mean, centred)


def _loses_digits(squares: np.ndarray) -> np.ndarray:
    """Whether a sum of squares overflows, or is so small that its terms may have lost digits; bool."""
    return ~((squares > _LEAST_SQUARES) & (squares < np.inf))


def _or_one(numbers: np.ndarray) -> np.ndarray:
    """The numbers as divisors: 1 instead of 0."""
    return np.where(numbers > 0, numbers, 1.0)


def add_largest(X: CSR | np.ndarray, largest: np.ndarray) -> None:
    """Update `largest`, float64, (n_features,), with the largest |value| of each column of X."""
    if isinstance(X, CSR):
        np.maximum.at(largest, X.indices, np.abs(X.data.astype(np.float64)))
    elif len(X):
        np.maximum(largest, X.max(axis=0).astype(np.float64), out=largest)
        np.maximum(largest, -X.min(axis=0).astype(np.float64), out=largest)
