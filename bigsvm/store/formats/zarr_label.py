"""Label and weight columns of an AnnData `obs` frame, in all of its encodings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from bigsvm.errors import DataError, NoSuchColumn
from bigsvm.store.labels import (
    Missing,
    Task,
    as_labels,
    as_targets,
    bits_between,
    distinct_texts,
    is_text,
    label_codes,
    normal_classes,
    packed_from,
    scan_classes,
)
from bigsvm.store.transforms.expression import Column
from bigsvm.units import columns_there

_PIECE = 1 << 18


class Readable(Protocol):
    """An array of a store: `ChunkedArray`, or the equivalent for another file format."""

    dtype: np.dtype
    shape: tuple[int, ...]
    unit_rows: int
    chunk_nbytes: int
    raw: bool

    def __len__(self) -> int: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...
    def forget(self) -> None: ...


Open = Callable[[str], Readable]


class _ValuesAndMask:
    """A column in its stored form."""

    _values: Readable
    _mask: Readable | None

    def forget(self) -> None:
        """Release the chunks that were read last, and their memory."""
        self._values.forget()
        if self._mask is not None:
            self._mask.forget()


class LabelColumn(_ValuesAndMask):
    """Labels of rows: codes into categories (newer or older AnnData encoding), or plain values.

    categories : all that the store names, used or not; None for plain values
    mask : where it is True there is no label
    missing : drop gives rows without a label one that occurs; `labelled_rows` tells which they are
    """

    def __init__(
        self,
        values: Readable,
        categories: np.ndarray | None,
        where: str,
        task: Task,
        mask: Readable | None = None,
        missing: Missing = "refuse",
    ) -> None:
        self._values, self._where, self._task = values, where, task
        self._mask, self._missing = mask, missing
        self._categories = categories
        if len(values.shape) != 1:
            raise DataError("a label column must have one dimension", where)
        if categories is not None and values.dtype.kind not in "iu":
            raise DataError("the codes of categories must be whole numbers", where)
        if categories is not None and task == "regression" and categories.dtype.kind not in "iuf":
            raise DataError("categories that are not numbers cannot be a regression target", where)
        self.n_samples = len(values)
        self._positions: np.ndarray | None = None
        self._bits: np.ndarray | None = None
        self._counting: np.ndarray | None = None
        self._classes: np.ndarray | None = None
        self._scanned = False

    def of_only(self, rows: np.ndarray) -> LabelColumn:
        """The column restricted to the labels of some rows (`rows`, packed); all other rows have none."""
        found = copy.copy(self)
        found._bits = found._classes = found._positions = None
        found._scanned, found._missing, found._counting = False, "drop", rows
        return found

    def _plain(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(stored values, whether each is present and counts) of rows [start, stop).  Raises DataError."""
        values, there = self._stored(start, stop)
        return values, there if self._counting is None else there & bits_between(self._counting, start, stop)

    def _stored(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        values = self._values.read(start, stop)
        if self._mask is not None:
            return values, ~self._mask.read(start, stop).astype(bool)
        if self._categories is not None:
            beyond = np.flatnonzero(values >= len(self._categories))
            if len(beyond):
                what = f"row {start + beyond[0]} has code {values[beyond[0]]} of {len(self._categories)} categories"
                raise DataError(what, self._where)
            return values, values >= 0
        return values, ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), bool)

    def _known(self, start: int, stop: int) -> np.ndarray:
        """The values that are present."""
        values, there = self._plain(start, stop)
        return values[there]

    def column(self, start: int, stop: int) -> Column:
        """The decoded values of rows [start, stop): categories instead of codes."""
        values, there = self._plain(start, stop)
        if self._categories is not None:
            if len(self._categories) == 0:
                return Column(np.zeros(len(values), "U1"), np.zeros(len(values), bool))
            return Column(self._categories[np.where(there, values, 0)], there)
        if values.dtype.kind in "biuf":
            return Column(values, there)
        known = as_labels(values[there], self._where, start)
        texts = np.zeros(len(values), known.dtype if there.any() else "U1")
        texts[there] = known
        return Column(texts, there)

    def labelled_rows(self) -> np.ndarray:
        """Whether each row has a label, packed.  Reads the column."""
        if self._bits is None:
            bits = np.zeros(-(-self.n_samples // 8), np.uint8)
            n_missing, first = 0, -1
            for start, stop in self._ranges():
                there = self._plain(start, stop)[1]
                bits[start // 8 : -(-stop // 8)] |= packed_from(there, start)
                absent = len(there) - int(there.sum())
                if absent and first < 0:
                    first = start + int(np.argmin(there))
                n_missing += absent
            if n_missing and self._missing == "refuse":
                what = f"{n_missing} of the {self.n_samples} rows have no label, row {first} is the first"
                raise DataError(what, self._where, "--missing drop leaves them out")
            self._bits = bits
        return self._bits

    @property
    def classes(self) -> np.ndarray | None:
        """The labels that occur, ascending; None for a regression target.  Reads the column once."""
        if not self._scanned:
            self.labelled_rows()
            if self._categories is None:
                self._classes = scan_classes(self._pieces(), self._task)
            elif self._task != "regression":
                self._classes = self._occurring()
            self._scanned = True
        return self._classes

    def _occurring(self) -> np.ndarray:
        assert self._categories is not None
        used = np.zeros(len(self._categories), bool)
        for start, stop in self._ranges():
            used[self._known(start, stop)] = True
        return normal_classes(self._categories[used])

    def _ranges(self) -> Iterator[tuple[int, int]]:
        step = max(self._values.unit_rows, 1)
        step = max(_PIECE // step, 1) * step  # whole chunks, so that each is decoded once
        for start in range(0, self.n_samples, step):
            yield start, min(start + step, self.n_samples)

    def _pieces(self) -> Iterator[np.ndarray]:
        for start, stop in self._ranges():
            values, there = self._plain(start, stop)
            if there.any() and is_text(values):
                yield distinct_texts(values[there], self._where)[0]
            elif there.any():
                yield as_labels(values[there], self._where, rows=start + np.flatnonzero(there))

    def y(self, start: int, stop: int) -> np.ndarray:
        """The y of a Block: class codes in the smallest signed integer type, or float64 targets."""
        classes = self.classes
        values, there = self._plain(start, stop)
        if not there.all():  # code 0 or target 0, because callers ignore these rows
            self.labelled_rows()
            y = np.zeros(len(there), label_codes(classes[:0], classes).dtype if classes is not None else np.float64)
            y[there] = self._coded(self._known(start, stop), classes, start)
            return y
        return self._coded(values, classes, start)

    def _coded(self, values: np.ndarray, classes: np.ndarray | None, start: int) -> np.ndarray:
        """Codes or targets of present values; the first row is for messages."""
        if classes is None:
            named = values if self._categories is None else self._categories[values]
            return as_targets(as_labels(named, self._where, start), self._where, start)
        if self._categories is None and is_text(values):
            distinct, which = distinct_texts(values, self._where)
            return label_codes(distinct, classes)[which]
        if self._categories is None:
            return label_codes(as_labels(values, self._where, start), classes)
        if self._positions is None:
            # unused categories get a position too, but no row refers to it
            self._positions = label_codes(self._categories, classes)
        return self._positions[values]


class WeightColumn(_ValuesAndMask):
    """Weights of rows as they are stored: numbers, numbers with a mask, or codes into categories that are numbers.

    mask : where it is True there is no weight
    categories : what codes stand for; None for plain values
    """

    def __init__(
        self, values: Readable, where: str, mask: Readable | None = None, categories: np.ndarray | None = None
    ) -> None:
        self._values, self._where, self._mask, self._categories = values, where, mask, categories
        self.shape = values.shape
        self.chunk_nbytes = values.chunk_nbytes + (mask.chunk_nbytes if mask is not None else 0)

    def read(self, start: int, stop: int, absent: float | None = None) -> np.ndarray:
        """Weights of rows [start, stop); float64 with `absent` for what is not there, where that is given.

        Raises DataError naming the first row without one, where it is not.
        """
        values = self._values.read(start, stop)
        none = np.zeros(len(values), bool)
        if self._mask is not None:
            none = self._mask.read(start, stop).astype(bool)
        elif self._categories is not None:
            none = (values < 0) | (values >= len(self._categories))
        if absent is not None:
            weights = np.full(len(values), absent)
            weights[~none] = values[~none] if self._categories is None else self._categories[values[~none]]
            return weights
        if none.any():
            row = start + int(np.argmax(none))
            raise DataError(f"row {row} has no weight", self._where, "0 leaves a row out")
        return values if self._categories is None else self._categories[values]


def open_label(group: Any, path: str, open_array: Open, task: Task, missing: Missing = "refuse") -> LabelColumn:
    """The label column at `path` of a group of zarr, or of h5py.

    Raises
    ------
    DataError : there is none (names the columns that are), or its encoding is not known.
    """
    node = find(group, path)
    coded = _coded_column(group, node, path, open_array)
    if coded is not None:
        return LabelColumn(*coded, path, task, None, missing)
    if hasattr(node, "shape"):
        if node.attrs.get("bigsvm-task") == "regression" and task == "auto":
            task = "regression"
        return LabelColumn(open_array(path), None, path, task, None, missing)
    if str(node.attrs.get("encoding-type")).startswith("nullable-") and "values" in node and "mask" in node:
        mask = open_array(f"{path}/mask")
        return LabelColumn(open_array(f"{path}/values"), None, path, task, mask, missing)
    raise DataError(f"unknown encoding {node.attrs.get('encoding-type')!r}", path, "a categorical or plain column")


def open_weights(group: Any, path: str, open_array: Open) -> WeightColumn:
    """The weight column at `path` of a group of zarr, or of h5py.

    Raises
    ------
    DataError : there is none (names the columns that are), or it is not of numbers.
    """
    node = find(group, path)
    coded = _coded_column(group, node, path, open_array)
    if coded is not None and coded[1].dtype.kind in "biuf" and coded[0].dtype.kind in "iu":
        return WeightColumn(coded[0], path, categories=coded[1])
    if coded is None and hasattr(node, "shape"):
        values = open_array(path)
        if values.dtype.kind in "biuf":
            return WeightColumn(values, path)
    elif str(node.attrs.get("encoding-type")).startswith("nullable-") and "values" in node and "mask" in node:
        return WeightColumn(open_array(f"{path}/values"), path, mask=open_array(f"{path}/mask"))
    raise DataError("the weights are not a column of numbers", path, "name another with --weight")


def _coded_column(group: Any, node: Any, path: str, open_array: Open) -> tuple[Readable, np.ndarray] | None:
    """(codes, categories) of a categorical in AnnData's newer or older encoding; None if it is not categorical."""
    if not hasattr(node, "shape"):
        if node.attrs.get("encoding-type") != "categorical":
            return None
        return open_array(f"{path}/codes"), _categories(open_array(f"{path}/categories"), path)
    older = node.attrs.get("categories")
    if older is not None and hasattr(group, "file"):  # in HDF5 the attribute refers to the array itself
        older = "__categories/" + group.file[older].name.rpartition("/")[2]
    if not isinstance(older, str):
        return None
    # AnnData before 0.8: the codes have an attribute with the place of the categories
    return open_array(path), _categories(open_array(f"{path.rpartition('/')[0]}/{older}"), path)


def find(group: Any, path: str) -> Any:
    """The array or group at `path`.  Raises DataError; the hint lists the columns that exist."""
    if path in group:
        return group[path]
    frame = path.rpartition("/")[0]
    told = list(group[frame].attrs.get("column-order", [])) if frame and frame in group else []
    columns = [
        name for name in told if name in group[frame]
    ]  # a file that was not completely written lists columns that do not exist
    there = f"; {columns_there(path.rpartition('/')[2], map(str, columns))}" if columns else ""
    hint = f"name another with --label, --labels, --weight or --rows{there}"
    raise NoSuchColumn("no such column", path, hint, path.removeprefix("obs/"))


def _categories(array: Readable, where: str) -> np.ndarray:
    if len(array) > 1 << 20:
        raise DataError(f"{len(array)} categories", where, "is this a label?")
    return as_labels(array.read(0, len(array)), where)
