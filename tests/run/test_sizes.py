"""Learning curves: the same search on more and more of the rows."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.cli.main import run
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, UsageError
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.tune.folds import Folds
from bigsvm.run.tune.grid import Candidate
from bigsvm.run.tune.search import Asked, tune_store
from bigsvm.run.tune.sizes import BeyondShare, LearningCurve, learning_curve, parse_shares, read_curve
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.ingest.ingest import ingest

N, K = 400, 3
ASKED = Asked([Candidate(C, None, None) for C in (0.01, 1.0)], Folds(K, "rows", seed=0), "accuracy")
CONFIG = FitConfig.of(memory="64MiB", threads=1)


def rows(n_samples: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n_samples, 6))
    return X, np.where(X @ np.arange(1.0, 7.0) + 3.0 * rng.standard_normal(n_samples) > 0, 1, -1)


@pytest.fixture(scope="module")
def curve() -> LearningCurve:
    return learning_curve(ArrayRows(*rows()), CONFIG, ASKED, [0.1, 0.5, 1.0])


def test_the_last_point_is_the_search_on_all_rows(curve: LearningCurve) -> None:
    found = tune_store(ArrayRows(*rows()), CONFIG, ASKED)
    assert curve.points[-1].row.document() == found.rows[found.chosen].document()
    assert (curve.status, curve.exit_code()) == ("converged", 0)


def test_a_point_is_a_search_whose_models_saw_these_rows_alone(curve: LearningCurve) -> None:
    """Each fold's objective is that of a fit on the rows of the share outside of the fold; all held-out rows count."""
    X, y = rows()
    kept = ~BeyondShare(0.5, 0).withheld(0, N)
    fold = ASKED.folds.of(0, N)
    assert curve.points[1].n_rows == pytest.approx(np.mean([(kept & (fold != k)).sum() for k in range(K)]))
    C = curve.points[1].row.candidate.C
    for k in range(K):
        mine = kept & (fold != k)
        config = FitConfig.of(memory="64MiB", threads=1, C=C, tol=1e-6)
        alone = fit_store(ArrayRows(X[mine], y[mine]), config)
        figures = alone.document("m", "r")
        objective = curve.points[1].row.objectives[k]
        assert figures["dual_objective"] * (1 - 1e-9) <= objective <= figures["objective"] * (1 + 2e-3)
        right = float(np.mean(alone.model.predict(X[fold == k]) == y[fold == k]))
        assert curve.points[1].row.scores["accuracy"][k] == pytest.approx(right, abs=0.03)
        alone.close()


def test_smaller_shares_are_parts_of_larger_ones() -> None:
    shares = [~BeyondShare(share, 3).withheld(0, 5000) for share in (0.01, 0.2, 0.21, 0.9)]
    for small, large in itertools.pairwise(shares):
        assert not np.any(small & ~large)
    assert shares[1].mean() == pytest.approx(0.2, abs=0.02)
    np.testing.assert_array_equal(BeyondShare(0.2, 3).withheld(100, 300), ~shares[1][100:300])


def test_sizes_as_they_are_typed() -> None:
    assert parse_shares("1,0.1,.5,1.0") == [0.1, 0.5, 1.0]
    for bad in ("", "0,1", "0.5,2", "half", "nan", "-1"):
        with pytest.raises(UsageError, match="sizes"):
            parse_shares(bad)


def test_a_share_without_a_class_is_named() -> None:
    X, y = rows()
    y = np.where(np.arange(N) < 4, 2, y)
    with pytest.raises(DataError, match=r"a share of 0\.01 has no row of class"):
        learning_curve(ArrayRows(X, y), CONFIG, ASKED, [0.01])


def test_in_a_shell_and_as_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ingest(rows(), tmp_path / "a.zarr")

    def call(*args: str) -> Any:
        code = run([*args, "--json"])
        return code, json.loads(capsys.readouterr().out)

    command = ["tune", str(tmp_path / "a.zarr"), "--Cs", "0.1,1", "--folds", "3", "--sizes", "0.2,1"]
    command += ["--memory", "64MiB", "-o", str(tmp_path / "search")]
    code, first = call(*command)
    assert code == 0
    assert [point["share"] for point in first["result"]["sizes"]] == [0.2, 1.0]
    kept = read_curve(tmp_path / "search")
    assert kept["sizes"] == first["result"]["sizes"]
    again = call(*command)[1]["result"]
    assert again["sizes"] == first["result"]["sizes"], "what is done is not done again"
    assert again["seconds"] == first["result"]["seconds"]
    assert call(*command, "--refit")[0] == 2
    assert call(*command, "--csv", str(tmp_path / "t.csv"))[0] == 2
    code, drawn = call("plot", str(tmp_path / "search"))
    assert (code, drawn["result"]["runs"][0]["learning_curve"]) == (0, kept)
    assert run(["plot", str(tmp_path / "search")]) == 0
    said = capsys.readouterr().out
    assert "Held-out accuracy against training rows" in said
    assert "search, one standard error less" in said
    pytest.importorskip("matplotlib")
    assert run(["plot", str(tmp_path / "search"), "-o", str(tmp_path / "c.svg")]) == 0
    assert (tmp_path / "c.svg").read_bytes().startswith(b"<?xml")
    (tmp_path / "search" / "curve.json").write_text("{}")
    assert run(["plot", str(tmp_path / "search")]) == 65
