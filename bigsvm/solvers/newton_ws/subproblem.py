"""A problem on the rows of a working set, with all other rows folded into one vector.

    min_w  |w|^2 / 2 - lean.(w - at) + (w - at)' F (w - at) / 2 + sum_i C_i loss(1 - y_i f(x_i))

The sum is over the rows of the working set.  The fold is `lean` and F, sums over the folded rows that violate the
margin.  For the hinge loss lean = sum C_i y_i [x_i, bias] and F = 0.  For the squared hinge
lean = sum 2 C_i s_i y_i [x_i, bias], with the slacks s_i at the point `at`, and F = sum 2 C_i x_i x_i'.

The fold is exact as long as no folded row crosses its hyperplane.  Beyond that, far rows of a random sample stand for
the others.  A sampled row that is folded has side -1: it pays loss(y f(x) - 1) once it leaves the margin, which is what
the fold wrongly counts as won.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from bigsvm.compiled.linear.hessian import add_hessian, factor_symmetric, triangle_diagonal, triangle_size
from bigsvm.compiled.linear.primal import add_rows, signed_margins
from bigsvm.solvers.newton_ws.held_rows import Held, n_held, pieces
from bigsvm.store.blocks import Matrix
from bigsvm.tasks import PassLeft, who_asks_to_leave

_POSITIVE = np.array([1], np.int32)
T = TypeVar("T")
_WORTH_A_THREAD = 1 << 20  # multiplications below which starting a thread takes longer than the work
SLICES = 2  # shares of the rows that are worked on at the same time; their sums are added in order


class Solution(NamedTuple):
    """The solution of a subproblem.  w : float64, (n_features + 1,);  alpha : float64, (n_rows,);  iterations : int"""

    w: np.ndarray
    alpha: np.ndarray
    iterations: int


@dataclass(kw_only=True)
class Around:
    """The terms of the problem that are no sums over kept rows.  They stay with the solver, wherever the rows are.

    free : bool   the bias is not regularised
    lean, at : float64, (n_features + 1,);  F : float64, a triangle (`compiled/linear/hessian.py`), or None for 0
    spread : float   how far the last weight may have to move, at least as `penalty` counts
    """

    free: bool
    lean: np.ndarray
    at: np.ndarray
    F: np.ndarray | None = None
    spread: float = 0.0

    def penalty(self, w: np.ndarray, V: np.ndarray) -> float:
        """What a gap at w and V lacks if the bias is free: the dual point is feasible only if sum alpha is 0.

        Near w_last = 0 the product alone says nothing: among large losses it was small with all alpha at their bounds.
        """
        return (abs(float(w[-1])) + self.spread) * abs(float(V[-1])) if self.free else 0.0

    def value(self, w: np.ndarray, losses: float) -> float:
        """The value of the problem with the hinge loss, where sum C loss over the rows is `losses`."""
        return 0.5 * float(w @ (self.regulariser * w)) - float(self.lean @ w) + losses

    @property
    def regulariser(self) -> np.ndarray:
        """float64, (n_features + 1,): the factors of w_j^2 in |w|^2, which are 1, and 0 for a free bias."""
        R = np.ones(len(self.lean))
        R[-1] = 0.0 if self.free else 1.0
        return R

    def triangles(self) -> list[np.ndarray]:
        """An uninitialised triangle for each of the SLICES."""
        return [np.empty(triangle_size(len(self.lean))) for _ in range(SLICES)]

    def complete(self, H: np.ndarray) -> None:
        """Add the regulariser and F to the sum over the rows, a triangle."""
        H[triangle_diagonal(len(self.lean))] += self.regulariser
        if self.F is not None:
            H += self.F

    def factor(self, H: list[np.ndarray]) -> None:
        """Add the regulariser and F to the sum over the rows in H[0], and put its factor into H[1]."""
        self.complete(H[0])
        factor_symmetric(*H)


@dataclass(kw_only=True)
class Subproblem(Around):
    """The problem with its rows, which are a few matrices one below the other.

    parts : the matrices, coded or not
    codes : int32, (n_rows,)    1 for rows with y = +1
    C : float64, (n_rows,)      costs, positive
    far : bool, (n_rows,)       rows of the sample that stand for many others
    side : float64, (n_rows,)   1, or -1 for rows whose loss is loss(y f(x) - 1): they pay for leaving the margin
    bias : float                constant feature, 0 for none
    """

    parts: list[Held]
    codes: np.ndarray
    C: np.ndarray
    far: np.ndarray
    side: np.ndarray
    bias: float
    threads: int = 1

    def __post_init__(self) -> None:
        ends = np.cumsum([0, *(n_held(part) for part in self.parts)])
        self._rows = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
        half = int(np.searchsorted(ends, ends[-1] / SLICES))
        self._shares = [range(half), range(half, len(self.parts))]

    def slacks(self, w: np.ndarray) -> np.ndarray:
        """1 - y f(x) of every row times its side; float64, (n_rows,)."""
        return self.side * self.margins(w, 1.0, -1.0)

    def products(self, d: np.ndarray) -> np.ndarray:
        """y (x.d + bias d_last) of every row times its side; float64, (n_rows,)."""
        return self.side * self.margins(d, 0.0, 1.0)

    def pull(self, coefficients: np.ndarray) -> np.ndarray:
        """sum_i side_i coefficients_i y_i [x_i, bias]; float64, (n_features + 1,)."""
        return self.summed(coefficients * self.side)

    def summed(self, coefficients: np.ndarray) -> np.ndarray:
        """sum_i coefficients_i y_i [x_i, bias]; float64, (n_features + 1,)."""

        def some(share: range) -> np.ndarray:
            V = np.zeros(len(self.lean))
            for rows, X in self._pieces(share):
                add_rows(X, self.codes[rows], _POSITIVE, coefficients[rows, None], self.bias, V)
            return V

        first, second = self._both(some)
        return first + second

    def add_hessian(self, h: np.ndarray, H: list[np.ndarray]) -> None:
        """Put the triangle of sum_i h_i [x_i, bias] [x_i, bias]' into H[0]; H[1] is work space.

        Raises PassLeft if the run is to stop: of all that is computed here this takes the longest.
        """
        for part in H:
            part[:] = 0.0
        self.add_to_hessian(h, H)
        H[0] += H[1]

    def change_hessian(self, change: np.ndarray, H: list[np.ndarray]) -> None:
        """Add the triangle of the sum with these h to H[0]; H[1] is work space.  Raises PassLeft like `add_hessian`."""
        H[1][:] = 0.0
        self.add_to_hessian(change, H)
        H[0] += H[1]

    def add_to_hessian(self, h: np.ndarray, H: list[np.ndarray]) -> None:
        """Add the sums of `add_hessian` over the two shares of the rows to H[0] and H[1].  Raises PassLeft like it."""
        stopping = who_asks_to_leave()  # now, because the threads of `_both` do not know it

        def some(share: range) -> None:
            mine = H[0] if share is self._shares[0] else H[1]
            for rows, X in self._pieces(share):
                if stopping():
                    raise PassLeft
                add_hessian(X, h[rows], self.bias, mine)

        self._both(some, len(self.lean) // 2)

    def margins(self, w: np.ndarray, start: float, factor: float) -> np.ndarray:
        """start + factor y_i (x_i.w + bias w_last) of every row; float64, (n_rows,)."""
        out, w = np.empty((len(self.codes), 1)), np.ascontiguousarray(w)  # of several models w is a column

        def some(share: range) -> None:
            for rows, X in self._pieces(share):
                signed_margins(X, self.codes[rows], _POSITIVE, w, self.bias, start, factor, out[rows])

        self._both(some)
        return out[:, 0]

    def _pieces(self, share: range) -> Iterator[tuple[slice, Matrix]]:
        """(range of rows, matrix) for the rows of a share, decoded if they are coded."""
        for k in share:
            first = self._rows[k].start
            for rows, X in pieces(self.parts[k]):
                yield slice(first + rows.start, first + rows.stop), X

    def _both(self, some: Callable[[range], T], times: int = 1) -> list[T]:
        """`some` of both shares, on two threads if worth it; each entry of a row is multiplied about `times` times."""
        work = len(self.codes) * len(self.lean) * times
        if self.threads == 1 or len(self.parts) == 1 or work < _WORTH_A_THREAD:
            return [some(share) for share in self._shares]
        with ThreadPoolExecutor(SLICES, "bigsvm-working-set") as pool:
            return list(pool.map(some, self._shares))
