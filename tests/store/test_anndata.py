"""AnnData on Zarr and on HDF5: matrices of every form, labels that are missing, names of features.

The files here are written by zarr and h5py alone, as anndata 0.12 writes them; where anndata is installed, by itself.
"""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.errors import DataError, MissingInput, OutputError, UsageError
from bigsvm.files import locks
from bigsvm.files.atomic import temporary_name
from bigsvm.store.formats import csc_rows, kept_rows
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.contracts import N_FEATURES, RowBlocksContract, dense
from tests.store import formats

pytest.importorskip("h5py")

N, D = 60, 9
X = sp.random(N, D, 0.3, random_state=0, format="csr", dtype=np.float32)
CODES = (np.arange(N) % 3).astype(np.int8)
HOLES = np.where(np.arange(N) % 7 == 0, -1, CODES).astype(np.int8)
NAMES = [f"gene{j}" for j in range(D)]
STORES = ["v2.zarr", "v3.zarr", "plain.h5ad", "gzip.h5ad"]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One AnnData in four files."""
    folder = tmp_path_factory.mktemp("cells")
    for name in STORES:
        formats.anndata(folder / name, content())
    return folder


def content() -> dict:
    """Path -> what lies there: a matrix, or a column."""
    return {
        "X": X, "layers/csc": X.tocsc(), "layers/dense": X.toarray(), "obsm/pca": X.toarray()[:, :4].astype(float),
        "raw/X": X.tocsc(), "raw/var/_index": NAMES, "var/_index": NAMES,
        "obs/label": (CODES, ["b", "a", "c"]), "obs/holes": (HOLES, ["b", "a", "c"]),
        "obs/number": np.where(HOLES < 0, np.nan, CODES), "obs/text": ["x", "y"] * (N // 2),
        "obs/nullable": (HOLES.astype(np.int64), HOLES < 0, "nullable-integer"),
    }  # fmt: skip


def rows(store) -> np.ndarray:
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(7)])


def labels(store) -> list:
    return store.classes[np.concatenate([store.read(ref).y for ref in store.refs(7)])].tolist()


def open_files(path: Path) -> int:
    """How many descriptors of this process are of a file."""
    return sum(os.path.realpath(f"/proc/self/fd/{name}") == str(path) for name in os.listdir("/proc/self/fd"))


def test_a_file_that_is_not_there_is_answered_with_one_that_is(tmp_path: Path) -> None:
    (tmp_path / "cells.h5ad").touch()
    with pytest.raises(MissingInput, match=f"no such file .did you mean {tmp_path}/cells.h5ad"):
        open_store(tmp_path / "cell.h5ad")


def test_an_h5ad_that_was_read_is_let_go_of_and_opened_again(cells: Path) -> None:
    """HDF5 keeps chunks and its index while the file is open: memory that a plan has given to others."""
    path = cells / "gzip.h5ad"
    store = open_store(path)
    np.testing.assert_array_equal(rows(store), X.toarray())
    assert open_files(path) == 1
    store.forget()
    assert open_files(path) == 0
    np.testing.assert_array_equal(rows(store), X.toarray())
    store.forget()
    store.forget()
    assert open_files(path) == 0


@pytest.mark.parametrize("name", STORES)
def test_every_matrix_is_read_as_rows(name: str, cells: Path) -> None:
    seen = set()
    for matrix in (None, "X", "layers/csc", "layers/dense", "raw/X"):
        store = open_store(cells / name, matrix=matrix)
        np.testing.assert_array_equal(rows(store), X.toarray())
        assert store.layout == ("dense" if matrix == "layers/dense" else "csr")
        assert store.feature_names == NAMES
        assert labels(store) == np.array(["b", "a", "c"])[CODES].tolist()
        assert pickle.loads(pickle.dumps(store)).identity == store.identity
        seen.add(store.identity.digest)
    assert len(seen) == 4  # X is the default
    pca = open_store(cells / name, matrix="obsm/pca")
    assert (pca.n_features, pca.feature_names, pca.dtype) == (4, None, np.float64)
    assert open_store(cells / name, like={"matrix": "obsm/pca"}, labelled=False).n_features == 4
    with pytest.raises(DataError, match="layers/csc, layers/dense, obsm/pca, raw/X"):
        open_store(cells / name, matrix="layers/counts")
    with pytest.raises(UsageError, match="no matrix is called"):
        open_store(cells / name, matrix="obs/label")


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("label", ["holes", "obs/number", "nullable"])
def test_missing_labels_are_counted_or_left_out(name: str, label: str, cells: Path, monkeypatch) -> None:
    monkeypatch.setattr(kept_rows, "_STEP", 16)
    with pytest.raises(DataError, match="9 of the 60 rows have no label, row 0 is the first"):
        _ = open_store(cells / name, label=label).classes
    kept = HOLES >= 0
    for matrix in (None, "layers/dense", "layers/csc"):
        store = open_store(cells / name, label=label, missing="drop", matrix=matrix)
        np.testing.assert_array_equal(rows(store), X.toarray()[kept])
        given = np.array(["b", "a", "c"])[HOLES[kept]] if label == "holes" else HOLES[kept]
        assert labels(store) == given.tolist()
        assert store.n_samples == kept.sum()
        assert store.nnz == (kept.sum() * D if store.layout == "dense" else np.count_nonzero(X.toarray()[kept]))
        assert "9 of the 60 rows have no label" in store.warnings[-1]
        again = pickle.loads(pickle.dumps(store))
        assert again.identity == store.identity
        np.testing.assert_array_equal(rows(again), rows(store))
    targets = open_store(cells / name, label="number", missing="drop", task="regression")
    y = np.concatenate([targets.read(ref).y for ref in targets.refs(7)])
    np.testing.assert_array_equal(y, CODES[kept])
    # Where nothing is missing nothing changes, the identity neither.
    whole = open_store(cells / name, missing="drop")
    assert whole.identity == open_store(cells / name).identity


def test_text_labels(cells: Path) -> None:
    for name in STORES:
        assert labels(open_store(cells / name, label="text")) == ["x", "y"] * (N // 2)


def test_tables_leave_out_rows_without_a_label(tmp_path: Path) -> None:
    lines = [f"{i},{'uv'[i % 2]},{'' if i % 5 == 0 else i % 3}" for i in range(40)]
    (tmp_path / "t.csv").write_text("a,b,label\n" + "\n".join(lines) + "\n")
    with pytest.raises(DataError, match="8 of the 40 rows have no label, row 0 is the first"):
        _ = open_store(tmp_path / "t.csv").classes
    store = open_store(tmp_path / "t.csv", missing="drop")
    kept = [i for i in range(40) if i % 5]
    assert rows(store)[:, 0].tolist() == kept
    assert labels(store) == [i % 3 for i in kept]
    assert store.nnz == np.count_nonzero(rows(store))
    assert open_store(tmp_path / "t.csv", missing="drop", labelled=False).n_samples == 40


def transposed() -> list[Path]:
    """Folders of columns that were made rows, whole or not."""
    return [path for path in (csc_rows.cache_folder() / "manifests").glob("*transposed-*") if path.is_dir()]


@pytest.mark.parametrize("buffer", [1, 200, 1 << 20])
def test_columns_are_transposed_in_pieces(buffer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csc_rows, "_BUFFER", buffer)
    monkeypatch.setattr(csc_rows, "_PIECE", 7)
    path = formats.anndata(tmp_path / "a.zarr", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    np.testing.assert_array_equal(rows(open_store(path)), X.toarray())
    made = transposed()
    assert len(made) == 1
    times = {file: file.stat().st_mtime_ns for file in made[0].iterdir()}
    np.testing.assert_array_equal(rows(open_store(path)), X.toarray())
    assert {file: file.stat().st_mtime_ns for file in made[0].iterdir()} == times
    # A copy that is damaged is made anew, not believed.
    (made[0] / "data").write_bytes(bytes((made[0] / "data").stat().st_size))
    np.testing.assert_array_equal(rows(open_store(path)), X.toarray())


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [("indices", N, "row index 60 is beyond the 60 rows"), ("indptr", 100, "column pointers are not ascending")],
)
def test_bad_columns_are_refused(part: str, value: int, said: str, tmp_path: Path) -> None:
    path = formats.anndata(tmp_path / "a.zarr", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    zarr.open_group(path, mode="a")[f"X/{part}"][3] = value
    with pytest.raises(DataError, match=said):
        open_store(path)
    assert not transposed()


def test_columns_that_a_full_disk_cannot_hold_as_rows_are_an_error_and_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, start: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = formats.anndata(tmp_path / "a.h5ad", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    folder = csc_rows.cache_folder() / "manifests"
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match="No space left on device") as told:
        open_store(path)
    monkeypatch.undo()
    assert Path(told.value.where).parent == folder
    assert not transposed()
    np.testing.assert_array_equal(rows(open_store(path)), X.toarray())
    (made,) = folder.glob("transposed-*/indptr")
    assert made.stat().st_blocks * 512 >= made.stat().st_size  # it has no holes


def test_columns_are_transposed_once_by_those_who_open_them_at_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = formats.anndata(tmp_path / "a.zarr", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    transpose, wait_for = csc_rows._transpose, locks.wait_for
    began, others_turn = [], threading.Event()

    def slow(*arguments: Any) -> None:
        began.append(threading.get_ident())
        if len(began) == 1:
            other.start()
            others_turn.wait()
        else:
            others_turn.set()
        transpose(*arguments)

    def waited(*arguments: Any) -> None:
        if threading.current_thread() is other:
            others_turn.set()
        wait_for(*arguments)

    found: list[np.ndarray] = []
    other = threading.Thread(target=lambda: found.append(rows(open_store(path))))
    monkeypatch.setattr(csc_rows, "_transpose", slow)
    monkeypatch.setattr(csc_rows, "wait_for", waited, raising=False)
    np.testing.assert_array_equal(rows(open_store(path)), X.toarray())
    other.join()
    np.testing.assert_array_equal(found[0], X.toarray())
    assert len(began) == 1


_HELD = """
import sys
from bigsvm.store.formats import csc_rows
from bigsvm.store.formats.opener import open_store

def held(*arguments):
    print("begun", flush=True)
    sys.stdin.read()

csc_rows._transpose = held
open_store(sys.argv[1])
"""


def test_what_killed_processes_made_of_columns_is_removed(tmp_path: Path) -> None:
    path = formats.anndata(tmp_path / "a.zarr", {"X": X.tocsc(), "obs/label": (CODES, ["b", "a", "c"])})
    command = [sys.executable, "-c", _HELD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
    assert len(transposed()) == 1
    at_work = temporary_name(csc_rows.cache_folder() / "manifests" / "transposed-other")  # of a process that lives
    at_work.mkdir()
    open_store(path)
    assert len(transposed()) == 2
    assert at_work in transposed()


def test_what_is_no_h5ad_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.h5ad").write_bytes(b"\x89HDF of a sort")
    with pytest.raises(DataError, match=r"not an \.h5ad file that can be read"):
        open_store(tmp_path / "t.h5ad")
    path = formats.anndata(tmp_path / "u.h5ad", {"X": X, "obs/label": (CODES, ["b", "a", "c"])})
    store = open_store(path)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match="changed since it was opened"):
        rows(store)


@pytest.mark.filterwarnings("ignore")  # of anndata, on what will be
@pytest.mark.parametrize("name", STORES)
def test_what_anndata_writes_is_read(name: str, tmp_path: Path) -> None:
    ad, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    kinds = pd.Categorical.from_codes(HOLES, ["b", "a", "c"])
    obs = pd.DataFrame({"kind": kinds}, index=[f"cell{i}" for i in range(N)])
    data = ad.AnnData(X, obs=obs, var=pd.DataFrame(index=NAMES), layers={"csc": X.tocsc()})
    if name.endswith(".h5ad"):
        data.write_h5ad(tmp_path / name, compression="gzip" if name.startswith("gzip") else None)
    else:
        with ad.settings.override(zarr_write_format=int(name[1])):
            data.write_zarr(tmp_path / name)
    for matrix in ("X", "layers/csc"):
        options = {} if name.endswith(".h5ad") else {"empty_chunks": "zeros"}
        store = open_store(tmp_path / name, label="kind", matrix=matrix, missing="drop", **options)
        np.testing.assert_array_equal(rows(store), X.toarray()[HOLES >= 0])
        assert store.feature_names == NAMES


class _AnnData(RowBlocksContract):
    dtypes = ("float32", "float64", "int64", "uint8", "int8", "int16")
    name, form = "a.h5ad", "csr"

    def make(self, X, labels, weights, folder):
        matrix = X if self.form == "dense" else getattr(sp, f"{self.form}_matrix")(X)
        parts = {"X": matrix, "obs/label": labels, "var/_index": [f"f{j}" for j in range(N_FEATURES)]}
        if weights is not None:
            parts["obs/weight"] = weights
        return open_store(formats.anndata(folder / self.name, parts))


class TestH5adRows(_AnnData):
    pass


class TestH5adDense(_AnnData):
    form = "dense"


class TestZarrColumns(_AnnData):
    name, form = "a.zarr", "csc"


WEIGHTS = np.array([0.5, 2.0, 0.0])[np.arange(N) % 3]
WEIGHED = {
    "plain": WEIGHTS,
    "whole": (2 * WEIGHTS).astype(np.int8),
    "nullable": (2 * WEIGHTS, np.zeros(N, bool), "nullable-float"),
    "coded": ((np.arange(N) % 3).astype(np.int8), np.array([0.5, 2.0, 0.0])),
    "holed": (WEIGHTS, np.arange(N) == 40, "nullable-float"),
    "uncoded": (np.where(np.arange(N) == 40, -1, 0).astype(np.int8), np.array([0.5])),
}


@pytest.mark.parametrize("name", STORES)
def test_weights_are_any_column_of_numbers(name: str, tmp_path: Path) -> None:
    columns = {f"obs/{column}": values for column, values in WEIGHED.items()}
    path = formats.anndata(tmp_path / name, {**content(), **columns})
    for column, factor in {"plain": 1, "whole": 2, "nullable": 2, "coded": 1}.items():
        store = open_store(path, weight=column)
        weights = np.concatenate([store.read(ref).sample_weight for ref in store.refs(7)])
        np.testing.assert_array_equal(weights, factor * WEIGHTS)
        assert pickle.loads(pickle.dumps(store)).identity == store.identity
    assert open_store(path).has_weights is False
    for column in ("holed", "uncoded"):
        store = open_store(path, weight=f"obs/{column}")
        with pytest.raises(DataError, match="row 40 has no weight"):
            store.read(store.refs(N)[0])
    for column in ("holes", "text"):
        with pytest.raises(DataError, match="weights are not a column of numbers"):
            open_store(path, weight=column)


@pytest.mark.parametrize("name", ["v2.zarr", "plain.h5ad"])
def test_codes_of_older_files_are_no_weights(name: str, tmp_path: Path) -> None:
    """AnnData before 0.8 kept a categorical as a plain array of codes, which looks like numbers."""
    codes, values = (np.arange(N) % 3).astype(np.int8), np.array([0.5, 2.0, 0.0])
    older = {
        "obs/dose": codes,
        "obs/__categories/dose": values,
        "obs/kind": codes,
        "obs/__categories/kind": list("abc"),
    }
    path = formats.anndata(tmp_path / name, {**content(), **older})
    if name.endswith(".h5ad"):
        import h5py

        with h5py.File(path, "r+") as root:
            for column in ("dose", "kind"):
                root[f"obs/{column}"].attrs["categories"] = root[f"obs/__categories/{column}"].ref
    else:
        for column in ("dose", "kind"):
            zarr.open_group(path, mode="r+")[f"obs/{column}"].attrs["categories"] = f"__categories/{column}"
    store = open_store(path, weight="dose")
    weights = np.concatenate([store.read(ref).sample_weight for ref in store.refs(7)])
    np.testing.assert_array_equal(weights, values[codes])
    assert labels(open_store(path, label="kind")) == np.array(["a", "b", "c"])[codes].tolist()
    with pytest.raises(DataError, match="weights are not a column of numbers"):
        open_store(path, weight="kind")


KINDS = {
    "as it is": ({}, "<f4", None),
    "most significant byte first": ({}, ">f4", None),
    "float16": ({}, "<f2", None),
    "behind a user block": ({"userblock_size": 1024}, "<f8", None),
    "never written": ({"userblock_size": 1024}, "<f8", 2.5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_in_one_piece_are_those_that_h5py_reads(kind: str, tmp_path: Path) -> None:
    import h5py

    file, dtype, fill = KINDS[kind]
    values = np.random.default_rng(0).normal(size=(37, 3)).astype(dtype)
    with h5py.File(tmp_path / "t.h5ad", "w", **file) as root:
        root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        root.create_dataset("X", values.shape, dtype, data=None if fill else values, fillvalue=fill)
        root["obs/label"] = np.arange(37) % 2
        expected = root["X"][:]
    store = open_store(tmp_path / "t.h5ad")
    X = store.read(store.refs(37)[0]).X
    np.testing.assert_array_equal(X, expected)
    assert X.dtype.isnative
    assert (store._data._place is None) == (kind == "never written")  # else it shows nothing
    store.forget()
    np.testing.assert_array_equal(store.read(store.refs(10)[3]).X, expected[30:])
    assert expected[0, 0] == (fill or values[0, 0])


ARRAYS, GROUPS = ["X", "layers/csc/data", "obs/weight"], ["layers/csc", "obs", "obs/label"]
LINKS = ["external link", "link to an external link", "link to nothing"]
ELSEWHERE = [(what, how) for what in ARRAYS + GROUPS for how in LINKS]
ELSEWHERE += [(what, how) for what in ARRAYS for how in ("virtual", "external storage")]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("what", "how"), ELSEWHERE)
def test_what_lies_in_another_file_is_refused(what: str, how: str, there: bool, tmp_path: Path) -> None:
    """Its changes would not be seen; and where that file is gone, HDF5 gives zeros, or says that nothing was there."""
    import h5py

    formats.anndata(tmp_path / "t.h5ad", {**content(), "obs/weight": np.arange(1.0, N + 1), "X": X.toarray()})
    other = tmp_path / "other.h5"
    with h5py.File(tmp_path / "t.h5ad", "r+", locking=False) as root, h5py.File(other, "w", locking=False) as file:
        root.copy(what, file, "moved")
        node, attrs = root[what], dict(root[what].attrs)
        values = node[:] if isinstance(node, h5py.Dataset) else None
        del root[what]
        if how == "external link":
            root[what] = h5py.ExternalLink("other.h5", "moved")
        elif how == "link to an external link":
            root["elsewhere"] = h5py.ExternalLink("other.h5", "moved")
            root[what] = h5py.SoftLink("/elsewhere")
        elif how == "link to nothing":
            root[what] = h5py.SoftLink("/nothing")
        elif how == "virtual":
            layout = h5py.VirtualLayout(values.shape, values.dtype)
            layout[:] = h5py.VirtualSource("other.h5", "moved", values.shape)
            root.create_virtual_dataset(what, layout).attrs.update(attrs)
        else:
            outside = [(str(tmp_path / "other.raw"), 0, values.nbytes)]
            root.create_dataset(what, data=values, external=outside).attrs.update(attrs)
    if not there:
        for name in ("other.h5", "other.raw"):
            (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(DataError, match=r"which is not there|whose changes nobody would see"):
        open_store(tmp_path / "t.h5ad", matrix="layers/csc" if what.startswith("layers") else None)


@pytest.mark.parametrize("locking", [True, False, "best-effort", None])
def test_a_file_that_is_open_in_this_process_is_read(locking: Any, cells: Path, tmp_path: Path) -> None:
    """As `anndata.read_h5ad(backed="r")` has it open in a notebook, with HDF5's locks."""
    import h5py

    path = Path(shutil.copy(cells / "gzip.h5ad", tmp_path))
    with h5py.File(path, "r", **({} if locking is None else {"locking": locking})):
        store = open_store(path)
        np.testing.assert_array_equal(rows(store), X.toarray())
        store.forget()


@pytest.mark.parametrize("kept", ["open", "gone", "forgotten"])
@pytest.mark.parametrize("changed", ["names of classes", "classes of rows", "values", "number of rows"])
def test_a_file_that_was_written_anew_in_place_is_read_anew(kept: str, changed: str, tmp_path: Path) -> None:
    """HDF5 shares what a process has open of a file, whatever has become of the file meanwhile."""
    path = tmp_path / "rows.h5ad"
    program = """
import sys, h5py, numpy as np
for line in sys.stdin:
    changed = line.strip()
    n = 30 if changed == "number of rows" else 24
    X = np.arange(2.0 * n).reshape(n, 2) * (-1 if changed == "values" else 1)
    codes = (np.arange(n) % 3 + (changed == "classes of rows")) % 3
    names = ["x", "y", "z"] if changed == "names of classes" else ["a", "b", "c"]
    with h5py.File(sys.argv[1], "w") as file:
        file.create_dataset("X", data=X, chunks=(7, 2))
        label = file.create_group("obs/label")
        label.attrs["encoding-type"] = "categorical"
        label["codes"], label["categories"] = codes.astype("i1"), names
    print("written", flush=True)
"""
    surroundings = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}
    pipe = subprocess.PIPE
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=pipe, stdout=pipe, text=True, env=surroundings
    )

    def written(what: str) -> None:
        assert writer.stdin is not None
        assert writer.stdout is not None
        print(what, file=writer.stdin, flush=True)
        assert writer.stdout.readline() == "written\n"

    def seen() -> tuple[list[Any], ...]:
        store = open_store(path)
        block = store.read(store.refs(99)[0])
        assert store.classes is not None
        if kept != "gone":
            stores.append(store)
        if kept == "forgotten":
            store.forget()
        return block.X.tolist(), store.classes[block.y].tolist()

    stores: list[Any] = []
    found = []
    with writer:
        for what in ("", changed, "", changed):
            written(what)
            found.append(seen())
    assert found[0] == found[2] != found[1] == found[3]
    n = 30 if changed == "number of rows" else 24
    assert len(found[1][1]) == n
    assert found[1][1][0] == {"names of classes": "x", "classes of rows": "b"}.get(changed, "a")
    if kept == "open":
        with pytest.raises(DataError, match="changed"):
            stores[0].read(stores[0].refs(99)[0])
