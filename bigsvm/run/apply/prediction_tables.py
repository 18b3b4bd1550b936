"""Predictions as Parquet and as Zarr, written in pieces: the table formats of `prediction_files.py`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

from bigsvm.run.apply.gathered import Gathered
from bigsvm.store.formats.tables.arrow_values import column_of

ENCODING = "bigsvm-predictions"
IDENTITY = "bigsvm-identity"


class ParquetWriter(Gathered):
    def __init__(
        self, file: BinaryIO, classes: np.ndarray, n_models: int, with_scores: bool, identity: dict[str, Any] | None,
        name: str, several: bool,
    ) -> None:  # fmt: skip
        super().__init__(n_models, with_scores, several)
        self._classes, self._n_models, self._with_scores = column_of(classes), n_models, with_scores
        self._regression = len(classes) == 0
        label = pa.float64() if self._regression else self._classes.type
        label = pa.list_(label) if several else label
        fields = [pa.field("label", label, nullable=False)]
        if with_scores:
            kind = pa.float64() if n_models == 1 else pa.list_(pa.float64(), n_models)
            fields.append(pa.field(name, kind, nullable=False))
        self._schema = pa.schema(fields, None if identity is None else {IDENTITY: json.dumps(identity)})
        self._file = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, codes: np.ndarray, scores: np.ndarray) -> None:
        if codes.ndim == 2:
            ends = np.concatenate([[0], np.cumsum(codes.sum(axis=1))]).astype(np.int32)
            columns = [pa.ListArray.from_arrays(pa.array(ends), self._labels(np.nonzero(codes)[1]))]
        else:
            columns = [pa.array(scores[:, 0]) if self._regression else self._labels(codes)]
        if self._with_scores:
            flat = pa.array(np.ascontiguousarray(scores).reshape(-1))
            columns.append(flat if self._n_models == 1 else pa.FixedSizeListArray.from_arrays(flat, self._n_models))
        self._file.write_table(pa.table(columns, schema=self._schema))

    def _labels(self, codes: np.ndarray) -> Any:
        return self._classes.take(pa.array(codes))

    def close(self) -> None:
        super().close()
        self._file.close()

    def release(self) -> None:
        """Close the file, also after a failure; otherwise pyarrow would write its footer during garbage collection."""
        with contextlib.suppress(OSError):
            self._file.close()


class ZarrWriter(Gathered):
    def __init__(
        self, folder: Path, classes: np.ndarray, n_models: int, with_scores: bool, identity: dict[str, Any] | None,
        name: str, several: bool,
    ) -> None:  # fmt: skip
        super().__init__(n_models, with_scores, several)
        numbers, self._regression = classes.dtype.kind in "biuf", len(classes) == 0
        self._values = classes if numbers else np.arange(len(classes), dtype=np.int32)
        attributes = {"encoding-type": ENCODING, "classes": classes.tolist()}
        if identity is not None:
            attributes[IDENTITY] = identity
        group = zarr.create_group(folder, zarr_format=3, attributes=attributes)
        wide = (len(classes),) if several else ()
        of_classes: dict[str, Any] = {} if numbers else {"codes-into": "classes"}
        self._label = group.create_array(
            "label", shape=(0, *wide), chunks=(self.piece_rows, *wide), dtype=bool if several else self._values.dtype,
            attributes={"columns-of": "classes"} if several else of_classes,
        )  # fmt: skip
        self._score = None
        if with_scores:
            tail = () if n_models == 1 else (n_models,)
            self._score = group.create_array(name, shape=(0, *tail), chunks=(self.piece_rows, *tail), dtype=np.float64)

    def write(self, codes: np.ndarray, scores: np.ndarray) -> None:
        first = self._label.shape[0]
        last = first + len(codes)
        # All pieces but the last are whole chunks, so no chunk is written twice.
        self._label.resize((last, *self._label.shape[1:]))
        if codes.ndim == 2:
            self._label[first:last] = codes != 0
        else:
            self._label[first:last] = scores[:, 0] if self._regression else self._values[codes]
        if self._score is not None:
            self._score.resize((last, *self._score.shape[1:]))
            self._score[first:last] = scores.reshape((len(codes), *self._score.shape[1:]))
