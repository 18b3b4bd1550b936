"""Probabilities in an ONNX graph: the float64 arithmetic of `probability/calibration.py`, as nodes.

An isotonic curve is piecewise linear and ascending.  If two of its points are so near each other that the order of
summation in a score decides on which side the score falls, another program cannot repeat the curve; it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigsvm.errors import UsageError
from bigsvm.model.decide import Decides

_ROUNDING = 1e-13
"""Relative difference that another order of summation may cause in a score."""
_AGREED = 1e-6
"""Difference of probabilities that is accepted."""


def check_curves(model: Decides) -> None:
    """Raise UsageError for an isotonic curve that is so steep that rounding of the scores shows in it."""
    calibration = model.about["calibration"]
    if calibration["method"] != "isotonic":
        return
    for number, curve in enumerate(calibration["curves"]):
        x, y = np.asarray(curve["x"], np.float64), np.asarray(curve["y"], np.float64)
        if len(x) < 2:
            continue
        off = _ROUNDING * max(1.0, float(np.abs(x).max()))
        with np.errstate(over="ignore"):
            at = int(np.argmax(np.diff(y) / np.diff(x)))
        if (y[at + 1] - y[at]) * off > _AGREED * (x[at + 1] - x[at]):
            label = model.classes[-1 if len(calibration["curves"]) == 1 else number]
            raise UsageError(
                f"the isotonic curve of class {label} rises by {y[at + 1] - y[at]:.2g} between scores that are "
                f"{x[at + 1] - x[at]:.2g} apart, which ONNX cannot repeat to {_AGREED:g}",
                hint="fit with --calibrate sigmoid, or export with --format npz",
            )


def add_probabilities(graph: Any, calibration: Mapping[str, Any], class_scores: str, types: Any) -> None:
    """Add the output `probabilities`, float32, (n, n_classes).

    class_scores : name of the node of class scores, float64, (n, 1) for two classes, else (n, n_classes)
    """
    curves = calibration["curves"]
    if calibration["method"] == "sigmoid":
        found = _sigmoid(graph, curves, class_scores)
    else:
        parts = [_isotonic(graph, curve, class_scores, k, types) for k, curve in enumerate(curves)]
        found = parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)
    one = np.ones((), np.float64)
    if len(curves) == 1:
        found = graph.add("Concat", graph.add("Sub", one, found), found, axis=1)
    else:
        total = graph.add("ReduceSum", found, np.array([1], np.int64), keepdims=1)
        some = graph.add("Greater", total, np.zeros((), np.float64))
        shares = graph.add("Div", found, graph.add("Where", some, total, one))
        found = graph.add("Where", some, shares, np.array(1.0 / len(curves)))
    graph.add("Cast", found, name="probabilities", to=types.FLOAT)


def _sigmoid(graph: Any, curves: Any, scores: str) -> str:
    """1 / (1 + exp(A s + B)) for all classes at once, in a form that cannot overflow."""
    one = np.ones((), np.float64)
    A, B = (np.array([curve[name] for curve in curves], np.float64) for name in ("A", "B"))
    z = graph.add("Add", graph.add("Mul", scores, A), B)
    small = graph.add("Exp", graph.add("Neg", graph.add("Abs", z)))
    top = graph.add("Where", graph.add("GreaterOrEqual", z, np.zeros((), np.float64)), small, one)
    return graph.add("Div", top, graph.add("Add", small, one))


def _isotonic(graph: Any, curve: Mapping[str, Any], scores: str, k: int, types: Any) -> str:
    """`numpy.interp` for column k, (n, 1): finds the point at or before each score, then adds slope times distance."""
    x, y = np.asarray(curve["x"], np.float64), np.asarray(curve["y"], np.float64)
    slope = np.append(np.diff(y) / np.diff(x), 0.0)
    column = graph.add("Gather", scores, np.array([k], np.int64), axis=1)
    column = graph.add("Max", column, x[:1])
    passed = graph.add("Cast", graph.add("GreaterOrEqual", column, x[1:]), to=types.INT32) if len(x) > 1 else None
    if passed is None:
        return graph.add("Add", graph.add("Mul", column, np.zeros((), np.float64)), y)
    at = graph.add("ReduceSum", passed, np.array([1], np.int64), keepdims=1)
    along = graph.add("Sub", column, graph.add("Gather", x, at, axis=0))
    return graph.add(
        "Add", graph.add("Mul", along, graph.add("Gather", slope, at, axis=0)), graph.add("Gather", y, at, axis=0)
    )
