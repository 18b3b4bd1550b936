"""Whether all numbers of the rows are whole multiples of one step, and whether that saves time (`whole.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.whole import LARGEST, MOST
from bigsvm.compiled.shared.rows import CSR, n_rows_of, sqnorms

_PIECE = 1 << 13  # numbers, or rows, that are looked at together
_SAMPLE = 256  # rows, spread evenly, whose pairs are counted
_FEWEST = 32
"""Mean numbers in a row from which on products take most of the time of a kernel value."""
_MOST_PAIRS = 0.85  # pairs per number up to which pairs save time: a pair costs one operation, as does a float
_WORTH_IT = 1 << 20
"""Numbers in all rows below which the loops for pairs take longer to compile or load than they save."""
_FAR = 4096.0  # gamma times two squared norms beyond which distances need more digits than float32 numbers have


_EXACT = 2 * float(np.finfo(np.float64).eps)
_ROUNDED = 2 * float(np.finfo(np.float32).eps)
"""How far a number may be from a multiple, relative to itself: one rounding of the number and one of the step."""


class Steps(NamedTuple):
    """The step h of rows whose numbers are h k with whole k, up to a rounding.

    step : h; 0 if there is none
    exact : the numbers are multiples up to a rounding of float64; else only up to one of float32
    largest_square : the largest squared norm of a row
    """

    step: float = 0.0
    exact: bool = True
    largest_square: float = 0.0

    def for_values(self, dtype: np.dtype, gamma: float) -> float:
        """The step to use for kernel values of type `dtype`; 0 if the numbers are not close enough to multiples.

        gamma : gamma of an rbf kernel, 0 for other kernels
        """
        enough = self.exact or (dtype == np.float32 and 2 * gamma * self.largest_square <= _FAR)
        return self.step if enough else 0.0


def steps_of(X: np.ndarray | CSR) -> Steps:
    """The step of the numbers in X, if products of pairs are faster than those of floats; else a step of 0.

    The result depends on the numbers alone, not on how they are stored or cut into blocks.
    """
    n, entries = n_rows_of(X), X.size if isinstance(X, np.ndarray) else int(X.indptr[-1] - X.indptr[0])
    if entries < max(_WORTH_IT, _FEWEST * n) or _pairs_for_each(X) > _MOST_PAIRS:
        return Steps()
    least, largest = _extremes(X)
    if least == largest or not 0.0 < least < np.inf:  # one number alone (for ones see `ones.py`), or only zeros
        return Steps()
    largest_square = _largest_square(X)
    for step in (1.0, least) if least >= 1.0 else (least,):
        if largest / step > LARGEST or not largest_square < 0.99 * MOST * step * step:
            continue
        if _are_multiples(X, step, _ROUNDED):
            return Steps(step, _are_multiples(X, step, _EXACT), largest_square)
    return Steps()


def steps_of_bytes(dtype: np.dtype, n: int, n_features: int) -> Steps:
    """The step of n dense rows with integers of one byte each; it is known from the dtype, without reading them."""
    if dtype.kind not in "iu" or dtype.itemsize > 1 or n_features < _FEWEST or n * n_features < _WORTH_IT:
        return Steps()
    largest = max(-int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    largest_square = float(n_features * largest**2)
    return Steps(1.0, True, largest_square) if largest_square < MOST else Steps()


def _pieces(X: np.ndarray | CSR) -> Iterator[np.ndarray]:
    """All numbers of X as float64, some at a time."""
    if isinstance(X, CSR):
        first, last = int(X.indptr[0]), int(X.indptr[-1])
        for at in range(first, last, _PIECE):
            yield np.asarray(X.data[at : min(at + _PIECE, last)], np.float64)
        return
    rows = max(_PIECE // X.shape[1], 1)
    for at in range(0, len(X), rows):
        yield np.asarray(X[at : at + rows].ravel(), np.float64)


def _extremes(X: np.ndarray | CSR) -> tuple[float, float]:
    """The smallest absolute value above 0 and the largest absolute value; NaN if some number is NaN."""
    least, largest = np.inf, 0.0
    for numbers in _pieces(X):
        sizes = np.abs(numbers)
        some = sizes if sizes.all() else sizes[sizes > 0]
        largest = float(np.maximum(largest, some.max(initial=0.0)))
        least = float(np.minimum(least, some.min(initial=np.inf)))
    return least, largest


def _largest_square(X: np.ndarray | CSR) -> float:
    """The largest squared norm of a row."""
    n, found = n_rows_of(X), 0.0
    for start in range(0, n, _PIECE):
        stop = min(start + _PIECE, n)
        squares = np.empty(stop - start)
        sqnorms(X._replace(indptr=X.indptr[start : stop + 1]) if isinstance(X, CSR) else X[start:stop], squares)
        found = max(found, float(squares.max()))
    return found


def _are_multiples(X: np.ndarray | CSR, step: float, slack: float) -> bool:
    """Whether all numbers are whole multiples of `step`, up to `slack` times themselves."""
    per_step = 1.0 / step
    for x in _pieces(X):
        off = np.rint(x * per_step)
        off *= step
        off -= x
        if not np.all(np.abs(off, out=off) <= slack * np.abs(x)):
            return False
    return True


def _pairs_for_each(X: np.ndarray | CSR) -> float:
    """Pairs (features 2 j and 2 j + 1) with at least one number, per number of a row, in a sample of the rows."""
    if not isinstance(X, CSR):
        return 0.5
    n = len(X.indptr) - 1
    pairs = numbers = 0
    for row in np.unique(np.linspace(0, n - 1, min(_SAMPLE, n)).astype(np.int64)):
        features = X.indices[X.indptr[row] : X.indptr[row + 1]]
        numbers += len(features)
        pairs += len(np.unique(features >> 1))
    return pairs / max(numbers, 1)
