"""Whole numbers beyond 2^24 and 2^53: labels and values are kept exactly, or refused with their row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.errors import DataError
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.labels import label_bits, listed_classes
from bigsvm.store.text.dump import dump
from tests.store import formats
from tests.store.small_rows import (
    LABELS,
    SMALL,
    N,
    arrays,
    categorical_zarr,
    dumped,
    labels_of,
    npz,
    parquet,
    parquet_ingested,
    plain_zarr,
    rows_of,
    text,
)

# ---- labels beyond 2^53 ------------------------------------------------------------------------------------

BIG = {
    "int64": np.array([-(2**53) - 1, 5, 2**53, 2**53 + 1, 2**63 - 1]),
    "uint64": np.array([5, 2**53 + 1, 2**64 - 1025, 2**64 - 1], np.uint64),
}

LABELLED = [arrays, plain_zarr, categorical_zarr, parquet, npz, text, parquet_ingested, dumped]


@pytest.mark.parametrize("kind", BIG)
@pytest.mark.parametrize("make", LABELLED)
def test_labels_beyond_2_53_are_kept(make: Any, kind: str, tmp_path: Path) -> None:
    labels = BIG[kind][np.arange(N) % len(BIG[kind])]
    store = make(SMALL, labels, tmp_path)
    assert store.classes.dtype == kind
    assert store.classes.tolist() == BIG[kind].tolist()
    assert labels_of(store) == labels.tolist()
    if store.content_fingerprint is not None:
        assert store.content_fingerprint == ArrayRows(SMALL, labels).content_fingerprint
    assert listed_classes(store.classes.tolist()).tolist() == BIG[kind].tolist()


@pytest.mark.parametrize("make", [arrays, plain_zarr, parquet])
def test_large_labels_that_are_no_classes_are_refused_as_targets(make: Any, tmp_path: Path) -> None:
    labels = np.arange(N) + 2**53
    store = make(SMALL, labels, tmp_path)
    source = (SMALL, labels) if make is arrays else store.uri
    with pytest.raises(DataError, match="row 1 is beyond 2"):
        rows_of(open_store(source, task="regression"))


def test_one_label_has_one_hash_in_every_type() -> None:
    for number in (0, -3, 2**53, 2**60):
        assert len({int(label_bits(np.array([number], t))[0]) for t in (np.float64, np.int64)}) == 1
    ids = np.array([2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1])
    assert len(set(label_bits(ids).tolist())) == 4
    np.testing.assert_array_equal(label_bits(ids), label_bits(ids.astype(np.uint64)))


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["1", "9007199254740993", "0.5"], 2),
        (["1", "-9007199254740993", "18446744073709551615"], 2),
        (["1", "2", "36893488147419103233"], 3),
    ],
)
def test_text_labels_that_no_type_holds_are_refused_with_their_line(
    lines: list[str], line: int, tmp_path: Path
) -> None:
    (tmp_path / "a.svm").write_text("\n".join(f"{label} 1:1" for label in lines) + "\n")
    with pytest.raises(DataError, match=rf"a\.svm:{line}: float64 cannot hold"):
        ingest(tmp_path / "a.svm", tmp_path / "a.zarr")


def test_pieces_of_text_agree_on_a_type(tmp_path: Path) -> None:
    """Small labels come as float64 and large ones as int64, whichever come first."""
    for order in (1, -1):
        labels = [1, 2, 2**53 + 1][::order]
        files = []
        for number, label in enumerate(labels):
            files.append(tmp_path / f"{order}-{number}.svm")
            files[-1].write_text(f"{label} 1:1\n")
        ingest(files, tmp_path / f"{order}.zarr")
        assert open_store(tmp_path / f"{order}.zarr").classes.tolist() == sorted(labels)
    (tmp_path / "half.svm").write_text("0.5 1:1\n")
    with pytest.raises(DataError, match="mix whole numbers beyond"):
        ingest([files[0], tmp_path / "half.svm"], tmp_path / "mixed.zarr")


@pytest.mark.parametrize("make", [arrays, plain_zarr, categorical_zarr, parquet, npz, parquet_ingested])
def test_truth_values_stay_what_they_are(make: Any, tmp_path: Path) -> None:
    store = make(SMALL, LABELS > 0, tmp_path)
    assert store.classes.dtype == bool
    assert labels_of(store) == (LABELS > 0).tolist()
    dump(store, tmp_path / "t.svm")
    assert {line.split()[0] for line in (tmp_path / "t.svm").read_text().splitlines()} == {"0", "1"}


# ---- values that would be rounded, or are not there --------------------------------------------------------


def sparse_arrays(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return ArrayRows(sp.csr_array(X), labels)


def sparse_zarr(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.foreign(folder / "s.zarr", X, labels))


def lists(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.parquet(folder / "s.parquet", X, labels))


def fixed(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.parquet(folder / "s.parquet", X, labels, layout="fixed"))


def vectors(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.parquet(folder / "s.parquet", X, labels, layout="spark"))


VALUES = [arrays, sparse_arrays, plain_zarr, sparse_zarr, parquet, lists, fixed, vectors, npz, parquet_ingested]


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("make", VALUES)
def test_whole_numbers_beyond_2_24_are_kept(make: Any, dtype: str, tmp_path: Path) -> None:
    X = (np.arange(N * 3).reshape(N, 3) + 2**24).astype(dtype)
    if dtype.endswith("64"):
        X[5, 1] = 2**53
    store = make(X, LABELS, tmp_path)
    assert store.dtype == np.float64
    np.testing.assert_array_equal(rows_of(store), X)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1])
@pytest.mark.parametrize("make", VALUES)
def test_whole_numbers_that_float64_rounds_are_refused_with_their_row(make: Any, value: int, tmp_path: Path) -> None:
    X = np.arange(N * 3).reshape(N, 3)
    X[19, 1] = value
    if make in (sparse_arrays, sparse_zarr, lists):  # whose makers go through float64: the next even number
        X[19, 1] += 1 if value > 0 else -1
    with pytest.raises(DataError, match=r"row 19 holds -?\d+, beyond 2\^53"):
        rows_of(make(X, LABELS, tmp_path))


@pytest.mark.parametrize("take", ["open", "ingest", "predict"])
@pytest.mark.parametrize("column", ["int64", "uint64"])
def test_whole_numbers_beside_real_ones_in_a_frame_are_refused(column: str, take: str, tmp_path: Path) -> None:
    """NumPy makes real numbers of all columns."""
    pd = pytest.importorskip("pandas")
    whole = np.arange(N)
    frame = pd.DataFrame({"a": pd.array(whole, dtype=column), "b": np.arange(N) / 3})
    calls: dict[str, Any] = {
        "open": lambda: open_store((frame, LABELS)),
        "ingest": lambda: ingest((frame, LABELS), tmp_path / "rows.zarr"),
        "predict": lambda: model.predict(frame),
    }
    model = bigsvm.fit(frame, LABELS, tol=0.1).model if take == "predict" else None
    whole[19] = 2**53 + 1
    frame["a"] = pd.array(whole, dtype=column)
    with pytest.raises(DataError, match=r"column 'a': row 19 holds 9007199254740993, beyond 2\^53"):
        calls[take]()


def test_big_endian_numbers_keep_their_precision() -> None:
    X = np.linspace(0, 1, N * 3).reshape(N, 3)
    assert ArrayRows(X.astype(">f8"), LABELS).dtype == np.float64
    np.testing.assert_array_equal(rows_of(ArrayRows(X.astype(">f8"), LABELS)), X)
