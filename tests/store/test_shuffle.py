"""The external shuffle: the same rows in the same order whatever the memory, and nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, OutputError
from bigsvm.events import silent
from bigsvm.run.copies.staging import staged
from bigsvm.run.execute.local import SerialMapper
from bigsvm.store import working_order
from bigsvm.store.blocks import Block, BlockRef
from bigsvm.store.copy import shuffle
from bigsvm.store.copy.permutation import write_inverse
from bigsvm.store.copy.shuffle import Sizes, shuffled_blocks
from bigsvm.store.copy.stage_write import prepared
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.contracts import dense
from bigsvm.units import MIB
from tests.full_disk import files_of_at_most

N, WIDTH = 1000, 40


def problem(layout: str, weights: bool = True, dtype: str = "float32", sort: bool = True) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    X = rng.integers(1, 100, (N, WIDTH)) * (rng.random((N, WIDTH)) < rng.random((N, 1)))
    y = rng.integers(0, 3, N)
    y = np.sort(y) if sort else y
    matrix = sparse.csr_array(X.astype(dtype)) if layout == "csr" else X.astype(dtype)
    return (matrix, y, rng.uniform(0, 2, N)) if weights else (matrix, y)


def copy_of(store: Any, scratch: Path, **changed: Any) -> Any:
    options: dict[str, Any] = {"block_rows": 30, "piece_rows": 60, "data_bytes": 10**6, "memory": 8 * MIB, **changed}
    return staged(store, scratch, scratch_limit=None, mapper=SerialMapper(), emit=silent, **options)


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_a_shuffled_copy_holds_the_same_rows(
    layout: str, weights: bool, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_order, "MANY_FEATURES", 10)
    given = problem(layout, weights, dtype)
    store = open_store(given)
    with copy_of(store, tmp_path) as copy:
        assert copy.meta.shuffled
        order = copy.row_order
        np.testing.assert_array_equal(np.sort(order), np.arange(N))
        np.testing.assert_array_equal(copy.working_row[order], np.arange(N))
        assert np.mean(np.abs(np.diff(order))) > N / 4
        whole, plain = copy.read(BlockRef(0, N, 0)), store.read(BlockRef(0, N, 0))
        X = dense(plain.X, WIDTH)[order]
        if layout == "csr":
            assert copy.feature_order is not None
            X = X[:, copy.feature_order]
        np.testing.assert_array_equal(dense(whole.X, WIDTH), X)
        np.testing.assert_array_equal(whole.y, plain.y[order])
        if weights:
            np.testing.assert_array_equal(whole.sample_weight, plain.sample_weight[order])
        np.testing.assert_array_equal(whole.sqnorm, np.sum(X.astype(float) ** 2, axis=1))
        assert copy.content_fingerprint == store.content_fingerprint
        assert not list(copy.folder.glob(".*"))


def blocks_of(store: Any, folder: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Block, Any]]:
    monkeypatch.setattr(Sizes, "of", classmethod(lambda cls, store, memory: sizes))
    told: list[int] = []
    blocks = list(shuffled_blocks(store, folder, lambda piece: prepared(piece, None), 30, 0, told.append))
    assert told[-1] == N
    assert not list(folder.iterdir())
    return blocks


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_memory_and_pieces_change_nothing(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(problem(layout))
    first = blocks_of(store, tmp_path, Sizes(N, 10**9), monkeypatch)
    assert [block.n_rows for block, _ in first] == [30] * 33 + [10]
    # The last ones: more buckets than one level has, and buckets smaller than a row.
    for sizes in (Sizes(100, 10**9), Sizes(7, 50_000), Sizes(13, 2000), Sizes(500, 100)):
        for (ours, rows), (theirs, other) in zip(blocks_of(store, tmp_path, sizes, monkeypatch), first, strict=True):
            assert (ours.start, ours.stop) == (theirs.start, theirs.stop)
            np.testing.assert_array_equal(rows, other)
            np.testing.assert_array_equal(ours.y, theirs.y)
            np.testing.assert_array_equal(ours.sqnorm, theirs.sqnorm)
            np.testing.assert_array_equal(ours.sample_weight, theirs.sample_weight)
            mine, reference = (b.X if isinstance(b.X, CSR) else (b.X,) for b in (ours, theirs))
            for a, b in zip(mine, reference, strict=True):
                np.testing.assert_array_equal(a, b)


def test_dividing_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    divided: list[int] = []
    plain = shuffle._Shuffle._divide

    def counted(self: Any, spool: Any, used: int, bits: int) -> Any:
        divided.append(used)
        return plain(self, spool, used, bits)

    monkeypatch.setattr(shuffle._Shuffle, "_divide", counted)
    blocks_of(open_store(problem("csr")), tmp_path, Sizes(500, 100), monkeypatch)
    assert min(divided) == 8


def test_the_order_is_one_of_the_shape_alone(tmp_path: Path) -> None:
    orders = []
    for name, layout, dtype in (("a", "csr", "float32"), ("b", "dense", "float64")):
        with copy_of(open_store(problem(layout, dtype=dtype)), tmp_path / name) as copy:
            orders.append(np.array(copy.row_order))
    np.testing.assert_array_equal(*orders)


def test_rows_in_a_good_order_stay(tmp_path: Path) -> None:
    with copy_of(open_store(problem("csr", sort=False)), tmp_path) as copy:
        assert not copy.meta.shuffled
        assert copy.row_order is None
        assert copy.working_row is None


def test_memory_is_divided_within_what_is_given() -> None:
    store = open_store(problem("dense"))
    for memory in (0, MIB, 100 * MIB, 10**12):
        sizes = Sizes.of(store, memory)
        assert 1 <= sizes.piece_rows <= N
        assert sizes.bucket_bytes <= max(memory, 2 * MIB) / 3


@pytest.mark.parametrize("limit", [3000, 20_000, 60_000])
def test_a_full_disk_is_an_output_error_and_leaves_nothing(limit: int, tmp_path: Path) -> None:
    store = open_store(problem("csr"))
    with files_of_at_most(limit), pytest.raises(OutputError, match="bytes needed"), copy_of(store, tmp_path):
        pass
    (folder,) = [path for path in (tmp_path / "bigsvm").iterdir() if path.is_dir()]
    assert not list(folder.glob(".*"))
    assert not (folder / "staged.json").exists()
    with copy_of(store, tmp_path) as copy:
        assert copy.read(BlockRef(0, N, 0)).n_rows == N


def test_a_failed_shuffle_is_done_again(tmp_path: Path) -> None:
    store = open_store(problem("csr"))
    plain = store.read

    def failing(ref: BlockRef) -> Block:
        if ref.n_rows > 100:  # not in the sample
            raise DataError("bad", "row 7")
        return plain(ref)

    store.read = failing  # type: ignore[method-assign]
    with pytest.raises(DataError, match="row 7"), copy_of(store, tmp_path):
        pass
    (folder,) = [path for path in (tmp_path / "bigsvm").iterdir() if path.is_dir()]
    assert not list(folder.glob(".*"))
    (folder / ".spool-0-000.tmp-1-abc").write_bytes(b"of a killed run")
    (folder / "segment-00007.bin").write_bytes(b"of a killed run")
    store.read = plain  # type: ignore[method-assign]
    with copy_of(store, tmp_path) as copy:
        assert copy.read(BlockRef(0, N, 0)).n_rows == N
    assert not list(folder.glob(".*"))
    assert not (folder / "segment-00007.bin").exists()


@pytest.mark.parametrize("memory", [1, 100, 3000, 10**9])
def test_an_inverse_in_any_memory(memory: int, tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(1000)
    write_inverse(order, tmp_path / "inverse.npy", memory)
    assert [path.name for path in tmp_path.iterdir()] == ["inverse.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "inverse.npy"), np.argsort(order))
