"""Prediction: every format, every source, the same rows in the same order, nothing half-written."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import zarr

from bigsvm.compiled.shared.rows import CSR
from bigsvm.config import FitConfig
from bigsvm.errors import BudgetExceeded, DataError, OutputError, UsageError
from bigsvm.events import Warned, silent
from bigsvm.model.linear_model import LinearModel
from bigsvm.run.apply.predict import predict, scored_rows
from bigsvm.run.apply.prediction_files import format_of, open_writer, writer_bytes
from bigsvm.run.apply.scoring import TextReading, budget_of, plan_text
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from tests.products import each_of

SMALL = FitConfig.of(memory=32 << 20, threads=2)
N, D = 500, 12


def make_model(classes: Any = (-1, 1), n_features: int = D, seed: int = 0) -> LinearModel:
    rng = np.random.default_rng(seed)
    classes = np.array(classes)
    n_models = 1 if len(classes) == 2 else len(classes)
    return LinearModel(rng.standard_normal((n_models, n_features)), rng.standard_normal(n_models), classes)


def make_rows(seed: int = 1, n_features: int = D) -> tuple[CSR, np.ndarray]:
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((N, n_features)) < 0.4, rng.standard_normal((N, n_features)), 0).astype(np.float32)
    kept = dense != 0
    indices = np.nonzero(kept)[1].astype(np.int32)
    indptr = np.concatenate(([0], np.cumsum(kept.sum(axis=1)))).astype(np.int64)
    return CSR(dense[kept], indices, indptr), np.where(rng.random(N) < 0.5, -1.0, 1.0)


def write_store(path: Path, X: CSR, y: np.ndarray, n_features: int | None = D) -> Any:
    from bigsvm.store.formats.opener import open_store

    with ZarrWriter(path, layout="csr", dtype=np.float32, n_features=n_features, chunk_bytes=1024) as writer:
        writer.append(X, y)
        writer.finish()
    return open_store(str(path))


def lines_of(model: LinearModel, source: Any, form: str, **options: Any) -> list[str]:
    out = io.BytesIO()
    predict(model, source, out, form, SMALL, **options)
    return out.getvalue().decode().splitlines()


@pytest.mark.parametrize("classes", [(-1, 1), (0, 1, 2), ("ham", "spam")])
def test_jsonl_from_a_store(tmp_path: Path, classes: Any) -> None:
    X, y = make_rows()
    model = make_model(classes)
    rows = [json.loads(line) for line in lines_of(model, write_store(tmp_path / "s.zarr", X, y), "jsonl")]
    scores = model.decision_function(X)
    assert [row["row"] for row in rows] == list(range(N))
    assert [row["label"] for row in rows] == model.predict(X).tolist()
    np.testing.assert_array_equal(np.array([row["score"] for row in rows]), scores)


def test_blocks_of_any_size_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = make_rows()
    store = write_store(tmp_path / "s.zarr", X, y)
    model = make_model()
    expected = lines_of(model, store, "jsonl")
    monkeypatch.setattr("bigsvm.run.apply.scoring._LARGEST_BLOCK", 4000)
    assert lines_of(model, store, "jsonl") == expected


def test_csv_has_one_line_a_row_and_quotes_labels(tmp_path: Path) -> None:
    X, y = make_rows()
    model = make_model(("a,b", 'c"d'))
    store = write_store(tmp_path / "s.zarr", X, y)
    names = {"a,b": '"a,b"', 'c"d': '"c""d"'}
    labels = [names[label] for label in model.predict(X).tolist()]
    assert lines_of(model, store, "csv") == labels
    scored = lines_of(model, store, "csv", with_scores=True)
    expected = [f"{label},{score!r}" for label, score in zip(labels, model.decision_function(X).tolist(), strict=True)]
    assert scored == expected


@each_of(with_scores=[False, True], classes=[(-1, 1), (0.5, 1.5, 2.5), ("x\0y", "x\0z", "z")])
def test_parquet_and_zarr(tmp_path: Path, classes: Any, with_scores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsvm.run.apply.scoring._LARGEST_BLOCK", 20_000)
    monkeypatch.setattr("bigsvm.run.apply.gathered._GATHER_BYTES", 1)
    X, y = make_rows()
    model = make_model(classes)
    store = write_store(tmp_path / "s.zarr", X, y)
    for form in ("parquet", "zarr"):
        predict(model, store, tmp_path / f"out.{form}", form, SMALL, with_scores=with_scores)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == (["label", "score"] if with_scores else ["label"])
    assert table["label"].to_pylist() == model.predict(X).tolist()
    group = zarr.open_group(tmp_path / "out.zarr", mode="r")
    labels = np.asarray(group["label"])
    if isinstance(classes[0], str):
        labels = np.array(group.attrs["classes"])[labels]
    assert labels.tolist() == model.predict(X).tolist()
    if with_scores:
        np.testing.assert_array_equal(np.array(table["score"].to_pylist()), model.decision_function(X))
        np.testing.assert_array_equal(np.asarray(group["score"]), model.decision_function(X))


def test_text_gives_what_its_store_gives(tmp_path: Path) -> None:
    from bigsvm.store.text.dump import dump

    X, y = make_rows()
    store = write_store(tmp_path / "s.zarr", X, y)
    dump(store, tmp_path / "s.svm")
    model = make_model()
    assert lines_of(model, str(tmp_path / "s.svm"), "jsonl") == lines_of(model, store, "jsonl")


@pytest.mark.parametrize("block_rows", [1, 7, 10_000])
@pytest.mark.parametrize("threads", [1, 2])
def test_text_is_scored_in_blocks_of_any_size(
    tmp_path: Path, block_rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bigsvm.run.apply import predict as predicting
    from bigsvm.run.apply.evaluate import evaluate
    from bigsvm.store.text.dump import dump

    X, y = make_rows()
    dump(write_store(tmp_path / "s.zarr", X, y), tmp_path / "s.svm")
    text, model = str(tmp_path / "s.svm"), make_model()
    whole, measured = lines_of(model, text, "jsonl"), evaluate(model, text, SMALL)
    plan = TextReading(64 << 10, block_rows, threads)
    monkeypatch.setattr(predicting, "plan_text", lambda *known: plan)
    assert lines_of(model, text, "jsonl") == whole
    again = evaluate(model, text, SMALL)
    changing = {"seconds", "memory"}
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in measured.items() if k not in changing
    }


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("line", ["1 1:1", "1 " + " ".join(f"{j}:0.{j}" for j in range(1, 13))])
@pytest.mark.parametrize("n_classes", [2, 400])
def test_text_in_flight_fits_the_budget(tmp_path: Path, n_classes: int, line: str, threads: int) -> None:
    """Scores of short lines need a thousand times their bytes of text."""
    (tmp_path / "t.svm").write_text(f"{line}\n" * 20_000)
    model, config = make_model(np.arange(n_classes)), FitConfig.of(memory=16 << 20, threads=threads)
    budget = budget_of(config)
    plan = plan_text(model, budget, config)
    assert plan.piece_bytes >= 64 << 10
    assert plan.threads == threads or threads == 16
    largest = n = 0
    with scored_rows(model, str(tmp_path / "t.svm"), config, budget, False, silent) as rows:
        for scored in rows:
            largest, n = max(largest, scored.scores.nbytes), n + len(scored.scores)
    assert n == 20_000
    assert (plan.threads + 3) * (largest * 3 + 7 * plan.piece_bytes) <= budget.limit


def test_text_that_cannot_fit_is_refused_and_the_named_memory_does(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("1 1:1\n" * 50)
    model, one = make_model(np.arange(400)), FitConfig.of(memory=1 << 20, threads=1)
    with pytest.raises(BudgetExceeded, match=r"scoring a row \(rows .*\) needs") as seen:
        predict(model, str(tmp_path / "t.svm"), tmp_path / "o", "csv", one)
    least = seen.value.min_memory_bytes
    assert least is not None
    predict(model, str(tmp_path / "t.svm"), tmp_path / "o", "csv", FitConfig.of(memory=least, threads=1))


@pytest.mark.parametrize("named", [False, True])
def test_features_without_names_are_taken_in_order_and_that_is_said(tmp_path: Path, named: bool) -> None:
    X, y = make_rows()
    model = make_model()
    model.about["rows"] = {"features": [f"gene{k}" for k in range(D)]} if named else {}
    (tmp_path / "t.svm").write_text("1 1:1\n")
    for source in (write_store(tmp_path / "s.zarr", X, y), str(tmp_path / "t.svm")):
        events: list[Any] = []
        lines_of(model, source, "jsonl", emit=events.append)
        said = [event.message for event in events if isinstance(event, Warned)]
        assert len(said) == named
        assert all("features are taken in the model's order" in text for text in said)


def test_dense_rows_and_narrow_rows(tmp_path: Path) -> None:
    model = make_model()
    X = np.random.default_rng(3).standard_normal((40, D))
    X[:, D - 5 :] = 0
    y = np.where(np.arange(40) % 2, 1, -1)
    for rows in (ArrayRows(X, y), ArrayRows(scipy.sparse.csr_array(X[:, : D - 5]), y)):
        got = [json.loads(line)["score"] for line in lines_of(model, rows, "jsonl")]
        np.testing.assert_allclose(got, X @ model.coef[0] + model.intercept[0], rtol=1e-12)
    with pytest.raises(DataError, match=f"{D - 5} features and the model {D}"):
        lines_of(model, ArrayRows(X[:, : D - 5], y), "jsonl")


def test_wide_rows_are_refused_by_name(tmp_path: Path) -> None:
    model = make_model(n_features=5)
    (tmp_path / "t.svm").write_text("1 1:1\n-1 2:1 6:1\n")
    with pytest.raises(DataError, match="6") as seen:
        lines_of(model, str(tmp_path / "t.svm"), "jsonl")
    assert seen.value.where.endswith("t.svm:2")
    X = CSR(np.ones(3, np.float32), np.array([0, 4, 7], np.int32), np.array([0, 1, 2, 3]))
    store = write_store(tmp_path / "s.zarr", X, np.array([1.0, -1, 1]), None)
    with pytest.raises(
        DataError, match=r"row 2 has feature 7 but the model has only 5 features .*--n-features 8 or more"
    ):
        lines_of(model, store, "jsonl")
    with pytest.raises(DataError, match="12 features and the model 5"):
        lines_of(model, ArrayRows(np.zeros((4, 12)), np.array([0, 1, 0, 1])), "jsonl")


def test_a_store_with_unused_wide_columns_is_fine(tmp_path: Path) -> None:
    X, y = make_rows()
    store = write_store(tmp_path / "s.zarr", X, y, D + 100)
    assert len(lines_of(make_model(), store, "csv")) == N


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "zarr"])
def test_an_existing_output_is_kept(tmp_path: Path, form: str) -> None:
    X, y = make_rows()
    store = write_store(tmp_path / "s.zarr", X, y)
    out = tmp_path / f"out.{form}"
    predict(make_model(), store, out, form, SMALL)
    with pytest.raises(OutputError, match="exists"):
        predict(make_model(), store, out, form, SMALL)
    predict(make_model(), store, out, form, SMALL, overwrite=True)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "zarr"])
@pytest.mark.parametrize("of_text", [False, True])
def test_what_can_be_refused_at_once_is_refused_before_anything_is_compiled(
    tmp_path: Path, form: str, of_text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = make_rows()
    source: Any = write_store(tmp_path / "s.zarr", X, y)
    if of_text:
        source = str(tmp_path / "s.svm")
        Path(source).write_text("1 1:1\n")
    out, missing, folder = tmp_path / f"out.{form}", tmp_path / "no" / "out", tmp_path / "folder"
    out.write_bytes(b"")
    (folder / "inside").mkdir(parents=True)

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled before the refusal")

    for name in ("store.precompile_reading", "run.apply.scoring"):
        monkeypatch.setattr(f"bigsvm.{name}.compiled_in_child", fail)
    with pytest.raises(OutputError, match="exists"):
        predict(make_model(), source, out, form, SMALL)
    with pytest.raises(OutputError, match=r"folder|will not replace it"):
        predict(make_model(), source, folder, form, SMALL, overwrite=True)
    if form != "zarr":  # a Zarr store makes the folders above it
        with pytest.raises(OutputError, match=r"no such folder|No such file"):
            predict(make_model(), source, missing, form, SMALL)
    with pytest.raises(BudgetExceeded):
        predict(make_model(), source, tmp_path / "o", form, FitConfig.of(memory=1000, threads=1))


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "zarr"])
def test_a_failure_leaves_nothing(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    def fail() -> None:
        with open_writer(folder / "o", form, np.array([-1, 1]), 1, True) as writer:
            writer.append(0, np.array([0, 1]), np.zeros((2, 1)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_an_output_error() -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OutputError, match="No space left"):
        predict(make_model(), ArrayRows(np.zeros((4, D)), np.array([0, 1, 0, 1])), full, "csv", SMALL)


def test_scores_that_overflow_are_null() -> None:
    out = io.BytesIO()
    with open_writer(out, "jsonl", np.array([0, 1, 2]), 3, True) as writer:
        writer.append(0, np.array([1]), np.array([[np.inf, 1.5, -np.inf]]))
    assert json.loads(out.getvalue()) == {"row": 0, "label": 1, "score": [None, 1.5, None]}


def test_formats_by_name() -> None:
    assert [format_of(name, None) for name in ("-", "a.csv", "a.PARQUET", "a.zarr", "a.txt")] == [
        "jsonl", "csv", "parquet", "zarr", "jsonl",
    ]  # fmt: skip
    assert format_of("a.csv", "jsonl") == "jsonl"
    with pytest.raises(UsageError, match="standard output"):
        format_of("-", "parquet")


def test_an_impossible_budget_is_refused_and_the_named_one_works(tmp_path: Path) -> None:
    X, y = make_rows()
    store = write_store(tmp_path / "s.zarr", X, y)
    with pytest.raises(BudgetExceeded) as seen:
        predict(make_model(), store, tmp_path / "o", "csv", FitConfig.of(memory=100_000, threads=1))
    assert not (tmp_path / "o").exists()
    least = seen.value.min_memory_bytes
    assert least is not None
    predict(make_model(), store, tmp_path / "o", "csv", FitConfig.of(memory=least, threads=1))


@each_of(form=["parquet", "zarr"], n_models=[1, 3, 1000, 200_000], regression=[False, True])
def test_tables_are_written_in_pieces_that_do_not_grow_with_the_scores(
    form: str, n_models: int, regression: bool, tmp_path: Path
) -> None:
    n_models = 1 if regression else n_models
    classes = np.arange(0 if regression else max(n_models, 2))
    n_rows = min(300, 1_200_000 // n_models)
    scores = np.arange(n_rows * n_models, dtype=np.float64).reshape(n_rows, n_models)
    codes = np.arange(n_rows) % max(len(classes), 1)
    largest = 0
    with open_writer(tmp_path / "o", form, classes, n_models, True) as writer:
        write = writer.write  # type: ignore[attr-defined]

        def watched(codes: np.ndarray, scores: np.ndarray) -> None:
            nonlocal largest
            largest = max(largest, scores.nbytes)
            write(codes, scores)

        writer.write = watched  # type: ignore[attr-defined]
        for first in range(0, n_rows, 7):  # blocks that end elsewhere than pieces
            writer.append(first, codes[first : first + 7], scores[first : first + 7])
    assert largest <= max(1 << 20, scores[:1].nbytes)
    assert writer_bytes(form, n_models) >= 2 * largest
    if form == "parquet":
        table = pq.read_table(tmp_path / "o")
        found = np.array(table["score"].to_pylist()).reshape(n_rows, n_models) if n_rows * n_models < 10**6 else scores
        label = table["label"].to_numpy()
    else:
        group = zarr.open_group(tmp_path / "o", mode="r")
        found, label = group["score"][:].reshape(n_rows, n_models), group["label"][:]
    assert np.array_equal(found, scores)
    assert np.array_equal(label, scores[:, 0] if regression else classes[codes])


@pytest.mark.parametrize("form", ["parquet", "zarr"])
@pytest.mark.parametrize(("n_models", "several"), [(4000, False), (40, True), (1, False)])
def test_scores_that_are_not_written_make_no_small_pieces(
    form: str, n_models: int, several: bool, tmp_path: Path
) -> None:
    classes, n_rows = np.arange(max(n_models, 2)), 3000
    codes = np.zeros((n_rows, n_models), np.int8) if several else np.arange(n_rows) % len(classes)
    pieces: list[int] = []
    with open_writer(tmp_path / "o", form, classes, n_models, False, several=several) as writer:
        write = writer.write  # type: ignore[attr-defined]

        def watched(codes: np.ndarray, scores: np.ndarray) -> None:
            pieces.append(len(codes))
            assert codes.nbytes + scores.nbytes <= 1 << 20
            write(codes, scores)

        writer.write = watched  # type: ignore[attr-defined]
        for first in range(0, n_rows, 100):
            writer.append(first, codes[first : first + 100], np.ones((100, n_models)))
    assert (len(pieces), sum(pieces)) == (1, n_rows)


@each_of(form=["csv", "parquet", "zarr"], n_classes=[2, 5])
def test_what_a_writer_holds_is_part_of_the_memory_that_a_refusal_names(
    form: str, n_classes: int, tmp_path: Path
) -> None:
    store = write_store(tmp_path / "s.zarr", *make_rows())
    model = make_model(np.arange(n_classes))
    with pytest.raises(BudgetExceeded) as seen:
        predict(model, store, tmp_path / "o", form, FitConfig.of(memory=100_000, threads=1))
    least = seen.value.min_memory_bytes
    assert least is not None
    assert (least > 8 << 20) == (form != "csv")
    with pytest.raises(BudgetExceeded):
        predict(model, store, tmp_path / "o", form, FitConfig.of(memory=least - 1, threads=1))
    predict(model, store, tmp_path / "o", form, FitConfig.of(memory=least, threads=1))


def test_no_rows_of_text_give_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("# nothing\n\n")
    result = predict(make_model(), str(tmp_path / "t.svm"), tmp_path / "o.csv", "csv", SMALL)
    assert result["n_samples"] == 0
    assert (tmp_path / "o.csv").read_bytes() == b""
