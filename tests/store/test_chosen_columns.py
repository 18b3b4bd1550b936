"""--columns: features by their names or by patterns of a shell, of every kind of table."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, UsageError
from bigsvm.model.linear_model import load_model
from bigsvm.run.apply.predict import predict
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables.column_choice import chosen_columns
from bigsvm.store.ingest.ingest import ingest
from bigsvm.testing.contracts import dense
from tests.products import on_request

N = 40
rng = np.random.default_rng(0)
NAMES = ["x1", "x2", "x10", "y1", "age", "x*", "X3", "a[1]", "a1"]
VALUES = {name: np.round(rng.standard_normal(N), 3) for name in NAMES}
LABELS = (VALUES["x1"] + VALUES["age"] > 0).astype(np.int64)
TABLE = pa.table({
    "name": [f"row {i}" for i in range(N)], **VALUES, "label": LABELS, "weight": np.ones(N), "xlabel": 1 - LABELS,
})  # fmt: skip
WRITERS: dict[str, Callable[[pa.Table, str], None]] = {
    "csv": pyarrow.csv.write_csv, "feather": pyarrow.feather.write_feather, "parquet": pq.write_table,
}  # fmt: skip
ASKED: dict[tuple[str, ...], list[str]] = {
    ("x1", "age"): ["x1", "age"],
    ("age", "x1"): ["x1", "age"],
    ("x?",): ["x1", "x2", "x*"],
    ("x*",): ["x*"],  # a column is called so
    ("[xX]?",): ["x1", "x2", "x*", "X3"],
    ("y*", "a??", "y1"): ["y1", "age"],
    ("a[1]",): ["a[1]"],
    ("[a]1", "x10"): ["x10", "a1"],
    ("x[0-9]*",): ["x1", "x2", "x10"],
    ("x[!1-9]",): ["x*"],
    ("?[0-9]", "weigh?"): [],
    ("weight", "x1"): ["x1", "weight"],
}


def write(folder: Path, suffix: str, table: pa.Table = TABLE) -> Path:
    path = folder / f"rows.{suffix}"
    WRITERS[suffix](table, str(path))
    return path


def rows_of(store: Any) -> np.ndarray:
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(7)])


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("asked", ASKED)
def test_the_columns_that_are_meant_are_the_features(suffix: str, asked: tuple[str, ...], tmp_path: Path) -> None:
    path, wanted = write(tmp_path, suffix), ASKED[asked]
    if not wanted:
        with pytest.raises(UsageError, match=r"no column matches 'weigh\?'.*a pattern never selects labels or weights"):
            open_store(path, columns=asked)
        return
    store = open_store(path, columns=asked)
    np.testing.assert_array_equal(rows_of(store), np.stack([TABLE[name].to_numpy() for name in wanted], axis=1))
    assert store.has_weights == ("weight" not in asked)
    again = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(rows_of(again), rows_of(store))
    assert again.identity == store.identity
    unlabelled = open_store(path, columns=asked, labelled=False)
    np.testing.assert_array_equal(rows_of(unlabelled), rows_of(store))


@pytest.mark.parametrize("suffix", WRITERS)
def test_which_columns_were_read_belongs_to_the_identity(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path, suffix)
    asked = [("x1", "x2", "x10"), ("x[0-9]*",), ("x1", "x2"), ("x?",)]
    of = {names: open_store(path, columns=names).identity for names in asked}
    for one, other in itertools.combinations(asked, 2):
        assert (of[one] == of[other]) == (ASKED.get(one, list(one)) == ASKED.get(other, list(other)))


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("q*",), "no column matches 'q*'"), (("x1", "[q]"), "no column matches '[q]'"), (("x1", "q"), "no column 'q'"),
        (("lab*",), "no column matches 'lab*'"), (("XX*", "x1"), "no column matches 'XX*'"),
    ],
)  # fmt: skip
def test_what_nothing_matches_is_refused(suffix: str, asked: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(write(tmp_path, suffix), columns=asked)
    assert said in str(caught.value)
    assert "columns there: name, x1" in str(caught.value)


@pytest.mark.parametrize("trained", WRITERS)
@pytest.mark.parametrize("read", WRITERS)
def test_a_model_takes_the_same_columns_by_their_names(trained: str, read: str, tmp_path: Path) -> None:
    fitted = bigsvm.fit(write(tmp_path, trained), columns=["x[0-9]*", "age"], memory="64MiB")
    fitted.save_model(tmp_path / "model")
    model = load_model(tmp_path / "model")
    kept = json.loads((tmp_path / "model" / "rows.json").read_text())
    folder = tmp_path / "other"
    folder.mkdir()
    other = TABLE.select(["x10", "y1", "age", "X3", "x2", "x1", "label"]).append_column("x0", pa.array(np.ones(N)))
    store = open_store(write(folder, read, other), labelled=False, like=model.about["rows"])
    if "encoding" not in kept or read != "parquet":  # encodings of text are not for Parquet
        assert store.n_features == 4
        found, names = rows_of(store), ["x1", "x2", "x10", "age"]
        np.testing.assert_array_equal(found, np.stack([TABLE[name].to_numpy() for name in names], axis=1))
        again = pickle.loads(pickle.dumps(store))
        np.testing.assert_array_equal(rows_of(again), found)


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_column_of_the_model_that_is_not_there_is_refused(suffix: str, tmp_path: Path) -> None:
    """Although the model's name of it would match another one."""
    like = {"columns": ["x1", "a[1]"]}
    folder = tmp_path / "other"
    folder.mkdir()
    with pytest.raises(DataError, match=r"no column 'a\[1\]', which the model was trained on"):
        open_store(write(folder, suffix, TABLE.drop_columns(["a[1]"])), labelled=False, like=like)


@pytest.mark.parametrize("suffix", ["feather", "parquet"])
def test_one_of_several_columns_of_lists_is_chosen(suffix: str, tmp_path: Path) -> None:
    flat = np.arange(3.0 * N)
    vectors = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(sign * flat), 3) for name, sign in (("v", 1), ("w", -1))
    }
    table = pa.table({"label": LABELS, "name": TABLE["name"], **vectors})
    path = write(tmp_path, suffix, table)
    for asked, sign in (("v", 1), ("w", -1), ("[w]*", -1)):
        np.testing.assert_array_equal(rows_of(open_store(path, columns=[asked])), sign * flat.reshape(N, 3))


def test_names_of_a_file_without_a_header_may_look_like_patterns(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{i % 2},{i},{-i}\n" for i in range(N)))
    store = open_store(path, columns=["label", "x[1]", "x*"])
    np.testing.assert_array_equal(rows_of(store), [[i, -i] for i in range(N)])
    with pytest.raises(UsageError, match=r"no column matches 'x\*'"):
        open_store(path, columns=["label", "x*"])


def test_ingest_keeps_which_columns_they_were(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet")
    ingest(path, tmp_path / "rows.zarr", columns=["x[0-9]*"])
    ingest(path, tmp_path / "rows.zarr", append=True)
    store = open_store(tmp_path / "rows.zarr")
    wanted = np.stack([VALUES[name] for name in ("x1", "x2", "x10")], axis=1)
    np.testing.assert_array_equal(rows_of(store), np.concatenate([wanted, wanted]))


def test_columns_of_a_dask_dataframe(tmp_path: Path) -> None:
    frames = pytest.importorskip("dask.dataframe")
    pytest.importorskip("pandas")
    frame = frames.from_pandas(TABLE.to_pandas(), npartitions=3)
    ingest(frame, tmp_path / "rows.zarr", columns=["x[0-9]*", "age"])
    wanted = np.stack([VALUES[name] for name in ("x1", "x2", "x10", "age")], axis=1)
    np.testing.assert_array_equal(rows_of(open_store(tmp_path / "rows.zarr")), wanted)
    with pytest.raises(UsageError, match=r"no column matches 'q\*'"):
        ingest(frame, tmp_path / "other.zarr", columns=["q*"])


@pytest.mark.parametrize("way", ["open_store", "ingest", "fit", "labels", *on_request("tune", "fit of a collection")])
def test_text_names_columns_as_on_the_command_line(way: str, tmp_path: Path) -> None:
    """A string is a sequence of strings, too: its letters were taken for names."""
    path, found = write(tmp_path, "parquet"), tmp_path / "rows.zarr"
    if way == "open_store":
        assert open_store(path, columns="x[0-9]*, age").n_features == 4
    elif way == "ingest":
        assert ingest(path, found, columns="x[0-9]*,age")["n_features"] == 4
    elif way == "fit":
        assert bigsvm.fit(path, columns="x[0-9]*,age", memory="64MiB").model.n_features == 4
    elif way == "tune":
        tuned = bigsvm.tune(path, columns="x[0-9]*,age", Cs=[1.0], folds=2, memory="64MiB", refit=True)
        assert tuned.refit.model.n_features == 4
    elif way == "labels":
        pq.write_table(TABLE.append_column("b", pa.array(1 - LABELS)), path)
        assert bigsvm.fit(path, labels="label, b", columns="x1", memory="64MiB").model.coef.shape == (2, 1)
    else:
        frames = pytest.importorskip("dask.dataframe")
        frame = frames.from_pandas(TABLE.to_pandas(), npartitions=3)
        fitted = bigsvm.fit(frame, columns="x[0-9]*,age", memory="64MiB", scratch=tmp_path)
        assert fitted.model.n_features == 4


def test_predict_takes_the_columns_of_the_model(tmp_path: Path) -> None:
    fitted = bigsvm.fit(write(tmp_path, "parquet"), columns=["x[0-9]*", "age"], memory="64MiB")
    (tmp_path / "other").mkdir()
    found = []
    for path in (
        tmp_path / "rows.parquet",
        write(tmp_path / "other", "parquet", TABLE.select(TABLE.column_names[::-1])),
    ):
        store = open_store(path, labelled=False, like=fitted.model.about["rows"])
        predict(fitted.model, store, path.with_suffix(".txt"), "csv", FitConfig.of())
        found.append(path.with_suffix(".txt").read_text())
    assert found[0] == found[1]
    assert len(set(found[0].splitlines())) == 2


def score(path: Path, model: Any, out: Path) -> None:
    predict(model, open_store(path, labelled=False, like=model.about["rows"]), out, "csv", FitConfig.of())


@pytest.mark.parametrize("scored", WRITERS)
@pytest.mark.parametrize("trained", WRITERS)
def test_features_that_have_names_never_go_by_their_places(trained: str, scored: str, tmp_path: Path) -> None:
    """Also where no columns were chosen, whatever kind of table either is."""
    table = TABLE.select(["x1", "x2", "age", "label"])
    model = bigsvm.fit(write(tmp_path, trained, table), memory="64MiB").model
    wanted = model.decision_function(np.stack([VALUES[name] for name in ("x1", "x2", "age")], axis=1))
    others = {
        "as it was": table,
        "in another order": table.select(["label", "age", "x2", "x1"]),
        "with more of them": TABLE.select(["a1", "age", "x2", "label", "x1", "weight"]),
    }
    for k, other in enumerate(others.values()):
        (tmp_path / str(k)).mkdir()
        store = open_store(write(tmp_path / str(k), scored, other), labelled=False, like=model.about["rows"])
        again = pickle.loads(pickle.dumps(store))
        for rows in (store, again):
            np.testing.assert_allclose(model.decision_function(rows_of(rows)), wanted, rtol=1e-12)
            assert list(rows.feature_names) == ["x1", "x2", "age"]
    renamed = write(tmp_path, scored, table.rename_columns(["x1", "x3", "age", "label"]))
    with pytest.raises(DataError, match="x2"):
        score(renamed, model, tmp_path / "out.csv")
    ingest(write(tmp_path, trained, table), tmp_path / "s.zarr")
    if "parquet" in (trained, scored):
        with pytest.raises(DataError, match=r"'age', but in the store 'x1'|in another way"):
            ingest(tmp_path / "1" / renamed.name, tmp_path / "s.zarr", append=True)
    else:
        ingest(tmp_path / "1" / renamed.name, tmp_path / "s.zarr", append=True)
        first, second = np.split(rows_of(open_store(tmp_path / "s.zarr")), 2)
        np.testing.assert_array_equal(first, second)


def test_all_columns_where_none_is_asked_for() -> None:
    assert chosen_columns((), ["a", "b"], {"b"}, "t") == {"a", "b"}
