"""The metadata that makes a bigsvm store an AnnData as well: frames `obs` and `var`, encodings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.store.ingest.chunk_files import ChunkFiles

_MAX_NAMED = 1 << 24  # number of features beyond which `var/_index` is not written: its chunks are listed as empty


def array_attributes(**more: Any) -> dict[str, Any]:
    """Attributes of a plain array in AnnData's encoding; more : further attributes."""
    return {"encoding-type": "array", "encoding-version": "0.2.0", **more}


def write_frames(
    group: Any,
    root: Path,
    n_samples: int,
    n_features: int,
    classes: np.ndarray | None,
    has_weights: bool,
    arrays: dict[str, ChunkFiles],
    codec: str,
    chunk_bytes: int,
    feature_names: Sequence[str] | None = None,
) -> list[ChunkFiles]:
    """Write the frames `obs` and `var` around the chunks of labels and weights; returns the arrays that it added.

    AnnData needs an `_index` in both.  It accepts integers, and converts them to names.  A range of integers compresses
    to almost nothing, whereas the names of a billion rows would not.
    """
    columns = ["label", *(["weight"] if has_weights else [])]
    _frame(group, "obs", columns)
    _frame(group, "var", [])
    added = [_integers(root, "obs/_index", n_samples, codec, chunk_bytes)]
    if feature_names is not None:
        _strings(group, "var/_index", np.array(feature_names, object))
    elif n_features <= _MAX_NAMED:
        added.append(_integers(root, "var/_index", n_features, codec, chunk_bytes))
    if classes is None:
        arrays["obs/label"].create(group, **array_attributes(**{"bigsvm-task": "regression"}))
    else:
        encoding = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
        group.create_group("obs/label", attributes=encoding)
        arrays["obs/label/codes"].create(group, **array_attributes())
        added += _categories(group, root, classes, codec, chunk_bytes)
    if has_weights:
        arrays["obs/weight"].create(group, **array_attributes())
    for part in added:
        part.create(group, **array_attributes())
    return added


def unnamed_features(group: Any, n_features: int) -> list[str]:
    """Create `var/_index` without chunks, if there are too many features; returns the keys of its empty chunks."""
    if n_features <= _MAX_NAMED:
        return []
    group.create_array(
        "var/_index", shape=(n_features,), chunks=(n_features,), dtype=np.int8, compressors=(), filters=(),
        fill_value=0, attributes=array_attributes(),
    )  # fmt: skip
    return ["var/_index/c/0"]


def _frame(group: Any, name: str, columns: list[str]) -> None:
    group.create_group(
        name,
        attributes={
            "encoding-type": "dataframe", "encoding-version": "0.2.0",
            "_index": "_index", "column-order": columns,
        },
    )  # fmt: skip


def _integers(root: Path, path: str, n: int, codec: str, chunk_bytes: int) -> ChunkFiles:
    # Always compressed: no part of it is read alone, and uncompressed it would take 8 bytes for each row.
    part = ChunkFiles(root, path, np.dtype(np.int64), "zstd" if codec == "none" else codec, chunk_bytes)
    for start in range(0, n, part.chunk_rows):
        part.append(np.arange(start, min(start + part.chunk_rows, n), dtype=np.int64))
    part.flush()
    return part


def _categories(group: Any, root: Path, classes: np.ndarray, codec: str, chunk_bytes: int) -> list[ChunkFiles]:
    if classes.dtype.kind != "U":
        part = ChunkFiles(root, "obs/label/categories", classes.dtype, codec, chunk_bytes)
        part.append(classes)
        part.flush()
        return [part]
    _strings(group, "obs/label/categories", classes.astype(object))
    return []


def _strings(group: Any, path: str, values: np.ndarray) -> None:
    """An array of strings with a single chunk, which zarr writes."""
    from zarr.core.dtype import VariableLengthUTF8

    group.create_array(
        path, shape=(len(values),), chunks=(max(len(values), 1),), dtype=VariableLengthUTF8(), compressors=(),
        attributes={"encoding-type": "string-array", "encoding-version": "0.2.0"},
    )[:] = values  # fmt: skip
