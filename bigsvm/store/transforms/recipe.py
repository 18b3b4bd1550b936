"""What every row of a model goes through, whoever brings it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bigsvm.store.blocks import Matrix
from bigsvm.store.transforms.normalize import Normalizing
from bigsvm.store.transforms.scaling import Scaling


class Recipe(NamedTuple):
    """Normalizing first, then scaling; None for what is not done."""

    normalizing: Normalizing | None
    scaling: Scaling | None

    @classmethod
    def of(cls, rows: Mapping[str, Any]) -> Recipe:
        """From what a model or a store keeps.  Raises DataError for what is none."""
        return cls(Normalizing.of(rows), Scaling.of(rows))

    @property
    def nothing(self) -> bool:
        """Rows stay as they are."""
        return self.normalizing is None and self.scaling is None

    def apply(self, X: Matrix, where: str, first_row: int = 0) -> Matrix:
        """The rows as those of the model were.  Raises DataError naming a row that cannot be."""
        if self.normalizing is not None:
            X = self.normalizing.apply(X, where, first_row)
        return X if self.scaling is None else self.scaling.apply(X)
