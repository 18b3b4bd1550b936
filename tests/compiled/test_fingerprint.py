"""The content hash: the same in every layout, different for every change, a sum over blocks."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.fingerprint import content_hash, first_bad_value
from bigsvm.compiled.shared.rows import take_rows
from bigsvm.store.blocks import frozen, readonly_view
from bigsvm.store.content import label_bits
from bigsvm.testing.problems import as_csr, full_csr, random_problem


def digest(X, labels=None, weights=None, first=0):
    n = len(X) if isinstance(X, np.ndarray) else len(X.indptr) - 1
    labels = np.arange(n, dtype=np.uint64) if labels is None else labels
    low, high = content_hash(readonly_view(X), labels, frozen(np.ones(n) if weights is None else weights), first)
    return int(low) + (int(high) << 64)


def test_layout_dtype_and_order_of_entries_do_not_matter() -> None:
    X = random_problem(20, 8, 0.5, seed=1)[0].astype(np.float32)
    csr = as_csr(X)
    reversed_rows = as_csr(X)
    for i in range(20):
        a, b = csr.indptr[i], csr.indptr[i + 1]
        reversed_rows.data[a:b] = csr.data[a:b][::-1]
        reversed_rows.indices[a:b] = csr.indices[a:b][::-1]
    same = {digest(m) for m in (X, X.astype(np.float64), csr, as_csr(X, np.int64), full_csr(X), reversed_rows)}
    assert len(same) == 1


def test_blocks_add_up() -> None:
    X = as_csr(random_problem(20, 8, 0.5, seed=2)[0])
    labels = np.arange(20, dtype=np.uint64)
    parts = [digest(take_rows(X, a, b), labels[a:b], first=a) for a, b in ((0, 7), (7, 8), (8, 20))]
    assert sum(parts) % (1 << 128) == digest(X)


def test_every_change_shows() -> None:
    X = random_problem(12, 5, seed=3)[0]
    labels, weights = np.arange(12, dtype=np.uint64), np.ones(12)
    seen = {digest(X)}
    for i in range(12):
        for j in range(5):
            changed = X.copy()
            changed[i, j] = np.nextafter(changed[i, j], np.inf)
            seen.add(digest(changed))
        other = labels.copy()
        other[i] ^= np.uint64(1 << (i % 64))
        seen.add(digest(X, other))
        heavier = weights.copy()
        heavier[i] = 2.0
        seen.add(digest(X, labels, heavier))
    seen.add(digest(X[::-1].copy()))
    seen.add(digest(X, first=1))
    swapped = X[:, [1, 0, 2, 3, 4]].copy()
    seen.add(digest(swapped))
    assert len(seen) == 1 + 12 * 5 + 12 + 12 + 3


def test_labels_that_are_equal_have_the_same_bits() -> None:
    assert label_bits(np.array([0.0])) == label_bits(np.array([-0.0])) == label_bits(np.array([0]))
    assert label_bits(np.array([1.0])) != label_bits(np.array([-1.0]))
    assert label_bits(np.array(["a", "b", "a"])).tolist() == label_bits(np.array(["a", "b", "a"], object)).tolist()


def test_first_bad_value() -> None:
    assert first_bad_value(np.array([1.0, np.inf, np.nan], np.float32)) == 1
    assert first_bad_value(np.ones(3)) == -1
