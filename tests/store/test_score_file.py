"""Scores on the scratch disk come back sorted, however little memory there is for sorting."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from bigsvm.run.apply.metrics import ExactRanking, SpilledRanking, measures
from bigsvm.store.state import score_file
from bigsvm.store.state.score_file import ScoreFile

sklearn_metrics = pytest.importorskip("sklearn.metrics")


def filled(file: ScoreFile, scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None) -> SpilledRanking:
    """A ranking on disk whose rows arrive in pieces of several sizes."""
    part = file.take(len(scores), weights is not None, held_rows=37)
    assert part is not None
    ranking = SpilledRanking(part)
    for piece in np.array_split(np.arange(len(scores)), [1, 30, 500, 501]):
        ranking.add(scores[piece], positive[piece], None if weights is None else weights[piece])
    return ranking


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["distinct", "ties", "equal", "close"])
@pytest.mark.parametrize("run_rows", [10, 100, 1_000, 100_000])
def test_metrics_of_scores_on_disk_are_scikit_learns(
    run_rows: int, kind: str, weighted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With runs of ten rows, two are merged at a time, in many rounds."""
    monkeypatch.setattr(score_file, "LEAST_ROOM", 0)
    rng = np.random.default_rng(0)
    n = 1_000 if run_rows == 10 else 3_000  # a hundred runs or fewer: merging two at a time is slow
    scores = rng.standard_normal(n)
    if kind != "distinct":
        scores = {"ties": scores.round(1), "equal": np.zeros(n), "close": 1.0 + 1e-13 * scores.round(2)}[kind]
    positive = scores + rng.standard_normal(n) * (1e-13 if kind == "close" else 1.0) > (1.0 if kind == "close" else 0.7)
    weights = rng.random(n) if weighted else None
    file = ScoreFile(tmp_path, run_rows * score_file.SORTED_ROW_BYTES)
    before = filled(file, -scores, ~positive, weights)
    ranking = filled(file, scores, positive, weights)
    after = filled(file, scores, ~positive, weights)
    for one, sign, truth in ((ranking, 1, positive), (before, -1, ~positive), (after, 1, ~positive)):
        auc = sklearn_metrics.roc_auc_score(truth, sign * scores, sample_weight=weights)
        precision = sklearn_metrics.average_precision_score(truth, sign * scores, sample_weight=weights)
        assert measures(one) == pytest.approx((auc, precision), rel=1e-11)
        assert measures(one) == pytest.approx((auc, precision), rel=1e-11), "it can be read again"
    assert list(tmp_path.iterdir()) == []


def test_pieces_are_descending_and_keep_to_their_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_file, "LEAST_ROOM", 0)
    scores = np.random.default_rng(1).integers(0, 300, 5_000).astype(np.float64)
    file = ScoreFile(tmp_path, 64 * score_file.SORTED_ROW_BYTES)
    part = file.take(len(scores), False, held_rows=100)
    assert part is not None
    part.add(scores, scores > 100, None)
    pieces = list(part.descending())
    assert max(map(len, pieces)) <= 64
    found = np.concatenate([rows["score"] for rows in pieces])
    np.testing.assert_array_equal(found, np.sort(scores)[::-1])


def test_a_curve_of_scores_on_disk_has_all_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_file, "LEAST_ROOM", 0)
    rng = np.random.default_rng(2)
    scores, positive = rng.standard_normal(4_000), rng.random(4_000) < 0.3
    ranking = filled(ScoreFile(tmp_path, 100 * score_file.SORTED_ROW_BYTES), scores, positive, None)
    score, hits, others = ranking.by_score()
    assert len(score) <= 200
    assert (np.diff(score) < 0).all()
    assert (hits.sum(), others.sum()) == (positive.sum(), (~positive).sum())
    exact = ExactRanking(len(scores))
    exact.add(scores, positive, None)
    assert score[0] == exact.by_score()[0][0]


def test_a_file_takes_no_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ScoreFile(tmp_path, 1 << 20, most=20_000)
    assert file.take(2_000, False, 10) is not None
    assert file.take(2_000, True, 10) is None

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert ScoreFile(tmp_path, 1 << 20).take(100, False, 10) is None
