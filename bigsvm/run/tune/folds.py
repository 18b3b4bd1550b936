"""Folds of a cross-validation: by a hash of the row number, by group, or as a column says.

The fold of a row does not depend on the order of reading, nor on blocks, chunks or threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.problem.axis import MOST_FOLDS
from bigsvm.store.blocks import RowBlocks, row_bytes, tile
from bigsvm.store.formats.chosen.split_rows import numbers_in_store, rows_in_store
from bigsvm.store.formats.opener import open_store
from bigsvm.store.frames.values import unmasked
from bigsvm.store.identity import digest_of
from bigsvm.store.labels import is_missing
from bigsvm.store.transforms.withheld import hashed_rows
from bigsvm.units import MIB, counted

_PIECE = 1 << 18  # rows


@dataclass(frozen=True)
class Folds:
    """The fold of every row of a store.

    n_folds : number of folds;  by : 'rows', 'group' or 'column';  seed : seed of the hash of row numbers
    names : names of the folds, if a column defines them
    values : uint8, (n_samples,), for groups and columns; None if the fold follows from the row number
    """

    n_folds: int
    by: str
    seed: int = 0
    names: tuple[str, ...] = ()
    values: np.ndarray | None = None

    def of(self, start: int, stop: int) -> np.ndarray:
        """The fold of each row in [start, stop) of the store, uint8."""
        if self.values is not None:
            return self.values[start:stop]
        return (hashed_rows(start, stop, self.seed) % np.uint64(self.n_folds)).astype(np.uint8)

    def sizes(self, n_samples: int) -> np.ndarray:
        """Number of rows in each fold, int64."""
        counts = np.zeros(self.n_folds, np.int64)
        for start in range(0, n_samples, _PIECE):
            counts += np.bincount(self.of(start, min(start + _PIECE, n_samples)), minlength=self.n_folds)
        return counts

    def document(self) -> dict[str, Any]:
        """A JSON document that is equal for equal folds."""
        found: dict[str, Any] = {"n_folds": self.n_folds, "by": self.by}
        if self.values is None:
            return {**found, "seed": self.seed}
        return {**found, "names": list(self.names), "digest": digest_of(self.values.tobytes().hex())}


@dataclass(frozen=True)
class OfFold:
    """The rows of one fold, as a `withheld.Which`."""

    folds: Folds
    fold: int

    @property
    def said(self) -> str:
        """See `Which.said`."""
        return f"fold {self.fold} of {digest_of(self.folds.document())}"

    def withheld(self, start: int, stop: int) -> np.ndarray:
        """See `Which.withheld`."""
        return self.folds.of(start, stop) == self.fold


def make_folds(
    store: RowBlocks, source: Any, n_folds: int, group: Any, fold: Any, seed: int, opened: dict[str, Any]
) -> Folds:
    """Make the folds that were asked for.

    group, fold : name of a column of `source`, or an array with a value for each row of `source` or of `store` (which
        may leave out rows of `source`); at most one of the two
    opened : the other arguments with which `source` was opened

    Raises
    ------
    UsageError : fewer than 2 or more than 255 folds, or both group and fold are given.
    DataError : a column has another number of rows, has missing values, or leaves a fold empty.
    """
    if group is not None and fold is not None:
        raise UsageError("group and fold exclude each other", hint="fold names the folds, group keeps rows together")
    n = store.n_samples
    if fold is not None:
        names, codes = _column(store, source, fold, opened)
        _check_number(len(names), "the fold column has", store.uri)
        return Folds(len(names), "column", names=names, values=codes.astype(np.uint8))
    _check_number(n_folds, "asked for", store.uri)
    if group is None:
        found = Folds(n_folds, "rows", seed)
        sizes = found.sizes(n)
        if not sizes.all():
            raise DataError(
                f"{counted(n, 'row')} leave {int((sizes == 0).sum())} of {counted(n_folds, 'fold')} empty",
                store.uri,
                "ask for fewer folds",
            )
        return found
    names, codes = _column(store, source, group, opened)
    if len(names) < n_folds:
        raise DataError(
            f"{counted(len(names), 'group')} for {counted(n_folds, 'fold')}",
            store.uri,
            "use fewer --folds, or another --group",
        )
    of_group = _spread(np.bincount(codes, minlength=len(names)), n_folds)
    return Folds(n_folds, "group", values=of_group[codes])


def _check_number(n_folds: int, said: str, where: str) -> None:
    if not 2 <= n_folds <= MOST_FOLDS:
        raise UsageError(
            f"{said} {counted(n_folds, 'fold')}", where, f"2 to {counted(MOST_FOLDS, 'fold')} are possible"
        )


def _spread(sizes: np.ndarray, n_folds: int) -> np.ndarray:
    """The fold of each group, uint8: from the largest group on, each goes to the fold with the fewest rows so far."""
    fold, load = np.empty(len(sizes), np.uint8), np.zeros(n_folds, np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        fold[group] = np.argmin(load)
        load[fold[group]] += sizes[group]
    return fold


def _column(store: RowBlocks, source: Any, named: Any, opened: dict[str, Any]) -> tuple[tuple[str, ...], np.ndarray]:
    """(distinct values, ascending; the number of each row's value, int64).  Raises DataError, UsageError."""
    n_samples = store.n_samples
    if not isinstance(named, str):
        values, n_in_store = unmasked(named, "memory"), rows_in_store(store)
        given = np.arange(n_samples)
        if values.shape == (n_in_store,):
            given = numbers_in_store(store, 0, n_samples)
            values = values[given]
        if values.shape != (n_samples,):
            others = "" if n_in_store == n_samples else f" (of {n_in_store} in the store)"
            hint = "pass an array with one value for each row"
            raise DataError(f"{values.shape} folds or groups for {n_samples} rows{others}", "memory", hint)
        _refuse_missing(values, given)
        names, codes = np.unique(values, return_inverse=True)
        return tuple(map(str, names.tolist())), codes
    if isinstance(source, tuple) or (not isinstance(source, str | bytes) and not hasattr(source, "__fspath__")):
        raise UsageError(
            f"{named!r} names a column, and these rows have no columns",
            hint="pass an array with one value for each row",
        )
    weight = "" if opened.get("weight") == "" else None
    column = open_store(
        source, **{**opened, "label": named, "weight": weight, "task": "classification", **_AS_THEY_ARE}
    )
    if column.classes is None:
        raise DataError(f"{named} has no distinct values", column.uri)
    codes = _of_rows(store, column, named, np.concatenate([y for _, y, _ in labels_of(column)]))
    used, codes = np.unique(codes, return_inverse=True)  # values that occur only in left-out rows do not count
    return tuple(map(str, column.classes[used].tolist())), codes.astype(np.int64)


def _refuse_missing(values: np.ndarray, rows: np.ndarray) -> None:
    """Raise DataError naming the first row without a fold or group, or for values of several kinds.

    rows : their places in what the caller gave
    """
    if values.dtype == object:
        missing = np.array([is_missing(value) for value in values], bool)
    else:
        missing = ~np.isfinite(values) if values.dtype.kind in "fmM" else np.zeros(len(values), bool)
    if missing.any():
        raise DataError(f"row {rows[int(np.argmax(missing))]} has no fold or group", "memory", "give each row one")
    kinds = {type(value).__name__ for value in values} if values.dtype == object else set()
    if len(kinds) > 1 and "str" in kinds:
        hint = "convert all of them to text, or all to numbers"
        raise DataError(f"folds or groups of several types: {', '.join(sorted(kinds))}", "memory", hint)


def _of_rows(store: RowBlocks, column: RowBlocks, named: str, codes: np.ndarray) -> np.ndarray:
    """The code of each row of the store.  Both sides may leave rows out, so rows are matched by their numbers.

    column, codes : the rows that have a value in the column, and the code of that value
    """
    found = np.empty(store.n_samples, codes.dtype)
    theirs = numbers_in_store(column, 0, column.n_samples)
    for start, stop in tile(store.n_samples, _PIECE):
        ours = numbers_in_store(store, start, stop)
        place = np.minimum(np.searchsorted(theirs, ours), len(theirs) - 1)
        if not np.array_equal(theirs[place], ours):
            row = ours[int(np.argmax(theirs[place] != ours))]
            raise DataError(f"row {row} has a label, but no value in {named}", column.uri, "fill in the value")
        found[start:stop] = codes[place]
    return found


_AS_THEY_ARE: dict[str, Any] = {"positive": None, "label_map": None}
"""Options of labels that must not be applied to a column of folds."""


def labels_of(store: RowBlocks) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
    """(first row, y, sample weights) piece by piece, without reading X if the store allows that."""
    read_y = getattr(store, "labels_between", None)
    if read_y is not None and not store.has_weights:
        for start in range(0, store.n_samples, _PIECE):
            yield start, read_y(start, min(start + _PIECE, store.n_samples)), None
        return
    for ref in store.refs(max(1, min(store.n_samples, int(2 * MIB / max(row_bytes(store), 1))))):
        block = store.read(ref)
        yield block.start, block.y, block.sample_weight
    store.forget()


def class_counts(store: RowBlocks, folds: Folds) -> np.ndarray:
    """Number of rows with positive weight for each fold and class, int64, (n_folds, n_classes)."""
    assert store.classes is not None
    n_classes = len(store.classes)
    counts = np.zeros(folds.n_folds * n_classes, np.int64)
    for start, y, weight in labels_of(store):
        both = folds.of(start, start + len(y)).astype(np.int64) * n_classes + y
        counts += np.bincount(both if weight is None else both[weight > 0], minlength=len(counts))
    return counts.reshape(folds.n_folds, n_classes)
