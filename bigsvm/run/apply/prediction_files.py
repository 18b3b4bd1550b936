"""Where predictions go: JSON lines, CSV, Parquet or Zarr; one row after the other, in store order.

    jsonl    {"row": 0, "label": 1, "score": 0.3}     a list of scores where there are several models (or pairs);
                                                      also of an output whose name says nothing else (out.txt)
    csv      label[,score...]                         no header: line i is row i
    parquet  label[, score]                           score is a fixed-size list where there are several
    zarr     arrays label[, score]                    string labels as codes into the attribute `classes`

Where probabilities are asked for, they stand in the place of scores, under the name `proba`: a list, one a class.
Of regression the label is the value, which is the score.  Files are written aside and renamed when all rows are there.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

from bigsvm.errors import OutputError, UsageError
from bigsvm.files.atomic import cannot_write, new_directory
from bigsvm.files.outputs import new_output

FORMATS = ("jsonl", "csv", "parquet", "zarr")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".zarr": "zarr",
}
_GATHER_BYTES = 1 << 20
Numbers = Callable[[int, int], np.ndarray]
_ENCODING = "bigsvm-predictions"
_IDENTITY = "bigsvm-identity"


class Writer(Protocol):
    """Takes rows in order."""

    def append(self, start: int, codes: np.ndarray, scores: np.ndarray) -> None:
        """Rows [start, start + n): class codes (n,), any for regression; scores float64 (n, n_models)."""
        ...

    def close(self) -> None:
        """All rows are there."""
        ...


def format_of(out: str, asked: str | None) -> str:
    """The format asked for, else by the suffix of the output, else jsonl.

    Raises UsageError for a format that cannot go to standard output.
    """
    chosen = asked or _SUFFIXES.get(Path(out).suffix.lower(), "jsonl")
    if out == "-" and chosen in ("parquet", "zarr"):
        raise UsageError(f"{chosen} cannot be written to standard output", hint="name a file with -o")
    return chosen


@contextmanager
def open_writer(
    out: Path | BinaryIO,
    form: str,
    classes: np.ndarray,
    n_models: int,
    with_scores: bool,
    overwrite: bool = False,
    identity: dict[str, Any] | None = None,
    name: str = "score",
    numbers: Numbers | None = None,
) -> Iterator[Writer]:
    """A writer of predictions; the output appears when the block ends well, and not at all otherwise.

    classes : labels by code; empty for regression
    n_models : scores of a row;  name : what they are called
    numbers : of rows that were chosen, (start, stop) -> their numbers among all rows, for `row` of JSON lines
    identity : whose predictions of which rows, as JSON; lines of text have no place for it

    Raises
    ------
    OutputError : the output exists (unless overwrite) or cannot be written.
    """
    if not isinstance(out, Path):
        writer = _text_writer(out, form, classes, with_scores, name, numbers)
        yield writer
        writer.close()
        return
    if form == "zarr":
        _check_predictions(out, overwrite)
        with new_directory(out, overwrite, ("zarr.json", ".zgroup"), "Zarr store") as folder:
            zarr_writer = _Zarr(folder, classes, n_models, with_scores, identity, name)
            yield zarr_writer
            zarr_writer.close()
        return
    with new_output(out, overwrite) as file:
        if form == "parquet":
            parquet = _Parquet(file, classes, n_models, with_scores, identity, name)
            try:
                yield parquet
                parquet.close()
            finally:
                parquet.release()
        else:
            writer = _text_writer(file, form, classes, with_scores, name, numbers)
            yield writer
            writer.close()


def _check_predictions(out: Path, overwrite: bool) -> None:
    """Refuse to replace a Zarr store that holds something else than predictions.  Raises OutputError."""
    if not (overwrite and out.is_dir() and (out / "zarr.json").exists()):
        return
    try:
        ours = json.loads((out / "zarr.json").read_bytes())["attributes"]["encoding-type"] == _ENCODING
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise OutputError("holds no predictions, so --overwrite will not replace it", str(out), "choose another name")


def _text_writer(
    file: BinaryIO, form: str, classes: np.ndarray, with_scores: bool, name: str, numbers: Numbers | None
) -> Writer:
    return _Csv(file, classes, with_scores) if form == "csv" else _Jsonl(file, classes, name, numbers)


def _write(file: BinaryIO, lines: list[str]) -> None:
    try:
        file.write(("\n".join(lines) + "\n").encode())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(Path(getattr(file, "name", "output")), error) from error


class _Jsonl:
    def __init__(self, file: BinaryIO, classes: np.ndarray, name: str, numbers: Numbers | None) -> None:
        self._file, self._name, self._numbers = file, name, numbers
        self._labels = [json.dumps(label, ensure_ascii=False) for label in classes.tolist()]
        self._regression = len(classes) == 0

    def append(self, start: int, codes: np.ndarray, scores: np.ndarray) -> None:
        if len(codes) == 0:
            return
        labels = self._labels
        # repr of a float is JSON, and the shortest text that reads back the same.
        values = scores[:, 0].tolist() if scores.shape[1] == 1 else scores.tolist()
        if not np.isfinite(scores).all():
            values = [_finite(value) for value in values]
        texts = values if self._regression else [labels[code] for code in codes.tolist()]
        lines = [
            f'{{"row": {row}, "label": {text}, "{self._name}": {value}}}'
            for row, text, value in zip(self._rows(start, start + len(codes)), texts, values, strict=True)
        ]
        _write(self._file, lines)

    def _rows(self, start: int, stop: int) -> Iterable[int]:
        """The numbers of rows [start, stop) of those that are predicted."""
        return range(start, stop) if self._numbers is None else self._numbers(start, stop).tolist()

    def close(self) -> None:
        self._file.flush()


def _finite(value: Any) -> str:
    """A score or a list of them as JSON, with null for an overflow."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_finite, value)) + "]"
    return repr(value) if np.isfinite(value) else "null"


class _Csv:
    def __init__(self, file: BinaryIO, classes: np.ndarray, with_scores: bool) -> None:
        self._file, self._with_scores = file, with_scores
        self._labels = [_csv_field(label) for label in classes.tolist()]
        self._regression = len(classes) == 0

    def append(self, start: int, codes: np.ndarray, scores: np.ndarray) -> None:
        if len(codes) == 0:
            return
        if self._regression:
            names = [repr(value) for value in scores[:, 0].tolist()]
        else:
            names = [self._labels[code] for code in codes.tolist()]
        if self._with_scores:
            names = [",".join((name, *map(repr, row))) for name, row in zip(names, scores.tolist(), strict=True)]
        _write(self._file, names)

    def close(self) -> None:
        self._file.flush()


def _csv_field(label: Any) -> str:
    """A label, quoted where CSV asks for it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([label])
    return text.getvalue()


class _Gathered:
    """Gathers small blocks into pieces of exactly `piece_rows`, so that the output is not made of crumbs."""

    def __init__(self, n_models: int) -> None:
        self.piece_rows = max(1024, _GATHER_BYTES // (8 * (n_models + 1)))
        self._codes: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._held = 0

    def append(self, start: int, codes: np.ndarray, scores: np.ndarray) -> None:
        self._codes.append(codes)
        self._scores.append(scores)
        self._held += len(codes)
        if self._held >= self.piece_rows:
            self._emit(whole=True)

    def _emit(self, whole: bool) -> None:
        codes, scores = np.concatenate(self._codes), np.concatenate(self._scores)
        end = len(codes) - len(codes) % self.piece_rows if whole else len(codes)
        for first in range(0, end, self.piece_rows):
            last = min(first + self.piece_rows, end)
            self.write(codes[first:last], scores[first:last])
        self._codes, self._scores = [codes[end:].copy()], [scores[end:].copy()]
        self._held = len(codes) - end

    def write(self, codes: np.ndarray, scores: np.ndarray) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._held:
            self._emit(whole=False)


class _Parquet(_Gathered):
    def __init__(
        self, file: BinaryIO, classes: np.ndarray, n_models: int, with_scores: bool, identity: dict[str, Any] | None,
        name: str,
    ) -> None:  # fmt: skip
        super().__init__(n_models)
        self._classes, self._n_models, self._with_scores = classes, n_models, with_scores
        self._regression = len(classes) == 0
        label = pa.float64() if self._regression else pa.array(classes[:1]).type
        fields = [pa.field("label", label, nullable=False)]
        if with_scores:
            kind = pa.float64() if n_models == 1 else pa.list_(pa.float64(), n_models)
            fields.append(pa.field(name, kind, nullable=False))
        self._schema = pa.schema(fields, None if identity is None else {_IDENTITY: json.dumps(identity)})
        self._file = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, codes: np.ndarray, scores: np.ndarray) -> None:
        columns = [pa.array(scores[:, 0] if self._regression else self._classes[codes])]
        if self._with_scores:
            flat = pa.array(np.ascontiguousarray(scores).reshape(-1))
            columns.append(flat if self._n_models == 1 else pa.FixedSizeListArray.from_arrays(flat, self._n_models))
        self._file.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        super().close()
        self._file.close()

    def release(self) -> None:
        """Let go of the file, also after a failure: pyarrow would write its footer when collected."""
        with contextlib.suppress(OSError):
            self._file.close()


class _Zarr(_Gathered):
    def __init__(
        self, folder: Path, classes: np.ndarray, n_models: int, with_scores: bool, identity: dict[str, Any] | None,
        name: str,
    ) -> None:  # fmt: skip
        super().__init__(n_models)
        numbers, self._regression = classes.dtype.kind in "biuf", len(classes) == 0
        self._values = classes if numbers else np.arange(len(classes), dtype=np.int32)
        attributes = {"encoding-type": _ENCODING, "classes": classes.tolist()}
        if identity is not None:
            attributes[_IDENTITY] = identity
        group = zarr.create_group(folder, zarr_format=3, attributes=attributes)
        self._label = group.create_array(
            "label", shape=(0,), chunks=(self.piece_rows,), dtype=self._values.dtype,
            attributes={} if numbers else {"codes-into": "classes"},
        )  # fmt: skip
        self._score = None
        if with_scores:
            tail = () if n_models == 1 else (n_models,)
            self._score = group.create_array(name, shape=(0, *tail), chunks=(self.piece_rows, *tail), dtype=np.float64)

    def write(self, codes: np.ndarray, scores: np.ndarray) -> None:
        first = self._label.shape[0]
        last = first + len(codes)
        # Pieces are whole chunks, but for the last: nothing is written twice.
        self._label.resize((last,))
        self._label[first:last] = scores[:, 0] if self._regression else self._values[codes]
        if self._score is not None:
            self._score.resize((last, *self._score.shape[1:]))
            self._score[first:last] = scores.reshape((len(codes), *self._score.shape[1:]))
