"""How a calibration turns scores into probabilities.  Imports NumPy and nothing of bigsvm.

A calibration is a JSON document, saved as `calibration.json` beside a model:

    {"method": "sigmoid",  "curves": [{"A": -1.9, "B": 0.1}], ...}
    {"method": "isotonic", "curves": [{"x": [-2.0, 0.1, 1.5], "y": [0.0, 0.4, 1.0]}], ...}

A single curve gives the probability of the last of two classes.  Several curves give one probability for each class
against the rest, and the probabilities of a row are then divided by their sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

METHODS = ("sigmoid", "isotonic")


def probabilities(calibration: Mapping[str, Any], class_scores: np.ndarray) -> np.ndarray:
    """Probabilities, float64, (n_rows, n_classes); each row sums to 1.

    class_scores : float64, (n_rows, 1) for two classes, else (n_rows, n_classes): the input of the curves

    If all classes of a row have probability 0, each gets 1 / n_classes.
    """
    curves = calibration["curves"]
    found = np.column_stack(
        [curve_of(calibration["method"], curve, class_scores[:, k]) for k, curve in enumerate(curves)]
    )
    if len(curves) == 1:
        return np.column_stack([1.0 - found[:, 0], found[:, 0]])
    total = found.sum(axis=1, keepdims=True)
    return np.divide(found, total, out=np.full_like(found, 1.0 / len(curves)), where=total > 0.0)


def curve_of(method: str, curve: Mapping[str, Any], scores: np.ndarray) -> np.ndarray:
    """One curve at scores (n,): 1 / (1 + exp(A s + B)) for a sigmoid, or linear interpolation between its points."""
    if method == "isotonic":
        return np.interp(scores, np.asarray(curve["x"]), np.asarray(curve["y"]))
    z = curve["A"] * scores + curve["B"]
    small = np.exp(-np.abs(z))  # in this form exp cannot overflow
    return np.where(z >= 0.0, small / (1.0 + small), 1.0 / (1.0 + small))


def fault_of(calibration: Any, n_classes: int) -> str:
    """The fault of a document as a calibration of `n_classes` classes, for an error message; '' if it is valid."""
    if not isinstance(calibration, dict) or calibration.get("method") not in METHODS:
        return "its method is unknown"
    curves = calibration.get("curves")
    if not isinstance(curves, list) or len(curves) != (1 if n_classes == 2 else n_classes):
        return f"it does not have the curves of {n_classes} classes"
    names = ("x", "y") if calibration["method"] == "isotonic" else ("A", "B")
    for curve in curves:
        try:
            first, second = (np.asarray(curve[name], np.float64) for name in names)
        except (KeyError, TypeError, ValueError):
            return f"a curve has no valid {names[0]} or {names[1]}"
        if first.shape != second.shape or not (np.isfinite(first).all() and np.isfinite(second).all()):
            return "a curve has values that are not finite"
        if calibration["method"] == "isotonic" and not (first.ndim == 1 and len(first) and np.all(np.diff(first) > 0)):
            return "a curve does not ascend"
        if calibration["method"] == "sigmoid" and first.ndim:
            return "A and B must be numbers"
    return ""
