"""What every store format must hold, as a class of tests to inherit from.

A format's test says how rows become a store of that format; everything else is given:

    class TestMyRows(RowBlocksContract):
        def make(self, X, labels, weights, folder):
            return MyRows(write_my_format(X, labels, weights, folder))
"""

from __future__ import annotations

import pickle  # noqa: TID251  of our own objects, as a scheduler would
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.blocks import Block, RowBlocks
from bigsvm.store.formats.array_rows import ArrayRows

N_SAMPLES, N_FEATURES = 53, 11


def example(dtype: str = "float32", seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(X, labels): about a third non-zero, with an empty row, a full row and an empty column."""
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 100, (N_SAMPLES, N_FEATURES)) * (rng.random((N_SAMPLES, N_FEATURES)) < 0.35)
    X[3], X[7], X[:, 5] = 0, np.arange(1, N_FEATURES + 1), 0
    scale = 8.0 if np.dtype(dtype).kind == "f" else 1.0
    return (X / scale).astype(dtype), rng.choice([-1.0, 1.0, 4.0], N_SAMPLES)


def dense(X: np.ndarray | CSR, n_features: int) -> np.ndarray:
    """A block's matrix as a dense array."""
    if not isinstance(X, CSR):
        return X
    out = np.zeros((len(X.indptr) - 1, n_features), X.data.dtype)
    for i in range(len(out)):
        row = slice(X.indptr[i], X.indptr[i + 1])
        np.add.at(out[i], X.indices[row], X.data[row])
    return out


class RowBlocksContract:
    """Inherit, and define `make`."""

    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    """Types of X that the format can hold."""
    wide: ClassVar[tuple[str, ...]] = ("float64", "int32", "uint32", "int64", "uint64")
    """Those of them that `read` gives as float64: float32 would round them."""
    read_as: ClassVar[str] = "float32"
    """Type in which `read` gives X of float32."""
    small: ClassVar[tuple[str, ...]] = ("int8", "uint8", "bool")
    """Those that `read` gives in 8 bits: as they are, bool as uint8."""
    pickles_data: ClassVar[bool] = False
    """True for what lies in memory, whose pickle is as large as the data."""
    stores_zeros: ClassVar[bool] = False
    """True for a sparse store that keeps some zeros as entries."""
    names_given_rows: ClassVar[bool] = True
    """False for a store that keeps rows in an order of its own and names those."""

    def make(self, X: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, folder: Path) -> RowBlocks:
        """A store of this format with the rows given, made in the empty `folder`."""
        raise NotImplementedError

    @pytest.mark.parametrize("block_rows", [1, 7, N_SAMPLES, N_SAMPLES + 1])
    def test_blocks_tile_the_rows_and_hold_them(self, block_rows: int, tmp_path: Path) -> None:
        X, labels = example()
        weights = np.linspace(0, 2, N_SAMPLES)
        store = self.make(X, labels, weights, tmp_path)
        store.refuse_known()  # there is nothing to refuse
        refs = store.refs(block_rows)
        edges = [refs[0].start, *(ref.stop for ref in refs)]
        assert edges[0] == 0
        assert edges[-1] == N_SAMPLES == store.n_samples
        assert [ref.start for ref in refs] == edges[:-1]
        assert all(0 < ref.n_rows <= block_rows for ref in refs)
        blocks = [store.read(ref) for ref in refs]
        assert [(block.start, block.stop) for block in blocks] == [(ref.start, ref.stop) for ref in refs]
        np.testing.assert_array_equal(np.concatenate([dense(b.X, N_FEATURES) for b in blocks]), X)
        assert store.classes is not None
        np.testing.assert_array_equal(store.classes, [-1, 1, 4])
        np.testing.assert_array_equal(store.classes[np.concatenate([b.y for b in blocks])], labels)
        np.testing.assert_array_equal(np.concatenate([b.sample_weight for b in blocks]), weights)

    def test_says_what_it_is(self, tmp_path: Path) -> None:
        X, labels = example()
        store = self.make(X, labels, None, tmp_path)
        assert isinstance(store, RowBlocks)
        assert (store.n_samples, store.n_features) == X.shape
        if store.layout == "dense":
            assert store.nnz == X.size
        elif not self.stores_zeros:
            assert store.nnz in (np.count_nonzero(X), None)
        assert store.dtype == np.dtype(self.read_as)
        assert store.index_dtype == np.int32
        assert not store.has_weights
        block = store.read(store.refs(7)[1])
        assert block.sample_weight is None
        assert isinstance(block.X, CSR) == (store.layout == "csr")
        if isinstance(block.X, CSR):
            assert (block.X.data.dtype, block.X.indices.dtype) == (store.dtype, store.index_dtype)
            assert block.X.indptr[0] == 0
            assert block.X.indptr.dtype == np.int64
        else:
            assert block.X.dtype == store.dtype
            assert block.X.flags.c_contiguous

    def test_any_address_any_number_of_times(self, tmp_path: Path) -> None:
        X, labels = example()
        store = self.make(X, labels, None, tmp_path)
        refs = [*store.refs(7), *store.refs(10)]
        order = np.random.default_rng(1).permutation(np.repeat(np.arange(len(refs)), 3))
        for i in order:
            _holds(store.read(refs[i]), X)

    def test_threads_read_the_same(self, tmp_path: Path) -> None:
        X, labels = example()
        store = self.make(X, labels, None, tmp_path)
        refs = list(store.refs(3)) * 4
        with ThreadPoolExecutor(4) as pool:
            for block in pool.map(store.read, refs):
                _holds(block, X)

    def test_pickles_into_something_small(self, tmp_path: Path) -> None:
        X, labels = example()
        store = self.make(X, labels, None, tmp_path)
        content = pickle.dumps(store)
        assert self.pickles_data or len(content) < 1000
        again = pickle.loads(content)
        assert (again.fingerprint, again.identity) == (store.fingerprint, store.identity)
        _holds(again.read(again.refs(7)[2]), X)

    def test_number_types(self, tmp_path: Path) -> None:
        """X as it was, in a type that holds it; the content's fingerprint is of the numbers, whatever their type."""
        for dtype in self.dtypes:
            X, labels = example(dtype)
            folder = tmp_path / dtype
            folder.mkdir()
            store = self.make(X, labels, None, folder)
            kept = "uint8" if dtype == "bool" else dtype
            assert store.dtype == (np.float64 if dtype in self.wide else kept if dtype in self.small else np.float32)
            block = store.read(store.refs(N_SAMPLES)[0])
            assert (block.X.data.dtype if isinstance(block.X, CSR) else block.X.dtype) == store.dtype
            np.testing.assert_array_equal(dense(block.X, N_FEATURES), X.astype(store.dtype))
            numbers = ArrayRows(X.astype(np.float64), labels)
            assert store.content_fingerprint in (None, numbers.content_fingerprint)

    def test_fingerprint_changes_with_any_value(self, tmp_path: Path) -> None:
        def fingerprint(name: str, X: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> str:
            folder = tmp_path / name
            folder.mkdir()
            return self.make(X, labels, weights, folder).fingerprint

        X, labels = example()
        weights = np.ones(N_SAMPLES)
        seen = {fingerprint("same", X, labels, weights)}
        for row in (0, N_SAMPLES - 1):
            other = X.copy()
            other[row, 2] += 1
            seen.add(fingerprint(f"value{row}", other, labels, weights))
            other = labels.copy()
            other[row] = 1.0 if labels[row] != 1.0 else 4.0
            seen.add(fingerprint(f"label{row}", X, other, weights))
            other = weights.copy()
            other[row] = 0.5
            seen.add(fingerprint(f"weight{row}", X, labels, other))
        assert len(seen) == 7

    def test_identity_says_whose_rows_these_are_and_what_was_selected(self, tmp_path: Path) -> None:
        X, labels = example()
        identities = []
        for name, weights in (("plain", None), ("weighted", np.ones(N_SAMPLES))):
            folder = tmp_path / name
            folder.mkdir()
            store = self.make(X, labels, weights, folder)
            assert store.identity.store == store.fingerprint
            selection = dict(store.identity.selection)
            assert {"matrix", "label", "weight", "task"} <= set(selection)
            assert bool(selection["weight"]) == store.has_weights
            identities.append(store.identity)
        assert identities[0].digest != identities[1].digest

    def test_content_fingerprint_is_that_of_the_rows(self, tmp_path: Path) -> None:
        X, labels = example()
        weights = np.linspace(0, 2, N_SAMPLES)
        store = self.make(X, labels, weights, tmp_path)
        assert store.content_fingerprint in (None, ArrayRows(X, labels, weights).content_fingerprint)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_what_is_not_finite_is_refused_with_its_row(self, value: float, tmp_path: Path) -> None:
        X, labels = example()
        X[17, 4] = value
        with pytest.raises(DataError, match="row 17 " if self.names_given_rows else "row"):
            _read_all(self.make(X, labels, None, tmp_path))

    def test_a_negative_weight_is_refused_with_its_row(self, tmp_path: Path) -> None:
        X, labels = example()
        weights = np.ones(N_SAMPLES)
        weights[20] = -1
        with pytest.raises(DataError, match="row 20 " if self.names_given_rows else "row"):
            _read_all(self.make(X, labels, weights, tmp_path))


def _holds(block: Block, X: np.ndarray) -> None:
    np.testing.assert_array_equal(dense(block.X, N_FEATURES), X[block.start : block.stop])


def _read_all(store: RowBlocks) -> None:
    for ref in store.refs(10):
        store.read(ref)
