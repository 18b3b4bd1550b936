"""Stores by other hands: AnnData's older encodings, odd orders, and what is refused."""

from __future__ import annotations

import json
import pickle
import shutil
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, ReadFailed
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.testing.contracts import dense, example
from tests.products import pairs_of
from tests.store import formats

X, LABELS = example()


@pytest.fixture
def anndata_0_7(real_data, tmp_path: Path) -> Path:
    """A store as AnnData 0.7.8 wrote it."""
    archive = Path(real_data.__file__).parent / "foreign" / "anndata_v0.7.8.zarr.zip"
    if not archive.exists():
        pytest.skip("not here")
    zipfile.ZipFile(archive).extractall(tmp_path / "old.zarr")
    return tmp_path / "old.zarr"


def test_anndata_0_7_categories_and_numbers(anndata_0_7: Path) -> None:
    store = ZarrRows(anndata_0_7, label="obs_cat")
    group = zarr.open_group(anndata_0_7, mode="r")
    codes = group["obs/obs_cat"][:]
    names = np.array(group["obs/__categories/obs_cat"][:].tolist())
    assert (store.n_samples, store.n_features) == (30, 20)
    assert set(store.classes) == set(names[codes])
    blocks = [store.read(ref) for ref in store.refs(7)]
    np.testing.assert_array_equal(store.classes[np.concatenate([b.y for b in blocks])], names[codes])
    matrix = CSR(group["X/data"][:], group["X/indices"][:], group["X/indptr"][:])
    np.testing.assert_array_equal(np.concatenate([dense(b.X, 20) for b in blocks]), dense(matrix, 20))
    assert ZarrRows(anndata_0_7, label="obs/int64", weight="uint8").has_weights
    assert ZarrRows(anndata_0_7, label="float64").n_samples == 30
    with pytest.raises(DataError, match="obs_cat, cat_ordered, int64"):
        ZarrRows(anndata_0_7)


def test_anndata_0_7_matrices_and_names(anndata_0_7: Path) -> None:
    group = zarr.open_group(anndata_0_7, mode="r")
    for matrix, width in (("layers/sparse", 20), ("layers/array", 20), ("raw/X", 40), ("obsm/array", 50)):
        store = ZarrRows(anndata_0_7, label="obs_cat", matrix=matrix)
        assert (store.n_samples, store.n_features) == (30, width)
        found = np.concatenate([dense(store.read(ref).X, width) for ref in store.refs(7)])
        if matrix.endswith("array"):
            np.testing.assert_array_equal(found, group[matrix][:])
        else:
            assert found.sum() == pytest.approx(group[f"{matrix}/data"][:].sum())
        names = None if matrix.startswith("obsm") else [f"gene{j}" for j in range(width)]
        assert store.feature_names == names


def test_only_classes_that_occur_count(tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", X, LABELS)
    group = zarr.open_group(path, mode="a")
    codes, categories = group["obs/label/codes"][:], group["obs/label/categories"][:]
    del group["obs/label/categories"], group["obs/label/codes"]
    # Unordered, and two that nobody has.
    group.create_array("obs/label/categories", data=np.array([9, 4, 1, 0, -1]))
    shuffled = np.array([4, 2, 1])[codes].astype(np.int16)
    group.create_array("obs/label/codes", data=shuffled)
    (path / "bigsvm-manifest.json").unlink()
    store = ZarrRows(path)
    assert store.classes.tolist() == [-1, 1, 4]
    y = np.concatenate([store.read(ref).y for ref in store.refs(10)])
    np.testing.assert_array_equal(store.classes[y], categories[codes])
    for row, code in ((31, -1), (8, 5)):
        bad = shuffled.copy()
        bad[row] = code
        group["obs/label/codes"][:] = bad
        with pytest.raises(DataError, match=f"row {row} "):
            _ = ZarrRows(path).classes


def test_big_endian_and_unsorted_and_double(tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X.astype(">f8"), LABELS, version=2, layout="dense", compressors=None)
    store = ZarrRows(path)
    assert not store.raw
    assert store.dtype == np.float64
    np.testing.assert_array_equal(store.read(store.refs(100)[0]).X, X)
    path = formats.foreign(tmp_path / "u.zarr", X, LABELS)
    inner = zarr.open_group(path, mode="a")["X"]
    indptr = inner["indptr"][:]
    for name in ("data", "indices"):
        values = inner[name][:]
        for i in range(len(X)):
            values[indptr[i] : indptr[i + 1]] = values[indptr[i] : indptr[i + 1]][::-1]
        inner[name][:] = values
    store = ZarrRows(path)
    np.testing.assert_array_equal(dense(store.read(store.refs(100)[0]).X, X.shape[1]), X)


@pytest.mark.parametrize(
    ("array", "place", "value", "message"),
    [
        ("indices", 9, 11, "has index 11"),
        ("indices", 9, -1, "has index -1"),
        ("indptr", 5, 100_000, "X/indptr|leads out|indptr"),
        ("indptr", 5, 0, "indptr"),
        ("indptr", 0, 1, "indptr"),
        ("indptr", len(X), 3, "indptr"),
    ],
)
def test_inconsistent_rows_are_refused(array: str, place: int, value: int, message: str, tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS)
    zarr.open_group(path, mode="a")[f"X/{array}"][place] = value
    for block_rows in (1, 4, 100):
        with pytest.raises(DataError, match=message):
            read_all(path, block_rows)


def read_all(path: Path, block_rows: int) -> None:
    store = ZarrRows(path)
    for ref in store.refs(block_rows):
        store.read(ref)


def replace(path: Path, key: str, data: np.ndarray, **options: object) -> None:
    options.setdefault("config", {"write_empty_chunks": True})
    zarr.open_group(path, mode="a").create_array(key, data=data, overwrite=True, **options)


@pytest.mark.parametrize(
    ("key", "data", "message"),
    [
        ("X", np.zeros(5), "dimensions"),
        ("X", np.zeros((53, 2), complex), "complex"),
        ("X/indptr", np.zeros(5, int), "row pointers"),
        ("X/indices", np.ones(5, int), "values"),
        ("X/indices", np.ones(5), "values|type"),
        ("obs/label", np.zeros(5), "5 labels"),
        ("obs/label", np.zeros((53, 1)), "one dimension"),
        ("obs/label", np.full(53, np.nan), "row 0"),
        ("obs/weight", np.ones(5), "weights"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(key: str, data: np.ndarray, message: str, tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS)
    replace(path, key, data)
    with pytest.raises(DataError, match=message):
        _ = ZarrRows(path).classes


def test_codecs_that_may_run_anything_are_refused_by_name(tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS, version=2)
    document = path / "X/data/.zarray"
    text = document.read_text()
    assert '"filters": null' in text
    for codec in ("pickle", "json2", "msgpack2"):
        document.write_text(text.replace('"filters": null', f'"filters": [{{"id": "{codec}"}}]'))
        with pytest.raises(DataError, match=codec):
            ZarrRows(path)


CODECS: list[dict | None] = [
    {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 2}, {"id": "zstd", "level": 3},
    {"id": "lz4", "acceleration": 1}, {"id": "gzip", "level": 1}, {"id": "zlib", "level": 1}, {"id": "bz2", "level": 1},
    None,
]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_chunks_that_were_bad_when_sealed_are_refused_by_their_decoder(codec: dict | None, tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS, version=2, compressors=codec)
    read_all(path, 9)
    chunk = path / "X/data/1"
    content = chunk.read_bytes()
    for harm in (
        b"",
        b"\0",
        content[:-3],
        content[: len(content) // 2],
        b"\xff" * len(content),
        content[3:] * 9,
    ):
        chunk.write_bytes(harm)
        with pytest.raises(DataError, match=r"X/data|row "):
            read_all(path, 9)


@pairs_of(
    codec=CODECS,
    name=["X/data", "X/indices", "X/indptr", "obs/label"],
    rows=[1 << 12, 1 << 31, 1 << 32],
    there=[True, False],
)
def test_metadata_that_tell_of_huge_chunks_ask_for_no_memory(
    codec: dict | None, name: str, rows: int, there: bool, tmp_path: Path
) -> None:
    """A chunk that is there has another size, and says so before there is room for it; none is refused as missing."""
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS, version=2, compressors=codec)
    told = json.loads((path / name / ".zarray").read_text())
    (path / name / ".zarray").write_text(json.dumps({**told, "chunks": [rows]}))
    if not there:
        (path / name / "0").unlink()
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            read_all(path, 9)
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


def test_csc_is_refused(tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS)
    zarr.open_group(path, mode="a")["X"].attrs["encoding-type"] = "csc_matrix"
    with pytest.raises(DataError, match="row pointers for 11 rows"):
        ZarrRows(path)


def test_a_store_that_changed_is_not_reopened_by_a_worker(tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", X, LABELS)
    content = pickle.dumps(ZarrRows(path))
    assert pickle.loads(content) is pickle.loads(content)  # one opened store for all tasks of a process
    formats.written(tmp_path / "other.zarr", X, LABELS)
    shutil.rmtree(path)
    formats.written(path, X + 1, LABELS)
    from bigsvm.store.formats.zarr_rows import reopen

    reopen.cache_clear()
    with pytest.raises(DataError, match="changed"):
        pickle.loads(content)


def test_a_failing_device_is_an_io_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ZarrRows(formats.written(tmp_path / "s.zarr", X, LABELS))

    def fails(path: Path) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("bigsvm.store.formats.chunked.read_bytes", fails)
    with pytest.raises(ReadFailed, match="X/") as caught:
        store.read(store.refs(9)[2])
    assert caught.value.code == 74


def test_raw_blocks_are_maps_where_they_can(tmp_path: Path) -> None:
    store = ZarrRows(formats.written(tmp_path / "s.zarr", X, LABELS, codec="none", chunk_bytes=1 << 20))
    first, again = (store.read(store.refs(9)[1]).X for _ in range(2))
    assert np.shares_memory(first.data, again.data)
    assert not first.data.flags.writeable
    assert type(first.data) is np.ndarray


@pytest.mark.parametrize("version", [2, 3])
def test_one_array_alone_is_no_store(version: int, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "X.zarr", data=np.ones((3, 2)), zarr_format=version)
    with pytest.raises(DataError, match="one Zarr array, not a group"):
        open_store(tmp_path / "X.zarr")
