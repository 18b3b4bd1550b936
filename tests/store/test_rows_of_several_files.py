"""Errors of rows of a folder of text files name the file and its line, not only the number among the rows of all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bigsvm
from bigsvm.errors import DataError

BAD = {  # fields of the bad row -> what is said of it
    "no value": (["1", "", "0", "1"], "holds a null"),
    "infinite": (["1", "inf", "0", "1"], "holds inf"),
    "no label": (["1", "2", "", "1"], "no label"),
    "odd label": (["1", "2", "inf", "1"], "is inf"),
    "weight": (["1", "2", "0", "-3"], "is -3.0"),
    "fields": (["1", "2", "0", "1", "9"], "has 6 fields"),
}
VERBS: dict[str, Callable[[Path, Path], Any]] = {
    "fit": lambda rows, out: bigsvm.fit(rows),
    "ingest": lambda rows, out: bigsvm.ingest(rows, out / "made.zarr"),
}


def folder(at: Path, bad: list[str]) -> Path:
    """Two files; in the second a name over two lines and an empty line come before the bad row, which is on line 7."""
    at.mkdir()
    (at / "a.csv").write_text("name,x,z,label,weight\n" + "a,1,2,0,1\nb,2,1,1,1\n" * 3)
    before = 'a,1,2,0,1\n"b\nc",2,1,1,1\n\na,3,1,1,1\n'
    (at / "b.csv").write_text("name,x,z,label,weight\n" + before + "a," + ",".join(bad) + "\nb,2,1,1,1\n")
    return at


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", BAD)
def test_errors_name_file_and_line(kind: str, verb: str, tmp_path: Path) -> None:
    bad, said = BAD[kind]
    rows = folder(tmp_path / "rows", bad)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        VERBS[verb](rows, tmp_path)
    assert caught.value.where.startswith(f"{rows / 'b.csv'}, line 7"), str(caught.value)
    assert "row 9 of all files" in caught.value.what


def test_one_file_needs_no_line(tmp_path: Path) -> None:
    rows = folder(tmp_path / "rows", BAD["no value"][0])
    with pytest.raises(DataError, match="row 3 holds a null") as caught:
        bigsvm.fit(rows / "b.csv")
    assert ", line" not in caught.value.where
