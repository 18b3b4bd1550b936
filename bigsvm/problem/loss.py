"""Margin losses: the readable truth beside the compiled branch.

A loss enters a dual solver as numbers only: the box [0, upper_factor * C_i] of alpha_i and the diagonal
diag_factor / C_i added to the Gram matrix (docs/mathematics.md 1.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from bigsvm.errors import Unsupported


class Loss(Protocol):
    """loss(s) per unit of C, at the slack s = 1 - y f(x)."""

    name: ClassVar[str]
    code: ClassVar[int]
    upper_factor: ClassVar[float]
    diag_factor: ClassVar[float]

    def value(self, s: np.ndarray) -> np.ndarray: ...
    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray: ...


@dataclass(frozen=True)
class Hinge:
    """max(0, s): the L1 loss of LIBLINEAR's -s 3."""

    name: ClassVar[str] = "hinge"
    code: ClassVar[int] = 0
    upper_factor: ClassVar[float] = 1.0
    diag_factor: ClassVar[float] = 0.0

    def value(self, s: np.ndarray) -> np.ndarray:
        """Loss at slack s, any shape."""
        return np.maximum(s, 0.0)

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """sup over s of alpha s - C value(s): 0 inside the box, infinite outside."""
        return np.where((alpha >= 0) & (alpha <= C), 0.0, np.inf)


@dataclass(frozen=True)
class SquaredHinge:
    """max(0, s)^2: the L2 loss of LIBLINEAR's -s 1 and -s 2, scikit-learn's default."""

    name: ClassVar[str] = "squared_hinge"
    code: ClassVar[int] = 1
    upper_factor: ClassVar[float] = np.inf
    diag_factor: ClassVar[float] = 0.5

    def value(self, s: np.ndarray) -> np.ndarray:
        """Loss at slack s, any shape."""
        return np.maximum(s, 0.0) ** 2

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """sup over s of alpha s - C value(s) = alpha^2 / (4 C) for alpha >= 0, else infinite."""
        return np.where(alpha >= 0, alpha**2 / (4.0 * C), np.inf)


@dataclass(frozen=True)
class EpsilonInsensitive:
    """max(0, |r| - epsilon) of the residual r = t - f(x): the loss of LIBSVM's eps-SVR.  Of kernel solvers."""

    name: ClassVar[str] = "epsilon_insensitive"
    code: ClassVar[int] = 2
    upper_factor: ClassVar[float] = 1.0
    diag_factor: ClassVar[float] = 0.0

    epsilon: float = 0.1

    def value(self, s: np.ndarray) -> np.ndarray:
        """Loss at residual s, any shape."""
        return np.maximum(np.abs(s) - self.epsilon, 0.0)

    def conjugate(self, alpha: np.ndarray, C: float) -> np.ndarray:
        """sup over r of beta r - C value(r) = epsilon |beta| inside the box, else infinite."""
        return np.where(np.abs(alpha) <= C, self.epsilon * np.abs(alpha), np.inf)


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Hinge(), SquaredHinge(), EpsilonInsensitive())}
REGRESSION = ("epsilon_insensitive", "squared_epsilon_insensitive")
"""Losses of a target, not of a class."""


def loss_named(name: str) -> Loss:
    """The loss of that name.  Raises Unsupported naming the ones there are."""
    if name not in LOSSES:
        raise Unsupported(f"the loss {name!r} is not available", hint=f"available: {', '.join(LOSSES)}")
    return LOSSES[name]
