"""Which column the labels of a model came from, and what is said where rows with other labels are given to it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigsvm
from bigsvm.errors import DataError
from bigsvm.events import Warned
from bigsvm.model.named_columns import label_column_of
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.proof.certify import certify_model
from tests.cli.conftest import Bigsvm
from tests.cli.conftest import bigsvm as command
from tests.store.formats import anndata

__all__ = ["command"]


def table(folder: Path, form: str) -> Path:
    """Two columns of features, two columns of labels that differ, a weight."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    labels = {"label": np.where(X[:, 0] > 0, "yes", "no"), "other": np.where(X[:, 1] > 0, "yes", "no")}
    labels["three"] = np.where(X[:, 1] > 1, "c", labels["other"])
    path = folder / f"rows.{form}"
    if form == "h5ad":
        pytest.importorskip("h5py")
    if form in ("zarr", "h5ad"):
        return anndata(path, {"X": X, **{f"obs/{name}": (values == "yes") * 1 for name, values in labels.items()}})
    frame = frame.assign(**labels, heft=rng.uniform(0.5, 2.0, 80))
    {"csv": functools.partial(frame.to_csv, index=False), "arrow": frame.to_feather}.get(form, frame.to_parquet)(path)
    return path


def opened(path: Path, label: str | None, **more: Any) -> Any:
    return bigsvm.open_store(
        path, label=label, **({} if path.suffix in (".zarr", ".h5ad") else {"columns": ("a", "b")}), **more
    )


def ingested(source: Any, folder: Path, label: str, **options: Any) -> Any:
    out = folder / f"{label}.zarr"
    bigsvm.ingest(source, out, label=label, **options)
    return bigsvm.open_store(out)


def made(form: str, folder: Path, label: str) -> Any:
    """The rows of `table` with these labels: read where they lie, or from a store that `ingest` wrote of them."""
    at, _, how = form.partition(" ")
    if at in ("csv", "parquet", "arrow", "zarr", "h5ad"):
        path = folder / f"rows.{at}"
        if not path.exists():
            table(folder, at)
        chosen = {} if at in ("zarr", "h5ad") else {"columns": ("a", "b")}
        return ingested(path, folder, label, **chosen) if how else opened(path, label)
    frame = pd.read_csv(table(folder, "csv"))
    X, y = np.ascontiguousarray(frame[["a", "b"]]), (frame[label] == "yes").to_numpy() * 1
    if at == "npz":
        np.savez(folder / "rows.npz", X=X, **{label: y})
        return ingested(folder / "rows.npz", folder, label)
    if at == "npy":
        np.save(folder / "X.npy", X)
        np.save(folder / f"{label}.npy", y)
        bigsvm.ingest(folder / "X.npy", folder / f"{label}.zarr", label=str(folder / f"{label}.npy"))
        return bigsvm.open_store(folder / f"{label}.zarr")
    if at == "svmlight":
        lines = [f"{one} 1:{a} 2:{b}" for one, (a, b) in zip(y, X, strict=True)]
        (folder / f"{label}.svm").write_text("\n".join(lines))
        bigsvm.ingest(folder / f"{label}.svm", folder / f"{label}.zarr")
        return bigsvm.open_store(folder / f"{label}.zarr")
    return bigsvm.open_store((X, y))


KNOWN = ["csv", "parquet", "arrow", "zarr", "h5ad"]
UNKNOWN = [*(f"{form} ingested" for form in KNOWN), "npz", "npy", "svmlight", "arrays"]
LABELS = ["label", "other"]


def told_of(run: Callable[[Any], Any]) -> list[str]:
    """The warnings about columns."""
    said: list[str] = []

    def note(event: Any) -> None:
        said.extend([event.message] if isinstance(event, Warned) and "of column" in event.message else [])

    run(note)
    return said


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Any, Any, Path]]:
    """(form, label) -> a store with these labels, the model of it, and where that is saved."""
    pytest.importorskip("h5py")
    folder, found = tmp_path_factory.mktemp("everything"), {}
    for k, (form, label) in enumerate(itertools.product([*KNOWN, *UNKNOWN], LABELS)):
        (folder / str(k)).mkdir()
        store = made(form, folder / str(k), label)
        bigsvm.fit(store).save_model(folder / f"{k}.model")
        found[form, label] = store, bigsvm.load_model(folder / f"{k}.model"), folder / f"{k}.model"
    return found


@pytest.mark.parametrize("trained", [*itertools.product([*KNOWN, *UNKNOWN], LABELS)], ids=" ".join)
def test_labels_of_another_column_are_told(trained: tuple[str, str], everything: dict[Any, Any]) -> None:
    """Zarr stores, AnnData and models of the usual column were measured on others without a word."""
    model, config = everything[trained][1], bigsvm.config.FitConfig()
    for measured, (store, _, _) in everything.items():
        said = told_of(lambda note, store=store: evaluate(model, store, config, note))
        # `ingest` records a name that is not the usual one.
        known = all(form in KNOWN or ("ingested" in form and label == "other") for form, label in (trained, measured))
        text = f"the model was trained on the labels of column {trained[1]}, and these are of column {measured[1]}"
        assert said == ([f"{text} (see --label)"] if known and trained[1] != measured[1] else []), measured


@pytest.mark.parametrize("trained", LABELS)
@pytest.mark.parametrize("form", KNOWN)
def test_every_command_takes_the_labels_of_the_model(
    form: str, trained: str, everything: dict[Any, Any], command: Bigsvm
) -> None:
    """`certify` and `evaluate` asked for a column `label`, or took it, though the model knows the name of its own."""
    store, model, saved = everything[form, trained]
    found = bigsvm.certify(saved, store.uri)
    assert (found["certificate"], found["n_samples"], "warnings" in found) == ("proved", 80, False)
    assert bigsvm.open_store(store.uri, like=model.about["rows"]).identity == store.identity
    for name in ("certify", "evaluate"):
        done = command(name, str(saved), store.uri, "--json")
        assert (done.code, done.document["warnings"]) == (0, [])


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "zarr", "h5ad"])
def test_a_table_without_the_column_of_the_model_has_the_usual_one(
    form: str, everything: dict[Any, Any], tmp_path: Path, command: Bigsvm
) -> None:
    saved = everything["csv", "other"][2]
    text, n = form in ("csv", "parquet", "arrow"), 12
    labels = np.array(["yes", "no"] * (n // 2)) if text else np.arange(n) % 2
    for column, code in (("label", 0), ("another", 65)):
        path = tmp_path / f"{column}.{form}"
        if form in ("zarr", "h5ad"):
            saved = everything["zarr", "other"][2]
            anndata(path, {"X": np.eye(n, 2), f"obs/{column}": labels})
        else:
            frame = pd.DataFrame({"a": np.eye(n, 2)[:, 0], "b": np.eye(n, 2)[:, 1], column: labels})
            {"csv": functools.partial(frame.to_csv, index=False), "arrow": frame.to_feather}.get(
                form, frame.to_parquet
            )(path)
        done = command("evaluate", str(saved), str(path), "--json")
        assert done.code == code
        if code:
            error = done.document["error"]
            assert "label" in error["message"] + error["where"]
            assert "other" not in error["message"]


@pytest.mark.parametrize("form", ["csv", "arrow", "parquet"])
@pytest.mark.parametrize("there", ["label", "another"])
def test_a_column_whose_name_is_a_number_is_no_other_column_of_that_number(
    there: str, form: str, tmp_path: Path
) -> None:
    """A feature was measured as the labels, without a word."""
    frame = pd.DataFrame({"a": np.arange(6) % 2, "b": np.arange(6) % 3, there: np.arange(6) % 2})
    path = tmp_path / f"rows.{form}"
    {"csv": functools.partial(frame.to_csv, index=False), "arrow": frame.to_feather}.get(form, frame.to_parquet)(path)
    for ours in ("1", "-2"):
        if there == "label":
            store = bigsvm.open_store(path, like={"columns": ["a"], "label_column": ours})
            assert label_column_of(store) == "label"
            continue
        with pytest.raises(DataError, match="no column 'label'"):
            bigsvm.open_store(path, like={"columns": ["a"], "label_column": ours})


@pytest.mark.parametrize("measured", LABELS)
@pytest.mark.parametrize("trained", LABELS)
@pytest.mark.parametrize("form", KNOWN)
def test_certify_tells_it_too(form: str, trained: str, measured: str, everything: dict[Any, Any]) -> None:
    _, model, path = everything[form, trained]
    store, config = everything[form, measured][0], bigsvm.config.FitConfig()

    def run(note: Any) -> None:
        if trained == measured:
            assert "warnings" not in certify_model(path, store, config, note)
            return
        with pytest.raises(DataError):
            certify_model(path, store, config, note)

    assert model.about["rows"]["label_column"] == trained
    assert bool(told_of(run)) == (trained != measured)


def test_a_proof_on_the_same_labels_in_another_column_says_so(tmp_path: Path) -> None:
    path = table(tmp_path, "csv")
    frame = pd.read_csv(path)
    frame.assign(copied=frame["label"]).to_csv(path, index=False)
    bigsvm.fit(opened(path, "label")).save_model(tmp_path / "model")
    found = bigsvm.certify(tmp_path / "model", opened(path, "copied"))
    assert found["certificate"] == "proved"
    assert found["warnings"] == [
        "the model was trained on the labels of column label, and these are of column copied (see label)"
    ]


@pytest.mark.parametrize("form", KNOWN)
@pytest.mark.parametrize("change", ["split", "rows", "missing", "scale", "label_map", "positive"])
def test_a_column_keeps_its_name_in_rows_that_are_changed(change: str, form: str, everything: dict[Any, Any]) -> None:
    uri = everything[form, "other"][0].uri
    yes = "yes" if form in ("csv", "parquet", "arrow") else "1"
    chosen: dict[str, Any] = {
        "split": {"split": 0.5}, "rows": {"rows": "label is not null"}, "missing": {"missing": "drop"},
        "scale": {"scale": "maxabs"}, "label_map": {"label_map": {yes: "5"}}, "positive": {"positive": yes},
    }[change]  # fmt: skip
    assert label_column_of(opened(Path(uri), "other", **chosen)) == "other"


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_rows_with_several_labels_have_no_column_of_them(form: str, tmp_path: Path) -> None:
    path = table(tmp_path, form)
    store = bigsvm.open_store(path, labels="three", columns=("a", "b"))
    assert label_column_of(store) == ""
    assert "label_column" not in bigsvm.fit(store).model.about["rows"]


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


@pytest.mark.parametrize("label", ["label", "other"])
@pytest.mark.parametrize("form", KNOWN)
def test_ingest_records_where_labels_came_from(
    form: str, label: str, everything: dict[Any, Any], tmp_path: Path
) -> None:
    """It calls them `label`: a model of the store asked for --label where the rows came from."""
    store = everything[form, label][0]
    made, named = tmp_path / "made.zarr", label if label != "label" else ""
    bigsvm.ingest(store, made)
    assert label_column_of(bigsvm.open_store(made)) == named
    assert bigsvm.open_store(made, label=label).identity == bigsvm.open_store(made).identity
    bigsvm.fit(made).save_model(tmp_path / "model")
    for path in (store.uri, made):
        found = bigsvm.certify(tmp_path / "model", path)
        assert (found["certificate"], "warnings" in found) == ("proved", False)
    bigsvm.ingest(bigsvm.open_store(made), made, append=True)  # open rows that are like the former ones
    with pytest.raises(DataError):
        bigsvm.ingest(bigsvm.open_store(made, scale="maxabs"), made, append=True)


def test_one_class_and_ingested_labels_are_not_told_of(tmp_path: Path) -> None:
    path, said = table(tmp_path, "csv"), []
    bigsvm.ingest(path, tmp_path / "made.zarr", label="other", columns=("a", "b"))

    def note(event: Any) -> None:
        said.extend([event.message] if isinstance(event, Warned) and "of column" in event.message else [])

    config, signs = bigsvm.config.FitConfig(), {"yes": "1", "no": "-1"}
    evaluate(bigsvm.fit(opened(path, "other")).model, bigsvm.open_store(tmp_path / "made.zarr"), config, note)
    outliers = bigsvm.fit(opened(path, "other", label_map=signs), loss="one_class", kernel="rbf").model
    assert "label_column" not in outliers.about["rows"]
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
