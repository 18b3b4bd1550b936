"""Which fold each row belongs to: by a hash of its number, by group, or as a column says.

None of it depends on the order in which rows are read, on blocks, chunks or threads.
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
from bigsvm.store.identity import digest_of
from bigsvm.store.withheld import hashed_rows
from bigsvm.units import MIB

_PIECE = 1 << 18  # rows


@dataclass(frozen=True)
class Folds:
    """The fold of every row.

    n_folds : int;  by : 'rows', 'group' or 'column';  seed : of the hash of row numbers
    names : of the folds, where a column has them
    values : uint8, (n_samples,), of groups and columns; None where the number of a row says it
    """

    n_folds: int
    by: str
    seed: int = 0
    names: tuple[str, ...] = ()
    values: np.ndarray | None = None

    def of(self, start: int, stop: int) -> np.ndarray:
        """Of rows [start, stop) of the store, uint8."""
        if self.values is not None:
            return self.values[start:stop]
        return (hashed_rows(start, stop, self.seed) % np.uint64(self.n_folds)).astype(np.uint8)

    def sizes(self, n_samples: int) -> np.ndarray:
        """Rows of each fold, int64."""
        counts = np.zeros(self.n_folds, np.int64)
        for start in range(0, n_samples, _PIECE):
            counts += np.bincount(self.of(start, min(start + _PIECE, n_samples)), minlength=self.n_folds)
        return counts

    def document(self) -> dict[str, Any]:
        """As JSON: the same where the folds are."""
        found: dict[str, Any] = {"n_folds": self.n_folds, "by": self.by}
        if self.values is None:
            return {**found, "seed": self.seed}
        return {**found, "names": list(self.names), "digest": digest_of(self.values.tobytes().hex())}


@dataclass(frozen=True)
class OfFold:
    """The rows of one fold, as `withheld.Which`."""

    folds: Folds
    fold: int

    @property
    def said(self) -> str:
        """As `Which` has it."""
        return f"fold {self.fold} of {digest_of(self.folds.document())}"

    def withheld(self, start: int, stop: int) -> np.ndarray:
        """As `Which` has it."""
        return self.folds.of(start, stop) == self.fold


def make_folds(
    store: RowBlocks, source: Any, n_folds: int, group: Any, fold: Any, seed: int, opened: dict[str, Any]
) -> Folds:
    """The folds that were asked for.

    group, fold : name of a column of `source`, or an array with a value for each of its rows, or for each row of
        `store`, which may leave some out; not both
    opened : what else `source` was opened with

    Raises
    ------
    UsageError : fewer than two folds or more than 255, or both group and fold are given.
    DataError : a column has another number of rows, missing values, or leaves a fold empty.
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
                f"{n} rows leave {int((sizes == 0).sum())} of {n_folds} folds empty", store.uri, "fewer folds"
            )
        return found
    names, codes = _column(store, source, group, opened)
    if len(names) < n_folds:
        raise DataError(f"{len(names)} groups for {n_folds} folds", store.uri, "fewer --folds, or another --group")
    of_group = _spread(np.bincount(codes, minlength=len(names)), n_folds)
    return Folds(n_folds, "group", values=of_group[codes])


def _check_number(n_folds: int, said: str, where: str) -> None:
    if not 2 <= n_folds <= MOST_FOLDS:
        raise UsageError(f"{said} {n_folds} folds", where, f"from 2 to {MOST_FOLDS} folds")


def _spread(sizes: np.ndarray, n_folds: int) -> np.ndarray:
    """Fold of each group, uint8: the largest groups first, each to the fold that has fewest rows; ties to the first."""
    fold, load = np.empty(len(sizes), np.uint8), np.zeros(n_folds, np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        fold[group] = np.argmin(load)
        load[fold[group]] += sizes[group]
    return fold


def _column(store: RowBlocks, source: Any, named: Any, opened: dict[str, Any]) -> tuple[tuple[str, ...], np.ndarray]:
    """(names of the values, ascending; code of each row of the store, int64).  Raises DataError, UsageError."""
    n_samples = store.n_samples
    if not isinstance(named, str):
        values, n_in_store = np.asarray(named), rows_in_store(store)
        if values.shape == (n_in_store,):
            values = values[numbers_in_store(store, 0, n_samples)]
        if values.shape != (n_samples,):
            others = "" if n_in_store == n_samples else f" of {n_in_store}, of which the others are left out"
            hint = "give an array with a value for each row"
            raise DataError(f"{values.shape} folds or groups for {n_samples} rows{others}", "memory", hint)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DataError(f"row {int(np.argmin(np.isfinite(values)))} has no fold or group", "memory")
        names, codes = np.unique(values, return_inverse=True)
        return tuple(map(str, names.tolist())), codes
    if isinstance(source, tuple) or (not isinstance(source, str | bytes) and not hasattr(source, "__fspath__")):
        raise UsageError(f"{named!r} names a column, and these rows have none", hint="give an array, a value a row")
    column = open_store(source, **{**opened, "label": named, "weight": None, "task": "classification", **_AS_THEY_ARE})
    if column.classes is None:
        raise DataError(f"{named} has no values that could be told apart", column.uri)
    codes = _of_rows(store, column, named, np.concatenate([y for _, y, _ in labels_of(column)]))
    used, codes = np.unique(codes, return_inverse=True)  # of rows that are left out nobody asks
    return tuple(map(str, column.classes[used].tolist())), codes.astype(np.int64)


def _of_rows(store: RowBlocks, column: RowBlocks, named: str, codes: np.ndarray) -> np.ndarray:
    """The code of each row of the store.  Where rows are left out, it is by what the label or the column lacks.

    column, codes : the rows that have a value in the column, and its number
    """
    found = np.empty(store.n_samples, codes.dtype)
    theirs = numbers_in_store(column, 0, column.n_samples)
    for start, stop in tile(store.n_samples, _PIECE):
        ours = numbers_in_store(store, start, stop)
        place = np.minimum(np.searchsorted(theirs, ours), len(theirs) - 1)
        if not np.array_equal(theirs[place], ours):
            row = ours[int(np.argmax(theirs[place] != ours))]
            raise DataError(f"row {row} has a label, and no value in {named}", column.uri, "give it one")
        found[start:stop] = codes[place]
    return found


_AS_THEY_ARE: dict[str, Any] = {"positive": None, "label_map": None}
"""Names of folds are no labels."""


def labels_of(store: RowBlocks) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
    """(first row, y, sample weights) piece by piece, without X where the store can."""
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
    """Rows that weigh something, of each fold and class, int64, (n_folds, n_classes)."""
    assert store.classes is not None
    n_classes = len(store.classes)
    counts = np.zeros(folds.n_folds * n_classes, np.int64)
    for start, y, weight in labels_of(store):
        both = folds.of(start, start + len(y)).astype(np.int64) * n_classes + y
        counts += np.bincount(both if weight is None else both[weight > 0], minlength=len(counts))
    return counts.reshape(folds.n_folds, n_classes)
