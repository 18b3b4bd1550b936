"""Nasty svmlight text: each kind has one outcome, rows or an exit code and a line; the kernel agrees with the
specification on every line that hypothesis can think of."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import random
import struct
import subprocess
import sys
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigsvm.errors import BigSVMError, DataError
from bigsvm.events import Event, Warned
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.compressed import ByteSource
from bigsvm.store.text.svmlight import Chunk, parse_line_strict, read_chunks
from bigsvm.store.text.text_files import line_limit, read_pieces

Rows = list[tuple[float, dict[int, float]]]
ONE: Rows = [(1.0, {1: 0.5})]

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


def text_file(folder: Path, content: bytes, name: str = "a.svm") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def rows_of(store: Path) -> Rows:
    data = ZarrRows(store, task="classification")
    found: Rows = []
    for ref in data.refs(1000):
        block = data.read(ref)
        for i in range(block.n_rows):
            a, b = block.X.indptr[i : i + 2]
            entries = zip((block.X.indices[a:b].astype(np.int64) + 1).tolist(), block.X.data[a:b].tolist(), strict=True)
            found.append((float(data.classes[block.y[i]]), dict(entries)))
    return found


def refused(source: Any, out: Path, code: int, where: str = "", word: str = "", **options: Any) -> BigSVMError:
    """Ingest, which must fail so; nothing is left at the final path nor beside it."""
    before = set(out.parent.iterdir())
    with pytest.raises(BigSVMError) as caught:
        ingest(source, out, **options)
    assert set(out.parent.iterdir()) == before
    assert caught.value.code == code
    assert where in caught.value.where
    assert word in str(caught.value)
    return caught.value


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


# ---- files -----------------------------------------------------------------------------------------------

PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
TEXT = b"".join(b"%d 1:%d 2:0.%d\n" % (k % 3, k, k) for k in range(20000))


@pytest.mark.parametrize("suffix", PACK)
class TestCompressed:
    def test_the_same_as_plain(self, tmp_path: Path, suffix: str) -> None:
        packed = text_file(tmp_path, PACK[suffix](TEXT), "a.svm" + suffix)
        plain = ingest(text_file(tmp_path, TEXT), tmp_path / "s")
        assert ingest(packed, tmp_path / "t")["content_fingerprint"] == plain["content_fingerprint"]

    def test_several_members(self, tmp_path: Path, suffix: str) -> None:
        half = TEXT.index(b"\n", len(TEXT) // 2) - 3  # in the middle of a line
        packed = text_file(tmp_path, PACK[suffix](TEXT[:half]) + PACK[suffix](TEXT[half:]), "a" + suffix)
        plain = ingest(text_file(tmp_path, TEXT), tmp_path / "s")
        assert ingest(packed, tmp_path / "t")["content_fingerprint"] == plain["content_fingerprint"]

    @pytest.mark.parametrize("keep", [1, 9, 0.3, 0.9, -1, -4, -9])
    def test_cut_short(self, tmp_path: Path, suffix: str, keep: float) -> None:
        packed = PACK[suffix](TEXT)
        cut = packed[: int(keep * len(packed)) if isinstance(keep, float) else keep]
        path = text_file(tmp_path, cut, "a" + suffix)
        refused(path, tmp_path / "s", 65, str(path))

    def test_second_member_cut_short(self, tmp_path: Path, suffix: str) -> None:
        path = text_file(tmp_path, PACK[suffix](TEXT) + PACK[suffix](TEXT)[:-20], "a" + suffix)
        refused(path, tmp_path / "s", 65, str(path))

    def test_damaged(self, tmp_path: Path, suffix: str) -> None:
        packed = bytearray(PACK[suffix](TEXT))
        packed[len(packed) // 2] ^= 0xFF
        refused(text_file(tmp_path, bytes(packed), "a" + suffix), tmp_path / "s", 65, "a" + suffix)

    def test_garbage_with_the_name(self, tmp_path: Path, suffix: str) -> None:
        refused(text_file(tmp_path, TEXT, "a" + suffix), tmp_path / "s", 65, "a" + suffix)

    def test_empty(self, tmp_path: Path, suffix: str) -> None:
        refused(text_file(tmp_path, b"", "a" + suffix), tmp_path / "s", 65, "a" + suffix)

    def test_line_number(self, tmp_path: Path, suffix: str) -> None:
        path = text_file(tmp_path, PACK[suffix](TEXT + b"1 1:nan\n"), "a" + suffix)
        refused(path, tmp_path / "s", 65, f"{path}:20001")


def unpacked(path: Path) -> bytes:
    buffer, found = np.empty(3000, np.uint8), []
    with ByteSource(str(path)) as source:
        while got := source.fill(buffer):
            found.append(buffer[:got].tobytes())
    return b"".join(found)


@pytest.mark.parametrize("suffix", PACK)
def test_harm_to_any_byte_of_any_member_is_told_or_changes_nothing(tmp_path: Path, suffix: str) -> None:
    """Python's readers of bz2 and xz end in silence where a later member makes no sense."""
    text = b"".join(b"%d 1:%d 2:0.%d\n" % (k % 3, k, k * k) for k in range(60))
    packed = PACK[suffix](text) * 3
    path = text_file(tmp_path, packed, "a" + suffix)
    assert unpacked(path) == 3 * text
    told = 0
    for place in range(len(packed)):
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :])
        try:
            assert unpacked(path) == 3 * text
        except DataError:
            told += 1
    assert told > 0.9 * len(packed)


@pytest.mark.parametrize("zeros", [0, 4, 8, 8 << 10, 3, (8 << 10) + 1])
def test_zeros_between_streams_of_xz(tmp_path: Path, zeros: int) -> None:
    path = text_file(tmp_path, (lzma.compress(b"1 1:0.5\n") + bytes(zeros)) * 2, "a.xz")
    if zeros % 4 == 0:
        assert unpacked(path) == b"1 1:0.5\n" * 2
    else:
        with pytest.raises(DataError, match="not a sound"):
            unpacked(path)


@pytest.mark.parametrize("suffix", [".bz2", ".xz"])
def test_what_repeats_is_unpacked_a_buffer_at_a_time(tmp_path: Path, suffix: str) -> None:
    path, buffer = text_file(tmp_path, PACK[suffix](bytes(30 << 20)), "a" + suffix), np.empty(1 << 16, np.uint8)
    tracemalloc.start()
    try:
        with ByteSource(str(path)) as source:
            assert sum(iter(lambda: source.fill(buffer), 0)) == 30 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_zstd_skippable_frame(tmp_path: Path) -> None:
    skip = struct.pack("<II", 0x184D2A50, 5) + b"hello"
    path = text_file(tmp_path, skip + zstandard.compress(b"1 1:0.5\n") + skip, "a.zst")
    ingest(path, tmp_path / "s")
    assert rows_of(tmp_path / "s") == ONE


def test_missing_and_folder(tmp_path: Path) -> None:
    refused(tmp_path / "no.svm", tmp_path / "s", 66, "no.svm")
    refused(tmp_path / "no.svm.gz", tmp_path / "s", 66, "no.svm.gz")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", tmp_path / "s", 66, "folder", from_format="svmlight")
    refused([text_file(tmp_path, b"1 1:1\n"), tmp_path / "no.svm"], tmp_path / "s", 66, "no.svm")


def test_output_exists(tmp_path: Path) -> None:
    path = text_file(tmp_path, b"1 1:1\n")
    ingest(path, tmp_path / "s")
    refused(path, tmp_path / "s", 73, "s", "exists")
    refused(text_file(tmp_path, b"1 1:x\n"), tmp_path / "s", 65, overwrite=True)
    assert rows_of(tmp_path / "s") == [(1.0, {1: 1.0})]  # what was there is still there
    ingest(text_file(tmp_path, b"1 2:1\n"), tmp_path / "s", overwrite=True)
    assert rows_of(tmp_path / "s") == [(1.0, {2: 1.0})]


def test_several_files_each_with_its_own_lines(tmp_path: Path) -> None:
    a = text_file(tmp_path, b"\xef\xbb\xbf1 1:1\n2 2:2", "a")  # torn: the next file begins a new line
    b = text_file(tmp_path, b"\xef\xbb\xbf# c\n3 3:3\n", "b")
    ingest([a, b], tmp_path / "s")
    assert rows_of(tmp_path / "s") == [(1.0, {1: 1.0}), (2.0, {2: 2.0}), (3.0, {3: 3.0})]
    bad = text_file(tmp_path, b"1 1:1\n1 1:x\n", "bad")
    refused([a, bad], tmp_path / "t", 65, f"{bad}:2")


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 1:0.5\n")))
    ingest("-", tmp_path / "s")
    assert rows_of(tmp_path / "s") == ONE
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 1:0.5\n1 1:x\n")))
    refused("-", tmp_path / "t", 65, "<stdin>:2")


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


# ---- the kernel against the specification ------------------------------------------------------------------


def chunks_of(path: Path, piece_bytes: int = 1 << 20, **options: Any) -> list[Chunk]:
    options = {"dtype": np.dtype(np.float64), **options}
    with closing(read_pieces([str(path)], piece_bytes=piece_bytes, line_bytes=1 << 24)) as pieces:
        return list(read_chunks(pieces, **options))


def assert_kernel_agrees(path: Path, lines: list[bytes], **options: Any) -> None:
    """The same rows, bit for bit, or the same refusal of the same line."""
    path.write_bytes(b"\n".join(lines) + b"\n")
    wanted = []
    failure = None
    for number, line in enumerate(lines, 1):
        try:
            row = parse_line_strict(line, f"{path}:{number}", **options)
        except DataError as error:
            failure = error
            break
        if row is not None:
            wanted.append(row)
    if failure is not None:
        with pytest.raises(DataError) as caught:
            chunks_of(path, **options)
        assert str(caught.value) == str(failure)
        return
    labels = [row.label for row in wanted]
    if not fits(labels):
        with pytest.raises(DataError, match="float64 cannot hold"):
            chunks_of(path, **options)
        return
    found = chunks_of(path, **options)
    assert sum(len(chunk.labels) for chunk in found) == len(wanted)
    if wanted:
        (chunk,) = found
        dtype = chunk.X.data.dtype
        if any(isinstance(label, int) for label in labels):
            assert chunk.labels.tolist() == labels
        else:
            assert bits(chunk.labels) == bits(np.array(labels))
        assert bits(chunk.X.data) == bits(np.array([v for row in wanted for v in row.values], dtype))
        assert chunk.X.indices.tolist() == [j for row in wanted for j in row.indices]
        assert np.diff(chunk.X.indptr).tolist() == [len(row.indices) for row in wanted]
        assert chunk.qid == any(row.qid for row in wanted)


def fits(labels: list[float | int]) -> bool:
    """Whether float64, int64 or uint64 holds all of these."""
    if not any(isinstance(label, int) for label in labels):
        return True
    whole = all(label == int(label) for label in labels)
    return whole and (0 <= min(labels) <= max(labels) < 2**64 or -(2**63) <= min(labels) <= max(labels) < 2**63)


def bits(values: np.ndarray) -> bytes:
    return np.ascontiguousarray(values).tobytes()


digits = st.text("0123456789", min_size=1, max_size=25)
sign = st.sampled_from(["", "", "+", "-"])
fraction = st.one_of(st.just(""), st.text("0123456789", max_size=30).map(lambda d: "." + d))
exponent = st.one_of(st.just(""), st.builds(lambda e, s, d: e + s + d, st.sampled_from("eE"), sign, digits))
small_exponent = st.integers(-330, 320).map(lambda e: f"e{e}")
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.builds(lambda s, d, f, e: s + d + f + e, sign, digits, fraction, st.one_of(exponent, small_exponent)),
    st.sampled_from(["nan", "-inf", "0x1", "1_0", "", ".", "1e", "+-1", "1e400", "9" * 330]),
    st.integers().map(str),
)
indices = st.one_of(
    st.integers(0, 30).map(str),
    st.integers(0, 2**64).map(str),
    st.sampled_from(["007", "-1", "+2", "", "1.5", "9223372036854775807", "2147483647", "2147483648"]),
)
items = st.builds(lambda j, v: f"{j}:{v}", indices, numbers)
blanks = st.sampled_from([" ", " ", " ", "  ", "\t"])


@st.composite
def text_lines(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):  # ascending features, so that more lines are sound
        places = sorted(draw(st.sets(st.integers(1, 2**40), max_size=6)))
        fields = [f"{j}:{draw(numbers)}" for j in places]
    else:
        fields = draw(st.lists(items, max_size=4))
    if draw(st.integers(0, 9)) == 0:
        fields.insert(draw(st.integers(0, 1)), "qid:3")
    fields.insert(0, draw(numbers))
    line = draw(st.sampled_from(["", "", " "])) + draw(blanks).join(fields)
    line += draw(st.sampled_from(["", "", " ", "# c", " # 1:2", "\r", " \r"]))
    raw = bytearray(line.encode())
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):  # and then something goes wrong
        if raw:
            place = draw(st.integers(0, len(raw) - 1))
            what = draw(st.integers(0, 2))
            byte = draw(st.sampled_from(b"0123456789:.eE+-# \t\r\v\0qidnax_,\xff\xc3"))
            if what == 0:
                raw[place] = byte
            elif what == 1:
                raw.insert(place, byte)
            else:
                del raw[place]
    return bytes(raw).replace(b"\n", b" ")


@settings(max_examples=500)
@given(lines=st.lists(text_lines(), min_size=1, max_size=3), float32=st.booleans(), zero_based=st.booleans())
@example(lines=[b"1 1:0.3 2:1e5"], float32=True, zero_based=False)
@example(lines=[b"1 1:" + b"1" * 20], float32=False, zero_based=False)
@example(lines=[b"9007199254740993 1:9007199254740992.99999999999"], float32=False, zero_based=False)
def test_kernel_equals_specification(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], float32: bool, zero_based: bool
) -> None:
    if lines[0].startswith(b"\xef\xbb\xbf"):
        return
    path = tmp_path_factory.getbasetemp() / "lines.svm"
    dtype = np.dtype(np.float32 if float32 else np.float64)
    assert_kernel_agrees(path, lines, dtype=dtype, zero_based=zero_based)


def read_values(path: Path, texts: list[str]) -> np.ndarray:
    path.write_text("".join(f"1 1:{text}\n" for text in texts))
    return np.concatenate([chunk.X.data for chunk in chunks_of(path)])


def assert_exact(path: Path, texts: list[str]) -> None:
    found, wanted = read_values(path, texts), np.array([float(text) for text in texts])
    wrong = np.flatnonzero(found.view(np.uint64) != wanted.view(np.uint64))
    assert [(texts[k], found[k], wanted[k]) for k in wrong[:5]] == []


def test_floats_are_bit_exact(tmp_path: Path) -> None:
    rng = random.Random(0)
    doubles = [struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0] for _ in range(20000)]
    doubles = [x for x in doubles if math.isfinite(x)]
    assert_exact(tmp_path / "a", [repr(x) for x in doubles])
    for form in ("%.16e", "%.17g", "%.18e", "%.19e", "%.25e", "%.40e", "%.10e", "%.5g"):
        texts = [form % x for x in doubles[:4000]]
        assert_exact(tmp_path / "a", [text for text in texts if math.isfinite(float(text))])
    small = [rng.randrange(10**k) for k in range(1, 22) for _ in range(300)]
    texts = [f"{w}e{rng.randint(-345, 280)}" for w in small]
    assert_exact(tmp_path / "a", [t for t in texts if math.isfinite(float(t))])
    assert_exact(tmp_path / "a", [f"{rng.uniform(0, 1e6):.{rng.randint(0, 20)}f}" for _ in range(5000)])


def test_halves_between_floats_go_to_even(tmp_path: Path) -> None:
    """Ties, and their neighbours a digit of the tail away, written out in full."""
    rng = random.Random(1)
    texts = []
    for _ in range(1500):
        x = math.ldexp(rng.getrandbits(53) | 1 << 52, rng.randint(-60, 40))
        above = math.nextafter(x, math.inf)
        scale = 200  # enough places for every binary fraction here
        half = (int(x * 2**110) + int(above * 2**110)) * 10**scale // 2**111
        body = str(half)
        head, tail = (body[:-scale] or "0"), body[-scale:].rjust(scale, "0")
        texts += [f"{head}.{tail}", f"{head}.{tail}1", f"{head}.{tail[:-1]}", f"{head}{tail}e-{scale}"]
    texts += [
        str(2**53 + 1),
        str(2**54 + 2),
        str(2**54 + 6),
        "9007199254740993e0",
        "5e-324",
        "2.4703282292062327e-324",
    ]
    texts += [
        "2.4703282292062328e-324",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "1.7976931348623157e308",
    ]
    texts += [
        "1.7976931348623158e308",
        "4.9406564584124654e-324",
        "0." + "0" * 323 + "3",
        "1e23",
        "8.5e22",
        "1e22",
    ]
    assert_exact(tmp_path / "a", texts)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 16, 61, 200, 5000])
def test_pieces_of_any_size_give_the_same_rows(tmp_path: Path, piece_bytes: int, suffix: str) -> None:
    rng = random.Random(2)
    lines = []
    for k in range(150):
        entries = " ".join(f"{j}:{rng.random():.5g}" for j in sorted(rng.sample(range(1, 99), rng.randint(0, 8))))
        lines.append(f"{k} {entries}{rng.choice(['', ' ', ' # note'])}{rng.choice(['', chr(13)])}")
        lines += [""] * rng.choice([0, 0, 2])
    content = ("\ufeff" + "\n".join(lines)).encode()
    path = text_file(tmp_path, PACK[suffix](content) if suffix else content, "a" + suffix)
    whole, parts = chunks_of(path), chunks_of(path, piece_bytes)
    for name in ("data", "indices"):
        assert np.array_equal(*(np.concatenate([getattr(c.X, name) for c in cs]) for cs in (whole, parts)))
    assert np.array_equal(*(np.concatenate([np.diff(c.X.indptr) for c in cs]) for cs in (whole, parts)))
    assert np.array_equal(*(np.concatenate([c.labels for c in cs]) for cs in (whole, parts)))
    bad = content + b"\n1 1:x\n"
    path.write_bytes(PACK[suffix](bad) if suffix else bad)
    with pytest.raises(DataError, match=f":{len(lines) + 1}: "):
        chunks_of(path, piece_bytes)
