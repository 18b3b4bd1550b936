"""What `dcd` does about rounding that keeps rows that stream from the tolerance.

Rows that stay in memory have values of 16 bits, unless the tolerance is very small (`active_row_buffer.py`).  They are
wrong by up to 1.6e-5 of the largest value of a row, and margins are wrong by as much times |w||x|.  If the classes can
hardly be separated, and C is large, |w||x| is large: 120,000 x 400,000 separable rows, C = 1,000, stalled at a gap of
2.4e-4.  So where the gap hardly falls any more, the row buffer begins anew, with values as they are; it then holds
about half as many rows.  If that does not help either, w becomes float64, and the row buffer lends the memory; this is
not built for rows on shards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, shared_row_buffer
from bigsvm.units import MIB

if TYPE_CHECKING:
    from bigsvm.solvers.dcd.dual_cd_state import DualCDState

_FALLS = 0.95  # factor by which an estimate, or a proof, must find the gap smaller than ever, or it did not fall
_FINE = 0.1  # gaps above this are not due to rounding
_FLAT = 4  # passes without a smaller gap after which rounding is suspected
_WIDE_W = "w in float64"
_LARGEST_PART = 0.5  # of the row buffer that w in float64 may take


@dataclass
class Rounding:
    """What is known and was done about rounding.

    lowest, proved : the smallest relative gap that a pass estimated since the last change, and that a proof found
    flat : passes since the last of them fell;  fruitless : proofs meanwhile
    exact : the row buffer holds values as they are;  widened : the row buffer has lent the memory of w in float64
    lacking : there was no memory for that, as was told
    """

    lowest: float = math.inf
    proved: float = math.inf
    flat: int = 0
    fruitless: int = 0
    exact: bool = False
    widened: bool = False
    lacking: bool = False

    @property
    def suspected(self) -> bool:
        """Whether rounding may limit the gap; a proof can tell."""
        return self.flat >= _FLAT and self.proved <= _FINE

    def see_pass(self, gap: float) -> None:
        """Compare the estimate of a pass with those before."""
        self.flat += 1
        if gap < _FALLS * self.lowest:
            self.lowest, self.flat = gap, 0

    def see_proof(self, gap: float) -> None:
        """Compare a proof with those before."""
        self.fruitless += 1
        if gap < _FALLS * self.proved:
            self.proved, self.flat, self.fruitless = gap, 0, 0

    def begin_anew(self) -> None:
        """Forget passes and proofs, after a change."""
        self.lowest, self.flat, self.fruitless = math.inf, 0, 0


def row_buffer_of(state: DualCDState, ctx: Context) -> ActiveRowBuffer:
    """An empty row buffer, of rows as they are if 16 bits were too coarse."""
    problems = [group.problem for group in state.groups]
    return shared_row_buffer(
        problems, ctx, packed=ctx.row_buffer_packed and not state.rounding.exact, less=_lent(state)
    )


def go_finer(state: DualCDState, ctx: Context, free: int) -> str:
    """Round less, after a pass, if rounding seems to limit the gap; returns a message, or ''.

    free : bytes that nothing needs, which are few if there is a row buffer
    """
    known = state.rounding
    known.see_pass(state.estimates[0])
    if not (known.suspected and known.fruitless):
        return ""
    if (state.row_buffer or state.shards) and ctx.row_buffer_bytes and ctx.row_buffer_packed and not known.exact:
        known.exact = True
        _begin_anew(state)
        return "dcd: values kept in memory were rounded to 16 bits, which limited the gap: from now on they are exact"
    if state.groups[0].w.dtype == np.float64 or known.lacking or state.shards:
        return ""
    needed, lent = _bytes_to_widen(state), int(_LARGEST_PART * ctx.row_buffer_bytes)
    if needed <= max(lent, free):
        lends = needed <= lent
        if lends:
            _begin_anew(state)
        _widen(state, ctx, lends)
        return "dcd: w was rounded to float32, which limited the gap: from now on it is float64"
    # More memory makes the row buffer larger, or leaves more free, or both.
    more = needed - free + int((needed - lent) / _LARGEST_PART)
    known.lacking, least = True, -(-(ctx.budget.limit + more) // MIB)
    return f"dcd: w is rounded to float32, which limits the gap; --memory {least}MiB has room for w in float64"


def before_load(state: DualCDState, tree: Any, ctx: Context) -> None:
    """Make w float64, and kept rows exact, if they are so in a saved state."""
    saved = tree.get("rounding", {})
    state.rounding.exact = saved.get("exact", False)
    if any(
        each["w"].dtype == np.float64 != group.w.dtype for group, each in zip(state.groups, tree["groups"], strict=True)
    ):
        _widen(state, ctx, saved.get("widened", False))


def _begin_anew(state: DualCDState) -> None:
    """Let the row buffer be made anew in the next pass; all rows stream until they are admitted to it."""
    state.row_buffer = None
    state.rounding.begin_anew()
    for group in state.groups:  # shards do so themselves
        group.active.values[:] = 1


def _bytes_to_widen(state: DualCDState) -> int:
    """The memory of w in float64, and of that of the last leap."""
    return 8 * sum(group.w.size * (1 + (group.momentum is not None)) for group in state.groups)


def _lent(state: DualCDState) -> int:
    """Bytes that the row buffer leaves to w in float64."""
    return _bytes_to_widen(state) if state.rounding.widened else 0


def _widen(state: DualCDState, ctx: Context, lends: bool) -> None:
    """Make w of all groups float64.  lends : the row buffer lends the memory; else it is free"""
    state.rounding.widened = lends
    if not lends:
        state.rooms.append(ctx.budget.reserve(_WIDE_W, _bytes_to_widen(state)))
    state.rounding.begin_anew()
    for group in state.groups:
        group.w = group.w.astype(np.float64)
        if group.momentum is not None:
            group.momentum.w = group.momentum.w.astype(np.float64)
