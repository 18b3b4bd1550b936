"""Options of kernel machines, and kernel models in the commands that read models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.cli import text
from bigsvm.cli.commands.training.fit import summary
from bigsvm.config import KERNELS
from bigsvm.model.linear_model import load_model
from bigsvm.problem import kernel as problem_kernel
from tests.cli.conftest import Bigsvm
from tests.problem.svc_models import KERNELS as SOME
from tests.problem.svc_models import labels, rows, svc, svr

D = 6


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configs with which a plan was asked for."""
    found: list[Any] = []

    def look(data: Any, config: Any) -> Any:
        found.append(config)
        raise ZeroDivisionError

    monkeypatch.setattr("bigsvm.run.fit.plan.make_plan", look)
    return found


def svm_text(X: np.ndarray, y: np.ndarray, path: Path) -> Path:
    lines = [f"{label} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v) for label, row in
             zip(y.tolist(), X.tolist(), strict=True)]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path


def test_all_options_reach_the_config(bigsvm: Bigsvm, store: Path, seen: list[Any]) -> None:
    typed = "--kernel poly --gamma 0.5 --degree 2 --coef0 1 --epsilon 0.2 --multi-class ovr --wss wr+3 --working-set 64"
    bigsvm("plan", store, *typed.split(), "--no-shrinking", "--cache-memory", "25%")
    config = seen[0]
    assert (config.kernel, config.gamma, config.degree, config.coef0) == ("poly", 0.5, 2, 1.0)
    assert (config.epsilon, config.multi_class, config.wss, config.working_set) == (0.2, "ovr", "wr+3", 64)
    assert (config.shrinking, config.cache_bytes(1000)) == (False, 250)
    bigsvm("plan", store)
    config = seen[1]
    assert (config.kernel, config.gamma, config.multi_class, config.shrinking) == ("linear", "auto", None, True)
    assert (config.working_set, config.cache_memory) == (None, None)


def test_loss_and_bias_follow_the_kernel_unless_they_are_named(bigsvm: Bigsvm, store: Path, seen: list[Any]) -> None:
    for typed in ([], ["--kernel", "rbf"], ["-s", "smo"], ["--kernel", "rbf", "--loss", "epsilon_insensitive"]):
        bigsvm("plan", store, *typed)
    Path("c.toml").write_text('loss = "squared_hinge"\nkernel = "rbf"\nno-shrinking = true\n')
    bigsvm("plan", store, "--config", "c.toml")
    assert [(config.loss, config.bias) for config in seen] == [
        ("squared_hinge", "augmented"), ("hinge", "free"), ("hinge", "free"), ("epsilon_insensitive", "free"),
        ("squared_hinge", "free"),
    ]  # fmt: skip
    assert not seen[-1].shrinking


@pytest.mark.parametrize(
    "typed",
    [["--kernel", "other"], ["--gamma", "scales"], ["--gamma", "-1"], ["--degree", "x"], ["--wss", "4"],
     ["--working-set", "1"], ["--cache-memory", "much"], ["--multi-class", "crammer"], ["--epsilon", "-0.1"]],
)  # fmt: skip
def test_what_makes_no_sense_is_a_matter_of_usage(bigsvm: Bigsvm, store: Path, typed: list[str]) -> None:
    said = bigsvm("fit", store, *typed, "--json")
    assert said.code == 2
    assert said.document["error"]["message"]
    assert not Path("small.model").exists()


def test_regression_of_classes_says_so_in_one_line(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("fit", store, "--loss", "epsilon_insensitive", "--kernel", "rbf", "--positive", "1")
    assert said.code == 65
    assert len(said.err.splitlines()) == 1
    assert "needs targets" in said.err
    assert "leave out --positive and --label-map" in said.err


def test_the_names_of_kernels_are_those_of_the_problem() -> None:
    assert KERNELS == problem_kernel.KERNELS


def test_a_kernel_model_of_classes(bigsvm: Bigsvm, tmp_path: Path) -> None:
    X = rows(120)
    y = labels(X, 3)
    oracle, model = svc(X, y, SOME["rbf"], D, "csr")
    model.save(tmp_path / "m", np.zeros((3, 120)))
    assert bigsvm("ingest", svm_text(X, y, tmp_path / "t.svm"), "s.zarr", "--dtype", "float64").code == 0
    for source in ("s.zarr", "t.svm"):
        found = [json.loads(line) for line in bigsvm("predict", "m", source).out.splitlines()]
        assert [row["label"] for row in found] == oracle.predict(X).tolist()
        np.testing.assert_allclose([row["score"] for row in found], oracle.decision_function(X), rtol=1e-8)
    said = bigsvm("evaluate", "m", "s.zarr", "--json")
    assert said.document["result"]["accuracy"] == pytest.approx(oracle.score(X, y), rel=1e-12)
    shown = bigsvm("inspect", "m").out
    assert "rbf (gamma 0.3)" in shown
    assert f"{model.n_support} (csr" in shown
    result = bigsvm("inspect", "m", "--json").document["result"]
    assert result["kernel"] == {"name": "rbf", "gamma": 0.3}
    assert result["n_support_vectors"] == model.n_support
    assert result["n_support"] == np.count_nonzero(model.dual_coef, axis=1).tolist()
    assert bigsvm("promote", "r", "m").code == 0
    assert load_model("r/current").n_support == model.n_support


def test_a_model_of_regression(bigsvm: Bigsvm, tmp_path: Path) -> None:
    X = rows(120)
    t = (X[:, 0] - X[:, 1]).round(6)
    oracle, model = svr(X, t, SOME["rbf"], D)
    model.save(tmp_path / "m")
    svm_text(X, t, tmp_path / "t.svm")
    assert bigsvm("ingest", "t.svm", "s.zarr", "--task", "regression", "--dtype", "float64").code == 0
    values = [float(line) for line in bigsvm("predict", "m", "s.zarr", "--format", "csv").out.splitlines()]
    np.testing.assert_allclose(values, oracle.predict(X), rtol=1e-8, atol=1e-10)
    assert "mean" in bigsvm("predict", "m", "s.zarr", "-o", "o.csv").out
    result = bigsvm("evaluate", "m", "s.zarr", "--json").document["result"]
    assert result["r2"] == pytest.approx(oracle.score(X, t), rel=1e-8)
    assert result["mse"] == pytest.approx(np.mean((oracle.predict(X) - t) ** 2), rel=1e-8)
    assert "mean squared error" in bigsvm("evaluate", "m", "s.zarr").out
    assert "it predicts values" in bigsvm("inspect", "m").out


def test_a_summary_names_the_kernel_and_its_work() -> None:
    result = {
        "relative_gap": 1e-4, "certificate": "proved", "n_samples": 10, "n_features": 2, "nnz": 20, "data_bytes": 100,
        "loss": "hinge", "C": 1.0, "bias": "free", "solver": "smo", "objective": 1.0, "dual_objective": 1.0,
        "passes": 1.0, "epochs": 1.0, "n_support": 5, "model": "m", "run": "r", "kernel": "linear",
        "kernel_rows": {"computed": 0, "ram_hits": 0, "disk_hits": 0},
    }  # fmt: skip
    assert "kernel" not in summary("converged", result, 1e-3)
    rows_of = {"computed": 12, "ram_hits": 3456, "disk_hits": 0}
    said = summary("converged", {**result, "kernel": {"name": "rbf", "gamma": 0.5}, "kernel_rows": rows_of}, 1e-3)
    assert "rbf (gamma 0.5)" in said
    assert "12 computed, 3,456 found in memory, 0 on disk" in said
    assert text.kernel("rbf") == "rbf"
