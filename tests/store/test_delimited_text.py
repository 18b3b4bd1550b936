"""Delimited text: headers, kinds of columns, categories, and pieces of a file."""

from __future__ import annotations

import csv
import gzip
import io
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import zstandard
from pyarrow import feather

from bigsvm.errors import DataError, UsageError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import pieces
from bigsvm.store.formats.tables.delimited import Header, parse
from bigsvm.store.text.arrow_signals import handled_by_pyarrow, left_to_python
from tests.store.people import expected, people, write
from tests.store.read_back import labels_of, rows_of


def test_text_columns_are_one_hot_in_sorted_order(tmp_path: Path) -> None:
    rows = people()
    store = open_store(write(tmp_path / "t.csv", rows))
    assert store.layout == "csr"
    assert store.feature_names == ["age", "city=New York", "city=Oslo", "city=Rome", "member"]
    assert store.classes.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(rows_of(store), expected(rows))
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
        np.testing.assert_array_equal(rows_of(open_store(path)), expected(rows))


def test_pieces_end_where_records_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 64)
    rows = [[i, f'a "{i % 3}",\nb' * (1 + i % 4), i % 2, True] for i in range(50)]
    store = open_store(write(tmp_path / "t.csv", rows))
    assert len(store._files._pieces) > 20
    values = sorted({row[1] for row in rows})
    assert store.feature_names == ["age", *(f"city={value}" for value in values), "member"]
    found = rows_of(store)
    np.testing.assert_array_equal(found[:, 0], np.arange(50))
    np.testing.assert_array_equal(found[:, 1:-1], [[row[1] == value for value in values] for row in rows])


def test_a_column_that_turns_out_to_be_text_is_text_from_its_first_row(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 64)
    rows = [[1, f"{i:02d}", 1, 1] for i in range(40)] + [[1, "x", 0, 1]]
    store = open_store(write(tmp_path / "t.csv", rows))
    assert store.feature_names == ["age", *(f"city={i:02d}" for i in range(40)), "city=x", "member"]
    assert store.nnz == np.count_nonzero(rows_of(store)) == 3 * 41


def test_numbers_alone_are_dense(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [[1, 2.5, 0], [3, -1e-3, 1]], ("a", "b", "y"))
    store = open_store(path, label="y")
    assert (store.layout, store.dtype, store.feature_names) == ("dense", np.float64, ["a", "b"])
    np.testing.assert_array_equal(rows_of(store), [[1, 2.5], [3, -1e-3]])
    for number in ("2", "-1"):
        assert open_store(path, label=number).identity == store.identity


def test_columns_without_a_header_get_names(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [[1, 2, 0], [3, 4, 1]], None)
    with pytest.raises(UsageError, match="numbers only: is that a header"):
        open_store(path)
    for columns, label in ((("a", "b", "y"), "y"), (("numbers",), "2")):
        store = open_store(path, columns=columns, label=label)
        np.testing.assert_array_equal(rows_of(store), [[1, 2], [3, 4]])
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


def test_a_column_without_a_name_is_told(tmp_path: Path) -> None:
    """As pandas and R write the numbers of the rows."""
    (tmp_path / "t.csv").write_text(",a,label\n0,5,0\n1,6,1\n")
    store = open_store(tmp_path / "t.csv")
    assert rows_of(store).tolist() == [[0, 5], [1, 6]]
    assert any("without a name" in said for said in store.warnings)
    chosen = open_store(tmp_path / "t.csv", columns=("?*",))
    assert (rows_of(chosen).tolist(), chosen.warnings) == ([[5], [6]], [])


def test_hashed_columns_share_their_features(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", people())
    store = open_store(path, hash_bits=4)
    found = rows_of(store)
    assert (store.n_features, store.feature_names) == (2 + 16, None)
    assert (found[:, 2:].sum(axis=1) == 1).all()
    assert store.nnz == np.count_nonzero(found)
    rows = [[1, "a", 1, "b"], [1, "c", 0, "d"]]
    narrow = rows_of(open_store(write(tmp_path / "u.csv", rows), hash_bits=1))
    np.testing.assert_array_equal(narrow[:, 1:].sum(axis=1), [2, 2])  # what meets adds up


def test_other_rows_are_read_as_the_first(tmp_path: Path) -> None:
    recipe = open_store(write(tmp_path / "t.csv", people())).recipe
    rows = [[True, "Oslo", "x", 4], [False, "Bonn", "x", 5]]
    path = write(tmp_path / "u.csv", rows, ("member", "city", "note", "age"))
    store = open_store(path, like=recipe, labelled=False)
    np.testing.assert_array_equal(rows_of(store), [[4, 0, 1, 0, 1], [5, 0, 0, 0, 0]])
    assert "1 value that the model has not seen ('Bonn')" in store.warnings[0]
    with pytest.raises(DataError, match="no column 'age', which the model was trained on"):
        open_store(write(tmp_path / "v.csv", rows, ("member", "city", "note", "years")), like=recipe, labelled=False)
    bad = write(tmp_path / "w.csv", [[1, "Oslo", 4, 1], ["old", "Oslo", 5, 0]])
    with pytest.raises(DataError, match="row 1 has 'old' in a column of numbers") as caught:
        rows_of(open_store(bad, like=recipe, labelled=False))
    assert caught.value.where == f"{bad}, column 'age'"
    assert caught.value.hint.startswith("repair or drop the row, or leave the field empty")


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


@pytest.mark.parametrize(
    ("others", "told"),
    [(["?"], "'?'"), ([" "], "' '"), (["x", "y", *"abcdef"], None), (["x", "y"], "'x', 'y'"), ([], None)],
)
@pytest.mark.parametrize("suffix", ["csv", "feather"])
def test_a_column_of_numbers_that_a_few_fields_make_text_is_told(
    others: list[str], told: str | None, suffix: str, tmp_path: Path
) -> None:
    """Each of its numbers was a feature, without a word."""
    values = [str(k % 10) for k in range(40)] + others
    path = tmp_path / f"t.{suffix}"
    table = pa.table({"a": values, "label": [k % 2 for k in range(len(values))]})
    pacsv.write_csv(table, path) if suffix == "csv" else feather.write_feather(table, path)
    warnings = [warning for warning in open_store(path).warnings if "because of" in warning]
    assert [f"because of {told}," in warning for warning in warnings] == ([] if told is None else [True])


def test_several_files_are_one(tmp_path: Path) -> None:
    rows = people(40)
    (tmp_path / "parts").mkdir()
    for k in range(4):
        write(tmp_path / "parts" / f"p{k}.csv", rows[10 * k : 10 * k + 10])
    for name in ("parts", "parts/*.csv"):
        np.testing.assert_array_equal(rows_of(open_store(str(tmp_path / name))), expected(rows))
    write(tmp_path / "parts" / "p3.csv", rows, ("age", "town", "label", "member"))
    with pytest.raises(DataError, match="columns differ"):
        open_store(tmp_path / "parts")


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", people())
    store = open_store(path)
    write(path, people(31))
    with pytest.raises(DataError, match="changed since it was opened"):
        rows_of(store)
    assert open_store(path).fingerprint != store.fingerprint


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


def test_tables_leave_out_rows_without_a_label(tmp_path: Path) -> None:
    lines = [f"{i},{'uv'[i % 2]},{'' if i % 5 == 0 else i % 3}" for i in range(40)]
    (tmp_path / "t.csv").write_text("a,b,label\n" + "\n".join(lines) + "\n")
    with pytest.raises(DataError, match="8 of the 40 rows have no label, row 0 is the first"):
        _ = open_store(tmp_path / "t.csv").classes
    store = open_store(tmp_path / "t.csv", missing="drop")
    kept = [i for i in range(40) if i % 5]
    assert rows_of(store)[:, 0].tolist() == kept
    assert labels_of(store) == [i % 3 for i in kept]
    assert store.nnz == np.count_nonzero(rows_of(store))
    assert open_store(tmp_path / "t.csv", missing="drop", labelled=False).n_samples == 40


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_text_is_parsed_is_left_to_its_handler(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit that was to save its state and stop ended with 1 (`ArrowCancelled`), or went on as if nobody had asked."""
    came = []

    class Disturbed(io.BytesIO):
        def read(self, *size: int | None) -> bytes:
            if not came:
                os.kill(os.getpid(), number)
                time.sleep(0.2)  # pyarrow's handler hands the signal to a thread of its own
            return super().read(*size)

    former = signal.signal(number, lambda number, _: came.append(number))
    monkeypatch.setattr(pa, "BufferReader", lambda text: pa.PythonFile(Disturbed(text), "r"))
    try:
        batch = parse(b"1,2\n3,4\n", Header(("a", "b"), ",", False, 0), "rows.csv", 0)
    finally:
        signal.signal(number, former)
    assert (batch.to_pydict(), came) == ({"a": [1, 3], "b": [2, 4]}, [number])


@pytest.mark.parametrize("main", [True, False], ids=["main thread", "other thread"])
@pytest.mark.parametrize("handled", [(), (signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM)])
@pytest.mark.parametrize("on", [True, False])
def test_whether_pyarrow_handles_signals_is_what_it_was(on: bool, handled: tuple[int, ...], main: bool) -> None:
    """A program had switched that off, and found it on after a table was read."""
    former = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in handled:
        signal.signal(number, lambda *_: None)
    pa.enable_signal_handlers(on)
    inside: list[bool] = []

    def read() -> None:
        with left_to_python():
            inside.append(handled_by_pyarrow())
        with pytest.raises(KeyError), left_to_python():
            raise KeyError

    try:
        assert handled_by_pyarrow() == (on and bool(handled))
        if main:
            read()
        else:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(read).result()
        assert inside == [False]
        for number in handled or (signal.SIGINT,):
            signal.signal(number, lambda *_: None)
        assert handled_by_pyarrow() == on
    finally:
        pa.enable_signal_handlers(True)
        for number, handler in former.items():
            signal.signal(number, handler)


def test_pyarrow_puts_no_handlers_there_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handlers were put there and taken away again: one in a hundred signals that came then was lost."""
    entered: list[object] = []

    class Handlers(pa.lib.SignalStopHandler):
        def __enter__(self) -> object:
            entered.append(self)
            return super().__enter__()

    monkeypatch.setattr(pa.lib, "SignalStopHandler", Handlers)
    usual = signal.getsignal
    handled_by_pyarrow()
    assert entered == []
    assert signal.getsignal is usual
