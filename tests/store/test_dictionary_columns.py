"""Columns with a dictionary of their values, as Arrow and pandas write categories, and text in views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.testing.contracts import dense
from tests.products import pairs_of
from tests.store.people import expected, people
from tests.store.read_back import rows_of


def test_arrow_dictionaries_are_categories(tmp_path: Path) -> None:
    rows = people()
    columns = {name: [row[j] for row in rows] for j, name in enumerate(("age", "city", "label", "member"))}
    table = pa.table(columns | {"city": pa.array(columns["city"]).dictionary_encode()})
    for compression in ("uncompressed", "lz4"):
        path = tmp_path / f"{compression}.feather"
        pyarrow.feather.write_feather(table, path, chunksize=8, compression=compression)
        store = open_store(path)
        np.testing.assert_array_equal(rows_of(store), expected(rows))
        assert store.nnz == np.count_nonzero(expected(rows))


@pytest.mark.parametrize("missing", ["refuse", "drop"])
@pytest.mark.parametrize("values", [["a", None, "b"], [5, None, 7]], ids=["text", "numbers"])
@pytest.mark.parametrize("role", ["label", "weight", "feature", "condition"])
def test_a_null_of_a_dictionary_is_a_null(role: str, values: list[Any], missing: Any, tmp_path: Path) -> None:
    """As of a column without a dictionary: told, left out, or met by no condition; never a class named None."""
    n = 30
    coded = pa.DictionaryArray.from_arrays(pa.array(np.arange(n) % 3, pa.int8()), pa.array(values))
    columns: dict[str, Any] = {"label": pa.array(np.arange(n) % 2), "x": pa.array(np.arange(n) + 0.5)}
    columns["label" if role == "label" else "weight" if role == "weight" else "other"] = coded
    for name, changed in (("dictionary", coded), ("plain", coded.dictionary_decode())):
        table = pa.table({key: changed if column is coded else column for key, column in columns.items()})
        pa.feather.write_feather(table, tmp_path / f"{name}.feather", compression="uncompressed", chunksize=7)
    options: dict[str, Any] = {"missing": missing}
    if role == "condition":
        options.update(columns=["x"], rows=f"other in ({values[0]}, {values[2]})")
    elif role == "feature":
        options["columns"] = ["x", "other"]

    def read(name: str) -> tuple[list[Any], ...] | str:
        try:
            store = open_store(tmp_path / f"{name}.feather", **options)
            blocks = [store.read(ref) for ref in store.refs(4)]
        except DataError as error:
            return error.what
        rows = [dense(block.X, store.n_features).tolist() for block in blocks]
        weights = [None if block.sample_weight is None else block.sample_weight.tolist() for block in blocks]
        return rows, [block.y.tolist() for block in blocks], weights, [str(name) for name in store.classes]

    assert read("dictionary") == read("plain")
    refused = role in ("feature", "weight") or (role == "label" and missing == "refuse")
    assert isinstance(read("plain"), str) == refused


def test_a_model_whose_categories_are_numbers_reads_a_dictionary_of_them(tmp_path: Path) -> None:
    """As earlier versions made it of such a column."""
    text = pd.DataFrame({"label": [0, 1] * 10, "z": pd.Categorical([str(k % 3 + 5) for k in range(20)])})
    numbers = text.assign(z=pd.Categorical([k % 3 + 5 for k in range(20)]))
    for name, frame in (("text", text), ("numbers", numbers)):
        pa.feather.write_feather(frame, tmp_path / f"{name}.feather")
    store = open_store(tmp_path / "text.feather")
    again = open_store(tmp_path / "numbers.feather", like=store.recipe)
    assert store.n_features == 3
    assert not again.warnings
    np.testing.assert_array_equal(rows_of(again), rows_of(store))
    wide = pa.table({"label": np.arange(20) % 2, **{f"x{k}": numbers.z for k in range(50)}})
    pa.feather.write_feather(wide, tmp_path / "wide.feather")
    alone = open_store(tmp_path / "numbers.feather").chunk_nbytes
    assert open_store(tmp_path / "wide.feather").chunk_nbytes == alone + 49 * 8 * 20  # a batch without its dictionaries


NUMBERS = [
    np.array([7, -1, 30]),
    np.array([7, 0, 30], np.uint8),
    np.array([1.5, 0.25, -2.0]),
    np.array([1.5, 0, 2], np.float32),
    np.array([True, False]),
]


@pairs_of(
    numbers=NUMBERS,
    role=["feature", "label", "weight"],
    form=["parquet", "feather", "batches", "csv", "dask", "unknown"],
)
def test_numbers_with_a_dictionary_are_numbers_in_every_format(
    numbers: np.ndarray, role: str, form: str, tmp_path: Path
) -> None:
    """As pandas writes a categorical column of numbers."""
    n = 30
    if role == "weight":
        numbers = np.abs(numbers)
    of_rows = np.arange(n) % len(numbers)
    columns: dict[str, Any] = {"label": np.arange(n) % 2, "x": np.arange(n) + 0.5, "weight": np.arange(n) + 1.0}
    name = "z" if role == "feature" else role
    plain = pd.DataFrame({**columns, name: numbers[of_rows]})
    frame = plain.assign(**{name: pd.Categorical.from_codes(of_rows, numbers)})
    assert pa.types.is_dictionary(pa.Schema.from_pandas(frame).field(name).type)
    path = tmp_path / f"rows.{form}"
    if form == "parquet":
        frame.to_parquet(path)
    elif form == "csv":
        frame.to_csv(path, index=False)
    elif form in ("feather", "batches"):
        path = tmp_path / "rows.feather"
        pa.feather.write_feather(frame, path, chunksize=7 if form == "batches" else None)
    else:
        dask_frames = pytest.importorskip("dask.dataframe")
        collection = dask_frames.from_pandas(frame, npartitions=3)
        if form == "unknown":
            collection = dask_frames.from_pandas(plain, npartitions=1).astype({name: "category"})
        ingest(collection, path)
    pa.feather.write_feather(plain, tmp_path / "plain.feather")
    known = tmp_path / "plain.feather"
    if form in ("dask", "unknown"):  # `ingest` takes numbers of any kind for classes
        ingest(known, known := tmp_path / "plain")
    store, expected = open_store(path), open_store(known)
    assert (store.n_features, store.feature_names) == (expected.n_features, expected.feature_names)
    np.testing.assert_array_equal(rows_of(store), rows_of(expected))
    assert str(store.classes) == str(expected.classes)
    for ref in store.refs(n):
        block, other = store.read(ref), expected.read(ref)
        np.testing.assert_array_equal(block.y, other.y)
        np.testing.assert_array_equal(block.sample_weight, other.sample_weight)


def test_text_in_views_as_polars_writes_it(tmp_path: Path) -> None:
    texts = pa.array(["no", "yes", "no"]).cast(pa.string_view())
    table = pa.table({"label": texts, "city": texts, "x": [1.0, 2.0, 3.0]})
    with pa.ipc.new_file(tmp_path / "views.arrow", table.schema) as file:
        file.write_table(table)
    store = open_store(tmp_path / "views.arrow")
    assert store.feature_names == ["city=no", "city=yes", "x"]
    assert store.classes is not None
    assert store.classes.tolist() == ["no", "yes"]
    X = store.read(store.refs(3)[0]).X
    assert (X.indices.tolist(), X.data.tolist()) == ([0, 2, 1, 2, 0, 2], [1.0, 1.0, 1.0, 2.0, 1.0, 3.0])


@pytest.mark.parametrize("place", ["label", "feature"])
def test_views_of_strings_in_a_dictionary_are_text(place: str, tmp_path: Path) -> None:
    """As polars writes a categorical column."""
    text, numbers = ["lo", "hi", "hi", "lo"] * 5, np.arange(20.0)
    views = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 1, 0] * 5, pa.uint32()), pa.array(["lo", "hi"]).cast(pa.string_view())
    )
    label: Any = views if place == "label" else pa.array([0, 1] * 10)
    other: Any = pa.array(text) if place == "label" else views
    plain = pa.table({"label": pa.array(text) if place == "label" else label, "a": numbers, "t": pa.array(text)})
    pyarrow.feather.write_feather(pa.table({"label": label, "a": numbers, "t": other}), tmp_path / "views.arrow")
    pyarrow.feather.write_feather(plain, tmp_path / "plain.arrow")
    views_store, plain_store = (open_store(tmp_path / name) for name in ("views.arrow", "plain.arrow"))
    assert views_store.feature_names == plain_store.feature_names
    np.testing.assert_array_equal(rows_of(views_store), rows_of(plain_store))
    y, z = (store.read(store.refs(20)[0]).y.tolist() for store in (views_store, plain_store))
    assert y == z
