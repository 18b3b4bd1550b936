"""bigsvm dump as every kind of file: what is read back is what was there."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, OutputError, UsageError
from bigsvm.run.apply import row_files
from bigsvm.run.apply.prediction_files import format_of
from bigsvm.run.apply.row_files import row_format, write_rows
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.contracts import dense, example
from tests.store import formats

X, LABELS = example("float32")
NAMED = np.where(LABELS > 0, 'say "b", c', "é")
CUT = np.where(LABELS > 0, "a\0b", "a\0c")  # pyarrow takes both for `a` in an array of NumPy's text
WEIGHTS = np.linspace(0, 2, len(X))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "_BLOCK_BYTES", 600)  # several blocks


def holds(store: Any, labels: np.ndarray, weights: np.ndarray | None) -> None:
    blocks = [store.read(ref) for ref in store.refs(10)]
    np.testing.assert_array_equal(np.concatenate([dense(block.X, store.n_features) for block in blocks]), X)
    codes = np.concatenate([block.y for block in blocks])
    np.testing.assert_array_equal(codes if store.classes is None else store.classes[codes], labels)
    assert store.has_weights is (weights is not None)
    if weights is not None:
        np.testing.assert_array_equal(np.concatenate([block.sample_weight for block in blocks]), weights)


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize(
    ("labels", "weights"),
    [(LABELS, None), (NAMED, WEIGHTS), (CUT, None), (X[:, 0] * 0.3 + 0.1, WEIGHTS)],
    ids=["numbers", "text", "text with NUL", "targets"],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".zarr"])
def test_reading_back_gives_the_same(
    suffix: str, labels: np.ndarray, weights: np.ndarray | None, layout: str, tmp_path: Path
) -> None:
    task = "regression" if labels.dtype.kind == "f" and labels is not LABELS else "classification"
    store = open_store(formats.written(tmp_path / "s.zarr", X, labels, weights, layout=layout, task=task))
    out = tmp_path / f"out{suffix}"
    found = write_rows(store, out, row_format(str(out), None))
    assert (found["n_samples"], found["n_features"]) == X.shape
    assert found["nnz"] == store.nnz
    assert found["bytes"] > 0
    if suffix != ".zarr":
        assert found["bytes"] == out.stat().st_size
    again = open_store(out)
    holds(again, labels, weights)
    assert (again.layout == layout) or suffix == ".csv"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("out", ".out"))] == [out.name]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".svm", ".zarr"])
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({}, ""),
        ({"scale": "unit-norm"}, "scaled by unit-norm,"),
        ({"normalize": "log1p"}, "normalized by log1p,"),
        ({"normalize": "log1p", "scale": "unit-norm"}, "normalized by log1p and scaled by unit-norm,"),
    ],
    ids=str,
)
def test_rows_that_ingest_changed_are_told(steps: dict[str, str], said: str, suffix: str, tmp_path: Path) -> None:
    """A model of the store changed the rows of the file a second time, without a word."""
    bigsvm.ingest((abs(X), LABELS), tmp_path / "s.zarr", **steps)
    out = tmp_path / f"out{suffix}"
    warnings = write_rows(open_store(tmp_path / "s.zarr"), out, row_format(str(out), None))["warnings"]
    told = [text for text in warnings if "models of the store would change these rows again" in text]
    assert [said in text for text in told] == ([] if not steps or suffix == ".zarr" else [True])


def test_lines_of_json_hold_all(tmp_path: Path) -> None:
    for layout in ("csr", "dense"):
        store = open_store(formats.written(tmp_path / f"{layout}.zarr", X, NAMED, WEIGHTS, layout=layout))
        write_rows(store, tmp_path / "out.jsonl", "jsonl", overwrite=True)
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [line["row"] for line in lines] == list(range(len(X)))
        assert [line["label"] for line in lines] == NAMED.tolist()
        assert [line["weight"] for line in lines] == WEIGHTS.tolist()
        for line, row in zip(lines, X, strict=True):
            filled = np.zeros(X.shape[1], np.float32)
            filled[line.get("indices", slice(None))] = line["values"]
            np.testing.assert_array_equal(filled, row)


def test_many_features_are_one_list_in_parquet_and_no_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "_COLUMNS", 10)
    store = open_store(formats.written(tmp_path / "s.zarr", X, LABELS, layout="dense"))
    write_rows(store, tmp_path / "out.parquet", "parquet")
    assert pq.read_schema(tmp_path / "out.parquet").field("features").type == pa.list_(pa.float32(), X.shape[1])
    holds(open_store(tmp_path / "out.parquet"), LABELS, None)
    monkeypatch.setattr(row_files, "_MOST_COLUMNS", 10)
    with pytest.raises(DataError, match="csv needs a column for each of the 11 features"):
        write_rows(store, tmp_path / "out.csv", "csv")
    assert not (tmp_path / "out.csv").exists()


def test_features_keep_their_names_where_they_can(tmp_path: Path) -> None:
    for names, wanted in ((["b", "a", "w"], ["b", "a", "w"]), (["b", "label", "w"], ["f0", "f1", "f2"])):
        columns = {name: pa.array(X[:, j]) for j, name in enumerate(names)}
        pyarrow.feather.write_feather(pa.table({"y": pa.array(LABELS), **columns}), tmp_path / "t.feather")
        found = write_rows(open_store(tmp_path / "t.feather", label="y"), tmp_path / "o.csv", "csv", overwrite=True)
        with (tmp_path / "o.csv").open(newline="") as file:
            assert next(csv.reader(file)) == ["label", *wanted]
        assert len(found["warnings"]) == (wanted != names)


class Failing:
    """A store whose second block cannot be read."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, ref: Any) -> Any:
        if ref.start:
            raise DataError("chunk 3 is damaged", "s.zarr")
        return self._store.read(ref)


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_what_fails_leaves_nothing(form: str, tmp_path: Path) -> None:
    store = open_store(formats.written(tmp_path / "s.zarr", X, LABELS, layout="dense"))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(DataError, match="chunk 3 is damaged"):
        write_rows(Failing(store), tmp_path / f"out.{form}", form)  # type: ignore[arg-type]
    assert sorted(os.listdir(tmp_path)) == before
    (tmp_path / f"out.{form}").write_text("mine")
    with pytest.raises(OutputError, match="the output exists"):
        write_rows(store, tmp_path / f"out.{form}", form)
    assert (tmp_path / f"out.{form}").read_text() == "mine"


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    store = open_store(formats.written(tmp_path / "s.zarr", X, LABELS, layout="dense"))

    class Full:
        def write(self, content: Any) -> int:
            raise OSError(28, "No space left on device")

    counted = row_files._Counted(Full(), Path("-"))  # type: ignore[arg-type]
    layout = row_files._Layout.of(store, "csv")
    for form in ("csv", "parquet", "jsonl"):
        with pytest.raises(OutputError, match="standard output"), row_files._writer(counted, form, layout) as writer:
            writer.write(store.read(store.refs(60)[0]))


def test_the_command_goes_by_the_suffix(
    tmp_path: Path, monkeypatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    formats.written(tmp_path / "s.zarr", X, LABELS, layout="dense")
    assert run(["dump", "s.zarr", "o.csv", "--quiet", "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["result"]["format"] == "csv"
    assert run(["dump", "s.zarr", "-", "--format", "csv"]) == 0
    assert capsysbinary.readouterr().out == (tmp_path / "o.csv").read_bytes()
    assert run(["dump", "s.zarr", "o.txt"]) == 0
    assert run(["dump", "s.zarr", "t.zarr"]) == 0
    assert open_store(tmp_path / "t.zarr").content_fingerprint == open_store(tmp_path / "s.zarr").content_fingerprint
    assert run(["dump", "s.zarr", "t.zarr"]) == 73
    assert run(["dump", "s.zarr", "s.zarr", "--overwrite"]) == 73
    capsysbinary.readouterr()
    with pytest.raises(UsageError, match="parquet cannot be written to standard output"):
        row_format("-", "parquet")


@pytest.mark.parametrize("choose", [row_format, format_of])
@pytest.mark.parametrize(
    "name", ["a.csv.gz", "a.svm.zst", "a.xz", "a.bz2", "a.TSV", "a.feather", "a.arrow", "a.npz", "a.npy"]
)
def test_no_other_format_is_written_under_the_name_of_one(choose: Any, name: str) -> None:
    with pytest.raises(UsageError, match="suffix of a format that is not written here"):
        choose(name, None)
    assert choose(name, "csv") == "csv"
