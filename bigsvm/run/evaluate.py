"""How well a model does on a store, in one streamed pass."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import Emit, Warned, silent
from bigsvm.problem.model import LinearModel
from bigsvm.run.mapper import open_mapper
from bigsvm.run.memory import PeakMemory
from bigsvm.run.metrics import Confusion, average_precision, make_rankings, roc_auc
from bigsvm.run.predict import memory_document
from bigsvm.run.scoring import Scored, budget_of, plan_reading, score_store, warm_up
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
    warm_up(store.layout, store.dtype, store.index_dtype, model.n_models)
    with PeakMemory() as memory:
        tally = Tally(model, store, budget.limit // 4)
        with budget.reserve("scores", tally.nbytes):
            reading = plan_reading(store, model.n_models, budget, config)
            with open_mapper(dataclasses.replace(config, threads=reading.threads)) as mapper:
                for scored in score_store(store, model, mapper, reading.block_rows, emit, "evaluating"):
                    tally.add(scored)
            result = tally.result()
    if tally.without_auc:
        names = ", ".join(tally.without_auc[:5])
        emit(Warned(f"ROC AUC needs rows inside and outside of each class; left out: {names}"))
    if tally.strangers:
        names = ", ".join(tally.strangers[:5])
        emit(Warned(f"labels that the model does not know count as wrong: {names}"))
    return {
        "n_samples": store.n_samples,
        **result,
        "seconds": {"total": time.monotonic() - began},
        "memory": memory_document(memory, budget),
    }


class Tally:
    """Takes scored blocks in, gives metrics out; holds at most about `nbytes`.

    without_auc : classes that have no AUC, after `result`
    strangers : labels of the data that the model does not know
    """

    def __init__(self, model: LinearModel, store: RowBlocks, nbytes: int) -> None:
        assert store.classes is not None
        self._model, self._weighted = model, store.has_weights
        self._labels, self._ours, self._theirs = join_labels(model.classes, store.classes)
        self._confusion = Confusion(len(self._labels))
        self._rankings, self.nbytes = make_rankings(store.n_samples, model.n_models, nbytes)
        # With two classes there is one model, and the last class is its positive one.
        self._positive = self._ours[1:] if model.n_models == 1 else self._ours
        self._n_rows = 0
        self.without_auc: list[str] = []
        known = set(self._ours.tolist())
        self.strangers = [str(label) for i, label in enumerate(self._labels) if i not in known]

    def add(self, scored: Scored) -> None:
        """Count a block."""
        scores, weights = scored.scores, scored.sample_weight
        true = self._theirs[scored.y.astype(np.int64)]
        if weights is not None and not weights.all():
            kept = weights > 0
            scores, weights, true = scores[kept], weights[kept], true[kept]
        self._n_rows += len(true)
        self._confusion.add(true, self._ours[self._model.codes(scores)], weights)
        for m, ranking in enumerate(self._rankings):
            ranking.add(scores[:, m], true == self._positive[m], weights)

    def result(self) -> dict[str, Any]:
        """All metrics; None where the rows cannot give one."""
        aucs, precisions = [], []
        for ranking in self._rankings:
            counts = ranking.counts()
            aucs.append(roc_auc(*counts))
            precisions.append(average_precision(*counts))
        names = self._labels[self._positive]
        self.without_auc = [str(name) for name, auc in zip(names, aucs, strict=True) if auc is None]
        confusion, binary = self._confusion, self._model.n_models == 1
        f1 = confusion.f1()
        matrix = confusion.matrix if self._weighted else confusion.matrix.astype(np.int64)
        return {
            "n_rows": self._n_rows,
            "weighted": self._weighted,
            "classes": self._labels.tolist(),
            "accuracy": confusion.accuracy(),
            "balanced_accuracy": confusion.balanced_accuracy(),
            "f1": float(f1[self._positive[0]]) if binary else float(f1[confusion.seen()].mean()),
            "roc_auc": _mean(aucs),
            "average_precision": _mean(precisions),
            "average": "binary" if binary else "macro",
            "binned": self._rankings[0].binned,
            "confusion_matrix": matrix.tolist(),
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
