"""The columns that the labels and weights of a model's training rows came from, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigsvm.store.blocks import RowBlocks


def label_column_of(store: RowBlocks) -> str:
    """The name of the column that the labels of rows come from; '' if it is not known.

    Arrays have no names, nor has svmlight text.  Stores that `ingest` wrote call their labels `label`, and record the
    name of the column if that was another one.  Rows with several labels have several columns.
    """
    from bigsvm.store.transforms.label_sets import LABEL_SETS  # a prediction does not need it

    if LABEL_SETS in store.recipe:
        return ""
    return str(_lowest(store, "label_column"))


def weight_column_of(store: RowBlocks) -> str:
    """The name of the column that the weights of rows come from; '' if there are none, or it is not known."""
    return str(_lowest(store, "weight_column"))


def _lowest(store: RowBlocks, what: str) -> Any:
    """An attribute of the store whose rows are read, below all that change them; '' if it has none."""
    while (below := getattr(store, "below", None)) is not None:
        store = below
    return getattr(store, what, "")


def other_columns(model: Mapping[str, Any], store: RowBlocks) -> list[str]:
    """Warnings if labels or weights of rows are of other columns than a model's, or if only one of the two has weights.

    What is not known is not compared.

    model : what the model holds beside its arrays
    """
    kept = model.get("rows", {})
    found = _only_one_weighted(model, store)
    for what, verb, theirs in (
        ("label", "on the labels", label_column_of(store)),
        ("weight", "with the weights", weight_column_of(store)),
    ):
        ours = kept.get(f"{what}_column")
        if isinstance(ours, str) and ours and theirs not in ("", ours):
            found.append(
                f"the model was trained {verb} of column {ours}, and these are of column {theirs} (see --{what})"
            )
    return found


def _only_one_weighted(model: Mapping[str, Any], store: RowBlocks) -> list[str]:
    """A warning if the model was trained with weights of rows and these rows have none, or the other way round."""
    column = model.get("rows", {}).get("weight_column")
    weighted = model.get("weighted", True if column else None)  # older models know only the name
    if weighted is True and not store.has_weights:
        which = f"the weights of column {column}" if column else "weights of rows"
        given = getattr(store, "given", None) is not None
        remedy = "give (X, y, weights)" if given else "see --weight, which ingest has, too"
        return [f"the model was trained with {which}, and these rows have none: each counts as 1 ({remedy})"]
    if weighted is False and store.has_weights:
        column = weight_column_of(store)
        which = "their weights" + (f" (column {column})" if column else "")
        return [
            f"the model was trained without weights of rows, and these rows count by {which}: "
            f"train with them, or {_without_theirs(store)}"
        ]
    return []


def _without_theirs(store: RowBlocks) -> str:
    return "give (X, y)" if getattr(store, "given", None) is not None else "read rows without: --weight ''"
