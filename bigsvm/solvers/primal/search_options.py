"""Options that the methods of the Rosenbrock paper share: the start point, and the kind of line search."""

from __future__ import annotations

import numpy as np

from bigsvm.problem.problem import Problem, zero_weights


def check_search(start: str, line_search: str, eps1: float, eps2: float) -> None:
    """Raise ValueError if an option of the methods of the Rosenbrock paper is invalid."""
    if start not in ("zeros", "ones"):
        raise ValueError(f"start must be zeros or ones, not {start!r}")
    if line_search not in ("exact", "newton"):
        raise ValueError(f"line_search must be exact or newton, not {line_search!r}")
    if not (eps1 >= 0 and eps2 > 0):
        raise ValueError("eps1 must not be negative and eps2 must be positive")


def weights_named(start: str, problem: Problem, n_features: int) -> np.ndarray:
    """The start point: w = 0, or all ones as in the Rosenbrock paper.  Without a bias, the bias entry is 0."""
    w = zero_weights(n_features, problem.n_models)
    if start == "ones":
        w[...] = 1.0
        if problem.bias == "none":
            w[-1] = 0.0
    return w
