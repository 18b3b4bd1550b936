"""The losses: all that solvers and proofs need to know of them, in one place.

A loss is a function of the slack s of a row: 1 - y f(x) for a label, y - f(x) for a target.  A dual solver needs a few
numbers: the box [lower_factor C_i, upper_factor C_i] of alpha_i, the diagonal diag_factor / C_i that is added to the
Gram matrix, and epsilon (docs/mathematics.md 1.4).  A primal solver needs the dual variable C_i loss'(s_i) and the
curvature C_i loss''(s_i).  `compiled/shared/losses.py` has the compiled functions; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.compiled.shared.losses import EPSILON_INSENSITIVE, HINGE, SQUARED_EPSILON_INSENSITIVE, SQUARED_HINGE
from bigsvm.errors import Unsupported


@dataclass(frozen=True)
class Loss:
    """The loss of a row per unit of its C, as a function of its slack s.  Every loss is piecewise quadratic.

    code : int             number by which compiled loops branch
    upper_factor : float   largest alpha_i over C_i; the smallest alpha_i is 0 for classes, minus that for targets
    diag_factor : float    what the conjugate adds to the diagonal of the Gram matrix, times C_i
    smooth : bool          the slope has no jump; then alpha_i has no upper bound
    regression : bool      rows have targets instead of classes
    joint : bool           the loss couples all models
    one_sided : int        code of the loss of one side, max(0, s) or its square, for line searches
    epsilon : float        largest residual without a cost, in units of the target; 0 for classes
    nu : float             share of the rows from which the margin or epsilon is found (docs/mathematics.md 1.7); None:
        they are given
    """

    name: ClassVar[str]
    code: ClassVar[int]
    upper_factor: ClassVar[float]
    diag_factor: ClassVar[float]
    smooth: ClassVar[bool]
    one_sided: ClassVar[int]
    regression: ClassVar[bool] = False
    joint: ClassVar[bool] = False

    epsilon: float = 0.0
    nu: float | None = None

    @property
    def lower_factor(self) -> float:
        """Smallest alpha_i over C_i."""
        return -self.upper_factor if self.regression else 0.0

    @property
    def sides(self) -> tuple[tuple[float, float], ...]:
        """Pairs (sign, shift): loss(s) is the sum of the one-sided loss at sign s - shift over them."""
        return ((1.0, self.epsilon), (-1.0, self.epsilon)) if self.regression else ((1.0, 0.0),)

    def value(self, s: np.ndarray) -> np.ndarray:
        """loss(s) at slacks of any shape."""
        raise NotImplementedError

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """sup over s of alpha s - C value(s), at alpha of any shape; infinite outside the box."""
        raise NotImplementedError

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """C loss'(s): the dual variables from slacks and costs of the same shape."""
        raise NotImplementedError

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """C loss''(s), the generalised second derivative; the jump of the slope at a kink counts as 0."""
        raise NotImplementedError


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, s): the L1 loss of LIBLINEAR's -s 3."""

    name: ClassVar[str] = "hinge"
    code: ClassVar[int] = HINGE
    upper_factor: ClassVar[float] = 1.0
    diag_factor: ClassVar[float] = 0.0
    smooth: ClassVar[bool] = False
    one_sided: ClassVar[int] = HINGE

    def value(self, s: np.ndarray) -> np.ndarray:
        return np.maximum(s, 0.0)

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """0 inside the box."""
        return np.where((alpha >= 0) & (alpha <= C), 0.0, np.inf)

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.where(s > 0.0, C, 0.0)

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.zeros(s.shape)


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, s)^2: the L2 loss of LIBLINEAR's -s 1 and -s 2, scikit-learn's default."""

    name: ClassVar[str] = "squared_hinge"
    code: ClassVar[int] = SQUARED_HINGE
    upper_factor: ClassVar[float] = np.inf
    diag_factor: ClassVar[float] = 0.5
    smooth: ClassVar[bool] = True
    one_sided: ClassVar[int] = SQUARED_HINGE

    def value(self, s: np.ndarray) -> np.ndarray:
        return np.maximum(s, 0.0) ** 2

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """alpha^2 / (4 C) for alpha >= 0."""
        return np.where(alpha >= 0, alpha**2 / (4.0 * C), np.inf)

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        return 2.0 * C * np.maximum(s, 0.0)

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.where(s > 0.0, 2.0 * C, 0.0)


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """max(0, |s| - epsilon) of the residual s = y - f(x): the loss of LIBSVM's eps-SVR and LIBLINEAR's -s 13."""

    name: ClassVar[str] = "epsilon_insensitive"
    code: ClassVar[int] = EPSILON_INSENSITIVE
    upper_factor: ClassVar[float] = 1.0
    diag_factor: ClassVar[float] = 0.0
    smooth: ClassVar[bool] = False
    one_sided: ClassVar[int] = HINGE
    regression: ClassVar[bool] = True

    epsilon: float = 0.1

    def value(self, s: np.ndarray) -> np.ndarray:
        return np.maximum(np.abs(s) - self.epsilon, 0.0)

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """epsilon |alpha| inside the box, which is [-C, C]."""
        return np.where(np.abs(alpha) <= C, self.epsilon * np.abs(alpha), np.inf)

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.where(np.abs(s) > self.epsilon, np.sign(s) * C, 0.0)

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.zeros(s.shape)


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(Loss):
    """max(0, |s| - epsilon)^2 of the residual s = y - f(x): the loss of LIBLINEAR's -s 11 and -s 12."""

    name: ClassVar[str] = "squared_epsilon_insensitive"
    code: ClassVar[int] = SQUARED_EPSILON_INSENSITIVE
    upper_factor: ClassVar[float] = np.inf
    diag_factor: ClassVar[float] = 0.5
    smooth: ClassVar[bool] = True
    one_sided: ClassVar[int] = SQUARED_HINGE
    regression: ClassVar[bool] = True

    epsilon: float = 0.1

    def value(self, s: np.ndarray) -> np.ndarray:
        return np.maximum(np.abs(s) - self.epsilon, 0.0) ** 2

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """alpha^2 / (4 C) + epsilon |alpha|; alpha has no bounds."""
        return alpha**2 / (4.0 * C) + self.epsilon * np.abs(alpha)

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        return 2.0 * C * np.copysign(np.maximum(np.abs(s) - self.epsilon, 0.0), s)

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.where(np.abs(s) > self.epsilon, 2.0 * C, 0.0)


@dataclass(frozen=True)
class NuSVC(Hinge):
    """max(0, rho - y f(x)) - nu rho, LIBSVM's nu-SVC.  rho is optimised too; for f / rho this is the hinge."""

    name: ClassVar[str] = "nu_svc"


@dataclass(frozen=True)
class NuSVR(EpsilonInsensitive):
    """max(0, |s| - epsilon) + nu epsilon, LIBSVM's nu-SVR.  epsilon is optimised too."""

    name: ClassVar[str] = "nu_svr"


@dataclass(frozen=True)
class OneClass(Hinge):
    """max(0, rho - w.x) - nu rho for all rows, whatever their labels: LIBSVM's one-class SVM."""

    name: ClassVar[str] = "one_class"


@dataclass(frozen=True)
class CrammerSinger(Hinge):
    """max over classes k of [k != y] + (w_k - w_y).x, a loss that couples all models (`joint.py`): LIBLINEAR's -s 4."""

    name: ClassVar[str] = "crammer_singer"
    joint: ClassVar[bool] = True


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Hinge, SquaredHinge, EpsilonInsensitive, SquaredEpsilonInsensitive)
}
"""Losses that are functions of the slack of one row."""
_NU: tuple[type[Loss], ...] = (NuSVC, NuSVR, OneClass)
"""Losses whose margin or epsilon is found, so that nothing of them is known of a row alone."""
_JOINT: tuple[type[Loss], ...] = (CrammerSinger,)
"""Losses of all classes together, which are no functions of one slack."""
_ALL: dict[str, type[Loss]] = {**LOSSES, **{loss.name: loss for loss in (*_NU, *_JOINT)}}


def loss_named(name: str, epsilon: float = 0.0, nu: float = 0.5) -> Loss:
    """The loss of that name; `epsilon` and `nu` are used only if it has them.  Raises Unsupported for other names."""
    if name not in _ALL:
        raise Unsupported(f"the loss {name!r} is not available", hint=f"available: {', '.join(_ALL)}")
    loss = _ALL[name]
    if loss in _NU:
        return loss(nu=float(nu))
    return loss(float(epsilon)) if loss.regression else loss()
