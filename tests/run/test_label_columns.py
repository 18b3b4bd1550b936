"""Which column the labels of a model came from, and what is said where rows with other labels are given to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigsvm
from bigsvm.errors import DataError
from bigsvm.events import Warned
from bigsvm.run.apply.evaluate import evaluate
from tests.cli.conftest import Bigsvm
from tests.cli.conftest import bigsvm as command
from tests.store.formats import anndata

__all__ = ["command"]


def table(folder: Path, form: str) -> Path:
    """Two columns of features, two columns of labels that differ, a weight."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2)).astype(np.float32)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    labels = {"label": np.where(X[:, 0] > 0, "yes", "no"), "other": np.where(X[:, 1] > 0, "yes", "no")}
    labels["three"] = np.where(X[:, 1] > 1, "c", labels["other"])
    path = folder / f"rows.{form}"
    if form == "h5ad":
        pytest.importorskip("h5py")
    if form in ("zarr", "h5ad"):
        return anndata(path, {"X": X, **{f"obs/{name}": (values == "yes") * 1 for name, values in labels.items()}})
    frame = frame.assign(**labels, heft=rng.uniform(0.5, 2.0, 80))
    frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path)
    return path


def opened(path: Path, label: str | None, **more: Any) -> Any:
    return bigsvm.open_store(
        path, label=label, **({} if path.suffix in (".zarr", ".h5ad") else {"columns": ("a", "b")}), **more
    )


@pytest.mark.parametrize("form", ["csv", "parquet", "zarr", "h5ad"])
@pytest.mark.parametrize("measured", [None, "label", "other"])
@pytest.mark.parametrize("trained", [None, "label", "other"])
def test_labels_of_another_column_are_told(
    trained: str | None, measured: str | None, form: str, tmp_path: Path
) -> None:
    """It was measured on the column `label` without a word, whatever column the model had learned."""
    path = table(tmp_path, form)
    bigsvm.fit(opened(path, trained)).model.save(tmp_path / "model")
    model = bigsvm.load_model(tmp_path / "model")
    said: list[str] = []
    evaluate(
        model, opened(path, measured), bigsvm.config.FitConfig(),
        lambda event: said.append(event.message) if isinstance(event, Warned) else None,
    )  # fmt: skip
    # Stores of Zarr and AnnData call the labels `label` that `ingest` wrote, whatever the column was called.
    others = trained == "other" and measured != "other" and form in ("csv", "parquet")
    assert [text for text in said if "labels of column" in text] == (
        ["the model was trained on the labels of column other, and these are of column label (see --label)"]
        if others else []
    )  # fmt: skip


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("lacks", ["label", "classes", "weight"])
def test_a_certificate_of_other_labels_or_weights_names_the_remedy(kernel: str, lacks: str, tmp_path: Path) -> None:
    path = table(tmp_path, "csv")
    label = "three" if lacks == "classes" else "other"
    result = bigsvm.fit(opened(path, label, weight="heft" if lacks == "weight" else None), kernel=kernel)
    result.save_model(tmp_path / "model")
    with pytest.raises(DataError) as caught:
        bigsvm.certify(tmp_path / "model", opened(path, label if lacks == "weight" else "label"))
    assert "with the same label and weight as for fit" in caught.value.hint


@pytest.mark.parametrize(  # classes of the CSV file are text, which LIBLINEAR does not have
    ("to", "form"), [("onnx", "csv"), ("onnx", "zarr"), ("npz", "csv"), ("npz", "zarr"), ("liblinear", "zarr")]
)
def test_a_model_of_a_named_column_is_exported(to: str, form: str, tmp_path: Path) -> None:
    """The name of the column was taken for a step that no format can hold."""
    if to == "onnx":
        pytest.importorskip("onnx")
    path = table(tmp_path, form)
    store = opened(path, "other", **({} if form == "zarr" else {"label_map": {"yes": "1", "no": "0"}}))
    model = bigsvm.fit(store).model
    assert model.about["rows"]["label_column"] == "other"
    bigsvm.export_model(model, tmp_path / f"model.{to}", format=to)


def test_one_class_and_ingested_labels_are_not_told_of(tmp_path: Path) -> None:
    path, said = table(tmp_path, "csv"), []
    bigsvm.ingest(path, tmp_path / "made.zarr", label="other", columns=("a", "b"))

    def note(event: Any) -> None:
        said.extend([event.message] if isinstance(event, Warned) and "of column" in event.message else [])

    config, signs = bigsvm.config.FitConfig(), {"yes": "1", "no": "-1"}
    evaluate(bigsvm.fit(opened(path, "other")).model, bigsvm.open_store(tmp_path / "made.zarr"), config, note)
    outliers = bigsvm.fit(opened(path, "other", label_map=signs), loss="one_class", kernel="rbf").model
    evaluate(outliers, opened(path, "label", label_map=signs), config, note)
    assert said == []


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("form", ["csv", "parquet", "zarr", "h5ad", "arrays"])
def test_inspect_names_the_column(form: str, kernel: str, tmp_path: Path, command: Bigsvm) -> None:
    """The model remembered it, and `inspect` did not show it."""
    store: Any = (np.eye(4), [0, 1, 0, 1]) if form == "arrays" else opened(table(tmp_path, form), "other")
    bigsvm.fit(store, kernel=kernel).save_model(tmp_path / "model")
    name = None if form == "arrays" else "other"
    as_json, as_text = (
        command("inspect", str(tmp_path / "model"), "--json"),
        command("inspect", str(tmp_path / "model")),
    )
    assert as_json.document["result"]["label_column"] == name
    lines = [line.split() for line in as_text.out.splitlines() if "label column" in line]
    assert lines == ([] if name is None else [["label", "column", name]])
