"""The rows of a store with a set of labels each, from one text column or from several columns of true and false."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.store.blocks import Block, RowBlocks, tile
from bigsvm.store.delegated import DelegatedRows, content_but_classes
from bigsvm.store.identity import digest_of
from bigsvm.store.labels import fixed_width, label_codes
from bigsvm.store.transforms.expression import Column
from bigsvm.store.transforms.label_sets import LABEL_SETS, MOST_SETS, set_text, sorted_names, split_set
from bigsvm.units import counted

_STEP = 1 << 16  # rows whose columns are read together
_TRUTHS = {"true": 1, "false": 0, "1": 1, "0": 0, "1.0": 1, "0.0": 0}


class SetRows(DelegatedRows):
    """RowBlocks over a store whose classes stand for sets of labels: as text such as `1,5`, or as `sets` says.

    sets : for each class of the store the names of its labels; None: they are in the text of the class
    names : all possible labels; None: those that occur
    """

    def __init__(
        self, store: RowBlocks, names: Sequence[str] | None = None, sets: Sequence[Sequence[str]] | None = None
    ) -> None:
        self._of_text = sets is None
        classes = store.classes
        if classes is None:
            raise DataError("the labels are regression targets, not sets", store.uri)
        if sets is None and classes.dtype.kind != "U":
            what = "--labels names one column, which is not text, so a row has one label"
            raise DataError(what, store.uri, "use --label NAME; or name two or more columns of true and false")
        if sets is None:
            sets = [split_set(str(text)) for text in classes.tolist()]
        known = sorted({name for one in sets for name in one}) if names is None else list(names)
        _check_names(known, store.uri)
        self._sets, self._names = sets, known
        document = {"names": list(map(str, sorted_names(known).tolist())), "columns": None}
        # Part of the identity only if the caller decides the meaning of the classes; otherwise their text does.
        selected = document if self._of_text else {**document, "sets": [list(map(str, one)) for one in sets]}
        super().__init__(store, {"labels": digest_of(selected)}, {LABEL_SETS: document})
        texts = fixed_width([set_text(one) for one in sets], store.uri)
        self._classes = np.unique(texts)
        self._codes = label_codes(texts, self._classes)

    def __reduce__(self) -> tuple[Callable[..., SetRows], tuple[Any, ...]]:
        return SetRows, (self._store, self._names, None if self._of_text else self._sets)

    def __repr__(self) -> str:
        return f"SetRows({self._store!r}, {len(self._names)} labels)"

    def over(self, store: RowBlocks) -> SetRows:
        return SetRows(store, self._names, None if self._of_text else self._sets)

    @property
    def classes(self) -> np.ndarray | None:
        """Sets of labels as text, in ascending order."""
        return self._classes

    @property
    def content(self) -> Mapping[str, Any]:
        return content_but_classes(self._store)

    def changed(self, block: Block) -> Block:
        return dataclasses.replace(block, y=self._codes[block.y])


class ColumnSetRows(DelegatedRows):
    """RowBlocks over a store with columns; the labels of a row are those of `columns` that are true.

    store : with `columns_between`; its own labels are ignored

    The columns are read once to find the sets that occur, and again with every block.

    Raises
    ------
    UsageError : the store has no columns.  DataError : a column is not of true and false, or a value is missing.
    """

    def __init__(self, store: RowBlocks, columns: Sequence[str]) -> None:
        if getattr(store, "columns_between", None) is None:
            what = f"--labels names columns, but a {type(store).__name__} has none"
            hint = "the columns must be of a table, of Parquet or of the obs of a store"
            python = f"{hint}; or pass an indicator matrix Y: bigsvm.fit(X, Y)"
            raise UsageError(what, store.uri, hint, hint_in_python=python)
        self._columns = list(columns)
        self._numbers: dict[str, frozenset[float]] = {}
        self._short = [name.rpartition("/")[2] for name in self._columns]
        _check_names(self._short, store.uri)
        document = {"names": list(map(str, sorted_names(self._short).tolist())), "columns": self._columns}
        super().__init__(store, {"labels": digest_of(document)}, {LABEL_SETS: document})

    def __reduce__(self) -> tuple[Callable[..., ColumnSetRows], tuple[Any, ...]]:
        return ColumnSetRows, (self._store, self._columns)

    def __repr__(self) -> str:
        return f"ColumnSetRows({self._store!r}, {len(self._columns)} labels)"

    def over(self, store: RowBlocks) -> ColumnSetRows:
        return ColumnSetRows(store, self._columns)

    def _packed(self, start: int, stop: int) -> np.ndarray:
        """The labels of rows [start, stop) as bits, one void for each row, so that equal sets compare equal."""
        found = cast(Any, self._store).columns_between(self._columns, start, stop)
        bits = np.stack([self._truths(name, found[name], start) for name in self._columns], axis=1)
        packed = np.ascontiguousarray(np.packbits(bits, axis=1))
        return packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]

    def _truths(self, name: str, column: Column, start: int) -> np.ndarray:
        """Whether each row has the label, uint8."""
        values, there = column
        if values.dtype.kind == "f":
            there = there & ~np.isnan(values)
        if not there.all():
            row = start + int(np.argmin(there))
            hint = f"--rows '`{name}` is not null' leaves out such rows"
            raise DataError(f"row {row} has no value in the column of labels {name!r}", self.uri, hint)
        if values.dtype.kind == "b":
            return values.astype(np.uint8)
        kinds = np.unique(values)
        if values.dtype.kind in "iuf":
            before = self._numbers.get(name, frozenset())
            numbers = before | frozenset(kinds.tolist())  # of all pieces so far: together they must be one pair
            if numbers <= {0, 1} or numbers <= {-1, 1}:
                self._numbers[name] = numbers
                return (values > 0).astype(np.uint8)
            kinds = kinds[~np.isin(kinds, list(before))]
        if values.dtype.kind == "U" and all(str(kind).lower() in _TRUTHS for kind in kinds):
            return np.array([_TRUTHS[str(kind).lower()] for kind in kinds], np.uint8)[np.searchsorted(kinds, values)]
        odd = next((kind for kind in kinds.tolist() if str(kind).lower() not in _TRUTHS), kinds.tolist()[0])
        row = start + int(np.flatnonzero(values == odd)[0])
        hint = "a column of labels must hold true and false, or 0 and 1; for classes in one column use --label"
        raise DataError(f"row {row} of the column of labels {name!r} holds {odd!r}", self.uri, hint)

    @functools.cached_property
    def _found(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bits of each set, ascending; code of each; sets as text, ascending).  Reads the columns once."""
        seen = np.zeros(0, np.dtype((np.void, -(-len(self._columns) // 8))))
        for start, stop in tile(self.n_samples, _STEP):
            seen = np.unique(np.concatenate([seen, self._packed(start, stop)]))
            if len(seen) > MOST_SETS:
                what = f"more than {MOST_SETS} different sets of {len(self._columns)} labels"
                raise DataError(what, self.uri, "use fewer labels at a time")
        bits = np.unpackbits(seen.view(np.uint8).reshape(len(seen), -1), axis=1)[:, : len(self._columns)]
        texts = fixed_width([set_text([self._short[k] for k in np.flatnonzero(row)]) for row in bits], self.uri)
        classes = np.unique(texts)
        return seen, label_codes(texts, classes), classes

    @property
    def classes(self) -> np.ndarray | None:
        """Sets of labels as text, in ascending order; the first call reads the columns."""
        return self._found[2]

    @property
    def content(self) -> Mapping[str, Any]:
        return content_but_classes(self._store)

    def labels_between(self, start: int, stop: int) -> np.ndarray:
        """The y of rows [start, stop), as in blocks, without reading X."""
        seen, codes, _ = self._found
        return codes[np.searchsorted(seen, self._packed(start, stop))]

    def changed(self, block: Block) -> Block:
        return dataclasses.replace(block, y=self.labels_between(block.start, block.stop))


def of_indicator(X: Any, Y: np.ndarray, weight: Any, rows: Callable[..., RowBlocks]) -> RowBlocks:
    """Rows of arrays with an indicator matrix as labels; the labels are 0 to n_labels - 1.

    Y : (n_samples, n_labels), of 0 and 1;  rows : makes a store from (X, y, weight)

    Raises DataError naming a row with a value other than 0 and 1, or if there is only one label.
    """
    truths = Y != 0
    bad = np.flatnonzero(~((Y == 0) | (Y == 1)).all(axis=1))
    if len(bad):
        raise DataError(f"row {bad[0]} of the indicator matrix y holds another value than 0 and 1", "y")
    packed = np.ascontiguousarray(np.packbits(truths, axis=1))
    seen, codes = np.unique(packed.view(np.dtype((np.void, packed.shape[1])))[:, 0], return_inverse=True)
    bits = np.unpackbits(seen.view(np.uint8).reshape(len(seen), -1), axis=1)[:, : Y.shape[1]]
    sets = [[str(k) for k in np.flatnonzero(row)] for row in bits]
    return cast(RowBlocks, SetRows(rows(X, codes, weight), [str(k) for k in range(Y.shape[1])], sets))


def _check_names(names: Sequence[str], where: str) -> None:
    """Raise DataError unless there are at least two labels, whose names can be written in a set."""
    try:
        sorted_names(names)
    except DataError as error:
        raise DataError(error.what, where, error.hint) from None
    if len(names) < 2:
        what = f"{counted(len(names), 'label')} in all: rows with several need two or more"
        raise DataError(what, where, "for one column of classes use --label NAME")
