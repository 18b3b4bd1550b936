"""The settings of remote access that follow from the options of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.events import Emit
from bigsvm.store.remote.settings import storing


def storing_by(
    config: FitConfig, options: Mapping[str, Any] | None = None, emit: Emit | None = None
) -> AbstractContextManager[None]:
    """Settings for the block: copies go to the scratch folder of `config`, and pieces in flight count in its memory."""
    memory = None
    if config.memory is not None:
        from bigsvm.machine import memory_limit

        memory = config.memory_bytes(memory_limit().nbytes)
    watch = None if emit is None else lambda: nullcontext(emit)
    return storing(
        options, scratch=config.scratch, scratch_limit=config.scratch_limit_bytes(), memory=memory, watch=watch
    )
