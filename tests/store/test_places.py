"""Errors of stores name the store's path and the place in it, once, whoever opened and whoever reads."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.errors import BigSVMError, DataError, MissingInput, ReadFailed
from bigsvm.run.apply.prediction_anndata import _into_zarr
from bigsvm.store.formats import chunked, zarr_rows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.sealing import seal as sealing
from bigsvm.store.sealing import verify
from bigsvm.store.sealing.places import place_in
from tests.store import formats

h5py: Any = pytest.importorskip("h5py")

N, D = 60, 9
X = sp.random(N, D, 0.3, random_state=0, format="csr", dtype=np.float32)
CODES = (np.arange(N) % 3).astype(np.int8)
KINDS = ["v2.zarr", "v3.zarr", "sealed.zarr", "plain.h5ad", "gzip.h5ad"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(kind: str, **parts: Any) -> Path:
    """An AnnData of one of the KINDS, with some parts that are others; a name has two underscores for a slash."""
    content = {"X": X, "obs/label": (CODES, ["b", "a", "c"]), "obs/plain": CODES.astype(float), "obs/w": np.ones(N)}
    path = formats.anndata(Path(kind), content | {name.replace("__", "/"): part for name, part in parts.items()})
    if "sealed" in kind:
        sealing.seal(path)
    return path


def changed(matrix: Any, part: str, place: int, value: float) -> Any:
    found = matrix.copy()
    getattr(found, part)[place] = value
    return found


def everything(store: Any) -> None:
    _ = store.classes
    for ref in store.refs(16):
        store.read(ref)


def refused(path: Path, place: str, call: Callable[[], Any], kind: type[BigSVMError] = DataError) -> None:
    """The error of a call names that place of a store, as it was named or from the root on, and that once."""
    with pytest.raises(kind) as caught:
        call()
    where, line = caught.value.where, str(caught.value)
    assert where in (f"{path}/{place}".rstrip("/"), f"{path.resolve()}/{place}".rstrip("/")), line
    assert line.count(path.name) - caught.value.hint.count(path.name) == 1, line
    assert line.count(place) - caught.value.hint.count(place) == 1 or not place, line
    assert caught.value.args == (caught.value.what, where, caught.value.hint)


COLUMNS = {
    "obs/label": {"obs__label": (np.where(np.arange(N) == 7, 9, CODES).astype(np.int8), ["b", "a", "c"])},
    "obs/plain": {"obs__plain": np.where(np.arange(N) == 7, np.inf, CODES)},
    "obs/holes": {"obs__holes": (np.where(np.arange(N) == 7, -1, CODES).astype(np.int8), ["b", "a", "c"])},
    "obs/nan": {"obs__nan": np.where(np.arange(N) == 7, np.nan, CODES)},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", COLUMNS)
def test_labels(kind: str, column: str) -> None:
    path = made(kind, **COLUMNS[column])
    store: Any = open_store(path, label=column)
    reads = [lambda: store.classes, lambda: store.read(store.refs(N)[0]), lambda: store.labels_between(0, N)]
    for read in reads:
        refused(path, column, read)
    there = pickle.loads(pickle.dumps(store))
    refused(path, column, lambda: there.classes)
    if column == "obs/label":
        refused(path, column, lambda: store.labelled_rows())
        refused(path, column, lambda: store.columns_between(["label"], 0, N))
        refused(path, column, lambda: open_store(path, missing="drop"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["holes", "negative"])
def test_weights(kind: str, weights: str) -> None:
    odd = np.where(np.arange(N) == 7, -1.0, 1.0)
    path = made(kind, obs__w=(np.ones(N), odd < 0, "nullable-float") if weights == "holes" else odd)
    store = open_store(path, weight="w")
    refused(path, "obs/w", lambda: everything(store))


MATRICES = {
    "nan": changed(X, "data", 5, np.nan),
    "dense nan": changed(X, "data", 5, np.nan).toarray(),
    "beyond": changed(X, "indices", 5, D),
    "falling": changed(X, "indptr", 20, 1),
    "out": changed(X, "indptr", 20, 1000),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("matrix", MATRICES)
def test_values(kind: str, matrix: str) -> None:
    path = made(kind, X=MATRICES[matrix])
    store = open_store(path)
    refused(path, "X", lambda: everything(store))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("typed", ["{}", "./{}", "{}/", "../{parent}/{}", "{full}"])
def test_what_is_seen_at_the_opening(kind: str, typed: str) -> None:
    columns = changed(X.tocsc(), "indices", 5, N)
    path = made(kind, obs__short=CODES[:-1], layers__csc=columns, layers__end=changed(X, "indptr", N, 3))
    name = typed.format(path, parent=Path.cwd().name, full=path.resolve())
    if kind.endswith(".h5ad"):
        name = name.rstrip("/")
    shown = Path(name)
    for place, options in {
        "obs/none": {"label": "none"},
        "obs/nothing": {"weight": "nothing"},
        "layers/none": {"matrix": "layers/none"},
        "layers/csc": {"matrix": "layers/csc"},
        "layers/end/indptr": {"matrix": "layers/end"},
        "": {"label": "short"},
    }.items():
        with pytest.raises(DataError) as caught:
            open_store(name, **options)  # type: ignore[arg-type]
        ways = {f"{start}/{place}".rstrip("/") for start in (name.rstrip("/"), shown, path.resolve())}
        assert caught.value.where in ways, caught.value
        assert str(caught.value).count(path.name) - caught.value.hint.count(path.name) == 1


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("damage", [cut, flipped, gone])
def test_chunks(layout: str, codec: str, damage: Callable[[Path], None]) -> None:
    matrix = X.toarray()
    path = formats.written(Path("rows.zarr"), matrix, CODES, np.ones(N), layout=layout, codec=codec)
    store: Any = open_store(path)
    reading = pickle.dumps(store)
    key = "X/c/1/0" if layout == "dense" else "X/data/c/1"
    shutil.copytree(path, "whole.zarr")
    damage(path / key)
    refused(path, key, lambda: everything(store))
    shutil.rmtree(path)
    shutil.copytree("whole.zarr", path)
    store = open_store(path)
    for array in ("obs/label/codes/c/0", "obs/weight/c/0", "X/indptr/c/0"):
        if (path / array).exists():
            damage(path / array)
            refused(path, array, lambda: everything(open_store(path)))
            shutil.copy(Path("whole.zarr") / array, path / array)
    damage(path / "obs/label/codes/c/0")
    refused(path, "obs/label/codes/c/0", lambda: store.labels_between(0, N))
    zarr_rows.reopen.cache_clear()
    damage(path / "obs/zarr.json")
    refused(path, "obs/zarr.json", lambda: open_store(path))
    refused(path, "obs/zarr.json", lambda: pickle.loads(reading))


def test_arrays_that_zarr_decodes() -> None:
    path = formats.foreign(Path("rows.zarr"), X.toarray(), CODES, layout="dense")
    zarr.open_group(path, mode="a").create_array("X", data=X.toarray(), chunks=(16, 4), overwrite=True)
    sealing.seal(path)
    store = open_store(path)
    flipped(path / "X/c/0/0")
    refused(path, "X/c/0/0", lambda: everything(store))


def test_what_the_system_does_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    path = formats.written(Path("rows.zarr"), X.toarray(), CODES, codec="lz4")
    store = open_store(path)

    def failing(number: int) -> Callable[..., Any]:
        def fail(name: Any, *_: Any, **__: Any) -> Any:
            raise OSError(number, os.strerror(number), str(name))

        return fail

    for number, kind in ((errno.EACCES, MissingInput), (errno.EIO, ReadFailed)):
        with monkeypatch.context() as patched:
            patched.setattr(chunked, "read_bytes", failing(number))
            refused(path, "X/indptr/c/0", lambda: store.read(store.refs(N)[0]), kind)
        with monkeypatch.context() as patched:
            patched.setattr(verify, "open", failing(number), raising=False)
            refused(path, "X/data/zarr.json", lambda: verify.verify_store(path), kind)
        with monkeypatch.context() as patched:
            patched.setattr(sealing, "read_bytes", failing(number))
            refused(path, "zarr.json", lambda: sealing.seal(path), kind)
            patched.setattr(Path, "read_bytes", failing(number))
            refused(path, "X/data/zarr.json", lambda: open_store(path), kind)


def test_sealing() -> None:
    path = formats.foreign(Path("rows.zarr"), X.toarray(), CODES)
    for place, damage in (("X/data/c/1", gone), ("X/zarr.json", lambda file: file.write_text("{"))):
        damage(path / place)
        refused(path, place, lambda: sealing.seal(path))
    refused(path, "X/zarr.json", lambda: open_store(path))
    (path / "X/zarr.json").unlink()


@pytest.mark.parametrize("key", ["X/data/c/*", "obs/label/codes/c/*", "obs/zarr.json"])
def test_rows_that_are_added(key: str) -> None:
    path = Path("rows.zarr")
    ingest((X, CODES), path, chunk_bytes=1 << 8)
    last = max(path.glob(key), key=lambda file: (len(file.name), file.name))
    flipped(last)
    refused(path, last.relative_to(path).as_posix(), lambda: ingest((X, CODES), path, append=True))


def test_a_copy_with_predictions() -> None:
    path = formats.written(Path("rows.zarr"), X.toarray(), CODES)
    flipped(path / "X/data/c/0")
    Path("copy.zarr").mkdir()
    refused(path, "X/data/c/0", lambda: next(_into_zarr(path, Path("copy.zarr"), ())))


def test_a_damaged_h5ad() -> None:
    path = made("gzip.h5ad")
    with h5py.File(path) as file:
        where = file["X/data"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[where.byte_offset : where.byte_offset + where.size] = bytes(where.size)
    path.write_bytes(content)
    store: Any = open_store(path)
    refused(path, "X/data", lambda: everything(store))
    path = made("plain.h5ad")
    with h5py.File(path, "a") as file:
        del file["X/indptr"]
    with pytest.raises(DataError) as caught:
        open_store(path)
    assert str(caught.value).count(path.name) == 1


def test_places() -> None:
    for store, where, place in [
        ("a.zarr", "X/data/c/0", "a.zarr/X/data/c/0"),
        ("a.zarr/", "X/data/c/0", "a.zarr/X/data/c/0"),
        ("a.zarr", "a.zarr/X", "a.zarr/X"),
        ("./a.zarr", "a.zarr/X", "a.zarr/X"),
        ("a.zarr", "a.zarr", "a.zarr"),
        ("a.zarr", "a.zarrs/X", "a.zarr/a.zarrs/X"),
        ("a.zarr", "", "a.zarr"),
        ("a.zarr", "/else/X", "/else/X"),
        ("a.zarr", "s3://rows/a.zarr/X", "s3://rows/a.zarr/X"),
    ]:
        assert place_in(store, where) == place
