"""Losses: everything that a solver or a proof wants to know of one is said here, once.

A loss is a function of the slack s of a row, which is 1 - y f(x) of a label and y - f(x) of a target.  A dual solver
takes it as numbers: the box [lower_factor C_i, upper_factor C_i] of alpha_i, the diagonal diag_factor / C_i that is
added to the Gram matrix, and epsilon (docs/mathematics.md 1.4).  A primal solver takes the dual variable C_i loss'(s_i)
and the curvature C_i loss''(s_i).  The compiled twins are in `compiled/shared/losses.py`; a test holds them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.compiled.shared.losses import EPSILON_INSENSITIVE, HINGE, SQUARED_EPSILON_INSENSITIVE, SQUARED_HINGE
from bigsvm.errors import Unsupported


@dataclass(frozen=True)
class Loss:
    """loss(s) per unit of C; every loss is piecewise quadratic.

    code : by which compiled loops branch
    upper_factor : times C_i: the largest alpha_i;  the smallest is 0 of a class, and as far from 0 of a target
    diag_factor : over C_i: what the conjugate adds to the diagonal of the Gram matrix
    smooth : its slope has no jump, so that it bends somewhere and alpha_i has no upper bound
    regression : of a target, not of a class
    joint : of all models together
    one_sided : code of the loss of one side, max(0, s) or its square, as line searches know it
    epsilon : residuals up to this cost nothing, in units of the target; 0 for classes
    nu : share of the rows that sets the margin, or epsilon, in their place (docs/mathematics.md 1.7); None: it is given
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
        """Times C_i: the smallest alpha_i."""
        return -self.upper_factor if self.regression else 0.0

    @property
    def sides(self) -> tuple[tuple[float, float], ...]:
        """(sign, shift) whose one-sided losses at  sign s - shift  sum up to loss(s)."""
        return ((1.0, self.epsilon), (-1.0, self.epsilon)) if self.regression else ((1.0, 0.0),)

    def value(self, s: np.ndarray) -> np.ndarray:
        """Loss at slacks of any shape."""
        raise NotImplementedError

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """sup over s of alpha s - C value(s), of any shape; infinite where alpha is outside its box."""
        raise NotImplementedError

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """C loss'(s): the dual variables that slacks determine, of slacks and costs of one shape."""
        raise NotImplementedError

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """C loss''(s), the generalised second derivative; 0 on either side of a kink, and at it."""
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
    """max(0, rho - y f(x)) - nu rho with a margin rho that is found, LIBSVM's nu-SVC; of f / rho it is the hinge."""

    name: ClassVar[str] = "nu_svc"


@dataclass(frozen=True)
class NuSVR(EpsilonInsensitive):
    """max(0, |s| - epsilon) + nu epsilon with an epsilon that is found: LIBSVM's nu-SVR."""

    name: ClassVar[str] = "nu_svr"


@dataclass(frozen=True)
class OneClass(Hinge):
    """max(0, rho - w.x) - nu rho of all rows, whatever their labels: LIBSVM's one-class SVM."""

    name: ClassVar[str] = "one_class"


@dataclass(frozen=True)
class CrammerSinger(Hinge):
    """max over classes k of [k != y] + (w_k - w_y).x, of all models together (`joint.py`): LIBLINEAR's -s 4."""

    name: ClassVar[str] = "crammer_singer"
    joint: ClassVar[bool] = True


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Hinge, SquaredHinge, EpsilonInsensitive, SquaredEpsilonInsensitive)
}
NU: dict[str, type[Loss]] = {loss.name: loss for loss in (NuSVC, NuSVR, OneClass)}
"""Losses whose margin or epsilon is found, so that nothing of them is known of a row alone."""


JOINT: dict[str, type[Loss]] = {CrammerSinger.name: CrammerSinger}
"""Losses of all classes together, which are no functions of one slack."""


def loss_named(name: str, epsilon: float = 0.0, nu: float = 0.5) -> Loss:
    """The loss of that name, with `epsilon` where it is one of targets.  Raises Unsupported naming those there are."""
    if name in NU:
        return NU[name](nu=float(nu))
    if name in JOINT:
        return JOINT[name]()
    if name not in LOSSES:
        known = ", ".join((*LOSSES, *NU, *JOINT))
        raise Unsupported(f"the loss {name!r} is not available", hint=f"available: {known}")
    loss = LOSSES[name]
    return loss(float(epsilon)) if loss.regression else loss()
