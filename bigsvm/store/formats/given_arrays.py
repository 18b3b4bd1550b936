"""Detection of changes in the user's arrays after a store was opened over them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse
import xxhash

from bigsvm.errors import DataError
from bigsvm.store.blocks import RowBlocks, tile

_PIECE = 1 << 14  # rows


class GivenArrays:
    """The content of the arrays when a store was opened over them, and a way to open them again.

    A store keeps X itself if possible, but copies of labels, scales and converted types.  After a change of the arrays
    it would read a mixture of old and new values.

    held : for X, y and possibly weights a function that returns the array; or None if nobody else holds it any more
    own : functions that return the store's own version of each; an array that is gone cannot have been changed
    open_again : opens a store over the arrays in the same way
    """

    def __init__(
        self,
        held: Sequence[Callable[[], Any]],
        own: Sequence[Callable[[], Any]],
        digests: Sequence[str],
        open_again: Callable[[tuple[Any, ...]], Any],
    ) -> None:
        self._held, self._own, self._digests, self._open_again = held, own, digests, open_again

    @classmethod
    def of(cls, arrays: Sequence[Any], rows: Any, several: bool, open_again: Callable[[tuple[Any, ...]], Any]) -> Self:
        """For X, y and possibly weights.

        rows : the `ArrayRows` over them;  several : whether y is an indicator matrix, which `rows` does not keep
        """
        held = [_reference(array, rows.shares) for array in arrays]
        kept: Callable[[], Any] = weakref.ref(rows)  # a weak reference, because `rows` holds this object
        own = (
            lambda: kept().kept_X(),
            lambda: None if several else kept().kept_labels(),
            lambda: kept().kept_weights(),
        )
        return cls(held, own, [_digest(one()) for one in held], open_again)

    def below(self, open_over: Callable[[Any], Any]) -> GivenArrays:
        """The same arrays, for a store that `open_over` opens over the store of the arrays."""
        return GivenArrays(self._held, self._own, self._digests, lambda arrays: open_over(self._open_again(arrays)))

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        """In another process the arrays are copies, which nobody changes."""
        return _nothing, ()

    def changed(self) -> bool:
        """Whether an array that somebody still holds has changed."""
        return any(
            (array := held()) is not None and _digest(array) != digest
            for held, digest in zip(self._held, self._digests, strict=True)
        )

    def opened_again(self) -> RowBlocks:
        """A store over the present values.  Raises DataError if an array is gone that the store does not keep."""
        arrays = []
        for held, own, digest in zip(self._held, self._own, self._digests, strict=False):
            array = held()
            arrays.append(own() if array is None and digest else array)
            if arrays[-1] is None and digest:
                what = "an array was changed since the store over it was opened, and the matrix of labels is gone"
                raise DataError(what, "memory", "open a store over the arrays anew")
        found: RowBlocks = self._open_again(tuple(arrays))
        return found


def _nothing() -> None:
    return None


def _reference(array: Any, shares: Callable[[np.ndarray], bool]) -> Callable[[], Any]:
    """A function that returns an array as long as somebody can change it.

    If the store keeps the array itself, it is referenced directly.  Otherwise a weak reference is used, so that the
    store does not keep the array alive: to the array that owns the memory, not to the given object, which may be a
    temporary view.
    """
    if scipy.sparse.issparse(array) and array.format == "csr":
        parts = [_reference(part, shares) for part in (array.data, array.indices, array.indptr)]
        shape = array.shape

        def matrix() -> Any:
            found = tuple(part() for part in parts)
            return None if any(part is None for part in found) else scipy.sparse.csr_array(found, shape=shape)

        return matrix
    if hasattr(array, "dtypes"):  # the values of a frame or of its column may share the memory of an array
        block = np.asarray(array)
        if shares(block):
            return lambda: block
        frame, memory = weakref.ref(array), _of_memory(block)
        return lambda: found if (found := frame()) is not None else memory()
    if isinstance(array, np.ndarray):
        return (lambda: array) if shares(array) else _of_memory(array)
    try:
        return weakref.ref(array)
    except TypeError:  # lists, tuples, None
        return lambda: array


def _of_memory(array: np.ndarray) -> Callable[[], Any]:
    """A function that returns a view of the array that owns the memory, as long as that array exists."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    whole = weakref.ref(root)
    if root is array or array.dtype.hasobject or not (root.flags.c_contiguous or root.flags.f_contiguous):
        return weakref.ref(array)
    shape, strides, dtype = array.shape, array.strides, array.dtype
    offset = array.ctypes.data - root.ctypes.data

    def view() -> Any:
        memory = whole()
        if memory is None:
            return None
        flat = memory if memory.flags.c_contiguous else memory.T
        return np.ndarray(shape, dtype, flat, offset, strides)

    return view


def _digest(array: Any) -> str:
    if array is None:
        return ""
    hasher = xxhash.xxh3_128()
    _add(hasher, array)
    return hasher.hexdigest()


def _add(hasher: Any, array: Any) -> None:
    if scipy.sparse.issparse(array):
        parts = vars(array)
        for name, part in sorted(parts.items()):
            if isinstance(part, np.ndarray):
                hasher.update(f"{name} {parts.get('_shape', '')} ".encode())
                _add(hasher, part)
        return
    if isinstance(array, np.ma.MaskedArray):
        _add(hasher, np.ma.getmaskarray(array))
        array = array.data
    n = len(array)
    if not isinstance(
        array, np.ndarray
    ):  # slices of pandas objects select rows by position; those of other types may not
        array = array.iloc if hasattr(array, "iloc") else np.asarray(array)
    for start, stop in tile(n, _PIECE):
        piece = np.asarray(array[start:stop])
        hasher.update(f"{piece.dtype.str} {piece.shape} ".encode())
        if piece.dtype.hasobject:
            text = "\0".join(f"{type(value).__name__} {value}" for value in piece.ravel().tolist())
            hasher.update(text.encode("utf-8", "surrogatepass"))  # what is no valid Unicode is refused with the labels
        else:
            hasher.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
