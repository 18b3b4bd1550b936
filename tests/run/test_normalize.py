"""--normalize total=1e4,log1p: counts of single cells, made comparable as they are read and wherever the model goes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, UsageError
from bigsvm.model.linear_model import load_model
from bigsvm.store.formats.opener import open_store
from bigsvm.store.transforms.normalize import NormalizedRows, Normalizing
from bigsvm.testing.contracts import RowBlocksContract, dense
from tests.store import formats

N, D = 80, 6
RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(2.0, (N, D)).astype(float) * (RNG.random((N, D)) < 0.6)
COUNTS[3] = 0
LABELS = np.where(COUNTS[:, 0] > COUNTS[:, 1], "T cell", "B cell")
TOTALS = np.where(COUNTS.sum(axis=1) > 0, COUNTS.sum(axis=1), 1.0)[:, None]
BEFORE = {
    "total=1e4,log1p": np.log1p(COUNTS * (1e4 / TOTALS)),
    "total=100": COUNTS * (100.0 / TOTALS),
    "log1p": np.log1p(COUNTS),
}
OPTIONS: dict[str, Any] = {"tol": 1e-6, "memory": "64MiB", "threads": 1}


def rows(store: Any, block_rows: int = 7) -> np.ndarray:
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(block_rows)])


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("steps", BEFORE)
def test_rows_are_those_normalized_before(steps: str, layout: str, tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", COUNTS, LABELS, layout=layout)
    store = open_store(path, normalize=steps)
    np.testing.assert_allclose(rows(store), BEFORE[steps], rtol=1e-14)
    for block_rows in (1, 7):  # a block of one row may have no entry at all
        np.testing.assert_array_equal(rows(store, block_rows), rows(store, 80))
    assert store.nnz == open_store(path).nnz
    again = pickle.loads(pickle.dumps(store))
    assert (again.identity, again.recipe) == (store.identity, store.recipe)
    np.testing.assert_array_equal(rows(again), rows(store))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_model_normalizes_and_then_scales(form: Any, tmp_path: Path) -> None:
    steps = "total=1e4,log1p"
    given = form(COUNTS)
    result = bigsvm.fit(given, LABELS, normalize=steps, scale="standard", solver="newton", **OPTIONS)
    plain = bigsvm.fit(form(BEFORE[steps]), LABELS, scale="standard", solver="newton", **OPTIONS)
    assert result.figures["objective"] == pytest.approx(plain.figures["objective"], rel=1e-9)
    result.save_model(tmp_path / "m")
    model = load_model(tmp_path / "m")
    assert model.about["rows"]["normalize"] == "total=10000.0,log1p"
    np.testing.assert_allclose(
        model.decision_function(given), plain.model.decision_function(form(BEFORE[steps])), rtol=1e-9, atol=1e-9
    )
    assert bigsvm.certify(tmp_path / "m", given, LABELS)["relative_gap"] <= 1e-6


def test_a_negative_value_is_refused_by_its_row(tmp_path: Path) -> None:
    bad = COUNTS.copy()
    bad[13, 2] = -1.0
    for form in (np.asarray, sp.csr_array):
        store = open_store((form(bad), LABELS), normalize="log1p")
        with pytest.raises(DataError, match=r"row 13 holds .*-1\.0.*not negative"):
            rows(store)
        model = bigsvm.fit(form(COUNTS), LABELS, normalize="log1p", **OPTIONS).model
        with pytest.raises(DataError, match="row 13"):
            model.predict(form(bad))
    with pytest.raises(DataError, match="row 1 overflow float64 when summed"):
        rows(open_store((np.array([[1.0, 2.0], [1e308, 1e308]]), [0, 1]), normalize="total=1"))


def test_what_is_no_normalizing_is_refused() -> None:
    for steps in ("", "total", "total=0", "total=inf", "total=nan", "log1p,total=1", "log1p,log1p", "log1p=2", "log"):
        with pytest.raises(UsageError, match="cannot normalize by"):
            Normalizing.parse(steps)
    assert str(Normalizing.parse(" total=10000, log1p")) == "total=10000.0,log1p"
    for recipe in ("log2", 7, ["log1p"]):
        with pytest.raises(DataError, match="invalid normalization"):
            Normalizing.of({"normalize": recipe})


def test_commands_normalize_as_the_model_was(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    labels = np.where(LABELS == "T cell", 1, -1)
    formats.written(tmp_path / "s.zarr", COUNTS, labels)
    lines = (
        f"{y} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(x) if v)
        for y, x in zip(labels, COUNTS.tolist(), strict=True)
    )
    (tmp_path / "t.svm").write_text("\n".join(lines) + "\n")
    steps = ("--normalize", "total=1e4,log1p")

    def said(*command: str) -> str:
        capsys.readouterr()
        assert run([*command]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    def refused(code: int, *command: str) -> str:
        capsys.readouterr()
        assert run([*command]) == code
        return capsys.readouterr().err

    said("fit", "s.zarr", *steps, "-o", "m")
    said("ingest", "s.zarr", "ready.zarr", *steps)
    said("fit", "ready.zarr", "-o", "m2")
    for name in ("coef.npy", "alpha.npy"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "m2" / name).read_bytes()
    first = said("predict", "m", "s.zarr")
    for model in ("m", "m2"):
        for source in ("s.zarr", "ready.zarr", "t.svm"):
            assert said("predict", model, source) == first
        said("certify", model, "ready.zarr")
    assert "normalized already, by total=10000.0,log1p" in refused(2, "fit", "ready.zarr", *steps, "-o", "m3")
    assert "cannot normalize by 'sqrt'" in refused(2, "fit", "s.zarr", "--normalize", "sqrt", "-o", "m3")
    said("ingest", "t.svm", "t.zarr", *steps)
    scores = [
        [json.loads(line)["score"] for line in told.splitlines()] for told in (said("predict", "m", "t.zarr"), first)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)  # text becomes float32, where the store's rows are float64
    assert "--scale maxabs" in refused(2, "ingest", "t.svm", "t2.zarr", "--scale", "maxabs")
    said("fit", "s.zarr", "-o", "plain")
    assert "normalized by total=10000.0,log1p, and those of the model by nothing" in refused(
        65, "predict", "plain", "ready.zarr"
    )
    said("ingest", "s.zarr", "scaled.zarr", "--scale", "maxabs")
    assert "scaled without the normalization of the model" in refused(65, "predict", "m", "scaled.zarr")
    assert "scaled already" in refused(2, "fit", "scaled.zarr", *steps, "-o", "m3")


def test_arrays_in_memory_are_not_taken_in_untouched(tmp_path: Path) -> None:
    """Row by row they are normalized; what wants all rows first is refused."""
    bigsvm.ingest((COUNTS, LABELS), tmp_path / "n.zarr", normalize="log1p")
    rows = bigsvm.open_store(tmp_path / "n.zarr")
    (block,) = [rows.read(ref) for ref in rows.refs(len(COUNTS))]
    np.testing.assert_allclose(dense(block.X, COUNTS.shape[1]), np.log1p(COUNTS), rtol=1e-6)
    with pytest.raises(UsageError, match="maxabs"):
        bigsvm.ingest((COUNTS, LABELS), tmp_path / "s.zarr", scale="maxabs")


class TestNormalizedByNothing(RowBlocksContract):
    """Rows of which nothing is asked are the rows given: what is left is how they are read."""

    def make(self, X, labels, weights, folder):
        store = open_store(formats.written(folder / "s.zarr", X, labels, weights))
        return NormalizedRows(store, Normalizing(None, False))
