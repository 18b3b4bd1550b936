"""How well a model does on a store, in one streamed pass."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import Emit, Warned, silent
from bigsvm.problem.model import LinearModel
from bigsvm.run.mapper import open_mapper
from bigsvm.run.memory import PeakMemory
from bigsvm.run.metrics import Confusion, average_precision, make_ranking, roc_auc
from bigsvm.run.predict import memory_document
from bigsvm.run.scoring import block_rows_for, budget_of, score_store, warm_up
from bigsvm.store.blocks import RowBlocks


def evaluate(model: LinearModel, store: RowBlocks, config: FitConfig, emit: Emit = silent) -> dict[str, Any]:
    """Accuracy, balanced accuracy, F1, ROC AUC, average precision and the confusion matrix.

    Two classes: F1, AUC and average precision of the positive class.  More: their means over the classes,
    each against the rest.  Weights of the store, if it has them, weigh the rows; weight 0 takes a row out.
    Labels that the model does not know count as wrong.

    Parameters
    ----------
    config : of it memory, threads, scheduler and workers count

    Returns the JSON result; a metric that the rows cannot give (one class only) is None, with a warning.

    Raises
    ------
    DataError : the store has a regression target, or rows with more features than the model.
    BudgetExceeded : the memory budget is too small.
    """
    if store.classes is None:
        raise DataError("the store holds a regression target and the model classes", store.uri)
    began = time.monotonic()
    budget = budget_of(config)
    labels, model_numbers, store_numbers = join_labels(model.classes, store.classes)
    warm_up(store.layout, store.dtype, store.index_dtype, model.n_models)
    confusion = Confusion(len(labels))
    n_rows = 0
    with PeakMemory() as memory, open_mapper(config) as mapper:
        rankings = make_ranking(store.n_samples, model.n_models, budget.limit // 2)
        half = FitConfig.of(memory=budget.limit // 2, threads=config.threads)
        block_rows = block_rows_for(store, model.n_models, budget_of(half), config)
        for scored in score_store(store, model, mapper, block_rows, emit, "evaluating"):
            scores, weights = scored.scores, scored.sample_weight
            true = store_numbers[scored.y.astype(np.int64)]
            if weights is not None and not weights.all():
                kept = weights > 0
                scores, weights, true = scores[kept], weights[kept], true[kept]
            n_rows += len(true)
            confusion.add(true, model_numbers[model.codes(scores)], weights)
            for m, ranking in enumerate(rankings):
                ranking.add(scores[:, m], true == model_numbers[m if model.n_models > 1 else 1], weights)
        pairs = [ranking.counts() for ranking in rankings]
        aucs = [roc_auc(*pair) for pair in pairs]
        precisions = [average_precision(*pair) for pair in pairs]
    binary = model.n_models == 1
    f1 = confusion.f1()
    missing = [str(model.classes[m if not binary else 1]) for m, auc in enumerate(aucs) if auc is None]
    if missing:
        emit(Warned(f"ROC AUC needs rows inside and outside of each class; left out: {', '.join(missing[:5])}"))
    strangers = [str(label) for label in labels if label not in model.classes]
    if strangers:
        emit(Warned(f"labels that the model does not know count as wrong: {', '.join(strangers[:5])}"))
    return {
        "n_samples": store.n_samples,
        "n_rows": n_rows,
        "weighted": store.has_weights,
        "classes": labels.tolist(),
        "accuracy": confusion.accuracy(),
        "balanced_accuracy": confusion.balanced_accuracy(),
        "f1": float(f1[model_numbers[1]]) if binary else float(f1[confusion.seen()].mean()),
        "roc_auc": _mean(aucs),
        "average_precision": _mean(precisions),
        "average": "binary" if binary else "macro",
        "binned": rankings[0].binned,
        "confusion_matrix": _whole(confusion.matrix) if not store.has_weights else confusion.matrix.tolist(),
        "seconds": {"total": time.monotonic() - began},
        "memory": memory_document(memory, budget),
    }


def join_labels(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(all labels ascending, number of each of `ours` among them, number of each of `theirs`).

    Numbers are compared as numbers; numbers and strings together are compared as text.
    """
    if (ours.dtype.kind in "biuf") != (theirs.dtype.kind in "biuf"):
        ours, theirs = ours.astype(str), theirs.astype(str)
    labels = np.union1d(ours, theirs)
    return labels, np.searchsorted(labels, ours), np.searchsorted(labels, theirs)


def _mean(values: list[float | None]) -> float | None:
    """Mean of those that exist."""
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _whole(matrix: np.ndarray) -> list[list[int]]:
    return [[int(value) for value in row] for row in matrix]
