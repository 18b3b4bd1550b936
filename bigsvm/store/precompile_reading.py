"""What a store's `read` calls of compiled code is compiled, or loaded, before memory is counted."""

from __future__ import annotations

from collections.abc import Iterable

from bigsvm.compile_in_child import compiled_in_child
from bigsvm.events import Emit, silent
from bigsvm.store.blocks import CompiledCall, RowBlocks


def precompile_reading(store: RowBlocks, emit: Emit = silent) -> None:
    """Compile, or load, what reading blocks of a store calls, whatever they are read for.

    Raises DataError for a row that is known to be bad: compiling takes longer than many a fit.
    """
    store.refuse_known()
    precompile_calls(store.compiled_calls, emit)


def precompile_calls(calls: Iterable[CompiledCall], emit: Emit = silent) -> None:
    """Compile, or load, what somebody will call."""
    for one in calls:
        compiled_in_child(("reading", *one.kind), one.call, emit=emit)
