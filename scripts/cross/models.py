"""The models that a step asks for, from the case alone: classes, pairs, costs, and what each is evaluated in."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from cross.case import Case, Step
from cross.definition import Kernelled, Linear, Programme, Real, kernel_errors, kernel_matrix
from cross.joint import JointProgramme
from cross.labels import renamed
from cross.nu import NuProgramme


@dataclass
class Wanted:
    """One model: the rows that take part, its programme, and the space in which beta has a norm.

    positive, negative : the classes that it tells apart as they are called; None for regression, and for all others
    """

    rows: np.ndarray
    programme: Programme | NuProgramme
    space: Linear | Kernelled
    positive: Any
    negative: Any


@dataclass
class Asked:
    """All that a step asks for.

    X : longdouble rows;  classes : ascending, none for regression;  K, K_errors : of all rows, where there is a kernel
    joint : the programme of one loss of all classes, of three and more
    """

    X: np.ndarray
    classes: np.ndarray
    models: list[Wanted]
    K: np.ndarray | None
    K_errors: np.ndarray | None
    joint: JointProgramme | None = None

    @property
    def n_proofs(self) -> int:
        """Objectives that are told."""
        return len(self.models) if self.joint is None else 1


def asked(case: Case, step: Step) -> Asked:
    """The problem of a step, by the contract's words."""
    options, X = step.options, case.X.astype(Real)
    weight = np.ones(len(X), Real) if step.weight is None else case.weights[step.weight].astype(Real)
    C = 1 / (Real(lambda_of(options.C, len(X))) * len(X)) if options.lam else Real(options.C)
    K, errors = _kernel(X, step)
    B = options.B if options.bias == "augmented" else 0.0

    def model(t: np.ndarray, cost: np.ndarray, positive: Any, negative: Any) -> Wanted:
        rows = np.flatnonzero(cost > 0)
        epsilon = options.epsilon if options.regression else 0.0
        programme: Programme | NuProgramme
        if options.nu is not None:
            programme = NuProgramme(t[rows], cost[rows], options.loss, options.nu)
        else:
            programme = Programme(t[rows], cost[rows], options.loss, options.bias == "free", epsilon)
        if K is None:
            space: Linear | Kernelled = Linear(X[rows], B)
        else:
            assert errors is not None
            space = Kernelled(K[np.ix_(rows, rows)], errors[np.ix_(rows, rows)])
        return Wanted(rows, programme, space, positive, negative)

    if options.regression:
        targets = case.targets[step.label.removeprefix("target_")].astype(Real)
        return Asked(X, np.zeros(0), [model(targets, C * weight, None, None)], K, errors)
    if options.loss == "one_class":  # of rows by any labels
        return Asked(X, np.array([-1, 1]), [model(np.ones(len(X), Real), weight, None, None)], K, errors)
    C = Real(1) if options.nu is not None else C
    classes, codes = np.unique(renamed(case.labels[step.label], step.label_map, step.positive), return_inverse=True)
    cost = C * weight * _class_weights(step, classes, codes, weight)[codes]
    joint = None
    if options.together and len(classes) == 2:  # of two the hinge loss with twice the cost
        cost = 2 * cost
    elif options.together:
        rows = np.flatnonzero(cost > 0)
        joint = JointProgramme(rows, codes[rows], cost[rows], len(classes), Linear(X[rows], B))
    return Asked(X, classes, [
        model(np.where(codes == p, Real(1), Real(-1)),
              cost if q is None else np.where((codes == p) | (codes == q), cost, 0),
              classes[p], None if q is None else classes[q])
        for p, q in _told_apart(len(classes), options.pairs)
    ], K, errors, joint)  # fmt: skip


def lambda_of(C: float, n: int) -> float:
    """lambda with C = 1 / (lambda n), rounded as a user would type it."""
    return float(f"{1.0 / (C * n):.4g}")


def _told_apart(n_classes: int, pairs: bool) -> list[tuple[int, int | None]]:
    """(positive, negative) codes of each model; the last class is positive of two."""
    if n_classes == 2:
        return [(1, None)]
    return list(combinations(range(n_classes), 2)) if pairs else [(k, None) for k in range(n_classes)]


def _class_weights(step: Step, classes: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> np.ndarray:
    found = np.ones(len(classes), Real)
    if step.class_weight == "balanced":  # n / (classes * count), of rows that take part
        counts = np.bincount(codes[weight > 0], minlength=len(classes)).astype(Real)
        return counts.sum() / (len(classes) * np.maximum(counts, 1))
    if step.class_weight:
        for k, name in enumerate(classes.tolist()):
            found[k] = step.class_weight.get(name, 1.0)
    return found


def _kernel(X: np.ndarray, step: Step) -> tuple[np.ndarray | None, np.ndarray | None]:
    kernel = step.options.kernel
    if kernel["name"] == "linear":
        return None, None
    if kernel["name"] == "precomputed":
        return X, np.zeros_like(X)
    K = kernel_matrix(X, X, kernel)
    return K, kernel_errors(X, X, K, kernel)
