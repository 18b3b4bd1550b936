"""Rows of dask collections for as long as a fit reads them: a store in the scratch folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused
from bigsvm.events import Emit, silent
from bigsvm.files.atomic import cannot_write
from bigsvm.files.locks import take, wait_for
from bigsvm.machine import core_count, memory_limit
from bigsvm.store.copy.scratch import make_scratch
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.units import show_bytes

COLLECTION = "collection-"
"""What folders of rows, and their locks, begin with in the scratch folder."""


def apart(source: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
    """X, y and sample_weight of a tuple of two or three whose X is a collection; others as they are given."""
    if isinstance(source, tuple) and len(source) in (2, 3) and is_lazy(source[0]) and y is None:
        return source[0], source[1], source[2] if len(source) == 3 else sample_weight
    return source, y, sample_weight


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
    from bigsvm.store.ingest.ingest import ingest  # what a fit of rows that lie somewhere starts without

    config = FitConfig.of(**options)
    scratch, limit = make_scratch(config), config.scratch_limit_bytes()
    with _own_folder(scratch) as folder:
        told = ingest(
            source,
            folder / "rows.zarr",
            task="regression" if regression else "classification",
            memory=None if config.memory is None else config.memory_bytes(memory_limit().nbytes),
            threads=config.threads or core_count(),
            emit=emit,
            **opened,
        )
        if not regression and any(
            isinstance(label, float) and not label.is_integer() for label in told["labels"] or ()
        ):
            # As of arrays: labels that are not whole are values, also where few of them differ.
            what = f"{config.loss} needs class labels and the collection holds a regression target"
            raise DataError(what, "labels", "use a loss of regression, or make the labels whole numbers or text")
        if limit is not None:
            if told["bytes"] >= limit:
                what = f"the rows of the collection take {show_bytes(told['bytes'])} of scratch space"
                raise PlanRefused(what, str(scratch), "raise --scratch-limit: a working copy comes beside them")
            options = {**options, "scratch_limit": limit - told["bytes"]}
        yield told["store"], options


@contextmanager
def _own_folder(scratch: Path) -> Iterator[Path]:
    """A folder for the block; those of runs that were killed go first.

    What a collection gives cannot be told from what it gave before without computing it, so that the rows of a killed
    run are of no use to the next one.  The kernel lets go of the lock of a dead process, which is how one is known.
    """
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        for path in scratch.glob(f"{COLLECTION}*.lock"):
            _remove_where_free(path)
        lock = _new_lock(scratch)
        folder = Path(lock.name).with_suffix("")
        folder.mkdir()
    except OSError as error:
        raise cannot_write(scratch, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        Path(lock.name).unlink(missing_ok=True)
        lock.close()


def _new_lock(scratch: Path) -> IO[str]:
    """A lock that we hold, before there is a folder of its name: one that is seen has an owner, or none any more."""
    while True:
        number, name = tempfile.mkstemp(prefix=COLLECTION, suffix=".lock", dir=scratch)
        os.close(number)
        lock = open(name, "r+")  # noqa: SIM115  closed with the folder; its name is that of the file
        wait_for(lock)
        if os.path.exists(name):
            return lock
        lock.close()  # another run took it for one that was left behind, in the instant before we held it


def _remove_where_free(path: Path) -> None:
    """Delete the rows that a lock is of, unless somebody holds it."""
    with suppress(FileNotFoundError), open(path, "r+") as lock:
        if take(lock, fcntl.LOCK_EX):
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
