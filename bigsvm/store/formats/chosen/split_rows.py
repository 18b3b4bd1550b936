"""Split into training and test rows, by a hash of the row numbers.

The side of a row does not depend on other rows, so it stays the same in a store that grows, and only the share must be
recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.blocks import BlockRef, RowBlocks, row_bytes, tile
from bigsvm.store.delegated import DelegatedRows
from bigsvm.store.formats.kept_rows import KeptRows
from bigsvm.store.identity import Identity
from bigsvm.store.remembered import recall, remember
from bigsvm.units import MIB

Part = Literal["train", "test"]
Share = float | Literal["recorded"]
Numbering = Literal["store", "rows left"]
_STEP = 1 << 16  # rows hashed together, a multiple of 8


class CountedRows(KeptRows):
    """Some rows of a store, whose stored entries are counted once, and cached."""

    @property
    def nnz(self) -> int | None:
        """Number of stored entries; the first call counts them, and caches the number while the rows stay the same."""
        if self.layout == "dense":
            return self.n_samples * self.n_features
        if self._nnz is None:
            name = f"entries-of-{self.identity.digest}.json"
            self._nnz = recall(name, lambda document: int(document["entries"]))
            if self._nnz is None:
                self._nnz = self._count()
                if self.uri != "memory":
                    remember(name, {"entries": self._nnz})
        return self._nnz

    def _count(self) -> int:
        store, count = self._store, 0
        lengths = getattr(store, "row_lengths", None)  # of stores that keep the row pointers
        if lengths is not None:
            for start, stop in tile(store.n_samples, _STEP):
                count += int(lengths(start, stop)[self._bits(start).astype(bool)].sum())
            return count
        together = max(1, min(_STEP, int(2 * MIB / max(row_bytes(store), 1))))
        for start, stop in tile(self.n_samples, together):
            X = self.read(BlockRef(start, stop, 0)).X
            assert isinstance(X, CSR)
            count += len(X.data)
        store.forget()
        return count


class SplitRows(CountedRows):
    """RowBlocks over the training rows of a store, or over the other rows.

    fraction : share of training rows, between 0 and 1
    numbering : the row number that is hashed: the number in the store; or, for models of earlier versions, the number
        among the rows that are left by a condition and by missing labels

    Raises UsageError for another fraction, DataError if one side has no row.
    """

    def __init__(self, store: RowBlocks, fraction: float, part: Part, numbering: Numbering = "store") -> None:
        check_share(fraction)
        numbers = numbers_in_store if numbering == "store" else _own_numbers
        kept = split_bits(store, fraction, numbers)
        n_train = int(np.bitwise_count(kept).sum())
        if not 0 < n_train < store.n_samples:
            side = "test" if n_train else "train"
            what = f"a split of {fraction:g} leaves none of the {store.n_samples} rows to {side} on"
            raise DataError(what, store.uri, "choose another share, or leave --split out")
        if part == "test":
            kept = ~kept
            if store.n_samples % 8:
                kept[-1] &= np.uint8(0xFF << (8 - store.n_samples % 8) & 0xFF)
        super().__init__(store, kept)
        self.fraction, self.part, self.numbering = fraction, part, numbering
        self.warnings = store.warnings
        self.recipe = {**store.recipe, "split": fraction}
        selected = f"{fraction!r} {part}"
        if numbering == "store":
            self.recipe["split_by"] = numbering
            selected += ", by number in the store"
        self.identity = Identity.of(store.identity.store, **{**dict(store.identity.selection), "split": selected})

    def __reduce__(self) -> tuple[Callable[..., SplitRows], tuple[Any, ...]]:
        return SplitRows, (self._store, self.fraction, self.part, self.numbering)

    def __repr__(self) -> str:
        return f"SplitRows({self._store!r}, {self.fraction:g}, {self.part})"

    def others(self) -> SplitRows:
        """The rows of the other side."""
        return SplitRows(self._store, self.fraction, "test" if self.part == "train" else "train", self.numbering)


def check_share(fraction: float) -> None:
    """Raise UsageError unless it is a share between 0 and 1."""
    if isinstance(fraction, str) or not 0.0 < fraction < 1.0:
        raise UsageError(f"a split of {fraction!r}", hint="the share of rows to train on, such as --split 0.9")


def recorded_split(rows: RowBlocks) -> float | None:
    """The share that the store of `rows` records; None if it records none, or `rows` are one side of a split."""
    if isinstance(rows, SplitRows):
        return None
    below = getattr(rows, "below", None)
    return getattr(rows, "recorded_split", None) if below is None else recorded_split(below)


def split_bits(store: RowBlocks, fraction: float, numbers: Callable[[RowBlocks, int, int], np.ndarray]) -> np.ndarray:
    """Which rows are for training, packed: bit i of byte i // 8, most significant bit first."""
    spans = tile(store.n_samples, _STEP)
    parts = [np.packbits(hashed(numbers(store, start, stop)) < fraction) for start, stop in spans]
    return np.concatenate([np.zeros(0, np.uint8), *parts])


def numbers_in_store(rows: RowBlocks, start: int, stop: int) -> np.ndarray:
    """The numbers of rows [start, stop) in the underlying store, before rows were left out; int64."""
    if isinstance(rows, DelegatedRows):
        return numbers_in_store(rows.below, start, stop)
    if not isinstance(rows, KeptRows):
        return np.arange(start, stop)
    return _numbers_of(rows.below, rows.store_rows(start, stop))


def _numbers_of(rows: RowBlocks, places: np.ndarray) -> np.ndarray:
    """The numbers of some rows in the underlying store; int64.  places : their numbers in `rows`, ascending

    Rows that are far apart are looked up in parts, so that the rows between them take no memory.
    """
    while isinstance(rows, DelegatedRows):
        rows = rows.below
    if not isinstance(rows, KeptRows):
        return places
    found, at = np.empty_like(places), 0
    while at < len(places):
        first = int(places[at])
        end = int(np.searchsorted(places, first + _STEP))
        found[at:end] = rows.store_rows(first, int(places[end - 1]) + 1)[places[at:end] - first]
        at = end
    return _numbers_of(rows.below, found)


def rows_in_store(rows: RowBlocks) -> int:
    """The number of rows in the underlying store, before rows were left out."""
    if isinstance(rows, DelegatedRows | KeptRows):
        return rows_in_store(rows.below)
    return rows.n_samples


def _own_numbers(_: RowBlocks, start: int, stop: int) -> np.ndarray:
    return np.arange(start, stop)


def hashed(rows: np.ndarray) -> np.ndarray:
    """A hash of row numbers as float64 in [0, 1): the leading 53 bits of splitmix64."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64(1)
        z *= np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def split(store: RowBlocks, fraction: Share | None, part: Part | None, rows: Any) -> RowBlocks:
    """The side that was asked for: of a given share, or of the split that a model was trained with (`rows`); all for 1.

    Raises
    ------
    UsageError : both are given, or a side without a share.
    """
    if fraction == "recorded":
        fraction = recorded_split(store)
        if fraction is None and part is not None and not rows:
            hint = "bigsvm ingest --split 0.9 records one; or name it: split=0.9"
            raise UsageError("the store records no share of rows to train on", store.uri, hint)
    elif fraction == 1.0:
        fraction = None
    kept = (rows or {}).get("split")
    if fraction is None and part is None:
        return store
    if fraction is None:
        if not isinstance(kept, float):
            hint = "without --split all rows are taken"
            raise UsageError("the model was trained on all rows: none were kept back", store.uri, hint)
        fraction = kept
        if rows.get("split_by") != "store":
            return cast(RowBlocks, SplitRows(store, fraction, part or "train", "rows left"))
    return cast(RowBlocks, SplitRows(store, fraction, part or "train"))


def others_of(rows: RowBlocks) -> RowBlocks | None:
    """The rows that were held out from `rows`, transformed in the same way; None if none were."""
    if isinstance(rows, SplitRows):
        return cast(RowBlocks, rows.others())
    if isinstance(rows, DelegatedRows):
        below = others_of(rows.below)
        return None if below is None else cast(RowBlocks, rows.over(below))
    return None
