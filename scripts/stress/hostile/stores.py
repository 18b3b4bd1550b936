"""Stores that want to do harm."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import zarr
import zstandard

from hostile.cases import Case, Payload, codec, edit, link, pipe, put, set_in, values

BOMB = 4 << 30


def old_store(root: Path, **changes: Any) -> None:
    """A store of Zarr 2 in its place, with changes to the metadata of X/data."""
    shutil.rmtree(root)
    group = zarr.open_group(root, mode="w", zarr_format=2)
    group.create_array("X", data=np.ones((20, 3), np.float32), compressors=None)
    group.create_array("obs/label", data=np.arange(20) % 2, compressors=None)
    document = json.loads((root / "X/.zarray").read_text())
    document.update(changes)
    (root / "X/.zarray").write_text(json.dumps(document))


def object_chunks(root: Path, **changes: Any) -> None:
    """Chunks that are pickles."""
    old_store(root, dtype="|O", **changes)
    for path in (root / "X").glob("[0-9]*"):
        path.write_bytes(pickle.dumps(np.array([Payload()] * 60, object)))


def zstd_bomb() -> bytes:
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    piece = bytes(1 << 24)
    return b"".join([compressor.compress(piece) for _ in range(BOMB >> 24)]) + compressor.flush()


def deflate_bomb(wbits: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, wbits)
    piece = bytes(1 << 24)
    return b"".join([compressor.compress(piece) for _ in range(64)]) + compressor.flush()


DATA, INDICES, INDPTR, GROUP, CODES = "X/data", "X/indices", "X/indptr", "X/zarr.json", "obs/label/codes"
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}


def deep(document: dict[str, Any]) -> None:
    inner: Any = 1
    for _ in range(900):
        inner = [inner]
    document["attributes"]["deep"] = inner


STORES: dict[str, Case] = {
    "shape 2^62": set_in(f"{DATA}/zarr.json", "shape", [1 << 62]),
    "shape 2^70": set_in(f"{DATA}/zarr.json", "shape", [1 << 70]),
    "shape -1": set_in(f"{DATA}/zarr.json", "shape", [-1]),
    "shape 1.5": set_in(f"{DATA}/zarr.json", "shape", [1.5]),
    "shape true": set_in(f"{DATA}/zarr.json", "shape", [True]),
    "shape text": set_in(f"{DATA}/zarr.json", "shape", "many"),
    "shape of 1000 axes": set_in(f"{DATA}/zarr.json", "shape", [2] * 1000),
    "no shape": set_in(f"{DATA}/zarr.json", "shape", []),
    "chunk 0": set_in(f"{DATA}/zarr.json", "chunk_grid", "configuration", "chunk_shape", [0]),
    "chunk 2^50": set_in(f"{DATA}/zarr.json", "chunk_grid", "configuration", "chunk_shape", [1 << 50]),
    "chunk -5": set_in(f"{DATA}/zarr.json", "chunk_grid", "configuration", "chunk_shape", [-5]),
    "irregular grid": set_in(f"{DATA}/zarr.json", "chunk_grid", "name", "irregular"),
    "group of 2^62 rows": set_in(GROUP, "attributes", "shape", [1 << 62, 40]),
    "group of 2^40 features": set_in(GROUP, "attributes", "shape", [300, 1 << 40]),
    "group without shape": edit(GROUP, lambda d: d["attributes"].pop("shape") and None),
    "group of another kind": set_in(GROUP, "attributes", "encoding-type", "csc_matrix"),
    "dtype of names": set_in(f"{DATA}/zarr.json", "data_type", "string"),
    "dtype of bits": set_in(f"{DATA}/zarr.json", "data_type", "r4096"),
    "dtype unknown": set_in(f"{DATA}/zarr.json", "data_type", "object"),
    "dtype with a name of its own": set_in(
        f"{DATA}/zarr.json", "data_type", {"name": "numpy.datetime64", "configuration": {}}
    ),
    "codec unknown": set_in(f"{DATA}/zarr.json", "codecs", [{"name": "pickle"}]),
    "codec of numcodecs": set_in(
        f"{DATA}/zarr.json", "codecs", [{"name": "bytes"}, {"name": "numcodecs.pickle", "configuration": {}}]
    ),
    "no codecs": set_in(f"{DATA}/zarr.json", "codecs", []),
    "a thousand codecs": set_in(f"{DATA}/zarr.json", "codecs", [{"name": "bytes"}] * 1000),
    "storage transformer": set_in(f"{DATA}/zarr.json", "storage_transformers", [{"name": "x"}]),
    "key encoding": set_in(f"{DATA}/zarr.json", "chunk_key_encoding", "configuration", "separator", "/../"),
    "must understand": set_in(f"{DATA}/zarr.json", "evil", {"must_understand": True}),
    "format 4": set_in(f"{DATA}/zarr.json", "zarr_format", 4),
    "node of another kind": set_in(f"{DATA}/zarr.json", "node_type", "group"),
    "fill value nan, chunks gone": lambda root: (
        set_in(f"{DATA}/zarr.json", "fill_value", "NaN")(root),
        shutil.rmtree(root / DATA / "c"),
    )[0],
    "fill value of text": set_in(f"{DATA}/zarr.json", "fill_value", "x" * 100),
    "metadata not JSON": put(f"{DATA}/zarr.json", b"{"),
    "metadata empty": put(f"{DATA}/zarr.json", b""),
    "metadata a list": put(f"{DATA}/zarr.json", b"[]"),
    "metadata not UTF-8": put(f"{DATA}/zarr.json", b"\xff\xfe\x00{"),
    "metadata of 100000 levels": put(f"{DATA}/zarr.json", b"[" * 100_000),
    "metadata of 900 levels": edit(GROUP, deep),
    "attributes of 200 MB": lambda root: put(
        "zarr.json", b'{"zarr_format":3,"node_type":"group","attributes":{"a":"' + b"x" * 200_000_000 + b'"}}'
    )(root),
    "metadata a pipe": pipe(f"{DATA}/zarr.json"),
    "root a pipe": pipe("zarr.json"),
    "chunk a pipe": pipe(f"{DATA}/c/0"),
    "metadata /dev/zero": link(f"{DATA}/zarr.json", "/dev/zero"),
    "chunk /dev/zero": link(f"{DATA}/c/0", "/dev/zero"),
    "chunk a file outside": link(f"{DATA}/c/0", "/etc/passwd"),
    "chunk a link to itself": link(f"{DATA}/c/0", "0"),
    "manifest /dev/zero": link("bigsvm-manifest.json", "/dev/zero"),
    "manifest a pipe": pipe("bigsvm-manifest.json"),
    "manifest names a file outside": edit("bigsvm-manifest.json", lambda d: d["chunks"].update({"../../x": "0" * 32})),
    "manifest names everything twice": edit(
        "bigsvm-manifest.json", lambda d: d.update(chunks={k.upper(): v for k, v in d["chunks"].items()})
    ),
    "zstd bomb": lambda root: codec(DATA, zstd_bomb(), ZSTD)(root),
    "gzip bomb": lambda root: codec(DATA, deflate_bomb(31), GZIP)(root),
    "blosc that says 4 GB": codec(
        DATA, bytes([2, 1, 0, 4]) + (0xFFFFFF00).to_bytes(4, "little") * 2 + (64).to_bytes(4, "little") + bytes(48),
        {"name": "blosc", "configuration": {"typesize": 4, "cname": "lz4", "clevel": 5, "shuffle": "noshuffle",
                                            "blocksize": 0}},
    ),
    "gzip that is short": codec(DATA, gzip.compress(b"abc"), GZIP),
    "row ends run backwards": values(INDPTR, lambda a: np.flip(a)),
    "row ends beyond the data": values(INDPTR, lambda a: a * 1_000_000),
    "row ends negative": values(INDPTR, lambda a: -a),
    "first row end not 0": values(INDPTR, lambda a: np.maximum(a, 3)),
    "index negative": values(INDICES, lambda a: a - 50),
    "index beyond the features": values(INDICES, lambda a: a + 2_000_000_000),
    "index twice": values(INDICES, lambda a: a * 0),
    "values nan": values(DATA, lambda a: a * np.nan),
    "values infinite": values(DATA, lambda a: a / 0.0),
    "values of 1e38": values(DATA, lambda a: a * np.float32(1e38)),
    "codes beyond the classes": values(CODES, lambda a: a + 100),
    "codes negative": values(CODES, lambda a: a - 2),
    "pickles in an object array": lambda root: object_chunks(root, filters=[{"id": "pickle", "protocol": 5}]),
    "pickles behind another codec": lambda root: object_chunks(
        root, filters=[{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]
    ),
    "pickles in a compressor": lambda root: object_chunks(root, filters=None, compressor={"id": "pickle"}),
    "json2 objects": lambda root: object_chunks(root, filters=[{"id": "json2"}]),
    "old: dtype of 10^9 letters": lambda root: old_store(root, dtype="<U1000000000"),
    "old: dtype of fields": lambda root: old_store(root, dtype=[["a", "<f4"], ["b", "|O"]]),
    "old: order Q": lambda root: old_store(root, order="Q"),
    "old: separator": lambda root: old_store(root, dimension_separator="/../"),
    "old: an unknown compressor": lambda root: old_store(root, compressor={"id": "os.system"}),
}  # fmt: skip
