"""Checkpoints of `dcd` by earlier versions of bigsvm: refused, with what they lack, since this one cannot use them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bigsvm.errors import DataError
from bigsvm.solvers.dcd.dual_cd_state import DualCDState


def refuse_earlier(state: DualCDState, tree: dict[str, Any], uri: str) -> None:
    """Raise DataError if a saved state was written by an earlier version.

    state : a new state of the same fit;  tree : the saved one;  uri : that of the data, for the message
    """
    for lack in _lacks(state, tree):
        raise DataError(
            f"the checkpoint is of an earlier version, {lack}", uri, "start again: bigsvm fit ... --overwrite"
        )


def _lacks(state: DualCDState, tree: dict[str, Any]) -> Iterator[str]:
    if "row_buffer" not in tree:
        yield "which kept rows otherwise"
    shards = tree["shards"] or ()
    if any("stiffness" not in saved for saved in shards):
        yield "whose shards had one stiffness for all features"
    if any("mean" not in saved for saved in shards):
        yield "whose shards kept no mean of w"
    pairs = zip(state.groups, tree["groups"], strict=True)
    if state.shards and any((group.momentum is None) != (saved["momentum"] is None) for group, saved in pairs):
        yield "whose shards had no leaps"
    smooth, kept = state.groups[0].problem.loss.smooth, tree["row_buffer"]
    if smooth and kept is not None and "admission" not in kept:
        yield "whose row buffer let in every row that violated"
