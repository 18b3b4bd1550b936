"""Labels under other names: one class against the others, and classes that are merged, as the model keeps them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, DataError, UsageError
from bigsvm.events import Warned
from bigsvm.model.exchange.exchange import export_model
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.transforms.relabelled import Relabel

RNG = np.random.default_rng(2)
X = RNG.standard_normal((240, 3))
y = np.where(X[:, 0] > 0.3, 3, np.where(X[:, 1] > 0, 20, 1))
OPTIONS: dict[str, Any] = {"C": 1.0, "tol": 1e-3}


@pytest.mark.parametrize(
    ("labels", "relabel", "wanted"),
    [
        ([1, 3, 20], Relabel(positive="3"), [False, True, False]),
        ([1, 3, 20], Relabel(positive="3.0"), [False, True, False]),
        ([0.5, 1.0], Relabel(positive="1"), [False, True]),
        (["a", "b"], Relabel(positive="b"), [False, True]),
        ([False, True], Relabel(positive="false"), [True, False]),
        ([False, True], Relabel(positive="True"), [False, True]),
        ([False, True], Relabel(positive="1.0"), [False, True]),
        ([0, 1], Relabel(positive="true"), [False, True]),
        ([0.0, 1.0], Relabel((("False", "no"),)), ["no", "1.0"]),
        ([1, 3, 20], Relabel((("1", "3"),)), [3, 3, 20]),
        ([1, 3, 20], Relabel((("1", "3"), ("3", "1"))), [3, 1, 20]),
        ([1, 3, 20], Relabel((("1", "low"), ("3", "low")), "low"), [True, True, False]),
        (["a", "b", "c"], Relabel((("a", "1"), ("b", "-2"), ("c", "1"))), [1, -2, 1]),
        (["a", "b", "c"], Relabel((("a", "1"),)), ["1", "b", "c"]),
    ],
)
def test_labels_become_others(labels: list[Any], relabel: Relabel, wanted: list[Any]) -> None:
    assert relabel.apply(np.array(labels)).tolist() == wanted
    assert Relabel.of(json.loads(json.dumps(relabel.document()))) == relabel
    assert relabel.unknown(np.array(labels)) is None


def test_a_model_of_one_class_is_that_of_labels_which_say_it(tmp_path: Path) -> None:
    ingest((X, y), tmp_path / "rows.zarr")
    wanted = bigsvm.fit(X, y == 3, **OPTIONS)
    found = bigsvm.fit(tmp_path / "rows.zarr", positive="3", **OPTIONS)
    assert (found.model.classes.tolist(), found.model.coef.tolist()) == ([False, True], wanted.model.coef.tolist())
    assert bigsvm.fit(X, y, positive="3", **OPTIONS).model.coef.tolist() == wanted.model.coef.tolist()
    found.save_model(tmp_path / "m.model")
    assert bigsvm.certify(tmp_path / "m.model", tmp_path / "rows.zarr")["relative_gap"] <= 1e-3
    with pytest.raises(DataError):
        bigsvm.certify(tmp_path / "m.model", (X, y != 3))
    rows = pickle.loads(pickle.dumps(bigsvm.open_store(tmp_path / "rows.zarr", positive="3")))
    others = bigsvm.open_store(tmp_path / "rows.zarr", positive="1")
    assert rows.classes.tolist() == [False, True]
    assert len({rows.identity, others.identity, bigsvm.open_store(tmp_path / "rows.zarr").identity}) == 3
    ingest(rows, tmp_path / "said.zarr")  # under its own labels, which are not changed a second time
    again = bigsvm.fit(tmp_path / "said.zarr", **OPTIONS)
    assert again.model.coef.tolist() == wanted.model.coef.tolist()
    assert bigsvm.open_store(tmp_path / "said.zarr", like=found.model.about["rows"]).classes.tolist() == [False, True]


def test_rows_to_evaluate_are_relabelled_as_the_model_was(tmp_path: Path) -> None:
    ingest((X, y), tmp_path / "rows.zarr")
    lines = (f"{label} " + " ".join(f"{j}:{v:.17g}" for j, v in enumerate(x, 1)) for x, label in zip(X, y, strict=True))
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    for options in ({"positive": "20"}, {"label_map": {"3": "low", "1": "low"}}):
        result = bigsvm.fit(tmp_path / "rows.zarr", **options, **OPTIONS)
        result.save_model(tmp_path / "m.model", overwrite=True)
        model = bigsvm.load_model(tmp_path / "m.model")
        rows = bigsvm.open_store(tmp_path / "rows.zarr", like=model.about["rows"])
        told = [evaluate(model, source, FitConfig.of()) for source in (rows, str(tmp_path / "rows.svm"))]
        predicted = model.predict(X)
        truth = y == 20 if "positive" in options else np.where(y == 20, "20", "low")
        assert set(predicted.tolist()) == set(truth.tolist())
        assert [each["accuracy"] for each in told] == [np.mean(predicted == truth)] * 2
        assert told[0]["confusion_matrix"] == told[1]["confusion_matrix"]


def test_of_a_split_both_sides_are_relabelled() -> None:
    result = bigsvm.fit(X, y, positive="3", split=0.7, **OPTIONS)
    assert result.figures["held_out"]["classes"] == [False, True]


def test_rows_of_other_classes_only_count_as_others(tmp_path: Path) -> None:
    like = bigsvm.fit(X, y, positive="3", **OPTIONS).model.about["rows"]
    rows = bigsvm.open_store((X[y != 3], y[y != 3]), like=like)
    assert rows.classes.tolist() == [False, True]
    assert not rows.read(rows.refs(1000)[0]).y.any()


SAME = {
    "int": lambda found: found.astype(int), "float": lambda found: found.astype(float), "bool": lambda found: found,
    "uint8": lambda found: found.astype(np.uint8), "csv": lambda found: np.where(found, "True", "False"),
}  # fmt: skip
TEXTS = {"True": ("True", "False"), "1": ("1", "0"), "1.0": ("1.0", "0.0"), "yes": ("yes", "no")}


@pytest.mark.parametrize("positive", ["1", "1.0", "true", "True"])
@pytest.mark.parametrize("trained", SAME)
def test_the_same_labels_of_another_type_are_measured_as_the_same(trained: str, positive: str, tmp_path: Path) -> None:
    """Numbers 0 and 1 equal false and true, also where a model keeps the name of a label; texts are told of."""

    def rows_of(kind: str, **options: Any) -> Any:
        labels = SAME[kind](y == 3) if kind in SAME else np.where(y == 3, *TEXTS[kind])
        if kind != "csv":
            return bigsvm.open_store((X, labels), **options)
        lines = [",".join([*map(repr, row), label]) for row, label in zip(X.tolist(), labels.tolist(), strict=True)]
        (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,label", *lines]) + "\n")
        return bigsvm.open_store(tmp_path / "rows.csv", **options)

    model = bigsvm.fit(rows_of(trained, positive=positive), **OPTIONS).model
    right = float(np.mean(model.predict(X) == (y == 3)))
    for kind in (*SAME, *TEXTS):
        told: list[Any] = []
        found = evaluate(model, rows_of(kind, like=model.about["rows"]), FitConfig.of(), told.append)
        warned = [event.message for event in told if isinstance(event, Warned)]
        alarmed = any("no row has the label" in message for message in warned)
        assert not any("ROC AUC" in message for message in warned), "that it is not defined then goes without saying"
        assert (found["accuracy"] == right) != alarmed, kind
        assert kind in TEXTS or not alarmed, kind


def test_true_is_no_name_of_1_among_other_numbers() -> None:
    with pytest.raises(UsageError, match="no label 'true'"):
        bigsvm.open_store((X, y), positive="true")


def test_text_models_hold_labels_by_new_names(tmp_path: Path) -> None:
    result = bigsvm.fit(X, y, label_map={"20": "7", "1": "7"}, **OPTIONS)
    export_model(result.model, tmp_path / "m.txt", "liblinear")
    assert "label 3 7\n" in (tmp_path / "m.txt").read_text().replace("label 7 3", "label 3 7")


def test_a_weight_by_the_name_of_a_class_is_that_of_no_other() -> None:
    labels = np.where(y == 3, 0, y)  # the class 0 is True, and not what a Boolean 0 is
    named = bigsvm.fit(X, labels, positive="0", class_weight={"0": 5.0}, **OPTIONS)
    wanted = bigsvm.fit(X, labels == 0, class_weight={"True": 5.0}, **OPTIONS)
    assert named.model.coef.tolist() == wanted.model.coef.tolist()
    with pytest.raises(UsageError, match="class weight for '1'"):
        bigsvm.fit(X, labels, positive="0", class_weight={"1": 5.0}, **OPTIONS)


def test_a_model_of_all_rows_refuses_a_class() -> None:
    with pytest.raises(UsageError, match="whatever their labels"):
        bigsvm.fit(X, y, positive="3", loss="one_class", kernel="rbf")


BAD: list[tuple[Any, dict[str, Any], type[BigSVMError], str]] = [
    (y, {"positive": "7"}, UsageError, "no label '7' .labels there: 1, 3, 20"),
    (y, {"positive": "three"}, UsageError, "no label 'three'"),
    (y, {"label_map": {"7": "x"}}, UsageError, "no label '7'"),
    (y, {"label_map": {"3": "x"}, "positive": "3"}, UsageError, "labels there: 1, 20, x"),
    (
        y,
        {"label_map": {"3": "x", "1": "z", "3.0": "w"}},
        UsageError,
        "'3' and '3.0' are the same label, but get two names",
    ),
    (y, {"label_map": {"3": "\udcff"}}, UsageError, "new name '.udcff' of a label is not valid Unicode"),
    (y, {"label_map": {"3.0": "x", "+3": "w"}}, UsageError, "are the same label"),
    (X[:, 0], {"positive": "1"}, DataError, "regression"),
    (
        y,
        {"positive": "3", "like": {"labels": Relabel(positive="1").document()}},
        UsageError,
        "the model decides the labels",
    ),
]


@pytest.mark.parametrize(("labels", "options", "kind", "word"), BAD)
def test_what_cannot_be(labels: Any, options: dict[str, Any], kind: type[BigSVMError], word: str) -> None:
    with pytest.raises(kind, match=word):
        bigsvm.open_store((X, labels), **options)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ingest((X, y), tmp_path / "rows.zarr")
    rows, model = str(tmp_path / "rows.zarr"), str(tmp_path / "m.model")
    assert run(["fit", rows, "--label-map", "1=low,3=low", "--positive", "low", "-o", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["classes"] == [False, True]
    assert run(["evaluate", model, rows, "--json"]) == 0
    assert run(["fit", rows, "--label-map", "1low", "-o", model]) == 2
    assert "OLD=NEW" in capsys.readouterr().err
