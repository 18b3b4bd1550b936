"""Names of features from an AnnData `var` frame; and what bigsvm's own stores record beside the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.packed_text import TextSequence, packed
from bigsvm.machine import return_freed_memory, trim_heap
from bigsvm.store.formats.zarr_label import Open

RECIPE = "bigsvm-rows"
"""Attribute of a store's root: how its rows were made from other data (`RowBlocks.recipe`)."""
SPLIT = "bigsvm-split"
"""Attribute of a store's root: the share of its rows on which fits train by default."""
COLUMNS = "bigsvm-columns"
"""Attribute of a store's root: the columns that its labels and weights came from, where these have other names."""
_MAX_NAMES = 1 << 20
_AT_ONCE = 1 << 14


def recipe_of(group: Any) -> dict[str, Any]:
    """The recipe that a store records; empty if there is none."""
    found = group.attrs.get(RECIPE, {})
    return dict(found) if isinstance(found, dict) else {}


def split_of(group: Any) -> float | None:
    """The share that a store records; None if there is none.  Raises DataError if it is invalid."""
    found = group.attrs.get(SPLIT)
    if found is None or (isinstance(found, float) and 0.0 < found < 1.0):
        return found
    raise DataError(f"{SPLIT} is {found!r}, not a share between 0 and 1", "zarr.json", "remove the attribute")


def columns_of(group: Any) -> dict[str, str]:
    """`label`, `weight` -> the name of the column that they came from, as a store of `ingest` records it."""
    found = group.attrs.get(COLUMNS)
    if not isinstance(found, dict) or not is_of_ingest(group):
        return {}
    return {what: name for what, name in found.items() if what in ("label", "weight") and isinstance(name, str)}


def is_of_ingest(group: Any) -> bool:
    """Whether `ingest` wrote the frame `obs`: its index has numbers, where others have names."""
    path = f"obs/{group['obs'].attrs.get('_index', '_index')}"
    return path in group and hasattr(group[path], "shape") and group[path].dtype.kind in "iu"


def feature_names(group: Any, frame: str, n_features: int, open_array: Open) -> Sequence[str] | None:
    """The index of a `var` frame where it is of strings; None where there is none, or it is of numbers.

    Raises DataError for an index of another length.
    """
    if frame not in group or n_features > _MAX_NAMES or hasattr(group[frame], "shape"):
        return None
    name = group[frame].attrs.get("_index", "_index")
    path = f"{frame}/{name}"
    if not isinstance(name, str) or path not in group:
        return None
    if not hasattr(group[path], "shape"):  # a group of values and a mask
        path += "/values"
        if path not in group:
            return None
    if group[path].dtype.kind not in "OTUS":
        return None
    array = open_array(path)
    if array.shape != (n_features,):
        raise DataError(f"{array.shape[0]} names for {n_features} features", path)

    def parts() -> Iterator[list[str]]:
        start = 0
        while start < n_features:
            end = start - start % array.unit_rows + array.unit_rows  # the end of the chunk
            stop = min(start + _AT_ONCE, n_features, end if array.unit_rows >= _AT_ONCE else n_features)
            values = array.read(start, stop).tolist()
            yield [value.decode() if isinstance(value, bytes) else str(value) for value in values]
            del values
            if stop in (end, n_features):
                array.forget()  # free it before the next chunk, which is as many Python objects
            start = stop

    if n_features >= _AT_ONCE:
        return_freed_memory()  # a chunk of strings, decoded on another thread, is large and short-lived
    names = packed(parts())
    if isinstance(names, TextSequence):
        trim_heap()
    return names
