"""Delimited text and Arrow files: headers, kinds of columns, categories, and what is refused."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import zstandard

from bigsvm.errors import DataError, UsageError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import pieces, table_names
from bigsvm.store.ingest.ingest import ingest
from bigsvm.testing.contracts import dense
from tests.products import pairs_of

CITIES = ["Rome", "New York", "Oslo"]


def people(n: int = 30) -> list[list[object]]:
    """Rows of age, city, label, member."""
    return [[i / 2, CITIES[i % 3], "no" if i % 2 else "yes", i % 5 == 0] for i in range(n)]


def write(path: Path, rows, header=("age", "city", "label", "member"), **options) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file, **options).writerows([header, *rows] if header else rows)
    return path


def whole(store) -> np.ndarray:
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(7)])


def expected(rows) -> np.ndarray:
    names = sorted(CITIES)
    return np.array([[row[0], *(row[1] == name for name in names), row[3]] for row in rows], float)


def test_text_columns_are_one_hot_in_sorted_order(tmp_path: Path) -> None:
    rows = people()
    store = open_store(write(tmp_path / "t.csv", rows))
    assert store.layout == "csr"
    assert store.feature_names == ["age", "city=New York", "city=Oslo", "city=Rome", "member"]
    assert store.classes.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(whole(store), expected(rows))
    assert store.nnz == np.count_nonzero(expected(rows))


@pytest.mark.parametrize("lineterminator", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_same_rows_however_they_are_written(delimiter: str, lineterminator: str, tmp_path: Path) -> None:
    rows = people()
    plain = write(tmp_path / "t.csv", rows, delimiter=delimiter, lineterminator=lineterminator, quoting=csv.QUOTE_ALL)
    plain.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "t.csv.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    for path in (plain, tmp_path / "t.csv.gz", tmp_path / "t.csv.zst"):
        np.testing.assert_array_equal(whole(open_store(path)), expected(rows))


def test_pieces_end_where_records_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 64)
    rows = [[i, f'a "{i % 3}",\nb' * (1 + i % 4), i % 2, True] for i in range(50)]
    store = open_store(write(tmp_path / "t.csv", rows))
    assert len(store._files._pieces) > 20
    values = sorted({row[1] for row in rows})
    assert store.feature_names == ["age", *(f"city={value}" for value in values), "member"]
    found = whole(store)
    np.testing.assert_array_equal(found[:, 0], np.arange(50))
    np.testing.assert_array_equal(found[:, 1:-1], [[row[1] == value for value in values] for row in rows])


def test_a_column_that_turns_out_to_be_text_is_text_from_its_first_row(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 64)
    rows = [[1, f"{i:02d}", 1, 1] for i in range(40)] + [[1, "x", 0, 1]]
    store = open_store(write(tmp_path / "t.csv", rows))
    assert store.feature_names == ["age", *(f"city={i:02d}" for i in range(40)), "city=x", "member"]
    assert store.nnz == np.count_nonzero(whole(store)) == 3 * 41


def test_numbers_alone_are_dense(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [[1, 2.5, 0], [3, -1e-3, 1]], ("a", "b", "y"))
    store = open_store(path, label="y")
    assert (store.layout, store.dtype, store.feature_names) == ("dense", np.float64, ["a", "b"])
    np.testing.assert_array_equal(whole(store), [[1, 2.5], [3, -1e-3]])
    for number in ("2", "-1"):
        assert open_store(path, label=number).identity == store.identity


def test_columns_without_a_header_get_names(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [[1, 2, 0], [3, 4, 1]], None)
    with pytest.raises(UsageError, match="numbers only: is that a header"):
        open_store(path)
    for columns, label in ((("a", "b", "y"), "y"), (("numbers",), "2")):
        store = open_store(path, columns=columns, label=label)
        np.testing.assert_array_equal(whole(store), [[1, 2], [3, 4]])
        assert store.feature_names == (["a", "b"] if label == "y" else ["0", "1"])
    with pytest.raises(UsageError, match="2 names for the 3 columns"):
        open_store(path, columns=("a", "b"))


def test_columns_of_a_header_are_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", people())
    assert open_store(path, columns=("member", "age")).feature_names == ["age", "member"]
    for asked in (("agee", "city"), ("agee",)):
        with pytest.raises(UsageError, match="no column 'agee'") as caught:
            open_store(path, columns=asked)
        assert "did you mean 'age'? columns there: " in caught.value.hint


def test_hashed_columns_share_their_features(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", people())
    store = open_store(path, hash_bits=4)
    found = whole(store)
    assert (store.n_features, store.feature_names) == (2 + 16, None)
    assert (found[:, 2:].sum(axis=1) == 1).all()
    assert store.nnz == np.count_nonzero(found)
    rows = [[1, "a", 1, "b"], [1, "c", 0, "d"]]
    narrow = whole(open_store(write(tmp_path / "u.csv", rows), hash_bits=1))
    np.testing.assert_array_equal(narrow[:, 1:].sum(axis=1), [2, 2])  # what meets adds up


def test_other_rows_are_read_as_the_first(tmp_path: Path) -> None:
    recipe = open_store(write(tmp_path / "t.csv", people())).recipe
    rows = [[True, "Oslo", "x", 4], [False, "Bonn", "x", 5]]
    path = write(tmp_path / "u.csv", rows, ("member", "city", "note", "age"))
    store = open_store(path, like=recipe, labelled=False)
    np.testing.assert_array_equal(whole(store), [[4, 0, 1, 0, 1], [5, 0, 0, 0, 0]])
    assert "1 values that the model has not seen ('Bonn')" in store.warnings[0]
    with pytest.raises(DataError, match="no column 'age', which the model was trained on"):
        open_store(write(tmp_path / "v.csv", rows, ("member", "city", "note", "years")), like=recipe, labelled=False)
    bad = write(tmp_path / "w.csv", [[1, "Oslo", 4, 1], ["old", "Oslo", 5, 0]])
    with pytest.raises(DataError, match="row 1 has 'old' where numbers are"):
        whole(open_store(bad, like=recipe, labelled=False))


def test_arrow_dictionaries_are_categories(tmp_path: Path) -> None:
    rows = people()
    columns = {name: [row[j] for row in rows] for j, name in enumerate(("age", "city", "label", "member"))}
    table = pa.table(columns | {"city": pa.array(columns["city"]).dictionary_encode()})
    for compression in ("uncompressed", "lz4"):
        path = tmp_path / f"{compression}.feather"
        pyarrow.feather.write_feather(table, path, chunksize=8, compression=compression)
        store = open_store(path)
        np.testing.assert_array_equal(whole(store), expected(rows))
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
    np.testing.assert_array_equal(whole(again), whole(store))
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
    np.testing.assert_array_equal(whole(store), whole(expected))
    assert str(store.classes) == str(expected.classes)
    for ref in store.refs(n):
        block, other = store.read(ref), expected.read(ref)
        np.testing.assert_array_equal(block.y, other.y)
        np.testing.assert_array_equal(block.sample_weight, other.sample_weight)


def test_several_files_are_one(tmp_path: Path) -> None:
    rows = people(40)
    (tmp_path / "parts").mkdir()
    for k in range(4):
        write(tmp_path / "parts" / f"p{k}.csv", rows[10 * k : 10 * k + 10])
    for name in ("parts", "parts/*.csv"):
        np.testing.assert_array_equal(whole(open_store(str(tmp_path / name))), expected(rows))
    write(tmp_path / "parts" / "p3.csv", rows, ("age", "town", "label", "member"))
    with pytest.raises(DataError, match="columns differ"):
        open_store(tmp_path / "parts")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no lines"),
        ("a,a,label\n1,2,3\n", "two columns are called 'a'"),
        ("a,b,y\n1,2,3\n", "no column 'label'"),
        ("a,label\n1,0\n2\n", "row 1 has 1 fields, not 2"),
        ("a,label\n1,0\n,1\n", "row 1 holds a null"),
        ("a,label\n1,0\n2,\n", "1 of the 2 rows have no label, row 1 is the first"),
        ("a,label,\n1,0,\n2,1,\n", "column '': row 0 holds a null"),
        ("a,label\n1,0\ninf,1\n", "row 1 holds inf in column 'a'"),
        ("a,b,label\nx,1,0\ny,inf,1\n", "column 'b': row 1 holds inf"),
        ("a,label\n1,0\n9007199254740993,1\n", "row 1 holds 9007199254740993, beyond 2\\^53"),
        ('a,label\n1,0\n"x,1\n', "rows from 0 on cannot be read|row"),
        ("label\n1\n0\n", "no feature columns"),
    ],
)
def test_bad_text_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        whole(open_store(tmp_path / "t.csv"))


def test_a_column_without_a_name_is_told(tmp_path: Path) -> None:
    """As pandas and R write the numbers of the rows."""
    (tmp_path / "t.csv").write_text(",a,label\n0,5,0\n1,6,1\n")
    store = open_store(tmp_path / "t.csv")
    assert whole(store).tolist() == [[0, 5], [1, 6]]
    assert any("without a name" in said for said in store.warnings)
    chosen = open_store(tmp_path / "t.csv", columns=("?*",))
    assert (whole(chosen).tolist(), chosen.warnings) == ([[5], [6]], [])


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,label\n\xff,1\n")
    with pytest.raises(DataError, match="row 0 is not UTF-8"):
        whole(open_store(tmp_path / "t.csv"))
    (tmp_path / "u.csv").write_bytes(b"\xff,label\n1,1\n")
    with pytest.raises(DataError, match="UTF-8"):
        open_store(tmp_path / "u.csv")
    (tmp_path / "v.feather").write_bytes(b"FEA1 of long ago")
    with pytest.raises(DataError, match="not an Arrow IPC file"):
        open_store(tmp_path / "v.feather")


NOTATIONS: dict[str, Callable[[int], str]] = {
    "decimal commas": lambda k: f"{k},5",
    "separators": lambda k: f"1,{k:03d}",
    "points that separate": lambda k: f"{k}.000.000,25",
    "spaces that separate": lambda k: f"1\u202f{k:03d}",
    "underscores": lambda k: f"1_{k}",
    "hexadecimal digits": lambda k: float(k + 0.5).hex(),
    "a hexadecimal whole number": hex,
    "per cent": lambda k: f"{k}.5 %",
    "a currency": lambda k: f"-${k}.50",
    "one of them": lambda k: f"{k}" if k else "0,5",
}
NO_NUMBERS: dict[str, Callable[[int], str]] = {
    "names": lambda k: f"id{k}",
    "days": lambda k: f"2020-01-{k:02d}",
    "days with points": lambda k: f"{k:02d}.01.2020",
    "versions": lambda k: f"1.{k}.0",
    "marks": lambda k: "-+"[k % 2],
    "numbers and a name": lambda k: f"{k}" if k else "many",
}


@pytest.mark.parametrize("name", [*NOTATIONS, *NO_NUMBERS])
@pytest.mark.parametrize("kind", ["csv", "tsv", "feather"])
@pytest.mark.parametrize("n", [3, 30])
def test_numbers_that_are_read_as_text_are_told(name: str, kind: str, n: int, tmp_path: Path) -> None:
    """In whatever notation, and however few rows: else each number would quietly be a feature of its own."""
    texts = [{**NOTATIONS, **NO_NUMBERS}[name](k) for k in range(n)]
    table = pa.table({"a": texts, "label": np.arange(n) % 2})
    path = tmp_path / f"t.{kind}"
    if kind == "feather":
        pa.feather.write_feather(table, str(path))
    else:
        pa.csv.write_csv(table, str(path), pa.csv.WriteOptions(delimiter=",\t"[kind == "tsv"]))
    said = [one for one in open_store(path).warnings if "'a'" in one]
    told = [repr(min(texts)) in one and "decimal point" in one for one in said]
    assert told == ([True] if name in NOTATIONS else [False] * (n > 20 and name != "marks"))


def test_a_name_in_every_row_is_no_category(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.csv", [[i, f"id{i}", i % 2, 1] for i in range(30)])
    assert "30 different values in 30 rows" in open_store(path).warnings[0]
    import bigsvm.store.formats.tables.delimited_files as files

    monkeypatch.setattr(files, "MAX_CATEGORIES", 20)
    path.touch()
    write(path, [[i, f"id{i}", i % 2, 1] for i in range(31)])
    with pytest.raises(DataError, match=r"more than .* different values: is it a feature"):
        open_store(path)
    assert open_store(path, hash_bits=3).n_features == 10


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", people())
    store = open_store(path)
    write(path, people(31))
    with pytest.raises(DataError, match="changed since it was opened"):
        whole(store)
    assert open_store(path).fingerprint != store.fingerprint


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


@pytest.mark.parametrize(
    ("name", "word"), [("r.pkl", "never run"), ("r.orc", "Parquet"), ("r.jsonl", "Parquet"), ("r.loom", "h5ad")]
)
def test_files_of_others_are_refused_with_a_remedy(name: str, word: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"1 1:1")
    for take in (open_store, lambda path: ingest(path, tmp_path / "rows.zarr")):
        with pytest.raises(UsageError, match=word):
            take(str(tmp_path / name))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (["0xF", "1"], ["0xF", "1"]),  # pyarrow reads hex
        (["1", "0X10"], ["1", "0X10"]),
        (["true", "1", "false"], ["true", "1", "false"]),  # and takes 1 for true
        (["true", "false"], [True, False]),
        (["9223372036854775807", "9223372036854775806"], [2**63 - 1, 2**63 - 2]),
        (["9223372036854775809", "1"], "row 0 holds 9223372036854775809, beyond 2\\^53"),
        (["0.5", "9007199254740993"], "row 1 holds 9007199254740993, beyond 2\\^53"),
        (["0.5", "1e300"], [0.5, 1e300]),
        (["0.5", "9007199254740992"], [0.5, 2.0**53]),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_no_number_is_another_than_its_text(
    fields: list[str], wanted: Any, cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As labels; in one piece, or a piece a row, each of which looks like something else by itself."""
    if cut:
        monkeypatch.setattr(pieces, "PIECE_BYTES", 24)
    path = tmp_path / "a.csv"
    path.write_text("label,x\n" + "".join(f"{field},{k}\n" for k, field in enumerate(fields)))
    if isinstance(wanted, str):
        with pytest.raises(DataError, match=wanted):
            labels_of(path)
    else:
        assert labels_of(path) == wanted


def test_labels_of_64_bits_are_exact_beside_a_column_of_hex(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,x\n9223372036854775807,0xF\n9223372036854775806,0xA\n")
    assert labels_of(tmp_path / "a.csv") == [2**63 - 1, 2**63 - 2]


def labels_of(path: Path) -> list[Any]:
    store = open_store(path)
    y = np.concatenate([store.read(ref).y for ref in store.refs(2)])
    return (y if store.classes is None else store.classes[y]).tolist()


@pytest.mark.parametrize("form", ["rows.csv", "rows.feather", "rows.parquet"])
@pytest.mark.parametrize("names", [("f", "f", "label"), ("f", "label", "label"), ("f", "g", "label", "f")])
def test_two_columns_of_one_name_are_refused(form: str, names: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / form
    table = pa.Table.from_arrays([pa.array([1.0, 0.0])] * len(names), names=list(names))
    if form.endswith("csv"):
        pyarrow.csv.write_csv(table, path)
    elif form.endswith("feather"):
        pyarrow.feather.write_feather(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    twice = next(name for name in names if names.count(name) > 1)
    with pytest.raises(DataError, match=f"two columns are called '{twice}'"):
        open_store(path)


@pytest.mark.parametrize("piece", [64, 1 << 20])
def test_entries_of_the_columns_that_were_chosen_are_counted(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of numbers are counted together, also where a later piece of text has nulls or fractions."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (60, 8)) * (rng.random((60, 8)) < np.linspace(0.1, 0.9, 8))
    fields = X.astype(int).astype(str).astype(object)
    fields[40:, 2], fields[45, 5] = "0.0", "1.5"
    lines = [",".join([str(row % 2), "ab"[row % 2], *fields[row]]) for row in range(60)]
    names = [f"x{k}" for k in range(8)]
    (tmp_path / "t.csv").write_text("\n".join([",".join(["label", "t", *names]), *lines]) + "\n")
    values = fields.astype(float)
    for chosen in ([0], [1, 2], [5], [7, 3], list(range(8))):
        store = open_store(tmp_path / "t.csv", columns=["t", *(names[k] for k in chosen)])
        assert store.nnz == 60 + np.count_nonzero(values[:, chosen])
        assert store.nnz == sum(len(store.read(ref).X.data) for ref in store.refs(7))


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
    np.testing.assert_array_equal(whole(views_store), whole(plain_store))
    y, z = (store.read(store.refs(20)[0]).y.tolist() for store in (views_store, plain_store))
    assert y == z


KINDS = {".parquet": "to_parquet", ".pq": "to_parquet", ".feather": "to_feather", ".csv": "to_csv"}


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_files_of_another_kind_in_a_folder_are_not_left_out_in_silence(one: str, other: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"label": [0, 1] * 5, "a": np.arange(10.0)})
    for name, suffix in (("one", one), ("other", other)):
        getattr(frame, KINDS[suffix])(tmp_path / (name + suffix), **({"index": False} if suffix == ".csv" else {}))
    (tmp_path / "README.md").write_text("no rows")
    if {one, other} <= {".parquet", ".pq"}:
        assert open_store(str(tmp_path / "o*")).n_samples == 20
    store = open_store(tmp_path)
    alike = KINDS[one] == KINDS[other]
    assert store.n_samples == (20 if alike else 10)
    assert ["left out: 1 (" in warning for warning in store.warnings] == ([] if alike else [True])


@pytest.mark.parametrize("suffix", KINDS)
def test_files_in_subfolders_are_not_left_out_in_silence(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(name: str) -> None:
        path = tmp_path / "t" / (name + suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = pd.DataFrame({"label": [0, 1] * 5, "a": np.arange(10.0)})
        getattr(frame, KINDS[suffix])(path, **({"index": False} if suffix == ".csv" else {}))

    for name in ("a", ".hidden/b", "_started/c", "deep/.hidden/d", "deep/_e", "store.zarr/f"):
        table(name)
    (tmp_path / "t" / "store.zarr" / "zarr.json").write_text("{}")
    (tmp_path / "t" / "notes").mkdir()
    (tmp_path / "t" / "notes" / "README.md").write_text("no rows")
    (tmp_path / "t" / "notes" / "circle").symlink_to(tmp_path / "t")
    store = open_store(tmp_path / "t")
    assert store.n_samples == 10
    assert not store.warnings
    for name in ("deep/down/g", "deep/h"):
        table(name)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t" / "deep" / "down" / f"g{suffix}").rename(tmp_path / "elsewhere" / f"g{suffix}")
    (tmp_path / "t" / "deep" / "down").rmdir()
    (tmp_path / "t" / "deep" / "down").symlink_to(tmp_path / "elsewhere")
    store = open_store(tmp_path / "t")
    assert store.n_samples == 10
    (warning,) = store.warnings
    pattern = f"{tmp_path}/t/*/*/*{suffix}"
    assert f"files in subfolders are left out: 2 (deep/down/g{suffix}, ...)" in warning
    assert warning.endswith(f"'{pattern}'")
    monkeypatch.setattr(table_names, "_LOOKED", 2)  # the folder itself, and one in it
    (warning,) = open_store(tmp_path / "t").warnings
    assert f"files in subfolders are left out: at least 1 (deep/h{suffix})" in warning
    (tmp_path / "t" / "notes" / "circle").unlink()
    assert open_store(pattern).n_samples == 10
