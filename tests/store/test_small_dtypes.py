"""Values of 8 bits stay 8 bits in stores and working copies, and mean the same as in float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.events import silent
from bigsvm.run.copies.staging import staged
from bigsvm.run.execute.mapper import SerialMapper
from bigsvm.store.content import ColumnScales
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from bigsvm.store.text.dump import dump
from bigsvm.testing.contracts import dense

N, D = 211, 13


def numbers(dtype: str) -> np.ndarray:
    """Every extreme of the dtype, and about a half zeros."""
    rng = np.random.default_rng(5)
    low, high = {"bool": (0, 1), "int8": (-128, 127), "uint8": (0, 255)}[dtype]
    X = rng.integers(low, high + 1, (N, D)) * (rng.random((N, D)) < 0.5)
    X[0, :2], X[-1, -1] = (low, high), high
    return X.astype(dtype)


LABELS = np.random.default_rng(6).choice([-1.0, 1.0], N)


def rows_of(X: np.ndarray, layout: str) -> object:
    return sp.csr_array(X) if layout == "csr" else X


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_the_content_is_that_of_the_same_numbers_in_float(tmp_path: Path, dtype: str, layout: str) -> None:
    X = numbers(dtype)
    kept = "uint8" if dtype == "bool" else dtype
    prints = set()
    for name, stored in (("asis", kept), ("float32", "float32"), ("float64", "float64")):
        wanted = None if name == "asis" else name
        prints.add(ingest((rows_of(X, layout), LABELS), tmp_path / name, dtype=wanted)["content_fingerprint"])
        store = open_store(tmp_path / name)
        assert store.dtype == stored
        block = store.read(store.refs(N)[0])
        np.testing.assert_array_equal(dense(block.X, D), X.astype(np.float64))
        prints.add(ArrayRows(rows_of(X.astype(stored), layout), LABELS).content_fingerprint)
    assert len(prints) == 1


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_working_copy_has_a_byte_a_value(tmp_path: Path, layout: str, ordered: bool) -> None:
    X = numbers("int8")
    if ordered:  # sorted rows go through the shuffle
        X, labels = np.repeat(X[:8], 100, axis=0), np.repeat([-1.0, 1.0], 400)
    else:
        labels = LABELS
    held, copies = {}, {}
    for dtype in ("int8", "float32"):
        store = open_store((rows_of(X.astype(dtype), layout), labels))
        with staged(store, tmp_path / dtype, 32, 64, 1 << 20, None, SerialMapper(), silent) as copy:
            assert copy.dtype == dtype
            assert copy.meta.shuffled == ordered
            blocks = [copy.read(ref) for ref in copy.refs(32)]
            held[dtype] = sum((b.X.data if isinstance(b.X, CSR) else b.X).nbytes for b in blocks)
            copies[dtype] = np.concatenate([dense(b.X, D) for b in blocks]).astype(float)
            sqnorms = np.concatenate([b.sqnorm for b in blocks])
            np.testing.assert_array_equal(sqnorms, np.sum(copies[dtype] ** 2, axis=1))
    assert held["float32"] == 4 * held["int8"]
    np.testing.assert_array_equal(copies["int8"], copies["float32"])


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_bool_files_become_uint8(tmp_path: Path, kind: str) -> None:
    X = numbers("bool")
    np.save(tmp_path / "y.npy", LABELS)
    if kind == "npy":
        np.save(tmp_path / "X.npy", X)
    else:
        sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(X))
    ingest(tmp_path / f"X.{kind}", tmp_path / "s", label=str(tmp_path / "y.npy"))
    store = open_store(tmp_path / "s")
    assert store.dtype == np.uint8
    np.testing.assert_array_equal(dense(store.read(store.refs(N)[0]).X, D), X)
    again = ingest(tmp_path / "s", tmp_path / "again")
    assert open_store(tmp_path / "again").dtype == np.uint8
    assert again["content_fingerprint"] == store.content_fingerprint


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_dump_and_ingest_give_the_same_content(tmp_path: Path, dtype: str, layout: str) -> None:
    first = ingest((rows_of(numbers(dtype), layout), LABELS), tmp_path / "a")
    dump(open_store(tmp_path / "a"), tmp_path / "a.svm")
    second = ingest(tmp_path / "a.svm", tmp_path / "b")
    assert second["content_fingerprint"] == first["content_fingerprint"]
    assert open_store(tmp_path / "b").dtype == np.float32
    extremes = (b":-128", b":127") if dtype == "int8" else (b":255",)
    assert all(text in (tmp_path / "a.svm").read_bytes() for text in extremes)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_column_scales_do_not_wrap(dtype: str, layout: str) -> None:
    X = numbers(dtype)
    X[:, 0] = 0
    X[3, 0] = -128 if dtype == "int8" else 255
    summaries = []
    for values in (X, X.astype(np.float64)):
        scales = ColumnScales()
        matrix = sp.csr_array(values)
        scales.add(values if layout == "dense" else CSR(matrix.data, matrix.indices, matrix.indptr))
        summaries.append(scales.summary())
    assert summaries[0] == summaries[1]
    assert summaries[0]["max"] == (128 if dtype == "int8" else 255)


@pytest.mark.parametrize("bad", [256.0, -1.0, 0.5, np.nan, np.inf])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_what_8_bits_cannot_hold_is_refused_with_its_row(tmp_path: Path, bad: float, layout: str) -> None:
    X = numbers("uint8").astype(np.float64)
    X[17, 4] = bad
    matrix = sp.csr_array(X)
    with ZarrWriter(tmp_path / "s", layout=layout, dtype="uint8", n_features=D) as writer:  # type: ignore[arg-type]
        part = X if layout == "dense" else CSR(matrix.data, matrix.indices, matrix.indptr)
        with pytest.raises(DataError, match="row 17 holds"):
            writer.append(part, LABELS)
