"""Labels that hold control characters and line ends: what a terminal would obey is not sent to it."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest

from bigsvm.report.draw import chart
from tests.cli.conftest import Bigsvm

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

LABELS = "\x1b]0;title\x07a\0b", "line\nend\x9bc"
X = ["--columns", "x"]
COMMANDS = [
    ["inspect", "rows.parquet", *X], ["inspect", "m"], ["evaluate", "m", "rows.parquet"],
    ["certify", "m", "rows.parquet"],
    ["predict", "m", "rows.parquet", "-o", "p.parquet"],
    ["fit", "rows.parquet", "-o", "n", "--class-weight", "x=2", *X],
    ["evaluate", "m", "rows.parquet", "--label", "other"], ["plan", "rows.parquet", *X],
]  # fmt: skip


def test_labels_with_control_characters_are_shown_without_them(bigsvm: Bigsvm, tmp_path: Path) -> None:
    x = np.linspace(-1.0, 1.0, 30)
    columns = {"x": x, "label": [LABELS[int(value > 0)] for value in x], "other": [f"\x1b{k % 2}" for k in range(30)]}
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    fit = ["fit", "rows.parquet", "-o", "m", *X]
    shown = ""
    for args in (fit, *COMMANDS):
        done = bigsvm(*args)
        assert done.code in (0, 2), (args, done.err)
        obeyed = {mark for mark in done.out + done.err if unicodedata.category(mark) == "Cc"} - {"\n"}
        assert obeyed == set(), args
        assert not any(line.startswith("end") for line in done.out.splitlines()), args
        shown += done.out
    assert "?]0;title?a?b" in shown
    assert "line?end?c" in shown


def test_colours_of_plots_are_shown() -> None:
    from bigsvm.cli.session import _printable

    drawn = "".join(chart._mark(k, colour=True) for k in range(len(chart._ANSI)))
    assert _printable(drawn) == drawn
