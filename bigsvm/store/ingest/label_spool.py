"""Class labels of a stream: coded as they come, and recoded in ascending order at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bigsvm.errors import DataError
from bigsvm.files.space import cannot_write
from bigsvm.store.labels import MAX_CLASSES, CodedLabels, alike, label_bits, n_labels, normal_classes

_PIECE = 1 << 18  # codes that are read back at a time


class Codes(Protocol):
    """Receives the final codes piece by piece."""

    def append(self, values: np.ndarray) -> None: ...


class LabelSpool:
    """Provisional codes, by first appearance, in an int32 file; the final order of classes is known only at the end.

    It holds the distinct labels, and nothing that grows with the rows.
    """

    def __init__(self, path: Path, where: str) -> None:
        self._path, self._where = path, where
        try:
            self._file: Any = open(path, "w+b")  # noqa: SIM115  closed by `finish` or `close`
        except OSError as error:
            raise cannot_write(path, error) from error
        self._known: np.ndarray | None = None  # ascending
        self._codes = np.zeros(0, np.int32)  # of _known: provisional, by first appearance
        self._bits = np.zeros(0, np.uint64)  # of provisional codes
        self._counts = np.zeros(0, np.int64)  # of provisional codes

    def append(self, labels: np.ndarray | CodedLabels, first_row: int) -> np.ndarray:
        """Append labels (`as_labels`, shape (n,)) to the file; returns their content bits, uint64, shape (n,)."""
        if n_labels(labels) == 0:
            return np.zeros(0, np.uint64)
        if isinstance(labels, CodedLabels):
            occurring, which = np.unique(labels.of_rows, return_inverse=True)
            codes = self._coded(labels.classes[occurring], first_row)[which]
        else:
            codes = self._coded(labels, first_row)
        self._counts += np.bincount(codes, minlength=len(self._counts))
        try:
            self._file.write(codes.tobytes())
        except OSError as error:
            raise cannot_write(self._path, error, codes.nbytes) from error
        return self._bits[codes]

    def _coded(self, labels: np.ndarray, first_row: int) -> np.ndarray:
        """Provisional codes of the labels."""
        if self._known is not None and self._known.dtype != labels.dtype:
            try:
                self._known, labels = alike(self._known, labels)
            except DataError as error:
                raise DataError(f"{error.what}, from row {first_row} on", self._where, error.hint) from error
        place = self._find(labels)
        if place is None:
            self._learn(labels)
            place = self._find(labels)
            assert place is not None
        return self._codes[place]

    def _find(self, labels: np.ndarray) -> np.ndarray | None:
        """Positions in _known; None if there is a new label."""
        if self._known is None:
            return None
        place = np.minimum(np.searchsorted(self._known, labels), len(self._known) - 1)
        return place if np.array_equal(self._known[place], labels) else None

    def _learn(self, labels: np.ndarray) -> None:
        values, where = np.unique(labels, return_index=True)
        if self._known is not None:
            new = ~np.isin(values, self._known)
            values, where = values[new], where[new]
        values = values[
            np.argsort(where, kind="stable")
        ]  # by first appearance, so that the result does not depend on how the rows are cut
        known = values if self._known is None else np.concatenate([self._known, values])
        if len(known) > MAX_CLASSES:
            raise DataError(
                f"more than {MAX_CLASSES} classes", self._where, "for regression targets use --task regression"
            )
        codes = np.concatenate([self._codes, np.arange(len(self._codes), len(known), dtype=np.int32)])
        order = np.argsort(known, kind="stable")
        self._known, self._codes = known[order], codes[order]
        self._bits = np.concatenate([self._bits, label_bits(values)])
        self._counts = np.concatenate([self._counts, np.zeros(len(values), np.int64)])

    def finish(self, open_codes: Callable[[np.dtype], Codes]) -> np.ndarray:
        """Write the final codes (positions among the ascending classes), and delete the file; returns the classes."""
        known = np.zeros(0) if self._known is None else self._known
        dtype = np.dtype(np.int8 if len(known) < 128 else np.int16 if len(known) < 32768 else np.int32)
        final = np.empty(len(known), dtype)
        final[self._codes] = np.arange(len(known), dtype=dtype)
        codes = open_codes(dtype)
        self._file.flush()
        self._file.seek(0)
        while piece := self._file.read(4 * _PIECE):
            codes.append(final[np.frombuffer(piece, np.int32)])
        self.close()
        return normal_classes(known)

    def classes(self) -> np.ndarray:
        """The classes seen so far."""
        return normal_classes(np.zeros(0) if self._known is None else self._known)

    def counts(self) -> list[int]:
        """Number of rows of each class, in ascending order of classes."""
        return self._counts[self._codes].tolist()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a full disk fails again on closing; that must not hide the first error
                self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)
