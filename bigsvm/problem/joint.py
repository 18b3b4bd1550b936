"""Crammer and Singer's loss in NumPy: slacks, feasible duals, and duals from slacks (`compiled/linear/joint.py`).

A row of class y and cost C with scores z has the slacks s_k = [k != y] + z_k - z_y, and its loss is C max_k s_k.  Its
alpha, with an entry for each class, is feasible if only the entry of y is above 0, that entry is at most C, and all
entries sum up to 0.
"""

from __future__ import annotations

import numpy as np

from bigsvm.problem.problem import Problem


def joint_slacks(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Slacks from scores, float64, (n_rows, n_classes) both.  y : class codes, (n_rows,)"""
    rows = np.arange(len(y))
    s = 1.0 + scores - scores[rows, y][:, None]
    s[rows, y] = 0.0
    return np.asarray(s)


def joint_alpha(s: np.ndarray, y: np.ndarray, C: np.ndarray) -> np.ndarray:
    """alpha from slacks, float64, (n_rows, n_classes): -C at the largest slack (the first of equal ones), C at y.

    C : float64, (n_rows,)
    """
    rows, most = np.arange(len(y)), np.argmax(s, axis=1)
    alpha = np.zeros(s.shape)
    loses = s[rows, most] > 0.0
    alpha[rows[loses], most[loses]] = -C[loses]
    alpha[rows[loses], y[loses]] = C[loses]
    return alpha


def clip_joint(alpha: np.ndarray, y: np.ndarray, C: np.ndarray) -> None:
    """Make alpha, (n_rows, n_classes), feasible for costs C, (n_rows,), in place."""
    rows = np.arange(len(y))
    np.minimum(alpha, 0.0, out=alpha)
    alpha[rows, y] = 0.0
    spent = -alpha.sum(axis=1)
    alpha *= np.divide(C, spent, out=np.ones(len(y)), where=spent > C)[:, None]
    alpha[rows, y] = -alpha.sum(axis=1)


def joint_distance(s: np.ndarray) -> np.ndarray:
    """The largest slack of each row minus its second largest; float64, (n_rows,)."""
    two = np.partition(s, s.shape[1] - 2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])


def alpha_of_slacks(problem: Problem, y: np.ndarray, s: np.ndarray, C: np.ndarray) -> np.ndarray:
    """alpha from slacks for any loss, always feasible; float64, (n_rows, n_models).

    y : class codes, or targets;  C : float64, (n_rows, n_models)
    """
    return joint_alpha(s, y, C[:, 0]) if problem.joint else problem.loss.alpha(s, C)
