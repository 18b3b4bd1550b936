"""What the commands take in: rows without labels, text, folders and files of other programs; and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.cli.session import Session
from bigsvm.errors import DataError
from bigsvm.model.linear_model import load_model
from bigsvm.store.ingest.ingest import ingest
from tests.cli.conftest import Bigsvm
from tests.store import formats

N, D = 120, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
LABELS = np.where(X[:, 0] > 0, 1, -1)


@pytest.fixture(scope="module")
def dense_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of X, dense."""
    from bigsvm.cli.main import run

    folder = tmp_path_factory.mktemp("intake")
    ingest((X, LABELS), folder / "s.zarr")
    assert run(["fit", str(folder / "s.zarr"), "-o", str(folder / "m"), "--quiet", "--json"]) == 0
    return folder / "m"


def predicted(bigsvm: Bigsvm, model: Path, source: object, *options: object) -> list[dict[str, Any]]:
    said = bigsvm("predict", model, source, *options)
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def wanted(model: Path) -> list[dict[str, Any]]:
    scores = load_model(model).decision_function(X)
    return [{"row": i, "label": 1 if s > 0 else -1, "score": float(s)} for i, s in enumerate(scores)]


# ---- rows without labels -----------------------------------------------------------------------------------


def unlabelled(kind: str, folder: Path) -> Path:
    if kind.startswith("zarr"):
        labels = np.full(N, np.nan) if kind == "zarr-nan" else LABELS
        path = formats.foreign(folder / "u.zarr", X, labels, np.full(N, np.nan), layout="dense")
        if kind == "zarr-bare":
            shutil.rmtree(path / "obs")
        if kind == "zarr-lost":
            shutil.rmtree(path / "obs/label/c")
        return path
    columns: dict[str, Any] = {f"f{j}": X[:, j] for j in range(D)}
    if kind == "parquet-null":
        columns = {"label": pa.nulls(N, pa.int64()), "weight": np.full(N, -1.0), **columns}
    if kind == "parquet-text":
        columns = {**columns, "label": ["?"] * N}
    if kind == "parquet-fixed":
        columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), D)}
    pq.write_table(pa.table(columns), folder / "u.parquet")
    return folder / "u.parquet"


KINDS = ["zarr-bare", "zarr-nan", "zarr-lost", "parquet-bare", "parquet-null", "parquet-text", "parquet-fixed"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_need_no_labels_to_be_predicted(kind: str, bigsvm: Bigsvm, dense_model: Path, tmp_path: Path) -> None:
    assert predicted(bigsvm, dense_model, unlabelled(kind, tmp_path)) == wanted(dense_model)


@pytest.mark.parametrize("label", ["", "nan ", "NaN ", "-inf ", "? ", "NA\t", "9007199254740993 ", "1 "])
def test_lines_need_no_labels_to_be_predicted(label: str, bigsvm: Bigsvm, dense_model: Path, tmp_path: Path) -> None:
    lines = [label + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row)) for row in X]
    (tmp_path / "u.svm").write_text("# rows\n\n" + "\n".join(lines) + "\n")
    for got, want in zip(predicted(bigsvm, dense_model, "u.svm"), wanted(dense_model), strict=True):
        assert got["label"] == want["label"]
        assert got["score"] == pytest.approx(want["score"], rel=1e-12)


def test_what_is_no_row_is_still_refused(bigsvm: Bigsvm, dense_model: Path, tmp_path: Path) -> None:
    for line in ("1,2,3", "nan,1:2", "hello 1:2", "1:2 x", "nan 1:nan"):
        (tmp_path / "u.svm").write_text(f"1 1:1\n{line}\n")
        said = bigsvm("predict", dense_model, "u.svm")
        assert said.code == 65
        assert "u.svm:2" in said.err


def test_a_column_that_is_no_feature_is_named(bigsvm: Bigsvm, dense_model: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({**{f"f{j}": X[:, j] for j in range(D)}, "target": LABELS}), tmp_path / "t.parquet")
    said = bigsvm("predict", dense_model, "t.parquet")
    assert said.code == 65
    assert "5 features and the model 4" in said.err
    assert "--label" in said.err
    assert predicted(bigsvm, dense_model, "t.parquet", "--label", "target") == wanted(dense_model)


# ---- columns that are missing, and values --------------------------------------------------------------------


def test_dense_rows_with_fewer_columns_are_refused(bigsvm: Bigsvm, dense_model: Path, tmp_path: Path) -> None:
    ingest((X[:, :3], LABELS), tmp_path / "narrow.zarr")
    formats.parquet(tmp_path / "narrow.parquet", X[:, :3], LABELS, layout="columns")
    for store in ("narrow.zarr", "narrow.parquet"):
        for command in ("predict", "evaluate"):
            said = bigsvm(command, dense_model, store)
            assert said.code == 65
            assert "3 features and the model 4" in said.err
    model = load_model(dense_model)
    for call in (model.decision_function, model.predict):
        with pytest.raises(DataError, match="3 features and the model 4"):
            call(X[:, :3])
    narrow = np.hstack([X[:, :3], np.zeros((N, 1), np.float32)])  # sparse rows do not name what is 0
    np.testing.assert_array_equal(model.decision_function(sp.csr_array(X[:, :3])), model.decision_function(narrow))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_values_that_are_none_are_refused_at_prediction(bad: float, layout: str, dense_model: Path) -> None:
    rows = X.copy()
    rows[7, 2] = bad
    model = load_model(dense_model)
    for call in (model.decision_function, model.predict):
        with pytest.raises(DataError, match="X: row 7 holds"):
            call(sp.csr_array(rows) if layout == "csr" else rows)
    masked = np.ma.masked_array(X, mask=np.arange(N * D).reshape(N, D) == 7 * D)
    with pytest.raises(DataError, match="X: row 7 is masked"):
        model.predict(masked)


# ---- text to evaluate ----------------------------------------------------------------------------------------


def test_text_is_evaluated_as_its_store_is(bigsvm: Bigsvm, dense_model: Path, tmp_path: Path) -> None:
    labels = np.where(np.arange(N) == 5, 9, LABELS)  # one that the model does not know
    lines = [
        f"{y} " + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row)) for y, row in zip(labels, X, strict=True)
    ]
    (tmp_path / "t.svm").write_text("\n".join(lines) + "\n")
    assert bigsvm("ingest", "t.svm", "t.zarr").code == 0
    results = [bigsvm("evaluate", dense_model, name, "--json").document for name in ("t.svm", "t.zarr")]
    for result in results:
        for name in ("seconds", "memory", "store"):
            del result["result"][name]
    assert results[0]["result"] == results[1]["result"]
    assert results[0]["warnings"] == results[1]["warnings"]
    assert results[0]["result"]["classes"] == [-1, 1, 9]
    said = bigsvm("evaluate", dense_model, "-")
    assert said.code == 2
    assert "reads its rows twice" in said.err
    assert bigsvm("evaluate", dense_model, "t.svm", "--label", "obs/label").code == 2


# ---- files of other programs -----------------------------------------------------------------------------------


def test_an_ingest_without_a_store_names_the_command(bigsvm: Bigsvm, tmp_path: Path) -> None:
    (tmp_path / "a1a.svm").write_text("1 1:1\n")
    assert "(bigsvm ingest a1a.svm a1a.zarr)" in bigsvm("ingest", "a1a.svm").err
    assert "(bigsvm ingest ROWS.svm new.zarr)" in bigsvm("ingest", "new.zarr").err


def test_a_fit_of_text_names_the_command(bigsvm: Bigsvm, tmp_path: Path) -> None:
    lines = [f"{y} 1:{float(row[0])!r}" for y, row in zip(LABELS, X, strict=True)]
    (tmp_path / "a9a.t.svm").write_text("\n".join(lines) + "\n")
    said = bigsvm("fit", "a9a.t.svm")
    assert said.code == 2
    command = re.search(r"bigsvm (ingest \S+ [^\s)]+)", said.err)
    assert command is not None
    assert bigsvm(*command[1].split()).code == 0
    assert bigsvm("plan", command[1].split()[-1]).code == 0


@pytest.mark.parametrize("nested", [["day=1", "day=2"], ["year=1/day=1", "year=1/day=2"]])
@pytest.mark.parametrize("beside", [False, True])
def test_partitioned_folders_name_their_files(nested: list[str], beside: bool, bigsvm: Bigsvm, tmp_path: Path) -> None:
    for part, rows in zip(nested, np.array_split(np.arange(N), 2), strict=True):
        (tmp_path / "hive" / part).mkdir(parents=True)
        formats.parquet(tmp_path / "hive" / part / "a.parquet", X[rows], LABELS[rows], layout="columns")
    if beside:  # files beside such folders alone would be read, and the rest left out
        formats.parquet(tmp_path / "hive" / "b.parquet", X[:2], LABELS[:2], layout="columns")
    said = bigsvm("inspect", "hive")
    assert said.code == 2
    pattern = re.search(r"'(hive/.*\.parquet)'", said.err)
    assert pattern is not None
    found = bigsvm("inspect", pattern[1], "--json").document["result"]
    assert found["n_samples"] == N
    assert found["stored_bytes"] == sum(file.stat().st_size for file in tmp_path.glob("hive/**/a.parquet"))
    assert "on disk" in bigsvm("inspect", pattern[1]).out


@pytest.mark.parametrize("command", [("ingest", "t.svm", "-"), ("fit", "t.zarr", "-o", "-")])
def test_a_folder_does_not_go_to_standard_output(command: tuple[str, ...], bigsvm: Bigsvm, tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("1 1:1\n-1 1:2\n")
    assert bigsvm("ingest", "t.svm", "t.zarr").code == 0
    said = bigsvm(*command)
    assert said.code == 73
    assert "standard output" in said.err
    assert not (tmp_path / "-").exists()


# ---- labels that are large, or truth values ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int64", "uint64", "bool"])
def test_labels_stay_exactly_what_they_are(kind: str, bigsvm: Bigsvm, tmp_path: Path) -> None:
    known: dict[str, Any] = {"int64": [2**53 + 1, 2**53 + 2], "uint64": [5, 2**64 - 1], "bool": [False, True]}
    classes = np.array(known[kind], kind)
    labels = classes[(LABELS > 0).astype(int)]
    formats.parquet(tmp_path / "t.parquet", X, labels, layout="columns")
    said = bigsvm("fit", "t.parquet", "-o", "m", "--json", "--memory", "14MiB", "--class-weight", f"{classes[1]}=2")
    assert said.code == 0
    assert said.document["result"]["classes"] == classes.tolist()
    assert json.loads((tmp_path / "m/model.json").read_text())["classes"] == classes.tolist()
    model = load_model(tmp_path / "m")
    assert model.classes.dtype == kind
    np.testing.assert_array_equal(np.unique(model.predict(X)), classes)
    found = predicted(bigsvm, tmp_path / "m", "t.parquet")
    assert {type(row["label"]) for row in found} == {type(classes.tolist()[0])}
    for form in ("csv", "parquet", "zarr"):
        assert bigsvm("predict", "m", "t.parquet", "-o", f"p.{form}").code == 0
    expected = [row["label"] for row in found]
    assert set(expected) == set(classes.tolist())
    assert (tmp_path / "p.csv").read_text().splitlines() == [str(label) for label in expected]
    assert pq.read_table(tmp_path / "p.parquet")["label"].to_pylist() == expected
    assert zarr.open_group(tmp_path / "p.zarr", mode="r")["label"][:].tolist() == expected
    measured = bigsvm("evaluate", "m", "t.parquet", "--json").document["result"]
    assert measured["classes"] == classes.tolist()
    assert measured["accuracy"] == np.mean(np.array(expected, kind) == labels)
    assert bigsvm("certify", "m", "t.parquet").code == 0
    assert bigsvm("dump", "t.parquet", "t.svm").code == 0
    from_text = bigsvm("evaluate", "m", "t.svm", "--json").document["result"]
    assert from_text["accuracy"] == measured["accuracy"]


# ---- chunks that are not there -------------------------------------------------------------------------------


def test_empty_chunks_are_vouched_for_on_the_command_line(bigsvm: Bigsvm, tmp_path: Path) -> None:
    rows = X.copy()
    rows[16:32] = 0
    left_out = {"write_empty_chunks": False}
    formats.foreign(tmp_path / "s.zarr", rows, LABELS, layout="dense", config=left_out)
    for command in ("fit", "plan", "inspect", "seal"):
        said = bigsvm(command, "s.zarr")
        assert said.code == 65
        assert "X/c/1/0" in said.err
        assert "--empty-chunks zeros" in said.err
    said = bigsvm("fit", "s.zarr", "-o", "m", "--empty-chunks", "zeros", "--max-passes", "0.5", "--json")
    assert said.code in (0, 4)
    assert any("1 of the 8 chunks of X are absent" in warning for warning in said.document["warnings"])
    assert bigsvm("evaluate", "m", "s.zarr").code == 0  # remembered
    assert bigsvm("seal", "s.zarr").code == 65
    assert "1 empty" in bigsvm("seal", "s.zarr", "--empty-chunks", "zeros").out
    assert "1 empty" in bigsvm("verify", "s.zarr").out
    assert "1 of the 8 chunks of X are absent" in bigsvm("inspect", "s.zarr").out
    assert bigsvm("verify", "s.zarr", "--json").document["result"]["n_empty"] == 1


@pytest.mark.parametrize(
    ("sources", "terminal", "quiet", "lines"),
    [(["-"], True, False, 1), (["a.svm", "-"], True, False, 1), (["-"], False, False, 0), (["a"], True, False, 0),
     (["-"], True, True, 0)],
)  # fmt: skip
def test_who_is_to_type_rows_is_told(
    sources: list[str], terminal: bool, quiet: bool, lines: int,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Without a word the command would wait for ever, as it seems."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: terminal))
    Session("predict", quiet=quiet).note_of_typing(*sources)
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", lines)
