"""What reading a store calls of compiled code is named by the store, and compiled before memory is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from bigsvm.config import FitConfig
from bigsvm.model.linear_model import load_model
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.proof.certify import certify_model
from bigsvm.run.warm import CASES, warm
from bigsvm.store import precompile_reading
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.dump import dump
from tests.forked import Run, programs
from tests.products import each_of
from tests.signatures import SIGNATURES

N, WIDTH = 40, 5
_PROGRAM = (
    SIGNATURES
    + """
import warnings
from bigsvm.store.formats.opener import open_store
import bigsvm.store.formats.parquet_rows, bigsvm.store.formats.tables.table_rows
"""
)
_READ = """
warnings.simplefilter("ignore")
before = signatures()
store = open_store(sys.argv[1], **json.loads(sys.argv[2]))
store.classes, store.n_features, store.nnz
assert sys.argv[2] != "{}" or signatures() == before, "entries are counted by nothing that is compiled"
for one in store.compiled_calls:
    one.call()
named = signatures() - before
for rows in (3, 11, 40):
    for ref in store.refs(min(rows, store.n_samples)):
        store.read(ref)
    store.forget()
new = signatures() - before - named
assert not new, new
called = {name for name, _ in named if not name.startswith("_")}  # what a loop calls may come with it
assert called == set(sys.argv[3].split()), called
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a program in a process that has called nothing before."""
    with programs(_PROGRAM, tmp_path_factory.mktemp("programs")) as run:
        yield run


def lists(kind: str, stored: str) -> dict[str, pa.Array]:
    offsets = pa.array(np.arange(N + 1, dtype=np.int32) * 3)
    indices = np.tile(np.array([0, 2, 4], stored), N)
    values = np.random.default_rng(0).integers(1, 9, 3 * N).astype(kind)
    parts = {"indices": pa.array(indices), "values": pa.array(values)}
    return {name: pa.ListArray.from_arrays(offsets, of) for name, of in parts.items()}


def table(form: str, kind: str, stored: str) -> pa.Table:
    """Rows in a form; of numbers of a type, with indices of another one."""
    dense = np.random.default_rng(0).integers(0, 9, (N, WIDTH)).astype(kind)
    labels = {"label": np.arange(N) % 2}
    if form == "lists":
        return pa.table({**labels, **lists(kind, stored)})
    if form in ("vectors", "mixed vectors"):
        found, dense_ones = lists(kind, stored), np.arange(N) % 5 == (0 if form == "mixed vectors" else 9)
        rows = [
            {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0, 0.0, 4.0, 5.0]}
            if is_dense
            else {"type": 0, "size": WIDTH, "indices": indices.as_py(), "values": values.as_py()}
            for is_dense, indices, values in zip(dense_ones, found["indices"], found["values"], strict=True)
        ]
        of = pa.struct([
            ("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.from_numpy_dtype(np.dtype(stored)))),
            ("values", pa.list_(pa.from_numpy_dtype(np.dtype(kind)))),
        ])  # fmt: skip
        return pa.table({**labels, "features": pa.array(rows, of)})
    if form == "fixed":
        return pa.table({**labels, "x": pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), WIDTH)})
    columns: dict[str, Any] = {f"f{j}": dense[:, j] for j in range(WIDTH)}
    if form == "texts":
        columns["city"] = np.array(["Rome", "Oslo"])[np.arange(N) % 2]
    if form == "several types":
        columns["f1"] = columns["f1"].astype("int16")
    return pa.table({**labels, **columns})


COLUMNS, TEXTS, LISTS = "find_columns turn_columns", "take_rows place_texts code_texts", "take_rows add_lists"
TEXT = f"read_columns {COLUMNS}"
FORMS = [
    ("parquet", "lists", LISTS), ("parquet", "vectors", LISTS), ("parquet", "mixed vectors", LISTS),
    ("parquet", "fixed", "take_values"), ("parquet", "columns", COLUMNS), ("parquet", "several types", COLUMNS),
    ("feather", "columns", COLUMNS), ("feather", "texts", TEXTS), ("feather", "lists", LISTS),
    ("csv", "columns", TEXT), ("csv", "texts", TEXTS),
]  # fmt: skip
WRITERS: dict[str, Any] = {
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=7),
    "feather": lambda table, path: pyarrow.feather.write_feather(table, path, chunksize=7),
    "csv": pyarrow.csv.write_csv,
}
OPTIONS: list[dict[str, Any]] = [
    {}, {"missing": "drop"}, {"rows": "label >= 0"}, {"split": 0.5}, {"scale": "maxabs"}, {"positive": "1"},
    {"normalize": "log1p"}, {"labelled": False},
]  # fmt: skip


@each_of(
    suffix__form__called=FORMS,
    kind=["float32", "float64", "int8", "int64"],
    stored=["int32", "int64", "int16"],
    options=OPTIONS,
)
def test_a_store_names_all_that_its_blocks_are_read_by(
    run: Run, suffix: str, form: str, called: str, kind: str, stored: str, options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / f"rows.{suffix}"
    WRITERS[suffix](table(form, kind, stored), str(path))
    run(_READ, str(path), json.dumps(options), called)


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """What was asked to be compiled, or loaded, for reading rows; the cache knows nothing of them."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(precompile_reading, "compiled_in_child", lambda kind, call, emit: found.append(kind))
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    return found


def test_whoever_reads_a_store_compiles_it_before(tmp_path: Path, kinds: list[tuple[str, ...]]) -> None:
    path, model = tmp_path / "rows.parquet", tmp_path / "m"
    pq.write_table(table("columns", "float64", "int32"), path)
    config, store = FitConfig.of(max_passes=20), open_store(path)
    expected = ("reading", "columns as rows", "float64")
    assert not kinds, "opening reads no rows"

    def asked() -> bool:
        found = expected in kinds
        kinds.clear()
        return found

    fit_store(store, config).save_model(model)
    assert asked()
    certify_model(model, store, config)
    assert asked()
    loaded = load_model(model)
    evaluate(loaded, store, config)
    assert asked()
    predict(loaded, store, tmp_path / "p.csv", "csv", config)
    assert asked()
    dump(store, str(tmp_path / "rows.svm"))
    assert asked()
    ingest(path, tmp_path / "rows.zarr")
    assert asked()
    ingest(path, tmp_path / "rows.zarr", append=True)
    assert asked()
    for scale in ("maxabs", "standard"):
        open_store(path, scale=scale)
        assert asked(), scale
        open_store(path, scale=scale)
        assert not asked(), "its scales are known"
    open_store(path, scale="unit-norm")
    assert not asked(), "which reads no rows"


@pytest.mark.parametrize("texts", [False, True])
def test_a_dask_dataframe_compiles_before_it_is_read(texts: bool, tmp_path: Path, kinds: list[tuple[str, ...]]) -> None:
    frames, pandas = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    columns = {
        "label": np.arange(N) % 2,
        "x": np.arange(N) / 2.0,
        **({"city": ["Rome", "Oslo"] * (N // 2)} if texts else {}),
    }
    ingest(frames.from_pandas(pandas.DataFrame(columns), npartitions=2), tmp_path / "rows.zarr")
    assert (("reading", "columns as rows", "float64") in kinds) == (not texts)
    assert (("reading", "texts as codes") in kinds) == texts


def test_warming_compiles_what_tables_of_the_usual_kinds_are_read_by(
    tmp_path: Path, kinds: list[tuple[str, ...]]
) -> None:
    warm(["fit"], cases=[case for case in CASES if case.table])
    warmed = set(kinds)
    usual = [
        ("csv", "columns", "float64", ""), ("csv", "columns", "int64", ""), ("csv", "texts", "float64", ""),
        ("feather", "columns", "float64", ""), ("feather", "texts", "float64", ""),
        ("parquet", "columns", "float64", ""), ("parquet", "columns", "float32", ""),
        ("parquet", "several types", "float64", ""), ("parquet", "columns", "int64", ""),
        ("parquet", "fixed", "float32", ""), ("parquet", "fixed", "float64", ""),
        ("parquet", "lists", "float32", "int32"), ("parquet", "lists", "float64", "int64"),
        ("parquet", "lists", "float64", "int32"), ("parquet", "lists", "float32", "int64"),
        ("parquet", "vectors", "float64", "int32"), ("parquet", "mixed vectors", "float64", "int32"),
    ]  # fmt: skip
    for number, (suffix, form, kind, stored) in enumerate(usual):
        path = tmp_path / f"{number}.{suffix}"
        WRITERS[suffix](table(form, kind, stored or "int32"), str(path))
        kinds.clear()
        precompile_reading.precompile_reading(open_store(path))
        assert set(kinds) <= warmed, (suffix, form, kind)
        assert kinds
