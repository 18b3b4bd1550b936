"""A disk that becomes full, for as long as a block runs: no file of this process may grow beyond a limit."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    """Writing beyond `nbytes` raises OSError in the block.

    Modules that the block imports leave no .pyc behind: Python would keep the first `nbytes` of one, and every later
    process would fail to read it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    former, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = former
