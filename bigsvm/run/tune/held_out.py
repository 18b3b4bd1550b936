"""Scores of held-out rows: the rows are read once for all models, and a row is scored by models trained without it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.model.linear_model import LinearModel, LinearScorer, Model
from bigsvm.run.apply.calibrate import Held, curves_of, held_bytes, held_share
from bigsvm.run.apply.evaluate import Residuals, Tally, binned_warning, score_file
from bigsvm.run.apply.metrics import exact_bytes
from bigsvm.run.apply.scoring import (
    Scored,
    Scorer,
    TextLabels,
    budget_of,
    least_of_rows,
    plan_reading,
    precompile_scoring_of,
    score_rows,
)
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.tune.folds import Folds
from bigsvm.run.tune.train import Cell
from bigsvm.solvers.gathered import picked_rows
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks
from bigsvm.store.delegated import check_unchanged
from bigsvm.store.state.score_file import ScoreFile
from bigsvm.store.transforms.withheld import HashedShare
from bigsvm.tasks import over_shares

METRICS = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision")
METRICS_OF_TARGETS = ("r2", "mse", "mae")
LESS_IS_BETTER = ("mse", "mae")
_SHARE = 3  # 1 / the part of the budget that metrics may use for scores


class Together(NamedTuple):
    """Several models that score the same rows; their scores are concatenated."""

    scorers: tuple[Scorer, ...]

    @property
    def n_features(self) -> int:
        return self.scorers[0].n_features

    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of all models, float64, (n_rows, total number of models)."""
        return np.hstack([scorer.scores(X) for scorer in self.scorers])


class Share(NamedTuple):
    """The input of a task: a block, the fold of each row, and a scorer for each fold."""

    data: RowBlocks
    ref: BlockRef
    fold: np.ndarray
    scorers: tuple[Scorer, ...]


class HeldOut(NamedTuple):
    """The rows of a block that belong to one fold, with the scores of all models that were trained without it."""

    fold: int
    scores: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None


def score_held_out(share: Share) -> list[HeldOut]:
    """Task: score the rows of a block, fold by fold.  A pure function."""
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
    """The metrics of each cell on the rows of its fold, as `evaluate` computes them.  The rows are read once.

    Scores that do not fit the budget lie in the scratch folder.  If that folder has no room, they are binned, with a
    warning.

    Raises DataError for bad rows; BudgetExceeded if neither the scores nor binned counts of them fit the budget.
    """
    budget = budget_of(config)
    sizes = folds.sizes(store.n_samples)
    weights = weights_held(cells)
    spare = budget.limit - weights - least_of_rows(store, sum(cell.model.n_models for cell in cells))
    each = max(0, min(budget.limit // _SHARE, spare)) // len(cells)

    def tallies_with(file: ScoreFile | None) -> list[Tally | Residuals]:
        found: list[Tally | Residuals] = []
        for cell in cells:
            rows = TextLabels(store.uri, store.classes, int(sizes[cell.fold]), store.has_weights)
            found.append(Residuals(rows) if cell.model.regression else Tally(cell.model, rows, each, file))
        return found

    # When scores are sorted, no block is in memory any more.
    file = score_file(config, min(budget.limit // _SHARE, budget.limit - weights - each * len(cells)))
    tallies = tallies_with(file)
    binned = any(tally.rankings[0].binned for tally in tallies if isinstance(tally, Tally))
    if binned and file is not None:  # binned and exact metrics of different candidates must not be compared
        file.close()
        tallies = tallies_with(None)
    with budget.reserve("scores", sum(tally.nbytes for tally in tallies)):
        for start, number, part in _scored(store, cells, folds, config, budget, emit, "scoring"):
            tallies[number].add(Scored(start, part.scores, part.y, part.sample_weight))
        found = [tally.result() for tally in tallies]
    messages = [message for tally in tallies for message in tally.warnings()]
    if binned:
        n_rankings = max(len(tally.rankings) for tally in tallies if isinstance(tally, Tally))
        exact = exact_bytes(int(sizes.max()), n_rankings) * len(cells)
        messages.append(binned_warning(config, max(_SHARE * exact, budget.limit - spare + exact)))
    for message in dict.fromkeys(messages):
        emit(Warned(message))
    return found


def calibrated_by_folds(
    store: RowBlocks, cells: Sequence[Cell], folds: Folds, config: FitConfig, emit: Emit
) -> dict[str, Any]:
    """A calibration from held-out scores: each row is scored by the model that was trained without its fold.

    cells : one for each fold

    All rows are used, or, if their scores do not fit half of the budget, a share of them drawn by a hash of their
    numbers. Raises DataError if a class has no row.
    """
    assert store.classes is not None
    budget, model = budget_of(config), cells[0].model
    beside = least_of_rows(store, model.n_models) + weights_held(cells)
    share = held_share(1.0, store.n_samples, model, budget, beside, emit)
    which = HashedShare(share, config.seed)
    parts = []
    with budget.reserve("held-out scores", held_bytes(share, store.n_samples, model)):
        for _, number, part in _scored(store, cells, folds, config, budget, emit, "calibrating", which):
            scores = cells[number].model.class_scores(part.scores)
            parts.append(Held(scores, part.y, part.sample_weight))
        curves = curves_of(config.calibrate or "", store.classes, parts)
    rows = {**folds.document(), "n_rows": sum(len(part.y) for part in parts)}
    return {"method": config.calibrate, "curves": curves, "folds": rows}


def _scored(
    store: RowBlocks, cells: Sequence[Cell], folds: Folds, config: FitConfig, budget: MemoryBudget, emit: Emit,
    what: str, which: HashedShare | None = None,
) -> Iterator[tuple[int, int, HeldOut]]:  # fmt: skip
    """(first row of the block, number of a cell, its held-out rows), in one pass and in the order of the blocks.

    which : use only these of the held-out rows; None: all
    """
    by_fold, stand_in = _by_fold(cells, folds)
    precompile_scoring_of(store, stand_in, emit)
    scorers = tuple(_scorer([cells[number].model for number in numbers]) for numbers in by_fold)
    began = time.monotonic()
    emit(WorkStarted(what, store.n_samples, "rows"))

    def share(ref: BlockRef) -> Share:
        fold = folds.of(ref.start, ref.stop).astype(np.int16)
        if which is not None:
            fold[~which.withheld(ref.start, ref.stop)] = -1
        return Share(store, ref, fold, scorers)

    with ExitStack() as held:
        held.enter_context(budget.reserve("weights of the models", weights_held(cells)))
        reading = plan_reading(store, stand_in, budget, config)
        mapper = held.enter_context(open_mapper(dataclasses.replace(config, threads=reading.threads)))
        for ref, parts in over_shares(mapper, score_held_out, store.refs(reading.block_rows), share):
            for part in parts:
                first = 0
                for number in by_fold[part.fold]:
                    width = cells[number].model.n_models
                    scores = np.ascontiguousarray(part.scores[:, first : first + width])
                    first += width
                    yield ref.start, number, part._replace(scores=scores)
            emit(WorkAdvanced(what, ref.stop))
    check_unchanged(store)
    emit(WorkEnded(what, time.monotonic() - began))


def load_scoring(store: RowBlocks, cells: Sequence[Cell], folds: Folds, emit: Emit) -> None:
    """Compile, or load, what scoring calls, before its memory is measured."""
    precompile_scoring_of(store, _by_fold(cells, folds)[1], emit)


def _by_fold(cells: Sequence[Cell], folds: Folds) -> tuple[list[list[int]], Model]:
    """The indices of the cells of each fold, and a model as wide as all models of a fold."""
    by_fold = [[number for number, cell in enumerate(cells) if cell.fold == fold] for fold in range(folds.n_folds)]
    return by_fold, _stand_in([cells[number].model for number in max(by_fold, key=len)])


def weights_held(cells: Sequence[Cell]) -> int:
    """Bytes of the weights of all linear models, and of the scorers made from them."""
    return sum(2 * cell.model.coef.nbytes for cell in cells if isinstance(cell.model, LinearModel))


def _scorer(models: Sequence[Model]) -> Scorer:
    """One scorer for all models of a fold; linear models become a single matrix of weights."""
    linear = [model for model in models if isinstance(model, LinearModel)]
    if len(linear) < len(models):
        return Together(tuple(model.scorer() for model in models))
    W = np.ascontiguousarray(np.vstack([model.coef for model in linear]).T)
    intercept = np.concatenate([model.intercept for model in linear])
    return LinearScorer(W, intercept, np.concatenate([model.intercept_of_sparse() for model in linear]))


def _stand_in(models: Sequence[Model]) -> Model:
    """A model with the total width of these models, for planning the reading and for compilation."""
    first = models[0]
    if not isinstance(first, LinearModel):
        return first
    each = [model for model in models if isinstance(model, LinearModel)]
    intercept = np.concatenate([model.intercept for model in each])
    coef = np.broadcast_to(np.zeros(1), (len(intercept), first.n_features))
    codes = np.zeros(len(intercept), np.int32)
    return LinearModel(coef, intercept, first.classes, {}, codes, codes - 1)
