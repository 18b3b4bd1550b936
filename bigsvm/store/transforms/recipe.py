"""The steps from stored values to the values that a model was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bigsvm.store.blocks import Matrix
from bigsvm.store.transforms.normalize import Normalizing
from bigsvm.store.transforms.scaling import Scaling


class Recipe(NamedTuple):
    """Normalization, then scaling; None for a step that is left out."""

    normalizing: Normalizing | None
    scaling: Scaling | None

    @classmethod
    def of(cls, rows: Mapping[str, Any]) -> Recipe:
        """From the recipe of a model or a store.  Raises DataError for an invalid one."""
        return cls(Normalizing.of(rows), Scaling.of(rows))

    @property
    def nothing(self) -> bool:
        """Whether rows stay unchanged."""
        return self.normalizing is None and self.scaling is None

    def apply(self, X: Matrix, where: str, first_row: int = 0) -> Matrix:
        """Apply the steps to rows.  Raises DataError naming a row that cannot be transformed."""
        if self.normalizing is not None:
            X = self.normalizing.apply(X, where, first_row)
        return X if self.scaling is None else self.scaling.apply(X)
