"""Many strings without a Python object for each, such as names of hundreds of thousands of features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

MANY_BYTES = 1 << 20
"""Up to this total size strings stay a plain list, and are not counted in a budget."""


class TextSequence(Sequence[str]):
    """Strings by position; equal to any sequence of the same strings.  A subclass adds `text` and `__len__`.

    nbytes : bytes that are held for the strings
    """

    nbytes: int
    __hash__ = None  # type: ignore[assignment]

    def text(self, place: int) -> str:
        """The string at a position, counted from 0."""
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self.text(k) for k in range(*place.indices(len(self)))]
        return self.text(range(len(self))[place])

    def __iter__(self) -> Iterator[str]:
        return map(self.text, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))


class PackedText(TextSequence):
    """Strings as one piece of UTF-8, with the end of each."""

    def __init__(self, encoded: bytes | bytearray, ends: np.ndarray) -> None:
        self._encoded, self._ends = encoded, ends
        self.nbytes = len(encoded) + ends.nbytes

    def __len__(self) -> int:
        return len(self._ends)

    def text(self, place: int) -> str:
        began = int(self._ends[place - 1]) if place else 0
        return self._encoded[began : int(self._ends[place])].decode("utf-8", "surrogatepass")


def packed(parts: Iterable[Iterable[str]]) -> Sequence[str]:
    """The strings of all parts, of which one at a time is held: packed, or a plain list if they are few."""
    encoded, lengths = bytearray(), []
    for part in parts:
        found = [text.encode("utf-8", "surrogatepass") for text in part]
        encoded += b"".join(found)
        lengths.append(np.fromiter(map(len, found), np.int64, len(found)))
    whole = PackedText(encoded, np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths])))
    return whole if whole.nbytes > MANY_BYTES else list(whole)


def listed(strings: object) -> list[str]:
    """The `default` of `json.dumps`: a `TextSequence` as a list.  Raises TypeError for other objects, as json does."""
    if isinstance(strings, TextSequence):
        return list(strings)
    raise TypeError(f"a {type(strings).__name__} is not JSON serializable")


def text_bytes(strings: Sequence[str] | None) -> int:
    """Bytes of strings that must be counted in a budget; 0 for few strings."""
    return strings.nbytes if isinstance(strings, TextSequence) else 0
