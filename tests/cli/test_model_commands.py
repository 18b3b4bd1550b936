"""Commands that use a model, end to end on a small store: predict, evaluate, certify and inspect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Bigsvm


def test_predict_to_standard_output(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    said = bigsvm("predict", model, store)
    assert said.code == 0
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["row"] for row in rows] == list(range(1500))
    assert {row["label"] for row in rows} <= {-1, 1}
    assert bigsvm("predict", model, store, "--json").code == 2
    assert bigsvm("predict", model, store, "--format", "parquet").code == 2


def test_predict_to_files(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    for name in ("o.jsonl", "o.csv", "o.parquet", "o.zarr"):
        said = bigsvm("predict", model, store, "-o", name, "--json")
        assert said.code == 0
        assert said.document["result"]["n_samples"] == 1500
        assert sum(said.document["result"]["label_counts"].values()) == 1500
    assert bigsvm("predict", model, store, "-o", "o.csv").code == 73
    assert "rows" in bigsvm("predict", model, store, "-o", "o.csv", "--overwrite", "--scores").out
    assert Path("o.csv").read_text().count(",") == 1500


def test_predict_reads_standard_input(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    assert bigsvm("dump", store, "a.svm").code == 0
    expected = bigsvm("predict", model, "a.svm", "--format", "csv").out
    program = [sys.executable, "-c", "from bigsvm.cli.main import main; main()"]
    with open("a.svm", "rb") as text:
        done = subprocess.run(
            [*program, "predict", str(model), "-", "--format", "csv", "--quiet"],
            stdin=text, capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert done.stdout == expected


def test_predict_of_what_is_not_there(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    assert bigsvm("predict", "none.model", store).code == 66
    assert bigsvm("predict", model, "none.svm").code == 66


def test_evaluate(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    said = bigsvm("evaluate", model, store, "--json", "--memory", "32MiB")
    assert said.code == 0
    result = said.document["result"]
    assert 0.9 < result["accuracy"] <= 1.0
    assert 0.9 < result["roc_auc"] <= 1.0
    assert sum(map(sum, result["confusion_matrix"])) == 1500
    assert "confusion matrix" in bigsvm("evaluate", model, store).out


def test_certify(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    said = bigsvm("certify", model, store, "--json")
    assert said.code == 0
    result = said.document["result"]
    assert result["certificate"] == "proved"
    assert 0 <= result["relative_gap"] <= 1e-3
    assert "relative gap" in bigsvm("certify", model, store).out


@pytest.mark.parametrize(("mark", "shows"), [("history.jsonl", "history"), ("search.json", "plot")])
def test_what_another_command_shows_is_named(bigsvm: Bigsvm, tmp_path: Path, mark: str, shows: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / mark).touch()
    assert f"show it with bigsvm {shows} folder" in bigsvm("inspect", "folder").err
    assert "bigsvm plot shows a search" in bigsvm("watch", "folder", "--once").err
    assert "bigsvm plot shows a search" in bigsvm("report", "folder", "--text").err


def test_inspect_a_store_a_model_and_a_run(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    kinds = {"store": store, "model": model, "run": model.with_name("small.model.run")}
    for kind, path in kinds.items():
        said = bigsvm("inspect", path, "--json")
        assert said.code == 0
        assert said.document["result"]["kind"] == kind
        assert f"a {kind}" in bigsvm("inspect", path).out
    result = bigsvm("inspect", store, "--json").document["result"]
    assert result["n_samples"] == 1500
    assert sum(result["class_counts"].values()) == 1500
    assert bigsvm("inspect", "none").code == 66


def test_what_is_not_a_model_is_named_as_what_it_is(bigsvm: Bigsvm, store: Path, model: Path, tmp_path: Path) -> None:
    run, file, typo = model.with_name("small.model.run"), tmp_path / "people.csv", model.with_name("small.modle")
    file.write_text("x,label\n1,no\n")
    registry = tmp_path / "registry"
    assert bigsvm("promote", registry, model).code == 0
    for named, hint in (
        (registry, f"this is a registry, and its current model is {registry / 'current'}"),
        (run, f"this is the record of a run, and its model is {model}"),
        (store, "this is a store, and a model is a folder with model.json"),
        (file, "this is a file, and a model is a folder with model.json"),
        (typo, f"did you mean {model}?"),
        (tmp_path, "a model is a folder with model.json"),
    ):
        said = bigsvm("evaluate", named, store)
        assert (said.code, len(said.err.splitlines())) == (66, 1)
        assert f"{named}: no model here ({hint})" in said.err


@pytest.mark.parametrize("command", ["resume", "watch", "plot"])
def test_what_is_not_a_run_is_answered_with_one_that_is(bigsvm: Bigsvm, model: Path, command: str) -> None:
    run = model.with_name("small.model.run")
    for named, hint in (
        (model, f"is it {run}?"),
        (run.with_name("small.model.rum"), f"did you mean {run}?"),
        (Path("."), "a run is a folder with run.json, such as MODEL.run"),
    ):
        said = bigsvm(command, named)
        assert (said.code, len(said.err.splitlines())) == (66, 1)
        assert f"{named}: no record of a run here ({hint}" in said.err
