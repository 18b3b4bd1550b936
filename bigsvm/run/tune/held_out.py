"""Scores of held-out rows: one reading of the rows for all models, each row scored by those that never saw it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.model.linear_model import LinearModel, LinearScorer, Model
from bigsvm.run.apply.evaluate import Residuals, Tally
from bigsvm.run.apply.scoring import (
    Scored,
    Scorer,
    TextLabels,
    budget_of,
    most_entries,
    plan_reading,
    precompile_scoring,
    score_rows,
)
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.tune.folds import Folds
from bigsvm.run.tune.train import Cell
from bigsvm.solvers.gathered import picked_rows
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks
from bigsvm.tasks import over_shares

METRICS = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision")
METRICS_OF_TARGETS = ("r2", "mse", "mae")
LESS_IS_BETTER = ("mse", "mae")
_SHARE = 3  # of the budget: a third at most goes to what metrics keep of scores


class Together(NamedTuple):
    """Models whose scores are wanted of the same rows, one after another."""

    scorers: tuple[Scorer, ...]

    @property
    def n_features(self) -> int:
        return self.scorers[0].n_features

    def scores(self, X: Matrix) -> np.ndarray:
        """Of all models, float64, (n_rows, models of all scorers)."""
        return np.hstack([scorer.scores(X) for scorer in self.scorers])


class Share(NamedTuple):
    """What a worker needs to score the rows of a block: fold of each row, and a scorer for each fold."""

    data: RowBlocks
    ref: BlockRef
    fold: np.ndarray
    scorers: tuple[Scorer, ...]


class HeldOut(NamedTuple):
    """Rows of one fold in a block, with the scores of all models that were trained without it."""

    fold: int
    scores: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None


def score_held_out(share: Share) -> list[HeldOut]:
    """Task: the scores of the rows of a block, by fold.  Pure."""
    block, found = share.data.read(share.ref), []
    for fold, scorer in enumerate(share.scorers):
        rows = np.flatnonzero(share.fold == fold)
        if len(rows):
            scores = score_rows(picked_rows(block.X, rows), scorer, share.data.uri, block.start)
            weight = None if block.sample_weight is None else block.sample_weight[rows]
            found.append(HeldOut(fold, scores, block.y[rows], weight))
    return found


def held_out_metrics(
    store: RowBlocks, cells: Sequence[Cell], folds: Folds, config: FitConfig, emit: Emit
) -> list[dict[str, Any]]:
    """The metrics of each cell on the rows of its fold, as `evaluate` has them; the rows are read once.

    Raises DataError where rows are bad; BudgetExceeded where the budget holds neither scores nor their counts.
    """
    budget = budget_of(config)
    sizes = folds.sizes(store.n_samples)
    by_fold = [[number for number, cell in enumerate(cells) if cell.fold == fold] for fold in range(folds.n_folds)]
    widest = max(by_fold, key=len)
    stand_in = _stand_in([cells[number].model for number in widest])
    precompile_scoring(store.layout, store.dtype, store.index_dtype, stand_in, emit, most_entries(store))
    scorers = tuple(_scorer([cells[number].model for number in numbers]) for numbers in by_fold)
    tallies: list[Tally | Residuals] = []
    for cell in cells:
        rows = TextLabels(store.uri, store.classes, int(sizes[cell.fold]), store.has_weights)
        of_targets = cell.model.regression
        tallies.append(Residuals(rows) if of_targets else Tally(cell.model, rows, budget.limit // _SHARE // len(cells)))
    began = time.monotonic()
    with budget.reserve("scores", sum(tally.nbytes for tally in tallies)):
        reading = plan_reading(store, stand_in, budget, config)
        emit(WorkStarted("scoring", store.n_samples, "rows"))
        with open_mapper(dataclasses.replace(config, threads=reading.threads)) as mapper:
            refs = store.refs(reading.block_rows)
            shares = over_shares(
                mapper, score_held_out, refs, lambda ref: Share(store, ref, folds.of(ref.start, ref.stop), scorers)
            )
            for ref, parts in shares:
                for part in parts:
                    first = 0
                    for number in by_fold[part.fold]:
                        width = cells[number].model.n_models
                        scores = np.ascontiguousarray(part.scores[:, first : first + width])
                        first += width
                        tallies[number].add(Scored(ref.start, scores, part.y, part.sample_weight))
                emit(WorkAdvanced("scoring", ref.stop))
        emit(WorkEnded("scoring", time.monotonic() - began))
        found = [tally.result() for tally in tallies]
    for message in dict.fromkeys(message for tally in tallies for message in tally.warnings()):
        emit(Warned(message))
    return found


def _scorer(models: Sequence[Model]) -> Scorer:
    """All models of a fold as one scorer: linear ones are one matrix of weights."""
    linear = [model for model in models if isinstance(model, LinearModel)]
    if len(linear) < len(models):
        return Together(tuple(model.scorer() for model in models))
    W = np.ascontiguousarray(np.vstack([model.coef for model in linear]).T)
    return LinearScorer(W, np.concatenate([model.intercept for model in linear]))


def _stand_in(models: Sequence[Model]) -> Model:
    """A model as wide as all of these, by which reading is planned and compiled code is called."""
    first = models[0]
    if not isinstance(first, LinearModel):
        return first
    each = [model for model in models if isinstance(model, LinearModel)]
    intercept = np.concatenate([model.intercept for model in each])
    coef = np.broadcast_to(np.zeros(1), (len(intercept), first.n_features))
    codes = np.zeros(len(intercept), np.int32)
    return LinearModel(coef, intercept, first.classes, {}, codes, codes - 1)
