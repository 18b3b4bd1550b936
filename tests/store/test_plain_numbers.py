"""Plain numbers of delimited text, read by a compiled loop: what it gives, pyarrow gives, to the last bit."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.compiled.text.delimited import read_columns
from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import delimited_files, pieces
from bigsvm.store.formats.tables.delimited import Header, parse
from bigsvm.store.formats.tables.plain_numbers import END, plain_calls, plain_numbers
from bigsvm.testing.contracts import dense
from tests.products import each_of, pairs_of

NAMES = ("a", "b", "c")


def by_loop(text: bytes, kinds: dict[str, str], n_rows: int, delimiter: str = ",", names: Any = NAMES) -> Any:
    return plain_numbers(text + END, Header(names, delimiter, False, 0), kinds, n_rows)


def by_arrow(text: bytes, kinds: dict[str, str], delimiter: str = ",", names: Any = NAMES) -> pa.RecordBatch | None:
    try:
        return parse(text, Header(names, delimiter, False, 0), "t", 0, kinds)
    except DataError:
        return None


def bits(batch: pa.RecordBatch) -> list[Any]:
    """Values of each column to the last bit, of which none is null."""
    assert batch.num_rows == 0 or not any(column.null_count for column in batch.columns)
    values = [np.from_dlpack(column) for column in batch.columns]
    return [batch.schema.names, *((one.dtype.name, one.view(np.int64).tolist()) for one in values)]


PLAIN = ["0", "-0", "1", "-12", "007", "9223372036854775807", "-9223372036854775807", "1234567890123456789"]
REALS = [
    "0.0", "-0.000", "1.5", "5.", "1e5", "1E-5", "-2.5e+3", "0e9", "0.30000000000000004", "123456789.123456789",
    "5e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "9007199254740993", "0.000000000000000000000012345",
    "3.141592653589793238462643383279", "100000000000000000000000000000", "1e0005",
]  # fmt: skip
ODD = [
    "", " 1", "1 ", "+1", ".5", "-.5", "-", "--1", "1e", "1e+", "0x1F", "nan", "NaN", "inf", "-inf", "NA", "null",
    "true", "1_0", "1.2.3", "1,", "1;", '"1"', '"', "1\r", "\r", "1\t", "\0", "1\0", "é", "1e400", "-1e999", "1e-400",
    "4e-324", "9223372036854775808", "-9223372036854775808", "1/2", "1e5.0", "١",
]  # fmt: skip

MAY_BE_PLAIN = ["9223372036854775808", "-9223372036854775808", "4e-324", "1\r"]
"""As real numbers, and at the end of a line."""


@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize("field", [*PLAIN, *REALS, *ODD])
def test_a_field_is_read_as_by_arrow_or_left_to_it(field: str, kind: str) -> None:
    for text in (f"1,{field},2\n", f"{field},3,4\n", f"5,6,{field}\n", f"7,8,{field}"):
        kinds = dict.fromkeys(NAMES, kind)
        found, other = by_loop(text.encode(), kinds, 1), by_arrow(text.encode(), kinds)
        if field in PLAIN or (field in REALS and kind == "float"):
            assert found is not None
        if found is not None:
            assert other is not None
            assert bits(found) == bits(other)
        assert field not in ODD or found is None or field in MAY_BE_PLAIN


@each_of(delimiter=[",", ";", "\t", "|"], newline=["\n", "\r\n"], last=[True, False], blank=[0, 1, 3])
def test_lines_are_read_as_by_arrow(delimiter: str, newline: str, last: bool, blank: int) -> None:
    rows = [[f"{i}", f"{i / 7!r}", f"{-i}"] for i in range(40)]
    lines = [delimiter.join(row) for row in rows]
    text = newline * blank + (newline * (1 + blank)).join(lines) + (newline if last else "")
    for kinds in (
        {"a": "int", "b": "float", "c": "int"}, {"c": "float", "a": "float"}, {"b": "float"}, {"c": "int"},
    ):  # fmt: skip
        found = by_loop(text.encode(), kinds, 40, delimiter)
        assert bits(found) == bits(by_arrow(text.encode(), kinds, delimiter))


def test_fields_that_nobody_wants_may_hold_anything_but_quotes() -> None:
    text = "1,Rome é,2\n3,,4\n5, \0 ,6\n".encode()
    assert by_loop(text, {"a": "int", "c": "float"}, 3).column(1).to_pylist() == [2.0, 4.0, 6.0]
    assert by_loop(text.replace(b"Rome", b'"Ro,me"'), {"a": "int", "c": "float"}, 3) is None


@pytest.mark.parametrize("text", [
    "1,2\n", "1,2,3,4\n", "1,2,3,\n", ",1,2,3\n", "1,2,3\n4,5\n", "1,2,3\r4,5,6\n", "1,2,3\r\r\n", "1,2,3\n \n",
    "1,2,\n3", "1\n2\n3\n", "1;2;3\n", "1,2,3 # so\n",
])  # fmt: skip
def test_lines_that_are_not_plain_are_left(text: str) -> None:
    for wanted in ("abc", "ac", "b"):
        kinds = dict.fromkeys(wanted, "float")
        for n_rows in (1, 2, 3):
            found = by_loop(text.encode(), kinds, n_rows)
            assert found is None or bits(found) == bits(by_arrow(text.encode(), kinds))


def test_all_pieces_are_read_by_the_loop_that_is_named() -> None:
    """However many rows and columns a piece has: arrays of another layout would be compiled for anew."""
    for call in plain_calls():
        call.call()
    named = set(read_columns.signatures)
    for n_rows in (1, 3, 8, 9, 40, 41):
        for n_columns in (1, 2, 3):
            names = tuple(NAMES[:n_columns])
            text = b"\n".join([b",".join([b"1.5"] * n_columns)] * n_rows)
            assert by_loop(text, dict.fromkeys(names, "float"), n_rows, names=names) is not None
    assert set(read_columns.signatures) == named


def test_other_rows_than_were_counted_are_left() -> None:
    text, kinds = b"1,2,3\n4,5,6\n", dict.fromkeys(NAMES, "float")
    assert [by_loop(text, kinds, n) is None for n in (0, 1, 2, 3)] == [True, True, False, True]


@pytest.mark.parametrize("missing", range(1, len(END) + 1))
def test_text_is_not_read_where_nothing_ends_it(missing: int) -> None:
    """Digits are taken eight at a time: text that does not end in newlines is not looked at."""
    text = b"1,2,3\n4,5,61234567" + END[missing:]
    kinds = dict.fromkeys(NAMES, "float")
    assert plain_numbers(text, Header(NAMES, ",", False, 0), kinds, 2) is None
    for short in (b"", b"1", END[missing:]):
        assert plain_numbers(short, Header(NAMES, ",", False, 0), kinds, 1) is None


@given(st.lists(st.lists(st.text('0123456789.-+eE ,\r\n\t"ax', max_size=12), min_size=1, max_size=4), max_size=6))
@settings(max_examples=200, deadline=None)
def test_whatever_is_taken_is_what_arrow_gives(rows: list[list[str]]) -> None:
    text = "\n".join(",".join(row) for row in rows).encode()
    for kinds in ({"a": "float", "b": "int"}, {"b": "float"}, {"a": "int"}):
        other = by_arrow(text, kinds, names=("a", "b"))
        for n_rows in {len(rows), 0 if other is None else other.num_rows}:
            found = by_loop(text, kinds, n_rows, names=("a", "b"))
            assert found is None or (other is not None and bits(found) == bits(other))


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.sampled_from(["r", ".17g", "f", ".25e"])
)
@settings(max_examples=150, deadline=None)
def test_numbers_are_the_nearest_ones(numbers: list[float], how: str) -> None:
    texts = [repr(x) if how == "r" else format(x, how) for x in numbers]
    found = by_loop("\n".join(texts).encode(), {"a": "float"}, len(texts), names=("a",))
    if found is not None:  # a number that takes more than its first digits may be left
        assert np.from_dlpack(found.column(0)).view(np.int64).tolist() == np.array(texts, float).view(np.int64).tolist()
    assert found is not None or how == "f" or how == ".25e" or any("e-3" in text for text in texts)


def rows_of(path: Path, **options: Any) -> list[Any]:
    store = open_store(str(path), **options)
    blocks = [store.read(ref) for ref in store.refs(7)]
    X = np.concatenate([dense(block.X, store.n_features) for block in blocks])
    return [X.view(np.int64).tolist(), np.concatenate([block.y for block in blocks]).tolist(), store.identity]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each piece that was tried was plain; pieces are small, and a call that is left empty reads none."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 256)
    seen: list[bool] = []

    def tried(*arguments: Any) -> pa.RecordBatch | None:
        found = plain_numbers(*arguments)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(delimited_files, "plain_numbers", tried)
    return seen


@pairs_of(
    suffix=[".csv", ".csv.gz"], label=["y", "target"], options=[{}, {"columns": ("f*",)}, {"labelled": False}],
    odd=["none", "first", "one of many", "all"],
)  # fmt: skip
def test_rows_are_the_same_by_either_way(
    suffix: str, label: str, options: dict[str, Any], odd: str, tmp_path: Path, taken: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    lines = [["name", "f1", "y", "f2", "f3", "target"]]
    for i in range(90):
        one, two = rng.standard_normal(2)
        blank = {"none": "", "first": " " * (i == 0), "one of many": " " * (i == 50), "all": " "}[odd]
        lines.append([f"{i / 8}", f"{blank}{float(one)!r}", f"{i % 2}", f"{two:.3e}", f"{i * 3}", f"{i % 2 / 2}"])
    text = "\n".join(map(",".join, lines)).encode()
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    found = rows_of(path, label=label, **options)
    n_pieces = len(open_store(str(path), label=label, **options)._files._pieces)  # type: ignore[attr-defined]
    assert n_pieces > 8
    assert len(taken) == (n_pieces if odd in ("none", "one of many") else 1)
    assert taken.count(False) == {"none": 0, "first": 1, "one of many": 1, "all": 1}[odd]
    monkeypatch.setattr(delimited_files, "plain_numbers", lambda *arguments: None)
    assert rows_of(path, label=label, **options) == found


def test_labels_alone_are_read_before_anything_is_compiled(tmp_path: Path, taken: list[bool]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,label\n" + "".join(f"{i},{i % 2}\n" for i in range(50)))
    store = open_store(str(path))
    assert store.classes is not None
    assert store.labels_between(0, 50).tolist() == [0, 1] * 25
    assert not taken
    assert "plain numbers" in {call.kind[0] for call in store.compiled_calls}
    path.write_text("a,label\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(50)))
    store = open_store(str(path))
    assert store.read(store.refs(50)[0]).y.tolist() == [0, 1] * 25
    assert not taken
    assert "plain numbers" not in {call.kind[0] for call in store.compiled_calls}


def test_a_file_that_grew_under_a_reader_is_refused(tmp_path: Path, taken: list[bool]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,label\n" + "".join(f"{i},{i % 2}\n" for i in range(50)))
    store = open_store(str(path))
    store.read(store.refs(5)[0])
    path.write_text("a,label\n" + "".join(f"{i},{i % 2}\n" for i in range(51)))
    store.forget()
    with pytest.raises(DataError, match="changed"):
        store.read(store.refs(5)[0])
