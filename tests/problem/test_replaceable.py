"""What may be overwritten: only what is of the kind that replaces it.  What may be proved: only what is a number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import DataError, OutputError
from bigsvm.model.linear_model import LinearModel, load_model
from bigsvm.testing.problems import random_problem

MODEL = LinearModel(np.ones((1, 2)), np.zeros(1), np.array([-1, 1]))


def test_overwrite_replaces_a_model_and_nothing_else(tmp_path: Path) -> None:
    X, y = random_problem(30, 2, seed=1)
    bigsvm.ingest((X, y), tmp_path / "s.zarr")
    thesis = tmp_path / "work"
    thesis.mkdir()
    (thesis / "thesis.txt").write_text("years")
    link = tmp_path / "link"
    link.symlink_to(thesis)
    for target in (tmp_path / "s.zarr", thesis, thesis / "thesis.txt", link, Path("."), tmp_path / "work" / ".."):
        with pytest.raises(OutputError):
            MODEL.save(target, overwrite=True)
    assert (thesis / "thesis.txt").read_text() == "years"
    assert bigsvm.open_store(tmp_path / "s.zarr").n_samples == 30
    (tmp_path / "empty").mkdir()
    MODEL.save(tmp_path / "empty", overwrite=True)
    MODEL.save(tmp_path / "empty", overwrite=True)
    with pytest.raises(OutputError, match="not a store"):
        bigsvm.ingest((X, y), tmp_path / "empty", overwrite=True)
    assert load_model(tmp_path / "empty").n_features == 2


def test_ingest_does_not_replace_its_own_source(tmp_path: Path) -> None:
    text = tmp_path / "rows.svm"
    text.write_text("1 1:2\n-1 1:3\n")
    with pytest.raises(OutputError):
        bigsvm.ingest(text, text, overwrite=True)
    bigsvm.ingest(text, tmp_path / "s.zarr")
    with pytest.raises(OutputError, match="source itself"):
        bigsvm.ingest(tmp_path / "s.zarr", tmp_path / "s.zarr", overwrite=True)
    assert text.read_text().startswith("1 1:2")


@pytest.mark.parametrize("C", [[float("nan")], [-1.0], [0.0], [], [1.0, 1.0], "x"])
def test_certify_proves_nothing_for_a_cost_that_is_none(tmp_path: Path, C: object) -> None:
    X, y = random_problem(30, 3, seed=2)
    bigsvm.fit((X, y)).save_model(tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    document = json.loads(path.read_text())
    document["problem"]["C"] = C
    path.write_text(json.dumps(document))
    with pytest.raises(DataError):
        bigsvm.certify(tmp_path / "m", (X, y))


def test_rows_that_all_weigh_nothing_are_refused() -> None:
    X, y = random_problem(30, 3, seed=3)
    with pytest.raises(DataError, match="no class takes part"):
        bigsvm.fit((X, y, np.zeros(30)))
    with pytest.raises(DataError, match="only class 1 takes part"):
        bigsvm.fit((X, y), class_weight={"-1": 0.0})
    with pytest.raises(DataError, match="no features"):
        bigsvm.fit((X[:, :0], y))


def test_a_missing_chunk_of_rows_is_an_error_also_where_nobody_sealed_the_store(tmp_path: Path) -> None:
    X, y = random_problem(400, 30, seed=4)
    from scipy import sparse

    for lose in ("first use", "later"):
        store = tmp_path / f"{lose}.zarr"
        bigsvm.ingest((sparse.csr_array(X), y), store, chunk_bytes=20_000)
        (store / "bigsvm-manifest.json").unlink()
        if lose == "later":
            assert bigsvm.open_store(store).warnings
        (store / "X" / "data" / "c" / "1").unlink()
        with pytest.raises(DataError, match=r"X/data/c/1.*missing"):
            bigsvm.fit(store)
