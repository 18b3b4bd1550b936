"""Classes and their weights: from scikit-learn's conventions to the options of `bigsvm.fit`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from bigsvm.problem.class_weights import weights_named
from bigsvm.sklearn.estimator import errors_of_scikit_learn, level_of_the_user
from bigsvm.store.blocks import RowBlocks, row_bytes, tile

_PIECE = 1 << 18  # labels
_SHOWN = 10  # labels in a message
_BLOCK = 4 << 20  # bytes of rows that are read at a time


def coded(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """(classes ascending, code of each row).  Raises ValueError for continuous targets, and for one class only."""
    check_classification_targets(y)
    y = np.asarray(y)
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(
            f"This solver needs samples of at least 2 classes in the data, but the data contains only one class: "
            f"{classes[0]!r}"
        )
    # np.unique with its inverse would take 40 bytes a row, more than rows with few features have.
    codes = np.empty(len(y), np.min_scalar_type(-len(classes)))
    for start, stop in tile(len(y), _PIECE):
        codes[start:stop] = np.searchsorted(classes, y[start:stop])
    return classes, codes


def present_codes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(codes that occur, ascending; for each row the index of its code among them)."""
    present = np.unique(codes)
    if present[-1] == len(present) - 1:
        return present, codes
    place = np.zeros(present[-1] + 1, np.int64)
    place[present] = np.arange(len(present))
    return present, place[codes]


def check_weighted_classes(codes: np.ndarray, weights: np.ndarray | None) -> None:
    """Raise ValueError where only one class has rows of positive weight."""
    if weights is not None and len(np.unique(codes[weights > 0])) < 2:
        raise ValueError("Invalid input - all samples with positive weights belong to the same class.")


def weights_of_classes(
    class_weight: Any,
    classes: np.ndarray,
    codes: np.ndarray,
    sample_weight: np.ndarray | None,
    declared: np.ndarray | None = None,
) -> np.ndarray:
    """The weight of each class, float64.  'balanced' is n / (n_classes n_c), counting the weights of rows if given.

    declared : all labels that may occur; None: `classes`

    Warns of weights of labels that do not exist, as LIBSVM does.  This is no error where all others have weights,
    because a search over folds may leave out all rows of a class.  Raises ValueError otherwise, as scikit-learn does,
    and for a weight that is negative or not finite.  (`bigsvm.fit` would name the code, not the label.)
    """
    if class_weight == "balanced":
        return _balanced(np.bincount(codes, sample_weight, len(classes)).astype(np.float64))
    if class_weight is None:
        return np.ones(len(classes))
    with errors_of_scikit_learn():
        weights, unknown = weights_named(class_weight, classes)
        if unknown and len(class_weight) - len(unknown) < len(classes):
            named = weights_named(dict.fromkeys(class_weight, 0.0), classes)[0] == 0.0
            raise ValueError(f"The classes, {classes[~named].tolist()}, are not in class_weight")
        if declared is not None:
            unknown = weights_named(dict.fromkeys(unknown, 1.0), declared)[1]
    if unknown:
        labels = ", ".join(map(repr, unknown[:_SHOWN])) + (", ..." if len(unknown) > _SHOWN else "")
        message = f"class_weight has a weight for what is no label of y: {labels}"
        warnings.warn(message, UserWarning, stacklevel=level_of_the_user())
    return weights


def check_classes_weigh(
    of_classes: np.ndarray, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray | None, each: bool = False
) -> None:
    """Raise ValueError if fewer than two classes have positive weight.  (`bigsvm.fit` would name codes, not labels.)

    of_classes : weight of each class;  codes, weights : of the rows
    each : refuse also a single class whose rows all weigh 0, since its model would have nothing to separate
    """
    rows = np.bincount(codes if weights is None else codes[weights > 0], minlength=len(classes))
    weighs = (rows > 0) & (of_classes > 0.0)
    taking_part, others = classes[weighs].tolist(), classes[~weighs].tolist()
    if len(taking_part) < 2:
        which = f"only class {taking_part[0]!r} takes" if taking_part else "no class takes"
        raise ValueError(f"{which} part: every other row has weight 0")
    if each and others:
        raise ValueError(f"every row of class {others[0]!r} has weight 0: its model has nothing to separate")


def check_nu(
    nu: float, of_classes: np.ndarray, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> None:
    """Raise ValueError if nu is too large for a pair of classes.  (`bigsvm.fit` would name codes, not labels.)

    of_classes : weight of each class;  codes, weights : of the rows
    """
    sums = np.bincount(codes, weights, len(classes)) * of_classes
    labels, least, most = classes.tolist(), int(np.argmin(sums)), int(np.argmax(sums))
    if sums[least] == 0.0:
        raise ValueError(f"no nu is feasible: no row of class {labels[least]!r} has a weight above 0")
    feasible = 2.0 * sums[least] / (sums[least] + sums[most])
    if nu > feasible * (1.0 + 1e-12):
        few = f"class {labels[least]!r} has too few rows, or too little weight, beside class {labels[most]!r}"
        raise ValueError(f"nu = {nu:g} is infeasible: {few} (at most nu={feasible:.6g})")


def by_code(weights: np.ndarray, codes: np.ndarray | None = None) -> dict[str, float] | None:
    """Weights of classes as the option class_weight: {code as text: weight}; None if all are 1.

    codes : of the classes; None: 0, 1, ...
    """
    if np.all(weights == 1.0):
        return None
    codes = np.arange(len(weights)) if codes is None else codes
    return {str(code): float(weight) for code, weight in zip(codes.tolist(), weights.tolist(), strict=True)}


def of_store(class_weight: Any, rows: RowBlocks, weighted: bool) -> Any:
    """scikit-learn's class_weight as an option of `bigsvm.fit`, for the rows of a store.

    weighted : whether 'balanced' counts the weights of rows (LinearSVC) or all rows, even those of weight 0 (SVC).
        `bigsvm.fit` itself counts rows of positive weight, so if rows have weights the classes are counted here, which
        costs a reading of the store
    """
    if class_weight != "balanced" or rows.classes is None or not rows.has_weights:
        return by_label(class_weight)
    counts = np.zeros(len(rows.classes))
    for ref in rows.refs(max(1, int(_BLOCK // row_bytes(rows)))):
        block = rows.read(ref)
        counts += np.bincount(block.y.astype(np.int64), block.sample_weight if weighted else None, len(counts))
    weights = _balanced(counts).tolist()
    return {str(label): weight for label, weight in zip(rows.classes.tolist(), weights, strict=True)}


def _balanced(counts: np.ndarray) -> np.ndarray:
    """n / (n_classes n_c), float64, (n_classes,).  counts : rows of each class, or sums of their weights"""
    return counts.sum() / (len(counts) * np.maximum(counts, np.finfo(float).tiny))


def by_label(class_weight: Any) -> Any:
    """scikit-learn's class_weight as the option of `bigsvm.fit` takes it, with weights that are Python's own floats."""
    if isinstance(class_weight, dict):
        return {label: float(weight) for label, weight in class_weight.items()}
    return class_weight
