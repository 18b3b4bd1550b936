"""Coded rows: the same bits in fewer bytes."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.compiled.shared.coded import CodedRows, decode, encode, picked
from bigsvm.csr import CSR
from bigsvm.solvers.gathered import picked_rows
from bigsvm.testing.problems import as_csr

ODD = (0.0, -0.0, 1e-45, -1e-45, np.float32(1) / np.float32(3), 3.4e38, -1.0, 255.0)  # signs of zero, subnormal numbers


def bits(array: np.ndarray) -> bytes:
    return array.tobytes()


def same(one: np.ndarray | CSR, other: np.ndarray | CSR) -> bool:
    """To the last bit, and in the same types."""
    pairs = zip(one, other, strict=True) if isinstance(one, CSR) else [(one, other)]
    return all(a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b) for a, b in pairs)


def rows(layout: str, dtype: str, few: bool) -> np.ndarray | CSR:
    rng = np.random.default_rng(4)
    X = rng.choice(np.array(ODD), (90, 40)) if few else rng.standard_normal((90, 40))
    X = (100 * X).clip(-100, 100) if np.dtype(dtype).kind != "f" else X
    X = np.abs(X) if dtype == "uint8" else X
    X = np.where(rng.random(X.shape) < 0.4, X, 0).astype(dtype)
    return as_csr(X)._replace(data=as_csr(X).data.astype(dtype)) if layout == "csr" else X


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int8"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_rows_come_back_to_the_last_bit(layout: str, dtype: str, few: bool) -> None:
    X = rows(layout, dtype, few)
    coded = encode(X)
    if not isinstance(coded, CodedRows):
        assert layout == "dense"
        assert not few or np.dtype(dtype).itemsize == 1
        assert same(coded, X)
        return
    numbers = np.array([3, 4, 89, 0, 17])
    assert same(decode(coded, 0, 90), X)
    assert same(decode(picked(coded, numbers), 0, 5), picked_rows(X, numbers))
    assert same(decode(coded, 20, 33), picked_rows(X, np.arange(20, 33)))
    assert same(decode(picked(coded, numbers[:0]), 0, 0), picked_rows(X, numbers[:0]))
    plain = sum(a.nbytes for a in X) if isinstance(X, CSR) else X.nbytes
    assert coded.nbytes < plain + 8 * 91 * (layout == "dense")


def test_an_entry_of_few_values_takes_three_bytes() -> None:
    X = rows("csr", "float32", True)
    coded = encode(X)
    assert coded.codes.nbytes + coded.indices.nbytes == 3 * len(X.data)


@pytest.mark.parametrize(("different", "fits"), [(256, True), (257, False)])
def test_a_table_holds_256_values(different: int, fits: bool) -> None:
    values = np.tile(np.arange(different, dtype=np.float64), 8)
    X = CSR(values, np.zeros(len(values), np.int32), np.array([0, len(values)]))
    coded = encode(X)
    assert len(coded.table) == (256 if fits else 0)
    assert same(decode(coded, 0, 1), X)


def test_large_feature_numbers_stay_as_they_are() -> None:
    X = CSR(np.ones(3, np.float32), np.array([5, 65_535, 65_536], np.int32), np.array([0, 2, 3]))
    coded = encode(X)
    assert coded.indices.dtype == np.int32
    assert same(decode(coded, 0, 2), X)
