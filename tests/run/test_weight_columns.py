"""Which column the weights of a model came from, and what is said where rows with other weights are given to it."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigsvm
from bigsvm.errors import DataError
from bigsvm.events import Warned
from bigsvm.model.named_columns import weight_column_of
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.proof.certify import certify_model
from tests.cli.conftest import Bigsvm
from tests.cli.conftest import bigsvm as command
from tests.model_documents import read, write
from tests.store.formats import anndata

__all__ = ["command"]

FORMS = ["csv", "arrow", "parquet", "zarr", "h5ad"]
WEIGHTS = ["weight", "heft", "same", "2"]
"""`same` holds the values of `heft`.  The last name is a number, too, of another column."""
CONFIG = bigsvm.config.FitConfig()


def table(folder: Path, form: str, without: str = "") -> Path:
    rng = np.random.default_rng(0)
    X, label = rng.standard_normal((40, 2)), np.arange(40) % 2
    weights = dict(zip(WEIGHTS, rng.uniform(0.5, 2.0, (4, 40)), strict=True))
    weights["same"] = weights["heft"]
    weights = {name: values for name, values in weights.items() if name != without}
    path = folder / f"rows.{form}"
    if form in ("zarr", "h5ad"):
        if form == "h5ad":
            pytest.importorskip("h5py")
        columns = {"label": label, **weights}
        return anndata(path, {"X": X, **{f"obs/{name}": values for name, values in columns.items()}})
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": label, **weights})
    {"csv": functools.partial(frame.to_csv, index=False), "arrow": frame.to_feather}.get(form, frame.to_parquet)(path)
    return path


def opened(path: Path, weight: str | None, **more: Any) -> Any:
    if path.suffix in (".zarr", ".h5ad"):
        return bigsvm.open_store(path, weight=weight, **more)
    if weight == "2" and path.suffix != ".parquet":  # in tables, which have numbers of columns, too
        weight = "-1"
    return bigsvm.open_store(path, weight=weight, columns=("a", "b"), **more)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Any, Path]]:
    """(form, weight) -> a store with these weights, and where the model of it is saved."""
    pytest.importorskip("h5py")
    folder, found = tmp_path_factory.mktemp("everything"), {}
    for form in FORMS:
        path = table(folder, form)
        for weight in WEIGHTS:
            store = opened(path, weight)
            bigsvm.fit(store).save_model(folder / f"{form}.{weight}")
            found[form, weight] = store, folder / f"{form}.{weight}"
    return found


ALL = [*itertools.product(FORMS, WEIGHTS)]


@pytest.mark.parametrize(("form", "weight"), ALL)
def test_every_command_takes_the_weights_of_the_model(
    form: str, weight: str, everything: dict[Any, Any], command: Bigsvm
) -> None:
    """`certify` asked for --weight again, and `evaluate` measured with other weights in silence."""
    store, saved = everything[form, weight]
    found = bigsvm.certify(saved, store.uri)
    assert (found["certificate"], "warnings" in found) == ("proved", False)
    about = bigsvm.load_model(saved).about["rows"]
    assert about["weight_column"] == weight
    assert bigsvm.open_store(store.uri, like=about).identity == store.identity
    for name in ("certify", "evaluate"):
        done = command(name, str(saved), store.uri, "--json")
        assert (done.code, done.document["warnings"]) == (0, [])
    assert done.document["result"]["weighted"]


def said(run: Any, about: str = "of column") -> list[str]:
    found: list[str] = []
    run(lambda event: found.append(event.message) if isinstance(event, Warned) else None)
    return [text for text in found if about in text]


@pytest.mark.parametrize(("form", "trained"), ALL)
def test_weights_of_another_column_are_told(form: str, trained: str, everything: dict[Any, Any]) -> None:
    """Of a proof, too, that says only that another column has the same weights."""
    _, saved = everything[form, trained]
    model = bigsvm.load_model(saved)
    for (_, measured), (store, _) in everything.items():
        text = f"the model was trained with the weights of column {trained}, and these are of column {measured}"
        expected = [f"{text} (see --weight)"] if trained != measured else []
        assert said(lambda note, store=store: evaluate(model, store, CONFIG, note)) == expected
        if {trained, measured} in ({trained}, {"heft", "same"}):
            assert certify_model(saved, store, CONFIG).get("warnings", []) == expected
            continue
        with pytest.raises(DataError, match="is not what the model was trained on") as caught:
            certify_model(saved, store, CONFIG)
        assert "with the same --label and --weight as for fit" in caught.value.hint
        assert said(lambda note, store=store: _refused(saved, store, note)) == expected


def _refused(saved: Path, store: Any, note: Any) -> None:
    with pytest.raises(DataError):
        certify_model(saved, store, CONFIG, note)


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_the_column_of_the_model_have_the_usual_one(
    form: str, everything: dict[Any, Any], tmp_path: Path, command: Bigsvm
) -> None:
    store, saved = everything[form, "heft"]
    path = str(table(tmp_path, form, without="heft"))
    done = command("evaluate", str(saved), path, "--json")
    told = "the model was trained with the weights of column heft, and these are of column weight (see --weight)"
    assert (done.code, done.document["warnings"], done.document["result"]["weighted"]) == (0, [told], True)
    done = command("certify", str(saved), path, "--json")
    assert done.code == 65
    assert "is not what the model was trained on" in done.document["error"]["message"]
    asked = command("evaluate", str(saved), store.uri, "--weight", "missing", "--json")
    assert asked.code == 65
    assert "missing" in asked.document["error"]["message"] + asked.document["error"]["where"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", ["split", "rows", "missing", "scale", "label_map", "positive"])
def test_a_column_keeps_its_name_in_rows_that_are_changed(change: str, form: str, everything: dict[Any, Any]) -> None:
    chosen: dict[str, Any] = {
        "split": {"split": 0.5}, "rows": {"rows": "label is not null"}, "missing": {"missing": "drop"},
        "scale": {"scale": "maxabs"}, "label_map": {"label_map": {"1": "5"}}, "positive": {"positive": "1"},
    }[change]  # fmt: skip
    assert weight_column_of(opened(Path(everything[form, "heft"][0].uri), "heft", **chosen)) == "heft"


def test_what_has_no_name_is_not_told_of(everything: dict[Any, Any]) -> None:
    store, saved = everything["csv", "heft"]
    rng = np.random.default_rng(0)
    made: Any = bigsvm.open_store((rng.standard_normal((40, 2)), np.arange(40) % 2, rng.uniform(0.5, 2.0, 40)))
    assert (made.has_weights, weight_column_of(made)) == (True, "")
    assert said(lambda note: evaluate(bigsvm.load_model(saved), made, CONFIG, note)) == []
    model = bigsvm.fit(made).model
    assert "weight_column" not in model.about.get("rows", {})
    assert said(lambda note: evaluate(model, store, CONFIG, note)) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weight", ["weight", "heft"])
def test_ingest_records_where_weights_came_from(
    weight: str, form: str, everything: dict[Any, Any], tmp_path: Path, command: Bigsvm
) -> None:
    """It calls them `weight`: a model of the store did not find `heft` where the rows came from."""
    store, saved = everything[form, weight]
    made, again = str(tmp_path / "made.zarr"), str(tmp_path / "again.zarr")
    bigsvm.ingest(store, made)
    bigsvm.ingest(made, again)
    bigsvm.ingest(store, again, append=True)
    named = weight if weight != "weight" else ""
    for path in (made, again):
        assert weight_column_of(bigsvm.open_store(path)) == named
        assert bigsvm.open_store(path, weight=weight).identity == bigsvm.open_store(path).identity
    bigsvm.fit(made).save_model(tmp_path / "model")
    assert bigsvm.load_model(tmp_path / "model").about.get("rows", {}).get("weight_column", "") == named
    for model, path in itertools.product((saved, tmp_path / "model"), (store.uri, made)):
        for name in ("certify", "evaluate"):
            done = command(name, str(model), path, "--json")
            told = [text for text in done.document["warnings"] if "column" in text]
            assert (done.code, told) == (0, []), (name, model, path)
    other = everything[form, "2"][0]
    assert len(said(lambda note: evaluate(bigsvm.load_model(tmp_path / "model"), other, CONFIG, note))) == bool(named)
    with pytest.raises(DataError):
        bigsvm.open_store(made, weight="same")  # which has the values of `heft`, but not its name


@pytest.mark.parametrize("form", ["csv", "zarr"])
def test_inspect_names_the_column_and_exports_go_without(
    form: str, everything: dict[Any, Any], tmp_path: Path, command: Bigsvm
) -> None:
    saved = everything[form, "heft"][1]
    assert command("inspect", str(saved), "--json").document["result"]["weight_column"] == "heft"
    lines = [line.split() for line in command("inspect", str(saved)).out.splitlines() if "weight column" in line]
    assert lines == [["weight", "column", "heft"]]
    bigsvm.export_model(saved, tmp_path / "model.liblinear", format="liblinear")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_one_class_models_have_weights_too(form: str, tmp_path: Path) -> None:
    path = table(tmp_path, form)
    result = bigsvm.fit(opened(path, "heft"), loss="one_class", kernel="rbf")
    result.save_model(tmp_path / "model")
    kept = result.model.about["rows"]
    assert (kept["weight_column"], "label_column" in kept) == ("heft", False)
    assert bigsvm.certify(tmp_path / "model", path)["certificate"] == "proved"


def with_and_without(form: str, folder: Path, weighted: bool) -> tuple[Any, str]:
    """A store of 40 rows, with weights or without; and what is said of the weights after the word `weights`."""
    rng = np.random.default_rng(0)
    X, label, weights = rng.standard_normal((40, 2)), np.arange(40) % 2, rng.uniform(0.5, 2.0, 40)
    if form == "arrays":
        return bigsvm.open_store((X, label, weights) if weighted else (X, label)), ""
    if form == "ingested":
        bigsvm.ingest((X, label), folder / "rows.zarr", sample_weight=weights if weighted else None)
        return bigsvm.open_store(folder / "rows.zarr"), ""
    columns = {"label": label, **({"weight": weights} if weighted else {})}
    if form == "zarr":
        path = anndata(folder / "rows.zarr", {"X": X, **{f"obs/{name}": column for name, column in columns.items()}})
        return bigsvm.open_store(path), "weight"
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns}).to_csv(folder / "rows.csv", index=False)
    return bigsvm.open_store(folder / "rows.csv"), "weight"


@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "plain"])
@pytest.mark.parametrize("form", ["arrays", "ingested", "zarr", "csv"])
def test_weights_on_one_side_only_are_told(form: str, weighted: bool, tmp_path: Path) -> None:
    """Whatever the rows are made of: metrics that count rows in another way than the fit did said nothing of it."""
    (tmp_path / "fit").mkdir()
    store, column = with_and_without(form, tmp_path / "fit", weighted)
    model = bigsvm.fit(store).model
    model.save(tmp_path / "model")
    text = str(tmp_path / "rows.svm")
    Path(text).write_text("0 1:1 2:1\n1 1:-1\n")
    measured: list[tuple[str, Any, bool, str]] = [("text", text, False, "")]
    for other, here in itertools.product(["arrays", "ingested", "zarr", "csv"], [True, False]):
        (tmp_path / f"{other}{here}").mkdir()
        rows, name = with_and_without(other, tmp_path / f"{other}{here}", here)
        measured.append((other, rows, here, name))
    for other, rows, here, name in measured:
        told = said(
            lambda note, rows=rows: evaluate(bigsvm.load_model(tmp_path / "model"), rows, CONFIG, note), "weights"
        )
        expected = []
        if weighted and not here:
            which = f"the weights of column {column}" if column else "weights of rows"
            remedy = "give (X, y, weights)" if other == "arrays" else "see --weight, which ingest has, too"
            expected = [f"the model was trained with {which}, and these rows have none: each counts as 1 ({remedy})"]
        if here and not weighted:
            which = f"their weights (column {name})" if name else "their weights"
            expected = [
                f"the model was trained without weights of rows, and these rows count by {which}: "
                "train with them, or " + ("give (X, y)" if other == "arrays" else "read rows without: --weight ''")
            ]
        assert told == expected, (other, here)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_proof_of_rows_with_weights_of_1_tells_them_too(weighted: bool, tmp_path: Path) -> None:
    """Such a proof holds: a weight of 1 is that of a row without one."""
    X, label = np.random.default_rng(0).standard_normal((40, 2)), np.arange(40) % 2
    both = {True: (X, label, np.ones(40)), False: (X, label)}
    bigsvm.fit(both[weighted]).save_model(tmp_path / "model")
    assert "warnings" not in bigsvm.certify(tmp_path / "model", both[weighted])
    found = bigsvm.certify(tmp_path / "model", both[not weighted])
    assert (found["certificate"], len(found["warnings"])) == ("proved", 1)
    # A model of an earlier release knows no more than the name of a column, if there is one.
    document = read(tmp_path / "model")
    del document["weighted"]
    write(tmp_path / "model", document)
    assert "warnings" not in bigsvm.certify(tmp_path / "model", both[not weighted])
    write(tmp_path / "model", {**document, "rows": {"weight_column": "heft"}})
    assert len(bigsvm.certify(tmp_path / "model", both[False]).get("warnings", [])) == 1
