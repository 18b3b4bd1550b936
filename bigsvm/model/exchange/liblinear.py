"""LIBLINEAR's model files (text).

    solver_type NAME / nr_class K / label L1 ... LK / nr_feature N / bias B / w
    and then a line for each feature, with one weight for each model; if B >= 0 a last line for the constant feature

Two classes have one model, whose positive class is the first label.  More classes have one model each, and the largest
score wins.  A regression has no labels.  The score is w.x + w_bias B.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from bigsvm.config import JOINT_LOSS, JOINT_RULE
from bigsvm.errors import DataError, UsageError
from bigsvm.model.decide import Decides
from bigsvm.model.exchange.text_model import (
    Lines,
    digits,
    label_order,
    labels_of,
    one,
    order_of,
    refuse_scaled,
    whole,
    whole_labels,
)
from bigsvm.model.linear_model import LinearModel

NAME = "LIBLINEAR"
_WRITTEN = {
    "squared_hinge": "L2R_L2LOSS_SVC_DUAL",
    "hinge": "L2R_L1LOSS_SVC_DUAL",
    "epsilon_insensitive": "L2R_L1LOSS_SVR_DUAL",
    "squared_epsilon_insensitive": "L2R_L2LOSS_SVR_DUAL",
    JOINT_LOSS: "MCSVM_CS",
}
_READ: dict[str, str | None] = {
    **{solver: loss for loss, solver in _WRITTEN.items()},
    "L2R_L2LOSS_SVC": "squared_hinge",
    "L2R_L2LOSS_SVR": "squared_epsilon_insensitive",
    # These models predict as bigsvm's do, but they solve other problems.
    **dict.fromkeys(("L2R_LR", "L2R_LR_DUAL", "L1R_LR", "L1R_L2LOSS_SVC")),
}
"""solver_type -> bigsvm's loss; None if bigsvm does not solve that problem."""
_HEAD = frozenset(("solver_type", "nr_class", "label", "nr_feature", "bias", "rho"))
_MOST_WEIGHTS = 1 << 33


def write(file: BinaryIO, model: Decides) -> None:
    """Write a linear model.  Raises UsageError if the format cannot hold the model."""
    refuse_scaled(model, NAME)
    if not isinstance(model, LinearModel):
        raise UsageError("a kernel model has no weights for LIBLINEAR", hint="--format libsvm")
    if model.pairs:
        raise UsageError(
            "LIBLINEAR's format has no models for pairs of classes (one against one)", hint="--format libsvm"
        )
    problem = model.about.get("problem", {})
    solver = _WRITTEN.get(problem.get("loss"), "L2R_L2LOSS_SVR_DUAL" if model.regression else "L2R_L2LOSS_SVC_DUAL")
    coef, intercept = model.coef, model.intercept
    head = [f"solver_type {solver}", f"nr_class {max(len(model.classes), 2)}"]
    if not model.regression:
        labels, order = whole_labels(model, NAME), order_of(model)
        head.append("label " + " ".join(str(labels[code]) for code in order))
        if len(labels) > 2:
            coef, intercept = coef[order], intercept[order]
        elif order[0] < order[1]:  # of two, the first is the positive one there
            coef, intercept = -coef, -intercept
    with_bias = problem.get("bias") != "none" or bool(np.any(intercept))
    bias, constant = _bias(intercept, problem.get("bias_scale", 1.0))
    head += [f"nr_feature {model.n_features}", f"bias {digits(bias) if with_bias else '-1'}", "w"]
    file.write(("\n".join(head) + "\n").encode())
    for row in coef.T:
        file.write((" ".join(map(digits, row)) + " \n").encode())
    if with_bias:
        file.write((" ".join(map(digits, constant)) + " \n").encode())


def _bias(intercept: np.ndarray, scale: Any) -> tuple[float, np.ndarray]:
    """(B, w_bias) whose product is exactly the intercept, with the B of training if such a w_bias exists."""
    if isinstance(scale, int | float) and scale > 0 and np.array_equal(intercept / scale * scale, intercept):
        return float(scale), intercept / scale
    return 1.0, intercept


def read(lines: Lines) -> tuple[LinearModel, list[str]]:
    """(model, warnings).  `about` describes the problem as far as the file does.  Raises DataError."""
    where = lines.where
    head = lines.head("w", _HEAD)
    solver = one(head, "solver_type", where)
    if solver not in _READ:
        raise DataError(f"solver_type {solver[:40]} is neither classification nor regression", where)
    loss, n_classes, n_features = _READ[solver], whole(head, "nr_class", where, 2), whole(head, "nr_feature", where)
    regression = solver.startswith("L2R_") and "SVR" in solver
    labels = np.empty(0, np.int64) if regression else labels_of(head, n_classes, where)
    if solver == "MCSVM_CS" and n_classes == 2:
        raise DataError(
            "MCSVM_CS keeps two weight vectors for two classes, which bigsvm cannot read",
            where,
            "train two classes with -s 1 or 3",
        )
    bias = float(lines.numbers([one(head, "bias", where, "-1")], 1, "the bias")[0])
    n_models = 1 if regression or n_classes == 2 else n_classes
    n_rows = n_features + (bias >= 0)
    if n_rows * n_models > _MOST_WEIGHTS:
        raise DataError(f"the header announces {n_rows:,} x {n_models:,} weights, more than are possible", where)
    rows: list[np.ndarray] = []
    for line in lines:
        if len(rows) == n_rows:
            if line:
                raise lines.bad(f"comes after the {n_rows} rows of weights")
            continue
        rows.append(lines.numbers(line.split(), n_models, "weights"))
    if len(rows) != n_rows:
        raise DataError(f"the file is cut off: it has {len(rows)} of {n_rows} rows of weights", where)
    weights = np.array(rows)
    coef = np.ascontiguousarray(weights[:n_features].T)
    intercept = weights[-1] * bias if bias >= 0 else np.zeros(n_models)
    order = np.argsort(labels)
    if n_models > 1:
        coef, intercept = coef[order], intercept[order]
    elif len(labels) == 2 and labels[0] < labels[1]:  # in LIBLINEAR the first label is the positive class
        coef, intercept = -coef, -intercept
    problem: dict[str, Any] = {
        "bias": "augmented" if bias > 0 else "none", "bias_scale": bias if bias > 0 else 1.0, "kernel": "linear",
    }  # fmt: skip
    if loss is not None:
        problem["loss"] = loss
    if loss == JOINT_LOSS:
        problem["multi_class"] = JOINT_RULE
    imported = {"program": NAME, "solver_type": solver, **label_order(labels)}
    return LinearModel(coef, intercept, labels[order], {"problem": problem, "imported": imported}), []
