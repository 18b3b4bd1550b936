"""Files that are mapped into memory and written to there."""

from __future__ import annotations

import mmap
import os


def zeros_map(handle: int, nbytes: int) -> mmap.mmap:
    """A shared map of a new file, which becomes `nbytes` zeros (at least one).

    All its blocks are asked for at once: a full disk is an OSError here, and not a SIGBUS, which ends the process
    without a word, when the first byte of a page is written.
    """
    os.posix_fallocate(handle, 0, nbytes)
    return mmap.mmap(handle, nbytes)
