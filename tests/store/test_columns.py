"""Columns in memory and as a copy on disk: the transpose bit for bit, addresses, damage, bounded memory."""

from __future__ import annotations

import errno
import os
import pickle
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, MissingInput, OutputError
from bigsvm.events import silent
from bigsvm.run.copies.staging import staged
from bigsvm.run.execute.local import SerialMapper
from bigsvm.store import working_order
from bigsvm.store.blocks import BlockRef
from bigsvm.store.columns import column_spools
from bigsvm.store.columns import column_writer as columns_write
from bigsvm.store.columns.column_blocks import ColumnBlocks, ResidentColumns, StagedColumns
from bigsvm.store.columns.column_writer import copy_bytes, stage_columns
from bigsvm.store.formats.array_rows import ArrayRows

DTYPES = ["float32", "float64", "int8", "uint8"]
LAYOUTS = ["csr", "dense"]
N, D = 307, 83


def nothing(done: int) -> None:
    pass


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stripes of a few columns and buffers of a few entries: everything that large data do, small data do too."""
    monkeypatch.setattr(columns_write, "_STRIPE_BYTES", 2000)
    monkeypatch.setattr(column_spools, "_LEAST_BUFFER", 64)


def problem(dtype: str, n: int = N, d: int = D) -> np.ndarray:
    """A fifth non-zero, with empty rows and columns, at both ends too, and a column of ones."""
    rng = np.random.default_rng(n + d)
    X = rng.integers(1, 100, (n, d)) * (rng.random((n, d)) < 0.2)
    if n > 10:
        X[[0, 7, n - 1]] = 0
    if d > 10:
        X[:, [0, 1, 30, d - 1]] = 0
        X[:, 17] = 1
    return X.astype(dtype)


def rows(X: np.ndarray, layout: str) -> ArrayRows:
    return ArrayRows(sparse.csr_array(X) if layout == "csr" else X, np.arange(len(X)) % 2)


def resident(X: np.ndarray, layout: str) -> ResidentColumns:
    store = rows(X, layout)
    return ResidentColumns(store.read(BlockRef(0, len(X), 0)), X.shape[1])


def copied(X: np.ndarray, layout: str, folder: Path, memory: int = 3000) -> StagedColumns:
    folder.mkdir(exist_ok=True)
    stage_columns(rows(X, layout), folder, {}, memory, nothing)
    return StagedColumns(folder)


def check(columns: Any, X: np.ndarray, layout: str, block_bytes: int) -> None:
    """Blocks tile the columns, say their bytes, and are what SciPy has."""
    assert isinstance(columns, ColumnBlocks)
    assert (columns.n_samples, columns.n_features, columns.layout, columns.dtype) == (*X.shape, layout, X.dtype)
    refs = columns.refs(block_bytes)
    assert [ref.start for ref in refs] == [0, *(ref.stop for ref in refs)][:-1]
    assert refs[-1].stop == X.shape[1]
    assert sum(ref.nbytes for ref in refs) == columns.nbytes
    for k, ref in enumerate(refs):
        assert ref.axis == "cols"
        assert ref.nbytes <= block_bytes or ref.stop == ref.start + 1
        if k:  # as many as fit: the next column would not have
            assert BlockRef(refs[k - 1].start, ref.start + 1, 0).n_rows > refs[k - 1].n_rows
            assert refs[k - 1].nbytes + columns.size(ref.start, ref.start + 1) > block_bytes
        block = columns.read(ref)
        assert block.nbytes == ref.nbytes
        same(block, X, layout)
        columns.release(ref)


def same(block: Any, X: np.ndarray, layout: str) -> None:
    part = X[:, block.start : block.stop]
    if layout == "dense":
        assert block.X.flags.c_contiguous
        assert block.X.dtype == X.dtype
        np.testing.assert_array_equal(block.X, part.T)
        return
    expected = sparse.csr_array(part).tocsc()
    assert isinstance(block.X, CSR)
    assert (block.X.data.dtype, block.X.indices.dtype, block.X.indptr.dtype) == (X.dtype, np.int32, np.int64)
    assert block.X.data.tobytes() == expected.data.tobytes()
    np.testing.assert_array_equal(block.X.indices, expected.indices)
    np.testing.assert_array_equal(block.X.indptr, expected.indptr)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_are_the_transpose(small: None, tmp_path: Path, layout: str, dtype: str) -> None:
    X = problem(dtype)
    for memory in (100, 3000, 1 << 20):
        copy = copied(X, layout, tmp_path / "copy", memory)
        for block_bytes in (1, 5000, 1 << 30):
            check(copy, X, layout, block_bytes)
        copy.close()
        assert not list((tmp_path / "copy").glob("spool*"))
    for block_bytes in (1, 5000, 1 << 30):
        check(resident(X, layout), X, layout, block_bytes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (13, 300)])
def test_extreme_shapes(small: None, tmp_path: Path, layout: str, shape: tuple[int, int]) -> None:
    for X in (problem("float32", *shape), np.zeros(shape, np.float32), np.ones(shape, np.float32)):
        copy = copied(X, layout, tmp_path / "copy", 200)
        check(copy, X, layout, 100)
        check(resident(X, layout), X, layout, 100)
        copy.close()


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 60), d=st.integers(1, 60), density=st.sampled_from([0, 0.05, 0.5, 1]), seed=st.integers(0, 99),
    layout=st.sampled_from(LAYOUTS), memory=st.integers(50, 20_000), stripe=st.integers(1, 3000),
)  # fmt: skip
def test_any_shape_any_memory(
    tmp_path_factory: pytest.TempPathFactory, n: int, d: int, density: float, seed: int, layout: str, memory: int,
    stripe: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < density)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_write, "_STRIPE_BYTES", stripe)
        patch.setattr(column_spools, "_LEAST_BUFFER", 16)
        copy = copied(X, layout, tmp_path_factory.mktemp("columns"), memory)
        check(copy, X, layout, memory)
        copy.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_follow_the_working_order_of_the_rows(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(working_order, "MANY_FEATURES", 1000)
    rng = np.random.default_rng(5)
    n, d = 4000, 7000 if layout == "csr" else 20  # wide enough for features to be renumbered, rows sorted by label
    matrix = sparse.random_array((n, d), density=20 / d, rng=rng, dtype=np.float32, format="csr")
    X: Any = matrix if layout == "csr" else matrix.toarray()
    store = ArrayRows(X, np.arange(n) >= n // 2)
    with staged(store, tmp_path, 16, 160, 10**6, None, SerialMapper(), silent) as data:
        assert data.row_order is not None
        assert (data.feature_order is not None) == (layout == "csr")
        (tmp_path / "columns").mkdir()
        stage_columns(data, tmp_path / "columns", {}, 100_000, nothing)
        copy = StagedColumns(tmp_path / "columns")
        working = matrix.toarray()[data.row_order]
        if data.feature_order is not None:
            working = working[:, data.feature_order]
        for columns in (copy, ResidentColumns(data.read(BlockRef(0, n, 0)), d)):
            for ref in columns.refs(30_000):
                same(columns.read(ref), working, layout)
        copy.close()


def test_any_address(small: None, tmp_path: Path) -> None:
    X = problem("float32")
    copy = copied(X, "csr", tmp_path / "copy")
    for start in range(D):
        for stop in range(start + 1, D + 1, 7):
            same(copy.read(BlockRef(start, stop, 0, "cols")), X, "csr")
    refs = copy.refs(1000)
    assert refs[1:3] == [refs[1], refs[2]]
    assert refs[-1] == refs[len(refs) - 1]
    for wrong in (BlockRef(0, 1, 0), BlockRef(3, D + 1, 0, "cols"), BlockRef(4, 4, 0, "cols")):
        with pytest.raises(ValueError, match="no address"):
            copy.read(wrong)
    copy.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_threads_read_the_same_and_a_pickle_is_small(small: None, tmp_path: Path, layout: str) -> None:
    X = problem("float64")
    copy = copied(X, layout, tmp_path / "copy")
    content = pickle.dumps(copy)
    assert len(content) < 500
    again = pickle.loads(content)
    with ThreadPoolExecutor(4) as pool:
        for block in pool.map(again.read, list(copy.refs(3000)) * 4):
            same(block, X, layout)
    again.close()
    copy.close()


@pytest.mark.parametrize(("layout", "name"), [("csr", "rows.bin"), ("csr", "values.bin"), ("dense", "values.bin")])
def test_a_damaged_byte_is_found_wherever_it_is(small: None, tmp_path: Path, layout: str, name: str) -> None:
    X = problem("float32")
    copied(X, layout, tmp_path / "copy").close()
    path = tmp_path / "copy" / name
    content = path.read_bytes()
    for place in np.random.default_rng(1).integers(0, len(content), 30).tolist():
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        copy = StagedColumns(tmp_path / "copy")
        column = int(np.searchsorted(copy.first(np.arange(D + 1)) * 4, place, "right")) - 1
        with pytest.raises(DataError, match=f"{name}.* columns? .*digest"):
            copy.read(BlockRef(column, column + 1, 0, "cols"))
        copy.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_that_was_cut_off_is_refused(small: None, tmp_path: Path, layout: str) -> None:
    copy = copied(problem("float32"), layout, tmp_path / "copy")
    path = tmp_path / "copy" / "values.bin"
    os.truncate(path, path.stat().st_size - 5)
    with pytest.raises(DataError, match=r"values\.bin.* columns? .*the file ends there"):
        copy.read(copy.refs(1 << 30)[0])
    copy.close()
    with pytest.raises(DataError, match=r"values\.bin.*cut off"):
        StagedColumns(tmp_path / "copy")


@pytest.mark.parametrize("name", ["indptr.npy", "stripes.npy", "digests.npy", "columns.json", "rows.bin"])
def test_small_files_are_looked_at_when_a_copy_is_opened(small: None, tmp_path: Path, name: str) -> None:
    copied(problem("float32"), "csr", tmp_path / "copy").close()
    path = tmp_path / "copy" / name
    content = bytearray(path.read_bytes())
    if name != "rows.bin":
        content[-3] ^= 1
        path.write_bytes(content)
        with pytest.raises(DataError, match=name):
            StagedColumns(tmp_path / "copy")
    path.unlink()
    with pytest.raises(MissingInput if name == "columns.json" else DataError):
        StagedColumns(tmp_path / "copy")


@pytest.mark.parametrize("change", [lambda c: c[:-3], lambda c: bytes([c[0] ^ 1]) + c[1:], lambda c: b""])
def test_a_damaged_spool_is_found(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    drain = column_spools.Spool.drain

    def damaged(spool: column_spools.Spool) -> Any:
        if spool.entries:
            spool.path.write_bytes(change(spool.path.read_bytes()))
        return drain(spool)

    monkeypatch.setattr(column_spools.Spool, "drain", damaged)
    with pytest.raises(DataError, match="spool"):
        copied(problem("float32"), "csr", tmp_path / "copy")
    assert not list((tmp_path / "copy").glob("spool*"))
    with pytest.raises(MissingInput):
        StagedColumns(tmp_path / "copy")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_full_disk_is_an_output_error(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(column_spools, "_write_all", full)
    with pytest.raises(OutputError, match="No space left"):
        copied(problem("float32"), layout, tmp_path / "copy")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_progress_is_told_in_rows(small: None, tmp_path: Path, layout: str) -> None:
    told: list[int] = []
    stage_columns(rows(problem("float32"), layout), tmp_path, {}, 5000, told.append)
    assert told == sorted(told)
    assert told[-1] == N
    assert len(set(told)) > 5


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("constant", [False, True])
def test_memory_is_bounded(tmp_path: Path, layout: str, constant: bool) -> None:
    """40 MB through 4 MB; once with most of the entries in a single column that does not fit either."""
    n, d, rng = 1_000_000 if constant else 50_000, 1 if layout == "dense" else 3000, np.random.default_rng(3)
    X: Any
    if layout == "csr":
        per_row = 5 if constant else 100
        indices = np.sort(rng.integers(0, d // per_row, (n, per_row)) + np.arange(per_row) * (d // per_row))
        if constant:
            indices[:, 0] = 0
        entries = indices.size
        X = sparse.csr_array(
            (np.arange(entries, dtype=np.float32), indices.reshape(-1), np.arange(0, entries + 1, per_row)), (n, d)
        )
    else:
        X = rng.standard_normal((n * 10, 1) if constant else (n, 200), dtype=np.float32)
    store = ArrayRows(X, np.zeros(X.shape[0], np.int8))
    memory, peak_scratch = 4 << 20, 0

    def advanced(done: int) -> None:
        nonlocal peak_scratch
        peak_scratch = max(peak_scratch, sum(path.stat().st_size for path in tmp_path.iterdir()))

    stage_columns(rows(problem("float32"), layout), tmp_path, {}, memory, nothing)  # compile
    tracemalloc.start()
    stage_columns(store, tmp_path, {}, memory, advanced)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < memory + 500_000
    assert peak_scratch <= copy_bytes(store)
    copy = StagedColumns(tmp_path)
    expected = X.tocsc() if layout == "csr" else X.T
    for ref in copy.refs(1 << 20):
        found = copy.read(ref).X
        if isinstance(found, CSR):
            a, b = expected.indptr[ref.start], expected.indptr[ref.stop]
            np.testing.assert_array_equal(found.data, expected.data[a:b])
            np.testing.assert_array_equal(found.indices, expected.indices[a:b])
        else:
            np.testing.assert_array_equal(found, expected[ref.start : ref.stop])
    copy.close()
