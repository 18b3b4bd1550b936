"""`open_for`: the rows of a fit or of a model, with targets where a regression finds whole numbers as labels."""

from __future__ import annotations

from typing import Any

from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats.opener import open_store
from bigsvm.store.transforms.label_sets import LABEL_SETS


def open_for(source: Any, regression: bool, **options: Any) -> RowBlocks:
    """What `open_store(source, **options)` returns; for a regression, whole-number labels are read as targets.

    Whole numbers are taken for classes as long as nobody says otherwise, and the loss says otherwise.  A store is read
    again only where its labels were taken for classes, so that the identity of all other rows stays as it is.

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
    store = open_store(source, **options)
    if not regression or store.classes is None:
        return store
    if store is source or store.classes.dtype.kind not in "iuf" or {LABEL_SETS, "labels"} & set(store.recipe):
        return store
    return open_store(source, **as_targets)
