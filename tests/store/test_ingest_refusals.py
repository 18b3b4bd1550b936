"""What ingest refuses, by its row or its name; nothing half-made is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import BigSVMError, DataError, MissingInput, OutputError, PlanRefused, UsageError
from bigsvm.store.ingest.ingest import ingest
from tests.store.ingested import DENSE, D, N, X, write_text, y

pytestmark = pytest.mark.usefixtures("small_parts")


def holed(at: tuple[int, int], value: float) -> np.ndarray:
    spoilt = DENSE.copy()
    spoilt[at] = value
    return spoilt


def csr_with(**changes: np.ndarray) -> CSR:
    return CSR(X.data, X.indices, X.indptr)._replace(**changes)


def changed(array: np.ndarray, at: int, value: float) -> np.ndarray:
    array = array.copy()
    array[at] = value
    return array


BAD: list[tuple[str, Any, Any, type[BigSVMError], str]] = [
    ("NaN", holed((321, 5), np.nan), y, DataError, "row 321"),
    ("inf", holed((699, 0), -np.inf), y, DataError, "row 699"),
    ("NaN in CSR", csr_with(data=changed(X.data, X.indptr[321], np.nan)), y, DataError, "row 321"),
    ("NaN in dask", da.from_array(holed((321, 5), np.nan), chunks=(100, D)), y, DataError, "row 321"),
    ("label NaN", DENSE, changed(y.astype(float), 500, np.nan), DataError, "row 500"),
    ("too few labels", DENSE, y[:-1], DataError, "700 rows"),
    ("labels of two columns", DENSE, np.stack([y, y], 1), DataError, "700 rows"),
    ("no labels", DENSE, None, UsageError, "labels"),
    ("complex", DENSE.astype(complex), y, DataError, "complex"),
    ("objects", np.array([[object()] * 2] * N), y, DataError, "which is not a number"),
    ("one dimension", DENSE[0], y[:40], DataError, "shape"),
    ("no rows", DENSE[:0], y[:0], DataError, "no rows"),
    ("index below 0", csr_with(indices=changed(X.indices, X.indptr[321], -1)), y, DataError, "row 321"),
    ("indptr falls", csr_with(indptr=changed(X.indptr, 321, 0)), y, DataError, "row 32"),
    ("indptr too short", csr_with(indptr=X.indptr[:-1]), y[:-1], DataError, "ends with"),
    ("indptr not from 0", csr_with(indptr=changed(X.indptr, 0, 1)), y, DataError, "begins"),
    ("fractional indices", csr_with(indices=X.indices.astype(float)), y, DataError, "integers"),
]  # fmt: skip


@pytest.mark.parametrize(("matrix", "labels", "kind", "word"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_bad_arrays(tmp_path: Path, matrix: Any, labels: Any, kind: type[BigSVMError], word: str) -> None:
    with pytest.raises(kind, match=word):
        ingest((matrix, labels), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_float32_overflow_names_the_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 3"):
        ingest((np.array([[1.0], [2.0], [3.0], [1e300]]), [0, 1, 0, 1]), tmp_path / "a", dtype="float32")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "x.npy", np.array([{}, []], object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", X=np.array([[{}]], object), y=np.array([1]))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(DataError):
            ingest(tmp_path / name, tmp_path / "a", label=str(tmp_path / "y.npy"))


@pytest.mark.parametrize("content", ["1.0\n2.0\n", "\x80\x04pickle"], ids=["text", "pickle"])
@pytest.mark.parametrize("option", ["label", "weight"])
def test_a_file_of_labels_or_weights_that_is_no_npy_is_told_as_such(tmp_path: Path, option: str, content: str) -> None:
    """NumPy takes it for a pickle, and advises to load that."""
    np.save(tmp_path / "x.npy", DENSE)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "other").write_text(content, "latin-1")
    options: Any = {"label": str(tmp_path / "y.npy"), option: str(tmp_path / "other")}
    with pytest.raises(DataError, match=r"not a \.npy file: it does not begin as one") as caught:
        ingest(tmp_path / "x.npy", tmp_path / "a", **options)
    assert (caught.value.where, caught.value.hint) == (str(tmp_path / "other"), "write it with numpy.save")


def test_damaged_files(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "x.npy", DENSE)
    sp.save_npz(tmp_path / "x.npz", X)
    for name in ("x.npy", "x.npz"):
        whole = (tmp_path / name).read_bytes()
        for content in (b"", whole[:5], whole[: len(whole) // 2], b"1 1:1\n"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(DataError):
                ingest(tmp_path / name, tmp_path / "a", label=str(tmp_path / "y.npy"))
        spoilt = bytearray(whole)
        spoilt[len(whole) // 3] ^= 0xFF
        (tmp_path / "z.npz").write_bytes(bytes(spoilt))
    with pytest.raises(DataError):
        ingest(tmp_path / "z.npz", tmp_path / "a", label=str(tmp_path / "y.npy"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "x.npz", "y.npy", "z.npz"]


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    text = write_text(tmp_path / "a.svm")
    np.save(tmp_path / "x.npy", DENSE)
    sp.save_npz(tmp_path / "a.npz", X)
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    for source, options, kind in [
        (text, {"label": "y.npy"}, UsageError),
        (text, {"y": y}, UsageError),
        (text, {"weight": "no.npy"}, UsageError),
        (text, {"sample_weight": y}, UsageError),
        (text, {"dtype": "float16"}, UsageError),
        (text, {"from_format": "arff"}, UsageError),
        (text, {"n_features": 0}, UsageError),
        ([text, tmp_path / "x.npy"], {}, UsageError),
        (tmp_path / "x.npy", {}, UsageError),
        (tmp_path / "a.npz", {}, UsageError),
        (tmp_path / "a.npz", {"label": "nope"}, UsageError),
        (tmp_path / "a.arff", {}, UsageError),
        (tmp_path / "a.csv", {}, MissingInput),
        (tmp_path / "x.npy", {"label": str(tmp_path / "no.npy")}, MissingInput),
        (tmp_path / "no.npz", {}, MissingInput),
        (tmp_path / "no.zarr", {}, MissingInput),
        (tmp_path / "empty", {}, UsageError),
        (tmp_path / "x.npy", {"label": str(tmp_path / "x.npy"), "n_features": 41}, DataError),
    ]:
        with pytest.raises(kind):
            ingest(source, out, **options)
        assert not out.exists()


def test_output_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        ingest((X, y), tmp_path / "file" / "a")


def test_too_little_memory_is_refused_and_what_it_names_will_do(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:1\n" * 1000)
    with pytest.raises(PlanRefused, match="would do") as caught:
        ingest(tmp_path / "a.svm", tmp_path / "a", memory="5MiB")
    least = caught.value.min_memory_bytes
    assert least is not None
    assert ingest(tmp_path / "a.svm", tmp_path / "a", memory=least)["n_samples"] == 2000
