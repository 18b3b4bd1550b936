"""Kernel models: scores are scikit-learn's, memory is bounded however many support vectors."""

from __future__ import annotations

import dataclasses
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.compiled.shared.rows import CSR, take_rows
from bigsvm.errors import DataError
from bigsvm.model import kernel_scores as scoring
from bigsvm.model import support as supporting
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import load_model
from bigsvm.model.support import SupportPieces, support_blocks
from bigsvm.problem.kernel import Kernel
from tests.problem.svc_models import KERNELS, labels, rows, svc, svr, to_csr
from tests.products import each_of, on_request

D = 6


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("name", list(KERNELS))
def test_classes_are_scikit_learns(name: str, n_classes: int, layout: str) -> None:
    X, new = rows(), rows(40, seed=5)
    oracle, model = svc(X, labels(X, n_classes), KERNELS[name], D, layout)
    expected = oracle.decision_function(new)
    for given in (new, to_csr(new), sparse.csr_array(new)):
        np.testing.assert_allclose(model.decision_function(given), expected, rtol=1e-10, atol=1e-10)
    assert model.decision_function(new).shape == ((40,) if n_classes == 2 else (40, n_classes * (n_classes - 1) // 2))
    np.testing.assert_array_equal(model.predict(new), oracle.predict(new))
    assert len(set(model.predict(new).tolist())) == n_classes or name == "sigmoid"


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", list(KERNELS))
def test_values_are_scikit_learns(name: str, layout: str) -> None:
    X, new = rows(), rows(40, seed=5)
    oracle, model = svr(X, np.sin(X[:, 0]) + X[:, 1], KERNELS[name], D, layout)
    assert model.regression
    np.testing.assert_allclose(model.predict(new), oracle.predict(new), rtol=1e-10, atol=1e-10)


def test_precomputed_values_are_scikit_learns() -> None:
    X, new = rows(), rows(40, seed=5)
    K, given = KERNELS["rbf"].matrix(X, X), KERNELS["rbf"].matrix(new, X)
    oracle, model = svc(K, labels(X, 3), Kernel("precomputed"), len(X))
    np.testing.assert_allclose(model.decision_function(given), oracle.decision_function(given), rtol=1e-10)
    np.testing.assert_array_equal(model.decision_function(to_csr(given)), model.decision_function(given))
    with pytest.raises(DataError, match="39 features and the model 90"):
        model.decision_function(given[:, :39])


@pytest.mark.parametrize("support", ["dense", "csr"])
def test_the_same_bits_whatever_is_worked_on_at_one_time(support: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows alone or in tiles; support vectors one by one; features found in a table or by a search."""
    _, model = svc(rows(), labels(rows(), 3), KERNELS["rbf"], D, support)
    new = rows(40, seed=5)
    new[:, 3] = 0.0
    expected, of_sparse = model.scores(new), model.scores(to_csr(new))
    np.testing.assert_allclose(of_sparse, expected, rtol=1e-12, atol=1e-13)  # norms are summed in other lanes
    np.testing.assert_array_equal(np.concatenate([model.scores(new[i : i + 1]) for i in range(40)]), expected)
    monkeypatch.setattr(scoring, "_ROWS", 7)
    np.testing.assert_array_equal(model.scores(new), expected)
    monkeypatch.setattr(supporting, "LARGEST_BLOCK", 0)
    np.testing.assert_array_equal(model.scores(new), expected)
    np.testing.assert_array_equal(model.scores(to_csr(new)), of_sparse)
    monkeypatch.setattr(scoring, "TABLE", 0)
    np.testing.assert_array_equal(model.scores(to_csr(new)), of_sparse)


@each_of(
    block=[0, 1 << 20], support__dtype=[("dense", np.float32), ("csr", np.float32), *on_request(("csr", np.uint8))]
)
def test_narrow_sparse_rows_are_padded_and_others_refused(
    support: str, dtype: Any, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supporting, "LARGEST_BLOCK", block)
    rng = np.random.default_rng(1)
    dense = rng.integers(0, 4, (20, D)).astype(dtype)
    made = KernelModel(
        kernel=KERNELS["poly"], support=to_csr(dense) if support == "csr" else dense,
        support_rows=np.arange(20), dual_coef=rng.standard_normal((1, 20)), intercept=np.zeros(1),
        classes=np.array(["no", "yes"]), n_features=D,
    )  # fmt: skip
    new = rng.integers(0, 4, (9, 3)).astype(dtype)
    padded = np.hstack([new, np.zeros((9, 3), dtype)]).astype(np.float64)
    expected = KERNELS["poly"].matrix(padded, dense.astype(np.float64)) @ made.dual_coef[0]
    for given in (padded.astype(dtype), to_csr(new)):
        np.testing.assert_allclose(made.scores(given)[:, 0], expected, rtol=1e-12)
    with pytest.raises(DataError, match="3 features and the model 6"):
        made.scores(new)
    with pytest.raises(DataError, match="7 features and the model 6"):
        made.scores(np.zeros((1, 7)))
    with pytest.raises(DataError, match=r"row 1.*feature 6"):
        made.decision_function(sparse.csr_array(([1.0, 1.0], ([0, 1], [2, 6])), shape=(2, 7)))


@pytest.mark.parametrize("name", list(KERNELS))
def test_features_may_be_as_many_as_numbers(name: str) -> None:
    """Of a trillion features a few occur: scores are those of the same rows with these alone, norms with the others."""
    X, new, far = rows(), rows(40, seed=5), 10**12 * np.arange(1, D + 1) // D - 1
    coef = np.random.default_rng(1).standard_normal((3, 60))

    def made(support: CSR, n_features: int) -> KernelModel:
        codes = np.arange(3)
        return KernelModel(KERNELS[name], support, np.arange(60), coef, np.zeros(3), codes, n_features)

    def wide(given: CSR) -> CSR:
        return given._replace(indices=far[given.indices])

    some = X[:60].copy()
    some[:, 2] = 0.0  # a feature that rows have and support vectors have not
    for support in (to_csr(X[:60]), to_csr(some)):
        expected = made(support, D).scores(to_csr(new))
        np.testing.assert_array_equal(made(wide(support), 10**12).scores(wide(to_csr(new))), expected)
        np.testing.assert_allclose(made(support, D).scores(new), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("table", [0, 1 << 18])
def test_features_are_picked_by_their_number(table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of kernel values the columns of the support vectors, found in a table or by a search."""
    monkeypatch.setattr(scoring, "TABLE", table)
    X, features = rows(20), np.array([1, 2, 4])
    X[3, features] = 0.0
    found = scoring.with_features(to_csr(X), features)
    assert isinstance(found, CSR)
    dense = sparse.csr_array(tuple(found), shape=(20, 3)).toarray()
    np.testing.assert_array_equal(dense, X[:, features])
    np.testing.assert_array_equal(scoring.with_features(X, features), X[:, features])


def test_no_support_vectors_give_the_intercept(tmp_path: Path) -> None:
    for support in (np.empty((0, D)), CSR(np.empty(0), np.empty(0, np.int32), np.zeros(1, np.int64)), None):
        made = KernelModel(
            kernel=Kernel("precomputed" if support is None else "rbf"), support=support,
            support_rows=np.empty(0, np.int64), dual_coef=np.empty((1, 0)), intercept=np.array([2.5]),
            classes=np.empty(0), n_features=D,
        )  # fmt: skip
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        made.save(tmp_path / "m")
        back = load_model(tmp_path / "m")
        assert back.predict(np.ones((2, D))).tolist() == [2.5, 2.5]


def test_a_row_without_entries_among_sparse_ones() -> None:
    X = rows()
    X[7] = 0.0
    oracle, model = svc(X, labels(X, 2), KERNELS["rbf"], D, "csr")
    new = np.zeros((3, D))
    np.testing.assert_allclose(model.decision_function(to_csr(new)), oracle.decision_function(new), rtol=1e-10)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_memory_is_bounded_however_many_support_vectors(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 MB of support vectors are written, checked and summed over in a few MB, and those are what it says."""
    n, d, step = 60_000, 100, 2_000

    def pieces() -> Iterator[Any]:
        for start in range(0, n, step):
            dense = np.random.default_rng([1, start]).standard_normal((step, d)).astype(np.float32)
            yield dense if layout == "dense" else to_csr(dense)

    made = KernelModel(
        Kernel("rbf", 0.01), SupportPieces(layout, np.dtype(np.float32), pieces), np.arange(n),
        np.random.default_rng(2).standard_normal((1, n)), np.zeros(1), np.array([0, 1]), d,
    )  # fmt: skip
    X = np.random.default_rng(3).standard_normal((20, d))
    svc(rows(), labels(rows(), 2), KERNELS["rbf"], D)[1].scores(rows(2))  # compiled before anything is counted

    def peak(call: Callable[[], Any]) -> tuple[Any, int]:
        tracemalloc.start()
        try:
            found = call()
            return found, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    _, writing = peak(lambda: made.save(tmp_path / "m"))
    back, reading = peak(lambda: load_model(tmp_path / "m"))
    back.scores(X[:1])
    scores, summing = peak(lambda: back.scores(X))
    assert writing < 8 << 20
    assert reading < 8 << 20
    assert summing < back.scoring_bytes < 12 << 20
    some = take_rows(back.support, 0, 500)
    few = dataclasses.replace(back, support=some, support_rows=np.arange(500), dual_coef=back.dual_coef[:, :500].copy())
    first = np.asarray(some) if layout == "dense" else sparse.csr_array(tuple(map(np.array, some)), (500, d)).toarray()
    K = Kernel("rbf", 0.01).matrix(X, first.astype(np.float64))
    np.testing.assert_allclose(few.scores(X)[:, 0], K @ back.dual_coef[0, :500], rtol=1e-9, atol=1e-12)
    assert np.all(np.isfinite(scores))


def test_blocks_cover_every_support_vector_once_and_keep_to_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supporting, "LARGEST_BLOCK", 20_000)
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((300, 40)) < rng.random((300, 1)), 1.0, 0.0)
    for support in (dense, to_csr(dense)):
        seen, at = [], 0
        for first, last, block in support_blocks(support):
            assert first == at
            at = last
            rows_there = (
                block if isinstance(block, np.ndarray) else sparse.csr_array(block, (last - first, 40)).toarray()
            )
            seen.append(rows_there)
            if isinstance(block, np.ndarray):
                nbytes = 8 * 40 * (last - first)
            else:
                nbytes = max(16 * len(block.data), supporting.tile_bytes(len(np.unique(block.indices))))
            assert nbytes <= 20_000 or last - first == 1
        assert len(seen) > 3
        assert at == 300
        np.testing.assert_array_equal(np.concatenate(seen), dense)
