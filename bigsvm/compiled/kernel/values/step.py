"""Whether the numbers of rows are whole multiples of one step, and whether that is worth knowing (`whole.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.whole import LARGEST, MOST
from bigsvm.compiled.shared.rows import CSR, n_rows_of, sqnorms

_PIECE = 1 << 13  # numbers that are looked at together
_SAMPLE = 256  # rows, spread evenly, whose pairs are counted
_FEWEST = 32
"""Numbers of a row from which its products take most of a value's time."""
_MOST_PAIRS = 0.85  # for each number: each pair is worth an operation, as a number is among floats
_WORTH_IT = 1 << 20
"""Numbers of all rows below which the loops for pairs take longer to compile or load than they save."""
_FAR = 4096.0  # gamma times two squared norms beyond which distances ask for more than float32 numbers have


_EXACT = 2 * float(np.finfo(np.float64).eps)
_ROUNDED = 2 * float(np.finfo(np.float32).eps)
"""How far a number may be from a multiple, relative to itself: a rounding of a float type, and one of the step."""


class Steps(NamedTuple):
    """The numbers are step * k with whole k, up to a rounding.  step 0: they are not.

    exact : the rounding is float64's, and else float32's
    largest_square : of the rows' norms
    """

    step: float = 0.0
    exact: bool = True
    largest_square: float = 0.0

    def for_values(self, dtype: np.dtype, gamma: float) -> float:
        """The step for kernel values of a float type, 0 where the numbers are not near enough to multiples for it.

        gamma : of an rbf kernel, else 0
        """
        enough = self.exact or (dtype == np.float32 and 2 * gamma * self.largest_square <= _FAR)
        return self.step if enough else 0.0


def steps_of(X: np.ndarray | CSR) -> Steps:
    """The step of a matrix' numbers, where products of pairs are quicker than those of floats.

    It depends on the numbers alone, and not on how they are stored or cut into blocks.
    """
    n, entries = n_rows_of(X), X.size if isinstance(X, np.ndarray) else int(X.indptr[-1] - X.indptr[0])
    if entries < max(_WORTH_IT, _FEWEST * n) or _pairs_for_each(X) > _MOST_PAIRS:
        return Steps()
    least, largest = _extremes(X)
    if least == largest or not 0.0 < least < np.inf:  # of ones alone (`ones.py`); of zeros alone
        return Steps()
    largest_square = _largest_square(X)
    for step in (1.0, least) if least >= 1.0 else (least,):
        if largest / step > LARGEST or not largest_square < 0.99 * MOST * step * step:
            continue
        if _are_multiples(X, step, _ROUNDED):
            return Steps(step, _are_multiples(X, step, _EXACT), largest_square)
    return Steps()


def steps_of_bytes(dtype: np.dtype, n: int, n_features: int) -> Steps:
    """The step of dense rows of bytes, which need not be read for it: (n, n_features)."""
    if dtype.kind not in "iu" or dtype.itemsize > 1 or n_features < _FEWEST or n * n_features < _WORTH_IT:
        return Steps()
    largest = max(-int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    largest_square = float(n_features * largest**2)
    return Steps(1.0, True, largest_square) if largest_square < MOST else Steps()


def _pieces(X: np.ndarray | CSR) -> Iterator[np.ndarray]:
    """All numbers as float64, some at a time."""
    if isinstance(X, CSR):
        first, last = int(X.indptr[0]), int(X.indptr[-1])
        for at in range(first, last, _PIECE):
            yield np.asarray(X.data[at : min(at + _PIECE, last)], np.float64)
        return
    rows = max(_PIECE // X.shape[1], 1)
    for at in range(0, len(X), rows):
        yield np.asarray(X[at : at + rows].ravel(), np.float64)


def _extremes(X: np.ndarray | CSR) -> tuple[float, float]:
    """The least absolute value above 0 and the largest; NaN where one is not a number."""
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
    """Whether all numbers are whole multiples of a step, up to `slack` of themselves."""
    per_step = 1.0 / step
    for x in _pieces(X):
        off = np.rint(x * per_step)
        off *= step
        off -= x
        if not np.all(np.abs(off, out=off) <= slack * np.abs(x)):
            return False
    return True


def _pairs_for_each(X: np.ndarray | CSR) -> float:
    """Pairs of features 2 j and 2 j + 1 with a number, for each number of a row."""
    if not isinstance(X, CSR):
        return 0.5
    n = len(X.indptr) - 1
    pairs = numbers = 0
    for row in np.unique(np.linspace(0, n - 1, min(_SAMPLE, n)).astype(np.int64)):
        features = X.indices[X.indptr[row] : X.indptr[row + 1]]
        numbers += len(features)
        pairs += len(np.unique(features >> 1))
    return pairs / max(numbers, 1)
