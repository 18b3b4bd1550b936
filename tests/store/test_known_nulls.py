"""A row without a value is refused before anything is compiled, where opening the table has found it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.model.linear_model import load_model
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.store.formats import parquet_files
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import pieces
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.dump import dump

N, ROW = 300, 217
COLUMNS: dict[str, Callable[[int], Any]] = {
    "whole": lambda i: i % 7,
    "real": lambda i: i / 8,
    "truth": lambda i: i % 3 == 0,
    "text": lambda i: "abc"[i % 3],
    "mixed": lambda i: "x" if i == N - 1 else i % 5,  # which looks like numbers until the last piece of the file
}


def table(columns: list[str], empty: str | None) -> pa.Table:
    """Rows with these columns; that of `empty` has no value in ROW."""
    parts = {"label": [i % 2 for i in range(N)]}
    for name in columns:
        values = [None if name == empty and i == ROW else COLUMNS[name](i) for i in range(N)]
        parts[name] = [value if value is None or name != "mixed" else str(value) for value in values]
    return pa.table(parts)


def written(kind: str, columns: list[str], empty: str | None, folder: Path) -> str:
    path, rows = folder / f"rows{kind}", table(columns, empty)
    if kind == ".parquet":
        pq.write_table(rows, path, row_group_size=100)
    else:
        options = pa.csv.WriteOptions(quoting_style="none", delimiter="\t" if "tsv" in kind else ",")
        with pa.output_stream(str(path)) as stream:  # which compresses by the name
            pa.csv.write_csv(rows, stream, options)
    return str(path)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1000)


@pytest.fixture
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled before the row was refused")

    for name in ("store.precompile_reading", "run.fit.precompile", "run.apply.scoring"):
        monkeypatch.setattr(f"bigsvm.{name}.compiled_in_child", fail)
    monkeypatch.setattr("bigsvm.store.ingest.small_ingest.precompile_calls", fail)


def fit(path: str, folder: Path) -> None:
    bigsvm.fit(path, memory="300MiB")


def fit_scaled(path: str, folder: Path) -> None:
    bigsvm.fit(path, memory="300MiB", scale="maxabs")


def fit_opened(path: str, folder: Path) -> None:
    bigsvm.fit(open_store(path, positive="1"), memory="300MiB")


def ingested(path: str, folder: Path) -> None:
    ingest(path, folder / "rows.zarr")


def dumped(path: str, folder: Path) -> None:
    dump(open_store(path), folder / "rows.svm")


FORMATS = [".csv", ".tsv", ".csv.gz", ".parquet"]


@pytest.mark.parametrize("work", [fit, fit_scaled, fit_opened, ingested, dumped])
@pytest.mark.parametrize(
    ("kind", "empty"),
    [pair for pair in itertools.product(FORMATS, COLUMNS) if pair not in ((".parquet", "text"), (".parquet", "mixed"))],
)
@pytest.mark.usefixtures("nothing_is_compiled")
def test_a_null_is_refused_before_anything_is_compiled(
    kind: str, empty: str, work: Callable[[str, Path], None], tmp_path: Path
) -> None:
    path = written(kind, ["whole", empty] if empty != "whole" else ["real", empty], empty, tmp_path)
    with pytest.raises(DataError) as caught:
        work(path, tmp_path)
    remedy = f"repair or drop the row; for a file, --rows '`{empty}` is not null' leaves out all such rows"
    remedy += "; rows are counted from 0"
    told = str(caught.value).replace("file, rows='", "file, --rows '")  # as the Python interface writes the option
    assert told == f"{path}, column {empty!r}: row {ROW} holds a null ({remedy})"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    rows = np.arange(24.0).reshape(12, 2)
    parts = {"label": np.arange(12) % 2, "real": rows[:, 0], "whole": rows[:, 1]}
    pq.write_table(pa.table(parts), folder / "t.parquet")
    bigsvm.fit(str(folder / "t.parquet"), memory="300MiB", max_passes=3).save_model(folder / "m")
    return folder / "m"


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_to_score_are_refused_as_early(
    kind: str, model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = written(kind, ["real", "whole"], "whole", tmp_path)
    request.getfixturevalue("nothing_is_compiled")
    known, store, config = load_model(model), open_store(path), FitConfig.of(memory="300MiB")
    with pytest.raises(DataError, match=f"row {ROW} holds a null"):
        predict(known, store, tmp_path / "p.csv", "csv", config)
    with pytest.raises(DataError, match=f"row {ROW} holds a null"):
        evaluate(known, store, config)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_null_in_a_row_or_column_that_is_not_used_is_no_error(kind: str, tmp_path: Path) -> None:
    path = written(kind, ["real", "whole"], "whole", tmp_path)
    for store in (open_store(path, columns=("real",)), open_store(path, rows="real < 20")):
        store.refuse_known()
        store.read(store.refs(store.n_samples)[0])


def test_what_footers_do_not_tell_is_found_when_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(table(["real"], "real"), tmp_path / "silent.parquet", write_statistics=False)
    told = open_store(written(".parquet", ["real"], "real", tmp_path))
    monkeypatch.setattr(parquet_files, "_STATISTICS", 2)  # of three row groups
    for store in (open_store(str(tmp_path / "silent.parquet")), told):
        store.refuse_known()
        with pytest.raises(DataError, match=f"row {ROW} holds a null"):
            store.read(store.refs(N)[0])
    monkeypatch.setattr(parquet_files, "_STATISTICS", 3)
    with pytest.raises(DataError, match=f"row {ROW} holds a null"):
        told.refuse_known()
