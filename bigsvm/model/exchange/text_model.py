"""The common parts of LIBLINEAR's and LIBSVM's model files: a head of `name value ...` lines, numbers, and labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.model.decide import Decides, models_of

_KNOWN_ROWS = {
    "features", "matrix", "columns", "encoding", "labels", "label_column", "weight_column", "scale", "split",
    "split_by", "chosen",
}  # fmt: skip
"""What is known of rows with which a model can be exported.  (labels : the names of its classes)"""


def digits(value: float) -> str:
    """Format as C's %.17g, which reads back as the same float64."""
    return format(float(value), ".17g")


def whole_labels(model: Decides, program: str) -> list[int]:
    """The classes as 32-bit integers, as these programs have them.  Raises UsageError if that is not possible."""
    labels = model.classes.tolist()
    if not all(type(label) in (int, float) and float(label).is_integer() and abs(label) < 2**31 for label in labels):
        shown = ", ".join(map(repr, labels[:3]))
        raise UsageError(
            f"{program}'s models have integers as classes, and this model has {shown}",
            hint="--format onnx or npz keeps any label",
        )
    return [int(label) for label in labels]


def scale_of(model: Decides) -> dict[str, Any] | None:
    """The scaling of the model's rows, or None.  Raises UsageError for other steps, which no format can hold."""
    rows = model.about.get("rows", {})
    unknown = sorted(set(rows) - _KNOWN_ROWS)
    if unknown:
        raise UsageError(
            f"the model's rows go through {unknown[0]!r} first, which cannot be exported",
            hint="bigsvm.predictor applies this step",
        )
    return rows.get("scale")


def refuse_scaled(model: Decides, program: str) -> None:
    """Raise UsageError if the model scales its rows, which a text format cannot hold."""
    scale = scale_of(model)
    if scale is not None:
        raise UsageError(
            f"the model scales its rows ({scale['kind']}), which {program}'s format cannot hold",
            hint="--format onnx can; or ingest scaled rows, and fit and predict with these",
        )


class Lines:
    """The lines of a model file, counted, so that errors can name the line."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file, self.where, self.number = file, where, 0

    def next(self) -> str | None:
        """The next line without its end; None at the end of the file."""
        line = self._file.readline()
        if not line:
            return None
        self.number += 1
        try:
            return line.decode("ascii").strip()
        except UnicodeDecodeError:
            raise self.bad("is not text") from None

    def __iter__(self) -> Iterator[str]:
        while (line := self.next()) is not None:
            yield line

    def bad(self, what: str) -> DataError:
        """A DataError about the line that was read last."""
        return DataError(f"line {self.number} {what}", self.where, "give a model file as the program wrote it")

    def head(self, mark: str, known: frozenset[str]) -> dict[str, list[str]]:
        """Read `name value ...` lines up to the line `mark`.  Raises DataError."""
        found: dict[str, list[str]] = {}
        for line in self:
            if line == mark:
                return found
            name, *values = line.split() or [""]
            if name not in known or name in found:
                raise self.bad(f"begins with {name[:40]!r}, which is unknown there, or comes twice")
            found[name] = values
        raise DataError(f"there is no line {mark!r}: the file is cut off, or is not such a model", self.where)

    def numbers(self, texts: list[str], n: int, what: str) -> np.ndarray:
        """Parse `n` finite numbers; float64.  Raises DataError."""
        try:
            found = np.array([float(plain(text)) for text in texts])
        except ValueError:
            raise self.bad(f"has {what} that are not numbers") from None
        if len(found) != n or not np.isfinite(found).all():
            raise self.bad(f"has {len(found)} numbers as {what} instead of {n} finite ones")
        return found


def plain(text: str) -> str:
    """The text of a number, if C would read it too; Python also reads 1_0.  Raises ValueError."""
    if "_" in text:
        raise ValueError(text)
    return text


def one(head: dict[str, list[str]], name: str, where: str, default: str | None = None) -> str:
    """The only value of a line of the head.  Raises DataError if there is none, or more than one."""
    values = head.get(name, [] if default is None else [default])
    if len(values) != 1:
        raise DataError(f"there is no line '{name} VALUE'", where, "give a model file as the program wrote it")
    return values[0]


def whole(head: dict[str, list[str]], name: str, where: str, least: int = 1) -> int:
    """The integer on a line of the head, at least `least`.  Raises DataError."""
    text = one(head, name, where)
    if not text.isdigit() or not least <= int(text) < 2**31:
        raise DataError(f"the line '{name} {text[:40]}' has no valid number", where)
    return int(text)


def label_order(labels: np.ndarray) -> dict[str, list[int]]:
    """What `about` keeps of the file's order of labels; empty if bigsvm's own order breaks ties in the same way."""
    order = np.argsort(np.argsort(labels)).tolist()
    ours = [1, 0] if len(order) == 2 else list(range(len(order)))
    return {} if order == ours else {"label_order": order}


def order_of(model: Decides) -> np.ndarray:
    """Class codes in the order in which a file must have them, so that ties are broken as in the model."""
    order = model.tie_order
    if order is not None:
        return order
    return np.array([1, 0]) if len(model.classes) == 2 else np.arange(len(model.classes))


def pairs_in_order(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Rows for pairs of ascending classes -> rows for pairs of `order`; the sign follows the first class of a pair."""
    if len(order) == 2:
        return values if order[0] > order[1] else -values
    first, second = (of.tolist() for of in models_of(len(order), True))
    place = {pair: m for m, pair in enumerate(zip(first, second, strict=True))}
    out = np.empty_like(values)
    for (i, j), m in place.items():
        a, b = int(order[i]), int(order[j])
        out[m] = values[place[a, b]] if a < b else -values[place[b, a]]
    return out


def labels_of(head: dict[str, list[str]], n_classes: int, where: str) -> np.ndarray:
    """The labels in the file's order, int64, all different.  Raises DataError."""
    try:
        labels = np.array([int(plain(text)) for text in head.get("label", [])], np.int64)
    except (ValueError, OverflowError):
        labels = np.empty(0, np.int64)
    if len(labels) != n_classes or len(set(labels.tolist())) != n_classes:
        raise DataError(f"there is no line 'label' with {n_classes} different integers", where)
    return labels
