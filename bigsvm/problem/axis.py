"""Models of a cross-validation, trained together: each leaves out the rows of one fold.

A row of the fold that a model holds out has cost 0 in that model: its alpha stays 0, and it counts in neither P nor D.
Models may also have class weights of their own.  The fold of a row is looked up by its number in working order, so a
working copy of the data serves searches and other fits alike.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.shared.losses import FoldCosts
from bigsvm.store.blocks import BlockGroup, tile

MOST_FOLDS = 255
_TOGETHER = 1 << 16  # folds that are looked up at one time


@dataclass(frozen=True)
class ModelAxis:
    """What the models of a problem differ in, besides C.

    fold : uint8, (n_rows,)         fold of each of the rows at hand
    held_out : int32, (n_models,)   the fold that each model leaves out; -1 for none
    weight : float64, (n_models, n_classes)   factors on the class weights of the problem; one column for targets
    moves : uint8, (n_models,)      0 for a model that is finished: training leaves it alone, proofs include it
    first : int                     working row of fold[0]
    """

    fold: np.ndarray
    held_out: np.ndarray
    weight: np.ndarray
    moves: np.ndarray
    first: int = 0

    @classmethod
    def of(cls, fold: np.ndarray, held_out: np.ndarray, weight: np.ndarray) -> ModelAxis:
        """The axis with all models in training."""
        return cls(fold, held_out.astype(np.int32), weight, np.ones(len(held_out), np.uint8))

    @property
    def same_weights(self) -> bool:
        """Whether no model has class weights of its own."""
        return bool(np.all(self.weight == 1.0))

    def of_models(self, models: slice) -> ModelAxis:
        """The axis of some of the models, with a copy of `moves`."""
        return dataclasses.replace(
            self, held_out=self.held_out[models], weight=self.weight[models], moves=self.moves[models].copy()
        )

    def of_rows(self, start: int, stop: int) -> ModelAxis:
        """The axis for a task over working rows [start, stop)."""
        rows = slice(start - self.first, stop - self.first)
        return dataclasses.replace(self, fold=self.fold[rows], first=start)

    def of_slots(self, row: np.ndarray, which: np.ndarray) -> ModelAxis:
        """The axis for compiled loops that number rows by slots.

        row : int64, (n_slots,)   the working row in each slot;  which : int64, the slots that are visited
        """
        fold = np.empty(len(row), np.uint8)
        for start, stop in tile(len(which), _TOGETHER):
            some = which[start:stop]
            fold[some] = self.fold[row[some] - self.first]
        return dataclasses.replace(self, fold=fold, first=0)

    def training_costs(self, C: np.ndarray) -> FoldCosts:
        """Costs for compiled loops that number rows in working order.  C : float64, (n_models,)"""
        return FoldCosts(C[:, None] * self.weight, self.fold, self.held_out, self.moves)

    def proof_costs(self, C: np.ndarray, start: int, stop: int) -> FoldCosts:
        """Costs for compiled loops over working rows [start, stop) alone; finished models count too."""
        fold = self.fold[start - self.first : stop - self.first]
        return FoldCosts(C[:, None] * self.weight, fold, self.held_out, np.ones(len(C), np.uint8))

    def group_costs(self, C: np.ndarray, group: BlockGroup) -> FoldCosts:
        """`proof_costs` for the rows of a group of blocks."""
        if len(group.refs) == 1:
            return self.proof_costs(C, group.refs[0].start, group.refs[0].stop)
        parts = [self.proof_costs(C, ref.start, ref.stop) for ref in group.refs]
        return parts[0]._replace(fold=np.concatenate([part.fold for part in parts]))
