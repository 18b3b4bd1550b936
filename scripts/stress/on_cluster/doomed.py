"""In a worker (`dask worker --preload`): it stands still at a moment of an ingest where somebody wants it to.

    DOOMED/wanted-writing    the next worker that has written half a chunk takes this file, gives it its own number as
                             the name, and stands still until the file is gone, or until it is killed
    DOOMED/made              a byte for each part whose chunks are made

Moments: reading (of a part), writing (of a chunk, half of which is there), made (all chunks of a part are there, and
nobody knows of them yet).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

MOMENTS = ("reading", "writing", "made")
FOLDER = "BIGSVM_DOOMED"
"""The variable that names the folder."""


def stand(moment: str) -> None:
    """Stand still where a worker is wanted at this moment."""
    if FOLDER not in os.environ:  # the caller's own process
        return
    folder = Path(os.environ[FOLDER])
    taken = folder / str(os.getpid())
    try:
        (folder / f"wanted-{moment}").rename(taken)
    except FileNotFoundError:
        return
    while taken.exists():
        time.sleep(0.01)


def dask_setup(worker: Any) -> None:
    """What dask calls when a worker starts."""
    from bigsvm.store.ingest import chunk_files
    from bigsvm.store.ingest.collections import array_parts

    make_rows = array_parts.make_rows

    def written(target: Path, content: Any) -> None:
        with open(target, "xb", buffering=0) as file:
            half = len(content) // 2
            file.write(memoryview(content)[:half])
            stand("writing")
            file.write(memoryview(content)[half:])

    def made(*told: Any) -> Any:
        found = make_rows(*told)
        stand("made")
        with open(Path(os.environ[FOLDER]) / "made", "ab", buffering=0) as log:
            log.write(b".")
        return found

    chunk_files._written, array_parts.make_rows = written, made
