"""Sizes and durations as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.errors import UsageError
from bigsvm.units import as_names, parse_bytes, parse_seconds, show_bytes, show_seconds


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("512MiB", 512 << 20),
        ("4GB", 4 * 10**9),
        ("4G", 4 << 30),
        ("1.5GiB", 3 << 29),
        ("1024", 1024),
        (" 64 kib ", 64 << 10),
        ("2TB", 2 * 10**12),
        ("7b", 7),
        (99, 99),
    ],
)
def test_sizes(text: str | int, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


def test_a_percentage_needs_a_total() -> None:
    assert parse_bytes("25%", total=1000) == 250
    with pytest.raises(UsageError, match="not a size"):
        parse_bytes("25%")
    with pytest.raises(UsageError, match="not a size"):
        parse_bytes("101%", total=1000)


@pytest.mark.parametrize("text", ["", "x", "4 XB", "-1GB", "1e9", "0", "0MiB", "4GB5", "٣GB", "nan", "inf"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text, total=1 << 40)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("3", 3), ("1.5h", 5400), ("2min", 120), (7, 7)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-3s", "5%"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError):
        parse_seconds(text)


@given(st.integers(0, 1 << 50))
def test_a_shown_size_reads_back_within_one_per_cent(nbytes: int) -> None:
    if nbytes:
        assert parse_bytes(show_bytes(nbytes)) == pytest.approx(nbytes, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.421, "0.42 s"), (12.34, "12.3 s"), (245, "4:05"), (7389, "2:03:09"), (9.999, "10.00 s")],
)
def test_shown_durations(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


@pytest.mark.parametrize(
    ("given", "names"),
    [("a", ("a",)), ("a, b*", ("a", "b*")), ('"a,b",c', ("a,b", "c")), (["a,b"], ("a,b",)), ((), ()), (("x",), ("x",))],
)
def test_names_are_a_list_or_text_with_commas(given: str | list[str], names: tuple[str, ...]) -> None:
    assert as_names(given) == names


@pytest.mark.parametrize("text", ["", "a,,b", "a,a", "a\nb"])
def test_text_that_lists_no_names_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a list of different names"):
        as_names(text)
