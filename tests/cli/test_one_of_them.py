"""What a command says of a single row, feature, run or model: never `1 rows`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigsvm as package
from bigsvm.units import counted, plural
from tests.cli.conftest import Bigsvm

_ONE_OF_MANY = re.compile(
    r"(?<![\d.,:/=-])1 (?:[a-z]+ )?(?!pass\b|class\b|is\b|has\b|needs\b|as\b|in this\b|ms\b|s\b)[a-z]+s\b"
)


@pytest.mark.parametrize(
    ("n", "words"),
    [(0, "0 rows, 0 passes"), (1, "1 row, 1 pass"), (2, "2 rows, 2 passes"), (1500, "1500 rows, 1500 passes")],
)
def test_nouns_agree_with_their_number(n: int, words: str) -> None:
    assert f"{counted(n, 'row')}, {n} {plural(n, 'pass', 'passes')}" == words
    assert counted(n, "row", commas=True) == f"{n:,} {plural(n, 'row')}"


@pytest.fixture
def small(bigsvm: Bigsvm) -> None:
    """Rows of a single feature, a model of them with its run, and files of one row."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    pq.write_table(pa.table({"label": (x > 0).astype(int), "x": x}), "rows.parquet")
    pq.write_table(pa.table({"label": [1], "x": [0.5]}), "one.parquet")
    pq.write_table(pa.table({"label": [1, 0], "x": [0.5, 0.1], "z": [0.5, 0.1]}), "two.parquet")
    Path("one.svm").write_text("1 1:0.5\n")
    Path("wide.svm").write_text("1 2:0.5\n")
    Path("short.csv").write_text("label,a\n1,2\n3\n")
    for args in (["fit", "rows.parquet", "-o", "m"], ["ingest", "rows.parquet", "rows.zarr"], ["promote", "reg", "m"],
                 ["fit", "rows.parquet", "--kernel", "rbf", "-o", "k"]):  # fmt: skip
        assert bigsvm(*args).code == 0, args


COMMANDS = [
    ["plan", "rows.parquet"], ["plan", "rows.parquet", "--loss", "squared_hinge"],
    ["plan", "rows.parquet", "-b", "free"], ["fit", "rows.parquet", "-o", "n"],
    ["fit", "rows.parquet", "-o", "n", "-v", "--solver", "dcd"],
    ["fit", "rows.parquet", "-o", "n", "--calibrate", "sigmoid", "--split", "0.9"],
    ["inspect", "m"], ["inspect", "m.run"], ["inspect", "rows.zarr"], ["inspect", "reg"], ["history", "reg"],
    ["inspect", "k"], ["evaluate", "m", "one.parquet"], ["evaluate", "m", "one.svm"],
    ["predict", "m", "one.parquet", "-o", "p.csv"], ["certify", "m", "rows.parquet"], ["certify", "m", "one.parquet"],
    ["certify", "m", "two.parquet"], ["predict", "m", "two.parquet", "--columns", "x,z"], ["predict", "m", "wide.svm"],
    ["verify", "rows.zarr"], ["seal", "rows.zarr"], ["dump", "one.parquet", "d.svm"], ["plot", "m.run", "-o", "p.svg"],
    ["report", "m.run", "--text"], ["report", "m", "--text"], ["report", "reg", "--text"], ["cache"], ["doctor"],
    ["tune", "rows.parquet", "--Cs", "1:1:1", "--folds", "1"],
    ["tune", "rows.parquet", "--Cs", "1:10:2", "--folds", "2"],
    ["ingest", "short.csv", "s.zarr"], ["ingest", "wide.svm", "w.zarr", "--n-features", "1"],
    ["fit", "one.parquet", "-o", "n"], ["fit", "one.parquet", "-o", "n", "--warm-start", "k", "--kernel", "rbf"],
    ["watch", "m.run", "--once"], ["export", "m", "e.npz"],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.usefixtures("small")
def test_a_command_counts_one_of_a_thing(command: list[str], bigsvm: Bigsvm) -> None:
    said = bigsvm(*command)
    assert said.code != 1, said.err
    found = _ONE_OF_MANY.search(said.out + said.err)
    assert found is None, found


@pytest.mark.parametrize(
    "call",
    [lambda: package.fit((np.ones((2, 1)),)), lambda: package.fit(np.ones((1, 1)), np.zeros(3)),
     lambda: package.fit(np.ones((1, 1)), np.zeros(1), sample_weight=np.ones(3))],
)  # fmt: skip
def test_a_function_counts_one_of_a_thing(call: Any) -> None:
    with pytest.raises(package.BigSVMError) as caught:
        call()
    assert _ONE_OF_MANY.search(str(caught.value)) is None


def test_what_is_searched_for_is_found() -> None:
    assert _ONE_OF_MANY.search("a plan of 1 blocks") is not None
    assert _ONE_OF_MANY.search("1 support vectors") is not None
    for fine in ("1 row is", "11 rows", "2.1 passes", "1 pass", "1 class", "1 ms", "1 s"):
        assert _ONE_OF_MANY.search(fine) is None
