"""What LIBLINEAR's and LIBSVM's model files share: lines `name value ...` up to a mark, digits that lose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.model.decide import Decides, models_of

_KNOWN_ROWS = {"features", "matrix", "columns", "encoding", "labels", "scale", "split", "split_by", "chosen"}
"""What a model may say of its rows; of other steps no format knows.  Labels are the names of its classes."""


def digits(value: float) -> str:
    """As C's %.17g: read back as the same float64."""
    return format(float(value), ".17g")


def whole_labels(model: Decides, program: str) -> list[int]:
    """The classes as the 32-bit integers that these programs have.  Raises UsageError for others."""
    labels = model.classes.tolist()
    if not all(type(label) in (int, float) and float(label).is_integer() and abs(label) < 2**31 for label in labels):
        shown = ", ".join(map(repr, labels[:3]))
        raise UsageError(
            f"{program}'s models have whole numbers as classes, and this one has {shown}",
            hint="--format onnx or npz keeps any label",
        )
    return [int(label) for label in labels]


def scale_of(model: Decides) -> dict[str, Any] | None:
    """How the model scales its rows; None where it does not.  Raises UsageError for steps that no format knows."""
    rows = model.about.get("rows", {})
    unknown = sorted(set(rows) - _KNOWN_ROWS)
    if unknown:
        raise UsageError(
            f"the model's rows go through {unknown[0]!r} first, which cannot be exported",
            hint="bigsvm.predictor applies it",
        )
    return rows.get("scale")


def refuse_scaled(model: Decides, program: str) -> None:
    """Refuse a model whose rows are scaled first: a text format holds none of that.  Raises UsageError."""
    scale = scale_of(model)
    if scale is not None:
        raise UsageError(
            f"the model scales its rows ({scale['kind']}), which {program}'s format cannot hold",
            hint="--format onnx has it; or ingest scaled rows, fit and predict those",
        )


class Lines:
    """Lines of a model file, each with its number, for messages that name it."""

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
            raise self.bad("is no text of a model") from None

    def __iter__(self) -> Iterator[str]:
        while (line := self.next()) is not None:
            yield line

    def bad(self, what: str) -> DataError:
        """An error about the line that was read last."""
        return DataError(f"line {self.number} {what}", self.where, "give a model file as the program wrote it")

    def head(self, mark: str, known: frozenset[str]) -> dict[str, list[str]]:
        """`name value ...` lines up to the line `mark`.  Raises DataError."""
        found: dict[str, list[str]] = {}
        for line in self:
            if line == mark:
                return found
            name, *values = line.split() or [""]
            if name not in known or name in found:
                raise self.bad(f"begins with {name[:40]!r}, which is no part of such a model, or comes twice")
            found[name] = values
        raise DataError(f"has no line {mark!r}: it is no such model, or cut off", self.where)

    def numbers(self, texts: list[str], n: int, what: str) -> np.ndarray:
        """`n` finite float64.  Raises DataError."""
        try:
            found = np.array([float(plain(text)) for text in texts])
        except ValueError:
            raise self.bad(f"has {what} that are no numbers") from None
        if len(found) != n or not np.isfinite(found).all():
            raise self.bad(f"has {len(found)} numbers as {what}, and {n} finite ones are wanted")
        return found


def plain(text: str) -> str:
    """Digits as C reads them: Python's 1_0 is none.  Raises ValueError."""
    if "_" in text:
        raise ValueError(text)
    return text


def one(head: dict[str, list[str]], name: str, where: str, default: str | None = None) -> str:
    """The one value of a line of the head.  Raises DataError where there is none, or more."""
    values = head.get(name, [] if default is None else [default])
    if len(values) != 1:
        raise DataError(f"has no line '{name} VALUE'", where, "give a model file as the program wrote it")
    return values[0]


def whole(head: dict[str, list[str]], name: str, where: str, least: int = 1) -> int:
    """The whole number that a line of the head has.  Raises DataError."""
    text = one(head, name, where)
    if not text.isdigit() or not least <= int(text) < 2**31:
        raise DataError(f"has the line '{name} {text[:40]}', which makes no model", where)
    return int(text)


def label_order(labels: np.ndarray) -> dict[str, list[int]]:
    """What an imported model keeps of its file's order of labels: nothing where ties go as in models of ours."""
    order = np.argsort(np.argsort(labels)).tolist()
    ours = [1, 0] if len(order) == 2 else list(range(len(order)))
    return {} if order == ours else {"label_order": order}


def order_of(model: Decides) -> np.ndarray:
    """Class codes in the order in which a file is to have them, so that ties are decided as the model does."""
    order = model.tie_order
    if order is not None:
        return order
    return np.array([1, 0]) if len(model.classes) == 2 else np.arange(len(model.classes))


def pairs_in_order(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Values of pairs (n_pairs, ...) of ascending classes as those of pairs of `order`, with the sign of its first."""
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
    """The classes in the file's order, int64, no two alike.  Raises DataError."""
    try:
        labels = np.array([int(plain(text)) for text in head.get("label", [])], np.int64)
    except (ValueError, OverflowError):
        labels = np.empty(0, np.int64)
    if len(labels) != n_classes or len(set(labels.tolist())) != n_classes:
        raise DataError(f"has no line 'label' with {n_classes} different whole numbers", where)
    return labels
