"""Metrics: of classification from counts, of regression from sums, of rankings from scores in bounded memory.

A ranking metric needs, for each distinct score in descending order, the weights of the positive and of the negative
rows with that score.  If all scores fit the budget, they are sorted in memory.  Otherwise they lie on the scratch disk,
and are sorted there; the metric is exact in both cases.  If that disk has no room, scores are counted in bins.  AUC and
average precision are then those of scores that are equal within a bin.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigsvm.store.state.score_file import ScoreFile, SpilledScores, record

MAX_BITS, MIN_BITS = 22, 10
EXACT_ROW_BYTES = 64
"""Bytes for each row of an exact ranking metric: score, sign, weight, their sorted copies and cumulative sums."""

_HELD_ROWS = 1 << 14  # rows of a ranking on disk that are written at a time


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
        # With many labels a block has few distinct pairs, and adding a dense matrix takes longer.  Weights are added
        # row by row, so that their sums depend on no block.
        if weights is not None or n * n > _SPARSE * len(true):
            np.add.at(self.matrix, (true, predicted), 1.0 if weights is None else weights)
            return
        flat = np.bincount(true * n + predicted, minlength=n * n)
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
    """Counts scores in at most 2^(bits - 2) bins, which follow the scores that come.

    The share of a bin in the positive rows and its share in the negative rows add up to about the same in every bin.
    New scores are kept as they are, in as many places again. When these are full, neighbours are added up. Ties are
    added up first, so few distinct scores stay exact. The bins depend on the order of the rows, and on no block.
    """

    binned = True

    def __init__(self, bits: int = MAX_BITS) -> None:
        self._most = 1 << (bits - 2)
        self._scores = np.empty(2 * self._most)
        self._weights = np.empty((2, 2 * self._most))  # of negative and of positive rows
        self._n = 0

    def add(self, scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None) -> None:
        """Add rows: scores (n,), whether positive (n,), weights (n,) or None for ones."""
        ones = np.ones(len(scores)) if weights is None else weights
        done = 0
        while done < len(scores):
            if self._n == len(self._scores):
                self._fewer()
            taken = slice(done, done + min(len(scores) - done, len(self._scores) - self._n))
            done, places = taken.stop, slice(self._n, self._n + taken.stop - taken.start)
            self._scores[places] = scores[taken]
            self._weights[1, places] = np.where(positive[taken], ones[taken], 0.0)
            self._weights[0, places] = np.where(positive[taken], 0.0, ones[taken])
            self._n = places.stop

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """(positive, negative) weights in each bin, scores descending."""
        return self.by_score()[1:]

    def by_score(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(a score of the bin, positive weight, negative weight) of each bin, scores descending."""
        self._sort()
        scores, weights = self._scores[: self._n][::-1], self._weights[:, : self._n][:, ::-1]
        return scores, weights[1], weights[0]

    def _sort(self) -> None:
        """Sort ascending, and add up ties."""
        order = np.argsort(self._scores[: self._n], kind="stable")
        self._scores[: self._n] = self._scores[order]
        for kind in self._weights:
            kind[: self._n] = kind[order]
        scores = self._scores[: self._n]
        first = np.flatnonzero(np.append(True, scores[1:] != scores[:-1])[: self._n])
        self._join(first, first)

    def _fewer(self) -> None:
        """Sort, and make room for as many scores as there may be bins."""
        self._sort()
        if self._n > self._most:
            tiny = np.finfo(float).tiny
            # The few rows of a rare class get as many bins as all others: the metrics depend on both alike.
            weights = sum(kind[: self._n] / max(kind[: self._n].sum(), tiny) for kind in self._weights)
            below = np.cumsum(weights)
            share = (below - 0.5 * weights) / max(below[-1], tiny)
            number = np.minimum((self._most * share).astype(np.int64), self._most - 1)
            first = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
            last = np.append(first[1:], self._n) - 1
            self._join(first, (first + last) // 2)

    def _join(self, first: np.ndarray, named: np.ndarray) -> None:
        """Add up the places from each of `first` to the next one, and give each sum the score at `named`."""
        n = len(first)
        self._scores[:n] = self._scores[named]
        for kind in self._weights:
            kind[:n] = np.add.reduceat(kind[: self._n], first) if n else 0.0
        self._n = n


class SpilledRanking:
    """Keeps every score of one model on the scratch disk, and sorts them there if memory cannot hold them."""

    binned = False

    def __init__(self, scores: SpilledScores) -> None:
        self._scores = scores

    def add(self, scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None) -> None:
        """Add rows: scores (n,), whether positive (n,), weights (n,) or None for ones."""
        self._scores.add(scores, positive, weights)

    def in_memory(self) -> ExactRanking | None:
        """The ranking in memory; None if memory has no room for it."""
        n = len(self._scores)
        if exact_bytes(n, 1) > self._scores.room:
            return None
        found = ExactRanking(n)
        for rows in self._scores.pieces():
            found.add(rows["score"], rows["positive"], _weights_of(rows))
        return found

    def by_score(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(score, positive weight, negative weight), descending.

        If memory cannot hold every distinct score, neighbours are added up, because a curve shows few points.
        """
        whole = self.in_memory()
        if whole is not None:
            return whole.by_score()
        together = -(-len(self._scores) // self._scores.run_rows)
        parts = [
            (score[::together], *(np.add.reduceat(kind, np.arange(0, len(kind), together)) for kind in kinds))
            for score, *kinds in self.groups()
        ]
        score, positive, negative = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return score, positive, negative

    def groups(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(score, positive weight, negative weight) of each distinct score, descending, in pieces."""
        waiting: list[np.ndarray] = []  # the last score of a piece, which the next one may continue
        for rows in self._scores.descending():
            weights = _weights_of(rows)
            ones = np.ones(len(rows)) if weights is None else weights
            sign = rows["positive"]
            columns = [rows["score"], np.where(sign, ones, 0.0), np.where(sign, 0.0, ones)]
            if waiting:
                columns = [np.concatenate(pair) for pair in zip(waiting, columns, strict=True)]
            first = np.flatnonzero(np.append(True, columns[0][1:] != columns[0][:-1]))
            score, positive, negative = columns[0][first], *(np.add.reduceat(kind, first) for kind in columns[1:])
            yield score[:-1], positive[:-1], negative[:-1]
            waiting = [score[-1:], positive[-1:], negative[-1:]]
        if waiting:
            yield waiting[0], waiting[1], waiting[2]


def _weights_of(rows: np.ndarray) -> np.ndarray | None:
    return rows["weight"] if rows.dtype.names is not None and "weight" in rows.dtype.names else None


Ranking = ExactRanking | SpilledRanking | BinnedRanking


def exact_bytes(n_samples: int, n_models: int) -> int:
    """Bytes of exact rankings; only one model's scores are sorted at a time."""
    return n_samples * (EXACT_ROW_BYTES + 17 * (n_models - 1))


def binned_bytes(bits: int, n_models: int) -> int:
    """Bytes of binned rankings: three float64 for each place, and temporary copies for one model at a time."""
    return (n_models + 2) * (16 << bits)


def least_of_rankings(n_samples: int, n_models: int) -> int:
    """Bytes that `make_rankings` takes at least."""
    return min(exact_bytes(n_samples, n_models), binned_bytes(MIN_BITS, n_models))


def make_rankings(
    n_samples: int, n_models: int, nbytes: int, file: ScoreFile | None = None, weighted: bool = True
) -> tuple[list[Ranking], int]:
    """(a ranking for each model, their bytes of memory).

    They are exact in memory if `nbytes` allow, or if bins would save nothing; else exact on disk, if `file` has room
    for them; else binned.
    """
    exact, least = exact_bytes(n_samples, n_models), least_of_rankings(n_samples, n_models)
    if exact <= max(nbytes, least):
        return [ExactRanking(n_samples) for _ in range(n_models)], exact
    if file is not None:
        a_row = n_models * record(weighted).itemsize
        held = max(1, min(n_samples, _HELD_ROWS, max(nbytes, least) // a_row))
        spilled = [file.take(n_samples, weighted, held) for _ in range(n_models)]
        if all(scores is not None for scores in spilled):
            return [SpilledRanking(scores) for scores in spilled if scores is not None], held * a_row
    bits = MAX_BITS
    while bits > MIN_BITS and binned_bytes(bits, n_models) > nbytes:
        bits -= 1
    return [BinnedRanking(bits) for _ in range(n_models)], binned_bytes(bits, n_models)


def measures(ranking: Ranking) -> tuple[float | None, float | None]:
    """(ROC AUC, average precision) of a ranking."""
    if isinstance(ranking, SpilledRanking):
        whole = ranking.in_memory()
        if whole is None:
            return _measures_of(ranking.groups())
        ranking = whole
    counts = ranking.counts()
    return roc_auc(*counts), average_precision(*counts)


def _measures_of(
    groups: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> tuple[float | None, float | None]:
    """(ROC AUC, average precision) from the pieces of `SpilledRanking.groups`."""
    hits = false = pairs = area = 0.0
    for _, positive, negative in groups:
        above = hits + np.cumsum(positive)
        pairs += float(np.dot(negative, above - 0.5 * positive))
        chosen = above + (false + np.cumsum(negative))
        area += float(np.dot(np.divide(above, chosen, out=np.zeros(len(above)), where=chosen > 0), positive))
        hits, false = hits + float(positive.sum()), false + float(negative.sum())
    return (
        pairs / (hits * false) if hits > 0 and false > 0 else None,
        area / hits if hits > 0 else None,
    )


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


def macro_mean(values: list[float | None]) -> float | None:
    """The mean of a metric over the classes that have one; None if none has."""
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None
