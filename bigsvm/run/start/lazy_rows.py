"""Rows of dask collections for as long as a fit reads them: a store in the scratch folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.events import Emit, silent
from bigsvm.files.atomic import cannot_write
from bigsvm.machine import core_count, memory_limit
from bigsvm.store.copy.scratch import make_scratch
from bigsvm.store.ingest.ingest import ingest
from bigsvm.units import show_bytes


@contextmanager
def rows_on_disk(
    source: Any, options: dict[str, Any], opened: dict[str, Any], regression: bool, emit: Emit = silent
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Ingest a collection for the block; gives the store's path, and `options` without the bytes that it takes.

    options : fields of FitConfig, by which memory, threads and the scratch folder are what the fit has
    regression : labels are targets, also where they are whole numbers
    opened : what `ingest` takes of a collection: y, sample_weight, label, weight, columns, hash_bits, missing

    Raises
    ------
    BigSVMError : whatever `ingest` raises. PlanRefused : the rows take more than the scratch limit.
    """
    config = FitConfig.of(**options)
    scratch, limit = make_scratch(config), config.scratch_limit_bytes()
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="collection-", dir=scratch))
    except OSError as error:
        raise cannot_write(scratch, error) from error
    try:
        told = ingest(
            source,
            folder / "rows.zarr",
            task="regression" if regression else "classification",
            memory=None if config.memory is None else config.memory_bytes(memory_limit().nbytes),
            threads=config.threads or core_count(),
            emit=emit,
            **opened,
        )
        if limit is not None:
            if told["bytes"] >= limit:
                what = f"the rows of the collection take {show_bytes(told['bytes'])} of scratch space"
                raise PlanRefused(what, str(scratch), "raise --scratch-limit: a working copy comes beside them")
            options = {**options, "scratch_limit": limit - told["bytes"]}
        yield told["store"], options
    finally:
        shutil.rmtree(folder, ignore_errors=True)
