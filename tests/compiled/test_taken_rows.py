"""Rows and values that are copied and looked at in one go, held against the checks that say what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.compiled.tables.taken_rows import take_values
from bigsvm.csr import CSR
from bigsvm.errors import DataError
from bigsvm.store.blocks import frozen
from bigsvm.store.checks import check_csr
from bigsvm.store.formats.tables.block_memory import _taken as taken_in
from tests.products import pairs_of

WIDTH = 12


def rows_of(lengths: list[int], data: str, stored: str) -> CSR:
    rng = np.random.default_rng(sum(lengths))
    columns = [np.sort(rng.permutation(WIDTH)[:n]) for n in lengths]
    indices = np.concatenate([np.zeros(0, np.int64), *columns]).astype(stored)
    return CSR((rng.random(len(indices)) * 9).astype(data), indices, np.concatenate([[0], np.cumsum(lengths)]))


def taken(X: CSR, to: str) -> bool:
    """Whether they were; then they are what was copied."""
    data, indices = np.zeros_like(X.data), np.zeros(len(X.indices), to)
    found = taken_in(X, WIDTH, data, indices)
    if found:
        np.testing.assert_array_equal(data, X.data)
        np.testing.assert_array_equal(indices, X.indices)
    return found


LENGTHS = [[3, 0, 0, 12, 1], [0, 0, 4], [5, 5, 0], [0], [1], [WIDTH] * 40]


NUMBERS = ["int32", "int64"]


@pairs_of(lengths=LENGTHS, data=["float32", "float64", "int8", "uint8"], stored=NUMBERS, to=NUMBERS)
def test_sound_rows_are_copied(lengths: list[int], data: str, stored: str, to: str) -> None:
    assert taken(rows_of(lengths, data, stored), to)


ENTRIES = [0, 1, 3, 7]


@pairs_of(
    what=["nan", "inf", "-inf", "negative", "beyond", "far beyond", "twice", "falls"], entry=ENTRIES,
    data=["float32", "float64"], stored=["int32", "int64"],
)  # fmt: skip
def test_every_row_that_is_refused_is_seen(what: str, entry: int, data: str, stored: str) -> None:
    """Whatever is wrong, wherever it is: in the first and the last entry of a row, and between."""
    X = rows_of([4, 0, 4], data, stored)
    X.indices[:] = np.tile([1, 4, 6, 9], 2)
    assert taken(X, "int32")
    last = entry % 4 == 3
    if what in ("nan", "inf", "-inf"):
        X.data[entry] = float(what)
    elif what == "far beyond" and stored == "int64":
        X.indices[entry] = 2**32 + X.indices[entry]  # which int32 would take for one that is there
    else:
        wrong = {"negative": -1, "beyond": WIDTH, "far beyond": 2**31 - 1}
        other = entry - 1 if last else entry + 1
        X.indices[entry] = wrong.get(what, X.indices[other] + (0 if what == "twice" else -1 if last else 1))
    assert not taken(X, "int32")
    if what == "falls":  # which is not refused, and is copied by another way
        check_csr(X, WIDTH, "t", 0)
    else:
        with pytest.raises(DataError):
            check_csr(X, WIDTH, "t", 0)


@pytest.mark.parametrize(
    "indptr", [[1, 4, 8], [0, 5, 4, 8], [0, 9, 8], [0, 4, 7], [0, 4, 9], [0, -3, 8], [0, 2**62, 8]]
)
def test_pointers_that_are_none_are_seen_before_anything_is_read_by_them(indptr: list[int]) -> None:
    X = rows_of([4, 4], "float32", "int32")
    assert taken(X, "int32")
    assert not taken(X._replace(indptr=np.array(indptr)), "int32")
    assert not taken(X._replace(indices=X.indices[:-1]), "int32")
    assert not taken_in(X, WIDTH, np.zeros(7, np.float32), np.zeros(8, np.int32))
    assert not taken_in(X, WIDTH, np.zeros(8, np.float64), np.zeros(8, np.int32))  # values of another size


@pytest.mark.parametrize("kind", ["float32", "float64", "int8", "uint8"])
@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_values_are_copied_and_those_that_are_not_finite_are_seen(kind: str, n: int) -> None:
    values = (np.random.default_rng(n).random(n) * 100).astype(kind)
    out = np.zeros_like(values)
    assert take_values(frozen(values), out)
    np.testing.assert_array_equal(out, values)
    for place in {0, n // 2, n - 1} if n and values.dtype.kind == "f" else ():
        for bad in (np.nan, np.inf, -np.inf):
            other = values.copy()
            other[place] = bad
            assert not take_values(frozen(other), out)
