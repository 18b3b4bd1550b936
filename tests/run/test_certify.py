"""Certificates of saved linear models, held against their definition: costs, biases, and what is left without alpha."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.dataframe
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused
from bigsvm.problem.problem import make_problem
from bigsvm.run.proof import certify, terms
from bigsvm.run.proof.linear_prover import linear_model
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.remembered import folder_to_write
from bigsvm.testing.problems import random_problem
from bigsvm.testing.reference import dual_optimum, dual_value, primal_value, with_bias
from tests.products import pairs_of
from tests.store import formats

N = 120


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, labels and weights, 0 among them."""
    X, y = random_problem(N, 5, seed=81, noise=0.2)
    return X, y, np.random.default_rng(1).integers(0, 4, N) / 2.0


def fitted(folder: Path, given: tuple[np.ndarray, ...], **options: Any) -> tuple[Path, Any]:
    """A saved model and the figures of its fit."""
    result = bigsvm.fit(given, **options)
    result.save_model(folder / "m", overwrite=True)
    return folder / "m", result.figures


def weights_of(path: Path, constant: float) -> np.ndarray:
    """w of a saved model of two classes, its bias entry last."""
    coef, intercept = np.load(path / "coef.npy")[0], np.load(path / "intercept.npy")
    return np.append(coef, intercept / constant)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_it_is_the_gap_of_the_definition(tmp_path: Path, loss: str) -> None:
    X, y, weight = rows()
    path, figures = fitted(tmp_path, (X, y, weight), loss=loss, C=0.4, class_weight={"1": 3.0}, tol=1e-2)
    proof = bigsvm.certify(path, (X, y, weight))
    costs = 0.4 * weight * np.where(y > 0, 3.0, 1.0)
    takes, alpha = costs > 0, np.load(path / "alpha.npy")[0]
    assert not alpha[~takes].any()
    X, y, costs, alpha = X[takes], y[takes], costs[takes], alpha[takes]
    primal = primal_value(X, y, costs, loss, weights_of(path, 1.0))
    dual = dual_value(X, y, costs, loss, alpha)
    assert proof["objective"] == pytest.approx(primal, rel=1e-12)
    assert proof["dual_objective"] == pytest.approx(dual, rel=1e-9)
    assert proof["relative_gap"] == pytest.approx((primal - dual) / primal, abs=1e-12)
    assert proof["relative_gap"] == pytest.approx(figures["relative_gap"], abs=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("bias_scale", [0.25, 3.0])
def test_a_scaled_bias_is_that_of_the_definition(tmp_path: Path, loss: str, bias_scale: float) -> None:
    X, y, _ = rows()
    options = {"solver": "dcd", "loss": loss, "C": 0.4, "tol": 1e-6}
    path, figures = fitted(tmp_path, (X, y), bias_scale=bias_scale, **options)
    best = dual_optimum(X, y, np.full(N, 0.4), loss, bias_scale)
    assert figures["objective"] == pytest.approx(best, rel=2e-6)
    primal = primal_value(X, y, np.full(N, 0.4), loss, weights_of(path, bias_scale), bias_scale)
    assert primal == pytest.approx(figures["objective"], rel=1e-12)
    assert bigsvm.certify(path, (X, y))["objective"] == pytest.approx(primal, rel=1e-12)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("C", [1e-3, 0.4])  # the multiple of the dual point is cut by its box, or is not
def test_without_alpha_the_margins_make_a_dual_point(tmp_path: Path, loss: str, C: float) -> None:
    X, y, weight = rows()
    options = {"loss": loss, "C": C, "class_weight": {"1": 3.0}, "no_dual": True, "tol": 1e-2}
    path, figures = fitted(tmp_path, (X, y, weight), **options)
    proof = bigsvm.certify(path, (X, y, weight))
    assert proof["bound"].startswith("weaker bound")
    costs = C * weight * np.where(y > 0, 3.0, 1.0)
    Z = with_bias(X, 1.0) * y[:, None]
    slack = np.maximum(1.0 - Z @ weights_of(path, 1.0), 0.0)
    alpha = costs * (slack > 0) if loss == "hinge" else 2.0 * costs * slack
    v, takes = Z.T @ alpha, costs > 0
    squares = 0.0 if loss == "hinge" else float(np.sum(alpha[takes] ** 2 / (4.0 * costs[takes])))
    quadratic = 0.5 * v @ v + squares
    t = alpha.sum() / (2.0 * quadratic)
    t = min(t, 1.0) if loss == "hinge" else t
    assert proof["dual_objective"] == pytest.approx(t * alpha.sum() - t * t * quadratic, rel=1e-9)
    assert proof["dual_objective"] <= figures["objective"] * (1 + 1e-12)
    assert proof["duality_gap"] == pytest.approx(proof["objective"] - proof["dual_objective"], rel=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_without_alpha_a_free_bias_is_not_proved_by_what_is_out_of_balance(tmp_path: Path, loss: str) -> None:
    X, y, _ = rows()
    model = bigsvm.fit((X, y), solver="newton-ws", loss=loss, bias="free", C=0.4, no_dual=True).model
    replace(model, intercept=model.intercept + 0.3).save(tmp_path / "m")
    proof = bigsvm.certify(tmp_path / "m", (X, y))
    assert proof["dual_objective"] == 0.0  # alpha = 0 is all that is sure
    assert proof["relative_gap"] == 1.0


def test_as_many_tasks_as_there_are_prove_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, weight = rows()
    path, _ = fitted(tmp_path, (X, y, weight), loss="hinge", C=0.4)
    at_once = bigsvm.certify(path, (X, y, weight))
    monkeypatch.setattr(certify, "BLOCK_BYTES", 400)
    monkeypatch.setattr(terms, "BLOCKS_PER_TASK", 2)
    in_tasks = bigsvm.certify(path, (X, y, weight))
    for name in ("objective", "dual_objective"):
        assert in_tasks[name] == pytest.approx(at_once[name], rel=1e-12)
    assert in_tasks["duality_gap"] == pytest.approx(at_once["duality_gap"], rel=1e-9)
    assert in_tasks["content_fingerprint"] == at_once["content_fingerprint"]


def test_another_content_is_refused(tmp_path: Path) -> None:
    X, y, _ = rows()
    path, _ = fitted(tmp_path, (X, y), loss="hinge")
    other = X.copy()
    other[7, 2] += 1e-9
    with pytest.raises(DataError, match="not what the model was trained on"):
        bigsvm.certify(path, (other, y))


def test_models_of_two_groups_are_scaled_each_by_its_own() -> None:
    store = ArrayRows(*random_problem(40, 3, seed=82, n_classes=4))
    problem = make_problem(FitConfig(bias_scale=2.0), store)
    first, second = np.ones((4, 2)), np.full((4, 2), 10.0)
    model = linear_model(problem, [first, second], np.array([1.0, 2.0, 3.0, 4.0]), store, {})
    assert model.coef[:, 0].tolist() == [1.0, 2.0, 30.0, 40.0]
    assert model.intercept.tolist() == [2.0, 4.0, 60.0, 80.0]


@pairs_of(kernel=["linear", "rbf"], n_classes=[2, 16], layout=["csr", "dense"])
def test_the_memory_that_a_refusal_names_is_enough(kernel: str, n_classes: int, layout: str, tmp_path: Path) -> None:
    """Of wide rows and of many models, too; in less memory blocks are smaller, and the gap is the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 2000)) * (rng.random((250, 2000)) < 0.2)
    y = rng.integers(0, n_classes, 250)
    path = formats.written(tmp_path / "s.zarr", X, y, layout=layout, chunk_bytes=1 << 16)
    options = {"kernel": kernel, "gamma": 1e-3} if kernel == "rbf" else {"loss": "hinge"}
    bigsvm.fit(path, memory="256MiB", tol=0.1, threads=1, **options).save_model(tmp_path / "m")
    plenty = bigsvm.certify(tmp_path / "m", path, memory="256MiB", threads=1)
    with pytest.raises(PlanRefused) as refused:
        bigsvm.certify(tmp_path / "m", path, memory="1KiB", threads=1)
    least = refused.value.min_memory_bytes
    assert least is not None
    scant = bigsvm.certify(tmp_path / "m", path, memory=least, threads=1)
    assert scant["relative_gap"] == pytest.approx(plenty["relative_gap"], rel=1e-9, abs=1e-12)
    with pytest.raises(PlanRefused):
        bigsvm.certify(tmp_path / "m", path, memory=least - (1 << 20), threads=1)


@pytest.mark.parametrize("kind", ["Parquet", "dask"])
def test_rows_without_a_label_are_left_out_where_the_error_advises_it(tmp_path: Path, kind: str) -> None:
    X, labels = np.random.default_rng(0).standard_normal((40, 2)), [None, *[0, 1] * 19, 0]
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "label": pa.array(labels)})
    source: Any = tmp_path / "rows.parquet"
    pq.write_table(table, source)
    if kind == "dask":
        source = dask.dataframe.from_pandas(table.to_pandas().astype({"label": "Int64"}), npartitions=2)
    bigsvm.fit(source, missing="drop").save_model(tmp_path / "m")
    with pytest.raises(DataError, match=r"missing=|holds a null"):
        bigsvm.certify(tmp_path / "m", source)
    assert bigsvm.certify(tmp_path / "m", source, missing="drop")["certificate"] == "proved"


def test_absent_chunks_are_zeros_where_certify_is_told_so(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((40, 2))
    X[16:32] = 0.0
    path = formats.foreign(tmp_path / "rows.zarr", X, np.arange(40) % 2, layout="dense")
    (path / "X/c/1/0").unlink()
    bigsvm.fit(path, empty_chunks="zeros").save_model(tmp_path / "m")
    for remembered in folder_to_write().glob("*.json"):
        remembered.unlink()  # as on another machine
    with pytest.raises(DataError, match="chunk is missing"):
        bigsvm.certify(tmp_path / "m", path)
    assert bigsvm.certify(tmp_path / "m", path, empty_chunks="zeros")["certificate"] == "proved"


@pytest.mark.parametrize(
    "chosen", [{"columns": ["c", "a"]}, {"columns": "a,t"}, {"columns": ["t"], "hash_bits": 3}, {}]
)
def test_of_a_dask_frame_the_columns_that_the_model_chose(tmp_path: Path, chosen: dict[str, Any]) -> None:
    X = np.random.default_rng(0).standard_normal((40, 3))
    frame = pa.table({"a": X[:, 0], "t": np.array(["u", "v"])[np.arange(40) % 2], "c": X[:, 1]}).to_pandas()
    frame["label"] = (X[:, 2] > 0).astype(int)
    collection = dask.dataframe.from_pandas(frame, npartitions=2)
    result = bigsvm.fit(collection, scale="maxabs", **chosen)
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", collection)["objective"] == pytest.approx(result.figures["objective"])
