"""Delimited text is cut into pieces: how large they are is nobody's matter."""

from __future__ import annotations

import csv
import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import bigsvm
from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import delimited, pieces
from bigsvm.store.formats.tables.table_rows import TableRows


def test_a_model_is_the_same_to_the_byte_however_text_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some pieces have quotes in them, with newlines between, and are read more carefully than the others."""
    cities, found = ["a", 'b "x",\nc', "d"], []
    rows = [[i / 7, cities[max(i // 20 - 1, 0) % 3], int((i * 5 % 7 > 3) ^ (i > 30)), i % 3] for i in range(90)]
    for size in (pieces.PIECE_BYTES, 256):
        monkeypatch.setattr(pieces, "PIECE_BYTES", size)
        folder = tmp_path / str(size)
        folder.mkdir()
        with open(folder / "rows.csv", "w", newline="") as file:
            csv.writer(file).writerows([["age", "city", "label", "n"], *rows])
        store = bigsvm.open_store(folder / "rows.csv")
        assert isinstance(store, TableRows)
        assert (len(store._files._pieces) > 3) == (size == 256)
        bigsvm.fit(store, loss="hinge", memory="64MiB").model.save(folder / "model")
        found.append({file.name: file.read_bytes() for file in (folder / "model").iterdir()})
    assert found[0] == found[1]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("held", [False, True])
def test_a_piece_is_what_stands_there_whatever_was_read_before(suffix: str, held: bool, tmp_path: Path) -> None:
    """Pieces share their memory; a view of the one before keeps what it shows."""
    content = bytes(np.random.default_rng(0).integers(32, 127, 5000, np.uint8))
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    reader = pieces.PieceReader(str(path))
    for offset, nbytes in [(0, 100), (100, 1000), (1100, 3), (4000, 1000), (50, 2000), (60, 2000), (0, 5000)]:
        text = reader.read(offset, nbytes)
        assert bytes(text) == content[offset : offset + nbytes]
        if held:
            view = memoryview(text)
            reader.read(7, nbytes if nbytes < 5000 else 8)
            assert bytes(view) == content[offset : offset + nbytes]
            view.release()
    with pytest.raises(DataError, match="changed"):
        reader.read(4990, 11)


KINDS = [None, "float", "int", "bool", "text"]
FIELDS = ["", '""', "0", "1", "1.5", "1e3", "inf", "-Inf", "x", "north", "t", *pyarrow.csv.ConvertOptions().null_values,
          *pyarrow.csv.ConvertOptions().true_values, *pyarrow.csv.ConvertOptions().false_values]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS[1:])
@pytest.mark.parametrize("quoted_null", [True, False])
def test_fields_mean_what_they_mean_to_pyarrow(
    kind: str | None, other: str, quoted_null: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is not told to look for, because a piece cannot have it; 1 and 0 alone are no truth values here."""
    kinds = None if kind is None else {"a": kind, "b": other}

    def read(field: str) -> object:
        text = f"{field},1\n0,{field}\n".encode()
        try:
            return delimited.parse(text, delimited.Header(("a", "b"), ",", True, 0), "t", 0, kinds, quoted_null)
        except DataError as error:
            return str(error)

    found = [read(field) for field in FIELDS]
    truths = {"true_values": list(delimited._TRUE), "false_values": list(delimited._FALSE)}
    monkeypatch.setattr(delimited, "_values_looked_for", lambda text, kinds: truths)
    for field, one in zip(FIELDS, found, strict=True):
        assert str(one) == str(read(field)), field


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_quotation_mark_without_its_partner_is_named_before_the_file_is_held(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes one field of all that follows."""
    monkeypatch.setattr(pieces, "_LONGEST", 1 << 20)
    path, line = tmp_path / f"rows{suffix}", b"1.5,2.5,yes\n"
    text = b'a,b,label\n1,2,"no\n' + line * ((48 << 20) // len(line))
    path.write_bytes(gzip.compress(text, 1) if suffix.endswith("gz") else text)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="a record of more than 1 MiB at byte 10") as refused:
            open_store(path)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert "quotation mark" in str(refused.value.hint)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("size", [40, 1 << 16])
@pytest.mark.parametrize("field", ['"no', '"', '"no""', '"no\n""', '"no"""', '"", "', 'x;"no'])
@pytest.mark.parametrize("end", ["", "\n", "\n1.5,2.5,yes\n4.5,5,no\n"])
def test_a_quotation_mark_that_nothing_closes_is_told_with_its_line(
    suffix: str, size: int, field: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows after it were part of its field, without a word."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", size)
    path = tmp_path / f"rows{suffix}"
    before = "".join(f'{k},"{k}\n",yes\n' for k in range(6))
    text = f"a,b,label\n{before}1,2,{field}{end}".encode()
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    if field not in ('"no', '"', '"no""', '"no\n""'):
        assert len(b"".join(piece for _, piece in pieces.cut_pieces(str(path), b","))) == len(text)
        return
    with pytest.raises(DataError, match="line 14 has a quotation mark that nothing closes: '\"") as refused:
        open_store(path)
    assert "quotation mark without its partner" in str(refused.value.hint)


@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_quotation_mark_in_a_field_is_a_character(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pyarrow reads the whole file: only a mark at the beginning of a field has a partner."""
    rng = np.random.default_rng(0)
    texts = ['5" disk', "plain", '"two\nlines"', '"a ""b"" c"', "6'2\"", '""', '"x"y', 'z""', '"\n"', f'"q{mark} r"']
    for seed in range(20):
        size = int(rng.integers(20, 200))
        monkeypatch.setattr(pieces, "PIECE_BYTES", size)
        monkeypatch.setattr(pieces, "_LONGEST", 4 * size + 4096)
        lines = [mark.join([str(k), *rng.choice(texts, 2), str(k % 2)]) for k in range(60)]
        path = tmp_path / f"{seed}.{'tsv' if mark == chr(9) else 'csv'}"
        path.write_text(mark.join("abcd") + "\n" + "\n".join(lines) + "\n")
        options = pyarrow.csv.ParseOptions(delimiter=mark, newlines_in_values=True)
        whole = pyarrow.csv.read_csv(path, parse_options=options)
        assert len(whole) == 60
        rows = TableRows(str(path), label="d")
        assert len(rows._files._pieces) > 3
        found = pa.Table.from_batches([batch for _, batch in rows._files.batches(0, rows.n_samples, list("abcd"))])
        for name in "abcd":
            strings = [None if value == "" else value for value in whole[name].to_pylist()]
            assert found[name].to_pylist() == strings
