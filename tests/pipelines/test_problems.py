"""Retraining jobs of kernels and of regression; and that no option that changes a model is taken for none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.config import MODEL_OPTIONS, OPTIONS, RESULT_OPTIONS, FitConfig
from bigsvm.errors import UsageError
from bigsvm.model import versions as registry
from bigsvm.model.linear_model import load_model
from bigsvm.store.ingest.ingest import ingest
from pipelines import steps
from pipelines.config import read_job
from tests.pipelines.jobs import Place, Retrain, job, retrain

__all__ = ["job", "retrain"]

# Fields of FitConfig that say where and how fast, and another value of each of the others.
PLACES = {
    "max_time", "cache_memory", "scratch", "scratch_limit", "stage", "threads", "scheduler", "scheduler_file",
    "workers", "worker_scratch", "C_path",
}  # fmt: skip
OTHER: dict[str, Any] = {
    "solver": "dcd", "loss": "hinge", "lam": 0.5, "bias": "none", "class_weight": {"1": 2.0}, "multi_class": "ovo",
    "kernel": "rbf", "gamma": 0.5, "wss": "3", "working_set": 10, "stop": "paper", "max_passes": 7.0,
    "solver_options": {"row_buffer": "none"}, "memory": "65MiB", "warm_start": "/nowhere/old.model",
    "shards": 2, "rounds_per_pass": 2, "sum_seconds": 0.5,
    "calibrate": "isotonic",
    "nu": 0.25,
    "calibrate_share": 0.5,
}  # fmt: skip


def other_value(field: dataclasses.Field[Any]) -> Any:
    if field.name in OTHER:
        return OTHER[field.name]
    if isinstance(field.default, bool):
        return not field.default
    assert isinstance(field.default, int | float), f"name another value of {field.name}, or say that it is a place"
    return field.default + 1


FIELDS = [field for field in dataclasses.fields(FitConfig) if field.name not in PLACES]


def write_values(path: Path, seed: int, n_samples: int = 80) -> Path:
    """Whole numbers that are a function of the features, and a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, 3)).astype(np.float32)
    y = np.rint(X @ np.array([3.0, -2.0, 1.0]) + 0.2 * rng.standard_normal(n_samples))
    ingest((X, y), path, task="regression", overwrite=True)
    return path


@pytest.fixture
def values(job: Place, tmp_path: Path) -> Place:
    """`job`, of stores whose labels are values."""

    def write(top: str = "", fit: str = "", gates: str = "") -> Path:
        write_values(tmp_path / "train.zarr", 1)
        write_values(tmp_path / "holdout.zarr", 2)
        return job(top, f'loss = "epsilon_insensitive"\nsolver = "smo"\n{fit}', gates)

    return write


def test_every_option_that_changes_a_model_is_looked_at() -> None:
    assert {field.name for field in FIELDS} >= {name for name in RESULT_OPTIONS if name not in PLACES}


def test_a_changed_option_is_never_taken_for_none(job: Place, retrain: Retrain) -> None:
    config = job()
    assert retrain(config, "--quiet").code == 0
    read = read_job(config)
    assert not steps.detect(read).changed
    for field in FIELDS:
        fit = dataclasses.replace(read.fit, **{field.name: other_value(field)})
        found = steps.detect(read.model_copy(update={"fit": fit}))
        assert found.changed, field.name
        assert found.reason == "the options of the fit have changed"


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {as_toml(item)}' for key, item in value.items()) + "}"
    return json.dumps(value)


def test_a_line_of_the_job_for_each_option_of_the_table_retrains(job: Place, retrain: Retrain) -> None:
    """As somebody types it into the file: kernel, gamma, epsilon, memory and whatever else changes a model."""
    config = job()
    assert retrain(config, "--quiet").code == 0
    before, tried = config.read_text(), set()
    for field in FIELDS:
        option = OPTIONS[field.name]
        if not option.flags:
            continue
        value = other_value(field)
        line = f"{option.name.replace('_', '-')} = {as_toml(not value if option.negated else value)}"
        text = before.replace('memory = "64MiB"\n', "") if field.name == "memory" else before
        config.write_text(text.replace("[fit]\n", f"[fit]\n{line}\n"))
        found = steps.detect(read_job(config))
        assert (found.changed, found.reason) == (True, "the options of the fit have changed"), line
        tried.add(field.name)
    assert tried == set(MODEL_OPTIONS) - PLACES, "all that the table says changes a model was tried"
    config.write_text(before)
    assert not steps.detect(read_job(config)).changed


def test_a_kernel_by_its_name_alone(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    """Its loss and bias are those of `bigsvm fit --kernel rbf`."""
    first = retrain(job(fit='kernel = "rbf"', gates="min_accuracy = 0.7"), "--json", "--quiet")
    assert (first.code, first.document["status"]) == (0, "promoted")
    problem = load_model(tmp_path / "reg" / "current").about["problem"]
    assert (problem["loss"], problem["bias"], problem["kernel"]["name"]) == ("hinge", "free", "rbf")
    assert retrain(job(fit='kernel = "rbf"'), "--json").document["status"] == "unchanged"
    for number, fit in enumerate(('kernel = "rbf"\ngamma = 5.0', 'kernel = "poly"\ndegree = 2'), 2):
        again = retrain(job(fit=fit), "--json", "--quiet").document
        assert (again["status"], again["result"]["version"]) == ("promoted", number)


def test_a_paper_keeps_its_bias(job: Place) -> None:
    assert read_job(job(fit='solver = "pegasos"\nloss = "hinge"\nstop = "paper"')).fit.bias == "none"


def test_regression_is_judged_by_its_errors(values: Place, retrain: Retrain, tmp_path: Path) -> None:
    gates = "max_mse = 0.5\nmax_mae = 0.5\nmin_r2 = 0.9\nmax_drop = 0.1"
    assert retrain(values(gates=gates), "--quiet").code == 0
    (entry,) = registry.history(tmp_path / "reg")
    assert 0.9 < entry["metrics"]["r2"] < 1
    assert 0 < entry["metrics"]["mse"] < 0.5
    assert retrain(values(gates=gates), "--json").document["status"] == "unchanged"
    wider = retrain(values(fit="epsilon = 0.5", gates=gates), "--json", "--quiet").document
    assert wider["result"]["reason"] == "the options of the fit have changed"
    assert {gate["name"] for gate in wider["result"]["gates"]} >= {"min_r2", "max_mse", "max_mae", "max_drop"}
    assert registry.history(tmp_path / "reg")[1]["metrics"]["current_r2"] == entry["metrics"]["r2"]


def test_nu_svr_is_a_regression_and_begins_at_zero(values: Place, retrain: Retrain, tmp_path: Path) -> None:
    config = values(top="warm_start = true\n", gates="min_r2 = 0.9\nmax_mse = 0.5\nmax_drop = 0.1")
    config.write_text(config.read_text().replace('"epsilon_insensitive"', '"nu_svr"'))
    assert retrain(config, "--quiet").code == 0
    config.write_text(config.read_text().replace("[gates]", "nu = 0.3\n[gates]"))
    again = retrain(config, "--json", "--quiet").document
    assert (again["status"], again["result"]["version"]) == ("promoted", 2)
    assert "the loss nu_svr cannot start from an earlier model" in again["warnings"][0]
    assert registry.history(tmp_path / "reg")[1]["metrics"]["r2"] > 0.9


def test_one_class_is_judged_by_labels_of_1_and_minus_1(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    fit = 'loss = "one_class"\nnu = 0.1\nkernel = "rbf"'
    said = retrain(job(fit=fit, gates="min_accuracy = 0.99"), "--quiet")
    assert (said.code, said.err.count("\n")) == (76, 1)
    assert "refused by gate min_accuracy" in said.err
    assert retrain(job(fit=fit, gates="max_relative_gap = 1e-2"), "--quiet").code == 0
    assert load_model(tmp_path / "reg" / "current").one_class


@pytest.mark.parametrize(
    ("gates", "named"), [("max_mse = 1e-9", "max_mse"), ("max_mae = 0", "max_mae"), ("min_r2 = 1", "min_r2")]
)
def test_a_gate_refuses_a_model_of_values(
    values: Place, retrain: Retrain, tmp_path: Path, gates: str, named: str
) -> None:
    said = retrain(values(gates=gates), "--quiet")
    assert (said.code, said.err.count("\n")) == (76, 1)
    assert f"refused by gate {named}" in said.err
    assert registry.current_version(tmp_path / "reg") is None


@pytest.mark.parametrize(
    ("loss", "gates"),
    [("epsilon_insensitive", "min_accuracy = 0.5"), ("epsilon_insensitive", 'max_drop = 0.1\ndrop_metric = "f1"'),
     ("nu_svr", "min_accuracy = 0.5"), ("one_class", "max_mse = 1"),
     ("hinge", "max_mse = 1"), ("hinge", "min_r2 = 0.5"), ("hinge", 'max_drop = 0.1\ndrop_metric = "r2"')],
)  # fmt: skip
def test_a_metric_that_the_model_has_not_got_is_refused_before_the_fit(job: Place, loss: str, gates: str) -> None:
    with pytest.raises(UsageError, match="the gates use"):
        read_job(job(fit=f'loss = "{loss}"', gates=gates))


def test_what_cannot_be_proved_is_promoted_by_a_key_of_its_own(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    fit = 'kernel = "sigmoid"\ngamma = 0.05\ncoef0 = -0.5'
    said = retrain(job(fit=fit), "--json", "--quiet")
    assert (said.code, said.document["status"]) == (76, "refused")
    (line,) = said.err.splitlines()
    assert "no gap can be proved for this kernel" in line
    assert "allow_unproved = true" in line
    assert registry.current_version(tmp_path / "reg") is None
    said = retrain(job(fit=fit, gates="allow_unproved = true\nmin_accuracy = 0.7"), "--json", "--quiet")
    assert (said.code, said.document["status"]) == (0, "promoted")
    assert load_model(tmp_path / "reg" / "current").about["status"] == "kkt"


def test_the_key_is_no_way_around_a_proof(job: Place, retrain: Retrain) -> None:
    """A kernel whose gap can be proved is held to it."""
    said = retrain(job(fit='kernel = "rbf"', gates="allow_unproved = true\nmax_relative_gap = 1e-300"), "--quiet")
    assert said.code == 76
    assert "refused by gate gap" in said.err
