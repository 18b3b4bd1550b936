"""A tiny ingest before the real one, so that libraries and compiled code are loaded before memory is measured."""

from __future__ import annotations

import functools

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.events import Emit, silent
from bigsvm.files.temporary import temporary_folder
from bigsvm.store.blocks import CompiledCall
from bigsvm.store.ingest.sources.row_source import RowSource
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from bigsvm.store.precompile_reading import precompile_calls

_ROWS, _WIDTH = 4, 3


def load_code(source: RowSource, codec: str, task: str, emit: Emit = silent) -> None:
    """Call everything that an ingest of `source` will call; once for each kind of rows in a process."""
    kind = source.layout, source.dtype, source.has_weights, codec, task
    writing = CompiledCall(("ingest", *map(str, kind)), functools.partial(_write_few_rows, *kind))
    precompile_calls([*source.compiled_calls, writing], emit)


def _write_few_rows(layout: str, dtype: np.dtype, has_weights: bool, codec: str, task: str) -> None:
    X = np.arange(_ROWS * _WIDTH).reshape(_ROWS, _WIDTH).astype(dtype)
    columns = np.tile(np.arange(_WIDTH, dtype=np.int32), _ROWS)
    rows = CSR(X.ravel(), columns, np.arange(_ROWS + 1, dtype=np.int64) * _WIDTH) if layout == "csr" else X
    with (
        temporary_folder() as folder,
        ZarrWriter(
            folder / "rows.zarr",
            layout="csr" if layout == "csr" else "dense",
            dtype=dtype,
            n_features=_WIDTH,
            codec=codec,
            has_weights=has_weights,
            task=task,
        ) as writer,
    ):
        writer.append(rows, np.arange(_ROWS, dtype=np.float64), np.ones(_ROWS) if has_weights else None)
        writer.finish()
