"""svmlight text with several labels a row: the same store as an indicator matrix makes, and what is refused by line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, UsageError
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.dump import dump
from bigsvm.store.text.label_fields import LabelFields, in_parts

N, D = 60, 4
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, D)).round(3).astype(np.float32)
Y = (X[:, :3] + 0.3 * RNG.normal(size=(N, 3)) > 0.1).astype(int)
CONFIG = FitConfig(memory="64MiB", threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rows.svm with labels 0 to 2, written in any order and once with a zero before; and a store of it."""
    place = tmp_path_factory.mktemp("text")
    lines = ["# several labels a row", ""]
    for x, y in zip(X, Y, strict=True):
        labels = [f"{k:02d}" if len(lines) == 7 else str(k) for k in RNG.permutation(np.flatnonzero(y))]
        lines.append(",".join(labels) + " " + " ".join(f"{j}:{v}" for j, v in enumerate(x, start=1)))
    (place / "rows.svm").write_text("\n".join(lines) + "\n")
    ingest(str(place / "rows.svm"), place / "rows.zarr", labels=["label"], threads=1)
    return place


def test_text_is_ingested_as_an_indicator_matrix_is(folder: Path, tmp_path: Path) -> None:
    import scipy.sparse

    store = open_store(folder / "rows.zarr")
    from_arrays = ingest(open_store((scipy.sparse.csr_matrix(X), Y)), tmp_path / "arrays.zarr", threads=1)
    assert store.content["content_fingerprint"] == from_arrays["content_fingerprint"]
    assert store.recipe["label_sets"] == {"names": ["0", "1", "2"], "columns": None}
    again = dump(store, tmp_path / "again.svm")
    assert again["n_samples"] == N
    back = ingest(str(tmp_path / "again.svm"), tmp_path / "back.zarr", labels=["label"], threads=1)
    assert back["content_fingerprint"] == from_arrays["content_fingerprint"]


def test_a_model_of_several_labels_reads_them_in_text(folder: Path, tmp_path: Path) -> None:
    rows = open_store((X.astype(float), Y))
    model = bigsvm.fit(rows, tol=1e-2, memory="64MiB", threads=1).model
    lines, found = [], []
    for source in (str(folder / "rows.svm"), rows):
        out = io.BytesIO()
        predict(model, source, out, "jsonl", CONFIG)
        lines.append([json.loads(line) for line in out.getvalue().splitlines()])
        found.append(evaluate(model, source, CONFIG))
    assert [line["label"] for line in lines[0]] == [line["label"] for line in lines[1]]
    np.testing.assert_allclose(*([line["score"] for line in some] for some in lines), atol=1e-5)
    assert 0.5 < found[0]["subset_accuracy"] < 1
    mixed = tmp_path / "mixed.svm"
    mixed.write_text("? 1:1\n1,2 1:1\n1:1\n-1 1:1\n 1:1\n7.5 1:1\n")
    out = io.BytesIO()
    predict(model, str(mixed), out, "csv", CONFIG, with_scores=True)
    said = out.getvalue().splitlines()
    assert said == said[:1] * 6
    mixed.write_text("1,2 1:1\nA,B 1:1\n")
    with pytest.raises(DataError, match=r"mixed.svm:2: the label 'A,B' is not a number"):
        predict(model, str(mixed), io.BytesIO(), "csv", CONFIG)
    with pytest.raises(DataError, match=r"mixed.svm:2: the labels 'A,B' are no whole numbers"):
        evaluate(model, str(mixed), CONFIG)
    for name in ("n_samples", "subset_accuracy", "hamming_loss", "micro", "macro", "labels"):
        assert found[0][name] == found[1][name], name


@pytest.mark.parametrize(
    ("line", "options", "error", "what"),
    [
        ("1,5 3:1", {}, DataError, r"rows.svm:2: the label '1,5' is not a number.*--labels label"),
        ("1.5 3:1", {"labels": ["label"]}, DataError, "rows.svm:2: the labels '1.5' are no whole numbers"),
        ("1,,5 3:1", {"labels": ["label"]}, DataError, "rows.svm:2: the labels '1,,5' are no whole numbers"),
        ("-1 3:1", {"labels": ["label"]}, DataError, "rows.svm:2: the labels '-1' are no whole numbers"),
        ("1, 5 3:1", {"labels": ["label"]}, DataError, "rows.svm:2: the labels '1,' are no"),
        ("1,5 3:1 2:1", {"labels": ["label"]}, DataError, "rows.svm:2: feature numbers are not ascending"),
        ("1 3:1", {"labels": ["label"]}, DataError, "1 label in all"),
        ("1,5 3:1", {"labels": ["a", "b"]}, UsageError, "in one field.*--labels label"),
        ("1,5 3:1", {"labels": ["label"], "task": "regression"}, UsageError, "exclude each other"),
    ],
)
def test_what_is_no_list_of_labels_is_refused_by_line(
    tmp_path: Path, line: str, options: dict, error: type, what: str
) -> None:
    (tmp_path / "rows.svm").write_text(f"1 1:1\n{line}\n")
    with pytest.raises(error, match=what):
        ingest(str(tmp_path / "rows.svm"), tmp_path / "out.zarr", threads=1, **options)
    assert not (tmp_path / "out.zarr").exists()


def test_rows_that_are_added_have_the_labels_of_the_store(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "rows.zarr"
    ingest(str(folder / "rows.svm"), store, labels=["label"], threads=1)
    (tmp_path / "more.svm").write_text("2,1 1:0.5\n 4:1\n")
    assert ingest(str(tmp_path / "more.svm"), store, append=True, threads=1)["n_samples"] == N + 2
    (tmp_path / "more.svm").write_text("2,1 1:0.5\n2,9 4:1\n")
    with pytest.raises(DataError, match=r"more.svm:2: label 9 is none of the store's labels"):
        ingest(str(tmp_path / "more.svm"), store, append=True, threads=1)


def test_a_row_of_nothing_has_no_line(tmp_path: Path) -> None:
    rows = open_store((np.array([[1.0], [0.0], [2.0]]), np.array([[1, 1], [0, 0], [0, 1]])))
    with pytest.raises(DataError, match="row 1 has neither labels nor entries"):
        dump(rows, tmp_path / "out.svm")
    assert not (tmp_path / "out.svm").exists()


def test_long_sets_come_in_small_parts_and_too_many_are_refused() -> None:
    sets = np.array(["1", "2" * (1 << 19), "3", ""], object)
    parts = list(in_parts(sets))
    assert [part.stop for part, _ in parts] == [2, 4]
    assert [text for _, texts in parts for text in texts.tolist()] == sets.tolist()
    fields = LabelFields()
    fields._longest = 1 << 22
    with pytest.raises(DataError, match=r"somewhere:3: the 2th different set of labels"):
        fields._learn(b"1,2", lambda: "somewhere:3")
