"""The compiled reader of svmlight text agrees with its specification on every line that hypothesis can think of."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigsvm.errors import DataError
from bigsvm.store.text.svmlight import parse_line_strict
from tests.store.svmlight.text import chunks_of


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
