"""Blocks that are read one after another into the same memory: never while anybody has the one before."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.csr import CSR
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats import chunked
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables.block_memory import BlockMemory, GrowingRows

N, WIDTH = 60, 6
F32, F64, I32 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32)
DENSE = np.arange(1.0, N * WIDTH + 1).reshape(N, WIDTH)
LABELS = np.arange(N) % 2


def columns() -> pa.Table:
    return pa.table({"label": LABELS, **{f"f{j}": DENSE[:, j] for j in range(WIDTH)}})


def fixed() -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(DENSE.ravel()), WIDTH)
    return pa.table({"label": LABELS, "embedding": vectors})


def lists() -> pa.Table:
    offsets = pa.array(np.arange(N + 1, dtype=np.int32) * WIDTH)
    indices = pa.array(np.tile(np.arange(WIDTH, dtype=np.int32), N))
    parts = {"indices": indices, "values": pa.array(DENSE.ravel())}
    return pa.table({"label": LABELS, **{name: pa.ListArray.from_arrays(offsets, of) for name, of in parts.items()}})


def anndata(X: Any, path: str) -> None:
    """The rows as AnnData on Zarr, in chunks that end within blocks."""
    arrays, root = {"X": X}, zarr.create_group(path)
    if sp.issparse(X):
        kind = {"encoding-type": "csr_matrix", "shape": X.shape}
        arrays = {f"X/{name}": getattr(X, name) for name in ("data", "indices", "indptr")}
        root.create_group("X", attributes=kind)
    for name, values in {**arrays, "obs/label": LABELS}.items():
        root.create_array(name, data=values, chunks=(7, *values.shape[1:]))


FORMS: dict[str, tuple[str, Callable[[], Any], Callable[[Any, Any], object]]] = {
    "Parquet, columns": ("a.parquet", columns, lambda table, path: pq.write_table(table, path, row_group_size=7)),
    "Parquet, fixed": ("a.parquet", fixed, pq.write_table),
    "Parquet, lists": ("a.parquet", lists, lambda table, path: pq.write_table(table, path, row_group_size=7)),
    "Feather": ("a.feather", columns, pa.feather.write_feather),
    "CSV": ("a.csv", columns, pa.csv.write_csv),
    "Zarr, dense": ("a.zarr", lambda: DENSE, anndata),
    "Zarr, sparse": ("a.zarr", lambda: sp.csr_array(DENSE), anndata),
}


@pytest.fixture(params=FORMS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RowBlocks:
    monkeypatch.setattr(chunked, "_LARGE_BYTES", 0)
    name, table, write = FORMS[request.param]
    write(table(), str(tmp_path / name))
    return open_store(str(tmp_path / name))


def values_of(X: Any) -> np.ndarray:
    """The rows' own array, as it lies."""
    return X.data.reshape(-1, WIDTH) if isinstance(X, CSR) else X


KEPT: dict[str, Callable[[np.ndarray], Any]] = {
    "all": lambda values: values,
    "a row": lambda values: values[1],
    "a column": lambda values: values[:, 2],
    "bits": lambda values: values.view(np.uint64),
    "a buffer": memoryview,
    "Arrow": lambda values: pa.py_buffer(values),
}


@pytest.mark.parametrize("kept", KEPT)
def test_a_block_that_somebody_has_stays_as_it_is(store: RowBlocks, kept: str) -> None:
    """Whatever of it is left, and however many blocks of whatever sizes are read after it."""
    first = store.read(store.refs(10)[1])
    part = KEPT[kept](values_of(first.X))
    before = bytes(np.asarray(part).tobytes())
    del first
    for rows in (10, 7, 60, 10):
        for ref in store.refs(rows):
            block = store.read(ref)
            np.testing.assert_array_equal(values_of(block.X), DENSE[ref.start : ref.stop])
    store.forget()
    assert np.asarray(part).tobytes() == before


def test_threads_read_to_their_own_memory(store: RowBlocks) -> None:
    wrong: list[int] = []
    start = threading.Barrier(4)

    def read() -> None:
        start.wait()
        for _ in range(5):
            for ref in store.refs(10):
                if not np.array_equal(values_of(store.read(ref).X), DENSE[ref.start : ref.stop]):
                    wrong.append(ref.start)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_used_again_once_nobody_has_it() -> None:
    memory = BlockMemory()
    place = memory.array("a", (10, 4), F64).ctypes.data  # let go of at once
    again = memory.array("a", (5, 8), F64)
    assert again.ctypes.data == place
    assert memory.array("b", (10, 4), F64).ctypes.data != place
    assert memory.array("a", (10, 4), F64).ctypes.data != place, "somebody has it"
    del again


@pytest.mark.parametrize("n", [0, 1, 10, 11, 30])
def test_what_is_kept_is_no_larger_than_two_blocks(n: int) -> None:
    memory = BlockMemory()
    memory.array("a", (10,), F64)
    found = memory.array("a", (n,), F64)
    assert found.shape == (n,)
    base: Any = found
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert base.nbytes <= 2 * found.nbytes


def test_forgetting_lets_go_of_all() -> None:
    memory = BlockMemory()

    class Seen(np.ndarray): ...

    vars(memory._threads)["a"] = kept = np.empty(100, np.uint8).view(Seen)
    gone = weakref.ref(kept)
    del kept
    memory.forget()
    assert gone() is None


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("lengths", [[5] * 12, [1, 1, 40, 0, 90, 2], [50, 0, 0, 0, 0, 0], [0] * 6])
def test_sparse_rows_grow_beside_those_that_somebody_has(lengths: list[int], together: int) -> None:
    """Rows longer than was thought move to more memory; the matrix made before keeps its own."""
    memory, made = BlockMemory(), []
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    for number in range(4):
        growing = GrowingRows(len(lengths), 200, F32, I32, memory)
        for first in range(0, len(lengths), together):
            some = indptr[first : first + together + 1]
            entries = np.arange(some[0], some[-1])
            growing.add(
                CSR((entries + number).astype(np.float32), entries.astype(np.int32), some - some[0]), "t", first
            )
        made.append(growing.whole())
        if number == 2:
            del made[1]  # whose memory the next one has
            made.insert(1, None)
    for number, X in enumerate(made):
        if X is not None:
            np.testing.assert_array_equal(X.data, np.arange(indptr[-1], dtype=np.float32) + number)
            np.testing.assert_array_equal(X.indices, np.arange(indptr[-1]))
            np.testing.assert_array_equal(X.indptr, indptr)
