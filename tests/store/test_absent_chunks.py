"""Chunks that are not there are refused, at the first use as later, unless somebody vouches; damaged manifests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bigsvm.errors import DataError
from bigsvm.run.apply.inspection import inspect_store
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.sealing.manifest import EMPTY, MISSING, STEM, load_manifest, manifest_keys
from bigsvm.store.sealing.seal import load_or_make_manifest, seal
from bigsvm.store.sealing.verify import verify_store
from tests.store import formats

N = 40
X = np.where(np.arange(N * 6).reshape(N, 6) % 5 > 1, np.arange(N * 6).reshape(N, 6), 0).astype(np.float32)
LABELS = np.where(np.arange(N) % 3 > 0, 1.0, -1.0)


def make(folder: Path, version: int, layout: str, weights: bool = True) -> Path:
    """A store with a plain label, a categorical one and weights; nobody has opened or sealed it."""
    path = formats.foreign(
        folder / "s.zarr", X, LABELS, np.ones(N) if weights else None, version=version, layout=layout
    )
    column = zarr.open_group(path, mode="a").create_group("obs/kind", attributes={"encoding-type": "categorical"})
    for name, values in (("codes", (LABELS > 0).astype(np.int8)), ("categories", np.array([3, 7]))):
        column.create_array(name, data=values, chunks=(16,), config={"write_empty_chunks": True})
    return path


def use(path: Path, label: str | None = None, **options: Any) -> list[Any]:
    store = open_store(path, label=label, **options)
    return [store.read(ref) for ref in store.refs(9)] if store.classes is not None else []


def chunk(path: Path, array: str) -> Path:
    """The file of the last chunk of an array: others are there."""
    files = [file for file in (path / array).rglob("*") if file.is_file() and not file.name.startswith((".z", "zarr"))]
    return sorted(files)[-1]


PARTS = [
    ("csr", "X/data", None), ("csr", "X/indices", None), ("csr", "X/indptr", None), ("dense", "X", None),
    ("csr", "obs/label", None), ("dense", "obs/kind/codes", "kind"), ("dense", "obs/kind/categories", "kind"),
    ("csr", "obs/weight", None),
]  # fmt: skip


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("layout", "array", "label"), PARTS)
def test_a_chunk_missing_at_the_first_use_is_refused(
    version: int, layout: str, array: str, label: str | None, tmp_path: Path
) -> None:
    path = make(tmp_path, version, layout)
    gone = chunk(path, array)
    key = str(gone.relative_to(path))
    gone.unlink()
    for _ in range(2):  # the second time there is a side manifest
        with pytest.raises(DataError, match=f"{key}: chunk is missing.*--empty-chunks zeros") as caught:
            use(path, label)
        assert caught.value.code == 65
    with pytest.raises(DataError, match=key):
        ingest(path, tmp_path / "out.zarr", label=label)
    if label is None:
        with pytest.raises(DataError, match=key):
            seal(path)
        assert not (path / f"{STEM}.json").exists()
    else:  # any array may be a label: it is listed as missing, and refused where it is read
        assert seal(path).n_missing == 1
        assert dict(manifest_keys(path))[key] == MISSING
        assert verify_store(path)["n_missing"] == 1
        with pytest.raises(DataError, match=f"{key}: chunk is missing"):
            use(path, label)


def test_what_is_not_used_may_be_missing(tmp_path: Path) -> None:
    path = make(tmp_path, 3, "dense")
    shutil.rmtree(path / "obs/kind/codes/c")
    assert use(path)
    store = open_store(path, label="kind", labelled=False)  # for prediction
    assert store.read(store.refs(N)[0]).sample_weight is None


def test_all_of_x_gone_is_said_with_the_count(tmp_path: Path) -> None:
    path = make(tmp_path, 3, "dense")
    shutil.rmtree(path / "X/c")
    with pytest.raises(DataError, match="X/c/0/0: chunk is missing, and 2 more of the 3 of its array"):
        use(path)


@pytest.mark.parametrize("version", [2, 3])
def test_what_zarr_leaves_out_is_vouched_for(version: int, tmp_path: Path) -> None:
    """Zeros in whole chunks of X and of the labels, by zarr's own default."""
    values, labels = X.copy(), np.where(np.arange(N) < 16, 0.0, 1.0)
    values[16:32] = 0
    left_out = {"write_empty_chunks": False}
    path = formats.foreign(tmp_path / "s.zarr", values, labels, version=version, layout="dense", config=left_out)
    with pytest.raises(DataError, match="--empty-chunks zeros"):
        use(path)
    store = open_store(path, empty_chunks="zeros")
    assert {array: "absent" in what for array, what in store.empty_chunks.items()} == {"X": True, "obs/label": True}
    assert sum("read as the fill value" in warning for warning in store.warnings) == 2
    blocks = [store.read(ref) for ref in store.refs(9)]
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), values)
    np.testing.assert_array_equal(store.classes[np.concatenate([block.y for block in blocks])], labels)
    assert inspect_store(store)["empty_chunks"] == store.empty_chunks
    again = open_store(path)  # remembered, and said again
    assert again.fingerprint == store.fingerprint
    assert len(again.warnings) == 2
    chunk(path, "X").touch()  # nothing but its status is another one
    assert len(open_store(path).empty_chunks) == 2
    zarr.open_array(path / "X", mode="a")[0] = 7  # another state of the store: nobody has vouched for that
    with pytest.raises(DataError, match="--empty-chunks zeros"):
        use(path)
    with pytest.raises(DataError, match="--empty-chunks zeros"):
        seal(path)
    manifest = seal(path, "zeros")
    assert (manifest.n_empty, manifest.n_missing) == (2, 0)
    assert verify_store(path)["n_empty"] == 2
    assert seal(path).fingerprint == manifest.fingerprint  # what is sealed as empty stays so
    store = open_store(path)
    assert len(store.empty_chunks) == 2
    assert not store.warnings
    ingest(path, tmp_path / "out.zarr")
    assert not load_manifest(tmp_path / "out.zarr").n_empty


def test_our_own_stores_have_every_chunk(tmp_path: Path) -> None:
    zeros = np.zeros_like(X)
    zeros[0, 0] = 1
    for layout in ("csr", "dense"):
        path = formats.written(tmp_path / layout, zeros, np.where(np.arange(N) < 39, 0, 1), np.zeros(N), layout=layout)
        assert not load_manifest(path).n_empty
        for file in path.glob(f"{STEM}*"):
            file.unlink()
        assert use(path)
        assert not seal(path).n_missing


def test_an_older_seal_stays_valid(tmp_path: Path) -> None:
    path = make(tmp_path, 3, "dense")
    gone = chunk(path, "X")
    gone.unlink()
    manifest = seal(path, "zeros")
    document = json.loads((path / f"{STEM}.json").read_text())
    del document["manifest_digest"]  # which older versions did not write
    (path / f"{STEM}.json").write_text(json.dumps(document))
    assert load_manifest(path).fingerprint == manifest.fingerprint
    assert manifest.lookup(str(gone.relative_to(path))) == EMPTY
    assert use(path)


@pytest.mark.parametrize("change", ["layout", "chunks", "shape"])
def test_a_store_written_anew_is_another_store(change: str, tmp_path: Path) -> None:
    path = make(tmp_path, 3, "dense")
    first = open_store(path).fingerprint
    shutil.rmtree(path)
    options: dict[str, Any] = {"layout": {"layout": "csr"}, "chunks": {"layout": "dense", "chunk": 30},
                               "shape": {"layout": "dense"}}[change]  # fmt: skip
    rows = 20 if change == "shape" else N
    formats.foreign(path, X[:rows], LABELS[:rows], **options)
    assert open_store(path).fingerprint != first


def test_a_store_with_other_values_in_fewer_chunks_is_another_store(tmp_path: Path) -> None:
    """The same metadata, other values, and a chunk of zeros that zarr left out."""
    path = make(tmp_path, 3, "dense")
    use(path)
    values = X + 1
    values[:16] = 0
    array = zarr.open_array(path / "X", mode="a", config={"write_empty_chunks": False})
    array[:] = values
    assert not (path / "X/c/0/0").exists()
    with pytest.raises(DataError, match=r"X/c/0/0: chunk is missing .*--empty-chunks zeros"):
        use(path)
    store = open_store(path, empty_chunks="zeros")
    np.testing.assert_array_equal(store.read(store.refs(N)[0]).X, values)


@pytest.mark.parametrize("empty_chunks", ["refuse", "zeros"])
@pytest.mark.parametrize(("layout", "array", "label"), PARTS)
def test_a_chunk_lost_since_the_last_use_is_refused(
    layout: str, array: str, label: str | None, empty_chunks: Any, tmp_path: Path
) -> None:
    path = make(tmp_path, 3, layout)
    use(path, label, empty_chunks=empty_chunks)
    chunk(path, array).unlink()
    for _ in range(2):
        with pytest.raises(DataError, match="was there when the store was last used"):
            use(path, label, empty_chunks=empty_chunks)


def test_every_harm_to_a_manifest_is_laid_to_the_manifest(tmp_path: Path) -> None:
    """Every byte of it: the digest that it carries is its own."""
    path = make(tmp_path, 3, "csr", weights=False)
    seal(path)
    file = path / f"{STEM}.json"
    content = file.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(content), 400, replace=False).tolist():
        file.write_bytes(content[:place] + bytes([content[place] ^ 1 << int(rng.integers(8))]) + content[place + 1 :])
        with pytest.raises(DataError) as caught:
            load_or_make_manifest(path)
        assert caught.value.where == str(file)
        assert "manifest" in caught.value.what
    file.write_bytes(content)
    use(path)
