"""Data of charts from ranked rows: ROC, precision and recall, histograms of scores, share of positive rows.

Everything is computed from weights by descending score, as rankings give them (`bigsvm/run/apply/metrics.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

POINTS = 250
"""Limit of the points of a curve; a page cannot show more."""
BINS = 40


class ByScore(NamedTuple):
    """Weights of positive and of negative rows, float64 (n,), at descending scores (n,)."""

    scores: np.ndarray
    positive: np.ndarray
    negative: np.ndarray


def roc(ranked: ByScore) -> tuple[list[float], list[float]]:
    """(false positive rate, true positive rate) from the highest score to the lowest, (0, 0) first."""
    hits, false = np.cumsum(ranked.positive), np.cumsum(ranked.negative)
    return _fewer(np.append(0.0, false / false[-1]), np.append(0.0, hits / hits[-1]))


def precision_recall(ranked: ByScore) -> tuple[list[float], list[float]]:
    """(recall, precision) from the highest score to the lowest."""
    hits, false = np.cumsum(ranked.positive), np.cumsum(ranked.negative)
    chosen = hits + false
    precision = np.divide(hits, chosen, out=np.ones(len(hits)), where=chosen > 0)
    return _fewer(hits / hits[-1], precision)


def histograms(ranked: ByScore) -> tuple[list[float], list[float], list[float]]:
    """(edges of bins, share of positive rows in each, share of negative rows in each).

    Bins have equal width, from the 0.5 % quantile to the 99.5 % quantile of all scores; the first and the last bin
    include the scores beyond.
    """
    scores, weights = ranked.scores, ranked.positive + ranked.negative
    low, high = _quantiles(scores, weights, np.array([0.005, 0.995]))
    if not high > low:
        low, high = low - 0.5, low + 0.5
    edges = np.linspace(low, high, BINS + 1)
    inside = np.clip(scores, low, high)
    found = [np.histogram(inside, edges, weights=kind)[0] / max(kind.sum(), 1.0) for kind in ranked[1:]]
    return edges.tolist(), found[0].tolist(), found[1].tolist()


def calibration(ranked: ByScore, n: int = 10) -> tuple[list[float], list[float]]:
    """(mean score, share of positive rows) of at most `n` groups of equal weight, scores ascending."""
    scores, positive, negative = (values[::-1] for values in ranked)
    weights = positive + negative
    total = np.cumsum(weights)
    group = np.minimum((n * (total - 0.5 * weights) / total[-1]).astype(np.int64), n - 1)
    sums = np.bincount(group, weights=weights, minlength=n)
    there = sums > 0
    means = np.bincount(group, weights=weights * scores, minlength=n)[there] / sums[there]
    shares = np.bincount(group, weights=positive, minlength=n)[there] / sums[there]
    return means.tolist(), shares.tolist()


def has_both(ranked: ByScore) -> bool:
    """Whether there are positive and negative rows, and all scores are finite."""
    return bool(ranked.positive.sum() > 0 and ranked.negative.sum() > 0 and np.isfinite(ranked.scores).all())


def _quantiles(scores: np.ndarray, weights: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    """Quantiles of descending scores: the scores at the given shares of the weight."""
    ascending, total = scores[::-1], np.cumsum(weights[::-1])
    places = np.searchsorted(total, shares * total[-1])
    low, high = ascending[np.minimum(places, len(ascending) - 1)]
    return float(low), float(high)


def _fewer(x: np.ndarray, y: np.ndarray) -> tuple[list[float], list[float]]:
    """The points of a curve nearest to even steps of both axes, including the ends."""
    if len(x) > POINTS:
        steps = np.linspace(0.0, 1.0, POINTS // 2)
        length = np.cumsum(np.abs(np.diff(x, prepend=x[0])) + np.abs(np.diff(y, prepend=y[0])))
        places = np.searchsorted(length, steps * length[-1])
        kept = np.unique(np.clip(np.concatenate([[0], places, [len(x) - 1]]), 0, len(x) - 1))
        x, y = x[kept], y[kept]
    return x.tolist(), y.tolist()
