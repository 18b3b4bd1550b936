"""What a user may name, and what is said of all else."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from pyarrow import feather

from bigsvm.errors import DataError, MissingInput, UsageError
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import ENTRY_POINTS, open_store
from bigsvm.store.formats.parquet_rows import ParquetRows
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.store.ingest.ingest import ingest
from bigsvm.testing.contracts import dense, example
from tests.store import formats

X, LABELS = example()


def test_every_kind_is_known(tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", X, LABELS)
    for source in (path, str(path), f"file://{path}"):
        assert isinstance(open_store(source), ZarrRows)
    other = formats.parquet(tmp_path / "s.parquet", X, LABELS)
    assert isinstance(open_store(other), ParquetRows)
    store = open_store((X, LABELS, np.ones(len(X))))
    assert isinstance(store, ArrayRows)
    assert open_store(store) is store


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        open_store(tmp_path / "none.zarr")
    text = tmp_path / "a9a.svm.gz"
    text.write_bytes(b"")
    with pytest.raises(UsageError, match="bigsvm ingest"):
        open_store(text)
    (tmp_path / "a9a").write_text("1 1:1\n")
    with pytest.raises(UsageError, match="bigsvm ingest"):
        open_store(str(tmp_path / "a9a"))
    with pytest.raises(UsageError, match="ftp:// is not supported"):
        open_store("ftp://host/store.zarr")
    (tmp_path / "folder").mkdir()
    for source in (3, X, (X,), tmp_path / "folder"):
        with pytest.raises(UsageError):
            open_store(source)


def test_other_formats_come_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a package that is installed while the process runs, too."""
    monkeypatch.syspath_prepend(str(tmp_path))
    os.utime(tmp_path, (0, 0))  # long ago
    with pytest.raises(MissingInput):
        open_store("data.mine")
    package = tmp_path / "mine-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nmine = {__name__}:opened\n")
    monkeypatch.setattr(sys.modules[__name__], "SEEN", [])
    assert open_store("data.mine", label="l").n_samples == len(X)
    assert open_store("mine://data").n_samples == len(X)
    assert [path for path, _ in SEEN] == ["data.mine", "mine://data"]
    assert SEEN[0][1] == {"label": "l", "weight": None, "task": "auto"}


SEEN: list[tuple[str, dict[str, Any]]] = []


def opened(path: str, **options: Any) -> ArrayRows:
    """What the entry point of the test above names."""
    SEEN.append((path, options))
    return ArrayRows(X, LABELS)


def test_columns_by_name(tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS, np.arange(len(X)) * 1.0)
    assert open_store(path).has_weights
    by_weight = open_store(path, label="obs/weight", weight="label" if LABELS.min() >= 0 else None, task="regression")
    assert by_weight.classes is None
    with pytest.raises(DataError, match="--label, --labels, --weight or --rows; columns there: label"):
        open_store(path, label="nothing")
    with pytest.raises(DataError, match="nothing"):
        open_store(path, weight="nothing")


def test_string_columns_of_foreign_stores(tmp_path: Path) -> None:
    names = np.array(["b", "a", "ü"])[np.arange(len(X)) % 3]
    for version in (2, 3):
        store = open_store(formats.foreign(tmp_path / f"{version}.zarr", X, names, version=version))
        assert store.classes.tolist() == ["a", "b", "ü"]
        block = store.read(store.refs(20)[1])
        np.testing.assert_array_equal(store.classes[block.y], names[20:40])


def test_whole_numbers_are_classes_and_others_targets() -> None:
    assert ArrayRows(X, LABELS).classes.tolist() == [-1, 1, 4]
    assert ArrayRows(X, LABELS.astype(np.int8)).classes.dtype == np.int64
    assert ArrayRows(X, LABELS > 0).classes.tolist() == [0, 1]
    assert ArrayRows(X, LABELS / 3).classes is None
    assert ArrayRows(X, LABELS, task="regression").classes is None
    assert len(ArrayRows(X, LABELS / 3, task="classification").classes) == 3
    assert ArrayRows(X, LABELS, classes=np.array([4, 1, 0, -1])).classes.tolist() == [-1, 0, 1, 4]
    with pytest.raises(DataError, match="not among"):
        ArrayRows(X, LABELS, classes=np.array([1, 4]))


def test_arrays_are_viewed_and_not_copied() -> None:
    sparse = sp.csr_array(X)
    for source, mine in ((ArrayRows(X, LABELS), X), (ArrayRows(sparse, LABELS), sparse.data)):
        matrix = source.read(source.refs(10)[2]).X
        assert np.shares_memory(matrix if source.layout == "dense" else matrix.data, mine)


def test_arrays_that_do_not_go_together_are_refused() -> None:
    for bad in ((X[0], LABELS), (X, LABELS[:-1]), (X, LABELS, np.ones(3)), (sp.csc_array(X), LABELS)):
        with pytest.raises(UsageError):
            open_store(bad)
    for order in ([0, 0, 1], np.arange(3), np.linspace(0, 52, 53)):
        with pytest.raises(UsageError):
            ArrayRows(X, LABELS, row_order=order)
    with pytest.raises(DataError):
        ArrayRows(X.astype(str), LABELS)


def test_opening_arrays_needs_neither_zarr_nor_pyarrow() -> None:
    code = (
        "import sys; from bigsvm.store.formats.opener import open_store; open_store(([[1.0]], [1.0]));"
        "assert not {'zarr', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "word"),
    [("zarr.json", "zarr.json: document is missing"), ("X/zarr.json", "X/zarr.json: document is missing")],
)
def test_a_store_that_cannot_be_read_is_named(tmp_path: Path, name: str, word: str) -> None:
    path = tmp_path / "rows.zarr"
    ingest((np.eye(4), np.array([0, 1, 0, 1])), path)
    (path / name).unlink()
    with pytest.raises(DataError) as caught:
        open_store(path)
    assert str(caught.value).startswith(f"{path}/{word}")
    assert pickle.loads(pickle.dumps(caught.value)).where == caught.value.where


def _write_form(form: str, path: Path, X: np.ndarray) -> None:
    table = pa.table({"label": np.arange(len(X)) % 2, **{f"x{j}": X[:, j] for j in range(X.shape[1])}})
    if form == "parquet":
        pq.write_table(table, path, write_statistics=False, use_dictionary=False, compression="none")
    elif form == "feather":
        feather.write_feather(table, str(path), compression="uncompressed")
    elif form == "csv":
        pa_csv.write_csv(table, path)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["X"], file["obs/label"] = X, np.arange(len(X)) % 2


FORMS = ["parquet", "feather", "csv", "h5ad"]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_the_same_size_and_time_is_another_file(form: str, tmp_path: Path) -> None:
    """So `rsync -t` and `cp -p` leave it."""
    path, X = tmp_path / f"a.{form}", np.arange(40.0).reshape(20, 2) + 100
    _write_form(form, path, X)
    before, status = open_store(path), path.stat()
    assert open_store(path).fingerprint == before.fingerprint
    _write_form(form, tmp_path / f"b.{form}", X[::-1].copy())
    path.write_bytes((tmp_path / f"b.{form}").read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert open_store(path).fingerprint != before.fingerprint
    np.testing.assert_array_equal(dense(open_store(path).read(open_store(path).refs(20)[0]).X, 2), X[::-1])
