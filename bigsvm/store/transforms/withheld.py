"""The rows of a store with some of them withheld: these have weight 0, so no solver trains on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from bigsvm.store.blocks import Block, RowBlocks, tile
from bigsvm.store.delegated import DelegatedRows, content_but_classes

_GOLDEN = 0x9E3779B97F4A7C15
_STEP = 1 << 16  # rows hashed together


class Which(Protocol):
    """Decides which rows are withheld; can be pickled."""

    @property
    def said(self) -> str:
        """A few words that are the same if and only if the same rows are withheld; part of the identity."""

    def withheld(self, start: int, stop: int) -> np.ndarray:
        """bool, (stop - start,), for rows [start, stop) of the store."""
        ...


@dataclasses.dataclass(frozen=True)
class HashedShare:
    """A share of the rows, chosen by a hash of the row number: the same in every layout and order of reading."""

    share: float
    seed: int

    @property
    def said(self) -> str:
        """See `Which`."""
        return f"{self.share!r} by seed {self.seed}"

    def withheld(self, start: int, stop: int) -> np.ndarray:
        """See `Which`."""
        return (hashed_rows(start, stop, self.seed) >> np.uint64(11)) * 2.0**-53 < self.share

    def count(self, n_samples: int) -> int:
        """How many of the first `n_samples` rows are withheld."""
        return sum(int(self.withheld(start, stop).sum()) for start, stop in tile(n_samples, _STEP))


def hashed_rows(start: int, stop: int, seed: int) -> np.ndarray:
    """64 well-mixed bits for each row number, uint64 (splitmix64; Steele, Lea, Flood, OOPSLA 2014)."""
    offset = np.uint64((seed + 1) * _GOLDEN % (1 << 64))
    z = np.arange(start, stop, dtype=np.uint64) * np.uint64(_GOLDEN) + offset
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class WithheldRows(DelegatedRows):
    """The rows of a store, with weight 0 for those that `which` withholds."""

    def __init__(self, store: RowBlocks, which: Which) -> None:
        super().__init__(store, {"withheld": which.said})
        self._which = which
        self.has_weights = True

    def __reduce__(self) -> tuple[Callable[..., WithheldRows], tuple[Any, ...]]:
        return WithheldRows, (self._store, self._which)

    def __repr__(self) -> str:
        return f"WithheldRows({self._store!r}, {self._which.said})"

    def over(self, store: RowBlocks) -> WithheldRows:
        return WithheldRows(store, self._which)

    @property
    def content(self) -> Mapping[str, Any]:
        """The statistics of the columns still hold, since the values are the same."""
        return content_but_classes(self._store)

    def changed(self, block: Block) -> Block:
        weight = np.ones(block.n_rows) if block.sample_weight is None else np.array(block.sample_weight)
        weight[self._which.withheld(block.start, block.stop)] = 0.0
        return dataclasses.replace(block, sample_weight=weight)
