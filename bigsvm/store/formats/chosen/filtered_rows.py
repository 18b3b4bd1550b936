"""The rows of a store that meet a condition on its columns (--rows)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, tile
from bigsvm.store.formats.chosen.split_rows import CountedRows
from bigsvm.store.identity import Identity
from bigsvm.store.labels import Missing, label_codes
from bigsvm.store.transforms.expression import parse
from bigsvm.units import shortened

_STEP = 1 << 16  # rows whose columns are read together, a multiple of 8


class FilteredRows(CountedRows):
    """RowBlocks over the rows of a store that meet a condition, in its order; their classes are those that occur.

    store : must have `columns_between`; if it has `labels_of_only`, rows that are not selected do not influence the
        classes, and their labels are not checked
    condition : as for `expression.parse`;  missing : treatment of selected rows without a label; None if the store was
        opened without labels

    The columns are read once, in pieces; one bit for each row is kept.  Rows that lack a value needed for the decision
    are left out, and counted in `recipe["chosen"]`.

    Raises
    ------
    UsageError : the condition cannot be parsed, or does not fit the columns.
    DataError : a column is missing, no row is selected, or a selected row has no label.
    """

    def __init__(self, store: RowBlocks, condition: str, missing: Missing | None = "refuse") -> None:
        parsed = parse(condition)
        names = sorted(set(parsed.names()))
        read = cast(Any, store).columns_between
        kept = np.zeros(-(-store.n_samples // 8), np.uint8)
        n_unknown = 0
        for start, stop in tile(store.n_samples, _STEP):
            found = parsed.of(read(names, start, stop))
            kept[start // 8 : -(-stop // 8)] = np.packbits(found.true)
            n_unknown += int(found.unknown.sum())
        n_chosen = int(np.bitwise_count(kept).sum())
        if n_chosen == 0:
            raise DataError(
                f"no row is chosen by {shortened(condition)}", store.uri, "look at the values of its columns"
            )
        labels_of_only = getattr(store, "labels_of_only", None)
        self._told = missing is not None and labels_of_only is not None
        if missing is not None and labels_of_only is not None:
            store = labels_of_only(kept)
        kept = _labelled(store, kept, missing)
        super().__init__(store, kept)
        self._condition, self._missing = condition, missing
        self._written = str(parsed)
        self.warnings = list(store.warnings)
        if n_chosen > self.n_samples:
            self.warnings.append(f"{n_chosen - self.n_samples} of the {n_chosen} chosen rows have no label")
        chosen = {"rows": self._written, "of": store.n_samples, "chosen": self.n_samples, "unknown": n_unknown}
        self.recipe = {**store.recipe, "chosen": chosen}
        selected = {"rows": self._written, **({"missing": "drop"} if missing == "drop" else {})}
        self.identity = Identity.of(store.identity.store, **{**dict(store.identity.selection), **selected})

    def __reduce__(self) -> tuple[Callable[..., FilteredRows], tuple[Any, ...]]:
        return _reopened, (self._store, self._condition, self._missing)

    def __repr__(self) -> str:
        return f"FilteredRows({self._store!r}, {self._written})"

    @functools.cached_property
    def _codes(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(classes of the selected rows, new code of each class of the store); None for targets, or without change."""
        theirs = None if self._told else self._store.classes
        if theirs is None:
            return None
        used = np.zeros(len(theirs), bool)
        for start, stop in tile(self._store.n_samples, _STEP):
            kept = self._bits(start).astype(bool)
            if kept.any():
                used[cast(Any, self._store).labels_between(start, stop)[kept]] = True
        classes = theirs[used]
        codes = np.zeros(len(theirs), label_codes(classes[:0], classes).dtype)
        codes[used] = np.arange(len(classes))
        return classes, codes

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of the selected rows, ascending; None for a regression target.  The first call reads them."""
        return self._store.classes if self._codes is None else self._codes[0]

    def read(self, ref: BlockRef) -> Block:
        block = super().read(ref)
        return block if self._codes is None else dataclasses.replace(block, y=self._codes[1][block.y])


@functools.lru_cache(maxsize=8)
def _reopened(store: Any, condition: str, missing: Missing | None) -> FilteredRows:
    """Rebuild a pickled FilteredRows; the columns are read once in each process."""
    return FilteredRows(store, condition, missing)


def _labelled(store: RowBlocks, kept: np.ndarray, missing: Missing | None) -> np.ndarray:
    """Bits of the selected rows that have a label.  Raises DataError if some have none, and missing is "refuse"."""
    labelled_rows = getattr(store, "labelled_rows", None)
    if labelled_rows is None or missing is None:
        return kept
    there = kept & labelled_rows()
    n_missing = int(np.bitwise_count(kept).sum() - np.bitwise_count(there).sum())
    if n_missing and missing == "refuse":
        first = int(np.flatnonzero(np.unpackbits(kept & ~there))[0])
        what = f"{n_missing} of the chosen rows have no label, row {first} is the first"
        raise DataError(what, store.uri, "--missing drop leaves them out")
    return there


def filtered(store: RowBlocks, condition: str, missing: Missing | None) -> RowBlocks:
    """The rows of a store that meet a condition.

    Raises UsageError if the store has no columns, and whatever `FilteredRows` raises.
    """
    if getattr(store, "columns_between", None) is None:
        what = f"--rows is for rows with columns beside them, and a {type(store).__name__} has none"
        raise UsageError(what, store.uri, "AnnData, Parquet, CSV and Arrow files have; or leave --rows out")
    return cast(RowBlocks, FilteredRows(store, condition, missing))
