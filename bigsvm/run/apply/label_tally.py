"""Evaluation on rows with several labels: metrics of each label, and of all labels together."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.model.linear_model import Model
from bigsvm.run.apply.metrics import macro_mean, make_rankings, measures
from bigsvm.run.apply.scoring import Scored, TextLabels
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.state.score_file import ScoreFile
from bigsvm.store.transforms.label_sets import LabelSets


class LabelTally:
    """Counts scored blocks, and computes metrics; holds about `nbytes` at most, and other scores in `file`.

    Labels that the model does not know make the predicted set of a row wrong (`subset_accuracy`), and count nowhere
    else. Labels of the model that the rows do not know count as absent from every row.

    Raises DataError if the rows have one label each.
    """

    def __init__(self, model: Model, store: RowBlocks | TextLabels, nbytes: int, file: ScoreFile | None = None) -> None:
        sets = LabelSets.of(store.recipe, store.classes)
        if sets is None:
            hint = "name the columns of labels with --labels"
            raise DataError(
                "the model predicts several labels for a row, but these rows have one each", store.uri, hint
            )
        self._names = [str(name) for name in model.classes.tolist()]
        theirs = {str(name): k for k, name in enumerate(sets.names.tolist())}
        self._unknown = [name for name in theirs if name not in self._names]
        self._absent = [name for name in self._names if name not in theirs]
        nothing = np.zeros(sets.member.shape[1], np.uint8)
        self._member = np.stack([sets.member[theirs[n]] if n in theirs else nothing for n in self._names])
        others = [k for name, k in theirs.items() if name not in self._names]
        self._other: np.ndarray = np.asarray(sets.member[others].any(axis=0))
        self._weighted = store.has_weights
        self.rankings, self.nbytes = make_rankings(store.n_samples, model.n_models, nbytes, file, store.has_weights)
        self._counts = np.zeros((3, model.n_models))  # true positives, false positives, false negatives
        self._n_rows, self._weight, self._exact = 0, 0.0, 0.0
        self._without_auc: list[str] = []

    def add(self, scored: Scored) -> None:
        """Count a block of scored rows."""
        scores, y = scored.scores, scored.y.astype(np.int64)
        weights = np.ones(len(y)) if scored.sample_weight is None else scored.sample_weight
        kept = weights > 0
        scores, y, weights = scores[kept], y[kept], weights[kept]
        true, said = self._member.T[y] != 0, scores > 0
        for k, which in enumerate((true & said, ~true & said, true & ~said)):
            self._counts[k] += weights @ which
        right = (true == said).all(axis=1) & ~self._other[y]
        self._n_rows += len(y)
        self._weight += float(weights.sum())
        self._exact += float(weights[right].sum())
        for m, ranking in enumerate(self.rankings):
            ranking.add(scores[:, m], true[:, m], weights if self._weighted else None)

    def result(self) -> dict[str, Any]:
        """All metrics; None for each that the rows do not define.  `micro`: from summed counts; `macro`: means."""
        labels: list[dict[str, Any]] = []
        for name, ranking, found in zip(self._names, self.rankings, self._counts.T, strict=True):
            auc, precision = measures(ranking)
            n_true = float(found[0] + found[2])
            labels.append(
                {"label": name, "n_true": n_true, **_rates(*found), "roc_auc": auc, "average_precision": precision}
            )
        self._without_auc = [str(one["label"]) for one in labels if one["roc_auc"] is None]
        wrong = float(self._counts[1:].sum())
        macro = {name: macro_mean([one[name] for one in labels]) for name in ("precision", "recall", "f1", "roc_auc")}
        return {
            "n_rows": self._n_rows,
            "weighted": self._weighted,
            "classes": self._names,
            "subset_accuracy": self._exact / self._weight if self._weight else None,
            "hamming_loss": wrong / (self._weight * len(labels)) if self._weight else None,
            "micro": _rates(*self._counts.sum(axis=1)),
            "macro": {**macro, "average_precision": macro_mean([one["average_precision"] for one in labels])},
            "binned": self.rankings[0].binned,
            "labels": labels,
        }

    @property
    def ranked(self) -> list[tuple[str, int]]:
        """For each ranking: its label, and the index of that label in `classes` of the result."""
        return [(name, k) for k, name in enumerate(self._names)]

    def warnings(self) -> list[str]:
        """The metrics that the rows do not define, for the user."""
        found = []
        if self._unknown:
            found.append(f"labels that the model does not know count as wrong: {', '.join(self._unknown[:5])}")
        # Of a label that no row has, and of rows with other labels altogether, another warning says enough.
        without = [name for name in self._without_auc if name not in self._absent]
        if without and not (self._unknown and len(self._without_auc) == len(self._names)):
            names = ", ".join(without[:5])
            found.append(f"ROC AUC needs rows with and without a label; left out of its mean: {names}")
        if self._absent:
            found.append(f"labels of the model that no row has: {', '.join(self._absent[:5])}")
        return found


def _rates(true: float, false: float, missed: float) -> dict[str, float]:
    """Precision, recall and F1 from counts; 0 if the denominator is 0."""
    return {
        "precision": float(true / (true + false)) if true + false else 0.0,
        "recall": float(true / (true + missed)) if true + missed else 0.0,
        "f1": float(2 * true / (2 * true + false + missed)) if true + false + missed else 0.0,
    }
