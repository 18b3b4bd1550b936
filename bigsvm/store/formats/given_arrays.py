"""Arrays that a caller holds and may change under a store that is open over them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import xxhash

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.blocks import RowBlocks, tile

_PIECE = 1 << 14  # rows


class GivenArrays:
    """What arrays held when a store was opened over them, and how to open them again.

    A store keeps X where it can, and makes codes of labels, scales of columns and copies of other types: changed arrays
    would be read half as they are and half as they were.

    held : of each array what gives it, or None where nobody else has it any more
    digests : of their contents then; "" of None in the place of an array
    open_again : opens a store over the arrays as the first was opened
    """

    def __init__(
        self, held: Sequence[Callable[[], Any]], digests: Sequence[str], open_again: Callable[[tuple[Any, ...]], Any]
    ) -> None:
        self._held, self._digests, self._open_again = held, digests, open_again

    @classmethod
    def of(cls, arrays: Sequence[Any], open_again: Callable[[tuple[Any, ...]], Any]) -> GivenArrays:
        """Of X, y and perhaps weights."""
        return cls([_reference(array) for array in arrays], [_digest(array) for array in arrays], open_again)

    def below(self, open_over: Callable[[Any], Any]) -> GivenArrays:
        """The same arrays, of a store that `open_over` opens over the one that lies in them."""
        return GivenArrays(self._held, self._digests, lambda arrays: open_over(self._open_again(arrays)))

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        """Another process has copies that nobody changes."""
        return _nothing, ()

    def changed(self) -> bool:
        """Whether an array that somebody still holds has another content."""
        return any(
            (array := held()) is not None and _digest(array) != digest
            for held, digest in zip(self._held, self._digests, strict=True)
        )

    def opened_again(self) -> RowBlocks:
        """The rows that the arrays hold now.  Raises DataError where one of them is gone."""
        arrays = tuple(held() for held in self._held)
        gone = [
            name
            for name, array, digest in zip(("X", "y", "sample_weight"), arrays, self._digests, strict=False)
            if array is None and digest
        ]
        if gone:
            what = f"an array was changed since the store over it was opened, and {gone[0]} is gone"
            raise DataError(what, "memory", "open a store over the arrays anew")
        return self._open_again(arrays)


def _nothing() -> None:
    return None


def _reference(array: Any) -> Callable[[], Any]:
    """The array as long as somebody else holds it: a store that has made a copy does not keep both."""
    try:
        return weakref.ref(array)
    except TypeError:  # lists, tuples
        return lambda: array


def _digest(array: Any) -> str:
    if array is None:
        return ""
    hasher = xxhash.xxh3_128()
    _add(hasher, array)
    return hasher.hexdigest()


def _add(hasher: Any, array: Any) -> None:
    if scipy.sparse.issparse(array) or isinstance(array, CSR):
        parts = vars(array) if scipy.sparse.issparse(array) else array._asdict()
        for name, part in sorted(parts.items()):
            if isinstance(part, np.ndarray):
                hasher.update(f"{name} {parts.get('_shape', '')} ".encode())
                _add(hasher, part)
        return
    if isinstance(array, np.ma.MaskedArray):
        _add(hasher, np.ma.getmaskarray(array))
        array = array.data
    n = len(array)
    if not isinstance(array, np.ndarray):  # pandas gives rows by place alone; of others slices may be something else
        array = array.iloc if hasattr(array, "iloc") else np.asarray(array)
    for start, stop in tile(n, _PIECE):
        piece = np.asarray(array[start:stop])
        hasher.update(f"{piece.dtype.str} {piece.shape} ".encode())
        if piece.dtype.hasobject:
            hasher.update("\0".join(f"{type(value).__name__} {value}" for value in piece.ravel().tolist()).encode())
        else:
            hasher.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
