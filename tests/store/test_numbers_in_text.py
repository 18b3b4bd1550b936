"""Numbers in delimited text: none is read as another number, and users are told of those that are read as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest

from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import pieces

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


def labels_in(path: Path) -> list[Any]:
    store = open_store(path)
    y = np.concatenate([store.read(ref).y for ref in store.refs(2)])
    return (y if store.classes is None else store.classes[y]).tolist()


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
            labels_in(path)
    else:
        assert labels_in(path) == wanted


def test_labels_of_64_bits_are_exact_beside_a_column_of_hex(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,x\n9223372036854775807,0xF\n9223372036854775806,0xA\n")
    assert labels_in(tmp_path / "a.csv") == [2**63 - 1, 2**63 - 2]
