"""Metrics: of classification from counts, of regression from sums, of rankings from scores in bounded memory.

A ranking metric needs, for each distinct score in descending order, the weights of the positive and of the negative
rows with that score.  If all scores fit the budget, they are sorted, and the metric is exact.  Otherwise scores are
counted in bins, by the leading bits of float32, which preserve the order.  AUC and average precision are then those of
the rounded scores.
"""

from __future__ import annotations

import numpy as np

MAX_BITS, MIN_BITS = 22, 10
EXACT_ROW_BYTES = 64
"""Bytes for each row of an exact ranking metric: score, sign, weight, their sorted copies and cumulative sums."""


_SPARSE = 64


class Confusion:
    """A confusion matrix, weighted: true label x predicted label.

    n_labels : number of labels of the model and the data together
    """

    def __init__(self, n_labels: int) -> None:
        self.matrix = np.zeros((n_labels, n_labels))

    def add(self, true: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None) -> None:
        """Count rows: label indices (n,), weights (n,) or None for ones."""
        n = len(self.matrix)
        if n * n > _SPARSE * len(
            true
        ):  # with many labels a block has few distinct pairs, and adding a dense matrix takes longer
            np.add.at(self.matrix, (true, predicted), 1.0 if weights is None else weights)
            return
        flat = np.bincount(true * n + predicted, weights=weights, minlength=n * n)
        self.matrix += flat.reshape(n, n)

    def accuracy(self) -> float | None:
        """Weighted share of rows whose label is predicted right; None without rows."""
        total = self.matrix.sum()
        return float(np.trace(self.matrix) / total) if total > 0 else None

    def balanced_accuracy(self) -> float | None:
        """Mean recall over the labels that occur; None without rows."""
        rows = self.matrix.sum(axis=1)
        there = rows > 0
        return float(np.mean(np.diag(self.matrix)[there] / rows[there])) if there.any() else None

    def f1(self) -> np.ndarray:
        """F1 of each label; 0 if it neither occurs nor is predicted."""
        both = self.matrix.sum(axis=0) + self.matrix.sum(axis=1)
        return np.divide(2 * np.diag(self.matrix), both, out=np.zeros(len(both)), where=both > 0)

    def seen(self) -> np.ndarray:
        """Whether each label occurs or is predicted."""
        return (self.matrix.sum(axis=0) + self.matrix.sum(axis=1)) > 0


class Errors:
    """Sums of the residuals of a regression; the variance of the targets by Chan, Golub and LeVeque (1983)."""

    def __init__(self) -> None:
        self._weight = self._squares = self._absolute = self._mean = self._spread = 0.0

    def add(self, target: np.ndarray, value: np.ndarray, weights: np.ndarray) -> None:
        """Add rows: targets, values and weights > 0, each (n,)."""
        weight = float(weights.sum())
        if not weight > 0:
            return
        residual = target - value
        self._squares += float(np.dot(weights, residual * residual))
        self._absolute += float(np.dot(weights, np.abs(residual)))
        mean = float(np.dot(weights, target)) / weight
        apart, total = mean - self._mean, self._weight + weight
        self._spread += float(np.dot(weights, (target - mean) ** 2)) + apart**2 * self._weight * weight / total
        self._mean += apart * weight / total
        self._weight = total

    def mse(self) -> float | None:
        """Mean squared error; None without rows, or if it is not finite."""
        return _mean_of(self._squares, self._weight)

    def mae(self) -> float | None:
        """Mean absolute error; None without rows, or if it is not finite."""
        return _mean_of(self._absolute, self._weight)

    def r2(self) -> float | None:
        """1 - squared errors / squared deviations of the targets; for equal targets 1 without errors, else 0."""
        if self._weight == 0.0 or not np.isfinite(self._squares):
            return None
        if self._spread == 0.0:
            return float(self._squares == 0.0)
        return 1.0 - self._squares / self._spread


def _mean_of(total: float, weight: float) -> float | None:
    return total / weight if weight > 0 and np.isfinite(total) else None


class ExactRanking:
    """Keeps every score of one model, and sorts them at the end."""

    binned = False

    def __init__(self, n_samples: int) -> None:
        self._scores = np.empty(n_samples)
        self._positive = np.empty(n_samples, bool)
        self._weights: np.ndarray | None = None
        self._n = 0

    def add(self, scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None) -> None:
        """Add rows: scores (n,), whether positive (n,), weights (n,) or None for ones."""
        rows = slice(self._n, self._n + len(scores))
        self._scores[rows], self._positive[rows] = scores, positive
        if weights is not None:
            if self._weights is None:
                self._weights = np.ones(len(self._scores))
            self._weights[rows] = weights
        self._n = rows.stop

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """(positive, negative) weights at each distinct score, scores descending."""
        positive, negative = self._sums()[2:]
        return np.diff(positive, prepend=0.0), np.diff(negative, prepend=0.0)

    def by_score(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(score, positive weight, negative weight) of each distinct score, descending."""
        scores, last, positive, negative = self._sums()
        return scores[last], np.diff(positive, prepend=0.0), np.diff(negative, prepend=0.0)

    def _sums(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(scores, descending; end of each run of equal scores; cumulative positive and negative weights there)."""
        scores = self._scores[: self._n]
        order = np.argsort(scores)[::-1]
        scores = scores[order]
        last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True)) if self._n else np.zeros(0, np.int64)
        sign = self._positive[: self._n][order]
        weights = np.ones(self._n) if self._weights is None else self._weights[: self._n][order]
        positive = np.cumsum(np.where(sign, weights, 0.0))[last]
        negative = np.cumsum(np.where(sign, 0.0, weights))[last]
        return scores, last, positive, negative


class BinnedRanking:
    """Counts scores in bins, by the leading `bits` bits of float32."""

    binned = True

    def __init__(self, bits: int = MAX_BITS) -> None:
        self._shift = np.uint32(32 - bits)
        self._bins = np.zeros((2, 1 << bits))

    def add(self, scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None) -> None:
        """Add rows: scores (n,), whether positive (n,), weights (n,) or None for ones."""
        bins = ordered_bits(scores) >> self._shift
        ones = np.ones(len(scores)) if weights is None else weights
        np.add.at(self._bins, (positive.astype(np.intp), bins), ones)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """(positive, negative) weights in each bin, scores descending."""
        return self._bins[1, ::-1], self._bins[0, ::-1]

    def by_score(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(score in the bin nearest to 0, positive weight, negative weight) of non-empty bins, scores descending."""
        there = np.flatnonzero(self._bins.any(axis=0))[::-1]
        return scores_of_bits(there.astype(np.uint32) << self._shift), self._bins[1, there], self._bins[0, there]


Ranking = ExactRanking | BinnedRanking


def ordered_bits(scores: np.ndarray) -> np.ndarray:
    """uint32 in the same order as the float32 of the scores: the sign bit is flipped, for negatives all bits."""
    with np.errstate(over="ignore"):
        bits = (scores.astype(np.float32) + np.float32(0.0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def scores_of_bits(bits: np.ndarray) -> np.ndarray:
    """The inverse of `ordered_bits`: float32 scores, as float64, from uint32."""
    plain = np.where(bits >> 31, bits & np.uint32((1 << 31) - 1), ~bits)
    return plain.view(np.float32).astype(np.float64)


def exact_bytes(n_samples: int, n_models: int) -> int:
    """Bytes of exact rankings; only one model's scores are sorted at a time."""
    return n_samples * (EXACT_ROW_BYTES + 17 * (n_models - 1))


def binned_bytes(bits: int, n_models: int) -> int:
    """Bytes of binned rankings: two float64 for each bin, and cumulative sums for one model at a time."""
    return (n_models + 2) * (16 << bits)


def least_of_rankings(n_samples: int, n_models: int) -> int:
    """Bytes that `make_rankings` takes at least."""
    return min(exact_bytes(n_samples, n_models), binned_bytes(MIN_BITS, n_models))


def make_rankings(n_samples: int, n_models: int, nbytes: int) -> tuple[list[Ranking], int]:
    """(a ranking for each model, their bytes): exact if `nbytes` allow, or if bins would save nothing, else binned."""
    exact = exact_bytes(n_samples, n_models)
    if exact <= max(nbytes, least_of_rankings(n_samples, n_models)):
        return [ExactRanking(n_samples) for _ in range(n_models)], exact
    bits = MAX_BITS
    while bits > MIN_BITS and binned_bytes(bits, n_models) > nbytes:
        bits -= 1
    return [BinnedRanking(bits) for _ in range(n_models)], binned_bytes(bits, n_models)


def roc_auc(positive: np.ndarray, negative: np.ndarray) -> float | None:
    """Area under the ROC curve, from weights by descending score; ties count half.  None if there is only one kind."""
    n_positive, n_negative = positive.sum(), negative.sum()
    if not (n_positive > 0 and n_negative > 0):
        return None
    below = n_negative - np.cumsum(negative)
    return float(np.dot(positive, below + 0.5 * negative) / (n_positive * n_negative))


def average_precision(positive: np.ndarray, negative: np.ndarray) -> float | None:
    """Sum over distinct scores of precision times the step in recall.  None without positive rows."""
    total = positive.sum()
    if not total > 0:
        return None
    hits = np.cumsum(positive)
    chosen = hits + np.cumsum(negative)
    precision = np.divide(hits, chosen, out=np.zeros(len(hits)), where=chosen > 0)
    return float(np.dot(precision, positive) / total)
