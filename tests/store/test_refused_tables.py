"""Tables that are refused: bad text, files of other kinds, and two columns of one name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from bigsvm.errors import DataError, UsageError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from tests.store.read_back import rows_of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no lines"),
        ("a,a,label\n1,2,3\n", "two columns are called 'a'"),
        ("a,b,y\n1,2,3\n", "no column 'label'"),
        ("a,label\n1,0\n2\n", "row 1 has 1 field, not 2"),
        ("a,label\n1,0\n,1\n", "row 1 holds a null"),
        ("a,label\n1,0\n2,\n", "1 of the 2 rows have no label, row 1 is the first"),
        ("a,label,\n1,0,\n2,1,\n", "column '': row 0 holds a null"),
        ("a,label\n1,0\ninf,1\n", "row 1 holds inf in column 'a'"),
        ("a,b,label\nx,1,0\ny,inf,1\n", "column 'b': row 1 holds inf"),
        ("a,label\n1,0\n9007199254740993,1\n", "row 1 holds 9007199254740993, beyond 2\\^53"),
        ('a,label\n1,0\n"x,1\n', "line 3 has a quotation mark that nothing closes"),
        ("label\n1\n0\n", "no feature columns"),
    ],
)
def test_bad_text_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        rows_of(open_store(tmp_path / "t.csv"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,label\n\xff,1\n")
    with pytest.raises(DataError, match="row 0 is not UTF-8"):
        rows_of(open_store(tmp_path / "t.csv"))
    (tmp_path / "u.csv").write_bytes(b"\xff,label\n1,1\n")
    with pytest.raises(DataError, match="UTF-8"):
        open_store(tmp_path / "u.csv")
    (tmp_path / "v.feather").write_bytes(b"FEA1 of long ago")
    with pytest.raises(DataError, match="not an Arrow IPC file"):
        open_store(tmp_path / "v.feather")


@pytest.mark.parametrize(
    ("name", "word"), [("r.pkl", "never run"), ("r.orc", "Parquet"), ("r.jsonl", "Parquet"), ("r.loom", "h5ad")]
)
def test_files_of_others_are_refused_with_a_remedy(name: str, word: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"1 1:1")
    for take in (open_store, lambda path: ingest(path, tmp_path / "rows.zarr")):
        with pytest.raises(UsageError, match=word):
            take(str(tmp_path / name))


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
