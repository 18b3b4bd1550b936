"""Rows with several labels: one fit beside a fit for each label, the same in every layout, from training to files."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import zarr

import bigsvm
from bigsvm.cli.main import run
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, DataError, Unsupported, UsageError
from bigsvm.events import Warned
from bigsvm.model.linear_model import load_model
from bigsvm.predictor import load
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.run.apply.row_files import write_rows
from bigsvm.run.fit.plan import make_plan
from bigsvm.store.formats.opener import open_store
from bigsvm.store.transforms import set_rows
from bigsvm.store.transforms.label_sets import sorted_names
from bigsvm.store.transforms.set_rows import SetRows
from tests.store import formats

pytest.importorskip("h5py")

N, D, K = 160, 5, 3
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, D))
Y = (X[:, :K] + 0.4 * RNG.normal(size=(N, K)) > [0.0, 0.3, -0.4]).astype(np.int64)
NAMES = ["A", "B", "C"]
SETS = [",".join(np.array(NAMES)[row > 0]) for row in Y]
OPTIONS = {"tol": 1e-6, "memory": "64MiB", "threads": 1}
CONFIG = FitConfig(memory="64MiB", threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows and labels, written in five ways."""
    place = tmp_path_factory.mktemp("labels")
    content = {
        "X": X, "var/_index": [f"f{j}" for j in range(D)], "obs/A": Y[:, 0] > 0,
        "obs/B": (Y[:, 1].astype(np.int8), ["false", "true"]), "obs/C": Y[:, 2] * 2 - 1, "obs/sets": SETS,
        "obs/number": np.arange(N), "obs/holes": np.where(np.arange(N) == 3, np.nan, Y[:, 0]),
    }  # fmt: skip
    for name in ("rows.zarr", "rows.h5ad"):
        formats.anndata(place / name, content)
    features = {f"f{j}": X[:, j] for j in range(D)}
    table = pa.table({**features, "A": Y[:, 0] > 0, "B": Y[:, 1], "C": Y[:, 2].astype(float)})
    pyarrow.parquet.write_table(table, place / "rows.parquet", row_group_size=30)
    pyarrow.csv.write_csv(table, place / "rows.csv")
    return place


@pytest.fixture(scope="module")
def result():
    """One fit of three labels."""
    return bigsvm.fit(X, Y, **OPTIONS)


def rows_of(folder: Path, name: str, **options):
    return open_store(folder / name, **{"labels": NAMES, **options})


def test_each_label_has_the_optimum_of_a_fit_by_itself(result) -> None:
    assert result.status == "converged"
    assert result.model.coef.shape == (K, D)
    for k in range(K):
        alone = bigsvm.fit(X, Y[:, k], **OPTIONS)
        assert result.certificate.relative_gaps[k] <= 1e-6
        np.testing.assert_allclose(result.certificate.primal[k], alone.certificate.primal[0], rtol=2e-6)
        np.testing.assert_allclose(result.model.coef[k], alone.model.coef[0], atol=1e-3)
    scores = X @ result.model.coef.T + result.model.intercept
    np.testing.assert_allclose(result.model.decision_function(X), scores, atol=1e-12)
    np.testing.assert_array_equal(result.model.predict(X), (scores > 0).astype(int))


@pytest.mark.parametrize("name", ["rows.zarr", "rows.h5ad", "rows.parquet", "rows.csv"])
def test_every_layout_has_the_same_sets_and_content(folder: Path, name: str) -> None:
    store = rows_of(folder, name)
    for rows in (store, pickle.loads(pickle.dumps(store))):
        found = [rows.classes[rows.read(ref).y] for ref in rows.refs(33)]
        assert np.concatenate(found).tolist() == SETS
    fitted = bigsvm.fit(store, **OPTIONS)
    first = bigsvm.fit(rows_of(folder, "rows.zarr"), **OPTIONS)
    assert fitted.figures["content_fingerprint"] == first.figures["content_fingerprint"]
    np.testing.assert_array_equal(fitted.model.coef, first.model.coef)
    assert fitted.model.classes.tolist() == NAMES


def test_a_column_of_sets_is_the_same_as_a_column_for_each_label(folder: Path, result) -> None:
    fitted = bigsvm.fit(rows_of(folder, "rows.zarr", labels=["sets"]), **OPTIONS)
    np.testing.assert_array_equal(fitted.model.coef, result.model.coef)
    assert fitted.model.classes.tolist() == NAMES


def test_a_saved_model_is_proved_again_and_predicts_in_every_form(folder: Path, result, tmp_path: Path) -> None:
    store = rows_of(folder, "rows.parquet")
    fitted = bigsvm.fit(store, **OPTIONS)
    fitted.save_model(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert model.multi_label
    assert model.multi_class == "labels"
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    proved = bigsvm.certify(tmp_path / "model", str(folder / "rows.parquet"), memory="64MiB")
    assert proved["relative_gap"] == fitted.certificate.relative_gap
    assert [one["class"] for one in proved["models"]] == NAMES
    with pytest.raises(DataError, match="the labels A, B, but the model's are A, B, C"):
        bigsvm.certify(tmp_path / "model", rows_of(folder, "rows.parquet", labels=["A", "B"]))

    unlabelled = open_store(folder / "rows.parquet", labelled=False, like=model.about["rows"])
    indicator = model.predict(X)
    for form in ("jsonl", "csv", "parquet", "zarr"):
        seen = predict(model, unlabelled, tmp_path / f"out.{form}", form, CONFIG, with_scores=True)
        assert seen["label_counts"] == dict(zip(NAMES, indicator.sum(axis=0).tolist(), strict=True))
    wanted = [[name for name, there in zip(NAMES, row, strict=True) if there] for row in indicator]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == wanted
    fields = pyarrow.csv.read_csv(tmp_path / "out.csv", pyarrow.csv.ReadOptions(autogenerate_column_names=True))
    assert fields.column(0).to_pylist() == [",".join(names) for names in wanted]
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").column("label").to_pylist() == wanted
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "out.zarr")["label"][:], indicator > 0)


def test_metrics_of_each_label_and_of_all(folder: Path, result) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    found = evaluate(result.model, open_store((X, Y)), CONFIG)
    said, scores = result.model.predict(X), result.model.decision_function(X)
    assert found["subset_accuracy"] == pytest.approx(metrics.accuracy_score(Y, said))
    assert found["hamming_loss"] == pytest.approx(metrics.hamming_loss(Y, said))
    for average in ("micro", "macro"):
        assert found[average]["f1"] == pytest.approx(metrics.f1_score(Y, said, average=average))
        assert found[average]["recall"] == pytest.approx(metrics.recall_score(Y, said, average=average))
    assert found["macro"]["roc_auc"] == pytest.approx(metrics.roc_auc_score(Y, scores, average="macro"))
    for k, one in enumerate(found["labels"]):
        assert one["average_precision"] == pytest.approx(metrics.average_precision_score(Y[:, k], scores[:, k]))
    with pytest.raises(DataError, match="but these rows have one each"):
        evaluate(result.model, open_store((X, Y[:, 0])), CONFIG)


def test_rows_and_labels_may_both_be_chosen(folder: Path) -> None:
    fitted = bigsvm.fit(rows_of(folder, "rows.zarr", rows="number >= 40"), **OPTIONS)
    again = bigsvm.fit(X[40:], Y[40:], **OPTIONS)
    np.testing.assert_array_equal(fitted.model.coef, again.model.coef)


def test_a_split_says_how_well_the_labels_of_other_rows_are_found(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ["fit", str(folder / "rows.zarr"), "--memory", "64MiB"]
    assert run([*fit, "-o", str(tmp_path / "m"), "--labels", "A,B", "--split", "0.7"]) == 0
    assert "all labels right 0." in capsys.readouterr().out
    assert run([*fit, "-o", str(tmp_path / "n"), "--labels", ""]) == 2
    assert "is not a list of different names" in capsys.readouterr().err


def test_the_plan_counts_the_table_of_sets() -> None:
    sets = [[str(k) for k in np.flatnonzero(row)] for row in RNG.random((300, 2000)) < 0.01]
    rows = SetRows(open_store((np.ones((300, 1)), np.arange(300))), [str(k) for k in range(2000)], sets)
    plan = make_plan(rows, FitConfig(memory="256MiB", threads=1))
    assert {need.what: need.nbytes for need in plan.needs}["sets of labels"] == 300 * 2000


def test_two_labels_are_two_models() -> None:
    fitted = bigsvm.fit(X, Y[:, :2], **OPTIONS)
    assert fitted.model.coef.shape == (2, D)
    assert fitted.model.predict(X).shape == (N, 2)


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"solver": "smo", "loss": "hinge", "bias": "free"}, Unsupported, "do not support a kernel"),
        ({"solver": "newton-ws"}, Unsupported, "for rows with one label.*solvers that do: dcd"),
        ({"solver": "pegasos", "loss": "hinge", "bias": "none"}, Unsupported, "for rows with one label"),
        ({"class_weight": "balanced"}, Unsupported, "do not support class weights"),
        ({"multi_class": "ovo"}, Unsupported, "do not support pairs"),
        ({"calibrate": "sigmoid"}, Unsupported, "do not support probabilities"),
        ({"loss": "one_class", "kernel": "rbf"}, Unsupported, "do not support a kernel"),
    ],
)
def test_what_goes_with_one_label_alone_is_refused_by_name(options: dict, error: type, what: str) -> None:
    with pytest.raises(error, match=what) as refused:
        bigsvm.fit(X, Y, **{**OPTIONS, **options})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("labels", "error", "what"),
    [
        (["A", "number"], DataError, "row 2 of the column of labels 'number' holds 2"),
        (["A", "holes"], DataError, "row 3 has no value in the column of labels 'holes'.*not null"),
        (["A", "nobody"], DataError, "no such column"),
        (["A", "A"], DataError, "named twice"),
        (["number"], DataError, "which is not text"),
    ],
)
def test_columns_that_are_no_labels_are_refused(folder: Path, labels: list, error: type, what: str) -> None:
    with pytest.raises(error, match=what):
        bigsvm.fit(rows_of(folder, "rows.zarr", labels=labels), **OPTIONS)


def test_labels_that_all_or_no_rows_have_are_refused() -> None:
    for value in (0, 1):
        with pytest.raises(DataError, match="has label 1"):
            bigsvm.fit(X, np.column_stack([Y[:, 0], np.full(N, value)]), **OPTIONS)
    with pytest.raises(DataError, match="row 0 of the indicator matrix"):
        bigsvm.fit(X, np.column_stack([Y[:, 0], np.full(N, 2)]), **OPTIONS)
    with pytest.raises(UsageError, match="--label and --labels"):
        open_store((X, Y), label="a", labels=["a", "b"])


def test_no_format_of_others_takes_such_a_model(result, tmp_path: Path) -> None:
    for form in ("liblinear", "npz"):
        with pytest.raises(UsageError, match="cannot hold a model with several labels"):
            bigsvm.export_model(result.model, tmp_path / "out", form)


@pytest.mark.parametrize("name", ["", "a,b", " a"])
def test_names_that_no_set_can_hold_are_refused(name: str) -> None:
    with pytest.raises(BigSVMError, match="cannot be the name"):
        sorted_names(["x", name])


def test_names_of_whole_numbers_are_numbers() -> None:
    assert sorted_names(["10", "9", "1"]).tolist() == [1, 9, 10]
    assert sorted_names(["10", "09"]).tolist() == ["09", "10"]


@pytest.mark.parametrize("sets", [[[0, 2], [], [1], [0, 1, 2], [], [2]], [[0], [], [1], [2], [], [2]]])
@pytest.mark.parametrize("form", ["csv", "parquet", "zarr"])
def test_rows_without_labels_come_back_from_every_dump(form: str, sets: list[list[int]], tmp_path: Path) -> None:
    """Also where every set, but for the empty ones, looks like a number."""
    indicator = np.array([[k in one for k in range(3)] for one in sets], int)
    store = open_store((np.arange(12.0).reshape(6, 2), indicator))
    write_rows(store, tmp_path / f"rows.{form}", form)
    again = open_store(tmp_path / f"rows.{form}", labels=["label"])
    for rows in (again, pickle.loads(pickle.dumps(again))):
        assert rows.classes is not None
        assert rows.classes[rows.read(rows.refs(6)[0]).y].tolist() == [",".join(map(str, one)) for one in sets]


def test_a_field_of_labels_with_nothing_in_it_is_no_empty_set(tmp_path: Path) -> None:
    """Nothing between quotes is one; where nothing is said at all, somebody may have forgotten it."""
    (tmp_path / "rows.csv").write_text('label,f0\n"a,b",1\n"",2\na,3\n,4\n')
    with pytest.raises(DataError, match="1 of the 4 rows have no label, row 3 is the first"):
        _ = open_store(tmp_path / "rows.csv", labels=["label"]).classes
    kept = open_store(tmp_path / "rows.csv", labels=["label"], missing="drop")
    assert kept.classes is not None
    assert kept.classes[kept.read(kept.refs(9)[0]).y].tolist() == ["a,b", "", "a"]


def test_unknown_labels_are_told_once(tmp_path: Path) -> None:
    """That ROC AUC is left out was said as well, of which they are the cause."""
    model = bigsvm.fit((X, Y), **OPTIONS).model
    said: dict[str, list[str]] = {}
    for kind, names in {"the same": "012", "others": "345", "some": "0345"}.items():
        sets = [",".join(name for name in names if row[int(name) % K]) for row in Y]
        path = tmp_path / f"{names}.parquet"
        pyarrow.parquet.write_table(pa.table({**{f"f{j}": X[:, j] for j in range(D)}, "sets": sets}), path)
        events: list[Any] = []
        evaluate(model, open_store(path, labels="sets"), CONFIG, events.append)
        said[kind] = [event.message.split(":")[0] for event in events if isinstance(event, Warned)]
    unknown, absent = "labels that the model does not know count as wrong", "labels of the model that no row has"
    assert said["the same"] == []
    assert said["others"] == [unknown, absent]
    assert said["some"] == [unknown, absent]


KINDS = [each for each in itertools.product(["usual", "absent", "everywhere"], repeat=3) if each.count("absent") < 2]


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_each_label_without_roc_auc_is_told_of_once(kinds: tuple[str, ...], tmp_path: Path) -> None:
    model = bigsvm.fit((X, Y), **OPTIONS).model
    n = len(X)
    has = {"usual": np.arange(n) % 2 == 0, "absent": np.zeros(n, bool), "everywhere": np.ones(n, bool)}
    sets = [",".join(str(k) for k, kind in enumerate(kinds) if has[kind][row]) for row in range(n)]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pa.table({**{f"f{j}": X[:, j] for j in range(D)}, "sets": sets}), path)
    events: list[Any] = []
    evaluate(model, open_store(path, labels="sets"), CONFIG, events.append)
    said = [event.message for event in events if isinstance(event, Warned)]
    named = {message.split(":")[0]: message.split(": ")[1] for message in said}
    of = {kind: ", ".join(str(k) for k, one in enumerate(kinds) if one == kind) for kind in has}
    assert named == {
        **({"labels of the model that no row has": of["absent"]} if of["absent"] else {}),
        **({"ROC AUC needs rows with and without a label; left out of its mean": of["everywhere"]}
           if of["everywhere"] else {}),
    }  # fmt: skip
    assert len(said) == len(named)


@pytest.mark.parametrize("pieces", list(itertools.permutations([(0, 1), (-1, 1), (1, 1)])))
def test_a_column_of_labels_is_of_one_kind_over_all_pieces(pieces: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A piece with 0 and 1 and a piece with -1 and 1 are refused in any order, as they are within one piece."""
    monkeypatch.setattr(set_rows, "_STEP", 2)
    values, other = [value for piece in pieces for value in piece], [0, 1, 1, 0, 1, 0]
    lines = [f"{x},{a},{b}" for x, (a, b) in enumerate(zip(values, other, strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(["x,a,b", *lines]) + "\n")
    odd = max(pieces.index((0, 1)), pieces.index((-1, 1))) * 2
    with pytest.raises(DataError, match=f"row {odd} of the column of labels 'a' holds {values[odd]}"):
        bigsvm.open_store(tmp_path / "rows.csv", labels="a,b", columns="x").classes  # noqa: B018


@pytest.mark.parametrize("piece", [(0, 2), (4, 6)])
def test_a_worker_judges_a_column_of_labels_by_all_rows(piece: tuple[int, int], tmp_path: Path) -> None:
    """Whoever reads one piece with 0 and 1, or one with -1 and 1, refuses the column, as the caller does."""
    values, other = [0, 1, 1, 1, -1, 1], [0, 1, 1, 0, 1, 0]
    lines = [f"{x},{a},{b}" for x, (a, b) in enumerate(zip(values, other, strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(["x,a,b", *lines]) + "\n")
    store = pickle.loads(pickle.dumps(bigsvm.open_store(tmp_path / "rows.csv", labels="a,b", columns="x")))
    with pytest.raises(DataError, match="row 4 of the column of labels 'a' holds -1"):
        store.labels_between(*piece)
