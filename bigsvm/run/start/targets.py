"""`open_for`: the rows of a fit or of a model, with targets where a regression finds whole numbers as labels."""

from __future__ import annotations

from typing import Any

from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats.opener import open_store
from bigsvm.store.transforms.label_sets import LABEL_SETS


def open_for(source: Any, regression: bool, **options: Any) -> RowBlocks:
    """What `open_store(source, **options)` returns; for a regression, whole-number labels are read as targets.

    Whole numbers are taken for classes as long as nobody says otherwise, and the loss says otherwise.  A store is read
    again only where its labels were taken for classes, so that the identity of all other rows stays as it is.  The
    first look at the labels leaves scales out, because finding them takes a pass over all rows.

    source : as for `open_store`; y of arrays are targets wherever the loss needs them, and a store that is open already
        is returned as it was opened
    regression : whether the loss, or the model, needs targets

    Returns the store.  It still has classes where its labels cannot be targets: text, sets of labels, relabelled
    classes; the problem refuses these (`problem/problem.py`).
    Raises UsageError, MissingInput, DataError as `open_store` does.
    """
    as_targets = {**options, "task": "regression"}
    if regression and isinstance(source, tuple):
        return open_store(source, **as_targets)
    if not regression:
        return open_store(source, **options)
    store = open_store(source, **{**options, "scale": None})
    whole = store.classes is not None and store.classes.dtype.kind in "iuf"
    if whole and store is not source and not {LABEL_SETS, "labels"} & set(store.recipe):
        return open_store(source, **as_targets)
    return store if options.get("scale") is None else open_store(source, **options)
