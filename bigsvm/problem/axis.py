"""Models that differ in the rows that take part: one for each fold that is held out, trained on the same readings.

A row of the fold that a model holds out costs that model nothing: its alpha stays 0, and neither P nor D of the model
knows it.  Models may have weights of classes of their own, too.  Which fold a row belongs to is looked up by its
working row, so that no copy of the data is one of a search.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.shared.losses import FoldCosts
from bigsvm.store.blocks import BlockGroup

MOST_FOLDS = 255


@dataclass(frozen=True)
class ModelAxis:
    """What a problem's models differ in, besides C.

    fold : uint8, (n_rows,)   of each row at hand
    held_out : int32, (n_models,)   the fold that a model does without; -1 for none
    weight : float64, (n_models, n_classes)   of the classes, on top of those of the problem; one column for targets
    moves : uint8, (n_models,)   0 of a model that is done: training leaves it as it is, proofs do not ask
    first : the row that fold[0] is of
    """

    fold: np.ndarray
    held_out: np.ndarray
    weight: np.ndarray
    moves: np.ndarray
    first: int = 0

    @classmethod
    def of(cls, fold: np.ndarray, held_out: np.ndarray, weight: np.ndarray) -> ModelAxis:
        """All models move."""
        return cls(fold, held_out.astype(np.int32), weight, np.ones(len(held_out), np.uint8))

    @property
    def same_weights(self) -> bool:
        """No model has weights of its own."""
        return bool(np.all(self.weight == 1.0))

    def of_models(self, models: slice) -> ModelAxis:
        """Of some of the models; which of them move is theirs to say."""
        return dataclasses.replace(
            self, held_out=self.held_out[models], weight=self.weight[models], moves=self.moves[models].copy()
        )

    def of_rows(self, start: int, stop: int) -> ModelAxis:
        """Of working rows [start, stop): what a task takes along."""
        rows = slice(start - self.first, stop - self.first)
        return dataclasses.replace(self, fold=self.fold[rows], first=start)

    def training_costs(self, C: np.ndarray) -> FoldCosts:
        """For loops that know a row by its working row."""
        return FoldCosts(C[:, None] * self.weight, self.fold, self.held_out, self.moves)

    def proof_costs(self, C: np.ndarray, start: int, stop: int) -> FoldCosts:
        """For loops over working rows [start, stop) alone; every model counts."""
        fold = self.fold[start - self.first : stop - self.first]
        return FoldCosts(C[:, None] * self.weight, fold, self.held_out, np.ones(len(C), np.uint8))

    def group_costs(self, C: np.ndarray, group: BlockGroup) -> FoldCosts:
        """`proof_costs` of the rows of a group, one block after another."""
        if len(group.refs) == 1:
            return self.proof_costs(C, group.refs[0].start, group.refs[0].stop)
        parts = [self.proof_costs(C, ref.start, ref.stop) for ref in group.refs]
        return parts[0]._replace(fold=np.concatenate([part.fold for part in parts]))
