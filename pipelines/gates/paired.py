"""Comparison of a candidate with the current model on each row of the holdout, in one streamed pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from bigsvm.budget import MemoryBudget
from bigsvm.run.apply.evaluate import join_labels
from bigsvm.run.apply.scoring import score_rows
from bigsvm.store.blocks import RowBlocks, blocks_of, row_bytes
from pipelines.gates.profile import counts

_BLOCK = 4 << 20  # bytes
_BINS = 10  # bins of a probability, of equal width


@dataclass
class Paired:
    """The results of two models on the same rows; rows of weight 0 are left out, all others count equally.

    changed : rows that get another label from the candidate
    won, lost : rows that only the candidate gets right, and that only the current model gets right
    mean, scatter : current minus candidate squared error: mean, and sum of squared deviations from it
    scores : int64, (n_models, bins), of the candidate, as from `profile.counts`
    surest : float64, (3, 10): number of rows, sum of probabilities, number of right labels, by probability of the label
    """

    n_rows: int = 0
    changed: int = 0
    won: int = 0
    lost: int = 0
    mean: float = 0.0
    scatter: float = 0.0
    scores: Any = None
    regression: bool = False
    surest: np.ndarray | None = None

    @property
    def calibration_error(self) -> float | None:
        """Mean |probability of the given label - frequency of its being right|; None without probabilities."""
        if self.surest is None or self.n_rows == 0:
            return None
        return float(np.abs(self.surest[1] - self.surest[2]).sum() / self.n_rows)

    def add_probabilities(self, given: np.ndarray, right: np.ndarray) -> None:
        """Add a block: probabilities (n,) of the candidate's labels, and whether they are right."""
        if self.surest is None:
            self.surest = np.zeros((3, _BINS))
        bins = np.minimum((given * _BINS).astype(np.int64), _BINS - 1)
        for sums, values in zip(self.surest, (np.ones(len(given)), given, right), strict=True):
            sums += np.bincount(bins, values, _BINS)

    @property
    def churn(self) -> float:
        """Share of rows with another label."""
        return self.changed / max(self.n_rows, 1)

    def chance(self, better: bool) -> float:
        """One-sided p: probability that chance alone makes the candidate look this much better (or worse)."""
        if not self.regression:
            tried, seen = self.won + self.lost, self.won if better else self.lost
            return 1.0 if seen == 0 else float(special.bdtrc(seen - 1, tried, 0.5))
        if self.n_rows < 2:
            return 1.0
        error = math.sqrt(self.scatter / (self.n_rows - 1) / self.n_rows)
        if error == 0.0:
            return 0.0 if (self.mean > 0) == better and self.mean != 0 else 1.0
        t = self.mean / error
        return float(special.stdtr(self.n_rows - 1, -t if better else t))

    def add_gains(self, gains: np.ndarray) -> None:
        """Add the differences of squared errors of a block (Chan's update)."""
        n = len(gains)
        if not n:
            return
        mean, total = float(gains.mean()), self.n_rows + n
        away = mean - self.mean
        self.scatter += float(((gains - mean) ** 2).sum()) + away * away * self.n_rows * n / total
        self.mean += away * n / total


def compare(
    model: Any, current: Any | None, holdout: RowBlocks, budget: MemoryBudget, same_rows: RowBlocks | None = None
) -> Paired:
    """Score the holdout with both models, or with the candidate alone.  Raises DataError, BudgetExceeded.

    same_rows : the rows as the current model reads them, if its features have another order; None: the same rows
    """
    found = Paired(regression=model.regression)
    both = [model] if current is None else [model, current]
    scorers = [one.scorer() for one in both]
    stores = [holdout] if same_rows is None else [holdout, same_rows]
    a_row = int(sum(map(row_bytes, stores))) + 24 * sum(one.n_models + one.pairs * len(one.classes) for one in both)
    held = sum(one.scoring_bytes for one in both) + int(1.5 * sum(store.chunk_nbytes for store in stores))
    held += model.n_models * 8 * 4096
    with budget.reserve("rows of the holdout", held + 3 * a_row):
        pass
    rows = int(max(1, min(holdout.n_samples, _BLOCK // a_row, (budget.free - held) // (3 * a_row))))
    classes = holdout.classes
    true_labels = None if classes is None else [join_labels(one.classes, classes) for one in both]
    histograms = np.zeros((model.n_models, len(counts(np.zeros(0)))), np.int64)
    for block, *others in zip(*(blocks_of(store, store.refs(rows)) for store in stores), strict=True):
        same = others[0] if others else block
        kept = slice(None) if block.sample_weight is None else block.sample_weight > 0
        scores = [
            score_rows(X, scorer, holdout.uri, block.start)[kept]
            for X, scorer in zip((block.X, same.X), scorers, strict=False)
        ]
        y = block.y[kept]
        for m in range(model.n_models):
            histograms[m] += counts(scores[0][:, m])
        if "calibration" in model.about and true_labels is not None:
            ours, theirs = true_labels[0][1:]
            given = model.codes(scores[0])
            sure = model.probabilities_of(scores[0])[np.arange(len(given)), given]
            found.add_probabilities(sure, ours[given] == theirs[y.astype(np.int64)])
        if current is not None and model.regression:
            errors = [(one[:, 0] - y) ** 2 for one in scores]
            found.add_gains(errors[1] - errors[0])
        elif current is not None:
            assert true_labels is not None
            said = [one.classes[one.codes(score)] for one, score in zip(both, scores, strict=True)]
            right = [
                ours[one.codes(score)] == theirs[y.astype(np.int64)]
                for one, score, (_, ours, theirs) in zip(both, scores, true_labels, strict=True)
            ]
            found.changed += int(np.count_nonzero(said[0] != said[1]))
            found.won += int(np.count_nonzero(right[0] & ~right[1]))
            found.lost += int(np.count_nonzero(~right[0] & right[1]))
        found.n_rows += len(y)
    found.scores = histograms
    return found
