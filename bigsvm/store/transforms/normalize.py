"""Normalization of counts row by row, as usual for single cells: scale each row to one total, then log(1 + x).

Zeros stay zeros, so sparse rows stay sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.blocks import Matrix, RowBlocks
from bigsvm.store.transforms.transformed_rows import TransformedRows, changed_otherwise

_KNOWN = "total=NUMBER, log1p, or both: total=1e4,log1p"


class Normalizing(NamedTuple):
    """total : the sum that each row is scaled to, None for no scaling;  log1p : whether log(1 + x) follows

    A row of zeros stays zero.  Everything is computed in float64, and rounded once to the dtype of the values.
    """

    total: float | None
    log1p: bool

    @classmethod
    def parse(cls, text: str) -> Normalizing:
        """Parse `total=1e4,log1p`.  Raises UsageError."""
        total, log1p = None, False
        for step in text.split(","):
            name, _, value = step.strip().partition("=")
            try:
                if name == "total" and total is None and not log1p:
                    total = float(value)
                    if not 0.0 < total < np.inf:
                        raise ValueError
                elif name == "log1p" and not value and not log1p:
                    log1p = True
                else:
                    raise ValueError
            except ValueError:
                raise UsageError(f"cannot normalize by {step.strip()!r} of {text!r}", hint=_KNOWN) from None
        return cls(total, log1p)

    @classmethod
    def of(cls, recipe: Mapping[str, Any]) -> Normalizing | None:
        """From the recipe of a model or a store; None if it is not normalized.  Raises DataError for an invalid one."""
        said = recipe.get("normalize")
        if said is None:
            return None
        try:
            if not isinstance(said, str):
                raise UsageError(repr(said))
            return cls.parse(said)
        except UsageError as error:
            raise DataError(f"invalid normalization: {error}", "rows.json") from error

    def __str__(self) -> str:
        """The text that one would type; equal for equal steps."""
        steps = [] if self.total is None else [f"total={self.total!r}"]
        return ",".join([*steps, *(["log1p"] if self.log1p else [])])

    @staticmethod
    def dtype(given: np.dtype) -> np.dtype:
        """The dtype of normalized values: 8-bit integers become float32."""
        return given if given.kind == "f" else np.dtype(np.float32)

    def apply(self, X: Matrix, where: str, first_row: int) -> Matrix:
        """Normalize rows; the result for a row does not depend on the other rows.

        Raises DataError naming a row with a negative value, or whose sum overflows float64.
        """
        sparse = isinstance(X, CSR)
        values = (X.data if isinstance(X, CSR) else X).astype(np.float64)
        if values.size and float(values.min()) < 0.0:
            place = int(np.argmax(values.ravel() < 0.0))
            row = first_row + self._row_of(X, place)
            value = float(values.ravel()[place])
            what = f"row {row} holds {value!r}, but --normalize takes counts, which are not negative"
            raise DataError(what, where, "are these rows normalized or scaled already?")
        if self.total is not None:
            with np.errstate(over="ignore"):
                sums = self._sums(X, values)
            if not np.isfinite(sums).all():
                row = first_row + int(np.argmax(~np.isfinite(sums)))
                raise DataError(
                    f"the values of row {row} overflow float64 when summed", where, "divide them by a large number"
                )
            factors = np.divide(self.total, sums, out=np.ones_like(sums), where=sums > 0.0)
            values *= np.repeat(factors, np.diff(X.indptr)) if isinstance(X, CSR) else factors[:, None]
        if self.log1p:
            np.log1p(values, out=values)
        dtype = self.dtype(X.data.dtype if isinstance(X, CSR) else X.dtype)
        changed = values.astype(dtype, copy=False)
        return cast(CSR, X)._replace(data=changed) if sparse else changed

    @staticmethod
    def _sums(X: Matrix, values: np.ndarray) -> np.ndarray:
        """The sum of each row's values, added in the order of the columns."""
        if not isinstance(X, CSR):
            return np.asarray(np.cumsum(values, axis=1)[:, -1]) if values.shape[1] else np.zeros(len(values))
        rows = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
        return np.bincount(rows, values, len(X.indptr) - 1).astype(
            np.float64, copy=False
        )  # bincount returns integers for no entries

    @staticmethod
    def _row_of(X: Matrix, place: int) -> int:
        if isinstance(X, CSR):
            return int(np.searchsorted(X.indptr, place + X.indptr[0], "right")) - 1
        return place // X.shape[1]


class NormalizedRows(TransformedRows):
    """RowBlocks over a store, normalized as they are read."""

    def __init__(self, store: RowBlocks, normalizing: Normalizing) -> None:
        said = str(normalizing)
        super().__init__(store, normalizing.dtype(store.dtype), {"normalize": said}, {"normalize": said})
        self._normalizing = normalizing

    def __reduce__(self) -> tuple[Callable[..., NormalizedRows], tuple[Any, ...]]:
        return NormalizedRows, (self._store, self._normalizing)

    def __repr__(self) -> str:
        return f"NormalizedRows({self._store!r}, {self._normalizing})"

    def over(self, store: RowBlocks) -> NormalizedRows:
        return NormalizedRows(store, self._normalizing)

    def change(self, X: Matrix, first_row: int) -> Matrix:
        return self._normalizing.apply(X, self.uri, first_row)


def normalized(store: RowBlocks, normalize: str | None, like: Mapping[str, Any] | None) -> RowBlocks:
    """The store with the normalization that was asked for, or with that of a model's rows (`like`).

    A store whose rows `ingest` has normalized is returned unchanged.

    Raises
    ------
    UsageError : the rows are normalized or scaled already, and more is asked for; or the steps are unknown.
    DataError : the rows are normalized in another way than a model's rows, or were scaled without it.
    """
    there, wanted = Normalizing.of(store.recipe), Normalizing.of(like or {})
    if wanted is not None:
        if there is not None and there != wanted:
            what = f"the rows are normalized by {there}, and those of the model by {wanted}"
            raise changed_otherwise(what, store.uri)
        if there is None and store.recipe.get("scale") is not None:
            raise changed_otherwise("the rows were scaled without the normalization of the model's rows", store.uri)
        return store if there is not None else cast(RowBlocks, NormalizedRows(store, wanted))
    if like is not None or normalize is None:
        return store
    if there is not None or store.recipe.get("scale") is not None:
        done = f"normalized already, by {there}" if there is not None else "scaled already"
        raise UsageError(f"the rows are {done}", store.uri, "leave out --normalize")
    return cast(RowBlocks, NormalizedRows(store, Normalizing.parse(normalize)))
