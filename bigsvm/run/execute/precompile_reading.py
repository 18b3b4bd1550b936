"""What a store's `read` calls of compiled code is compiled, or loaded, before memory is counted."""

from __future__ import annotations

from bigsvm.events import Emit, silent
from bigsvm.run.execute.compile_in_child import compiled_in_child
from bigsvm.store.blocks import RowBlocks


def precompile_reading(store: RowBlocks, emit: Emit = silent) -> None:
    """Compile, or load, what reading blocks of a store calls, whatever they are read for."""
    for one in store.compiled_calls:
        compiled_in_child(("reading", *one.kind), one.call, emit=emit)
