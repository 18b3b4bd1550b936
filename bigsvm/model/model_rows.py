"""The recipe of a model's training rows, kept beside it (`rows_file.py`): names, categories, matrix, normalization.

With it other rows are made in the same way, and rows with other features are refused.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.packed_text import MANY_BYTES, TextSequence, text_bytes
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.frames.columns import columns_named, names_of_columns
from bigsvm.store.transforms.transformed_rows import changed_otherwise
from bigsvm.units import columns_there

_MAX_NAMES = 1 << 20


def rows_of(store: RowBlocks) -> dict[str, Any]:
    """The recipe that a model keeps of a store, and `features`, the names of its features; empty if it has neither."""
    names = store.feature_names
    kept = dict(store.recipe)
    if names is not None and len(names) <= _MAX_NAMES:
        kept["features"] = names if isinstance(names, TextSequence) else list(names)
    return kept


def rows_bytes(rows: Mapping[str, Any]) -> int:
    """Bytes of the recipe that must be counted in a budget: names of many features, values of many columns."""
    columns = (rows.get("encoding") or {}).get("columns", [])
    values = sum(sys.getsizeof(value) + 16 for _, _, found in columns for value in found)
    return text_bytes(rows.get("features")) + (values if values > MANY_BYTES else 0)


def in_order_of(rows: Mapping[str, Any], X: Any) -> Any:
    """X with the columns in the order of the model's features, if X is a frame and both have names; otherwise X itself.

    rows : the recipe of the model (`rows_of`)

    Raises DataError naming the first feature that X lacks.
    """
    names, ours = names_of_columns(X), rows.get("features")
    if names is None or names == ours:
        return X
    columns = (rows.get("encoding") or {}).get("columns", [])
    of_text = [name for name, kind, _ in columns if kind != "number"]
    if of_text:
        what = f"the model encodes text columns ({', '.join(of_text[:5])}), and can do so only in files"
        hint = (
            "write the frame to a file (to_feather), for bigsvm predict or, in Python, "
            "for open_store(FILE, like=model.about['rows'])"
        )
        raise DataError(what, "X", hint)
    if ours is None:
        return X
    there = Counter(names)
    twice = next((name for name in ours if there[name] > 1), None)
    if twice is not None:
        raise DataError(f"two columns are called {twice!r}", "X", "rename one of them")
    missing = next((name for name in ours if name not in there), None)
    if missing is not None:
        what = f"no column {missing!r}, which the model was trained on"
        raise DataError(what, "X", columns_there(missing, names))
    return columns_named(X, list(ours))


def _refuse_text_columns(store: RowBlocks) -> None:
    """Raise DataError if a table has columns of text, for a model that does not know the names of its features.

    The features of such columns are the texts that happen to occur in this table, so the scores would be arbitrary.
    """
    columns = store.recipe.get("encoding", {}).get("columns", ())
    text = next((name for name, kind, _ in columns if kind != "number"), None)
    if text is not None:
        what = f"the model has no names of features, so it cannot know what the text column {text!r} stands for"
        raise DataError(
            what, store.uri, "name the columns of numbers with --columns; or is it the wrong model or file?"
        )


def check_alike(rows: Mapping[str, Any], store: RowBlocks) -> None:
    """Raise DataError if a store's features differ from the model's, in their names or in how they were made.

    rows : the recipe of the model; whatever either side does not record is not compared

    The error names the first feature that differs.
    """
    names, ours = store.feature_names, rows.get("features")
    if names is not None and ours is not None and names is not ours:
        for k, (name, our) in enumerate(zip(names, ours, strict=False)):
            if name != our:
                raise DataError(
                    f"feature {k} is {name!r}, and the model's is {our!r}", store.uri,
                    "the model needs the features that it was trained on, in their order",
                )  # fmt: skip
    if ours is None and "encoding" not in rows:
        _refuse_text_columns(store)
    if rows.get("normalize") != store.recipe.get("normalize"):
        ours, theirs = (found.get("normalize", "nothing") for found in (rows, store.recipe))
        what = f"the rows are normalized by {theirs}, and those of the model by {ours}"
        raise changed_otherwise(what, store.uri)
    if rows.get("scale") != store.recipe.get("scale"):
        ours, theirs = ((found.get("scale") or {}).get("kind", "none") for found in (rows, store.recipe))
        what = f"the rows are scaled by {theirs}, and those of the model by {ours}"
        if ours == theirs:
            what = f"the rows are scaled by {theirs}, with other scales than those of the model"
        raise changed_otherwise(what, store.uri)
    if "encoding" in rows and "encoding" in store.recipe and rows["encoding"] != store.recipe["encoding"]:
        what = "its columns were made into features in another way than the model's"
        raise changed_otherwise(what, store.uri)
