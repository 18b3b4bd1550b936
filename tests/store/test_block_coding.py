"""Blocks of a working copy in fewer bytes: every bit comes back, however a block is read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.events import silent
from bigsvm.run.copies.staging import staged
from bigsvm.run.execute.local import SerialMapper
from bigsvm.store.blocks import BlockGroup
from bigsvm.store.copy.block_coding import AS_THEY_ARE, coded_matrix, land_numbers, land_values, number_bits
from bigsvm.store.formats.array_rows import ArrayRows

LENGTHS = (0, 1, 2, 3, 7, 8, 9, 1023, 1024, 1025, 2049, 9001)  # about pieces, and about whole bytes of high bits
WIDTHS = {
    1: 0, 2**16: 0, 2**16 + 1: 1, 2**17: 1, 2**17 + 1: 2, 2**18: 2, 2**18 + 1: 4, 2**20: 4, 2**20 + 1: 8, 2**24: 8,
    2**24 + 1: AS_THEY_ARE, 2**31 - 1: AS_THEY_ARE,
}  # fmt: skip


def landed(landing: Any, arrays: list[np.ndarray]) -> None:
    for piece, array in zip(landing.pieces, arrays, strict=True):
        assert (piece.dtype, piece.shape) == (array.dtype, array.shape)
        piece[...] = array
    landing.decode()


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_feature_numbers_come_back(dtype: str) -> None:
    rng = np.random.default_rng(3)
    for (n_features, bits), n in product(WIDTHS.items(), LENGTHS):
        assert number_bits(n_features, np.dtype(dtype)) == bits
        numbers = rng.integers(0, n_features, n).astype(dtype)
        numbers[: n // 2] = n_features - 1
        X = CSR(np.zeros(n, np.float32), numbers, np.array([0, n]))
        arrays, n_values = coded_matrix(X, bits)
        arrays = arrays[1 : len(arrays) - 1 - (n_values > 0)]
        if bits != AS_THEY_ARE:
            assert sum(array.nbytes for array in arrays) == 2 * n + -(-n * bits // 8)
        out = np.empty(n, dtype)
        landed(land_numbers(out, bits), arrays)
        np.testing.assert_array_equal(out, numbers)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8"])
def test_values_come_back_to_the_last_bit(dtype: str) -> None:
    for n, different in product(LENGTHS, (1, 2, 256, 257)):
        values = (np.arange(n) % different).astype(dtype)
        if np.dtype(dtype).kind == "f":
            values[values == 1.0] = -0.0
        (*table, codes), n_values = coded_matrix(values.reshape(1, n), 0)
        assert n_values == (len(table[0]) if table else 0)
        if np.dtype(dtype).itemsize > 1 and n > 4 * 256:
            assert (codes.dtype == np.uint8) == (different <= 256)
        out = np.empty(n, dtype)
        landed(land_values(out, n_values), [*table, codes])
        assert out.tobytes() == values.tobytes()


def test_numbers_of_two_bytes_are_not_split() -> None:
    assert number_bits(500, np.dtype(np.uint16)) == AS_THEY_ARE


def rows_of(kind: str, dtype: str, few: np.ndarray, rng: np.random.Generator) -> Any:
    """Rows of two different values where `few`, of many elsewhere; all of about one norm, so that nobody sorts them."""
    n = len(few)
    width = 40 if kind == "dense" else {"narrow": 500, "wide": 1_000_000, "very wide": 2**24 + 5}[kind]
    if kind == "dense":
        X = rng.standard_normal((n, width)).astype(dtype)
        X[few] = rng.choice([-1.0, 1.0], (int(few.sum()), width))
        return X
    X = sparse.random_array((n, width), density=40 / width, format="csr", rng=rng).astype(dtype)
    X.data[:] = rng.standard_normal(X.nnz)
    entries = np.repeat(few, np.diff(X.indptr))
    X.data[entries] = rng.choice([-1.0, 1.0], int(entries.sum()))
    return CSR(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64)), width


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["dense", "narrow", "wide", "very wide"])
def test_a_copy_has_the_rows_of_its_store(kind: str, dtype: str, tmp_path: Path) -> None:
    n, block_rows = 300, 13
    rng = np.random.default_rng(1)
    given = rows_of(kind, dtype, np.arange(n) // block_rows % 2 == 0, rng)
    y = rng.integers(0, 2, n)
    store = ArrayRows(given, y) if kind == "dense" else ArrayRows(given[0], y, n_features=given[1])
    with staged(store, tmp_path, block_rows, 3 * block_rows, 10**6, None, SerialMapper(), silent) as copy:
        tables = {copy._entry(k).table > 0 for k in range(-(-n // block_rows))}
        assert tables == {True, False}
        assert not copy.meta.shuffled
        whole = copy.read(copy.refs(n)[0])
        order = copy.feature_order
        group = BlockGroup(tuple(copy.refs(block_rows)[k] for k in (20, 3, 22, 0)))
        buffers = copy.group_buffers(4)
        with ThreadPoolExecutor(2) as pool:
            block = copy.read_group(group, buffers, pool)
        numbers = np.concatenate([np.arange(ref.start, ref.stop) for ref in group.refs])
        for X, rows in ((whole.X, np.arange(n)), (block.X, numbers)):
            expected = store.read(store.refs(n)[0]).X
            if kind == "dense":
                assert X.tobytes() == expected[rows].tobytes()
                continue
            indices = X.indices if order is None else order[X.indices]
            shape = (len(rows), given[1])
            got = sparse.csr_array((X.data, indices, X.indptr), shape=shape)
            was = sparse.csr_array(tuple(expected), shape=(n, given[1]))[rows]
            for one, other in ((got.data, was.data), (got.indices, was.indices), (got.indptr, was.indptr)):
                np.testing.assert_array_equal(one, other)
