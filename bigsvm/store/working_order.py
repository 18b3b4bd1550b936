"""In which order a fit should meet rows and features: decided from a sample, the same for the same content.

The sample is SAMPLE_BLOCKS runs of neighbouring rows at even distances.  If the order of the rows is
independent of what is in them, then no number computed of a row differs between the runs by more than
chance: that is the null hypothesis of the test of Kruskal and Wallis (J. Amer. Stat. Assoc. 47 (1952),
583-621), H ~ chi-square.  Its normal approximation z is that of Wilson and Hilferty (PNAS 17 (1931), 684-688).

Features of a wide sparse store are renumbered by how often the sample has them, so that the entries of w
that every row touches lie together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.shared.sample import PROJECTIONS, count_features, row_statistics
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, frozen, readonly_view, tile

SAMPLE_BLOCKS, SAMPLE_ROWS = 32, 512
SORTED_Z = 5.0  # of about 40 tests on shuffled rows one exceeds this in one data set of 10^5
MANY_FEATURES = 16384  # 128 KiB of w: below, a core's cache holds all of it
_DENSE_VALUES = 1 << 22  # of one run of a wide dense store
_MOST_CLASSES = 32  # each tested for itself; where there are more, the code is
_EXPECTED = 5  # rows that differ from the most frequent value, per run: fewer are not chi-square


@dataclass(frozen=True)
class WorkingOrder:
    """What the sample says.

    shuffle : the rows are in an order that depends on what is in them
    feature_order : store feature of each working feature, dtype of the indices; None to keep the store's
    z : the largest z of the tests
    what : the number of a row that gave it
    """

    shuffle: bool
    feature_order: np.ndarray | None
    z: float
    what: str


def working_order(store: RowBlocks, piece_rows: int = SAMPLE_ROWS) -> WorkingOrder:
    """The order for the rows and features of `store`.

    Reads the sample, at most SAMPLE_BLOCKS x SAMPLE_ROWS rows, `piece_rows` at a time.  Holds 4 bytes a
    feature to count and up to 16 to sort them.  Raises DataError where rows cannot be read.
    """
    counts = _counts(store)
    numbers, runs = [], []
    for run, block in _sample(store, piece_rows):
        numbers.append(_numbers(block, store.n_features))
        runs.append(np.full(block.n_rows, run))
        if counts is not None and isinstance(block.X, CSR):
            count_features(frozen(block.X.indices), counts)
    z, what = _largest_z(numbers, np.concatenate(runs), store.classes)
    return WorkingOrder(z > SORTED_Z, None if counts is None else _by_count(counts, store.index_dtype), z, what)


def frequency_order(store: RowBlocks, piece_rows: int = SAMPLE_ROWS) -> np.ndarray | None:
    """`working_order(store).feature_order` alone: nothing is read where features keep their numbers."""
    counts = _counts(store)
    if counts is None:
        return None
    for _, block in _sample(store, piece_rows):
        assert isinstance(block.X, CSR)
        count_features(frozen(block.X.indices), counts)
    return _by_count(counts, store.index_dtype)


def inverse_order(order: np.ndarray) -> np.ndarray:
    """The working feature of each store feature, dtype of `order`."""
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=order.dtype)
    return rank


def sample_runs(n_samples: int, rows: int = SAMPLE_ROWS) -> list[tuple[int, int]]:
    """Half-open row ranges of the sample: all rows where there are few."""
    runs = min(SAMPLE_BLOCKS, n_samples)
    if n_samples <= runs * rows:
        edges = [n_samples * run // runs for run in range(runs + 1)]
        return list(itertools.pairwise(edges))
    starts = [(n_samples - rows) * run // (runs - 1) for run in range(runs)]
    return [(start, start + rows) for start in starts]


def rank_test_z(values: np.ndarray, runs: np.ndarray) -> float:
    """z of the test that `values` do not depend on `runs`; -inf where they hardly vary.

    values : float64, shape (n,)
    runs : int64, shape (n,), from 0 and ascending
    """
    n = len(values)
    _, which, ties = np.unique(values, return_inverse=True, return_counts=True)
    differing = n - int(ties.max())
    # Neighbouring runs become one until enough rows are expected in each: rare values come in clumps by chance.
    n_runs, merged = int(runs[-1]) + 1, 1
    while -(-n_runs // merged) > 1 and differing < _EXPECTED * -(-n_runs // merged):
        merged *= 2
    if -(-n_runs // merged) < 2 or differing == 0:
        return -np.inf
    group = runs // merged
    sizes = np.bincount(group).astype(float)
    rank = (np.cumsum(ties) - (ties - 1) / 2.0)[which]
    sums = np.bincount(group, rank)
    H = 12.0 / (n * (n + 1.0)) * float(np.sum(sums**2 / sizes)) - 3.0 * (n + 1.0)
    H /= 1.0 - float(np.sum(ties.astype(float) ** 3 - ties)) / (float(n) ** 3 - n)
    df = len(sizes) - 1
    spread = 2.0 / (9.0 * df)
    return float((np.cbrt(max(H, 0.0) / df) - (1.0 - spread)) / np.sqrt(spread))


def _sample(store: RowBlocks, piece_rows: int) -> Iterator[tuple[int, Block]]:
    """(run, rows) of the sample, in pieces."""
    rows = SAMPLE_ROWS
    if store.layout == "dense":
        rows = min(rows, max(_DENSE_VALUES // store.n_features, 16))
    release = store.release
    for run, (start, stop) in enumerate(sample_runs(store.n_samples, rows)):
        for a, b in tile(stop - start, max(piece_rows, 1)):
            ref = BlockRef(start + a, start + b, 0)
            yield run, store.read(ref)
            release(ref)


def _numbers(block: Block, n_features: int) -> np.ndarray:
    """Label, entries, squared norm and projections of each row, float64, shape (n_rows, 3 + PROJECTIONS)."""
    out = np.empty((block.n_rows, 3 + PROJECTIONS))
    out[:, 0] = block.y
    out[:, 1] = np.diff(block.X.indptr) if isinstance(block.X, CSR) else n_features
    statistics = np.empty((block.n_rows, 1 + PROJECTIONS))
    row_statistics(readonly_view(block.X), statistics)
    out[:, 2:] = statistics
    return out


def _largest_z(numbers: list[np.ndarray], runs: np.ndarray, classes: np.ndarray | None) -> tuple[float, str]:
    label, entries, *others = np.concatenate(numbers).T
    tests = [("entries", entries), ("norm", others[0])]
    tests += [(f"projection {p}", projection) for p, projection in enumerate(others[1:])]
    if classes is None or len(classes) > _MOST_CLASSES:
        tests.append(("label", label))
    else:
        tests += [(f"class {name}", (label == code).astype(float)) for code, name in enumerate(classes)]
    return max((rank_test_z(values, runs), what) for what, values in tests)


def _counts(store: RowBlocks) -> np.ndarray | None:
    """Counters of the features, all 0; None where they keep their numbers."""
    if store.layout != "csr" or store.n_features <= MANY_FEATURES:
        return None
    return np.zeros(store.n_features, np.int32)


def _by_count(counts: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """Features from the most to the least frequent, ties by number; None if that is the order they have."""
    seen = np.flatnonzero(counts)
    order = np.empty(len(counts), dtype)
    order[: len(seen)] = seen[np.argsort(-counts[seen], kind="stable")]
    order[len(seen) :] = np.flatnonzero(counts == 0)
    return None if np.all(order[1:] > order[:-1]) else order
