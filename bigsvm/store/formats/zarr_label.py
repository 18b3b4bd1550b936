"""A label or weight column of an AnnData `obs` frame, in any of its encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.store.formats.chunked import ChunkedArray
from bigsvm.store.labels import Task, as_labels, as_targets, label_codes, normal_classes, scan_classes

_PIECE = 1 << 18
Open = Callable[[str], ChunkedArray]


class LabelColumn:
    """Labels of rows: codes into categories (newer or older AnnData encoding), or plain values.

    categories : all that the store names, used or not; None for plain values
    """

    def __init__(self, values: ChunkedArray, categories: np.ndarray | None, where: str, task: Task) -> None:
        self._values, self._where, self._task = values, where, task
        self._categories = categories
        if len(values.shape) != 1:
            raise DataError("a label column has one dimension", where)
        if categories is not None and (values.dtype.kind not in "iu" or task == "regression"):
            raise DataError("categories cannot be a regression target", where)
        self.n_samples = len(values)
        self._positions: np.ndarray | None = None
        self._classes: np.ndarray | None = None
        self._scanned = False

    def labels(self, start: int, stop: int) -> np.ndarray:
        """Labels of rows [start, stop) (`as_labels`).  Raises DataError naming a row without one."""
        values = self._values.read(start, stop)
        if self._categories is None:
            return as_labels(values, self._where, start)
        return self._categories[self._codes(values, start)]

    def _codes(self, codes: np.ndarray, start: int) -> np.ndarray:
        assert self._categories is not None
        bad = (codes < 0) | (codes >= len(self._categories))
        if np.any(bad):
            row = int(np.flatnonzero(bad)[0])
            raise DataError(f"row {start + row} has no label (code {codes[row]})", self._where, "label or drop it")
        return codes

    @property
    def classes(self) -> np.ndarray | None:
        """Labels that occur, ascending; None for a regression target.  Reads the column once."""
        if not self._scanned:
            self._classes = (
                self._occurring() if self._categories is not None else scan_classes(self._pieces(), self._task)
            )
            self._scanned = True
        return self._classes

    def _occurring(self) -> np.ndarray:
        assert self._categories is not None
        used = np.zeros(len(self._categories), bool)
        for start, stop in self._ranges():
            used[self._codes(self._values.read(start, stop), start)] = True
        return normal_classes(self._categories[used])

    def _ranges(self) -> Iterator[tuple[int, int]]:
        step = max(self._values.unit_rows, 1)
        step = max(_PIECE // step, 1) * step  # whole chunks: each is decoded once
        for start in range(0, self.n_samples, step):
            yield start, min(start + step, self.n_samples)

    def _pieces(self) -> Iterator[np.ndarray]:
        for start, stop in self._ranges():
            yield as_labels(self._values.read(start, stop), self._where, start)

    def y(self, start: int, stop: int) -> np.ndarray:
        """What a Block carries: class codes in the smallest signed integers, or float64 targets."""
        classes = self.classes
        if classes is None:
            return as_targets(self.labels(start, stop), self._where, start)
        if self._categories is None:
            return label_codes(self.labels(start, stop), classes)
        if self._positions is None:
            # Unused categories get a position too, but no row asks for it.
            self._positions = label_codes(self._categories, classes)
        return self._positions[self._codes(self._values.read(start, stop), start)]


def open_label(group: Any, path: str, open_array: Open, task: Task) -> LabelColumn:
    """The label column at `path` of zarr group `group`.

    Raises
    ------
    DataError : there is none (names the columns that are), or its encoding is not known.
    """
    node = find(group, path)
    if hasattr(node, "shape"):
        older = node.attrs.get("categories")
        values = open_array(path)
        if isinstance(older, str):  # AnnData before 0.8: codes that name their categories' place
            categories = _categories(open_array(f"{path.rpartition('/')[0]}/{older}"), path)
            return LabelColumn(values, categories, path, task)
        if node.attrs.get("bigsvm-task") == "regression" and task == "auto":
            task = "regression"
        return LabelColumn(values, None, path, task)
    if node.attrs.get("encoding-type") != "categorical":
        raise DataError(f"unknown encoding {node.attrs.get('encoding-type')!r}", path, "a categorical or plain column")
    return LabelColumn(open_array(f"{path}/codes"), _categories(open_array(f"{path}/categories"), path), path, task)


def find(group: Any, path: str) -> Any:
    """The array or group at `path`.  Raises DataError naming the columns there are."""
    if path in group:
        return group[path]
    frame = path.rpartition("/")[0]
    columns = group[frame].attrs.get("column-order", []) if frame and frame in group else []
    hint = f"columns there: {', '.join(map(str, columns[:20]))}" if columns else ""
    raise DataError("no such column", path, hint or "name one with --label or --weight")


def _categories(array: ChunkedArray, where: str) -> np.ndarray:
    if len(array) > 1 << 20:
        raise DataError(f"{len(array)} categories", where, "is this a label?")
    return as_labels(array.read(0, len(array)), where)
