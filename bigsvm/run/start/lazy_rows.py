"""Rows of dask collections, written to a temporary store in the scratch folder for the duration of a fit."""

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
from bigsvm.errors import BigSVMError, DataError, PlanRefused
from bigsvm.events import Emit, silent
from bigsvm.files.locks import take, wait_for
from bigsvm.files.space import cannot_write
from bigsvm.machine import core_count, memory_limit
from bigsvm.store.copy.scratch import make_scratch
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.units import show_bytes

COLLECTION = "collection-"
"""Prefix of the folders of such rows, and of their locks, in the scratch folder."""


def apart(source: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
    """Split a tuple (X, y) or (X, y, sample_weight) whose X is a collection; other sources are returned unchanged."""
    if isinstance(source, tuple) and len(source) in (2, 3) and is_lazy(source[0]) and y is None:
        return source[0], source[1], source[2] if len(source) == 3 else sample_weight
    return source, y, sample_weight


@contextmanager
def rows_on_disk(
    source: Any, options: dict[str, Any], opened: dict[str, Any], regression: bool, emit: Emit = silent
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Ingest a collection for the duration of the block; yields the path of the store, and adjusted `options`.

    The scratch limit in these options is reduced by the bytes of the store.

    options : fields of FitConfig; memory, threads and scratch folder are used for the ingest as well
    regression : labels are targets, even if they are whole numbers
    opened : arguments of `ingest`: y, sample_weight, label, weight, columns, hash_bits, missing

    Raises
    ------
    BigSVMError : whatever `ingest` raises.  PlanRefused : the rows exceed the scratch limit.
    """
    from bigsvm.store.ingest.ingest import ingest  # imported when needed: fits of stores do without it

    config = FitConfig.of(**options)
    scratch, limit = make_scratch(config), config.scratch_limit_bytes()
    with _own_folder(scratch) as folder, _named_by_what_was_given(folder / "rows.zarr"):
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
            # As for arrays: labels that are not integers are targets, even if only few values occur.
            what = f"{config.loss} needs class labels and the collection holds a regression target"
            raise DataError(what, "labels", "use a regression loss, or make the labels integers or text")
        if limit is not None:
            if told["bytes"] >= limit:
                what = f"the rows of the collection take {show_bytes(told['bytes'])} of scratch space"
                raise PlanRefused(what, str(scratch), "raise --scratch-limit: the working copy needs space, too")
            options = {**options, "scratch_limit": limit - told["bytes"]}
        yield told["store"], options


@contextmanager
def _named_by_what_was_given(store: Path) -> Iterator[None]:
    """Errors in the block that concern the store name the collection: nobody has seen the store, and it is deleted."""
    try:
        yield
    except BigSVMError as error:
        error.where = error.where.replace(str(store), "dask collection")
        raise


@contextmanager
def _own_folder(scratch: Path) -> Iterator[Path]:
    """A folder for the duration of the block; folders of killed runs are removed first.

    The rows of a killed run cannot be reused, because nobody can tell without computing a collection whether it still
    gives the same rows.  A killed run is recognised by its lock, which the kernel has released.
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
    """Create and take a lock before its folder is made, so that every folder without a held lock is abandoned."""
    while True:
        number, name = tempfile.mkstemp(prefix=COLLECTION, suffix=".lock", dir=scratch)
        os.close(number)
        lock = open(name, "r+")  # noqa: SIM115  closed with the folder; its name is that of the file
        wait_for(lock)
        if os.path.exists(name):
            return lock
        lock.close()  # another run removed it as abandoned before we held it


def _remove_where_free(path: Path) -> None:
    """Delete the folder of a lock, unless another process holds the lock."""
    with suppress(FileNotFoundError), open(path, "r+") as lock:
        if take(lock, fcntl.LOCK_EX):
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
