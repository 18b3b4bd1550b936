"""Nasty svmlight text: each kind has one outcome, rows or an exit code and a line."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from bigsvm.events import Event, Warned
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.text_files import line_limit
from tests.store.svmlight.text import ONE, Rows, refused, rows_of, text_file

ACCEPTED: list[tuple[str, bytes, Rows]] = [
    ("plain", b"1 1:0.5\n", ONE),
    ("plus one", b"+1 1:0.5\n", ONE),
    ("CRLF", b"1 1:0.5\r\n-1 2:1\r\n", [*ONE, (-1.0, {2: 1.0})]),
    ("CRLF torn after CR", b"1 1:0.5\r", ONE),
    ("BOM", b"\xef\xbb\xbf1 1:0.5\n", ONE),
    ("BOM before a comment", b"\xef\xbb\xbf# c\n1 1:0.5\n", ONE),
    ("torn last line", b"1 1:0.5", ONE),
    ("torn second line", b"1 1:0.5\n2 3:4", [*ONE, (2.0, {3: 4.0})]),
    ("torn blank", b"1 1:0.5\n  ", ONE),
    ("leading blanks", b" \t 1 1:0.5\n", ONE),
    ("trailing blanks", b"1 1:0.5 \t \n", ONE),
    ("trailing blanks and CRLF", b"1 1:0.5 \r\n", ONE),
    ("tabs between", b"1\t1:0.5\t\t2:1\n", [(1.0, {1: 0.5, 2: 1.0})]),
    ("many spaces", b"1    1:0.5\n", ONE),
    ("blank lines", b"\n\n1 1:0.5\n\n \t\n\r\n", ONE),
    ("whole-line comment", b"# 1 1:9\n1 1:0.5\n", ONE),
    ("indented comment", b"  # 1 1:9\n1 1:0.5\n", ONE),
    ("trailing comment", b"1 1:0.5 # 2:3\n", ONE),
    ("comment without a space", b"1 1:0.5#2:3\n", ONE),
    ("comment after the label", b"1#\n", [(1.0, {})]),
    ("comment in UTF-8", "1 1:0.5 # größe\n".encode(), ONE),
    ("CR inside a comment", b"1 1:0.5 # a\rb\r\n", ONE),
    ("torn comment", b"1 1:0.5\n# end", ONE),
    ("label only", b"1\n-1 1:2\n", [(1.0, {}), (-1.0, {1: 2.0})]),
    ("label only, torn", b"1", [(1.0, {})]),
    ("label of many digits", b"3.25e1 1:0.5\n", [(32.5, {1: 0.5})]),
    ("negative zero label", b"-0 1:0.5\n", [(0.0, {1: 0.5})]),
    ("qid", b"1 qid:7 1:0.5\n", ONE),
    ("qid alone", b"1 qid:7\n", [(1.0, {})]),
    ("qid of thirty digits", b"1 qid:" + b"9" * 30 + b" 1:0.5\n", ONE),
    ("plus value", b"1 1:+0.5\n", ONE),
    (".5", b"1 1:.5\n", ONE),
    ("5.", b"1 1:5.\n", [(1.0, {1: 5.0})]),
    ("-.5e1", b"1 1:-.5e1\n", [(1.0, {1: -5.0})]),
    ("E with plus", b"1 1:5E+00\n", [(1.0, {1: 5.0})]),
    ("e of many zeros", b"1 1:5e-0000000000000000000001\n", ONE),
    ("leading zeros in the index", b"1 0000000000000000000000001:0.5\n", ONE),
    ("leading zeros in the value", b"1 1:" + b"0" * 40 + b"0.5\n", ONE),
    ("trailing zeros in the value", b"1 1:0.5" + b"0" * 400 + b"\n", ONE),
    ("huge mantissa", b"1 1:" + b"9" * 300 + b"e-300\n", [(1.0, {1: 1.0})]),
    ("tiny by many zeros", b"1 1:0." + b"0" * 300 + b"5e300\n", ONE),
    ("1e-400 is zero", b"1 1:1e-400\n", [(1.0, {1: 0.0})]),
    ("1e-50 is zero in float32", b"1 1:1e-50\n", [(1.0, {1: 0.0})]),
    ("zero of any exponent", b"1 1:0e99999999999999999999\n", [(1.0, {1: 0.0})]),
    ("minus zero", b"1 1:-0\n", [(1.0, {1: 0.0})]),
    ("explicit zero", b"1 1:0 2:1\n", [(1.0, {1: 0.0, 2: 1.0})]),
    ("largest float32", b"1 1:3.4028234e38\n", [(1.0, {1: float(np.float32(3.4028234e38))})]),
    ("beyond int32", b"1 2147483648:1\n1 5:1\n", [(1.0, {2147483648: 1.0}), (1.0, {5: 1.0})]),
    ("beyond int32 later", b"1 5:1\n1 2147483649:1\n", [(1.0, {5: 1.0}), (1.0, {2147483649: 1.0})]),
    ("last int32", b"1 2147483647:1\n", [(1.0, {2147483647: 1.0})]),
    ("one class", b"1 1:1\n1 2:1\n", [(1.0, {1: 1.0}), (1.0, {2: 1.0})]),
    ("many lines", b"1 1:0.5\n" * 5000, ONE * 5000),
]  # fmt: skip

# name, text, line that is named (0: the file as a whole), a word of the message
REFUSED: list[tuple[str, bytes, int, str]] = [
    ("empty file", b"", 0, "no rows"),
    ("only comments", b"# a\n\n# b\n", 0, "no rows"),
    ("only a BOM", b"\xef\xbb\xbf", 0, "no rows"),
    ("no label", b"1:2 3:4\n", 1, "label is missing"),
    ("no label on line 3", b"1 1:1\n\n1:2\n", 3, "label is missing"),
    ("qid without a label", b"qid:3 1:2\n", 1, "label is missing"),
    ("nan", b"1 1:nan\n", 1, "not finite"),
    ("NaN after comments", b"# c\n# c\n1 1:NaN\n", 3, "not finite"),
    ("-nan", b"1 1:-nan\n", 1, "not finite"),
    ("nan(0x1)", b"1 1:nan(1)\n", 1, "not finite"),
    ("inf", b"1 1:inf\n", 1, "not finite"),
    ("Infinity", b"1 1:+Infinity\n", 1, "not finite"),
    ("nan label", b"nan 1:1\n", 1, "not finite"),
    ("inf label", b"-inf 1:1\n", 1, "not finite"),
    ("1e400", b"1 1:1e400\n", 1, "overflows"),
    ("1e400 label", b"1e400 1:1\n", 1, "overflows"),
    ("1e300 in float32", b"1 1:1e300\n", 1, "--dtype float64"),
    ("just beyond float32", b"1 1:3.4028236e38\n", 1, "--dtype float64"),
    ("overflow by digits", b"1 1:" + b"9" * 400 + b"\n", 1, "overflows"),
    ("overflow by a huge exponent", b"1 1:1e99999999999999999999\n", 1, "overflows"),
    ("hex value", b"1 1:0x1p3\n", 1, "hexadecimal"),
    ("hex index", b"1 0x1:1\n", 1, "not a feature number"),
    ("hex label", b"0x1 1:1\n", 1, "hexadecimal"),
    ("NUL", b"1 1:1\n1 1:\0\n", 2, "NUL"),
    ("NUL line", b"1 1:1\n\0\n", 2, "NUL"),
    ("NUL in a comment", b"1 1:1 # \0\n", 1, "NUL"),
    ("NUL at the start", b"\0" * 100, 1, "NUL"),
    ("UTF-16", "1 1:1\n".encode("utf-16"), 1, "NUL"),
    ("1_0 value", b"1 1:1_0\n", 1, "not a number"),
    ("1_0 label", b"1_0 1:1\n", 1, "not a number"),
    ("1_0 index", b"1 1_0:1\n", 1, "not a feature number"),
    ("index 0", b"1 0:1\n", 1, "--zero-based"),
    ("index 00", b"1 00:1 1:1\n", 1, "--zero-based"),
    ("negative index", b"1 -1:1\n", 1, "negative"),
    ("plus index", b"1 +1:1\n", 1, "not a feature number"),
    ("fractional index", b"1 1.0:1\n", 1, "not a feature number"),
    ("not ascending", b"1 1:1\n1 3:1 2:1\n", 2, "not ascending"),
    ("duplicate", b"1 2:1 2:1\n", 1, "twice"),
    ("duplicate by a leading zero", b"1 2:1 02:1\n", 1, "twice"),
    ("beyond int64", b"1 9223372036854775808:1\n", 1, "beyond int64"),
    ("far beyond int64", b"1 " + b"9" * 40 + b":1\n", 1, "beyond int64"),
    ("wraps to a small number", b"1 18446744073709551617:1\n", 1, "beyond int64"),
    ("1:", b"1 1:\n", 1, "missing"),
    ("1: then more", b"1 1: 2:1\n", 1, "missing"),
    ("1: at a torn end", b"1 1:", 1, "missing"),
    (":1", b"1 :1\n", 1, "not a feature number"),
    (":", b"1 :\n", 1, "not a feature number"),
    ("1:1:1", b"1 1:1:1\n", 1, "not a number"),
    ("1: 1", b"1 1: 1\n", 1, "missing"),
    ("1 :1", b"1 1 :1\n", 1, "expected index:value"),
    ("index without value", b"1 1:1 2\n", 1, "expected index:value"),
    ("two labels", b"1 -1 1:1\n", 1, "expected index:value"),
    ("multi-label", b"1,2 1:1\n", 1, "not a number"),
    ("vertical tab", b"1\v1:1\n", 1, ""),
    ("form feed", b"1 1:1\f2:1\n", 1, "not a number"),
    ("no-break space", "1\u00a01:1\n".encode(), 1, "ASCII"),
    ("non-ASCII digits", "1 1:\u0661\n".encode(), 1, "ASCII"),
    ("fullwidth index", "1 \uff11:1\n".encode(), 1, "ASCII"),
    ("BOM in the middle", b"1 1:1\n\xef\xbb\xbf1 1:1\n", 2, "ASCII"),
    ("Latin-1", b"1 1:1 \xe9\n", 1, "ASCII"),
    ("trailing garbage", b"1 1:1x\n", 1, "not a number"),
    ("garbage word", b"1 1:1 hello\n", 1, "expected index:value"),
    ("lone CR", b"1 1:1\r1 1:1\n", 1, "not a number"),
    ("CR CR LF", b"1 1:1\r\r\n", 1, "not a number"),
    ("+-1", b"1 1:+-1\n", 1, "not a number"),
    ("--1", b"1 1:--1\n", 1, "not a number"),
    ("--1 label", b"--1 1:1\n", 1, "not a number"),
    ("lone sign", b"1 1:-\n", 1, "not a number"),
    ("1e", b"1 1:1e\n", 1, "not a number"),
    ("1e+", b"1 1:1e+\n", 1, "not a number"),
    ("1e1.5", b"1 1:1e1.5\n", 1, "not a number"),
    ("e5", b"1 1:e5\n", 1, "not a number"),
    (".", b"1 1:.\n", 1, "not a number"),
    ("-.e1", b"1 1:-.e1\n", 1, "not a number"),
    ("two dots", b"1 1:1.2.3\n", 1, "not a number"),
    ("decimal comma", b"1 1:1,5\n", 1, "not a number"),
    ("1d5", b"1 1:1d5\n", 1, "not a number"),
    ("1f", b"1 1:1f\n", 1, "not a number"),
    ("thousands", b"1 1:1'000\n", 1, "not a number"),
    ("quoted", b'"1" 1:1\n', 1, "not a number"),
    ("qid later", b"1 1:1 qid:3\n", 1, "not a feature number"),
    ("qid twice", b"1 qid:3 qid:3 1:1\n", 1, "not a feature number"),
    ("qid without number", b"1 qid: 1:1\n", 1, "not a feature number"),
    ("negative qid", b"1 qid:-3 1:1\n", 1, "not a feature number"),
    ("CSV", b"label,a,b\n1,2,3\n", 1, "not a number"),
    ("JSON", b'{"label": 1}\n', 1, ""),
    ("slow number, then bad", b"1 1:" + b"1" * 25 + b" 2:x\n", 1, "not a number"),
    ("bad on line 4000", b"1 1:1\n" * 3999 + b"1 1:x\n", 4000, "not a number"),
    ("gzip without the name", gzip.compress(b"1 1:1\n"), 0, ".gz"),
    ("zstd without the name", zstandard.compress(b"1 1:1\n"), 0, ".zst"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "rows"), [case[1:] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED])
def test_accepted(tmp_path: Path, content: bytes, rows: Rows) -> None:
    result = ingest(text_file(tmp_path, content), tmp_path / "s")
    assert rows_of(tmp_path / "s") == rows
    assert result["n_samples"] == len(rows)
    assert result["nnz"] == sum(len(entries) for _, entries in rows)
    assert result["n_features"] == max((max(entries, default=0) for _, entries in rows), default=0)


@pytest.mark.parametrize(("content", "line", "word"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(tmp_path: Path, content: bytes, line: int, word: str) -> None:
    path = text_file(tmp_path, content)
    error = refused(path, tmp_path / "s", 65, f"{path}:{line}" if line else "", word)
    assert error.where.endswith(f":{line}") or not line
    assert error.hint, "a refused line has a remedy"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            b"1 1:1,5",
            "write a fraction with a point, as 1.5; several labels stand before the first entry, and are read by: ",
        ),
        (b"1 1:-1,5", "write a fraction with a point, as 1.5"),
        (b"1 1:x", "write it in digits, such as -1.5e3"),
        (b"1,5 1:1", "several labels a row are read by: bigsvm ingest --labels label"),
        (b"1 2:1 2:1", "leave out one of the two, or write their sum"),
        (b"1 1:1 qid:3", "qid:NUMBER stands straight after the label"),
        (b"1 a:1", "the features are numbered from 1, in digits alone"),
        (b"1 -1:1", "the features are numbered from 1"),
        (b"1 2", "each line is: label index:value ..."),
    ],
)
def test_the_remedy_is_for_what_stands_there(tmp_path: Path, line: bytes, hint: str) -> None:
    """`--labels` was advised for a comma in a value; other lines had no remedy."""
    path = text_file(tmp_path, b"1 1:1\n" + line + b"\n")
    error = refused(path, tmp_path / "s", 65, f"{path}:2")
    assert error.hint == (f"{hint}bigsvm ingest --labels label" if hint.endswith(": ") else hint)


def test_index_beyond_int32_is_stored_in_int64(tmp_path: Path) -> None:
    ingest(text_file(tmp_path, b"1 2147483649:1\n-1 1:1\n"), tmp_path / "s")
    store = ZarrRows(tmp_path / "s")
    assert store.index_dtype == np.int64
    assert store.n_features == 2147483649


def test_a_wide_store_needs_little_memory(tmp_path: Path) -> None:
    """The width is 2^31 + 2: one byte a feature would already be 2 GiB."""
    path = text_file(tmp_path, b"1 2147483650:1\n-1 1:1\n")
    code = (
        "import re, sys; from bigsvm.store.ingest.ingest import ingest; ingest(sys.argv[1], sys.argv[2]);"
        # Not ru_maxrss: that one is inherited from the process that started this one.
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) << 10 < 1 << 30


def test_qid_is_warned_of_once(tmp_path: Path) -> None:
    events: list[Event] = []
    result = ingest(text_file(tmp_path, b"1 qid:1 1:1\n" * 9), tmp_path / "s", emit=events.append)
    assert len(result["warnings"]) == 1
    assert "qid" in result["warnings"][0]
    assert [event.message for event in events if isinstance(event, Warned)] == result["warnings"]


def test_zero_based(tmp_path: Path) -> None:
    path = text_file(tmp_path, b"1 0:1 2147483647:2\n")
    assert ingest(path, tmp_path / "s", zero_based=True)["n_features"] == 2147483648
    assert rows_of(tmp_path / "s") == [(1.0, {1: 1.0, 2147483648: 2.0})]
    refused(text_file(tmp_path, b"1 0:1 -1:1\n"), tmp_path / "t", 65, ":1", "negative", zero_based=True)
    largest = text_file(tmp_path, b"1 9223372036854775807:1\n")
    refused(largest, tmp_path / "t", 65, ":1", "beyond int64", zero_based=True)


def test_n_features_is_a_limit_and_a_width(tmp_path: Path) -> None:
    path = text_file(tmp_path, b"1 1:1\n1 7:1\n")
    assert ingest(path, tmp_path / "s", n_features=9)["n_features"] == 9
    refused(path, tmp_path / "t", 65, f"{path}:2", "beyond the 6 features", n_features=6)
    refused(path, tmp_path / "t", 65, f"{path}:2", "--n-features 7 or more", n_features=6)


def test_float64_keeps_what_float32_cannot(tmp_path: Path) -> None:
    path = text_file(tmp_path, b"1 1:1e300 2:0.1\n")
    ingest(path, tmp_path / "s", dtype="float64")
    assert rows_of(tmp_path / "s") == [(1.0, {1: 1e300, 2: 0.1})]


def test_regression_keeps_fractions_and_classification_refuses_too_many(tmp_path: Path) -> None:
    path = text_file(tmp_path, b"".join(b"%.17g 1:1\n" % (k / 7) for k in range(1, 3000)))
    refused(path, tmp_path / "s", 65, word="--task regression")
    assert ingest(path, tmp_path / "s", task="regression")["labels"] is None


@pytest.mark.parametrize("threads", [1, 2])
def test_huge_line(tmp_path: Path, threads: int) -> None:
    line = b"1 " + b" ".join(b"%d:1" % k for k in range(1, 400_001)) + b"\n"
    assert len(line) > 1 << 21
    content = b"1 1:1\n" + line + b"2 2:2\n"
    path = text_file(tmp_path, content)
    result = ingest(path, tmp_path / "s", memory="64MiB", threads=threads)
    assert (result["n_samples"], result["nnz"]) == (3, 400_002)
    assert line_limit(16 << 20) < len(line)
    less: dict[str, Any] = {"memory": "16MiB", "chunk_bytes": 1 << 20, "threads": threads}
    refused(path, tmp_path / "t", 65, f"{path}:2", "line of more than", **less)


@pytest.mark.parametrize(
    ("field", "word"),
    [("200001:x", "not a number"),
     ("200000:1", "not ascending: 200000 after 200001"), ("200002:", "missing"),
     ("200001:1", "200001 twice"), ("200002:1\0", "NUL"),
     ("200002:nan", "finite"), ("200002:1 \r \r", "at byte")],
)  # fmt: skip
def test_fault_in_a_long_line(tmp_path: Path, field: str, word: str) -> None:
    before = "\t".join(f"{j}:1" for j in range(1, 200_002))
    rest = " ".join(f"{j}:1" for j in range(300_000, 400_000))
    text = f"1 1:1\n1 {before} {field} {rest}\n1 2:2\n".replace("200001:1 200001:x", "200001:x")
    path = text_file(tmp_path, text.encode())
    refused(path, tmp_path / "s", 65, f"{path}:2", word)
