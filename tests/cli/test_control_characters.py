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


NAMES = "a\x1b]0;title\x07", "b\nzz\x9bc"
"""Of features; columns of labels and weights, and folders, have such names, too."""
STORE, MODEL, REGISTRY = "rows\nzz.zarr", "m\nzz", "r\nzz"
COLUMNS = ["--label", "label\nzz", "--weight", "weight\nzz\x1b"]
OF_NAMES = [
    ["ingest", "rows.parquet", STORE, *COLUMNS], ["seal", STORE], ["verify", STORE], ["inspect", STORE],
    ["plan", STORE], ["plan", "rows.parquet", *COLUMNS], ["fit", "rows.parquet", "-o", MODEL, *COLUMNS],
    ["inspect", MODEL], ["inspect", MODEL, "--top", "2"], ["inspect", f"{MODEL}.run"],
    ["evaluate", MODEL, "rows.parquet", *COLUMNS], ["certify", MODEL, "rows.parquet", *COLUMNS],
    ["predict", MODEL, "rows.parquet", "-o", "p\nzz.parquet"], ["report", MODEL, "--text"],
    ["report", MODEL, "-o", "page\nzz.html"], ["watch", f"{MODEL}.run"], ["plot", f"{MODEL}.run"],
    ["plot", f"{MODEL}.run", f"{MODEL}.run", "-o", "p\nzz.png"], ["export", MODEL, "m\nzz.npz"],
    ["import", "m\nzz.npz", "again\nzz"], ["promote", REGISTRY, MODEL], ["promote", REGISTRY, MODEL],
    ["rollback", REGISTRY], ["history", REGISTRY], ["report", REGISTRY, "--text"], ["dump", STORE, "d\nzz.svm"],
    ["tune", STORE, "--c-grid", "1:2:2", "--folds", "2", "-o", "t\nzz"],
]  # fmt: skip
REFUSED = [
    ["fit", "rows.parquet"], ["fit", "rows.parquet", "--label", "label\nz"], ["inspect", "other\nzz"],
    ["fit", "rows.parquet", "--label", "text\nzz", "--weight", "label\nzz"], ["predict", MODEL, "other.parquet"],
    ["evaluate", MODEL, "text.parquet", *COLUMNS], ["fit", "text.parquet", *COLUMNS],
    ["fit", "rows.parquet", "--columns", "none\nzz", *COLUMNS],
]  # fmt: skip


def test_names_with_control_characters_are_shown_without_them(bigsvm: Bigsvm, tmp_path: Path) -> None:
    """Those of columns, files and folders, in results and in errors: a line end made two lines of one."""
    pytest.importorskip("matplotlib")
    x = np.linspace(-1.0, 1.0, 30)
    columns = dict(zip(NAMES, (x, x * x), strict=True))
    beside = {"label\nzz": x > 0, "weight\nzz\x1b": 1.0 + (x > 0)}
    parquet.write_table(pa.table({**columns, **beside}), tmp_path / "rows.parquet")
    parquet.write_table(pa.table({NAMES[0]: x, "c\nzz": x, **beside}), tmp_path / "other.parquet")
    parquet.write_table(pa.table({NAMES[0]: x, NAMES[1]: ["a"] * 30, **beside}), tmp_path / "text.parquet")
    shown = ""
    for args, ends in (*((args, {0}) for args in OF_NAMES), *((args, {2, 65, 66}) for args in REFUSED)):
        done = bigsvm(*args)
        assert done.code in ends, (args, done.err)
        obeyed = {mark for mark in done.out + done.err if unicodedata.category(mark) == "Cc"} - {"\n"}
        assert obeyed == set(), args
        assert not any(line.lstrip().startswith("zz") for line in (done.out + "\n" + done.err).splitlines()), (
            args,
            done.out,
            done.err,
        )
        shown += done.out
    for told in ("a?]0;title?", "b?zz?c", "label?zz", "weight?zz?", "rows?zz.zarr", "m?zz", "r?zz"):
        assert told in shown


def test_colours_of_plots_are_shown() -> None:
    from bigsvm.cli.session import _printable

    drawn = "".join(chart._mark(k, colour=True) for k in range(len(chart._ANSI)))
    assert _printable(drawn) == drawn
