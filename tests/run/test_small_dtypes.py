"""A fit on 8-bit values is the fit on the same numbers in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.fit import sizes as planning
from bigsvm.store.checks import value_dtype
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from tests.products import each_of, on_request

DTYPES = ["int8", "uint8", "int16", "uint16", "float16", "float32", "int32", "uint32", "int64", "float64"]


def problem(dtype: str, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Numbers over the whole range of the dtype, two thirds of them zero, and labels of a noisy linear rule."""
    rng = np.random.default_rng(41)
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    X = rng.integers(low, high, (400, 9)) * (rng.random((400, 9)) < 0.35)
    X[0, :2] = (low, high - 1)
    scores = X @ rng.standard_normal((9, n_classes)) + 40 * rng.standard_normal((400, n_classes))
    return X.astype(dtype), np.argmax(scores - scores.mean(axis=0), axis=1)


def rows_of(X: np.ndarray, layout: str) -> Any:
    return sparse.csr_array(X) if layout == "csr" else X


@each_of(dtype=["int8", "uint8"], layout=["csr", "dense"], n_classes=[2, 3], tol=[1e-2, 1e-6])
def test_same_bits_in_memory(dtype: str, layout: str, n_classes: int, tol: float) -> None:
    X, y = problem(dtype, n_classes)
    models = []
    for stored in (dtype, "float32"):
        result = bigsvm.fit((rows_of(X.astype(stored), layout), y), C=1e-4, tol=tol)
        assert result.model.about["dtype"] == stored
        models.append((result.model.coef.tobytes(), result.model.intercept.tobytes(), result.figures["objective"]))
    assert models[0] == models[1]


@each_of(dtype=["int8", "uint8"], layout=["csr", "dense"], n_classes=[2, 3])
def test_same_objective_streamed(
    tmp_path: Path, dtype: str, layout: str, n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of as many bytes have more rows, so the order of the steps differs, and the optimum does not."""
    for size in ("BLOCK_BYTES", "_COPY_BLOCK", "_SMALLEST_GROUP"):
        monkeypatch.setattr(planning, size, 1000)
    monkeypatch.setattr(planning.Sizes, "resident_from", lambda self: 1 << 50)
    X, y = problem(dtype, n_classes)
    objectives = []
    for stored in (dtype, "float32"):
        ingest((rows_of(X.astype(stored), layout), y), tmp_path / stored)
        result = bigsvm.fit(
            str(tmp_path / stored), C=1e-4, tol=1e-10, memory="64MiB", scratch=str(tmp_path / "scratch")
        )
        assert result.status == "converged"
        assert not result.model.about["plan"]["resident"]
        objectives.append(result.figures["objective"])
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-9)


@pytest.mark.parametrize(
    ("dtype", "layout", "n_classes"),  # as fits have them above: others are compiled anew
    [("int8", "csr", 2), ("uint8", "dense", 3), *on_request(("int8", "csr", 3), ("uint8", "dense", 2))],
)
def test_scores_figures_and_certificates_are_those_of_float32(
    tmp_path: Path, dtype: str, layout: str, n_classes: int
) -> None:
    X, y = problem(dtype, n_classes)
    for stored in (dtype, "float32"):
        ingest((rows_of(X.astype(stored), layout), y), tmp_path / stored)
    bigsvm.fit(str(tmp_path / dtype), C=1e-4).save_model(tmp_path / "m")
    model = bigsvm.load_model(tmp_path / "m")
    figures = [evaluate(model, open_store(tmp_path / d), FitConfig()) for d in (dtype, "float32")]
    for found in figures:
        del found["seconds"], found["memory"]
    assert figures[0] == figures[1]
    # Proved again on the other store: its content is the same.
    proofs = [bigsvm.certify(tmp_path / "m", str(tmp_path / d))["duality_gap"] for d in (dtype, "float32")]
    assert proofs[0] == proofs[1]
    np.testing.assert_array_equal(
        model.decision_function(rows_of(X, layout)), model.decision_function(rows_of(X.astype(np.float32), layout))
    )


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize(
    "recipe", [{}, {"scale": "maxabs"}, {"scale": "standard"}, {"normalize": "total=100,log1p"}], ids=str
)
def test_rows_of_python_are_scored_in_the_type_that_blocks_of_a_store_have(
    tmp_path: Path, recipe: dict[str, Any], layout: str
) -> None:
    """They were converted to float64 before they were scaled: a score, and even a label, was another in Python."""
    X, y = problem("uint8")
    X //= 2  # no number is beyond int8, as which sparse rows are compiled for above
    X = X.astype("int8" if layout == "csr" else "uint8")
    bigsvm.fit((rows_of(X, layout), y), C=1e-4, **recipe).save_model(tmp_path / "m")
    for model in (bigsvm.load_model(tmp_path / "m"), bigsvm.predictor.load(tmp_path / "m")):
        scores = {
            d: model.decision_function(rows_of(X.astype(d), layout))
            for d in DTYPES
            if d != "float16" or layout == "dense"
        }
        for dtype, found in scores.items():
            wide = value_dtype(np.dtype(dtype), "X") == np.float64
            np.testing.assert_array_equal(found, scores["float64" if wide else "float32"], dtype)
        of_bits, as_floats = (model.decision_function(rows_of((X > 0).astype(d), layout)) for d in ("bool", "float32"))
        np.testing.assert_array_equal(of_bits, as_floats)
        if layout == "dense":
            np.testing.assert_array_equal(model.decision_function(X.astype(np.longdouble)), scores["float64"])
