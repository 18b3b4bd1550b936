"""The formats of predictions: JSON lines, CSV, Parquet, Zarr or AnnData; one row after another, in store order.

    jsonl    {"row": 0, "label": 1, "score": 0.3}     several models (or pairs): a list of scores; also the default
                                                      for names with another suffix, such as out.txt
    csv      label[,score...]                         no header: line i is row i
    parquet  label[, score]                           several models: score is a fixed-size list
    zarr     arrays label[, score]                    string labels are codes into the attribute `classes`
    anndata  a copy of the store with obs/prediction  see `prediction_anndata.py`

If a row may have several labels, `label` is a list of them: in csv one field "A,C", in parquet a list, in zarr an
indicator matrix with a column for each of `classes`.  If probabilities are asked for, they replace the scores, under
the name `proba`: a list with one for each class.  For regression label and score are both the value.  Files are written
under a temporary name, and renamed when they are complete.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np

from bigsvm.errors import OutputError, UsageError
from bigsvm.files.atomic import check_replaceable, new_directory
from bigsvm.files.outputs import check_plain_output, form_of_suffix, new_output
from bigsvm.files.space import Need, Share, cannot_write
from bigsvm.run.apply.gathered import gathered_bytes

FORMATS = ("jsonl", "csv", "parquet", "zarr", "anndata")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".zarr": "zarr",
    ".h5ad": "anndata",
}
_WRITTEN_BY = {"parquet": "prediction_tables", "zarr": "prediction_tables", "anndata": "prediction_anndata"}
_ZARR = (("zarr.json", ".zgroup"), "Zarr store")  # marks and kind of the folders that --overwrite may replace
Numbers = Callable[[int, int], np.ndarray]


class Writer(Protocol):
    """A writer of predictions, which gets rows in order."""

    def append(self, start: int, codes: np.ndarray, scores: np.ndarray) -> None:
        """Write rows [start, start + n).

        codes : class codes (n,), ignored for regression, or an indicator matrix (n, n_labels)
        scores : float64, (n, n_models)
        """
        ...

    def close(self) -> None:
        """Finish the output after the last row."""
        ...


def format_of(out: str, asked: str | None) -> str:
    """The format asked for, else the format of the suffix of the output, else jsonl.

    Raises UsageError if the format cannot be written to standard output, or the suffix is that of another format.
    """
    chosen = asked or form_of_suffix(out, _SUFFIXES, "jsonl")
    if out == "-" and chosen in ("parquet", "zarr", "anndata"):
        raise UsageError(f"{chosen} cannot be written to standard output", hint="name a file with -o")
    return chosen


def load_libraries(form: str) -> None:
    """Import the libraries that write `form`; other commands save the time.

    Call this before memory is measured, because libraries do not count in a budget.
    """
    if form in _WRITTEN_BY:
        import_module(f"bigsvm.run.apply.{_WRITTEN_BY[form]}")
    if form == "parquet":
        import_module("pyarrow").array(np.zeros(1))  # the first array imports pandas, if it is installed


def writer_bytes(form: str, n_models: int) -> int:
    """Bytes of the memory budget that a writer of rows with this number of scores holds; text is not buffered."""
    return gathered_bytes(n_models) if form in _WRITTEN_BY else 0


def check_output(out: Path | BinaryIO, form: str, overwrite: bool) -> None:
    """Raise OutputError, before any work, for an output that `open_writer` would refuse.

    Copies of AnnData stores are left to `anndata_writer`, which looks at the store first.
    """
    if not isinstance(out, Path) or form == "anndata":
        return
    if form == "zarr":
        _check_predictions(out, overwrite)
        check_replaceable(out, overwrite, *_ZARR)
    else:
        check_plain_output(out, overwrite)


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
    several: bool = False,
    source: Any = None,
) -> Iterator[Writer]:
    """A writer of predictions; the output appears if the block ends well, and otherwise not at all.

    classes : labels by code; empty for regression
    n_models : number of scores of a row;  name : the name of the scores in the output
    numbers : with --rows, a function (start, stop) -> the row numbers in the store, for `row` in JSON lines
    several : whether a row may have several labels
    identity : the identity of model and rows, as JSON; text formats have no place for it
    source : the predicted rows, which `anndata` copies

    Raises
    ------
    OutputError : the output exists (unless overwrite) or cannot be written.
    """
    if form == "anndata":
        from bigsvm.run.apply.prediction_anndata import anndata_writer  # here, because it is rarely needed

        with anndata_writer(out, source, classes, n_models, with_scores, overwrite, identity, name, several) as copied:
            yield copied
        return
    if not isinstance(out, Path):
        writer = _text_writer(cast(BinaryIO, _Stream(out)), form, classes, with_scores, name, numbers)
        yield writer
        writer.close()
        return
    if form == "zarr":
        from bigsvm.run.apply.prediction_tables import ZarrWriter

        _check_predictions(out, overwrite)
        row = 8 * (n_models if with_scores else 0) + (len(classes) if several else 8)
        nbytes = row * getattr(source, "n_samples", 0)  # of text that is not read yet nothing is known
        need: Need = (lambda written: f"up to {max(nbytes, written)} bytes") if nbytes else None
        with new_directory(out, overwrite, *_ZARR, nbytes=need) as folder:
            zarr_writer = ZarrWriter(folder, classes, n_models, with_scores, identity, name, several)
            yield zarr_writer
            zarr_writer.close()
        return
    # How many rows of a table are in the file is not known, as some are gathered first.
    share = Share(getattr(source, "n_samples", 0)) if form != "parquet" else None
    with new_output(out, overwrite, share) as file:
        if form == "parquet":
            from bigsvm.run.apply.prediction_tables import ParquetWriter

            parquet = ParquetWriter(file, classes, n_models, with_scores, identity, name, several)
            try:
                yield parquet
                parquet.close()
            finally:
                parquet.release()
        else:
            writer = _text_writer(file, form, classes, with_scores, name, numbers)
            writer.share = share
            yield writer
            writer.close()


def _check_predictions(out: Path, overwrite: bool) -> None:
    """Raise OutputError if `out` is a Zarr store that holds something other than predictions."""
    from bigsvm.run.apply.prediction_tables import ENCODING

    if not (overwrite and out.is_dir() and (out / "zarr.json").exists()):
        return
    try:
        ours = json.loads((out / "zarr.json").read_bytes())["attributes"]["encoding-type"] == ENCODING
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise OutputError("holds no predictions, so --overwrite will not replace it", str(out), "choose another name")


def _text_writer(
    file: BinaryIO, form: str, classes: np.ndarray, with_scores: bool, name: str, numbers: Numbers | None
) -> _Csv | _Jsonl:
    return _Csv(file, classes, with_scores) if form == "csv" else _Jsonl(file, classes, name, numbers)


class _Stream:
    """A stream that somebody else opened, such as standard output; its failures are told by its name."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, content: bytes) -> None:
        try:
            self._file.write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise cannot_write(Path(getattr(self._file, "name", "output")), error) from error

    def flush(self) -> None:
        self._file.flush()


class _Text:
    """A writer of lines.

    share : to be told how many rows are written
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.share: Share | None = None

    def _write(self, lines: list[str]) -> None:
        self._file.write(("\n".join(lines) + "\n").encode())
        if self.share is not None:
            self.share.done += len(lines)

    def close(self) -> None:
        self._file.flush()


class _Jsonl(_Text):
    def __init__(self, file: BinaryIO, classes: np.ndarray, name: str, numbers: Numbers | None) -> None:
        super().__init__(file)
        self._name, self._numbers = name, numbers
        self._labels = [json.dumps(label, ensure_ascii=False) for label in classes.tolist()]
        self._regression = len(classes) == 0

    def append(self, start: int, codes: np.ndarray, scores: np.ndarray) -> None:
        if len(codes) == 0:
            return
        labels = self._labels
        # repr of a float is valid JSON, and the shortest text that reads back as the same float
        values = scores[:, 0].tolist() if scores.shape[1] == 1 else scores.tolist()
        if not np.isfinite(scores).all():
            values = [_finite(value) for value in values]
        if codes.ndim == 2:
            texts = [f"[{', '.join(found)}]" for found in _sets(labels, codes)]
        else:
            texts = values if self._regression else [labels[code] for code in codes.tolist()]
        lines = [
            f'{{"row": {row}, "label": {text}, "{self._name}": {value}}}'
            for row, text, value in zip(self._rows(start, start + len(codes)), texts, values, strict=True)
        ]
        self._write(lines)

    def _rows(self, start: int, stop: int) -> Iterable[int]:
        """The row numbers in the store of predicted rows [start, stop)."""
        return range(start, stop) if self._numbers is None else self._numbers(start, stop).tolist()


def _finite(value: Any) -> str:
    """A score or a list of scores as JSON, with null for values that are not finite."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_finite, value)) + "]"
    return repr(value) if np.isfinite(value) else "null"


class _Csv(_Text):
    def __init__(self, file: BinaryIO, classes: np.ndarray, with_scores: bool) -> None:
        super().__init__(file)
        self._with_scores = with_scores
        self._labels = [_csv_field(label) for label in classes.tolist()]
        self._plain = [str(label) for label in classes.tolist()]
        self._regression = len(classes) == 0

    def append(self, start: int, codes: np.ndarray, scores: np.ndarray) -> None:
        if len(codes) == 0:
            return
        if codes.ndim == 2:
            names = [_csv_field(",".join(found)) for found in _sets(self._plain, codes)]
        elif self._regression:
            names = [repr(value) for value in scores[:, 0].tolist()]
        else:
            names = [self._labels[code] for code in codes.tolist()]
        if self._with_scores:
            names = [",".join((name, *map(repr, row))) for name, row in zip(names, scores.tolist(), strict=True)]
        self._write(names)


def _sets(labels: list[str], indicator: np.ndarray) -> Iterator[list[str]]:
    """The labels of each row, from an indicator matrix."""
    for row in indicator:
        yield [labels[k] for k in np.flatnonzero(row)]


def _csv_field(label: Any) -> str:
    """A label, quoted if CSV requires it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(
        [label]
    )  # csv quotes the line breaks of its own lineterminator only
    return text.getvalue().removesuffix("\r\n")
