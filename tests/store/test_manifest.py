"""Whatever is done to a sealed store's objects is noticed and named; nothing is ever filled in."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigsvm.errors import DataError, MissingInput
from bigsvm.files.paths import cache_folder
from bigsvm.store.formats import chunked
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.store.sealing import manifest as manifests
from bigsvm.store.sealing.chunk_keys import chunk_keys
from bigsvm.store.sealing.manifest import EMPTY, is_document, load_manifest, manifest_keys, write_manifest
from bigsvm.store.sealing.seal import load_or_make_manifest, seal
from bigsvm.store.sealing.verify import verify_store
from bigsvm.testing.contracts import example
from tests.products import WHOLE
from tests.store import formats

# A zero block, so that a fill value in its place would change nothing that a checksum of values could see.
X, LABELS = example()
X = np.vstack([np.zeros((20, X.shape[1]), np.float32), X])
LABELS = np.concatenate([np.ones(20), LABELS])
WEIGHTS = np.ones(len(X))


def make(folder: Path, kind: str) -> Path:
    path = folder / "s.zarr"
    if kind.startswith("ours"):
        _, layout, codec = kind.split("-")[:3]
        return formats.written(path, X, LABELS, WEIGHTS, layout=layout, codec=codec, chunk_bytes=400)
    _, layout, version = kind.split("-")
    options: dict = {
        "layout": layout,
        "version": int(version),
        "chunk": 30,
        "config": {"write_empty_chunks": True},
    }
    if kind.startswith("shards"):
        options |= {"chunk": 10, "shards": (30,)}
    if kind.startswith("gzip"):
        options["compressors"] = ({"name": "gzip", "configuration": {"level": 1}},)
    formats.foreign(path, X, LABELS, WEIGHTS, **options)
    seal(path)
    return path


def read_all(path: Path) -> None:
    store = ZarrRows(path)
    assert store.classes is not None
    for ref in store.refs(25):
        store.read(ref)


def used_keys(path: Path) -> list[str]:
    """Objects that a fit reads; index names are not among them."""
    found = [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()]
    return sorted(key for key in found if not key.startswith((manifests.STEM, "obs/_index", "var/")))


KINDS = [
    "ours-csr-lz4",
    "ours-dense-zstd",
    "ours-csr-none",
    "ours-dense-none",
    "ours-csr-none-large",  # chunks so small are read otherwise
    "ours-dense-none-large",
    "foreign-csr-2",
    "foreign-dense-3",
    "shards-csr-3",  # this and the next go through zarr
    "gzip-dense-3",
]


HARMS = ["flip", "truncate", "empty", "lengthen", "delete", "swap", "copy"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("harm", HARMS)
def test_any_harm_to_any_object_is_named(kind: str, harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind.endswith("large"):
        monkeypatch.setattr(chunked, "_SMALL_BYTES", 0)
    path = make(tmp_path, kind)
    read_all(path)
    keys = used_keys(path)
    assert len(keys) > 12
    rng = np.random.default_rng(0)
    # Of each kind of store every object meets one harm or two, and all of them on request.
    for key in keys if WHOLE else keys[HARMS.index(harm) % 5 :: 5]:
        file = path / key
        content = file.read_bytes()
        others = [k for k in keys if is_document(k) == is_document(key) and (path / k).read_bytes() != content]
        assert others
        other = path / others[int(rng.integers(len(others)))]
        saved = other.read_bytes()
        if harm == "flip":
            place = int(rng.integers(len(content)))
            file.write_bytes(
                content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :]
            )
        elif harm == "truncate":
            file.write_bytes(content[: int(rng.integers(len(content)))])
        elif harm == "empty":
            file.write_bytes(b"")
        elif harm == "lengthen":
            file.write_bytes(content + b"\0")
        elif harm == "delete":
            file.unlink()
        else:
            file.write_bytes(saved)
            if harm == "swap":
                other.write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_all(path)
        assert caught.value.code == 65
        named = {key, str(other.relative_to(path))} if harm == "swap" else {key}
        assert any(name in str(caught.value) for name in named), (key, str(caught.value))
        file.write_bytes(content)
        other.write_bytes(saved)
    read_all(path)


@pytest.mark.parametrize("version", [2, 3])
def test_a_chunk_or_document_that_appears_is_refused(version: int, tmp_path: Path) -> None:
    default = {"write_empty_chunks": False}
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS, layout="dense", version=version, config=default)
    seal(path, "zeros")
    key = "X/0.0" if version == 2 else "X/c/0/0"
    assert not (path / key).exists()  # zarr leaves zeros out
    assert dict(manifest_keys(path))[key] == EMPTY
    store = ZarrRows(path)
    np.testing.assert_array_equal(store.read(store.refs(5)[0]).X, 0)
    (path / key).parent.mkdir(exist_ok=True)
    shutil.copy(path / key.replace("0", "1", 1), path / key)
    with pytest.raises(DataError, match=key):
        read_all(path)
    (path / key).unlink()
    stranger = path / ".zgroup" if version == 3 else path / "zarr.json"
    stranger.write_text('{"zarr_format": 2}' if version == 3 else '{"zarr_format": 3, "node_type": "group"}')
    if version == 2:  # version 3 is asked for first
        with pytest.raises(DataError, match=r"zarr\.json"):
            read_all(path)


@pytest.mark.parametrize("kind", ["ours-csr-lz4", "ours-dense-none", "foreign-csr-2", "foreign-dense-3"])
def test_what_was_added_after_the_sealing_is_named_where_it_would_be_read(kind: str, tmp_path: Path) -> None:
    path = make(tmp_path, kind)
    seal(path)
    (path / "notes.txt").write_text("of nobody's interest")
    assert verify_store(path)["unlisted"] == []
    if (path / "obs/weight").exists():
        shutil.rmtree(path / "obs/weight")
        seal(path)
    weights = {"data": np.ones(len(LABELS)), "chunks": (8,)}
    zarr.open_group(path, mode="a", use_consolidated=False).create_array("obs/weight", **weights)
    with pytest.raises(DataError, match="obs/weight"):
        read_all(path)
    found = verify_store(path)
    assert found["n_bad"] == 0
    assert {key.rpartition("/")[0] for key in found["unlisted"]} == {"obs/weight"}
    seal(path)
    read_all(path)
    assert verify_store(path)["unlisted"] == []


def test_a_chunk_the_manifest_does_not_know_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path, "ours-csr-lz4")
    main = json.loads((path / "bigsvm-manifest.json").read_text())
    del main["chunks"]["X/data/c/1"]
    main["n_chunks"] -= 1
    del main["manifest_digest"]  # as older versions wrote it
    (path / "bigsvm-manifest.json").write_text(json.dumps(main))
    with pytest.raises(DataError, match="X/data/c/1"):
        read_all(path)


@pytest.mark.parametrize("kind", ["ours-csr-lz4", "ours-csr-none", "ours-csr-none-large"])
def test_a_link_within_the_store_is_a_chunk(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind.endswith("large"):
        monkeypatch.setattr(chunked, "_SMALL_BYTES", 0)
    path = make(tmp_path, kind)
    (path / "X/data/c/0").rename(path / "X/elsewhere")
    (path / "X/data/c/0").symlink_to(path / "X/elsewhere")
    read_all(path)


@pytest.mark.parametrize("kind", ["ours-csr-lz4", "ours-csr-none", "ours-csr-none-large"])
@pytest.mark.parametrize("of", ["X/data/c/0", "X/data/c"])
def test_links_out_of_the_store_are_not_followed(
    of: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind.endswith("large"):
        monkeypatch.setattr(chunked, "_SMALL_BYTES", 0)
    path = make(tmp_path, kind)
    outside = tmp_path / "outside"
    (path / of).rename(outside)
    (path / of).symlink_to(outside)
    with pytest.raises(DataError, match="X/data/c/0"):
        read_all(path)
    (path / "bigsvm-manifest.json").unlink()
    with pytest.raises(DataError, match="X/data/c/0"):
        read_all(path)


def test_a_damaged_manifest_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "PART_CHUNKS", 5)
    path = make(tmp_path, "ours-csr-lz4")
    parts = sorted(path.glob("bigsvm-manifest*"))
    assert len(parts) > 3
    for part in parts:
        content = part.read_bytes()
        harms = [
            b"", content[:-1], content.replace(b'"', b"'", 1), content.replace(b"0", b"1"), b"[]",
            b"[" * 10**6,
        ]  # fmt: skip
        for harm in harms:
            part.write_bytes(harm)
            with pytest.raises(DataError):
                read_all(path)
        part.write_bytes(content)
    (path / "bigsvm-manifest.json").rename(tmp_path / "aside")
    with pytest.raises(DataError, match="manifest is missing"):
        read_all(path)
    (tmp_path / "aside").rename(path / "bigsvm-manifest.json")
    parts[0].unlink()
    with pytest.raises(DataError, match=parts[0].name):
        read_all(path)


def test_parts_hold_what_one_file_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [(f"a/c/{i}", manifests.digest(f"a/c/{i}", b"x")) for i in range(25)] + [("a/c/25", EMPTY)]
    monkeypatch.setattr(manifests, "PART_CHUNKS", 7)
    made = write_manifest(tmp_path, {"zarr.json": "0" * 32}, entries, {"n_samples": 3})
    assert len(list(tmp_path.glob("bigsvm-manifest-*.json"))) == 4
    again = load_manifest(tmp_path)
    assert again.fingerprint == made.fingerprint
    for manifest in (made, again):
        assert [manifest.lookup(key) for key, _ in entries] == [value for _, value in entries]
        assert manifest.lookup("a/c/26") is None
        assert manifest.content == {"n_samples": 3}
    assert dict(manifest_keys(tmp_path)) == dict(entries)


def test_sealing_again_gives_the_writers_fingerprint(tmp_path: Path) -> None:
    for kind in ("ours-csr-lz4", "ours-dense-none"):
        path = make(tmp_path / kind, kind)
        written = load_manifest(path).fingerprint
        assert seal(path).fingerprint == written
    strings = formats.written(tmp_path / "strings.zarr", X, LABELS.astype(str))
    written = load_manifest(strings).fingerprint
    assert seal(strings).fingerprint == written


def test_an_unsealed_store_gets_a_side_manifest_once(tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS)
    first = ZarrRows(path)
    assert "bigsvm seal" in first.warnings[0]
    assert not list(path.glob("bigsvm*"))
    second = ZarrRows(path)
    assert not second.warnings
    assert second.fingerprint == first.fingerprint
    # Changed on purpose: another store, with a warning; a reader that was open notices.
    group = zarr.open_group(path, mode="a")
    group["X/data"][:] = group["X/data"][:] * 2
    third = ZarrRows(path)
    assert third.warnings
    assert third.fingerprint != first.fingerprint
    with pytest.raises(DataError, match="X/data/c/"):
        first.read(first.refs(len(X))[0])


@pytest.mark.parametrize("later", [1, 0], ids=["later", "with the former time"])
def test_a_store_rewritten_at_the_same_size_is_another_one(later: int, tmp_path: Path) -> None:
    """Its time may be the former one, after `rsync --inplace -t`, `cp -p` or `touch -r`."""
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS)
    first, made = load_or_make_manifest(path)
    assert made
    file = path / "X/data/c/1"
    content, status = file.read_bytes(), file.stat()
    file.write_bytes(content[::-1])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + later))
    second, made = load_or_make_manifest(path)
    assert made
    assert second.fingerprint != first.fingerprint


def test_digests_of_files_that_were_just_written_wait_for_the_next_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change within the same tick of the file system's clock would leave the times as they are."""
    quiet, busy = (formats.foreign(tmp_path / name, X, LABELS) for name in ("quiet.zarr", "busy.zarr"))
    waits = list[float]()
    monkeypatch.setattr("bigsvm.store.sealing.seal.time.sleep", waits.append)
    for path, files, at in ((quiet, "*", 1), (busy, "*", 1), (busy, "zarr.json", 2)):
        for file in path.rglob(files):
            os.utime(file, ns=(1, at))
    monkeypatch.setattr("bigsvm.store.sealing.seal.newest_of", lambda status: status.st_mtime_ns)
    monkeypatch.setattr("bigsvm.store.sealing.seal.times_are_past", lambda newest: newest < 2)
    load_or_make_manifest(quiet)
    assert waits == []
    load_or_make_manifest(busy)
    assert len(waits) == 1


def test_damage_that_no_status_shows_is_found_by_the_side_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS)
    monkeypatch.setattr("bigsvm.store.sealing.seal.files_stat", lambda *_, **__: "the former status")
    read_all(path)
    file = path / "X/data/c/1"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="X/data/c/1: chunk is damaged"):
        read_all(path)


def test_a_damaged_side_manifest_is_made_again(tmp_path: Path) -> None:
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS)
    manifest, made = load_or_make_manifest(path)
    assert made
    (side,) = (cache_folder() / "manifests").iterdir()
    side.write_text("nonsense")
    again, made = load_or_make_manifest(path)
    assert made
    assert again.fingerprint == manifest.fingerprint
    assert load_or_make_manifest(path)[1] is False


def test_no_store_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        ZarrRows(tmp_path / "none.zarr")
    (tmp_path / "folder").mkdir()
    with pytest.raises(MissingInput):
        ZarrRows(tmp_path / "folder")


@pytest.mark.parametrize(
    "metadata",
    [
        {"node_type": "array"},
        {"shape": [3]},
        {"shape": [3], "chunks": [2, 2]},
        {"shape": [-1], "chunks": [2]},
        {"shape": [2**62], "chunks": [1]},
        {"shape": [3], "chunks": [1], "dimension_separator": "../"},
        {"shape": [True], "chunks": [1]},
        {"shape": ["3"], "chunks": [1]},
        {"shape": None, "chunks": None},
    ],
)
def test_array_metadata_that_makes_no_sense_is_refused(metadata: dict) -> None:
    with pytest.raises(DataError):
        list(chunk_keys("X", metadata))


def test_chunks_of_several_sizes_are_named() -> None:
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[2, 3]]}}
    with pytest.raises(DataError, match="chunks in a rectilinear grid are not read"):
        list(chunk_keys("X", {"node_type": "array", "shape": [5], "chunk_grid": grid}))


def test_chunk_keys() -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 5]}}
    array: dict = {"node_type": "array", "shape": [3, 11], "chunk_grid": grid}
    array["chunk_key_encoding"] = {"name": "default"}
    assert list(chunk_keys("X", array)) == [f"X/c/{i}/{j}" for i in range(2) for j in range(3)]
    array["chunk_key_encoding"] = {"name": "v2"}
    assert list(chunk_keys("", array)) == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert list(chunk_keys("a", {"shape": [], "chunks": []})) == ["a/0"]
    assert list(chunk_keys("a", {"shape": [0], "chunks": [1]})) == []


def test_nonsense_in_a_document_is_refused(tmp_path: Path) -> None:
    """In any document of a store that was never sealed: one of our errors, never another."""
    path = formats.foreign(tmp_path / "s.zarr", X, LABELS, WEIGHTS)
    documents = [key for key in used_keys(path) if is_document(key)]
    refused = 0
    for key in documents:
        content = (path / key).read_text()
        harms = [
            "", "{}", "[]", '{"zarr_format": 3}', content.replace("3", "4"), content.replace("[", "[7,"),
            content.replace("bytes", "numcodecs.pickle"), content.replace("float", "object"), "\udcff",
        ]  # fmt: skip
        for harm in harms:
            (path / key).write_text(harm, errors="surrogateescape")
            try:
                read_all(path)
            except (DataError, MissingInput):
                refused += 1
        (path / key).write_text(content)
    assert refused > len(documents) * 5


def test_sealing_keeps_what_is_known_of_the_content_while_it_is_that_content(tmp_path: Path) -> None:
    X, labels = np.arange(60.0, dtype=np.float32).reshape(20, 3), np.arange(20) % 2
    path = formats.written(tmp_path / "s.zarr", X, labels, codec="none", layout="dense")
    known = load_manifest(path).content
    assert known["content_fingerprint"]
    assert seal(path).content == known
    chunk = next(file for file in sorted((path / "X" / "c").rglob("*")) if file.is_file())
    content = bytearray(chunk.read_bytes())
    content[-2] ^= 1
    chunk.write_bytes(content)
    again = seal(path)
    assert again.content == {}
    assert load_manifest(path).fingerprint == again.fingerprint != ""
    assert ZarrRows(path).content_fingerprint is None
