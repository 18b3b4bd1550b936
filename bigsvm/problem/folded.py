"""The models of a search by cross-validation, with the folds of the rows in the working order of a fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bigsvm.problem.axis import ModelAxis
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import RowBlocks, tile
from bigsvm.store.identity import digest_of

_PIECE = 1 << 18  # rows


@dataclass(frozen=True)
class FoldedModels:
    """The rows that each cell of a search is trained on.  A cell is one entry of C_path.

    fold_of : (start, stop) -> uint8, (stop - start,): the folds of rows of the store
    held_out : int32, (n_cells,)   the fold that each cell leaves out; -1 for none
    weight : float64, (n_cells, n_classes)   class weights of each cell; one column of ones for targets
    folds : how the folds were made, as JSON
    others_wait : other solvers train the models that `dcd` does not solve in reasonable time
    """

    fold_of: Callable[[int, int], np.ndarray]
    held_out: np.ndarray
    weight: np.ndarray
    folds: dict[str, object]
    others_wait: bool = False

    def applied(self, problem: Problem, data: RowBlocks | None = None) -> Problem:
        """The problem with an axis over the rows of `data` in working order; without data, over no rows yet."""
        fold = np.empty(0, np.uint8) if data is None else self._working(data)
        each = problem.n_models // len(self.held_out)
        axis = ModelAxis.of(fold, np.repeat(self.held_out, each), np.repeat(self.weight, each, axis=0))
        return dataclasses.replace(problem, axis=axis)

    def document(self) -> dict[str, object]:
        """What a resumed run must have in common with the run that began, as JSON."""
        return {**self.folds, "cells": digest_of([self.held_out.tolist(), self.weight.tolist()])}

    def _working(self, data: RowBlocks) -> np.ndarray:
        fold = np.empty(data.n_samples, np.uint8)
        for start, stop in tile(data.n_samples, _PIECE):
            rows = slice(start, stop) if data.working_row is None else data.working_row[start:stop]
            fold[rows] = self.fold_of(start, stop)
        return fold
