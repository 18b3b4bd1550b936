"""The rows of a store with changed labels: one class against all others, or renamed classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from bigsvm.errors import DataError, UsageError, in_words
from bigsvm.store.blocks import Block, RowBlocks
from bigsvm.store.delegated import DelegatedRows, content_but_classes
from bigsvm.store.identity import digest_of
from bigsvm.store.labels import fixed_width, label_codes, normal_classes
from bigsvm.store.transforms.label_sets import LABEL_SETS

_TRUTHS = {"false": 0, "true": 1}


@dataclasses.dataclass(frozen=True)
class Relabel:
    """A change of labels.

    names : (label as text, new name), in the order given; labels that are not named stay
    positive : a label after renaming: labels become True for it, and False for all others
    """

    names: tuple[tuple[str, str], ...] = ()
    positive: str | None = None

    @classmethod
    def of(cls, document: Any) -> Relabel:
        """From `document()`.  Raises DataError if it is invalid."""
        try:
            names = tuple((str(name), str(other)) for name, other in dict(document["names"]).items())
            positive = document["positive"]
            return cls(names, None if positive is None else str(positive))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"invalid labels: {in_words(error)}", "rows.json") from error

    def document(self) -> dict[str, Any]:
        """The change as JSON."""
        return {"names": dict(self.names), "positive": self.positive}

    def apply(self, labels: np.ndarray) -> np.ndarray:
        """The new label of each of `labels`, shape (n,).

        Renamed labels are integers if all of them are, else text.
        """
        found = labels
        if self.names:
            texts = np.array([_written(label) for label in labels.tolist()], dtype=object)
            for name, other in self.names:
                texts[self._is(labels, name)] = other
            numbers = _whole_numbers(texts.tolist())
            found = fixed_width(texts.tolist(), "label_map") if numbers is None else numbers
        return found if self.positive is None else self._is(found, self.positive)

    def classes(self, former: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(new classes, the new code of each former class); False and True if there is a positive label."""
        labels = self.apply(former)
        classes = normal_classes(labels) if self.positive is None else np.array([False, True])
        return classes, label_codes(labels, classes)

    def unknown(self, classes: np.ndarray) -> str | None:
        """The first name that is not among `classes`, before or after renaming; None if there is none."""
        for name, _ in self.names:
            if not self._names_one(classes, name):
                return name
        renamed = Relabel(self.names).apply(classes)
        if self.positive is not None and not self._names_one(renamed, self.positive):
            return self.positive
        return None

    def named_twice(self, classes: np.ndarray) -> tuple[str, str] | None:
        """Two spellings of the same class that are given different new names; None if there are none."""
        said: dict[int, tuple[str, str]] = {}
        for name, other in self.names:
            for place in np.flatnonzero(self._is(classes, name)).tolist():
                before, another = said.setdefault(place, (name, other))
                if another != other:
                    return before, name
        return None

    @classmethod
    def _names_one(cls, classes: np.ndarray, name: str) -> bool:
        """Whether a class has the name; `true` and `false` name numbers only if all classes are 0 and 1."""
        if name.lower() in _TRUTHS and classes.dtype.kind in "iuf" and not np.isin(classes, (0, 1)).all():
            return False
        return bool(cls._is(classes, name).any())

    @staticmethod
    def _is(labels: np.ndarray, name: str) -> np.ndarray:
        if labels.dtype.kind in "biuf":  # 1, 1.0 and +1 are the same number, and true equals 1
            number = _number(name)
            if number is None:
                return np.zeros(len(labels), bool)
            # Python compares integers with other numbers exactly; NumPy would round those beyond 2^53.
            return np.array([label == number for label in labels.tolist()], bool)
        return np.array([_written(label) == name for label in labels.tolist()], bool)


def no_targets(store: RowBlocks, what: str) -> DataError:
    """The error for classes where a regression needs targets, with what makes targets of these labels."""
    column = "name a column of numbers with --label"
    whole = store.classes is not None and store.classes.dtype.kind in "iuf"
    if "labels" in store.recipe:
        return DataError(what, store.uri, "leave out --positive and --label-map, which make classes of labels")
    if LABEL_SETS in store.recipe or not whole:
        return DataError(what, store.uri, column, hint_in_python=f"{column}, or pass an array of numbers as y")
    # Commands read whole numbers as targets (`run/start/targets.py`); rows that are open already are left as they are.
    return DataError(what, store.uri, "read the labels as targets: --task regression")


class RelabelledRows(DelegatedRows):
    """RowBlocks over a store with changed labels; the change is part of the identity."""

    def __init__(self, store: RowBlocks, relabel: Relabel) -> None:
        document = relabel.document()
        super().__init__(store, {"labels": digest_of(document)}, {"labels": document})
        self._relabel = relabel
        self._found: tuple[np.ndarray, np.ndarray] | None = None

    def __reduce__(self) -> tuple[Callable[..., RelabelledRows], tuple[Any, ...]]:
        return RelabelledRows, (self._store, self._relabel)

    def __repr__(self) -> str:
        return f"RelabelledRows({self._store!r}, {self._relabel})"

    def over(self, store: RowBlocks) -> RelabelledRows:
        return RelabelledRows(store, self._relabel)

    @property
    def _classes(self) -> tuple[np.ndarray, np.ndarray]:
        """(new classes, new code of each class of the store)."""
        if self._found is None:
            former = self._store.classes
            if former is None:
                raise DataError("the labels are regression targets, which have no classes", self.uri)
            self._found = self._relabel.classes(former)
        return self._found

    @property
    def classes(self) -> np.ndarray | None:
        """Labels in ascending order; False and True if there is a positive label."""
        return self._classes[0]

    @property
    def content(self) -> Mapping[str, Any]:
        return content_but_classes(self._store)

    @property
    def labels_between(self) -> Callable[[int, int], np.ndarray] | None:
        """The codes of rows [start, stop), if the store knows its own without reading X; else None."""
        read = getattr(self._store, "labels_between", None)
        return None if read is None else lambda start, stop: self._classes[1][read(start, stop)]

    def changed(self, block: Block) -> Block:
        return dataclasses.replace(block, y=self._classes[1][block.y])


def relabelled(
    store: RowBlocks, positive: str | None, label_map: Mapping[str, str] | None, like: Mapping[str, Any] | None
) -> RowBlocks:
    """The store with the labels that were asked for, or with those of a model's rows (`like`).

    Raises
    ------
    UsageError : labels are changed twice, or the store has no such label.  DataError : it has targets, not classes.
    """
    kept = (like or {}).get("labels")
    if positive is None and not label_map:
        if kept is None or store.recipe.get("labels") == kept:
            return store
        return cast(RowBlocks, RelabelledRows(store, Relabel.of(kept)))
    if LABEL_SETS in store.recipe:
        hint = "name one column of true and false with --label"
        raise UsageError("--positive and --label-map do not apply to rows with several labels", store.uri, hint)
    if like is not None:
        raise UsageError("the model decides the labels", store.uri, "leave out --positive and --label-map")
    if "labels" in store.recipe:
        raise UsageError("the labels of these rows have been changed already", store.uri)
    names = tuple((str(name), str(other)) for name, other in (label_map or {}).items())
    for _, other in names:
        if other != other.encode("utf-8", "ignore").decode():  # bytes of a command line in another encoding
            raise UsageError(f"the new name {other!r} of a label is not valid Unicode", store.uri, "write it in UTF-8")
    relabel = Relabel(names, None if positive is None else str(positive))
    if store.classes is None:
        raise DataError("the labels are regression targets, which have no classes", store.uri)
    unknown = relabel.unknown(store.classes)
    if unknown is not None:
        renamed = Relabel(names).apply(store.classes) if unknown == positive else store.classes
        shown = ", ".join(_written(label) for label in np.unique(renamed)[:20].tolist())
        raise UsageError(f"there is no label {unknown!r}", store.uri, f"labels there: {shown}")
    twice = relabel.named_twice(store.classes)
    if twice is not None:
        raise UsageError(
            f"{twice[0]!r} and {twice[1]!r} are the same label, but get two names", store.uri, "leave one out"
        )
    return cast(RowBlocks, RelabelledRows(store, relabel))


def _written(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def _number(name: str) -> float | None:
    """The number that a name means as the label of rows with numbers, or with true and false; None if it means none."""
    if name.lower() in _TRUTHS:
        return _TRUTHS[name.lower()]
    try:
        return int(name) if _is_whole(name) else float(name)
    except ValueError:
        return None


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").removeprefix("+").isdecimal()


def _whole_numbers(texts: list[str]) -> np.ndarray | None:
    """The numbers, if all texts are integers of 64 bits; else None."""
    if not all(map(_is_whole, texts)):
        return None
    numbers = [int(text) for text in texts]
    for dtype in (np.int64, np.uint64):
        if all(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max for number in numbers):
            return np.array(numbers, dtype)
    return None
